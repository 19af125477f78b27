# SPDX-License-Identifier: Apache-2.0
"""
Commits to several tables of a foreign catalog at once: one request to Apache Iceberg's own server, or none; and what is
known of each table afterwards, whatever is lost.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from lakeproof.services import Services
from ledger.errors import LogUnavailableError
from ledger.format.events import CommitSettled, OutcomeEvidence
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.foreign_tenant import ALIAS, TABLES, UNKNOWN_STATUSES, ForeignTenant, open_far
from testkit.gateway.log_contents import check_deeply, read_stored
from testkit.gateway.sales import CREATE, another_key, before_each_append, error_of, new_key, properties
from testkit.gateway.table_requests import commit_of_staged, commit_to, transaction
from testkit.servers.chained import register
from testkit.servers.faulty_wire import Fault, FaultyWire, Loss, Replaced, Request, answer
from testkit.servers.iceberg_rest import IcebergRest, start_iceberg_rest

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATH = "/transactions/commit"
COMMIT = f"/v1/iceberg/{ALIAS}{PATH}"
NO_TABLE = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoTables:
    """A foreign catalog with two tables of the test's own."""

    a: ForeignTenant
    b: ForeignTenant

    @property
    def http(self) -> httpx.AsyncClient:
        """A client of the gateway."""
        return self.a.gateway.http

    @property
    def sent(self) -> int:
        """How many requests that change something the upstream has received."""
        return sum(seen.is_mutation for seen in self.a.wire.seen)

    async def appends(self, *requirements: dict[str, Any]) -> dict[str, Any]:
        """The body of a transaction that adds a snapshot to each table; the second one has more requirements."""
        bodies = [await each.next_append() for each in (self.a, self.b)]
        bodies[1]["requirements"] += requirements
        return transaction(*(commit_to(each.name, body) for each, body in zip((self.a, self.b), bodies, strict=True)))

    async def words(self) -> list[list[str]]:
        """What the log says of each table."""
        return [await each.words() for each in (self.a, self.b)]

    async def check(self, *, lands: bool) -> None:
        """Check that record and tables agree, and whether both tables have one snapshot more, or none."""
        for each in (self.a, self.b):
            await each.check()
        assert [len(await each.snapshots()) for each in (self.a, self.b)] == [int(lands)] * 2


@pytest.fixture(scope="module")
def iceberg_rest() -> Iterator[IcebergRest]:
    """A real catalog server, empty at first."""
    with start_iceberg_rest() as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services, iceberg_rest: IcebergRest) -> AsyncIterator[ForeignTenant]:
    """A tenant with a foreign catalog, Apache Iceberg's own server."""
    async with open_far(module_services, iceberg_rest.url) as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def two(tenant: ForeignTenant) -> TwoTables:
    """The tenant, with two tables of the test's own."""
    return TwoTables(a=await tenant.with_new_table(), b=await tenant.with_new_table())


async def test_commits_to_several_tables_are_one_request_and_two_groups(two: TwoTables) -> None:
    before, sent = {each.name: await each.table() for each in (two.a, two.b)}, two.sent
    made = await two.http.post(COMMIT, json=await two.appends())
    assert (made.status_code, made.content) == (204, b""), made.text
    assert two.sent == sent + 1
    request = json.loads(two.a.wire.seen[-3].data.partition(b"\r\n\r\n")[2])  # both tables are loaded behind it
    assert [each["identifier"]["name"] for each in request["table-changes"]] == [two.a.name, two.b.name]
    await two.check(lands=True)
    entries = await read_stored(two.a.services, two.a.log_id, after=two.b.first)
    assert [one.words for one in entries] == ["approved", "approved", "accepted", "accepted"]
    decisions, outcomes = entries[:2], [one.settled for one in entries[2:]]
    assert len({one.entry.group_id for one in decisions}) == 1
    for each, decided, settled in zip((two.a, two.b), decisions, outcomes, strict=True):
        now = await each.table()
        assert decided.decided.base == before[each.name]["metadata-location"]
        assert settled.metadata_location == now["metadata-location"] != before[each.name]["metadata-location"]
        assert (settled.table_uuid, settled.evidence) == (now["metadata"]["table-uuid"], OutcomeEvidence.ANSWER)


