# SPDX-License-Identifier: Apache-2.0
"""
Commits to several tables of a foreign catalog that offers no transactions, one after another: Apache Iceberg's own
server, whose configuration does not name them. The first one that is not accepted is the last one that is sent, and no
decision stays open that was never sent.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.control.aggregates import Catalog
from gateway.reconcile.reconciler import Reconciler
from lakeproof.inspecting.upstreams import check_upstream
from lakeproof.services import Services
from ledger.errors import LogUnavailableError
from ledger.format.events import OutcomeEvidence
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.foreign_faults import DEATH_TIMEOUT_S, dying_gateway
from testkit.gateway.foreign_tenant import ALIAS, ROOT, UNKNOWN_STATUSES, ForeignTenant, open_far
from testkit.gateway.log_contents import StoredEntry, check_deeply, read_stored, words
from testkit.gateway.sales import before_each_append, error_of, new_key, properties
from testkit.gateway.table_requests import commit_to, transaction
from testkit.servers.chained import register
from testkit.servers.faulty_wire import Fault, FaultyWire, Loss, Replaced, answer
from testkit.servers.iceberg_rest import IcebergRest, start_iceberg_rest

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMIT = f"/v1/iceberg/{ALIAS}/transactions/commit"
ENDPOINT = "POST /v1/{prefix}/transactions/commit"
NO_TABLE = "00000000-0000-4000-8000-000000000000"
ROUNDS = 5
PARTLY = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """A foreign catalog with three tables of the test's own, in the order in which they are committed to."""

    each: Sequence[ForeignTenant]

    @property
    def far(self) -> ForeignTenant:
        """The first one."""
        return self.each[0]

    @property
    def http(self) -> httpx.AsyncClient:
        """A client of the gateway."""
        return self.far.gateway.http

    @property
    def sent(self) -> list[str]:
        """The names of the tables that the upstream was sent commits to, through the gateway."""
        seen = [one.target.rpartition("/")[2] for one in self.far.wire.seen if one.is_mutation]
        return [name for name in seen if name in {table.name for table in self.each}]

    @property
    def names(self) -> list[str]:
        """The names of the tables, as messages have them."""
        return [f"sales.{table.name}" for table in self.each]

    async def appends(self, *requirements: dict[str, Any]) -> dict[str, Any]:
        """The body of a transaction that adds a snapshot to each; the second one has more requirements."""
        bodies = [await table.next_append() for table in self.each]
        bodies[1]["requirements"] += requirements
        return transaction(*(commit_to(table.name, body) for table, body in zip(self.each, bodies, strict=True)))

    async def words(self) -> list[list[str]]:
        """What the log says of each table."""
        return [await table.words() for table in self.each]

    async def entries(self) -> list[StoredEntry]:
        """The entries about all of them."""
        return await read_stored(self.far.services, self.far.log_id, after=self.each[-1].first)

    async def check(self, *lands: bool) -> None:
        """Check that record and tables agree, and which of them have one snapshot more."""
        for table in self.each:
            await table.check()
        assert [len(await table.snapshots()) for table in self.each] == [int(each) for each in lands]
        await check_deeply(self.far.services, self.far.log_id)

    async def reconcile(self) -> None:
        """Settle what can be: of two decisions, one may wait for what becomes of the other."""
        for _ in range(2):
            await self.far.reconcile()


@pytest.fixture(scope="module")
def iceberg_rest() -> Iterator[IcebergRest]:
    """A real catalog server, empty at first."""
    with start_iceberg_rest() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services, iceberg_rest: IcebergRest) -> AsyncIterator[ForeignTenant]:
    """A tenant whose foreign catalog says that it has no transactions, and that takes commits one after another."""
    async with open_far(module_services, iceberg_rest.url, options={"transactions": "sequential"}) as far:
        config = (await far.direct.get("/v1/config")).json()
        config["endpoints"] = [each for each in config["endpoints"] if each != ENDPOINT]
        far.wire.always["/v1/config"] = answer(200, json.dumps(config).encode())
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def three(tenant: ForeignTenant) -> Tables:
    """The tenant, with three tables; the order of the commits is not that of their names."""
    made = [await tenant.with_new_table() for _ in range(3)]
    made.sort(key=lambda table: table.name, reverse=True)
    return Tables(each=made)


# What is made


