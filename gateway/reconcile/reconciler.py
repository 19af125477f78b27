# SPDX-License-Identifier: Apache-2.0
"""
The reconciler: settles open decisions past their deadline, from the state of the foreign catalogs.

`outcome_proof.prove` decides what that state proves, and the catalog's own log of commits if it has one. An outcome is
appended with an id derived from it, and with a guard that holds only while the decision is open: two processes that do
the same, or a late answer, do no harm. What cannot be proven is recorded once as unknown and checked again: after
pauses that grow from the newest decision on, and at once when the log has news of the same table. While a catalog does
not answer, the pauses do not grow (`silence.py`).

All open decisions of one key are checked together, by one process at a time: the catalog is read once, and a state that
one decision explains does not count for another. A process that dies during a check holds its key for a bounded time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from gateway.catalogs.catalog import ChangedBy, History, Loaded, LoggedCommit
from gateway.commit.events import settled_event
from gateway.commit.gateway import Gateway
from gateway.commit.open_decisions import OpenDecision, close_guard, doubt_guard, open_still_guard, read_open
from gateway.errors import GatewayError, UnavailableError
from gateway.log_errors import append_errors
from gateway.metadata import uuid_of
from gateway.mutations import CREATES, RENAMES_FROM, Operation
from gateway.reconcile.evidence import (
    MARGIN_ENTRIES,
    claim_of,
    read_before,
    read_claims,
    read_decided,
    read_requested,
)
from gateway.reconcile.outcome_proof import Before, Claim, Known, prove, was_never_sent
from gateway.reconcile.schedule import HeldKey, Schedule
from gateway.reconcile.silence import NamedCatalog, SilentCatalogs
from ledger.format.entry import Branch
from ledger.format.event import SYSTEM_ACTOR, derived_group_id
from ledger.format.events import CommitOutcome, CommitSettled, OutcomeEvidence, to_data
from ledger.format.sequence import Appended, Group
from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.read import Log, read_head
from ledger.store.session import back_off_s

POLL_S: Final = 1.0
PAUSE_S: Final = 0.25
"""The least time between checks that find nothing due, so that logs that grow all the time cost a few checks only."""
PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 60, 300, 900, 3600))
"""Pauses between checks of a key whose decisions cannot be settled; the last one repeats."""
HOLD_TIMEOUTS: Final = 5
"""
How long a key is held, in time-outs of a catalog: a check sends it at most three requests, and reads its log in one.
"""
KEYS_AT_ONCE_MAX: Final = 8
"""Keys that one process checks at a time."""
KEYS_MAX: Final = 1_000
"""Keys that `settle_now` checks at most."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """The result of a check for one decision."""

    log_id: int
    key: str
    decision: UUID
    outcome: CommitOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """
    A target in its catalog, and its history there (None: it has no log of commits).

    It is `silent` if it did not answer. `loaded` is None then, and if the catalog is no longer registered.
    """

    loaded: Loaded | None = None
    history: History | None = None
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeyState:
    """The state of a key in its catalog and its history there, and what the log says about it; as in `_Found`."""

    found: Loaded | None
    history: History | None
    decisions: Sequence[OpenDecision]
    indices: dict[UUID, int]
    claims: Sequence[Claim]
    explained: str | None


class Reconciler:
    """Settles the open decisions of all tenants. `pauses` are those between checks that settle nothing."""

    def __init__(self, gateway: Gateway, *, pauses: Sequence[timedelta] = PAUSES, poll_s: float = POLL_S) -> None:
        self._gateway = gateway
        self._poll_s = poll_s
        self._silent = SilentCatalogs()
        self._schedule = Schedule(
            gateway.database,
            gateway.roles,
            clock=gateway.clock,
            hold_for=timedelta(seconds=HOLD_TIMEOUTS * gateway.catalogs.upstreams.timeout_s),
            pauses=pauses,
        )

    async def run(self, stop: asyncio.Event, wake: WakeUp | None = None) -> None:
        """
        Settle what is due until `stop` is set; checks in progress are abandoned, and are due for others at once.

        Raises:
            LedgerError: if what is stored is corrupt.
        """
        failures = 0
        while not stop.is_set():
            try:
                if wake is not None:
                    wake.clear()  # before the check: what is appended from here on rings again
                checked = await _unless(stop, self.settle_due())
                failures = 0
                if not checked:
                    await wait_for_any(stop, None, timeout_s=min(PAUSE_S, self._poll_s))
                    await wait_for_any(stop, wake, timeout_s=self._poll_s)
            except UnavailableError as error:
                _log.info("open decisions wait: %s", error)
                await wait_for_any(stop, None, timeout_s=back_off_s(failures))
                failures += 1

    async def settle_due(self) -> list[Reconciled]:
        """
        Check some of the keys that are due, the longest overdue first; return the outcome of each decision.

        Raises:
            UnavailableError: if the database or the log cannot be reached.
            LedgerError: if what is stored is corrupt.
        """
        await self._schedule.read_news()
        return await self._check_keys(await self._schedule.hold(limit=KEYS_AT_ONCE_MAX))

    async def settle_now(self) -> list[Reconciled]:
        """
        Check every open decision past its deadline once, whether or not it is due; return the outcome of each.

        Raises:
            UnavailableError: if the database or the log cannot be reached.
            LedgerError: if what is stored is corrupt.
        """
        held = await self._schedule.hold_all(limit=KEYS_MAX)
        results: list[Reconciled] = []
        for first in range(0, len(held), KEYS_AT_ONCE_MAX):
            results += await self._check_keys(held[first : first + KEYS_AT_ONCE_MAX])
        return results

    async def _check_keys(self, held: Sequence[HeldKey]) -> list[Reconciled]:
        """Check keys concurrently: a slow catalog delays others by one check at most."""
        results: list[Reconciled] = []
        failed: list[BaseException] = []
        try:
            checks = await asyncio.gather(*(self._check_key(each) for each in held), return_exceptions=True)
        except asyncio.CancelledError:
            for each in held:
                await self._schedule.release(each)
            raise
        for each, check in zip(held, checks, strict=True):
            if isinstance(check, BaseException):
                failed.append(check)
                await self._schedule.release(each)
            else:
                results += check
        if failed:
            raise failed[0]
        return results

    async def _check_key(self, held: HeldKey) -> list[Reconciled]:
        """Load a key's target from its catalog once, settle what can be proven, and schedule the next check."""
        now = self._gateway.clock()
        async with self._schedule.logs.reading(held.log) as connection:
            size = (await read_head(connection, held.log.log_id)).size
            decisions = await read_open(connection, held.log.log_id, held.key)
        overdue = [decision for decision in decisions if decision.deadline < now]
        if not overdue:
            await self._schedule.end(held)
            return []
        if any(_is_new(decision, held) for decision in overdue):
            # The pauses begin again: what is old and cannot be proven must not delay what can.
            held = replace(held, checks=0)
        found = await self._find(held.log, overdue)
        catalog = NamedCatalog(held.log.log_id, overdue[0].target.alias)
        pause = self._silent.wait(catalog, held.key) if found.silent else None
        if not found.silent and (waited := self._silent.answered(catalog)):
            await self._schedule.check_again(held.log.log_id, waited)
        # Read the log after the catalog: a change that we loaded is either still in flight or recorded by now.
        state = await self._read_log(held, found)
        results = await self._settle(held, state, now=now)
        if all(each.outcome is not CommitOutcome.UNKNOWN for each in results):
            await self._schedule.end(held)
        else:
            # Entries since the catalog was read are read again next time: they may explain the state found then.
            read_to = held.read_to if found.loaded is None else size
            await self._schedule.postpone(held, checked_at=now, read_to=read_to, explained=state.explained, pause=pause)
        return results

    async def _find(self, log: Log, overdue: Sequence[OpenDecision]) -> _Found:
        """Return the target of decisions on one key in its catalog, and its history there."""
        if log.tenant is None:
            return _Found()
        first = overdue[0]
        try:
            control = await self._gateway.control.current(log.log_id)
            catalog = self._gateway.catalog(log.tenant, control, first.target.alias)
            found = await catalog.load(first.target)
        except GatewayError as error:
            _log.info("the outcome of %s on %s stays unknown: %s", first.decision, first.key, error)
            return _Found(silent=isinstance(error, UnavailableError))
        if catalog.changed_by is not ChangedBy.REQUEST:
            return _Found(loaded=found)

        def is_enough(history: History) -> bool:
            return all(
                history.of(each.decision) is not None or history.since(each.base, by=each.deadline) is not None
                for each in overdue
            )

        try:
            # After the state: what made that is in the history.
            return _Found(loaded=found, history=await catalog.history(first.target, is_enough))
        except GatewayError as error:
            _log.info("the commits on %s are not known: %s", first.key, error)
            return _Found(loaded=found, silent=isinstance(error, UnavailableError))

    async def _read_log(self, held: HeldKey, found: _Found) -> _KeyState:
        log_id = held.log.log_id
        async with self._schedule.logs.reading(held.log) as connection:
            decisions = await read_open(connection, log_id, held.key)
            indices = await read_decided(connection, log_id, decisions)
            new = [each for each in decisions if _is_new(each, held)]
            from_index = min([indices[each.decision] - MARGIN_ENTRIES for each in new] or [held.read_to])
            claims = await read_claims(connection, log_id, held.key, from_index=from_index)
        location = None if found.loaded is None else found.loaded.metadata_location
        is_explained = location is not None and any(claim.metadata_location == location for claim in claims)
        return _KeyState(
            found=found.loaded,
            history=found.history,
            decisions=decisions,
            indices=indices,
            claims=claims,
            explained=location if is_explained else held.explained,
        )

    async def _settle(self, held: HeldKey, state: _KeyState, *, now: datetime) -> list[Reconciled]:
        """Decide on each decision; the result of one does not count for the next."""
        results: list[Reconciled] = []
        claims = list(state.claims)
        for decision in state.decisions:
            if decision.deadline >= now:
                continue
            outcome, index = CommitOutcome.UNKNOWN, state.indices[decision.decision]
            before = await self._before(held.log, decision, index)
            if was_never_sent(before):
                outcome = CommitOutcome.FAILED
            elif state.found is not None:
                known = Known(
                    index=index,
                    requested=await self._requested(held.log, decision, index),
                    claims=tuple(claims),
                    explained=state.explained,
                    in_flight=tuple(each for each in state.decisions if each.deadline >= now),
                    history=state.history,
                )
                outcome = prove(decision, state.found, known)
            settled = _settled(decision, outcome, state.found, state.history)
            appended = await self._append(decision, settled, before)
            if appended is None and outcome is not CommitOutcome.UNKNOWN:
                break  # its own process has settled it after all: the next check reads how, and what that explains
            if outcome is CommitOutcome.ACCEPTED and appended is not None:
                claims.append(claim_of(appended, settled, decision.operation))
            results.append(
                Reconciled(log_id=held.log.log_id, key=held.key, decision=decision.decision, outcome=outcome)
            )
        return results

    async def _requested(self, log: Log, decision: OpenDecision, index: int) -> Mapping[str, Any] | None:
        if decision.operation not in CREATES:  # only what these made is recognised by the request's body
            return None
        async with self._schedule.logs.reading(log) as connection:
            return await read_requested(connection, log.log_id, index, opener=self._gateway.opener)

    async def _before(self, log: Log, decision: OpenDecision, index: int) -> Before | None:
        if decision.operation != Operation.TABLE_COMMIT:
            return None
        async with self._schedule.logs.reading(log) as connection:
            return await read_before(connection, decision, index, opener=self._gateway.opener)

    async def _append(self, decision: OpenDecision, settled: CommitSettled, before: Before | None) -> int | None:
        """
        Append an outcome; return its index, or None if it was known already, or the decision is settled by now, or the
        one `before` it, so that it may be sent.
        """
        is_unknown = settled.outcome is CommitOutcome.UNKNOWN
        if is_unknown and decision.is_unknown:
            return None
        guards = [(doubt_guard if is_unknown else close_guard)(decision.decision, decision.key)]
        if before is not None and before.is_open:
            guards.append(open_still_guard(decision.decision, before.key))
        group = Group(
            id=derived_group_id("commit.reconciled", {"key": decision.key, "settled": to_data(settled)}),
            then=(settled_event(settled, key=decision.key, actor=SYSTEM_ACTOR, at=self._gateway.clock()),),
            guard=tuple(guards),
        )
        with append_errors(not_appended="an outcome could not be recorded: the decision is checked again"):
            appended = await self._gateway.append(decision.log_id, group)
        if isinstance(appended, Appended) and appended.branch is Branch.THEN:
            return appended.indices.start
        return None


