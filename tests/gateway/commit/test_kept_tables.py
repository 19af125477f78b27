# SPDX-License-Identifier: Apache-2.0
"""
A commit to a foreign table as this process has left it: it is judged, and its decision recorded, while the catalog is
asked for the table. Nothing is sent unless that shows what was judged, and what another process has changed counts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import httpx
import orjson
import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.catalogs.catalog import Loaded
from gateway.catalogs.replies import Answered, ForwardOutcome
from gateway.catalogs.rest import RestCatalog
from gateway.commit import forwarding, kept_tables
from gateway.commit.approved import Approved
from gateway.commit.kept_tables import (
    ANSWER_BYTES_MAX,
    ANSWERS_BYTES_MAX,
    OTHERWISE_PAUSE_S,
    PAUSES_MAX,
    TABLES_MAX,
    KeptTables,
)
from gateway.commit.open_decisions import close_guard
from gateway.commit.settled_ahead import SettledAhead, settle_ahead
from gateway.identifiers import Target
from gateway.identity import authenticator
from gateway.metadata.draft import TableMetadata
from lakeproof.services import Services
from ledger.errors import LogUnavailableError, OutcomeUnknownError
from ledger.format.event import BLANK, Event, prepare_blank
from ledger.format.events import CommitOutcome, CommitSettled, OutcomeEvidence
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.foreign_faults import (
    LOSSES,
    UPSTREAM_ANSWERS,
    Case,
    Step,
    UpstreamAnswer,
    check_loss,
    check_mixture,
    check_saying,
    renamed,
)
from testkit.gateway.foreign_tenant import ALIAS, RENAME, ForeignTenant, open_far
from testkit.gateway.log_contents import read_stored, words
from testkit.gateway.sales import another_key, properties
from testkit.gateway.table_requests import commit_to, transaction
from testkit.servers.chained import register
from testkit.servers.faulty_wire import Fault, FaultyWire, Replaced, Request, answer
from testkit.servers.upstream import Upstream, serve_upstream

on_module_loop = pytest.mark.asyncio(loop_scope="module")

JUDGED_TWICE = ["approved", "failed", "approved", "accepted"]


@pytest.fixture(autouse=True)
def _lately(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the test is, its key was verified, and its table left, a moment ago."""
    monkeypatch.setattr(authenticator, "KNOWN_S", 600.0)
    monkeypatch.setattr(kept_tables, "KEPT_S", 600.0)
    monkeypatch.setattr(kept_tables, "SHOWN_S", 60.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services) -> AsyncIterator[ForeignTenant]:
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as far:
        await far.services.gateway.admin.create_policy(
            far.log_id,
            OPERATOR,
            policy_id="frozen",
            text=PolicyText(
                expression="!('frozen' in table.properties) || table.properties['frozen'] != 'yes'", message="frozen"
            ),
        )
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def far(tenant: ForeignTenant) -> ForeignTenant:
    """The tenant, with a table of the test's own, which its gateway was the last to change."""
    far = await tenant.with_new_table()
    assert (await commit(far, first="yes")).status_code == 200
    return await as_new(far)


async def as_new(far: ForeignTenant) -> ForeignTenant:
    """The tenant, of whose table only what comes from now on counts."""
    far.first = await far.size()
    far.wire.seen.clear()
    return far


async def commit(far: ForeignTenant, client: httpx.AsyncClient | None = None, /, **changed: str) -> httpx.Response:
    return await (client or far.gateway.http).post(far.orders, json=properties(**changed))


async def properties_of(far: ForeignTenant) -> dict[str, str]:
    found: dict[str, str] = (await far.table())["metadata"]["properties"]
    return found


def sent(far: ForeignTenant) -> list[str]:
    """What the catalog was asked, by method."""
    return [seen.method for seen in far.wire.seen]


@asynccontextmanager
async def nothing_read(far: ForeignTenant) -> AsyncIterator[None]:
    """Nobody's rights can be read in the context."""
    admin_dsn = far.services.installation.admin_dsn
    async with await psycopg.AsyncConnection.connect(admin_dsn) as connection, connection.transaction():
        await connection.execute("LOCK TABLE ledger.subjects IN ACCESS EXCLUSIVE MODE")
        yield