async def test_commits_are_sent_one_after_another_in_their_order_each_once_the_one_before_is_in_the_log(
    three: Tables,
) -> None:
    body, seen = await three.appends(), list[int]()

    async def look(_count: int) -> None:
        seen.append(len(three.sent))

    async with three.far.gateway.through(append=before_each_append(three.far.gateway, look)) as http:
        made = await http.post(COMMIT, json=body)
    assert (made.status_code, made.content) == (204, b""), made.text
    assert three.sent == [table.name for table in three.each]
    assert seen == [0, 1, 2, 3], "an append before the first one, and one after each"
    entries = [one for one in await three.entries() if one.entry.type.startswith("commit.")]
    assert [one.words for one in entries] == ["approved"] * 3 + ["accepted"] * 3
    assert [one.entry.key for one in entries] == [table.key for table in three.each] * 2
    assert len({one.entry.group_id for one in entries[:3]}) == 1
    for table, settled in zip(three.each, entries[3:], strict=True):
        assert settled.settled.metadata_location == (await table.table())["metadata-location"]
    await three.check(True, True, True)


async def test_it_is_advertised_where_the_option_says_so_and_the_check_says_what_it_means(three: Tables) -> None:
    far = three.far
    offered = (await three.http.get("/v1/config", params={"warehouse": ALIAS})).json()["endpoints"]
    assert ENDPOINT in offered
    for options, notes in (({}, 0), ({"transactions": "sequential"}, 1)):
        catalog = Catalog(id="looked-at", version=1, kind="rest", options={"uri": far.wire.url, **options})
        found = await check_upstream(far.services.installation, far.gateway.acme.tenant, catalog)
        assert sum("one after another" in note for note in found.notes) == notes
        assert (ENDPOINT in found.missing) == (not notes)


async def test_without_the_option_nothing_is_sent(three: Tables) -> None:
    alias = f"plain-{three.far.name}"
    await register(three.far.gateway, alias, three.far.wire.url)
    offered = (await three.http.get("/v1/config", params={"warehouse": alias})).json()["endpoints"]
    assert ENDPOINT not in offered
    no = await three.http.post(COMMIT.replace(ALIAS, alias), json=await three.appends())
    assert (no.status_code, error_of(no)["type"]) == (406, "UnsupportedOperationException")
    assert three.sent == []
    await three.check(False, False, False)


# What is refused before anything is sent


@pytest.mark.parametrize("refused", [0, 1, 2])
async def test_a_policy_on_one_table_refuses_all_and_nothing_is_sent(three: Tables, refused: int) -> None:
    admin, name = three.far.services.gateway.admin, three.each[refused].name
    expression = f"commit.name != '{name}' || size(commit.snapshots) == 0"
    await admin.create_policy(
        three.far.log_id, OPERATOR, policy_id=f"no-{name}", text=PolicyText(expression=expression, message="not here")
    )
    no = await three.http.post(COMMIT, json=await three.appends())
    assert (no.status_code, error_of(no)["message"].partition(" (")[0]) == (403, "not here")
    assert three.sent == []
    assert [each for each in await three.words() if each] == [["rejected"]]
    await three.check(False, False, False)


async def test_if_one_commit_cannot_be_made_none_is_sent(three: Tables) -> None:
    another = {"type": "assert-table-uuid", "uuid": NO_TABLE}
    no = await three.http.post(COMMIT, json=await three.appends(another))
    assert (no.status_code, error_of(no)["type"]) == (409, "CommitFailedException")
    assert (three.sent, await three.words()) == ([], [[], ["conflicted"], []])
    await three.check(False, False, False)


# What is refused on the way


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_behind_a_conflict_nothing_is_sent_and_what_was_made_before_stays(three: Tables, position: int) -> None:
    body, other = await three.appends(), await three.each[position].next_append()

    async def behind(count: int) -> None:
        if count == 0:
            await three.each[position].commit_behind(other)

    async with three.far.gateway.through(append=before_each_append(three.far.gateway, behind)) as http:
        no = await http.post(COMMIT, json=body)
    # Not 409 if something was made: an engine would delete all of its files.
    kinds = (409, "CommitFailedException") if position == 0 else (PARTLY, "CommitStateUnknownException")
    assert (no.status_code, error_of(no)["type"]) == kinds
    message, names = error_of(no)["message"], three.names
    assert names[position] in message
    made, _, rest = message.partition(f"{names[position]}")
    assert all(name in made for name in names[:position])
    assert not names[position + 1 :] or f"; not sent: {', '.join(names[position + 1 :])}" in rest
    assert three.sent == [table.name for table in three.each[: position + 1]]
    words = [["approved", "accepted"], ["approved", "conflicted"], ["approved", "failed"]]
    assert await three.words() == [words[(each > position) - (each < position) + 1] for each in range(3)]
    assert not [table for table in three.each if await table.open_decisions()]
    await check_deeply(three.far.services, three.far.log_id)


