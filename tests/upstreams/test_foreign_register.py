# SPDX-License-Identifier: Apache-2.0
"""
To register a table or a view in a foreign catalog, Apache Iceberg's own server: the gateway reads the metadata file
first, and what the server registers must be what was judged.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import TableAlreadyExistsError

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.catalogs.upstream_files import LOCAL_FILES, LOCAL_FILES_ALLOWED
from gateway.mutations import SNAPSHOTS_MAX
from lakeproof.services import Services
from ledger.errors import LogUnavailableError
from ledger.format.events import OutcomeEvidence
from testkit.gateway.foreign_tenant import ALIAS, ROOT, UNKNOWN_STATUSES, VIEWS, ForeignTenant, open_far
from testkit.gateway.log_contents import check_deeply, path_of, read_stored, words
from testkit.gateway.sales import another_key, before_each_append, error_of, new_key
from testkit.gateway.view_requests import view_created
from testkit.servers.chained import Chained, open_chain, register, register_located
from testkit.servers.faulty_wire import Fault, Loss, Replaced, answer
from testkit.servers.gateways import app_of
from testkit.servers.iceberg_rest import IcebergRest, start_iceberg_rest
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

REGISTER = f"{ROOT}/sales/register"
REGISTER_VIEW = f"{ROOT}/sales/register-view"
LOCATED = "/v1/iceberg/located/namespaces"
ENDPOINT = "POST /v1/{prefix}/namespaces/{namespace}/register"
ANOTHER = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A table that the upstream knows no more, whose files are there: `location` is that of its last metadata."""

    far: ForeignTenant
    location: str

    @property
    def http(self) -> httpx.AsyncClient:
        """A client of the gateway."""
        return self.far.gateway.http

    @property
    def sent(self) -> int:
        """How many requests that change something the upstream has received through the gateway."""
        return sum(seen.is_mutation for seen in self.far.wire.seen)

    def body(self, location: str | None = None, **more: object) -> dict[str, Any]:
        """The body of a registerTable."""
        return {"name": self.far.name, "metadata-location": location or self.location, **more}

    def changed(self, **members: object) -> str:
        """Write a metadata file beside the last one, with other members, and return where it is."""
        source = path_of(self.location)
        target = source.with_name(f"00009-{len(list(source.parent.iterdir()))}.metadata.json")
        target.write_text(json.dumps({**json.loads(source.read_bytes()), **members}, indent=2))
        return f"{self.location.rpartition('/')[0]}/{target.name}"

    async def register(self, location: str | None = None, **parts: Any) -> httpx.Response:
        """Register it through the gateway."""
        return await self.http.post(REGISTER, json=self.body(location), **parts)

    async def is_there(self) -> bool:
        """Whether the upstream has it."""
        return (await self.far.direct.get(self.far.upstream_path)).status_code == httpx.codes.OK


@pytest.fixture(scope="module")
def iceberg_rest() -> Iterator[IcebergRest]:
    """A real catalog server, empty at first."""
    with start_iceberg_rest() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services, iceberg_rest: IcebergRest) -> AsyncIterator[ForeignTenant]:
    """A tenant with that server as its catalog `far`, whose files the operator lets the gateway read."""
    options = {"location": iceberg_rest.warehouse, LOCAL_FILES: LOCAL_FILES_ALLOWED}
    async with open_far(module_services, iceberg_rest.url, options=options) as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def left(tenant: ForeignTenant) -> Left:
    """A table of the test's own, with one snapshot, that is in the catalog no more."""
    far = await tenant.with_new_table()
    await far.commit_behind(await far.next_append())
    location = (await far.table())["metadata-location"]
    (await far.direct.delete(far.upstream_path)).raise_for_status()
    return Left(far=far, location=location)


