# SPDX-License-Identifier: Apache-2.0
"""
Faults at every step of a commit to a foreign catalog, against Apache Iceberg's own REST catalog server.

The simulator goes through the whole table (`test_foreign_faults.py`). Here is what it could get wrong: each step once,
all that happens on the way to the server, one answer of each kind in place of its own, and two deaths.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import pytest_asyncio
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table

from lakeproof.services import Services
from testkit.gateway.foreign_faults import (
    KILLS,
    LOSSES,
    UPSTREAM_ANSWERS,
    Case,
    Kill,
    Step,
    UpstreamAnswer,
    check_kill,
    check_loss,
    check_mixture,
    check_other_changes,
    check_saying,
    check_view_changes,
)
from testkit.gateway.foreign_tenant import ALIAS, ROOT, UNKNOWN_STATUSES, VIEWS, ForeignTenant, open_far
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import new_key, properties
from testkit.gateway.view_requests import view_created, view_replaced
from testkit.servers.chained import register
from testkit.servers.faulty_wire import Fault, FaultyWire, Loss, Replaced, answer
from testkit.servers.iceberg_rest import IcebergRest, start_iceberg_rest
from testkit.servers.loopback import serve_gateway


@pytest.fixture(scope="module")
def iceberg_rest() -> Iterator[IcebergRest]:
    """A real catalog server, empty at first."""
    with start_iceberg_rest() as server:
        yield server


on_module_loop = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services, iceberg_rest: IcebergRest) -> AsyncIterator[ForeignTenant]:
    """A tenant with a foreign catalog, Apache Iceberg's own server."""
    async with open_far(module_services, iceberg_rest.url) as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def far(tenant: ForeignTenant) -> ForeignTenant:
    """The tenant, with a table of the test's own."""
    return await tenant.with_new_table()


@on_module_loop
@pytest.mark.parametrize(
    "case", [case for case in LOSSES if case.step is Step.FORWARD or case.loss is Loss.ANSWER], ids=str
)
async def test_what_is_lost_or_late_leaves_record_and_table_in_agreement(far: ForeignTenant, case: Case) -> None:
    await check_loss(far, case)


@on_module_loop
@pytest.mark.parametrize(
    "saying", [saying for saying in UPSTREAM_ANSWERS if saying.carried_out and saying.status in {200, 500}], ids=str
)
async def test_whatever_the_upstream_says_record_and_table_agree(far: ForeignTenant, saying: UpstreamAnswer) -> None:
    await check_saying(far, saying)


@on_module_loop
@pytest.mark.parametrize("kill", [kill for kill in KILLS if kill.lands and kill.step is not Step.ANSWER], ids=str)
async def test_a_process_that_is_killed_leaves_record_and_table_in_agreement(far: ForeignTenant, kill: Kill) -> None:
    await check_kill(far, kill)


@on_module_loop
async def test_a_change_of_every_kind_is_found_if_its_answer_is_lost(far: ForeignTenant) -> None:
    await check_other_changes(far)


@on_module_loop
async def test_a_change_of_every_kind_to_a_view_is_found_if_its_answer_is_lost(far: ForeignTenant) -> None:
    await check_view_changes(far)


@on_module_loop
async def test_a_request_whose_answer_was_lost_is_sent_again_until_its_outcome_is_known(far: ForeignTenant) -> None:
    headers, body = new_key(), properties(color="red")
    far.wire.fault = Fault(happens=Loss.ANSWER, path=far.path)
    lost = await far.gateway.http.post(far.orders, json=body, headers=headers)
    assert lost.status_code in UNKNOWN_STATUSES
    sent = sum(seen.is_mutation for seen in far.wire.seen)
    waiting = await far.gateway.http.post(far.orders, json=body, headers=headers)
    assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "1")
    assert "is not known yet" in waiting.text
    await far.reconcile()
    found = await far.gateway.http.post(far.orders, json=body, headers=headers)
    assert found.status_code == 200, found.text
    assert found.json()["metadata"] == (await far.table())["metadata"]
    assert sum(seen.is_mutation for seen in far.wire.seen) == sent, "it was made once"
    assert await far.words() == ["approved", "unknown", "accepted"]