@pytest.mark.parametrize(
    ("status", "known", "word"),
    [(404, 404, "refused"), (500, 504, "unknown"), (403, 403, "refused"), (503, 504, "unknown")],
)
@pytest.mark.parametrize("position", [0, 1])
async def test_behind_an_answer_that_is_no_success_nothing_is_sent(
    three: Tables, position: int, status: int, known: int, word: str
) -> None:
    says = Replaced(answer=answer(status, b"{}"), carried_out=False)
    three.far.wire.fault = Fault(happens=says, path=three.each[position].path)
    no = await three.http.post(COMMIT, json=await three.appends())
    assert no.status_code == (PARTLY if position and word == "refused" else known), no.text
    assert three.names[position] in error_of(no)["message"]
    expected = [["approved", "accepted"]] * position + [["approved", word]] + [["approved", "failed"]] * (2 - position)
    assert await three.words() == expected
    assert [bool(await table.open_decisions()) for table in three.each] == [
        each == position and word == "unknown" for each in range(3)
    ]
    await three.check(*(each < position for each in range(3)))


async def test_an_upstream_that_is_not_reached_is_sent_nothing_and_all_have_failed(three: Tables) -> None:
    far, alias = three.far, f"away-{three.far.name}"
    async with FaultyWire(str(far.direct.base_url)) as wire:
        wire.always = far.wire.always
        await register(far.gateway, alias, wire.url, transactions="sequential")

        async def away(count: int) -> None:
            if count == 0:
                assert wire._server is not None
                wire._server.close()

        async with far.gateway.through(append=before_each_append(far.gateway, away)) as http:
            no = await http.post(COMMIT.replace(ALIAS, alias), json=await three.appends())
    assert (no.status_code, no.headers["retry-after"]) == (503, "1")
    assert error_of(no)["message"].startswith(f"{three.names[0]}: the upstream was not reached, nothing was changed")
    for table in three.each:
        key = table.key.replace(ALIAS, alias, 1)
        assert await words(far.services, far.log_id, after=three.each[-1].first, key=key) == ["approved", "failed"]
    await three.check(False, False, False)


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
async def test_what_is_lost_on_the_way_is_found_out_and_what_is_behind_it_was_never_sent(
    three: Tables, loss: Loss
) -> None:
    lands = loss is Loss.ANSWER
    three.far.wire.fault = Fault(happens=loss, path=three.each[1].path)
    lost = await three.http.post(COMMIT, json=await three.appends())
    assert (lost.status_code in UNKNOWN_STATUSES, error_of(lost)["type"]) == (True, "CommitStateUnknownException")
    message, names = error_of(lost)["message"], three.names
    assert message.startswith(f"{names[1]}: the commit may or may not have happened")
    assert message.endswith(f"; committed before: {names[0]}; not sent: {names[2]}")
    assert await three.words() == [["approved", "accepted"], ["approved", "unknown"], ["approved", "failed"]]
    await three.reconcile()
    assert (await three.words())[1] == ["approved", "unknown", *(["accepted"] if lands else [])]
    await three.check(True, lands, False)