async def test_a_table_is_registered_as_its_file_was_judged(left: Left) -> None:
    judged = path_of(left.location).read_bytes()
    made = await left.register()
    assert made.status_code == 200, made.text
    assert made.json()["metadata-location"] == left.location
    assert made.json()["metadata"] == (await left.far.table())["metadata"]
    decided, settled = await read_stored(left.far.services, left.far.log_id, after=left.far.first, key=left.far.key)
    assert (decided.words, settled.words) == ("approved", "accepted")
    assert (decided.decided.operation, decided.decided.base) == ("table.register", None)
    (snapshot,) = await left.far.snapshots()
    assert decided.decided.snapshots == settled.settled.snapshots == (snapshot,)
    assert settled.settled.metadata_location == left.location
    assert settled.settled.metadata_sha256 == hashlib.sha256(judged).hexdigest()
    assert settled.settled.table_uuid == json.loads(judged)["table-uuid"]
    assert (await left.http.post(left.far.orders, json=await left.far.next_append())).status_code == 200
    await check_deeply(left.far.services, left.far.log_id)


async def test_an_engine_registers_a_table_and_reads_it(left: Left) -> None:
    def engine(url: str) -> tuple[str, str]:
        catalog = RestCatalog("test", uri=url, warehouse=ALIAS, token=left.far.gateway.acme.key.secret)
        table = catalog.register_table(("sales", left.far.name), left.location)
        with pytest.raises(TableAlreadyExistsError):
            catalog.register_table(("sales", left.far.name), left.location)
        return table.metadata_location, catalog.load_table(("sales", left.far.name)).metadata_location

    async with serve_gateway(left.far.gateway.app) as url:
        assert await asyncio.to_thread(engine, url) == (left.location, left.location)
    assert await left.far.words() == ["approved", "accepted", "conflicted"]


async def test_it_is_advertised_where_the_gateway_can_read_the_file_and_refused_elsewhere(left: Left) -> None:
    far = left.far
    alias = f"blind-{far.name}"
    await register(far.gateway, alias, far.wire.url)
    offered = {
        name: (await left.http.get("/v1/config", params={"warehouse": name})).json()["endpoints"]
        for name in (ALIAS, alias)
    }
    assert (ENDPOINT in offered[ALIAS], ENDPOINT in offered[alias]) == (True, False)
    sent = left.sent
    no = await left.http.post(REGISTER.replace(ALIAS, alias), json=left.body())
    assert (no.status_code, error_of(no)["type"]) == (406, "UnsupportedOperationException")
    assert "whose metadata files the gateway can read" in error_of(no)["message"]
    assert (left.sent, await left.is_there()) == (sent, False)


async def test_an_upstream_that_does_not_advertise_it_is_sent_nothing(left: Left) -> None:
    far = left.far
    config = (await far.direct.get("/v1/config")).json()
    config["endpoints"] = [each for each in config["endpoints"] if "/register" not in each]
    says = Replaced(answer=answer(200, json.dumps(config).encode()), carried_out=False)
    far.wire.fault = Fault(happens=says, path="/v1/config", methods=frozenset({"GET"}))
    far.services.gateway.catalogs.made.pop((far.gateway.acme.tenant, ALIAS))
    sent = left.sent
    no = await left.register()
    far.services.gateway.catalogs.made.pop((far.gateway.acme.tenant, ALIAS))
    assert (no.status_code, error_of(no)["type"]) == (406, "UnsupportedOperationException")
    assert "does not say that it registers tables" in error_of(no)["message"]
    assert left.sent == sent


async def test_policies_judge_what_the_file_says(left: Left) -> None:
    name, sent = left.far.name, left.sent
    await left.far.services.gateway.admin.create_policy(
        left.far.log_id,
        OPERATOR,
        policy_id=f"owned-{name}",
        text=PolicyText(
            expression=f"commit.name != '{name}' || 'owner' in result.properties",
            message="a table that is registered needs an owner",
        ),
    )
    no = await left.register()
    assert (no.status_code, error_of(no)["message"].partition(" (")[0]) == (
        403,
        "a table that is registered needs an owner",
    )
    assert (await left.far.words(), left.sent) == (["rejected"], sent)
    assert (await left.register(left.changed(properties={"owner": "ada"}))).status_code == 200