async def test_the_decisions_are_open_before_the_upstream_sees_anything(two: TwoTables) -> None:
    seen: list[tuple[int, int]] = []

    async def append(log_id: int, group: Group) -> Appended | Stale:
        opened = [await each.open_decisions() for each in (two.a, two.b)]
        seen.append((two.sent - sent, sum(map(len, opened))))
        return await two.a.services.gateway.append(log_id, group)

    body, sent = await two.appends(), two.sent
    async with two.a.gateway.through(append=append) as http:
        assert (await http.post(COMMIT, json=body)).status_code == 204
    assert seen == [(0, 0), (1, 2)]
    await two.check(lands=True)


@pytest.mark.parametrize("refused", ["a", "b"])
async def test_a_policy_on_one_table_refuses_all_and_nothing_is_sent(two: TwoTables, refused: str) -> None:
    admin, log_id, sent = two.a.services.gateway.admin, two.a.log_id, two.sent
    name = getattr(two, refused).name
    expression = f"commit.name != '{name}' || size(commit.snapshots) == 0"
    await admin.create_policy(
        log_id, OPERATOR, policy_id=f"no-{name}", text=PolicyText(expression=expression, message="not here")
    )
    no = await two.http.post(COMMIT, json=await two.appends())
    assert (no.status_code, error_of(no)["message"].partition(" (")[0]) == (403, "not here")
    assert two.sent == sent
    assert sorted(await two.words()) == [[], ["rejected"]]
    await two.check(lands=False)


async def test_who_may_not_change_one_of_the_tables_changes_none(two: TwoTables) -> None:
    await two.a.services.gateway.admin.create_access_rule(
        two.a.log_id,
        OPERATOR,
        rule_id=f"guests-{two.a.name}",
        effect="permit",
        expression=f"'guest' in roles && path == 'sales.{two.a.name}'",
    )
    async with two.a.gateway.client(await another_key(two.a.gateway, "eve@acme.example", "guest")) as eve:
        assert (await eve.post(COMMIT, json=await two.appends())).status_code == 403
    await two.check(lands=False)


async def test_if_one_commit_cannot_be_made_none_is_sent(two: TwoTables) -> None:
    sent, another = two.sent, {"type": "assert-table-uuid", "uuid": NO_TABLE}
    conflict = await two.http.post(COMMIT, json=await two.appends(another))
    assert (conflict.status_code, error_of(conflict)["type"]) == (409, "CommitFailedException")
    missing = transaction(commit_to(two.a.name, await two.a.next_append()), commit_to("nothing", properties(a="b")))
    assert (await two.http.post(COMMIT, json=missing)).status_code == 404
    assert two.sent == sent
    assert await two.words() == [[], ["conflicted"]]
    await two.check(lands=False)


async def test_a_transaction_that_creates_a_table_is_refused_before_anything_is_sent(two: TwoTables) -> None:
    staged = await two.http.post(TABLES, json={**CREATE, "name": f"{two.a.name}-new", "stage-create": True})
    creation = commit_to(f"{two.a.name}-new", commit_of_staged(staged.json()["metadata"]))
    sent = two.sent
    no = await two.http.post(COMMIT, json=transaction(commit_to(two.a.name, await two.a.next_append()), creation))
    assert (no.status_code, error_of(no)["type"]) == (406, "UnsupportedOperationException")
    assert "create it before" in error_of(no)["message"]
    assert two.sent == sent
    await two.check(lands=False)


async def behind(two: TwoTables, body: dict[str, Any]) -> Callable[[int], Awaitable[None]]:
    """What commits to the second table at the upstream itself, before the first decision is appended."""

    async def act(count: int) -> None:
        if count == 0:
            await two.b.commit_behind(body)

    return act


async def test_a_conflict_at_the_upstream_leaves_both_tables_and_is_answered_in_its_words(two: TwoTables) -> None:
    body, other = await two.appends(), await two.b.next_append()
    async with two.a.gateway.through(append=before_each_append(two.a.gateway, await behind(two, other))) as http:
        no = await http.post(COMMIT, json=body)
    assert (no.status_code, error_of(no)["type"]) == (409, "CommitFailedException")
    assert await two.words() == [["approved", "conflicted"]] * 2
    assert [len(await each.snapshots()) for each in (two.a, two.b)] == [0, 1]
    assert not [each for each in (two.a, two.b) if await each.open_decisions()]


