# SPDX-License-Identifier: Apache-2.0
"""
Rebuilds of read models and replays of dead letters over HTTP: done by the processes whose work they are, for the
caller's own log, by whoever the rules permit it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from gateway.jobs import DIED, NOT_TAKEN, JobKind
from lakeproof.projecting import PROJECTIONS, find_projection
from lakeproof.services import Services
from lakeproof.serving.asked_work import rebuild_for
from lakeproof.streaming import Streams, open_streams
from lakeproof.working import STOPPED, jobs_of, keep_working
from ledger.store.read import Log, read_entries
from projections.processing.generations import prune
from streams.connections import connect_storing
from streams.handler import DeadLetter, Message
from streams.state.cursors import read_message
from streams.state.dead_letters import put
from testkit.gateway.jobs import POLL_S, doing, ended
from testkit.gateway.sales import another_key, error_of
from testkit.gateway.two_views import TwoViews, open_two_views
from testkit.servers.gateways import Gateway, app_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROJECTION: Final = "commits"
REBUILD: Final = f"/v1/projections/{PROJECTION}/rebuild"
REPLAY: Final = "/v1/dead-letters/replay"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def views(module_services: Services) -> AsyncIterator[TwoViews]:
    app = app_of(module_services.gateway, installation=module_services.installation)
    async with open_two_views(module_services, app) as views:
        yield views


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def streams(module_services: Services) -> AsyncIterator[Streams]:
    async with open_streams(module_services) as streams:
        yield streams


async def shown(gateway: Gateway, name: str = PROJECTION) -> dict[str, Any]:
    found: dict[str, Any] = (await gateway.http.get(f"/v1/projections/{name}")).raise_for_status().json()
    return found


@asynccontextmanager
async def held(gateway: Gateway) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Let nobody write into the read model until what is yielded is called: a rebuild waits in the middle."""
    installation = gateway.services.installation
    dsn = installation.as_role(installation.roles.projector)
    await prune(dsn, find_projection(PROJECTIONS, PROJECTION), await log_of(gateway))
    async with await AsyncConnection.connect(dsn) as connection:
        await connection.execute("LOCK TABLE projections.commits IN SHARE MODE")
        yield connection.rollback
        await connection.rollback()


async def begun(gateway: Gateway, live: int) -> None:
    """Wait until a rebuild has made its generation."""
    while max(await generations(gateway)) == live:  # noqa: ASYNC110 - the database does not tell
        await asyncio.sleep(POLL_S)
    assert (await shown(gateway))["rebuild"]["state"] == "running"


async def generations(gateway: Gateway) -> list[int]:
    """The generations that there are, the live one and others."""
    installation = gateway.services.installation
    async with installation.connect(installation.roles.projector) as connection:
        query = "SELECT generation FROM projections.cursors WHERE projection = %s AND log_id = %s ORDER BY 1"
        rows = await connection.execute(query, (PROJECTION, gateway.acme.log_id))
        return [generation for (generation,) in await rows.fetchall()]


async def dropping(gateway: Gateway) -> None:
    """Wait until the rebuild has ended, and what it made is to be dropped."""
    waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'DELETE FROM projections.%'"
    async with await AsyncConnection.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        while await (await owner.execute(waiting)).fetchone() is None:  # noqa: ASYNC110 - the database does not tell
            await asyncio.sleep(POLL_S)


# Read models


async def test_the_read_models_of_the_own_log_are_listed(views: TwoViews) -> None:
    found = (await views.whole.get("/v1/projections")).json()["projections"]
    assert {each["projection"] for each in found} == {projection.name for projection in PROJECTIONS}
    for each in found:
        assert (each["generation"], each["lag_entries"], each["state"], each["rebuild"]) == (1, 0, "current", None)
    unknown = await views.whole.get("/v1/projections/none")
    assert (unknown.status_code, "expected one of catalogs, commits" in unknown.text) == (404, True)