async def test_who_may_not_register_learns_nothing_of_files(left: Left) -> None:
    sent = left.sent
    async with left.far.gateway.client(await another_key(left.far.gateway, f"{left.far.name}@acme.example")) as eve:
        answers = [
            await eve.post(REGISTER, json=left.body(one))
            for one in (left.location, f"{left.location}.gone", "s3://x/y")
        ]
    assert {each.status_code for each in answers} == {403}
    assert len({each.text for each in answers}) == 1
    assert left.sent == sent


async def test_who_may_not_register_has_no_storage_asked(left: Left) -> None:
    gateway, alias = left.far.gateway, f"silent-{left.far.name}"
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        silent.settimeout(0)
        store = {"location": f"s3://{alias}/x", "s3.endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        options = {"uri": left.far.wire.url, **store}
        admin = gateway.services.gateway.admin
        await admin.create_catalog(left.far.log_id, OPERATOR, alias=alias, kind="rest", options=options)
        path, body = REGISTER.replace(ALIAS, alias), left.body(f"s3://{alias}/x/1.metadata.json")
        async with gateway.client(await another_key(gateway, f"no-{left.far.name}@acme.example")) as eve:
            assert (await eve.post(path, json=body)).status_code == 403
        with pytest.raises(BlockingIOError):
            silent.accept()
        catalogs = gateway.services.gateway.catalogs
        hasty = replace(catalogs, upstreams=replace(catalogs.upstreams, timeout_s=0.5))
        async with gateway.through(catalogs=hasty) as ada:
            late = await ada.post(path, json=body)
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")
        assert "has not answered within 0.5 s, nothing was changed" in error_of(late)["message"]
        silent.accept()[0].close()


async def test_a_file_elsewhere_is_not_read(left: Left, tmp_path: Path) -> None:
    outside = tmp_path / "00000-x.metadata.json"
    outside.write_bytes(path_of(left.location).read_bytes())
    link = path_of(left.location).with_name("00001-link.metadata.json")
    link.symlink_to(outside)
    warehouse, sent = left.location.partition("/sales/")[0], left.sent
    for named in (
        f"file://{outside}",
        str(outside),
        f"{warehouse}/../x.metadata.json",
        f"{warehouse}/%2e%2e/x.metadata.json",
        left.location.replace("/sales/", "/%73ales/"),
        left.location.replace("/sales/", "//sales/"),
        f"{left.location.rpartition('/')[0]}/{link.name}",
        f"{left.location}.gone",
        left.location.rpartition("/")[0],
        "s3://bucket/x.metadata.json",
        "https://example.com/x.metadata.json",
    ):
        no = await left.register(named)
        assert (no.status_code, error_of(no)["type"]) == (400, "BadRequestException"), named
        assert error_of(no)["message"].startswith("metadata-location: "), named
    assert (left.sent, await left.is_there()) == (sent, False)
    link.unlink()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"format-version": 9}', b"\xff", b"\x1f\x8bno"])
async def test_a_file_that_is_no_metadata_is_refused(left: Left, content: bytes) -> None:
    location, sent = left.changed(), left.sent
    path_of(location).write_bytes(content)
    no = await left.register(location)
    assert (no.status_code, error_of(no)["type"], left.sent) == (400, "BadRequestException", sent)


async def test_what_the_metadata_names_must_be_below_the_catalogs_location(left: Left) -> None:
    metadata, sent = json.loads(path_of(left.location).read_bytes()), left.sent
    (one,) = metadata["snapshots"]
    many = [{**one, "snapshot-id": number} for number in range(1, SNAPSHOTS_MAX + 2)]
    statistics = {
        "snapshot-id": one["snapshot-id"],
        "statistics-path": "file:///etc/s.puffin",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    }
    for members in (
        {"location": "file:///etc"},
        {"properties": {"write.metadata.path": "s3://elsewhere/t"}},
        {"snapshots": [{**one, "manifest-list": "file:///etc/snap.avro"}]},
        {"snapshots": many},
        {"statistics": [statistics]},
        {"table-uuid": None},
        {"view-uuid": ANOTHER},
    ):
        no = await left.register(left.changed(**members))
        assert no.status_code == 400, members
    assert (left.sent, await left.is_there()) == (sent, False)