async def test_a_commit_that_only_a_pin_stands_against_is_judged_again_with_the_others(two: TwoTables) -> None:
    added = {"type": "struct", "schema-id": 1, "fields": [{"id": 9, "name": "new", "required": False, "type": "int"}]}
    other = {
        "requirements": [],
        "updates": [
            {"action": "add-schema", "schema": added, "last-column-id": 9},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    }
    body = transaction(commit_to(two.a.name, properties(a="1")), commit_to(two.b.name, properties(b="1")))
    async with two.a.gateway.through(append=before_each_append(two.a.gateway, await behind(two, other))) as http:
        made = await http.post(COMMIT, json=body)
    assert made.status_code == 204, made.text
    assert await two.words() == [["approved", "conflicted", "approved", "accepted"]] * 2
    assert (await two.b.table())["metadata"]["properties"]["b"] == "1"
    assert not [each for each in (two.a, two.b) if await each.open_decisions()]


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER])
async def test_what_is_lost_on_the_way_is_found_out_for_each_table(two: TwoTables, loss: Loss) -> None:
    lands, body = loss is Loss.ANSWER, await two.appends()
    two.a.wire.fault = Fault(happens=loss, path=PATH)
    lost = await two.http.post(COMMIT, json=body)
    assert lost.status_code in UNKNOWN_STATUSES
    assert error_of(lost)["type"] == "CommitStateUnknownException"
    assert await two.words() == [["approved", "unknown"]] * 2
    await check_deeply(two.a.services, two.a.log_id)
    await two.a.reconcile()
    assert await two.words() == [["approved", "unknown", *(["accepted"] if lands else [])]] * 2
    await two.check(lands=lands)
    await check_deeply(two.a.services, two.a.log_id)


@pytest.mark.parametrize(
    ("status", "known", "word"), [(500, 502, "unknown"), (409, 409, "conflicted"), (404, 404, "refused")]
)
async def test_an_answer_that_is_no_success_is_recorded_as_what_it_is(
    two: TwoTables, status: int, known: int, word: str
) -> None:
    two.a.wire.fault = Fault(happens=Replaced(answer=answer(status, b"{}"), carried_out=False), path=PATH)
    no = await two.http.post(COMMIT, json=await two.appends())
    assert (no.status_code in UNKNOWN_STATUSES) if status == 500 else no.status_code == known
    assert await two.words() == [["approved", word]] * 2
    await two.check(lands=False)


async def test_a_success_that_left_the_tables_as_they_were_is_not_believed(two: TwoTables) -> None:
    two.a.wire.fault = Fault(happens=Replaced(answer=answer(204), carried_out=False), path=PATH)
    lost = await two.http.post(COMMIT, json=await two.appends())
    assert lost.status_code in UNKNOWN_STATUSES
    assert "a table is as before" in error_of(lost)["message"]
    assert await two.words() == [["approved", "unknown"]] * 2
    await two.check(lands=False)


async def test_a_commit_that_changes_nothing_is_accepted_with_the_file_as_it_is(two: TwoTables) -> None:
    same = properties(**(await two.b.table())["metadata"]["properties"])
    body = transaction(commit_to(two.a.name, await two.a.next_append()), commit_to(two.b.name, same))
    assert (await two.http.post(COMMIT, json=body)).status_code == 204
    assert await two.words() == [["approved", "accepted"]] * 2


async def test_an_outcome_that_is_not_recorded_is_answered_and_found_out(two: TwoTables) -> None:
    async def away(count: int) -> None:
        if count == 1:
            raise LogUnavailableError("no log")

    body = await two.appends()
    async with two.a.gateway.through(append=before_each_append(two.a.gateway, away)) as http:
        assert (await http.post(COMMIT, json=body)).status_code == 204
    assert await two.words() == [["approved"]] * 2
    await two.a.reconcile()
    assert await two.words() == [["approved", "accepted"]] * 2
    await two.check(lands=True)


async def test_a_table_that_cannot_be_loaded_after_a_success_is_left_to_the_reconciler(two: TwoTables) -> None:
    body = await two.appends()

    async def fail_later(count: int) -> None:
        if count == 0:
            fails = Replaced(answer=answer(500), carried_out=False)
            two.a.wire.fault = Fault(happens=fails, path=two.b.path, methods=frozenset({"GET"}))

    async with two.a.gateway.through(append=before_each_append(two.a.gateway, fail_later)) as http:
        assert (await http.post(COMMIT, json=body)).status_code == 204
    assert await two.words() == [["approved", "accepted"], ["approved", "unknown"]]
    await two.a.reconcile()
    assert await two.words() == [["approved", "accepted"], ["approved", "unknown", "accepted"]]
    await two.check(lands=True)