async def test_a_first_commit_that_only_a_pin_stands_against_is_judged_again_with_the_others(three: Tables) -> None:
    added = {"type": "struct", "schema-id": 1, "fields": [{"id": 9, "name": "new", "required": False, "type": "int"}]}
    other = {
        "requirements": [],
        "updates": [
            {"action": "add-schema", "schema": added, "last-column-id": 9},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    }

    async def behind(count: int) -> None:
        if count == 0:
            await three.far.commit_behind(other)

    body = transaction(*(commit_to(table.name, properties(a="1")) for table in three.each))
    async with three.far.gateway.through(append=before_each_append(three.far.gateway, behind)) as http:
        made = await http.post(COMMIT, json=body)
    assert made.status_code == 204, made.text
    again = ["approved", "accepted"]
    assert await three.words() == [["approved", "conflicted", *again], *[["approved", "failed", *again]] * 2]
    assert not [table for table in three.each if await table.open_decisions()]


# What is not recorded


async def test_what_cannot_be_recorded_is_followed_by_nothing(three: Tables) -> None:
    async def away(count: int) -> None:
        if count > 0:
            raise LogUnavailableError("no log")

    async with three.far.gateway.through(append=before_each_append(three.far.gateway, away)) as http:
        no = await http.post(COMMIT, json=await three.appends())
    assert (no.status_code, error_of(no)["type"]) == (PARTLY, "CommitStateUnknownException")
    assert f"the outcome of {three.names[0]} could not be recorded; not sent: " in error_of(no)["message"]
    assert await three.words() == [["approved"]] * 3
    assert three.sent == [three.each[0].name]
    await three.reconcile()
    assert await three.words() == [["approved", "accepted"], ["approved", "failed"], ["approved", "failed"]]
    await three.check(True, False, False)


async def test_the_last_outcome_that_is_not_recorded_is_answered_and_found_out(three: Tables) -> None:
    async def away(count: int) -> None:
        if count == 3:
            raise LogUnavailableError("no log")

    async with three.far.gateway.through(append=before_each_append(three.far.gateway, away)) as http:
        assert (await http.post(COMMIT, json=await three.appends())).status_code == 204
    assert await three.words() == [["approved", "accepted"]] * 2 + [["approved"]]
    await three.reconcile()
    await three.check(True, True, True)


async def test_a_reconciler_that_was_first_keeps_what_it_has_closed_from_being_sent(three: Tables) -> None:
    async def first(count: int) -> None:
        if count == 1:  # the answer to the first commit is about to be recorded
            await three.reconcile()

    async with three.far.gateway.through(append=before_each_append(three.far.gateway, first)) as http:
        no = await http.post(COMMIT, json=await three.appends())
    assert no.status_code == PARTLY
    assert three.sent == [three.each[0].name]
    assert await three.words() == [["approved", "accepted"], ["approved", "failed"], ["approved", "failed"]]
    settled = [one.settled for one in await three.entries() if one.words == "accepted"]
    assert [one.evidence for one in settled] == [OutcomeEvidence.RECONCILED]
    await three.check(True, False, False)


async def test_a_decision_that_may_have_been_sent_is_not_closed_for_want_of_an_answer(three: Tables) -> None:
    async def late(count: int) -> None:
        if count == 2:  # the second commit was answered; the third was not sent yet
            await three.reconcile()

    async with three.far.gateway.through(append=before_each_append(three.far.gateway, late)) as http:
        no = await http.post(COMMIT, json=await three.appends())
    assert (no.status_code, three.sent) == (PARTLY, [table.name for table in three.each[:2]])
    assert await three.words() == [["approved", "accepted"]] * 2 + [["approved", "failed"]]
    await three.check(True, True, False)


def unloadable(table: ForeignTenant) -> Fault:
    """What keeps the reconciler from finding out, once, what became of a table."""
    fails = Replaced(answer=answer(500), carried_out=False)
    return Fault(happens=fails, path=table.path, methods=frozenset({"GET"}))


async def test_a_commit_is_not_sent_once_its_decision_is_closed_though_the_one_before_is_open(three: Tables) -> None:
    closed = [["approved", "failed"]] * 2

    async def first(count: int) -> None:
        if count == 1:
            three.far.wire.fault = unloadable(three.far)
            # An upstream that does not answer in time leaves a decision for the next round.
            for _ in range(ROUNDS):
                await three.far.reconcile()
                if (await three.words())[1:] == closed:
                    break

    async with three.far.gateway.through(append=before_each_append(three.far.gateway, first)) as http:
        no = await http.post(COMMIT, json=await three.appends())
    assert (no.status_code, three.sent) == (PARTLY, [three.each[0].name])
    assert await three.words() == [["approved", "unknown", "accepted"], *closed]
    await three.check(True, False, False)


async def test_a_decision_is_not_closed_once_its_commit_may_be_sent_though_it_was_looked_at_before(
    three: Tables,
) -> None:
    far, answered, looked, body = three.far, asyncio.Event(), asyncio.Event(), await three.appends()
    late = Fault(happens=Loss.LATE, path=three.each[1].path)

    async def wait(count: int) -> None:
        if count == 1:  # the answer to the first commit is recorded once the reconciler has looked at the second one
            answered.set()
            await looked.wait()
            far.wire.fault = late

    async def append(log_id: int, group: Group) -> Appended | Stale:
        if any(event.key == three.each[1].key for event in group.then):
            looked.set()
            await late.hit.wait()
        return await far.services.gateway.append(log_id, group)

    async with far.gateway.through(append=before_each_append(far.gateway, wait)) as http:
        asking = asyncio.create_task(http.post(COMMIT, json=body))
        await answered.wait()
        far.wire.fault = unloadable(far)
        await Reconciler(far.exchanged(clock=far.late, append=append)).settle_now()
        assert (await three.words())[:2] == [["approved", "unknown", "accepted"], ["approved"]]
        late.deliver.set()
        lost = await asking
    assert lost.status_code in UNKNOWN_STATUSES
    await late.delivered.wait()
    await three.reconcile()
    assert (await three.words())[1][-1] == "accepted"
    await three.check(True, True, False)


async def kill(three: Tables, body: dict[str, Any], *, point: str | None) -> Fault | None:
    """Send a transaction to a gateway's process that dies at `point`, or while its second commit is on the way."""
    far, headers = three.far, dict(three.http.headers)
    with dying_gateway(far, point) as (url, process):
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=DEATH_TIMEOUT_S) as client:
            lit = await client.post(f"{ROOT}/sales/properties", json={"updates": {"next": str(point)}})
            assert lit.status_code == httpx.codes.OK
            fault = None if point else Fault(happens=Loss.LATE, path=three.each[1].path)
            far.wire.fault = fault
            asking = asyncio.create_task(client.post(COMMIT, json=body))
            if fault is not None:
                await fault.hit.wait()
                process.kill()
            await asyncio.wait([asking])
            assert isinstance(asking.exception(), httpx.TransportError), "the client learns nothing"
            await asyncio.to_thread(process.join, DEATH_TIMEOUT_S)
            assert process.exitcode == -signal.SIGKILL
    return fault