@on_module_loop
async def test_a_request_that_was_certainly_not_made_is_made_when_it_is_sent_again(far: ForeignTenant) -> None:
    headers, body = new_key(), properties(color="red")
    others = properties([{"type": "assert-table-uuid", "uuid": "00000000-0000-4000-8000-000000000000"}], color="red")
    for known in (409, 409):
        assert (await far.gateway.http.post(far.orders, json=others, headers=headers)).status_code == known
    headers = new_key()
    refused = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}"
    far.wire.fault = Fault(happens=Replaced(answer=refused, carried_out=False), path=far.path)
    assert (await far.gateway.http.post(far.orders, json=body, headers=headers)).status_code == 400
    for _ in range(2):
        assert (await far.gateway.http.post(far.orders, json=body, headers=headers)).status_code == 200
    assert await far.words() == ["conflicted", "approved", "refused", "approved", "accepted"]
    assert not far.unrecorded


@on_module_loop
async def test_a_view_is_seen_as_the_upstream_has_it(far: ForeignTenant) -> None:
    name = f"{far.name}-report"
    made = await far.gateway.http.post(VIEWS, json=view_created(name))
    assert made.status_code == 200, made.text
    direct = await far.direct.get(far.upstream_path.replace("/tables/", "/views/") + "-report")
    through = await far.gateway.http.get(f"{VIEWS}/{name}")
    assert through.json()["metadata"] == direct.json()["metadata"] == made.json()["metadata"]
    assert (await far.gateway.http.head(f"{VIEWS}/{name}")).status_code == 204
    assert name in {each["name"] for each in (await far.gateway.http.get(VIEWS)).json()["identifiers"]}
    assert (await far.gateway.http.get(f"{VIEWS}/{far.name}")).status_code == 404
    taken = await far.gateway.http.post(VIEWS, json=view_created(far.name))
    assert (taken.status_code, taken.json()["error"]["type"]) == (409, "AlreadyExistsException")
    other = "00000000-0000-4000-8000-000000000000"
    refused = await far.gateway.http.post(f"{VIEWS}/{name}", json=view_replaced("SELECT 2", view_uuid=other))
    assert refused.status_code == 409
    # Whoever names no uuid commits to the view that was judged, and to no other.
    assert (await far.gateway.http.post(f"{VIEWS}/{name}", json={"updates": []})).status_code == 200
    sent = next(json.loads(seen.data.partition(b"\r\n\r\n")[2]) for seen in reversed(far.wire.seen) if seen.is_mutation)
    assert sent["requirements"] == [{"type": "assert-view-uuid", "uuid": made.json()["metadata"]["view-uuid"]}]
    registered = await far.gateway.http.post(
        f"{ROOT}/sales/register-view", json={"name": "x", "metadata-location": made.json()["metadata-location"]}
    )
    assert registered.status_code == 406
    config = (await far.gateway.http.get("/v1/config", params={"warehouse": ALIAS})).json()
    assert "POST /v1/{prefix}/namespaces/{namespace}/views" in config["endpoints"]
    assert "POST /v1/{prefix}/namespaces/{namespace}/register-view" not in config["endpoints"]


@on_module_loop
async def test_whatever_happens_in_whatever_order_record_and_table_agree(far: ForeignTenant) -> None:
    await check_mixture(far, Random(0))  # noqa: S311 - chosen to be repeatable, not secret


@on_module_loop
@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER], ids=str)
async def test_an_engine_keeps_its_files_while_the_outcome_is_unknown(far: ForeignTenant, loss: Loss) -> None:
    async with serve_gateway(far.gateway.app) as url:
        catalog = await asyncio.to_thread(
            RestCatalog, "test", uri=url, warehouse=ALIAS, token=far.gateway.acme.key.secret
        )
        orders = await asyncio.to_thread(catalog.load_table, ("sales", far.name))
        await asyncio.to_thread(orders.append, rows(1, 2))
        far.wire.fault = Fault(happens=loss, path=far.path)
        with pytest.raises(CommitStateUnknownException):
            await asyncio.to_thread(orders.append, rows(3))
        files = len(data_files(orders))
        await far.reconcile()
        await far.check()
        assert await far.words() == [
            "approved",
            "accepted",
            "approved",
            "unknown",
            *["accepted"][: loss is Loss.ANSWER],
        ]
        again = await asyncio.to_thread(catalog.load_table, ("sales", far.name))
        assert len(data_files(again)) == files == 2, "of a commit that may have happened nothing is deleted"
        await asyncio.to_thread(again.append, rows(4))
        found = (await asyncio.to_thread(lambda: again.scan().to_arrow()))["id"].to_pylist()
        assert sorted(found) == ([1, 2, 3, 4] if loss is Loss.ANSWER else [1, 2, 4])
    await far.reconcile()
    await far.check()