async def test_a_rebuild_that_is_asked_for_twice_is_one_and_ends_with_a_new_generation(views: TwoViews) -> None:
    before = await shown(views.gateway)
    first, second = [(await views.whole.post(REBUILD, json={})) for _ in range(2)]
    assert (first.status_code, second.status_code, first.json()) == (202, 202, second.json())
    assert first.headers["location"] == f"/v1/projections/{PROJECTION}"
    other = await views.whole.post(REBUILD, json={"replace": True})
    assert (other.status_code, "under way" in other.text) == (409, True)
    async with doing(views.gateway.services):
        done = await ended(views.whole, f"/v1/projections/{PROJECTION}", "rebuild")
    assert (done["state"], done["done"], done["of"]) == ("done", before["size"], before["size"])
    after = await shown(views.gateway)
    assert (done["result"]["replaced"], done["result"]["generation"]) == (before["generation"], after["generation"])
    assert done["result"]["compared"] is True
    newest = (await views.whole.get("/v1/log/entries?type=projection.attested&limit=1")).json()["entries"][0]
    assert newest["data"]["digest"] == done["result"]["digest"]


async def test_a_cursor_goes_on_behind_the_same_place_after_a_rebuild_and_an_altered_one_is_refused_in_a_sentence(
    views: TwoViews,
) -> None:
    history, query = (
        "/v1/tables/lake/sales/orders/history",
        'query ($at: String) { table(name: "lake.sales.orders") { decisions(cursor: $at) { items { index } } } }',
    )

    async def behind(cursor: str) -> tuple[httpx.Response, dict[str, Any]]:
        graphql = {"query": query, "variables": {"at": cursor}}
        return await views.whole.get(history, params={"cursor": cursor}), (
            await views.whole.post("/v1/graphql", json=graphql)
        ).json()

    cursor = (await views.whole.get(history, params={"limit": 1})).json()["cursor"]
    before, told_before = await behind(cursor)
    generation = (await shown(views.gateway))["generation"]
    async with doing(views.gateway.services):
        await views.whole.post(REBUILD, json={})
        await ended(views.whole, f"/v1/projections/{PROJECTION}", "rebuild")
    assert (await shown(views.gateway))["generation"] > generation
    after, told_after = await behind(cursor)
    assert after.json() == before.json()
    assert told_after == told_before
    indices = [each["index"] for each in after.json()["decisions"]]
    assert [each["index"] for each in told_after["data"]["table"]["decisions"]["items"]] == indices != []
    refused, told = await behind(cursor[:-2] + ("AA" if not cursor.endswith("AA") else "BB"))
    assert refused.status_code == 400
    sentence = error_of(refused)["message"]
    assert sentence.endswith("found another text: without a cursor, the list begins anew")
    assert [each["message"] for each in told["errors"]] == [sentence]


async def test_a_read_model_that_is_wrong_fails_to_compare_and_is_replaced(views: TwoViews) -> None:
    installation = views.gateway.services.installation
    async with await AsyncConnection.connect(installation.admin_dsn, autocommit=True) as owner:
        await owner.execute(
            "UPDATE projections.commits SET operation = 'table.forged' WHERE log_id = %s", (views.gateway.acme.log_id,)
        )
    before = await shown(views.gateway)
    async with doing(views.gateway.services):
        await views.whole.post(REBUILD, json={})
        failed = await ended(views.whole, f"/v1/projections/{PROJECTION}", "rebuild")
        assert (failed["state"], failed["result"]) == ("failed", None)
        assert "digest" in failed["problem"]
        assert (await shown(views.gateway))["generation"] == before["generation"]
        await views.whole.post(REBUILD, json={"replace": True})
        done = await ended(views.whole, f"/v1/projections/{PROJECTION}", "rebuild")
    assert (done["state"], done["replace"], done["result"]["compared"]) == ("done", True, False)