async def test_a_name_that_is_taken_conflicts_before_and_at_the_upstream(left: Left) -> None:
    assert (await left.register()).status_code == 200
    taken = await left.register()
    assert (taken.status_code, error_of(taken)["type"]) == (409, "AlreadyExistsException")
    assert await left.far.words() == ["approved", "accepted", "conflicted"]


async def test_a_name_that_is_taken_meanwhile_conflicts_at_the_upstream(left: Left) -> None:
    async def first(count: int) -> None:
        if count == 0:
            await left.far.make_table()

    async with left.far.gateway.through(append=before_each_append(left.far.gateway, first)) as http:
        no = await http.post(REGISTER, json=left.body())
    assert (no.status_code, error_of(no)["type"]) == (409, "AlreadyExistsException")
    assert await left.far.words() == ["approved", "conflicted"]
    assert not await left.far.open_decisions()


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
async def test_what_is_lost_on_the_way_is_found_out(left: Left, loss: Loss) -> None:
    lands = loss is Loss.ANSWER
    left.far.wire.fault = Fault(happens=loss, path="/register")
    lost = await left.register()
    assert lost.status_code in UNKNOWN_STATUSES
    assert error_of(lost)["type"] == "CommitStateUnknownException"
    assert await left.far.words() == ["approved", "unknown"]
    await check_deeply(left.far.services, left.far.log_id)
    await left.far.reconcile()
    assert await left.far.words() == ["approved", "unknown", *(["accepted"] if lands else [])]
    assert (await left.is_there(), bool(await left.far.open_decisions())) == (lands, not lands)
    if lands:
        settled = (await read_stored(left.far.services, left.far.log_id, key=left.far.key))[-1].settled
        assert (settled.metadata_location, settled.evidence) == (left.location, OutcomeEvidence.RECONCILED)
        assert set(settled.snapshots) == await left.far.snapshots()
    await check_deeply(left.far.services, left.far.log_id)


async def test_a_lost_answer_is_found_out_after_others_have_committed_to_the_table(left: Left) -> None:
    left.far.wire.fault = Fault(happens=Loss.ANSWER, path="/register")
    assert (await left.register()).status_code in UNKNOWN_STATUSES
    await left.far.commit_behind(await left.far.next_append())
    await left.far.reconcile()
    assert await left.far.words() == ["approved", "unknown", "accepted"]


async def test_an_outcome_that_is_not_recorded_is_answered_and_found_out(left: Left) -> None:
    async def away(count: int) -> None:
        if count == 1:
            raise LogUnavailableError("no log")

    async with left.far.gateway.through(append=before_each_append(left.far.gateway, away)) as http:
        assert (await http.post(REGISTER, json=left.body())).status_code == 200
    assert await left.far.words() == ["approved"]
    await left.far.reconcile()
    assert await left.far.words() == ["approved", "accepted"]


OTHERS: dict[str, dict[str, Any]] = {
    "uuid": {"table-uuid": ANOTHER},
    "properties": {"properties": {"owner": "eve"}},
    "path": {"properties": {"owner": "ada", "write.data.path": "file:///etc"}},
    "schema": {
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "fields": [{"id": 1, "name": "ssn", "type": "string", "required": False}],
            }
        ]
    },
    "snapshot": {"snapshots": [], "refs": {}, "current-snapshot-id": -1},
}


@pytest.mark.parametrize("members", OTHERS.values(), ids=OTHERS)
async def test_a_file_that_is_replaced_once_it_was_judged_is_not_called_accepted(
    left: Left, members: dict[str, Any]
) -> None:
    original = left.changed(properties={"owner": "ada"})

    async def replace_file(count: int) -> None:
        if count == 0:
            path_of(original).write_bytes(
                path_of(left.changed(**{"properties": {"owner": "ada"}, **members})).read_bytes()
            )

    async with left.far.gateway.through(append=before_each_append(left.far.gateway, replace_file)) as http:
        no = await http.post(REGISTER, json=left.body(original))
    assert no.status_code in UNKNOWN_STATUSES, no.text
    assert "has registered another table" in error_of(no)["message"]
    assert await left.is_there(), "the upstream has read the other file"
    assert await left.far.words() == ["approved", "unknown"]
    await left.far.reconcile()
    assert (await left.far.words())[-1] == ("failed" if "table-uuid" in members else "unknown")