@on_module_loop
async def test_a_table_that_is_purged_is_gone_with_its_files_and_one_that_is_dropped_leaves_them(
    far: ForeignTenant,
) -> None:
    async with serve_gateway(far.gateway.app) as url:
        catalog = await asyncio.to_thread(
            RestCatalog, "test", uri=url, warehouse=ALIAS, token=far.gateway.acme.key.secret
        )
        for drop, stays in ((catalog.drop_table, True), (catalog.purge_table, False)):
            name = ("sales", f"{far.name}-{stays}")
            table = await asyncio.to_thread(catalog.create_table, name, rows().schema)
            await asyncio.to_thread(table.append, rows(1, 2))
            files = await asyncio.to_thread(data_files, table)
            assert files
            assert all(file.exists() for file in files)
            await asyncio.to_thread(drop, name)
            assert {file.exists() for file in files} == {stays}
            stored = await read_stored(far.services, far.log_id, key=f"table:{ALIAS}/sales/{far.name}-{stays}")
            decided, settled = stored[-2:]
            assert (decided.decided.operation, settled.words) == ("table.drop", "accepted")
            assert json.loads(decided.parts["inputs"])["path"].endswith("?purgeRequested=true") is not stays


@on_module_loop
async def test_its_own_token_server_gives_the_token_with_which_everything_is_asked(
    tenant: ForeignTenant, iceberg_rest: IcebergRest
) -> None:
    """Iceberg's server gives tokens and checks none, so the refusals are the wire's, in place of its answers."""
    async with FaultyWire(iceberg_rest.url) as wire:
        await register(tenant.gateway, "login", wire.url, secrets={"credential": "gateway:hunter2"})
        http, root = tenant.gateway.http, "/v1/iceberg/login/namespaces"
        assert (await http.post(root, json={"namespace": ["login"]})).status_code == 200
        for refused in (
            Replaced(answer=answer(401), carried_out=False),
            Replaced(answer=answer(419), carried_out=False),
        ):
            wire.fault = Fault(happens=refused, path="/login/properties")
            updated = await http.post(f"{root}/login/properties", json={"updates": {"owner": "ada"}})
            assert (updated.status_code, updated.json()["updated"]) == (200, ["owner"])
        tokens = [each for each in wire.seen if each.target == "/v1/oauth/tokens"]
        assert len(tokens) == 3
        form = tokens[0].data.partition(b"\r\n\r\n")[2]
        assert form == b"grant_type=client_credentials&client_id=gateway&client_secret=hunter2&scope=catalog"
        for asked in wire.seen:
            bearer = b"\r\nAuthorization: Bearer client-credentials-token:sub=gateway\r\n" in asked.data
            assert bearer is (asked not in tokens)

        wire.fault = Fault(happens=Replaced(answer=answer(401), carried_out=False), path="/login/properties")
        first, down = wire.fault, Fault(happens=Replaced(answer=answer(503), carried_out=False), path="/oauth/tokens")
        stopping = asyncio.create_task(replace_when_hit(wire, first, down))
        gone = await http.post(f"{root}/login/properties", json={"updates": {"owner": "bob"}})
        await stopping
        assert (gone.status_code, gone.json()["error"]["type"]) == (403, "UpstreamCredentialsException")
        assert "hunter2" not in gone.text
        held = (await tenant.direct.get(f"{tenant.prefix}/namespaces/login")).json()["properties"]
        assert held["owner"] == "ada"


async def replace_when_hit(wire: FaultyWire, first: Fault, then: Fault) -> None:
    """Let `then` happen once `first` has."""
    await first.hit.wait()
    wire.fault = then


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)]))


def data_files(table: Table) -> list[Path]:
    """The data files below a table's location, whether or not a snapshot names them."""
    return sorted(Path(table.location().removeprefix("file://")).glob("data/*.parquet"))