async def test_a_rebuild_that_is_cancelled_leaves_the_live_generation_and_nothing_else(views: TwoViews) -> None:
    before = await shown(views.gateway)
    assert (await views.whole.delete(REBUILD)).status_code == 404
    await views.whole.post(REBUILD, json={})
    async with held(views.gateway) as release, doing(views.gateway.services):
        await begun(views.gateway, before["generation"])
        assert (await views.whole.delete(REBUILD)).status_code == 204
        await dropping(views.gateway)
        await release()
        done = await ended(views.whole, f"/v1/projections/{PROJECTION}", "rebuild")
    assert (done["state"], done["result"], done["problem"]) == ("cancelled", None, None)
    assert await generations(views.gateway) == [before["generation"]]
    assert (await views.whole.delete(REBUILD)).status_code == 404


async def test_a_rebuild_whose_process_dies_is_told_and_can_be_started_again(views: TwoViews) -> None:
    services, before = views.gateway.services, await shown(views.gateway)
    jobs = jobs_of(services)
    await views.whole.post(REBUILD, json={})
    async with held(views.gateway):
        dying = asyncio.create_task(
            keep_working(jobs, JobKind.REBUILD, rebuild_for(services), asyncio.Event(), poll_s=POLL_S)
        )
        await begun(views.gateway, before["generation"])
        dying.cancel()
        with suppress(asyncio.CancelledError):
            await dying
        await jobs.end_lost(silent=timedelta(0))
    lost = (await shown(views.gateway))["rebuild"]
    assert (lost["state"], lost["problem"]) == ("failed", DIED)
    assert (await shown(views.gateway))["generation"] == before["generation"]
    await views.whole.post(REBUILD, json={})
    async with doing(services):
        done = await ended(views.whole, f"/v1/projections/{PROJECTION}", "rebuild")
    assert (done["state"], done["result"]["replaced"]) == ("done", before["generation"])


async def test_a_rebuild_whose_process_is_stopped_says_so(views: TwoViews) -> None:
    services, stop = views.gateway.services, asyncio.Event()
    before = await shown(views.gateway)
    await views.whole.post(REBUILD, json={})
    async with held(views.gateway) as release:
        working = asyncio.create_task(
            keep_working(jobs_of(services), JobKind.REBUILD, rebuild_for(services), stop, poll_s=POLL_S)
        )
        await begun(views.gateway, before["generation"])
        stop.set()
        await dropping(views.gateway)
        await release()
        await working
    left = (await shown(views.gateway))["rebuild"]
    assert (left["state"], left["problem"]) == ("failed", STOPPED)


async def test_what_nobody_takes_ends_by_itself(views: TwoViews) -> None:
    await views.whole.post(REBUILD, json={})
    await jobs_of(views.gateway.services).end_lost(waited=timedelta(0))
    untaken = (await shown(views.gateway))["rebuild"]
    assert (untaken["state"], untaken["problem"]) == ("failed", NOT_TAKEN)


async def test_a_rebuild_concerns_the_own_log_and_takes_a_right_of_its_own(views: TwoViews) -> None:
    other, before = await shown(views.other), await shown(views.gateway)
    await views.other.http.post(REBUILD, json={})
    assert (await shown(views.gateway))["rebuild"] == before["rebuild"]
    async with doing(views.gateway.services):
        done = await ended(views.other.http, f"/v1/projections/{PROJECTION}", "rebuild")
    assert done["result"]["replaced"] == other["generation"]
    assert (await shown(views.gateway))["generation"] == before["generation"]
    for method in ("POST", "DELETE"):
        refused = await views.part.request(method, REBUILD, json={})
        assert refused.status_code == 403, method
    assert (await views.part.get("/v1/projections")).status_code == 403
    rule = {
        "id": "builders",
        "effect": "permit",
        "expression": "'builder' in roles && contentType == 'CONFIG_PROJECTION' && path.endsWith('.commits')",
    }
    assert (await views.whole.post("/v1/access-rules", json=rule)).status_code == 201
    async with views.gateway.client(await another_key(views.gateway, "bo@acme.example", "builder")) as builder:
        assert (await builder.post(REBUILD, json={})).status_code == 202
        assert (await builder.post("/v1/projections/graph/rebuild", json={})).status_code == 403
        assert (await builder.delete(REBUILD)).status_code == 204
        assert (await builder.post(REPLAY, json={})).status_code == 403


# Dead letters


