# SPDX-License-Identifier: Apache-2.0
"""
To register a table with a metadata file that is there, and to unregister one: judged, recorded, and nothing is written
or deleted. Through the real routes, with the real catalog.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.metadata.files import MetadataFiles
from gateway.mutations import SNAPSHOTS_MAX
from testkit.gateway.log_contents import check_agreement, live_rows, path_of, read_stored, words
from testkit.gateway.sales import (
    ORDERS,
    SALES,
    SCHEMA,
    TABLES,
    another_key,
    before_each_append,
    error_of,
    location_of_orders,
    properties,
)
from testkit.gateway.table_requests import snapshot
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

REGISTER = f"{SALES}/register"
AGAIN = f"{TABLES}/again"


def registering(location: str, name: str = "again", **more: object) -> dict[str, Any]:
    """The body of a registerTable."""
    return {"name": name, "metadata-location": location, **more}


async def unregistered(sales: Gateway) -> str:
    """Unregister `sales.orders`, with one snapshot in it, and return where its metadata is."""
    location = await location_of_orders(sales)
    folder = location.rpartition("/")[0]
    assert (await sales.http.post(ORDERS, json=snapshot(f"{folder}/snap-7.avro"))).status_code == 200
    answer = await sales.http.post(f"{ORDERS}/unregister")
    assert answer.status_code == 200
    return str(answer.json()["metadata-location"])


def changed(base: str, **members: object) -> str:
    """Write a metadata file beside that one, with other members, and return where it is."""
    source = path_of(base)
    metadata = {**json.loads(source.read_bytes()), **members}
    target = source.with_name(f"00009-{len(list(source.parent.iterdir()))}.metadata.json")
    target.write_text(json.dumps(metadata, indent=2))
    return base.rpartition("/")[0] + f"/{target.name}"


async def test_a_table_that_was_unregistered_is_registered_with_its_last_metadata(sales: Gateway) -> None:
    before = (await sales.http.get(ORDERS)).json()["metadata"]["table-uuid"]
    location = await unregistered(sales)
    told = len(await read_stored(sales.services, sales.acme.log_id))
    files = sorted(path_of(location).parent.iterdir())
    assert (await sales.http.head(ORDERS)).status_code == 404
    answer = await sales.http.post(REGISTER, json=registering(location))
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata-location"] == location
    assert answer.json()["metadata"]["table-uuid"] == before
    loaded = await sales.http.get(AGAIN)
    assert (loaded.content, loaded.headers["etag"]) == (answer.content, answer.headers["etag"])
    assert sorted(path_of(location).parent.iterdir()) == files
    decided, settled = await read_stored(sales.services, sales.acme.log_id, after=told)
    assert (decided.words, settled.words) == ("approved", "accepted")
    assert decided.decided.operation == "table.register"
    assert decided.decided.actions == ("CATALOG_REGISTER_ENTITY",)
    assert decided.decided.snapshots == settled.settled.snapshots == ("7",)
    assert settled.settled.metadata_location == location
    assert (await sales.http.post(AGAIN, json=properties(a="b"))).status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_file_in_another_hand_is_shown_the_same_in_every_process(sales: Gateway) -> None:
    location = changed(await unregistered(sales), properties={"made": "elsewhere"})
    answer = await sales.http.post(REGISTER, json=registering(location))
    assert answer.json()["metadata"]["properties"] == {"made": "elsewhere"}
    catalogs = replace(sales.services.gateway.catalogs, files=MetadataFiles())
    async with sales.through(catalogs=catalogs) as elsewhere:
        loaded = await elsewhere.get(AGAIN)
    assert (loaded.content, loaded.headers["etag"]) == (answer.content, answer.headers["etag"])


async def test_unregister_answers_the_last_metadata_and_leaves_every_file(sales: Gateway) -> None:
    location = await location_of_orders(sales)
    metadata = (await sales.http.get(ORDERS)).json()["metadata"]
    answer = await sales.http.post(f"{ORDERS}/unregister")
    assert answer.json() == {"metadata-location": location, "metadata": metadata}
    assert path_of(location).is_file()
    assert (await sales.http.get(ORDERS)).status_code == 404
    assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 404
    assert (await sales.http.post(f"{ORDERS}/unregister")).status_code == 404
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_name_that_is_taken_conflicts(sales: Gateway) -> None:
    location = await location_of_orders(sales)
    for named in (location, f"{location}.gone"):
        answer = await sales.http.post(REGISTER, json=registering(named, "orders"))
        assert (answer.status_code, error_of(answer)["type"]) == (409, "AlreadyExistsException")
    assert (await words(sales.services, sales.acme.log_id))[-2:] == ["conflicted", "conflicted"]


async def test_a_namespace_that_is_not_there_is_not_found(sales: Gateway) -> None:
    location = await unregistered(sales)
    answer = await sales.http.post(REGISTER.replace("sales", "nowhere"), json=registering(location))
    assert (answer.status_code, error_of(answer)["type"]) == (404, "NoSuchNamespaceException")


async def test_the_files_of_a_table_belong_to_one_table(sales: Gateway) -> None:
    answer = await sales.http.post(REGISTER, json=registering(await location_of_orders(sales)))
    assert answer.status_code == 400
    assert "overlaps another table's" in error_of(answer)["message"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": "again"},
        {"metadata-location": "file:///x"},
        {"name": "", "metadata-location": "file:///x"},
        {"name": 1, "metadata-location": "file:///x"},
        {"name": "again", "metadata-location": 1},
        {"name": "again", "metadata-location": ""},
        {"name": "again", "metadata-location": "x" * 5_000},
        {"name": "again\u200b", "metadata-location": "file:///x"},
        {"name": "again", "metadata-location": "file:///x", "overwrite": "yes"},
        [],
    ],
)
async def test_a_body_of_another_shape_is_refused(module_sales: Gateway, body: object) -> None:
    assert (await module_sales.http.post(REGISTER, json=body)).status_code == 400


async def test_to_overwrite_is_not_offered(sales: Gateway) -> None:
    answer = await sales.http.post(REGISTER, json=registering(await location_of_orders(sales), overwrite=True))
    assert (answer.status_code, error_of(answer)["type"]) == (406, "UnsupportedOperationException")
    assert "take it out of the catalog first" in error_of(answer)["message"]


async def test_a_file_elsewhere_is_not_read(sales: Gateway, tmp_path: Path) -> None:
    location = await unregistered(sales)
    warehouse = f"{sales.services.gateway.catalogs.warehouse}/{sales.acme.tenant.hex}/lake"
    outside = tmp_path / "00000-x.metadata.json"
    shutil.copy(path_of(location), outside)
    link = path_of(location).with_name("00001-link.metadata.json")
    link.symlink_to(outside)
    folder = path_of(warehouse) / "elsewhere"
    folder.symlink_to(tmp_path)
    for named in (
        f"file://{outside}",
        str(outside),
        f"{warehouse}/../lake/x.metadata.json",
        f"{warehouse}/%2e%2e/x.metadata.json",
        f"{location.rpartition('/')[0]}/{link.name}",
        f"{warehouse}/elsewhere/{outside.name}",
        location.replace(sales.acme.tenant.hex, "0" * 32),
        "s3://bucket/x.metadata.json",
        "https://example.com/x.metadata.json",
    ):
        answer = await sales.http.post(REGISTER, json=registering(named))
        assert answer.status_code == 400, named
        assert error_of(answer)["message"].startswith("metadata-location: "), named
    link.unlink()
    folder.unlink()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"format-version": 9}', b"\xff", b'{"format-version": 2, "table-uuid": "x"}'],
)
async def test_a_file_that_is_no_metadata_is_refused(sales: Gateway, content: bytes) -> None:
    location = changed(await unregistered(sales))
    path_of(location).write_bytes(content)
    answer = await sales.http.post(REGISTER, json=registering(location))
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    for gone in (f"{location}.gone", location.rpartition("/")[0]):
        assert (await sales.http.post(REGISTER, json=registering(gone))).status_code == 400


async def test_what_the_metadata_names_must_be_the_tables(sales: Gateway) -> None:
    location = await unregistered(sales)
    metadata = json.loads(path_of(location).read_bytes())
    other = location.replace(sales.acme.tenant.hex, "0" * 32).rpartition("/")[0]
    elsewhere = {**metadata["snapshots"][0], "manifest-list": f"{other}/snap-7.avro"}
    version_1 = {key: value for key, value in metadata["snapshots"][0].items() if key != "manifest-list"}
    statistics = {
        "snapshot-id": 7,
        "statistics-path": f"{other}/s.puffin",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    for members in (
        {"location": other},
        {"properties": {"write.metadata.path": other}},
        {"snapshots": [elsewhere]},
        {"snapshots": [{**version_1, "manifests": [f"{other}/m.avro"]}]},
        {"statistics": [statistics]},
        {"partition-statistics": [{**statistics}]},
        {"table-uuid": None},
        {"table-uuid": "none"},
    ):
        answer = await sales.http.post(REGISTER, json=registering(changed(location, **members)))
        assert answer.status_code == 400, members
    assert ("lake", ("sales",), "again") not in (await live_rows(sales.services, sales.acme.log_id)).tables


async def test_a_table_of_more_snapshots_than_an_entry_holds_is_refused(sales: Gateway) -> None:
    location = await unregistered(sales)
    (one,) = json.loads(path_of(location).read_bytes())["snapshots"]
    many = [{**one, "snapshot-id": number} for number in range(1, SNAPSHOTS_MAX + 2)]
    refused = await sales.http.post(REGISTER, json=registering(changed(location, snapshots=many)))
    assert refused.status_code == 400
    assert "expire some of them first" in error_of(refused)["message"]
    accepted = await sales.http.post(REGISTER, json=registering(changed(location, snapshots=many[:-1])))
    assert accepted.status_code == 200, accepted.text
    await check_agreement(sales.services, sales.acme.log_id)


async def test_policies_judge_what_the_file_says(sales: Gateway) -> None:
    location = await unregistered(sales)
    admin, log_id = sales.services.gateway.admin, sales.acme.log_id
    await admin.create_policy(
        log_id,
        OPERATOR,
        policy_id="owned",
        text=PolicyText(
            expression="commit.operation != 'table.register' || 'owner' in result.properties",
            message="a table that is registered needs an owner",
        ),
    )
    refused = await sales.http.post(REGISTER, json=registering(location))
    assert refused.status_code == 403
    assert error_of(refused)["message"].startswith("a table that is registered needs an owner")
    assert (await words(sales.services, log_id))[-1] == "rejected"
    owned = changed(location, properties={"owner": "ada"})
    assert (await sales.http.post(REGISTER, json=registering(owned))).status_code == 200


async def test_who_may_not_register_learns_nothing_of_files(sales: Gateway) -> None:
    location = await unregistered(sales)
    async with sales.client(await another_key(sales)) as eve:
        answers = [
            await eve.post(REGISTER, json=registering(one)) for one in (location, f"{location}.gone", "s3://x/y")
        ]
    assert {answer.status_code for answer in answers} == {403}
    assert len({answer.text for answer in answers}) == 1


async def test_a_name_that_is_taken_meanwhile_conflicts_and_the_file_stays(sales: Gateway) -> None:
    location = await unregistered(sales)

    async def first(count: int) -> None:
        if count == 0:
            body = {"name": "again", "schema": SCHEMA}
            assert (await sales.http.post(TABLES, json=body)).status_code == 200

    async with sales.through(append=before_each_append(sales, first)) as http:
        answer = await http.post(REGISTER, json=registering(location))
    assert answer.status_code == 409
    assert path_of(location).is_file()
    await check_agreement(sales.services, sales.acme.log_id)