@asynccontextmanager
async def load_held(
    far: ForeignTenant,
    *,
    client: httpx.AsyncClient | None = None,
    is_lost: bool = False,
    may_be_refused: bool = False,
    **changed: str,
) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """
    Yield a commit whose load does not reach the catalog before the end of the context, and then perhaps is lost.

    With `may_be_refused` it may also be answered without a load.
    """
    asked, go_on, look = asyncio.Event(), asyncio.Event(), far.wire.on_request

    async def hold(request: Request) -> None:
        await look(request)
        if request.method == "GET":
            asked.set()
            await go_on.wait()
            if is_lost:
                raise ConnectionResetError

    far.wire.on_request = hold
    try:
        committing = asyncio.create_task(commit(far, client, **changed))
        waiting = asyncio.create_task(asked.wait())
        await asyncio.wait([waiting, committing], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert asked.is_set() or may_be_refused, "it was answered, and the catalog was not asked"
        yield committing
    finally:
        far.wire.on_request = look
        go_on.set()


async def until(far: ForeignTenant, *said: str) -> None:
    async with asyncio.timeout(30):
        while await far.words() != list(said):  # noqa: ASYNC110 - the log says it
            await asyncio.sleep(0.005)


# Nothing is waited for that need not be


@on_module_loop
async def test_a_commit_of_a_known_caller_to_a_kept_table_reads_no_rights_and_takes_two_requests(
    far: ForeignTenant,
) -> None:
    async with nothing_read(far):
        for name in ("one", "two"):
            assert (await commit(far, **{name: "yes"})).status_code == 200
    assert await far.words() == ["approved", "accepted"] * 2
    assert sent(far) == ["GET", "POST"] * 2
    assert (await properties_of(far)).items() >= {"first": "yes", "one": "yes", "two": "yes"}.items()
    assert not far.unrecorded


@on_module_loop
async def test_its_decision_is_recorded_while_the_catalog_is_asked_and_nothing_sent_before_it_answers(
    far: ForeignTenant,
) -> None:
    async with load_held(far, soon="yes") as committing:
        await until(far, "approved")
        assert not committing.done()
        assert "POST" not in sent(far)
    assert (await committing).status_code == 200
    assert await far.words() == ["approved", "accepted"]
    assert (await properties_of(far))["soon"] == "yes"


@on_module_loop
async def test_many_at_once_are_judged_each_on_the_one_before(far: ForeignTenant) -> None:
    async with nothing_read(far):
        answers = await asyncio.gather(*(commit(far, **{f"n{number}": "yes"}) for number in range(6)))
    assert {answer.status_code for answer in answers} == {200}
    assert await far.words() == ["approved", "accepted"] * 6
    assert set(await properties_of(far)) >= {f"n{number}" for number in range(6)}


@on_module_loop
@pytest.mark.parametrize("unknown", ["who it is", "how the table is", "either, in another process"])
async def test_what_is_not_known_is_read(far: ForeignTenant, unknown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = far.gateway.http
    match unknown:
        case "who it is":
            monkeypatch.setattr(authenticator, "KNOWN_S", 0.0)
        case "how the table is":
            far.services.gateway.kept_tables.forget(far.log_id, target_of(far))
        case _:
            client = far.gateway.through()
    async with nothing_read(far):
        committing = asyncio.create_task(commit(far, client, late="yes"))
        await asyncio.wait([committing], timeout=0.2)
        assert not committing.done()
        assert await far.words() == []
    assert (await committing).status_code == 200
    assert await far.words() == ["approved", "accepted"]


def target_of(far: ForeignTenant) -> Target:
    return Target(alias=ALIAS, namespace=("sales",), name=far.name)


# The table is another


@on_module_loop
async def test_a_table_that_was_changed_behind_is_judged_again_before_anything_is_sent(far: ForeignTenant) -> None:
    async with load_held(far, late="yes") as committing:
        await until(far, "approved")
        await far.commit_behind(properties(behind="yes"))
    assert (await committing).status_code == 200
    assert await far.words() == JUDGED_TWICE
    assert sent(far) == ["GET", "GET", "POST"]
    assert (await properties_of(far)).items() >= {"behind": "yes", "late": "yes"}.items()
    assert not await far.open_decisions()
    assert not far.unrecorded


@on_module_loop
async def test_after_that_the_table_is_loaded_for_each_commit_so_that_little_is_decided_in_vain(
    far: ForeignTenant,
) -> None:
    for number in range(3):
        await far.commit_behind(properties(**{f"behind{number}": "yes"}))
        assert (await commit(far, **{f"here{number}": "yes"})).status_code == 200
    assert (await far.words()).count("failed") <= 1
    assert set(await properties_of(far)) >= {f"{place}{number}" for place in ("behind", "here") for number in range(3)}


@on_module_loop
async def test_a_policy_judges_the_table_as_the_catalog_shows_it_not_as_it_was_kept(far: ForeignTenant) -> None:
    async with load_held(far, late="yes") as committing:
        await until(far, "approved")
        await far.commit_behind(properties(frozen="yes"))
    assert (await committing).status_code == 403
    assert await far.words() == ["approved", "failed", "rejected"]
    assert "POST" not in sent(far)
    assert "late" not in await properties_of(far)


@on_module_loop
async def test_nothing_is_refused_for_what_the_table_is_no_more(far: ForeignTenant) -> None:
    assert (await commit(far, frozen="yes")).status_code == 200
    await far.commit_behind(properties(frozen="no"))
    assert (await commit(far, late="yes")).status_code == 200
    assert await far.words() == ["approved", "accepted"] * 2


@on_module_loop
async def test_what_a_policy_refuses_of_a_kept_table_is_recorded_once(far: ForeignTenant) -> None:
    assert (await commit(far, frozen="yes")).status_code == 200
    for count in (1, 2):
        assert (await commit(far, late="yes")).status_code == 403
        assert await far.words() == ["approved", "accepted", *["rejected"] * count]


@on_module_loop
async def test_a_requirement_that_held_of_the_kept_table_is_checked_on_the_one_that_is_there(
    far: ForeignTenant,
) -> None:
    body = await far.next_append()
    await far.commit_behind(await far.next_append())
    assert (await far.gateway.http.post(far.orders, json=body)).status_code == 409
    assert (await far.words())[-1] == "conflicted"
    assert "POST" not in sent(far)
    await far.check()


@on_module_loop
@pytest.mark.parametrize("is_made_anew", [True, False])
async def test_a_table_that_was_dropped_is_not_changed_as_it_was(far: ForeignTenant, is_made_anew: bool) -> None:
    async with load_held(far, late="yes") as committing:
        await until(far, "approved")
        if is_made_anew:
            await far.make_table()
        else:
            (await far.direct.delete(far.upstream_path)).raise_for_status()
    assert (await committing).status_code == (200 if is_made_anew else 404)
    assert (await far.words())[:2] == ["approved", "failed"]
    if is_made_anew:
        found = await properties_of(far)
        assert (found.get("first"), found["late"]) == (None, "yes")
    assert not await far.open_decisions()


@on_module_loop
async def test_a_table_that_this_process_has_dropped_is_kept_no_longer(far: ForeignTenant) -> None:
    assert (await far.gateway.http.delete(far.orders)).status_code == 204
    assert (await commit(far, late="yes")).status_code == 404
    assert await far.words() == ["approved", "accepted"]


@on_module_loop
@pytest.mark.parametrize("is_same", [True, False])
async def test_an_answer_in_other_bytes_shows_the_table_if_it_says_the_same(far: ForeignTenant, is_same: bool) -> None:
    found = await far.table()
    if not is_same:
        found["metadata"]["properties"]["more"] = "yes"
    shown = orjson.dumps(dict(reversed(found.items())), option=orjson.OPT_INDENT_2)
    happens = Replaced(answer=answer(200, shown), carried_out=True)
    far.wire.fault = Fault(happens=happens, path=far.path, methods=frozenset({"GET"}))
    assert (await commit(far, late="yes")).status_code == 200
    assert await far.words() == (["approved", "accepted"] if is_same else JUDGED_TWICE)


@on_module_loop
@pytest.mark.parametrize("what", ["location", "metadata"])
async def test_a_table_with_the_same_content_or_place_alone_is_another(far: ForeignTenant, what: str) -> None:
    found = await far.table()
    if what == "location":
        found["metadata-location"] += "x"
    else:
        found["metadata"]["last-updated-ms"] += 1
    happens = Replaced(answer=answer(200, orjson.dumps(found)), carried_out=True)
    far.wire.fault = Fault(happens=happens, path=far.path, methods=frozenset({"GET"}))
    assert (await commit(far, late="yes")).status_code == 200
    assert await far.words() == JUDGED_TWICE


# The catalog does not show it


@on_module_loop
async def test_a_table_that_the_catalog_does_not_show_is_judged_again_when_it_does(far: ForeignTenant) -> None:
    async with load_held(far, is_lost=True, late="yes") as committing:
        await until(far, "approved")
    assert (await committing).status_code == 200
    assert await far.words() == JUDGED_TWICE
    assert sent(far).count("POST") == 1
    assert not await far.open_decisions()


@on_module_loop
async def test_a_table_that_the_catalog_refuses_to_show_is_refused_in_its_words(far: ForeignTenant) -> None:
    far.wire.always[far.upstream_path] = answer(403, b'{"error":{"message":"no","type":"NotYours","code":403}}')
    try:
        refused = await commit(far, late="yes")
    finally:
        far.wire.always.clear()
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "NotYours")
    assert "POST" not in sent(far)
    assert not await far.open_decisions()


@on_module_loop
async def test_an_answer_that_no_table_can_be_made_of_leaves_no_decision_open(far: ForeignTenant) -> None:
    far.wire.always[far.upstream_path] = answer(200, deep_table())
    try:
        refused = await commit(far, late="yes")
    finally:
        far.wire.always.clear()
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    assert "POST" not in sent(far)
    assert not await far.open_decisions()


def deep_table() -> bytes:
    """JSON that can be read, and is nested deeper than it is written."""
    metadata = b'{"table-uuid":"x","deep":%s}' % (b"[" * 600 + b"]" * 600)
    return b'{"metadata-location":"s3://b/1.metadata.json","metadata":%s}' % metadata


@on_module_loop
async def test_a_table_that_a_commit_has_left_so_is_loaded_for_the_next_one(far: ForeignTenant) -> None:
    far.wire.fault = Fault(happens=Replaced(answer=answer(200, deep_table()), carried_out=True), path=far.path)
    await commit(far, one="yes")
    assert (await commit(far, two="yes")).status_code == 200
    assert await far.words() == ["approved", "accepted"] * 2
    assert (await properties_of(far)).items() >= {"one": "yes", "two": "yes"}.items()


@on_module_loop
async def test_a_decision_does_not_wait_long_for_the_catalog(
    far: ForeignTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_tables, "SHOWN_S", 0.0)
    async with load_held(far, late="yes") as committing:
        await until(far, "approved", "failed")
    assert (await committing).status_code == 200
    assert await far.words() == JUDGED_TWICE


@on_module_loop
async def test_what_cannot_be_recorded_as_never_sent_is_not_decided_again(far: ForeignTenant) -> None:
    gateway, count = far.services.gateway, 0

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        nonlocal count
        count += 1
        if count == 2:
            raise LogUnavailableError("the append did not arrive")
        return await gateway.append(log_id, group, **after)

    async with far.gateway.through(append=append, kept_tables=gateway.kept_tables) as client:
        async with load_held(far, client=client, late="yes") as committing:
            await until(far, "approved")
            await far.commit_behind(properties(behind="yes"))
        refused = await committing
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    assert "nothing was sent" in refused.json()["error"]["message"]
    assert await far.words() == ["approved"]
    await far.reconcile()
    assert await far.words() == ["approved", "unknown"]
    assert "late" not in await properties_of(far)


# What is made before it is needed


class HeldAppend:
    """The log's append, which waits before and behind the group of an outcome, and perhaps fails with `error`."""

    def __init__(self, far: ForeignTenant, error: Exception | None = None) -> None:
        self._append = far.services.gateway.append
        self._error = error
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()
        self.groups: list[Group] = []

    async def __call__(self, log_id: int, group: Group, **after: Any) -> Appended | Stale:
        self.groups.append(group)
        if group.then[0].type != CommitSettled.TYPE:
            return await self._append(log_id, group, **after)
        self.arrived.set()
        await self.go_on.wait()
        if self._error is not None:
            raise self._error
        return await self._append(log_id, group, **after)


@on_module_loop
@pytest.mark.parametrize("error", [None, LogUnavailableError("no"), OutcomeUnknownError("no")], ids=repr)
async def test_no_answer_that_is_ready_is_given_before_its_outcome_is_durable_or_cannot_be(
    far: ForeignTenant, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[bytes] = []
    show = RestCatalog.show_answer

    def showing(self: RestCatalog, answered: Answered) -> bytes:
        shown.append(show(self, answered))
        return shown[-1]

    monkeypatch.setattr(RestCatalog, "show_answer", showing)
    held = HeldAppend(far, error)
    async with far.gateway.through(append=held, kept_tables=far.services.gateway.kept_tables) as client:
        committing = asyncio.create_task(commit(far, client, late="yes"))
        await held.arrived.wait()
        while not shown:  # noqa: ASYNC110 - that it is ready is seen by this alone
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not committing.done()
        assert await far.words() == ["approved"]
        held.go_on.set()
        answered = await committing
    assert (answered.status_code, answered.content) == (200, shown[0])
    assert len(shown) == 1
    assert await far.words() == ["approved", *([] if error else ["accepted"])]
    assert len(await far.open_decisions()) == (0 if error is None else 1)


@on_module_loop
async def test_who_leaves_while_the_outcome_is_recorded_leaves_table_and_record_in_agreement(
    far: ForeignTenant,
) -> None:
    held, kept = HeldAppend(far), far.services.gateway.kept_tables
    async with far.gateway.through(append=held, kept_tables=kept) as client:
        committing = asyncio.create_task(client.post(far.orders, json=await far.next_append()))
        await held.arrived.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
    assert await far.words() == ["approved"]
    await far.reconcile()
    assert (await far.gateway.http.post(far.orders, json=await far.next_append())).status_code == 200
    assert await far.words() == ["approved", "accepted"] * 2, "what it has left is what the next one is judged on"
    assert not await far.open_decisions()
    await far.check()


@on_module_loop
async def test_a_table_is_kept_with_what_the_next_commit_is_judged_with(far: ForeignTenant) -> None:
    gateway, target = far.services.gateway, target_of(far)
    state = gateway.control.known(far.log_id)
    assert state is not None
    for number in range(2):
        kept = gateway.kept_tables.get(far.log_id, target)
        assert kept is not None
        assert kept.judged == (await gateway.catalog(far.gateway.acme.tenant, state, ALIAS).load(target)).judged
        assert isinstance(kept.metadata, TableMetadata)
        assert kept.metadata.opened is not None
        assert orjson.loads(kept.answer or b"")["metadata"] == kept.metadata
        assert (await commit(far, **{f"n{number}": "yes"})).status_code == 200


@on_module_loop
@pytest.mark.parametrize("is_ahead", [True, False])
async def test_what_is_recorded_of_an_outcome_does_not_depend_on_when_it_was_made(
    far: ForeignTenant, is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead: list[SettledAhead | None] = []

    def settling(decision: UUID, approved: Approved) -> SettledAhead | None:
        ahead.append(settle_ahead(decision, approved) if is_ahead else None)
        return ahead[-1]

    monkeypatch.setattr(forwarding, "settle_ahead", settling)
    before = far.services.gateway.clock()
    held = HeldAppend(far)
    held.go_on.set()
    body = await far.next_append()
    async with far.gateway.through(append=held, kept_tables=far.services.gateway.kept_tables) as client:
        assert (await client.post(far.orders, json=body)).status_code == 200
    (opening, closing), there = held.groups, await far.table()
    assert [one is not None for one in ahead] == [is_ahead]
    assert all(one is None or one.group_id == closing.id for one in ahead)
    (stored,) = await read_stored(far.services, far.log_id, key=far.key, after=far.first + 1)
    assert stored.settled == CommitSettled(
        decision=str(opening.id),
        evidence=OutcomeEvidence.ANSWER,
        metadata_location=there["metadata-location"],
        metadata_sha256=None,
        outcome=CommitOutcome.ACCEPTED,
        snapshots=(str(body["updates"][0]["snapshot"]["snapshot-id"]),),
        table_uuid=there["metadata"]["table-uuid"],
    )
    assert before <= stored.entry.occurred_at <= far.services.gateway.clock()
    assert closing.guard == (close_guard(opening.id, far.key),)


def expected_outcome(**changed: Any) -> ForwardOutcome:
    accepted = ForwardOutcome(
        settled=CommitOutcome.ACCEPTED,
        reply=Answered(status=200),
        metadata_location="s3://b/1.json",
        table_uuid="u",
    )
    return replace(accepted, **changed)


@pytest.mark.parametrize(
    "changed",
    [
        *({"settled": other} for other in CommitOutcome if other is not CommitOutcome.ACCEPTED),
        {"evidence": OutcomeEvidence.RECONCILED},
        {"metadata_location": None},
        {"table_uuid": "v"},
        {"table_uuid": None},
    ],
    ids=str,
)
def test_an_outcome_that_was_not_expected_is_not_recorded_as_the_expected_one(changed: dict[str, Any]) -> None:
    decision = UUID(int=7)
    event = prepare_blank(
        Event(
            type=CommitSettled.TYPE,
            version=CommitSettled.VERSION,
            key="table:far/sales/orders",
            actor="0" * 32,
            occurred_at=datetime(2026, 3, 1, tzinfo=UTC),
            data={"metadata_location": BLANK},
        )
    )
    assert event is not None
    guard = close_guard(decision, "table:far/sales/orders")
    ahead = SettledAhead(group_id=UUID(int=8), event=event, guard=guard, table_uuid="u")
    at = datetime(2026, 3, 2, tzinfo=UTC)
    assert ahead.group(expected_outcome(**changed), at) is None
    expected = event.fill("s3://b/1.json", at)
    assert ahead.group(expected_outcome(), at) == Group(id=UUID(int=8), then=(expected,), guard=(guard,))


@on_module_loop
async def test_a_table_that_the_catalog_answers_as_another_is_recorded_as_it_says(far: ForeignTenant) -> None:
    found = await far.table()
    found["metadata"]["table-uuid"] = other = "00000000-0000-4000-8000-000000000007"
    happens = Replaced(answer=answer(200, orjson.dumps(found)), carried_out=True)
    far.wire.fault = Fault(happens=happens, path=far.path)
    assert (await commit(far, late="yes")).status_code == 200
    stored = await read_stored(far.services, far.log_id, key=far.key, after=far.first)
    assert [one.words for one in stored] == ["approved", "accepted"]
    assert stored[-1].settled.table_uuid == other


# What another process has changed


async def guest_of(far: ForeignTenant, others: Services, name: str) -> tuple[str, str]:
    """The id and secret of a key of somebody who may write and whose key the process has just verified."""
    admin = others.gateway.admin
    issued = await admin.create_key(far.log_id, OPERATOR, identity=f"{name}@acme.example", roles=["writer"])
    return issued.id, issued.secret


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def _writers(tenant: ForeignTenant) -> None:
    await tenant.services.gateway.admin.create_access_rule(
        tenant.log_id,
        OPERATOR,
        rule_id="writers",
        effect="permit",
        expression="'writer' in roles || 'data-eng' in roles",
    )


@on_module_loop
@pytest.mark.parametrize("when", ["before", "while the catalog is asked"])
@pytest.mark.usefixtures("_writers")
async def test_a_key_that_another_process_has_revoked_commits_nothing(
    far: ForeignTenant, others: Services, when: str
) -> None:
    key_id, secret = await guest_of(far, others, "bob")
    async with far.gateway.client(secret) as client:
        assert (await commit(far, client, bob="yes")).status_code == 200
        assert (await commit(far, client, again="yes")).status_code == 200
        said = await far.words()
        far.wire.seen.clear()
        await others.gateway.admin.revoke_key(far.log_id, OPERATOR, key_id=key_id)
        if when == "before":
            assert (await commit(far, client, late="yes")).status_code == 401
        else:
            # The process may hear of it by itself before the commit arrives: then it asks the catalog nothing.
            async with load_held(far, client=client, may_be_refused=True, late="yes") as committing:
                pass
            assert (await committing).status_code == 401
    assert await far.words() == said
    assert "POST" not in sent(far)


@on_module_loop
async def test_a_rule_that_another_process_has_made_refuses_the_next_commit(
    far: ForeignTenant, others: Services
) -> None:
    admin = others.gateway.admin
    await admin.create_access_rule(
        far.log_id, OPERATOR, rule_id="closed", effect="forbid", expression=f"path.endsWith('{far.name}')"
    )
    for count in (1, 2):
        assert (await commit(far, late="yes")).status_code == 403
        assert await far.words() == ["rejected"] * count
    assert "POST" not in sent(far)


@on_module_loop
async def test_a_policy_that_another_process_has_made_judges_the_next_commit(
    far: ForeignTenant, others: Services
) -> None:
    await others.gateway.admin.create_policy(
        far.log_id,
        OPERATOR,
        policy_id=f"small-{far.name}",
        text=PolicyText(
            expression=f"commit.name != '{far.name}' || !('third' in result.properties)", message="no third"
        ),
    )
    assert (await commit(far, second="yes")).status_code == 200
    assert (await commit(far, third="yes")).status_code == 403
    assert await far.words() == ["approved", "accepted", "rejected"]


@on_module_loop
@pytest.mark.usefixtures("_writers")
async def test_who_may_not_commit_learns_nothing_of_a_table_that_another_has_left(far: ForeignTenant) -> None:
    secret = await another_key(far.gateway, "kim@acme.example")
    async with far.gateway.client(secret) as client:
        for count in (1, 2):
            refused = await client.post(far.orders, json=properties([{"type": "assert-table-uuid", "uuid": "no"}]))
            assert refused.status_code == 403
            assert await far.words() == ["rejected"] * count
            assert sent(far) == ["GET"] * count, "it is not asked for the table while it is not known who may"


@on_module_loop
async def test_a_catalog_that_another_process_has_retired_takes_nothing(
    module_services: Services, others: Services
) -> None:
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as far:
        assert (await commit(far, first="yes")).status_code == 200
        before = await far.table()
        await others.gateway.admin.retire_catalog(far.log_id, OPERATOR, alias=ALIAS)
        far.wire.seen.clear()
        assert (await commit(far, late="yes")).status_code == 404
        assert "POST" not in sent(far)
        assert await far.table() == before


@on_module_loop
@pytest.mark.usefixtures("_writers")
@pytest.mark.parametrize(("changed", "status"), [("the key", 401), ("a policy", 403)])
async def test_what_another_process_changes_behind_a_recorded_decision_counts_from_the_next_commit_on(
    far: ForeignTenant, others: Services, changed: str, status: int
) -> None:
    admin, (key_id, secret) = others.gateway.admin, await guest_of(far, others, "eve")
    async with far.gateway.client(secret) as client:
        assert (await commit(far, client, eve="yes")).status_code == 200
        far = await as_new(far)
        async with load_held(far, client=client, soon="yes") as committing:
            await until(far, "approved")
            if changed == "the key":
                await admin.revoke_key(far.log_id, OPERATOR, key_id=key_id)
            else:
                closed = PolicyText(expression=f"commit.name != '{far.name}'", message="closed")
                await admin.create_policy(far.log_id, OPERATOR, policy_id=f"closed-{far.name}", text=closed)
        assert (await committing).status_code == 200
        assert await far.words() == ["approved", "accepted"]
        assert (await commit(far, client, late="yes")).status_code == status
    assert "late" not in await properties_of(far)


@on_module_loop
@pytest.mark.usefixtures("_writers")
async def test_a_key_that_has_expired_since_it_was_verified_commits_nothing(far: ForeignTenant) -> None:
    gateway, ends = far.services.gateway, far.services.gateway.clock() + timedelta(hours=1)
    issued = await gateway.admin.create_key(
        far.log_id, OPERATOR, identity="may@acme.example", roles=["writer"], expires_at=ends
    )
    async with far.gateway.client(issued.secret) as client:
        assert (await commit(far, client, may="yes")).status_code == 200
    far = await as_new(far)
    later = far.gateway.through(clock=lambda: ends, kept_tables=gateway.kept_tables, key=issued.secret)
    assert (await commit(far, later, late="yes")).status_code == 401
    assert await far.words() == []
    assert "POST" not in sent(far)


@on_module_loop
@pytest.mark.usefixtures("_writers")
async def test_while_the_log_cannot_be_written_a_revoked_key_is_told_that_and_nothing_else(
    far: ForeignTenant, others: Services
) -> None:
    key_id, secret = await guest_of(far, others, "lee")
    async with far.gateway.client(secret) as client:
        assert (await commit(far, client, lee="yes")).status_code == 200
    far = await as_new(far)

    async def away(*_: object, **__: object) -> Appended | Stale:
        raise LogUnavailableError("the log is away")

    await others.gateway.admin.revoke_key(far.log_id, OPERATOR, key_id=key_id)
    gateway = far.services.gateway
    async with far.gateway.through(key=secret, append=away, kept_tables=gateway.kept_tables) as client:
        unavailable = await commit(far, client, late="yes")
        assert (unavailable.status_code, "retry-after" in unavailable.headers) == (503, True)
        assert "could not be recorded" in unavailable.json()["error"]["message"]
    async with far.gateway.through(key=secret, kept_tables=gateway.kept_tables) as client:
        assert (await commit(far, client, late="yes")).status_code == 401
    assert await far.words() == []
    assert "POST" not in sent(far)


@on_module_loop
async def test_two_processes_that_change_one_table_at_once_lose_nothing(far: ForeignTenant) -> None:
    async with far.gateway.through() as other:
        for number in range(3):
            answers = await asyncio.gather(
                *(
                    commit(far, client, **{f"{place}{number}": "yes"})
                    for place, client in (("here", None), ("there", other))
                )
            )
            assert {answer.status_code for answer in answers} == {200}
    assert set(await properties_of(far)) >= {f"{place}{number}" for place in ("here", "there") for number in range(3)}
    assert not await far.open_decisions()
    assert not far.unrecorded


# Whose table it is, and who asks for it


@on_module_loop
async def test_a_table_of_another_tenant_with_the_same_name_is_another(
    far: ForeignTenant, module_services: Services
) -> None:
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as theirs:
        theirs = replace(theirs, name=far.name)
        await theirs.make_table()
        for number in range(2):
            for each, place in ((far, "ours"), (theirs, "theirs")):
                assert (await commit(each, **{f"{place}{number}": "yes"})).status_code == 200
        assert {name for name in await properties_of(theirs) if name[:-1] in {"ours", "theirs"}} == {
            "theirs0",
            "theirs1",
        }
        assert await theirs.words() == await far.words() == ["approved", "accepted"] * 2
    assert {name for name in await properties_of(far) if name[:-1] in {"ours", "theirs"}} == {"ours0", "ours1"}


@on_module_loop
async def test_a_table_behind_two_aliases_is_changed_through_both(far: ForeignTenant) -> None:
    twin = f"twin-{far.name}"
    await register(far.gateway, twin, far.wire.url)
    path = far.orders.replace(f"/{ALIAS}/", f"/{twin}/")
    for number in range(3):
        for orders, place in ((far.orders, "far"), (path, "twin")):
            body = properties(**{f"{place}{number}": "yes"})
            assert (await far.gateway.http.post(orders, json=body)).status_code == 200
    assert set(await properties_of(far)) >= {f"{place}{number}" for place in ("far", "twin") for number in range(3)}
    assert (await far.words()).count("failed") <= 1
    assert not await far.open_decisions()


@on_module_loop
async def test_a_table_that_took_the_name_of_another_is_judged_as_what_it_is(far: ForeignTenant) -> None:
    other = await far.with_new_table()
    await other.commit_behind(properties(frozen="yes"))
    far = await as_new(far)
    async with load_held(far, late="yes") as committing:
        await until(far, "approved")
        for source, destination in ((far.name, f"{far.name}-before"), (other.name, far.name)):
            ends = {"source": source, "destination": destination}
            body = {end: {"namespace": ["sales"], "name": name} for end, name in ends.items()}
            (await far.direct.post(f"{far.prefix}/tables/rename", json=body)).raise_for_status()
    assert (await committing).status_code == 403
    assert await far.words() == ["approved", "failed", "rejected"]
    assert "POST" not in sent(far)


@on_module_loop
async def test_each_commit_asks_the_catalog_as_its_own_request_does(far: ForeignTenant) -> None:
    delegated = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    async with nothing_read(far):
        for number, headers in enumerate((delegated, {}, delegated)):
            body = properties(**{f"n{number}": "yes"})
            assert (await far.gateway.http.post(far.orders, json=body, headers=headers)).status_code == 200
    asked = [(seen.method, b"vended-credentials" in seen.data) for seen in far.wire.seen]
    assert asked == [(method, is_so) for is_so in (True, False, True) for method in ("GET", "POST")]


@on_module_loop
async def test_what_a_transaction_changes_one_after_another_is_kept_no_longer(far: ForeignTenant) -> None:
    turns, other = f"turns-{far.name}", await far.with_new_table()
    config = {"defaults": {}, "overrides": {"prefix": "main"}, "endpoints": ["GET /v1/{prefix}/namespaces"]}
    async with FaultyWire(str(far.direct.base_url)) as wire:
        wire.always["/v1/config"] = answer(200, json.dumps(config).encode())
        await register(far.gateway, turns, wire.url, transactions="sequential")
        http, path = far.gateway.http, far.orders.replace(f"/{ALIAS}/", f"/{turns}/")
        assert (await http.post(path, json=properties(one="yes"))).status_code == 200
        both = transaction(*(commit_to(each.name, properties(both="yes")) for each in (far, other)))
        made = await http.post(f"/v1/iceberg/{turns}/transactions/commit", json=both)
        assert made.status_code == 204, made.text
        assert (await http.post(path, json=properties(two="yes"))).status_code == 200
    key = f"table:{turns}/sales/{far.name}"
    assert await words(far.services, far.log_id, after=far.first, key=key) == ["approved", "accepted"] * 3


@on_module_loop
async def test_what_had_the_name_that_a_table_is_given_is_kept_no_longer(far: ForeignTenant) -> None:
    other = await far.with_new_table()
    far = await as_new(far)
    (await far.direct.delete(far.upstream_path)).raise_for_status()
    assert (await far.gateway.http.post(RENAME, json=renamed(other.name, far.name))).status_code == 204
    assert (await commit(far, late="yes")).status_code == 200
    assert await far.words() == ["approved", "accepted"] * 2
    assert "first" not in await properties_of(far)


# What is kept


@dataclass(slots=True)
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


LOG = 1
LEFT = Loaded(namespace_exists=True, metadata={}, metadata_location="file:///w/1.json")


def table(number: int) -> Target:
    return Target(alias=ALIAS, namespace=("sales",), name=f"t{number}")


def keep(kept: KeptTables, number: int, answer_bytes: int = 10) -> None:
    kept.left(LOG, table(number), LEFT, answer_bytes=answer_bytes)


def test_a_table_is_kept_as_its_last_commit_left_it_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "KEPT_S", 5.0)
    clock = Clock()
    kept = KeptTables(clock)
    keep(kept, 1)
    assert kept.get(LOG, table(1)) is LEFT
    assert kept.get(LOG + 1, table(1)) is None, "of another log"
    assert kept.get(LOG, table(2)) is None, "another table"
    later = Loaded(namespace_exists=True, metadata={}, metadata_location="file:///w/2.json")
    kept.left(LOG, table(1), later, answer_bytes=10)
    assert kept.get(LOG, table(1)) is later
    clock.now_s += 5
    assert kept.get(LOG, table(1)) is None
    keep(kept, 2)
    assert len(kept) == 1, "a table that is too old is dropped"


def test_of_many_or_large_tables_those_that_were_changed_last_are_kept() -> None:
    kept = KeptTables()
    for number in range(TABLES_MAX + 1):
        keep(kept, number)
    assert len(kept) == TABLES_MAX
    assert kept.get(LOG, table(0)) is None
    fitting = ANSWERS_BYTES_MAX // ANSWER_BYTES_MAX
    for number in range(fitting):
        keep(kept, number, ANSWER_BYTES_MAX)
    assert len(kept) == fitting
    keep(kept, fitting, ANSWER_BYTES_MAX)
    assert kept.get(LOG, table(0)) is None
    assert kept.get(LOG, table(fitting)) is LEFT
    for number in range(fitting + 1):
        kept.forget(LOG, table(number))
    assert not len(kept)
    keep(kept, 1, ANSWERS_BYTES_MAX // fitting)
    assert len(kept) == 1, "a table that was forgotten is not counted"


def test_a_table_that_is_too_large_is_not_kept_nor_as_it_was_before() -> None:
    kept = KeptTables()
    keep(kept, 1)
    keep(kept, 1, ANSWER_BYTES_MAX + 1)
    assert kept.get(LOG, table(1)) is None


def test_a_table_that_was_another_is_not_kept_for_a_while() -> None:
    clock = Clock()
    kept = KeptTables(clock)
    keep(kept, 1)
    kept.forget(LOG, table(1), pause_s=OTHERWISE_PAUSE_S)
    for number, is_kept in ((1, False), (2, True)):
        keep(kept, number)
        assert (kept.get(LOG, table(number)) is not None) == is_kept
    clock.now_s += OTHERWISE_PAUSE_S
    keep(kept, 1)
    assert kept.get(LOG, table(1)) is LEFT


def test_of_many_pauses_the_last_ones_count() -> None:
    kept = KeptTables()
    for number in range(PAUSES_MAX + 1):
        kept.forget(LOG, table(number), pause_s=60)
    for number, is_kept in ((0, True), (1, False), (PAUSES_MAX, False)):
        keep(kept, number)
        assert (kept.get(LOG, table(number)) is not None) == is_kept


# Faults


@on_module_loop
@pytest.mark.parametrize("case", [case for case in LOSSES if case.step is not Step.ANSWER], ids=str)
async def test_what_is_lost_or_late_leaves_record_and_table_in_agreement(far: ForeignTenant, case: Case) -> None:
    await check_loss(far, case, kept_tables=far.services.gateway.kept_tables)
    assert not far.unrecorded


@on_module_loop
@pytest.mark.parametrize("saying", UPSTREAM_ANSWERS, ids=str)
async def test_whatever_the_upstream_says_record_and_table_agree(far: ForeignTenant, saying: UpstreamAnswer) -> None:
    await check_saying(far, saying)


@on_module_loop
async def test_whatever_happens_in_whatever_order_record_and_table_agree(far: ForeignTenant) -> None:
    await check_mixture(far, Random(7))  # noqa: S311 - chosen to be repeatable, not secret