async def test_an_answer_with_another_file_than_the_judged_one_is_not_believed(left: Left) -> None:
    (metadata,) = [json.loads(path_of(left.location).read_bytes())]
    lie = {"metadata-location": left.changed(), "metadata": metadata}
    for body in (lie, {**lie, "metadata-location": left.location, "metadata": {"table-uuid": metadata["table-uuid"]}}):
        says = Replaced(answer=answer(200, json.dumps(body).encode()), carried_out=False)
        left.far.wire.fault = Fault(happens=says, path="/register")
        no = await left.register()
        assert no.status_code in UNKNOWN_STATUSES, no.text
    assert await left.far.words() == ["approved", "unknown"] * 2
    await left.far.reconcile()
    assert len(await left.far.open_decisions()) == 2


async def test_a_registration_with_a_key_is_made_once(left: Left) -> None:
    headers = new_key()
    left.far.wire.fault = Fault(happens=Loss.ANSWER, path="/register")
    assert (await left.register(headers=headers)).status_code in UNKNOWN_STATUSES
    sent = left.sent
    waiting = await left.register(headers=headers)
    assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "1")
    await left.far.reconcile()
    again = await left.register(headers=headers)
    assert (again.status_code, left.sent) == (200, sent), again.text
    assert again.json()["metadata"] == (await left.far.table())["metadata"]
    other = await left.http.post(REGISTER, json=left.body(left.changed()), headers=headers)
    assert other.status_code == 422


async def test_a_commit_whose_snapshot_was_registered_since_is_not_called_failed(left: Left) -> None:
    assert (await left.register()).status_code == 200
    left.far.wire.fault = Fault(happens=Loss.ANSWER, path=left.far.path)
    assert (await left.http.post(left.far.orders, json=await left.far.next_append())).status_code in UNKNOWN_STATUSES
    location = (await left.far.table())["metadata-location"]
    assert (await left.http.delete(left.far.orders)).status_code == 204
    assert (await left.register(location)).status_code == 200
    await left.far.reconcile()
    assert (await left.far.words())[2:] == [
        "approved",
        "unknown",
        "approved",
        "accepted",
        "approved",
        "accepted",
        "accepted",
    ]
    assert not await left.far.open_decisions()


# Views


async def view_left(left: Left) -> str:
    """Make a view of the test's own, drop it at the upstream with its file, and return where a copy of that is."""
    made = await left.http.post(VIEWS, json=view_created(f"{left.far.name}-view"))
    file = path_of(made.json()["metadata-location"])
    copy = file.with_name("00007-copy.metadata.json")
    copy.write_bytes(gzip.decompress(file.read_bytes()))
    (await left.far.direct.delete(f"{left.far.prefix}/namespaces/sales/views/{left.far.name}-view")).raise_for_status()
    return f"file://{copy}"


async def test_a_view_is_registered_as_its_file_was_judged(left: Left) -> None:
    location, name, first = await view_left(left), f"{left.far.name}-view", left.far.first
    body = {"name": name, "metadata-location": location}
    left.far.wire.fault = Fault(happens=Loss.ANSWER, path="/register-view")
    lost = await left.http.post(REGISTER_VIEW, json=body)
    assert lost.status_code in UNKNOWN_STATUSES, lost.text
    await left.far.reconcile()
    file, kept = path_of(location), path_of(location).read_bytes()
    assert (await left.http.delete(f"{VIEWS}/{name}")).status_code == 204
    file.write_bytes(kept)  # this server deletes a view's files with it
    made = await left.http.post(REGISTER_VIEW, json=body)
    assert (made.status_code, made.json()["metadata-location"]) == (200, location)
    assert made.json()["metadata"]["view-uuid"] == json.loads(kept)["view-uuid"]
    told = await words(left.far.services, left.far.log_id, after=first, key=f"view:{ALIAS}/sales/{name}")
    assert told[2:] == ["approved", "unknown", "accepted", *["approved", "accepted"] * 2]


