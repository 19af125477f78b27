# SPDX-License-Identifier: Apache-2.0
"""
A proposal replayed over a real log: what would pass, what would be refused, and what cannot be told any more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.policy.scopes import Scope
from gateway.replaying import application, evaluating, pages, reading, variables
from gateway.replaying import coverage as coverages
from gateway.replaying import replay as replaying
from gateway.replaying.application import NothingToReplayError, attest
from gateway.replaying.comparing import Change
from gateway.replaying.reading import OUTCOMES_KEPT
from gateway.replaying.replay import SCOPE_UNKNOWN, Proposed, Replayed
from gateway.replaying.variables import ERASED
from ledger.errors import BrokenError, Fault
from ledger.format.event import is_control
from ledger.format.events import ProposalReplayed, from_data
from testkit.gateway.log_contents import path_of, read_stored
from testkit.gateway.replays import LONG_AGO, erase_ada, replay
from testkit.gateway.sales import CREATE, ORDERS, TABLES, location_of_orders, properties
from testkit.gateway.two_views import project
from testkit.servers.forked_workers import fork_worker
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER = "result.properties.exists(name, name == 'owner') || commit.operation != 'table.commit'"
WITHOUT_OWNER = "!('owner' in result.properties)"
TENANT = "commit.operation != 'table.create' || result.columns.exists(c, c.name == 'tenant_id')"


async def put(gateway: Gateway, policy_id: str, expression: str) -> None:
    await gateway.services.gateway.admin.create_policy(
        gateway.acme.log_id, OPERATOR, policy_id=policy_id, text=PolicyText(expression=expression, message="no")
    )


async def send(gateway: Gateway, path: str, body: Any, status: int) -> None:
    answer = await gateway.http.post(path, json=body)
    assert answer.status_code == status, answer.text


@pytest_asyncio.fixture(loop_scope="module")
async def busy(sales: Gateway) -> Gateway:
    """Two commits that were made, one without an owner; one that `owner` refused, and a table that `tenant` refused."""
    await send(sales, ORDERS, properties(a="1"), 200)
    await put(sales, "owner", OWNER)
    await put(sales, "tenant", TENANT)
    await send(sales, ORDERS, properties(a="2"), 403)
    await send(sales, ORDERS, properties(owner="ada"), 200)
    await send(sales, TABLES, {**CREATE, "name": "more"}, 403)
    return sales


def words(found: Replayed) -> list[tuple[str, str, str, int]]:
    return [(group.change.value, group.rule, group.path, group.count) for group in found.groups]


async def test_policies_as_they_are_change_nothing_where_they_were_in_force(busy: Gateway) -> None:
    last = (await read_stored(busy.services, busy.acme.log_id))[-1].entry.index
    found = await replay(busy, Proposed(id="tenant", expression=TENANT), until=last + 1)
    assert words(found) == [("narrowed", "tenant", "lake.sales.orders", 1)], "made before it was in force"
    assert found.decisions == 6
    assert found.counts == {Change.SAME: 5, Change.NARROWED: 1}


async def test_a_weaker_policy_lets_pass_what_was_refused(busy: Gateway) -> None:
    found = await replay(busy, Proposed(id="owner", expression="true"))
    assert words(found) == [("widened", "owner", "lake.sales.orders", 1)]


async def test_a_stricter_one_refuses_what_was_made_and_what_another_refused_stays_refused(busy: Gateway) -> None:
    found = await replay(busy, Proposed(id="no-tables", expression="commit.kind != 'table'"))
    assert words(found) == [("narrowed", "no-tables", "lake.sales.orders", 3)]
    assert found.counts[Change.SAME] == 3


async def test_both_directions_are_told_apart_in_one_replay(busy: Gateway) -> None:
    found = await replay(
        busy,
        Proposed(id="owner", expression="true"),
        Proposed(id="other", expression="!('owner' in result.properties)"),
    )
    assert words(found) == [
        ("widened", "owner", "lake.sales.orders", 1),
        ("narrowed", "other", "lake.sales.orders", 1),
    ]


async def test_a_policy_that_fails_on_recorded_inputs_is_reported_as_such(busy: Gateway) -> None:
    found = await replay(busy, Proposed(id="fails", expression="result.properties['owner'] == 'ada'"))
    # Without a property of that name there is an error: of the namespace, and of the first commits.
    assert found.counts[Change.FAILED] == 3
    assert found.counts[Change.SAME] == 3


async def test_a_policy_is_evaluated_only_where_its_scope_applies(busy: Gateway) -> None:
    scope = Scope(operations=("namespace.create",))
    found = await replay(busy, Proposed(id="closed", expression="false", scope=scope))
    assert words(found) == [("narrowed", "closed", "lake.sales", 1)]


async def test_a_policy_whose_new_scope_leaves_a_table_out_lets_its_commits_pass(busy: Gateway) -> None:
    found = await replay(busy, Proposed(id="owner", expression=OWNER, scope=Scope(names=("elsewhere.*",))))
    assert words(found) == [("widened", "owner", "lake.sales.orders", 1)]


async def test_a_scope_by_properties_applies_to_tables_that_had_them_before_or_after(busy: Gateway) -> None:
    owned = Scope(properties=("owner=ada",))
    found = await replay(busy, Proposed(id="closed", expression="false", scope=owned))
    assert words(found) == [("narrowed", "closed", "lake.sales.orders", 1)]
    first = Scope(properties=("a=1",))
    found = await replay(busy, Proposed(id="closed", expression="false", scope=first))
    assert words(found) == [("narrowed", "closed", "lake.sales.orders", 2)], "the commit that sets it, and the next"
    found = await replay(busy, Proposed(id="owner", expression=OWNER, scope=Scope(properties=("no-such",))))
    assert words(found) == [("widened", "owner", "lake.sales.orders", 1)], "it applies to nothing any more"


async def test_a_scope_by_uuids_applies_to_that_table_and_to_nothing_else(busy: Gateway) -> None:
    uuid = (await busy.http.get(ORDERS)).json()["metadata"]["table-uuid"]
    found = await replay(busy, Proposed(id="closed", expression="false", scope=Scope(uuids=(uuid,))))
    assert [each[:3] for each in words(found)] == [("narrowed", "closed", "lake.sales.orders")], "no namespace"
    other = Scope(uuids=("00000000-0000-4000-8000-000000000001",))
    found = await replay(busy, Proposed(id="closed", expression="false", scope=other))
    assert words(found) == []
    found = await replay(busy, Proposed(id="owner", expression=OWNER, scope=other))
    assert words(found) == [("widened", "owner", "lake.sales.orders", 1)], "it applies to nothing any more"


async def test_where_properties_are_not_known_only_a_policy_that_allows_is_known(busy: Gateway) -> None:
    for file in path_of(await location_of_orders(busy)).parent.iterdir():
        file.unlink()
    owned = Scope(properties=("owner=ada",))
    found = await replay(busy, Proposed(id="closed", expression="false", scope=owned))
    assert found.counts == {Change.UNKNOWN: 3, Change.SAME: 3}, "a namespace has none, and others refused two"
    assert SCOPE_UNKNOWN in found.unknown
    found = await replay(busy, Proposed(id="open", expression="true", scope=owned))
    assert found.counts == {Change.SAME: 6}


@pytest.mark.parametrize(("side", "narrowed"), [("table", 2), ("result", 3)])
async def test_what_is_made_on_demand_is_there_for_the_side_that_a_policy_reads(
    busy: Gateway, side: str, narrowed: int
) -> None:
    expression = f"!{side}.fields.exists(field, field.path == 'id')"
    found = await replay(busy, Proposed(id="path", expression=expression))
    assert found.counts == {Change.NARROWED: narrowed, Change.SAME: 6 - narrowed}
    found = await replay(busy, Proposed(id="path", expression=expression.replace("'id'", "'no-such'")))
    assert found.counts == {Change.SAME: 6}


async def test_an_expression_that_takes_too_long_fails_on_its_inputs_and_on_no_others(
    busy: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluating, "FRAME_S", 1.0)
    every = "{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, a + b + c + d >= 0))))"
    slow = f"commit.kind == 'namespace' || {every.format(numbers=list(range(100)))}"
    slow_one, other = Proposed(id="slow", expression=slow), Proposed(id="other", expression="true")
    found = await replay(busy, slow_one, other, limit_s=1.0)
    assert found.counts[Change.FAILED] == 3
    assert found.counts[Change.SAME] == 3


async def test_what_was_erased_is_unknown_and_never_a_yes(busy: Gateway) -> None:
    await erase_ada(busy)
    found = await replay(busy, Proposed(id="owner", expression="true"))
    assert found.counts[Change.WIDENED] == 0
    assert found.counts[Change.UNKNOWN] == 2, "the two refusals: what else refused them is not known"
    found = await replay(busy, Proposed(id="roles", expression="'data-eng' in principal.roles"))
    assert found.counts == {Change.UNKNOWN: 6}
    assert found.unknown[ERASED.why] == 4


async def test_what_does_not_depend_on_the_erased_is_known(busy: Gateway) -> None:
    await erase_ada(busy)
    expression = "commit.operation == 'table.create' && 'data-eng' in principal.roles"
    found = await replay(busy, Proposed(id="roles", expression=expression))
    assert found.counts[Change.NARROWED] == 3, "no commit creates a table, whoever the caller was"


async def test_a_corrupt_part_stops_the_replay_with_the_error_of_the_log(busy: Gateway) -> None:
    dsn = busy.services.installation.admin_dsn
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE ledger.parts SET sealed = sealed || 'x' WHERE log_id = %s AND name = 'principal'",
            (busy.acme.log_id,),
        )
    with pytest.raises(BrokenError) as caught:
        await replay(busy, Proposed(id="roles", expression="'data-eng' in principal.roles"))
    assert caught.value.fault is Fault.PART


async def test_a_corrupt_entry_stops_the_replay_with_the_error_of_the_log(busy: Gateway) -> None:
    dsn = busy.services.installation.admin_dsn
    with psycopg.connect(dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE ledger.entries SET entry = replace(encode(entry, 'escape'), 'table.commit', 'table.create')::bytea "
            "WHERE log_id = %s AND type = 'commit.decided'",
            (busy.acme.log_id,),
        )
    with pytest.raises(BrokenError) as caught:
        await replay(busy, Proposed(id="all", expression="true"))
    assert caught.value.fault is Fault.ENTRY


@pytest.mark.parametrize("entries", [1, 2, 3, 1_000])
async def test_pages_of_any_size_give_the_same_digests(
    busy: Gateway, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    proposal = (Proposed(id="owner", expression="true"), Proposed(id="tenant", expression=TENANT))
    whole = await replay(busy, *proposal)
    monkeypatch.setattr(application, "PAGE_ENTRIES", entries)
    monkeypatch.setattr(pages, "FEW_ENTRIES", 2)
    monkeypatch.setattr(reading, "SEARCH_ENTRIES", entries)
    again = await replay(busy, *proposal)
    assert (again.proposal, again.inputs, again.verdicts) == (whole.proposal, whole.inputs, whole.verdicts)
    assert again.counts == whole.counts


async def test_what_is_not_remembered_gives_the_same_digests(busy: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    proposal = (
        Proposed(id="owner", expression="commit.updates.all(u, u.action != 'x')"),
        Proposed(id="b", expression="false"),
    )
    until = (await read_stored(busy.services, busy.acme.log_id))[-1].entry.index + 1
    whole = await replay(busy, *proposal, until=until)
    for module, name, bound in (
        (variables, "KEPT_BYTES_MAX", 0),
        (variables, "KEPT_MAX", 0),
        (replaying, "ROWS_MAX", 0),
    ):
        monkeypatch.setattr(module, name, bound)
        again = await replay(busy, *proposal, until=until)
        assert (again.inputs, again.verdicts, again.counts) == (whole.inputs, whole.verdicts, whole.counts)


async def test_a_replay_that_begins_in_the_middle_finds_what_commits_were_judged_on(busy: Gateway) -> None:
    stored = await read_stored(busy.services, busy.acme.log_id)
    refused = next(one for one in stored if one.words == "rejected")
    found = await replay(busy, Proposed(id="owner", expression=OWNER), since=refused.entry.recorded_at)
    assert found.first == refused.entry.index
    assert found.counts == {Change.SAME: 3}, "what is refused is known only with the table before it"


async def test_a_table_that_changes_often_is_known_as_it_was_before_a_replay_that_begins_in_the_middle(
    busy: Gateway,
) -> None:
    begin = (await read_stored(busy.services, busy.acme.log_id))[-1].entry.index
    for number in range(OUTCOMES_KEPT + 1):
        await send(busy, ORDERS, properties(owner="ada", n=str(number)), 200)
    decided = next(one for one in await read_stored(busy.services, busy.acme.log_id) if one.entry.index > begin)
    for read_model in (False, True):
        if read_model:
            await project(busy)
        found = await replay(
            busy, Proposed(id="other", expression="size(table.columns) > 0"), since=decided.entry.recorded_at
        )
        assert found.counts == {Change.SAME: OUTCOMES_KEPT + 1}


async def test_the_same_replay_is_attested_once_and_gives_the_same_digests(busy: Gateway) -> None:
    proposal = (Proposed(id="owner", expression="true"),)
    parts, log_id = busy.services.gateway, busy.acme.log_id
    end = (await read_stored(busy.services, log_id))[-1].entry.index + 1
    indices = []
    for _ in range(2):
        found = await replay(busy, *proposal, until=end)
        data, index = await attest(parts, log_id, proposal, found, actor="system")
        indices.append(index)
    assert indices[0] == indices[1], "nothing is appended twice"
    last = (await read_stored(busy.services, log_id))[-1]
    assert last.entry.index == indices[0]
    assert from_data(ProposalReplayed, last.entry.data) == data
    assert (data.widened, data.decisions, data.first, data.end) == (1, 6, 0, end)
    assert last.parts["proposal"] == b'[{"expression":"true","id":"owner","scope":{}}]'
    other = await replay(busy, Proposed(id="owner", expression="false"), until=end)
    assert other.inputs != found.inputs or other.verdicts != found.verdicts
    assert other.proposal != found.proposal


async def test_an_attested_replay_puts_nothing_in_force(busy: Gateway) -> None:
    parts, log_id = busy.services.gateway, busy.acme.log_id
    before = await parts.control.current(log_id)
    proposal = (Proposed(id="never", expression="false"),)
    await attest(parts, log_id, proposal, await replay(busy, *proposal), actor="system")
    assert not is_control(ProposalReplayed.TYPE)
    assert await parts.control.current(log_id) == before
    await send(busy, ORDERS, properties(owner="ada", b="1"), 200)


async def test_a_time_after_the_last_decision_is_an_error_that_says_so(busy: Gateway) -> None:
    with pytest.raises(NothingToReplayError, match="name an earlier time"):
        await replay(busy, Proposed(id="all", expression="true"), since=busy.services.gateway.clock())


@pytest.mark.parametrize("entries", [1, 2, 500])
async def test_as_a_job_a_replay_finds_the_same_page_by_page(
    busy: Gateway, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "SMALL_PAGE_ENTRIES", entries)
    proposal = [Proposed(id="no-owner", expression=WITHOUT_OWNER), Proposed(id="tenant", expression="true")]
    last = (await read_stored(busy.services, busy.acme.log_id))[-1].entry.index
    seen: list[tuple[int, int]] = []
    found = await application.replay_slowly(
        busy.services.gateway,
        busy.acme.tenant,
        busy.acme.log_id,
        proposal,
        since=LONG_AGO,
        progress=lambda done, of: seen.append((done, of)),
        spawn=fork_worker,
    )
    assert replace(found, evaluated=0) == replace(await replay(busy, *proposal), evaluated=0)
    assert seen[-1] == (last + 1, last + 1)
    assert found.counts[Change.WIDENED] == 1


# Coverage by history


async def test_a_replay_counts_the_decisions_that_reached_each_branch(busy: Gateway) -> None:
    expression = "commit.operation != 'table.commit' ||\n  'owner' in result.properties"
    found = await replay(busy, Proposed(id="owner", expression=expression), covers=True)
    (coverage,) = found.coverage
    assert [(one.branch.text, one.true, one.false) for one in coverage.branches] == [
        ("((commit.operation != 'table.commit') || ('owner' in result.properties))", 4, 2),
        ("(commit.operation != 'table.commit')", 3, 3),
        ("('owner' in result.properties)", 1, 2),
    ]
    assert coverage.shown()["missing"] == []
    plain = await replay(busy, Proposed(id="owner", expression=expression))
    assert (plain.coverage, plain.verdicts, plain.inputs) == ((), found.verdicts, found.inputs)


async def test_a_branch_that_no_decision_reached_is_listed_with_its_place(busy: Gateway) -> None:
    found = await replay(busy, Proposed(id="owner", expression="true ||\n  commit.purge"), covers=True)
    (coverage,) = found.coverage
    shown = coverage.shown()
    places = [(one["line"], one["column"], one["part"], one["never"]) for one in shown["missing"]]
    assert places == [
        (1, 1, "the expression", "false"),
        (1, 1, "operand of ||", "false"),
        (2, 3, "operand of ||", "true"),
        (2, 3, "operand of ||", "false"),
    ]
    assert (shown["taken"], shown["directions"]) == (2, 6)


async def test_what_a_policy_does_not_govern_reaches_none_of_its_branches(busy: Gateway) -> None:
    elsewhere = Proposed(id="owner", expression="commit.purge", scope=Scope(names=("nowhere.**",)))
    (coverage,) = (await replay(busy, elsewhere, covers=True)).coverage
    assert [(one.true, one.false) for one in coverage.branches] == [(0, 0)]


async def test_bits_beyond_those_of_a_number_are_counted(busy: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverages, "TAKEN_MAX", 1)
    expression = " || ".join(f"commit.name == '{number}'" for number in range(40)) + " || commit.name != ''"
    (coverage,) = (await replay(busy, Proposed(id="long", expression=expression), covers=True)).coverage
    counts = {(one.true, one.false) for one in coverage.branches[1:-1]}
    assert len(coverage.branches) == 42
    assert len(counts) == 1
    assert next(iter(counts))[1] > 1