async def test_a_table_that_is_no_table_after_a_success_is_left_to_the_reconciler(two: TwoTables) -> None:
    body, there = await two.appends(), await two.b.table()
    there["metadata"]["metadata-log"] = ["junk"]
    there["metadata-location"] += "-other"

    async def lie_later(count: int) -> None:
        if count == 0:
            lie = Replaced(answer=answer(200, json.dumps(there).encode()), carried_out=False)
            two.a.wire.fault = Fault(happens=lie, path=two.b.path, methods=frozenset({"GET"}))

    async with two.a.gateway.through(append=before_each_append(two.a.gateway, lie_later)) as http:
        assert (await http.post(COMMIT, json=body)).status_code == 204
    assert await two.words() == [["approved", "accepted"], ["approved", "unknown"]]
    await two.a.reconcile()
    await two.check(lands=True)


async def commit_between(
    two: TwoTables, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[None]]
) -> list[CommitSettled]:
    """Commit to both tables, and `act` before the second one is loaded again; return both accepted outcomes."""
    body, sent, look = await two.appends(), two.sent, two.a.wire.on_request

    async def act_before_it_is_loaded(request: Request) -> None:
        if request.method == "GET" and request.target.endswith(two.b.path) and two.sent > sent:
            monkeypatch.undo()
            await act()
        await look(request)

    monkeypatch.setattr(two.a.wire, "on_request", act_before_it_is_loaded)
    assert (await two.http.post(COMMIT, json=body)).status_code == 204
    entries = await read_stored(two.a.services, two.a.log_id, after=two.b.first)
    return [one.settled for one in entries if one.words == "accepted"]


async def test_a_file_that_may_be_another_commits_is_recorded_as_found(
    two: TwoTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = await commit_between(two, monkeypatch, lambda: two.b.commit_behind(properties(later="yes")))
    assert (ours.evidence, other.evidence) == (OutcomeEvidence.ANSWER, OutcomeEvidence.RECONCILED)
    now = await two.b.table()
    assert (other.metadata_location, now["metadata"]["properties"]["later"]) == (now["metadata-location"], "yes")
    await two.check(lands=True)


async def test_a_table_that_is_dropped_right_after_the_transaction_has_no_metadata_in_the_record(
    two: TwoTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = await commit_between(two, monkeypatch, two.b.make_table)
    assert [one.metadata_location is None for one in outcomes] == [False, True]
    assert await two.words() == [["approved", "accepted"]] * 2


async def test_a_transaction_with_a_key_is_made_once(two: TwoTables) -> None:
    headers, body = new_key(), await two.appends()
    two.a.wire.fault = Fault(happens=Loss.ANSWER, path=PATH)
    assert (await two.http.post(COMMIT, json=body, headers=headers)).status_code in UNKNOWN_STATUSES
    sent = two.sent
    waiting = await two.http.post(COMMIT, json=body, headers=headers)
    assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "1")
    await two.a.reconcile()
    again = await two.http.post(COMMIT, json=body, headers=headers)
    assert (again.status_code, two.sent) == (204, sent)
    other = transaction(*body["table-changes"][:1])
    assert (await two.http.post(COMMIT, json=other, headers=headers)).status_code == 422
    await two.check(lands=True)


async def test_an_upstream_without_transactions_is_sent_nothing(two: TwoTables) -> None:
    url = str(two.a.direct.base_url)
    config = (await two.a.direct.get("/v1/config")).json()
    config["endpoints"] = [each for each in config["endpoints"] if not each.endswith("/transactions/commit")]
    async with FaultyWire(url) as wire:
        alias = f"poor-{two.a.name}"
        says = Replaced(answer=answer(200, json.dumps(config).encode()), carried_out=False)
        wire.fault = Fault(happens=says, path="/v1/config", methods=frozenset({"GET"}))
        await register(two.a.gateway, alias, wire.url)
        offered = (await two.http.get("/v1/config", params={"warehouse": alias})).json()["endpoints"]
        assert "POST /v1/{prefix}/transactions/commit" not in offered
        no = await two.http.post(f"/v1/iceberg/{alias}{PATH}", json=await two.appends())
        assert (no.status_code, error_of(no)["type"]) == (406, "UnsupportedOperationException")
        assert "its upstream offers no transactions, nothing was sent" in error_of(no)["message"]
        assert not [seen for seen in wire.seen if seen.is_mutation]
    await two.check(lands=False)


async def test_transactions_are_advertised_where_the_upstream_has_them(two: TwoTables) -> None:
    offered = (await two.http.get("/v1/config", params={"warehouse": ALIAS})).json()["endpoints"]
    assert "POST /v1/{prefix}/transactions/commit" in offered
