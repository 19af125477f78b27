# SPDX-License-Identifier: Apache-2.0
"""
Places of tables: no table inside another, and no path outside of the catalog's folder.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import psycopg
import pytest

from gateway.catalogs.builtin import BuiltinCatalog
from gateway.catalogs.derived import fill_derived_rows
from gateway.metadata.paths import PATH_PROPERTIES
from testkit.gateway.log_contents import check_agreement, live_rows, read_stored
from testkit.gateway.sales import ORDERS, TABLES, before_each_append, error_of, properties
from testkit.gateway.table_requests import PATHS, created, moved, snapshot
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


def root_of(gateway: Gateway) -> str:
    """The folder of the catalog `lake`."""
    return f"{gateway.services.gateway.catalogs.warehouse}/{gateway.acme.tenant.hex}/lake"


async def location_of(http: httpx.AsyncClient, table: str) -> str:
    location: str = (await http.get(table)).json()["metadata"]["location"]
    return location


def spelled(location: str) -> list[str]:
    """Ways to write a location of a local disk."""
    path = location.removeprefix("file://")
    return [path, f"file:{path}", f"file://{path}/", f"file://localhost{path}"]


@pytest.mark.parametrize("name", PATHS)
async def test_no_path_property_leads_out_of_the_catalogs_folder(sales: Gateway, name: str) -> None:
    root, elsewhere = root_of(sales), f"{sales.services.gateway.catalogs.warehouse}/{'0' * 32}/lake/t"
    ways_out = (
        "file:///etc",
        "file:/etc",
        "/etc",
        "s3://elsewhere/t",
        elsewhere,
        root,
        f"{root}/",
        f"{root}/../x",
        f"{root}/%2e%2e/x",
        f"{root}2/x",
    )
    for path in ways_out[PATHS.index(name) % 3 :: 3]:  # each of them with two of the names
        for answer in (
            await sales.http.post(ORDERS, json=properties(**{name: path})),
            await sales.http.post(TABLES, json=created("t", **{name: path})),
            await sales.http.post(TABLES, json={**created("t", **{name: path}), "stage-create": True}),
        ):
            assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), path
            assert error_of(answer)["message"].startswith(f"properties.{name}: "), path
    assert ("lake", ("sales",), "t") not in (await live_rows(sales.services, sales.acme.log_id)).tables
    inside = await sales.http.post(ORDERS, json=properties(**{name: f"{root}/of orders/x"}))
    assert inside.status_code == 200, inside.text
    await check_agreement(sales.services, sales.acme.log_id)


@pytest.mark.parametrize("name", sorted(PATH_PROPERTIES))
async def test_a_known_path_property_that_is_no_path_is_refused(sales: Gateway, name: str) -> None:
    for path in ("", "data", "../data", "${HOME}"):
        answer = await sales.http.post(ORDERS, json=properties(**{name: path}))
        assert answer.status_code == 400, path


async def test_no_table_lies_in_another_or_holds_it(sales: Gateway) -> None:
    taken = await location_of(sales.http, ORDERS)
    for location in (*spelled(taken), f"{taken}/data", f"{taken}/data/x", taken.upper().replace("FILE:", "file:")):
        answer = await sales.http.post(TABLES, json=created("t", location))
        assert answer.status_code == 400, location
        answer = await sales.http.post(TABLES, json=created("t", **{"write.data.path": location}))
        assert answer.status_code == 400, location
    root = root_of(sales)
    assert (await sales.http.post(TABLES, json=created("deep", f"{root}/a/b/c"))).status_code == 200
    for location in (f"{root}/a", f"{root}/a/b", f"file:{root.removeprefix('file://')}/a/b/c"):
        answer = await sales.http.post(TABLES, json=created("t", location))
        assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException"), location
        answer = await sales.http.post(ORDERS, json=moved(location))
        assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException"), location
        answer = await sales.http.post(ORDERS, json=properties(**{"write.data.path": location}))
        assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException"), location
    assert (await sales.http.post(TABLES, json=created("beside", f"{root}/a/b/c2"))).status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_tables_data_folder_is_its_own_too(sales: Gateway) -> None:
    root = root_of(sales)
    data = properties(**{"write.data.path": f"{root}/data/orders"})
    assert (await sales.http.post(ORDERS, json=data)).status_code == 200
    for location in (f"{root}/data", f"{root}/data/orders", f"{root}/data/orders/x"):
        assert (await sales.http.post(TABLES, json=created("t", location))).status_code == 400, location
    assert (await sales.http.post(TABLES, json=created("t", f"{root}/data/others"))).status_code == 200
    gone = {"requirements": [], "updates": [{"action": "remove-properties", "removals": ["write.data.path"]}]}
    assert (await sales.http.post(ORDERS, json=gone)).status_code == 200
    assert (await sales.http.post(TABLES, json=created("u", f"{root}/data/orders"))).status_code == 200
    assert (await sales.http.post(ORDERS, json=data)).status_code == 400, "it is another's by now"


async def test_a_table_moves_within_its_own_place_and_away(sales: Gateway) -> None:
    location, root = await location_of(sales.http, ORDERS), root_of(sales)
    for target in (f"{location}/below", location, f"{root}/elsewhere", location):
        assert (await sales.http.post(ORDERS, json=moved(target))).status_code == 200, target
    assert (await sales.http.post(TABLES, json=created("t", f"{root}/elsewhere"))).status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_location_may_be_spelled_otherwise_than_the_warehouse(sales: Gateway) -> None:
    path = f"{root_of(sales).removeprefix('file://')}/spelled"
    assert (await sales.http.post(TABLES, json=created("t", f"file:{path}"))).status_code == 200
    assert (await location_of(sales.http, f"{TABLES}/t")) == f"file:{path}", "as its creator has said"
    rows = await check_agreement(sales.services, sales.acme.log_id)
    assert rows.tables["lake", ("sales",), "t"][1].startswith(f"file://{path}/metadata/"), "as other files are named"


async def test_a_place_is_free_again_when_its_table_is_dropped(sales: Gateway) -> None:
    location = await location_of(sales.http, ORDERS)
    assert (await sales.http.post(TABLES, json=created("t", location))).status_code == 400
    assert (await sales.http.delete(ORDERS)).status_code == 204
    assert (await sales.http.post(TABLES, json=created("t", location))).status_code == 200


async def test_of_creators_in_one_place_at_once_one_wins(sales: Gateway) -> None:
    root = root_of(sales)
    path = root.removeprefix("file://")
    locations = [f"{root}/p", f"file:{path}/p", f"{root}/p/q", f"{root}/p/q/r", f"file:{path}/P/"]
    bodies = [created(f"t{number}", location) for number, location in enumerate(locations)]
    bodies.append(created("t9", **{"write.data.path": f"{root}/p/q"}))
    answers = await asyncio.gather(*(sales.http.post(TABLES, json=body) for body in bodies))
    made = {f"t{number}" for number, answer in zip((*range(5), 9), answers, strict=True) if answer.status_code == 200}
    assert {answer.status_code for answer in answers} == {200, 400}
    assert len(made) == 1
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_table_that_comes_between_is_seen_by_the_guard(sales: Gateway) -> None:
    root = root_of(sales)

    async def be_first(count: int) -> None:
        if count == 0:
            assert (await sales.http.post(TABLES, json=created("first", f"{root}/p"))).status_code == 200

    client = sales.through(append=before_each_append(sales, be_first))
    answer = await client.post(TABLES, json=created("second", f"{root}/p/q"))
    assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException")
    client = sales.through(append=before_each_append(sales, _creates(sales, "third", f"{root}/r")))
    answer = await client.post(ORDERS, json=properties(**{"write.data.path": f"{root}/r"}))
    assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException")


def _creates(gateway: Gateway, name: str, location: str) -> Any:
    async def create(count: int) -> None:
        if count == 0:
            (await gateway.http.post(TABLES, json=created(name, location))).raise_for_status()

    return create


async def test_a_commit_names_files_of_its_table_only(sales: Gateway) -> None:
    location, root = await location_of(sales.http, ORDERS), root_of(sales)
    (await sales.http.post(TABLES, json=created("other", f"{root}/other"))).raise_for_status()
    for path in ("/etc/passwd", f"{root}/other/metadata/snap.avro", f"{location}/../other/snap.avro", "snap.avro"):
        answer = await sales.http.post(ORDERS, json=snapshot(path))
        assert answer.status_code == 400, path
        assert "manifest-list: " in error_of(answer)["message"]
    statistics = {"snapshot-id": 7, "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    for action, member in (("set-statistics", "statistics"), ("set-partition-statistics", "partition-statistics")):
        update = {"action": action, "snapshot-id": 7, member: {**statistics, "statistics-path": "/etc/passwd"}}
        answer = await sales.http.post(ORDERS, json={"requirements": [], "updates": [update]})
        assert answer.status_code == 400
        assert "statistics-path: " in error_of(answer)["message"]
    (await sales.http.post(ORDERS, json=properties(**{"write.metadata.path": f"{root}/meta"}))).raise_for_status()
    elsewhere = f"file:{root.removeprefix('file://')}/meta/snap.avro"
    assert (await sales.http.post(ORDERS, json=snapshot(elsewhere))).status_code == 200


async def test_a_tables_places_are_a_part_of_the_decision_that_set_them(sales: Gateway) -> None:
    root = root_of(sales)
    (await sales.http.post(ORDERS, json=properties(a="1"))).raise_for_status()
    (await sales.http.post(ORDERS, json=properties(**{"write.data.path": f"{root}/data"}))).raise_for_status()
    told = [
        one.parts.get("places")
        for one in await read_stored(sales.services, sales.acme.log_id)
        if one.words == "approved"
    ]
    location = await location_of(sales.http, ORDERS)
    assert told[-3:] == [
        f'["{location}"]'.encode(),
        None,
        f'["{root}/data","{location}"]'.encode(),
    ]


async def _as_from_before(gateway: Gateway) -> None:
    """Take from the rows what an older version has not written."""
    with psycopg.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        log_id = gateway.acme.log_id
        owner.execute(
            "UPDATE gateway.tables SET looks = NULL, looks_version = NULL, places = NULL, folders = NULL,"
            " places_told = false WHERE log_id = %s",
            (log_id,),
        )
        owner.execute(
            "UPDATE gateway.namespaces SET looks = NULL, looks_version = 'older' WHERE log_id = %s", (log_id,)
        )
        fill_derived_rows(owner)


async def _rows(gateway: Gateway) -> list[tuple[Any, ...]]:
    async with gateway.services.gateway.database.as_role(gateway.services.gateway.roles.auditor) as connection:
        found = await connection.execute(
            "SELECT name, looks, looks_version, places, folders FROM gateway.tables WHERE log_id = %(log_id)s"
            " UNION ALL SELECT namespace[1], looks, looks_version, NULL, NULL FROM gateway.namespaces"
            " WHERE log_id = %(log_id)s ORDER BY 1",
            {"log_id": gateway.acme.log_id},
        )
        return await found.fetchall()


async def test_rows_from_before_are_filled_in_as_if_they_were_new(sales: Gateway) -> None:
    (await sales.http.post(TABLES, json=created("t", f"{root_of(sales)}/deep/t"))).raise_for_status()
    before = await _rows(sales)
    await _as_from_before(sales)
    assert await _rows(sales) == before
    location = await location_of(sales.http, ORDERS)
    assert (await sales.http.post(TABLES, json=created("u", f"{location}/x"))).status_code == 400
    assert (await sales.http.post(TABLES, json=created("Orders"))).status_code == 400


async def test_a_table_from_before_keeps_its_paths_and_is_written(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tables in one place, one of them with its data elsewhere, as an older version has allowed it."""

    async def unchecked(*_: object) -> None:
        """An older version's check."""

    location = await location_of(sales.http, ORDERS)
    with monkeypatch.context() as older:
        older.setattr(BuiltinCatalog, "check", unchecked)
        older.setattr(BuiltinCatalog, "changed_places", lambda *_: None)
        texts = {"write.data.path": "file:///etc"}
        (await sales.http.post(TABLES, json=created("t", f"{location}/inner", **texts))).raise_for_status()
    await _as_from_before(sales)
    for table in (ORDERS, f"{TABLES}/t"):
        assert (await sales.http.post(table, json=properties(a="1"))).status_code == 200
        assert (await sales.http.post(table, json=properties(**{"write.data.path": "file:///tmp"}))).status_code == 400
    assert (await sales.http.post(f"{TABLES}/t", json=snapshot("file:///etc/snap.avro"))).status_code == 200
    assert (await sales.http.delete(f"{TABLES}/t")).status_code == 204
    await check_agreement(sales.services, sales.acme.log_id)