def _is_new(decision: OpenDecision, held: HeldKey) -> bool:
    """Return whether no check of its key has taken a decision into account."""
    return held.checked_at is None or decision.deadline >= held.checked_at


def _settled(
    decision: OpenDecision, outcome: CommitOutcome, found: Loaded | None, history: History | None
) -> CommitSettled:
    """
    Return an outcome as the log records it. The metadata file of an accepted change is the one in which it was found.

    Others may have changed the table by then, too, but that file contains the change. Where the catalog's own log names
    the decision, it is the very file that the change made.
    """
    table_uuid, location = decision.table_uuid, None
    if outcome is CommitOutcome.ACCEPTED and found is not None:
        made = None if history is None else history.of(decision.decision)
        location = found.metadata_location if made is None else made.metadata_location
        is_its_state = history is None or made is None or _is_still_there(made, history, found)
        if table_uuid is None and found.metadata is not None and is_its_state:
            table_uuid = uuid_of(found.metadata)
    return CommitSettled(
        decision=str(decision.decision),
        evidence=OutcomeEvidence.RECONCILED,
        metadata_location=None if decision.operation in RENAMES_FROM else location,
        metadata_sha256=None,
        outcome=outcome,
        snapshots=decision.snapshots,
        table_uuid=table_uuid,
    )


def _is_still_there(made: LoggedCommit, history: History, found: Loaded) -> bool:
    """Return whether what was found is the table that a commit has made, or one that is made of it."""
    since = history.commits[: history.commits.index(made) + 1]
    files = {commit.metadata_location for commit in since}
    return all(commit.is_there for commit in since) and found.metadata_location in files


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns; None if `stop` is set before, and `work` was cancelled."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            task.cancel()  # has no effect on one that is done
        await asyncio.wait({working, stopping})
    return None if working.cancelled() else working.result()
