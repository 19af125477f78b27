# SPDX-License-Identifier: Apache-2.0
"""
Open decisions are settled from the state of the foreign catalog: once, and only with proof.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.identifiers import Target
from gateway.reconcile.metrics import read_open_decision_metrics
from gateway.reconcile.reconciler import PAUSE_S, Reconciler
from gateway.reconcile.silence import PAUSE_S_LEAST
from lakeproof.services import Services
from ledger.errors import LogUnavailableError
from ledger.format.event import SYSTEM_ACTOR, Event, prepare, random_group_id
from ledger.format.events import CommitObserved, CommitOutcome, CommitSettled, to_data
from ledger.format.sequence import Appended, Group, Stale
from projections.exposition import format_metrics
from testkit.gateway.foreign_tenant import ALIAS, PAST_DEADLINES, TABLES, ForeignTenant, open_far
from testkit.gateway.log_contents import check_log, read_stored
from testkit.gateway.sales import CREATE, properties
from testkit.servers.faulty_wire import Fault, Loss
from testkit.servers.upstream import Upstream, serve_upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def far(module_services: Services) -> AsyncIterator[ForeignTenant]:
    """A tenant with a foreign catalog, a simulator."""
    async with serve_upstream(Upstream()) as url, open_far(module_services, url) as far:
        yield far


def lose(far: ForeignTenant, loss: Loss, path: str | None = None) -> Fault:
    """Let the next mutation of `path` (None: of the table) be lost."""
    far.wire.fault = Fault(happens=loss, path=path or far.path)
    return far.wire.fault


async def test_a_commit_whose_answer_was_lost_is_found(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    answer = await far.gateway.http.post(far.orders, json=await far.next_append())
    assert answer.status_code == 504
    assert await far.words() == ["approved", "unknown"]
    (reconciled,) = await far.reconcile()
    assert reconciled.outcome is CommitOutcome.ACCEPTED
    accepted = (await read_stored(far.services, far.log_id, key=far.key))[-1].settled
    table = await far.table()
    assert accepted.evidence == "reconciled"
    assert accepted.metadata_location == table["metadata-location"]
    assert accepted.table_uuid == table["metadata"]["table-uuid"]
    assert set(accepted.snapshots) == await far.snapshots()
    assert await far.reconcile() == []
    await far.check()
    await check_log(far.services, far.log_id)


async def test_nothing_is_touched_before_its_deadline(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    assert await far.reconcile(far.services.gateway.clock) == []
    assert await far.words() == ["approved", "unknown"]
    assert len(await far.open_decisions()) == 1


async def test_an_open_decision_is_listed_with_what_is_known_until_it_is_settled(far: ForeignTenant) -> None:
    async def listed() -> list[tuple[str, str, str]]:
        answer = (await far.gateway.http.get("/v1/open-decisions")).raise_for_status().json()
        return [(each["key"], each["operation"], each["state"]) for each in answer["open-decisions"]]

    assert await listed() == []
    fault = lose(far, Loss.LATE)
    asking = asyncio.create_task(far.gateway.http.post(far.orders, json=await far.next_append()))
    await fault.hit.wait()
    assert await listed() == [(far.key, "table.commit", "at work")]
    fault.deliver.set()
    assert (await asking).status_code == 504
    assert await listed() == [(far.key, "table.commit", "unknown")]
    await fault.delivered.wait()
    await far.reconcile()
    assert await listed() == []


async def test_what_is_not_found_stays_unknown_and_is_found_later(far: ForeignTenant) -> None:
    fault = lose(far, Loss.LATE)
    asking = asyncio.create_task(far.gateway.http.post(far.orders, json=await far.next_append()))
    await fault.hit.wait()
    for _ in range(2):
        (reconciled,) = await far.reconcile()
        assert reconciled.outcome is CommitOutcome.UNKNOWN
    assert await far.words() == ["approved", "unknown"], "said once"
    fault.deliver.set()
    await fault.delivered.wait()
    assert (await asking).status_code == 504
    (reconciled,) = await far.reconcile()
    assert reconciled.outcome is CommitOutcome.ACCEPTED
    await far.check()


async def test_a_branch_that_moved_without_it_settles_a_lost_commit_as_failed(far: ForeignTenant) -> None:
    lose(far, Loss.REQUEST)
    assert (await far.gateway.http.post(far.orders, json=await far.next_append())).status_code == 504
    await far.commit_behind(await far.next_append())
    (reconciled,) = await far.reconcile()
    assert reconciled.outcome is CommitOutcome.FAILED
    assert await far.words() == ["approved", "unknown", "failed"]
    await far.check()


async def test_a_replaced_table_settles_a_lost_commit_as_failed(far: ForeignTenant) -> None:
    lose(far, Loss.REQUEST)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    await far.make_table()
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.FAILED]


async def test_a_change_of_properties_is_found_and_a_lost_one_that_was_made_again_is_not_counted_twice(
    far: ForeignTenant,
) -> None:
    lose(far, Loss.REQUEST)
    assert (await far.gateway.http.post(far.orders, json=properties(color="red"))).status_code == 504
    assert (await far.gateway.http.post(far.orders, json=properties(color="red"))).status_code == 200
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.UNKNOWN]
    lose(far, Loss.ANSWER)
    assert (await far.gateway.http.post(far.orders, json=properties(size="big"))).status_code == 504
    assert sorted(each.outcome for each in await far.reconcile()) == [CommitOutcome.ACCEPTED, CommitOutcome.UNKNOWN]


async def test_a_lost_create_that_was_made_again_failed(far: ForeignTenant) -> None:
    lose(far, Loss.REQUEST, "/tables")
    created = {**CREATE, "name": "lines"}
    assert (await far.gateway.http.post(TABLES, json=created)).status_code == 504
    assert (await far.gateway.http.post(TABLES, json=created)).status_code == 200
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.FAILED]


async def test_reconcilers_that_check_at_once_settle_once(far: ForeignTenant) -> None:
    for _ in range(3):
        lose(far, Loss.ANSWER)
        await far.gateway.http.post(far.orders, json=await far.next_append())
    looks = await asyncio.gather(*(far.reconcile() for _ in range(4)))
    assert [each.outcome for look in looks for each in look] == [CommitOutcome.ACCEPTED] * 3
    assert (await far.words()).count("accepted") == 3
    await far.check()


async def test_a_key_that_a_dead_process_held_is_looked_at_when_its_time_is_over(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    dead = far.reconciler()
    assert await dead._schedule.hold(limit=1_000)
    assert await far.reconcile() == [], "it is held"
    later = far.services.gateway.clock() + timedelta(days=1)
    assert [each.outcome for each in await far.reconcile(lambda: later)] == [CommitOutcome.ACCEPTED]


async def test_an_upstream_that_does_not_answer_leaves_the_outcome_unknown(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    far.wire.fault = Fault(happens=Loss.REQUEST, path=far.path, methods=frozenset({"GET"}))
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.UNKNOWN]
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.ACCEPTED]


async def test_the_pauses_do_not_grow_while_the_upstream_does_not_answer(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    now = far.late()
    reconciler = far.reconciler(lambda: now, pauses=[timedelta(days=1)])
    for _ in range(3):
        far.wire.fault = Fault(happens=Loss.REQUEST, path=far.path, methods=frozenset({"GET"}))
        assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.UNKNOWN]
        assert far.own(await reconciler.settle_due()) == [], "it waits"
        now += timedelta(seconds=PAUSE_S_LEAST)
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.ACCEPTED]


async def test_what_waits_for_an_upstream_is_checked_when_that_answers_about_another_table(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    now = far.late()
    reconciler = far.reconciler(lambda: now, pauses=[timedelta(days=1)])
    far.wire.fault = Fault(happens=Loss.REQUEST, path=far.path, methods=frozenset({"GET"}))
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.UNKNOWN]
    other = await far.with_new_table()
    lose(other, Loss.ANSWER)
    await other.gateway.http.post(other.orders, json=await other.next_append())
    assert [each.outcome for each in other.own(await reconciler.settle_due())] == [CommitOutcome.ACCEPTED]
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.ACCEPTED], "at once"


async def test_a_catalog_that_was_retired_leaves_the_outcome_unknown(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    await far.services.gateway.admin.retire_catalog(far.log_id, OPERATOR, alias=ALIAS)
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.UNKNOWN]


async def test_a_check_in_vain_is_repeated_after_a_pause_and_at_once_when_the_table_is_observed(
    far: ForeignTenant,
) -> None:
    lose(far, Loss.REQUEST)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    reconciler = far.reconciler(pauses=[timedelta(days=1)])
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.UNKNOWN]
    await far.commit_behind(await far.next_append())
    assert far.own(await reconciler.settle_due()) == [], "it waits"
    await observe(far)
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.FAILED]


async def test_another_decision_on_a_key_does_not_wait_for_the_first(far: ForeignTenant) -> None:
    lose(far, Loss.REQUEST)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    pauses, looked_at = [timedelta(days=1)], far.late()
    reconciler = far.reconciler(lambda: looked_at, pauses=pauses)
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.UNKNOWN]
    later = far.gateway.through(clock=lambda: looked_at)
    lose(far, Loss.ANSWER)
    assert (await later.post(far.orders, json=await far.next_append())).status_code == 504
    reconciler = far.reconciler(lambda: looked_at + PAST_DEADLINES, pauses=pauses)
    outcomes = [each.outcome for each in far.own(await reconciler.settle_due())]
    assert outcomes == [CommitOutcome.FAILED, CommitOutcome.ACCEPTED]


async def test_the_pauses_begin_again_with_each_decision(far: ForeignTenant) -> None:
    lose(far, Loss.REQUEST)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    pauses, looked_at = [timedelta(hours=1), timedelta(days=1)], far.late()
    reconciler = far.reconciler(lambda: looked_at, pauses=pauses)
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.UNKNOWN]
    later = far.gateway.through(clock=lambda: looked_at)
    lose(far, Loss.ANSWER)
    assert (await later.post(far.orders, json=await far.next_append())).status_code == 504
    looked_again_at = looked_at + PAST_DEADLINES
    far.wire.fault = Fault(happens=Loss.REQUEST, path=far.path, methods=frozenset({"GET"}))
    reconciler = far.reconciler(lambda: looked_again_at, pauses=pauses)
    outcomes = [each.outcome for each in far.own(await reconciler.settle_due())]
    assert outcomes == [CommitOutcome.UNKNOWN, CommitOutcome.UNKNOWN], "the upstream does not answer"
    reconciler = far.reconciler(lambda: looked_again_at + pauses[0], pauses=pauses)
    outcomes = [each.outcome for each in far.own(await reconciler.settle_due())]
    assert outcomes == [CommitOutcome.FAILED, CommitOutcome.ACCEPTED]


async def test_a_decision_whose_deadline_passes_during_a_check_does_not_wait_for_the_next_one(
    far: ForeignTenant,
) -> None:
    lose(far, Loss.REQUEST)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    pauses, began_at = [timedelta(days=1)], far.late()
    ended_at = began_at + PAST_DEADLINES
    lose(far, Loss.ANSWER)
    later = far.gateway.through(clock=lambda: began_at)
    assert (await later.post(far.orders, json=await far.next_append())).status_code == 504
    asked = Fault(happens=Loss.REQUEST, path=far.path, methods=frozenset({"GET"}))
    far.wire.fault = asked
    reconciler = far.reconciler(lambda: ended_at if asked.hit.is_set() else began_at, pauses=pauses)
    assert [each.outcome for each in far.own(await reconciler.settle_due())] == [CommitOutcome.UNKNOWN]
    outcomes = [each.outcome for each in far.own(await reconciler.settle_due())]
    assert outcomes == [CommitOutcome.FAILED, CommitOutcome.ACCEPTED]


async def test_it_goes_on_when_the_log_was_away(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    asked, settled, stop = 0, asyncio.Event(), asyncio.Event()

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        nonlocal asked
        asked += log_id == far.log_id
        if asked == 1:
            raise LogUnavailableError("for a moment")
        appended = await far.services.gateway.append(log_id, group, **after)
        if log_id == far.log_id:
            settled.set()
        return appended

    running = asyncio.create_task(Reconciler(far.exchanged(clock=far.late, append=append)).run(stop))
    await settled.wait()
    stop.set()
    await running
    assert await far.words() == ["approved", "unknown", "accepted"]


async def test_it_checks_on_a_notification_and_stops_on_request(far: ForeignTenant) -> None:
    stop, wake = asyncio.Event(), asyncio.Event()
    settled = asyncio.Event()

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        appended = await far.services.gateway.append(log_id, group, **after)
        if log_id == far.log_id:
            settled.set()
        return appended

    parts = far.exchanged(clock=far.late, append=append)
    running = asyncio.create_task(Reconciler(parts, poll_s=3_600).run(stop, wake))
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    wake.set()
    await settled.wait()
    stop.set()
    await running
    assert await far.words() == ["approved", "unknown", "accepted"]


async def test_notifications_that_never_end_do_not_make_it_check_all_the_time(far: ForeignTenant) -> None:
    now_s, stop, checks_s = asyncio.get_running_loop().time, asyncio.Event(), list[float]()

    class NeverEnding(asyncio.Event):
        def clear(self) -> None:
            checks_s.append(now_s())
            if len(checks_s) == 3:
                stop.set()

    wake = NeverEnding()
    wake.set()
    await Reconciler(far.services.gateway).run(stop, wake)
    assert checks_s[2] - checks_s[0] >= 2 * PAUSE_S


async def test_it_stops_at_once_while_a_catalog_is_slow_and_others_go_on_at_once(far: ForeignTenant) -> None:
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    slow = far.wire.fault = Fault(happens=Loss.LATE, path=far.path, methods=frozenset({"GET"}))
    stop = asyncio.Event()
    running = asyncio.create_task(far.reconciler().run(stop))
    await slow.hit.wait()
    stop.set()
    await running
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.ACCEPTED]


async def test_an_answer_that_arrives_after_all_is_the_outcome_and_is_not_settled_twice(far: ForeignTenant) -> None:
    late: list[tuple[int, Group]] = []

    async def keep_settled(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        if any(event.type == CommitSettled.TYPE for event in group.then):
            late.append((log_id, group))
            raise LogUnavailableError("for a moment")
        return await far.services.gateway.append(log_id, group, **after)

    async def after_the_answer(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        for each in late:
            await far.services.gateway.append(*each)
        return await far.services.gateway.append(log_id, group, **after)

    async with far.gateway.through(append=keep_settled) as client:
        assert (await client.post(far.orders, json=await far.next_append())).status_code == 200
    reconciler = Reconciler(far.exchanged(clock=far.late, append=after_the_answer))
    assert far.own(await reconciler.settle_now()) == []
    assert await far.words() == ["approved", "accepted"]
    assert (await read_stored(far.services, far.log_id, key=far.key))[-1].settled.evidence == "answer"
    assert await far.reconcile() == []
    await far.check()


async def test_open_decisions_are_counted_and_timed(far: ForeignTenant) -> None:
    assert far.gateway.acme.origin not in await _metrics(far)
    lose(far, Loss.ANSWER)
    await far.gateway.http.post(far.orders, json=await far.next_append())
    metrics = await _metrics(far)
    assert f'lakeproof_open_decisions{{log="{far.gateway.acme.origin}"}} 1\n' in metrics
    (age_s,) = [
        int(line.rpartition(" ")[2])
        for line in metrics.splitlines()
        if line.startswith("lakeproof_open_decision_age_seconds") and far.gateway.acme.origin in line
    ]
    assert 7_100 <= age_s < 7_200


async def _metrics(far: ForeignTenant) -> str:
    parts = far.services.gateway
    async with parts.database.as_role(parts.roles.gateway) as connection:
        return format_metrics(await read_open_decision_metrics(connection, now=far.late()))


async def observe(far: ForeignTenant) -> None:
    """Tell the log that a snapshot of the table was seen."""
    observed = CommitObserved(
        identifier=Target(alias=ALIAS, namespace=("sales",), name="orders").identifier(),
        metadata_location="s3://lake/metadata.json",
        operation="append",
        parent=None,
        snapshot="1",
        table_uuid="6a0b7735-dc29-40ee-840c-97c1326fa45a",
        trigger=None,
    )
    event = Event(
        type=observed.TYPE,
        version=observed.VERSION,
        key=far.key,
        actor=SYSTEM_ACTOR,
        occurred_at=far.services.gateway.clock(),
        data=to_data(observed),
    )
    group_id = random_group_id(now_ms=1, random=far.services.gateway.random(10))
    await far.services.gateway.append(far.log_id, Group(id=group_id, then=(prepare(event),)))