async def test_a_view_whose_file_is_replaced_once_it_was_judged_is_not_called_accepted(left: Left) -> None:
    location, name, first = await view_left(left), f"{left.far.name}-view", left.far.first
    file = path_of(location)

    async def replace_file(count: int) -> None:
        if count == 0:
            file.write_bytes(file.read_bytes().replace(b"SELECT id", b"SELECT *, id"))

    async with left.far.gateway.through(append=before_each_append(left.far.gateway, replace_file)) as http:
        no = await http.post(REGISTER_VIEW, json={"name": name, "metadata-location": location})
    assert no.status_code in UNKNOWN_STATUSES, no.text
    assert "has registered another view" in error_of(no)["message"]
    await left.far.reconcile()
    told = await words(left.far.services, left.far.log_id, after=first, key=f"view:{ALIAS}/sales/{name}")
    assert told[2:] == ["approved", "unknown"]


async def test_a_tables_file_is_no_views_and_a_views_is_no_tables(left: Left) -> None:
    view, sent = await view_left(left), left.sent
    as_view = await left.http.post(REGISTER_VIEW, json={"name": "v", "metadata-location": left.location})
    assert (as_view.status_code, (await left.register(view)).status_code) == (400, 400)
    assert left.sent == sent


# Another Lakeproof, which unregisters tables, too


@pytest_asyncio.fixture(loop_scope="module")
async def chained(module_services: Services) -> AsyncIterator[Chained]:
    """Two gateways in a row; the near one reads the far one's files."""
    app = app_of(module_services.gateway)
    async with serve_gateway(app) as url, open_chain(module_services, app, url) as chained:
        await register_located(chained, **{LOCAL_FILES: LOCAL_FILES_ALLOWED})
        yield chained


async def test_what_another_gateway_unregisters_is_registered_again(chained: Chained) -> None:
    orders, log_id = f"{LOCATED}/sales/tables/orders", chained.near.acme.log_id
    before, told = (await chained.http.get(orders)).json(), len(await read_stored(chained.near.services, log_id))
    gone = await chained.http.post(f"{orders}/unregister")
    assert gone.status_code == 200, gone.text
    assert gone.json()["metadata-location"] == before["metadata-location"]
    assert gone.json()["metadata"] == before["metadata"]
    assert (await chained.http.get(orders)).status_code == 404
    assert (await chained.http.post(f"{orders}/unregister")).status_code == 404
    body = {"name": "orders", "metadata-location": before["metadata-location"]}
    assert (await chained.http.post(f"{LOCATED}/sales/register", json=body)).status_code == 200
    entries = await read_stored(chained.near.services, log_id, after=told)
    assert [one.words for one in entries] == ["approved", "accepted"] * 2
    assert [one.decided.operation for one in entries[::2]] == ["table.unregister", "table.register"]
    assert (entries[1].settled.metadata_location, entries[1].settled.table_uuid) == (
        None,
        before["metadata"]["table-uuid"],
    )


async def test_an_unregistration_with_a_key_is_made_once_and_does_not_say_more_than_is_known(chained: Chained) -> None:
    orders, headers = f"{LOCATED}/sales/tables/orders", new_key()
    assert (await chained.http.post(f"{orders}/unregister", headers=headers)).status_code == 200
    again = await chained.http.post(f"{orders}/unregister", headers=headers)
    assert again.status_code in UNKNOWN_STATUSES
    assert "its files stay" in error_of(again)["message"]


async def test_an_upstream_that_does_not_unregister_is_sent_nothing(left: Left) -> None:
    await left.far.make_table()
    sent = left.sent
    no = await left.http.post(f"{left.far.orders}/unregister")
    assert (no.status_code, error_of(no)["type"]) == (406, "UnsupportedOperationException")
    assert "does not say that it unregisters tables" in error_of(no)["message"]
    assert (left.sent, await left.is_there()) == (sent, True)