async def log_of(gateway: Gateway) -> Log:
    (log,) = [each for each in await gateway.services.logs() if each.log_id == gateway.acme.log_id]
    return log


async def letters(gateway: Gateway) -> set[tuple[str, str]]:
    found = (await gateway.http.get("/v1/dead-letters")).json()["dead-letters"]
    return {(each["source"], each["id"]) for each in found}


async def put_letters(gateway: Gateway, source: str, *dead: DeadLetter) -> None:
    installation = gateway.services.installation
    dsn = installation.as_role(installation.roles.streams)
    async with connect_storing(dsn) as connection, connection.transaction():
        await put(connection, source, dead)


async def a_finding(gateway: Gateway) -> Message:
    """An entry with a finding, which the handler of alerts can handle."""
    listed = (await gateway.http.get("/v1/log/entries?type=detection.found&limit=1")).json()["entries"]
    index, log = listed[0]["index"], await log_of(gateway)
    installation = gateway.services.installation
    async with installation.connect(installation.roles.auditor) as auditor:
        (entry,) = await read_entries(auditor, log.log_id, from_index=index, to_index=index + 1)
    return read_message(log, index, entry)


async def test_dead_letters_are_replayed_one_all_of_a_source_or_all(views: TwoViews, streams: Streams) -> None:
    gateway, log = views.gateway, await log_of(views.gateway)
    found = await a_finding(gateway)
    await put_letters(gateway, "handler:alerts", DeadLetter(message=found, reason="a fault of ours", attempts=1))
    strange = [
        DeadLetter(message=Message(id=f"m{number}", log=log, value=b"{}"), reason="not JSON", attempts=1)
        for number in range(2)
    ]
    await put_letters(gateway, "handler:gone", *strange)
    theirs = Message(id="m0", log=await log_of(views.other), value=b"{}")
    await put_letters(views.other, "handler:gone", DeadLetter(message=theirs, reason="not JSON", attempts=1))
    async with doing(gateway.services, {JobKind.REPLAY: streams.replay_asked}):
        answer = await gateway.http.post(REPLAY, json={"source": "handler:gone", "id": "m1"})
        assert (answer.status_code, answer.headers["location"]) == (202, REPLAY)
        (done,) = [await _replayed(gateway)]
        assert (done["source"], done["letter"], done["state"]) == ("handler:gone", "m1", "done")
        assert done["result"]["counts"] == {"no such handler here": 1}
        assert done["result"]["letters"][0]["reason"] == "handler:gone does not run here"
        await gateway.http.post(REPLAY, json={"source": "handler:alerts"})
        done = await _replayed(gateway)
        assert done["result"]["counts"] == {"handled": 1}
        assert await letters(gateway) == {("handler:gone", "m0"), ("handler:gone", "m1")}
        await gateway.http.post(REPLAY, json={})
        done = await _replayed(gateway)
        assert (done["source"], done["letter"], done["done"], done["of"]) == (None, None, 2, 2)
    assert await letters(views.other) == {("handler:gone", "m0")}, "another tenant's are not touched"
    assert (await views.other.http.get(REPLAY)).json() == {"replays": []}


@pytest.mark.parametrize("body", [{"source": ""}, {"id": "a\0b"}, {"source": "x" * 300}, {"all": True}])
async def test_what_names_no_dead_letter_is_refused(views: TwoViews, body: dict[str, Any]) -> None:
    assert (await views.whole.post(REPLAY, json=body)).status_code == 400


async def test_no_decision_is_open_in_a_built_in_catalog(views: TwoViews) -> None:
    assert (await views.whole.get("/v1/open-decisions")).json() == {"open-decisions": [], "has_more": False}
    assert (await views.part.get("/v1/open-decisions")).status_code == 403


async def _replayed(gateway: Gateway) -> dict[str, Any]:
    """Wait until the newest replay has ended; return it."""
    while True:
        newest: dict[str, Any] = (await gateway.http.get(REPLAY)).json()["replays"][0]
        if newest["ended_at"] is not None:
            return newest
        await asyncio.sleep(POLL_S)