async def test_a_process_that_is_killed_between_two_commits_leaves_none_open_that_was_never_sent(
    three: Tables,
) -> None:
    fault = await kill(three, await three.appends(), point=None)
    assert fault is not None
    assert await three.words() == [["approved", "accepted"], ["approved"], ["approved"]]
    await three.reconcile()
    assert await three.words() == [["approved", "accepted"], ["approved", "unknown"], ["approved", "failed"]]
    await three.check(True, False, False)
    fault.deliver.set()
    await fault.delivered.wait()
    await three.reconcile()
    assert (await three.words())[1] == ["approved", "unknown", "accepted"]
    await three.check(True, True, False)


@pytest.mark.parametrize(("point", "lands"), [("11", False), ("12", True)])
async def test_a_process_that_is_killed_before_it_records_the_first_outcome_has_sent_no_other(
    three: Tables, point: str, lands: bool
) -> None:
    await kill(three, await three.appends(), point=point)
    assert await three.words() == [["approved"]] * 3
    await three.reconcile()
    first = ["approved", "accepted" if lands else "unknown"]
    assert await three.words() == [first, ["approved", "failed"], ["approved", "failed"]]
    await three.check(lands, False, False)


# Repeats


async def test_a_transaction_that_was_made_in_part_is_answered_so_again_and_not_sent_again(three: Tables) -> None:
    headers, body, names = new_key(), await three.appends(), three.names
    says = Replaced(answer=answer(400, b"{}"), carried_out=False)
    three.far.wire.fault = Fault(happens=says, path=three.each[1].path)
    assert (await three.http.post(COMMIT, json=body, headers=headers)).status_code == PARTLY
    sent = three.sent
    again = await three.http.post(COMMIT, json=body, headers=headers)
    assert (again.status_code, error_of(again)["type"]) == (PARTLY, "CommitStateUnknownException")
    assert f"committed: {names[0]}; not committed: {names[1]}, {names[2]}" in error_of(again)["message"]
    assert three.sent == sent
    other = await three.http.post(COMMIT, json=transaction(*body["table-changes"][:1]), headers=headers)
    assert other.status_code == 422
    await three.check(True, False, False)


async def test_a_transaction_whose_outcome_is_not_known_is_answered_once_it_is(three: Tables) -> None:
    headers, body = new_key(), transaction(*(commit_to(table.name, properties(color="red")) for table in three.each))
    three.far.wire.fault = Fault(happens=Loss.ANSWER, path=three.each[2].path)
    assert (await three.http.post(COMMIT, json=body, headers=headers)).status_code in UNKNOWN_STATUSES
    sent = three.sent
    waiting = await three.http.post(COMMIT, json=body, headers=headers)
    assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "1")
    await three.reconcile()
    assert (await three.http.post(COMMIT, json=body, headers=headers)).status_code == 204
    assert three.sent == sent


async def test_a_transaction_of_which_nothing_was_made_is_made_when_it_is_sent_again(three: Tables) -> None:
    headers, body = new_key(), await three.appends()
    says = Replaced(answer=answer(400, b"{}"), carried_out=False)
    three.far.wire.fault = Fault(happens=says, path=three.each[0].path)
    assert (await three.http.post(COMMIT, json=body, headers=headers)).status_code == 400
    for _ in range(2):
        assert (await three.http.post(COMMIT, json=body, headers=headers)).status_code == 204
    again = ["approved", "accepted"]
    assert await three.words() == [["approved", "refused", *again], *[["approved", "failed", *again]] * 2]
    assert [len(await table.snapshots()) for table in three.each] == [1, 1, 1]
