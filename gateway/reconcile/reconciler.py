"""
The reconciler: settles open decisions whose process has had its time, from what is found at the catalogs themselves.

It touches only what is past its deadline. What is found is weighed by `outcome_proof.prove`; an outcome is appended
under an id derived from it, by a guard that holds only while the decision is open, so that two processes that do the
same, or an answer that arrives after all, do no harm. What cannot be proven is recorded once as unknown and looked at
again: after pauses that grow, and at once when the log says something new about the same table.

All open decisions of one key are looked at together, by one process at a time: the catalog is asked once, and what
one decision explains is not counted for another. A process that dies while it looks holds its key for a while only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from gateway.catalogs.catalog import Loaded
from gateway.commit.events import settled_event
from gateway.commit.gateway import Gateway
from gateway.commit.open_decisions import OpenDecision, close_guard, doubt_guard, read_open
from gateway.errors import GatewayError, UnavailableError, append_errors
from gateway.mutations import Operation
from gateway.reconcile.evidence import MARGIN_ENTRIES, claim_of, read_asked, read_claims, read_decided
from gateway.reconcile.outcome_proof import Claim, Known, prove
from gateway.reconcile.schedule import Held, Looks
from ledger.format.entry import Branch
from ledger.format.event import SYSTEM_ACTOR, derived_group_id
from ledger.format.events import CommitOutcome, CommitSettled, OutcomeEvidence, to_data
from ledger.format.sequence import Appended, Group
from ledger.store.notifications import WakeUp, wait_for_any
from ledger.store.read import Log, read_head
from ledger.store.session import back_off_s

POLL_S: Final = 1.0
PAUSES: Final = tuple(timedelta(seconds=seconds) for seconds in (5, 15, 60, 300, 900, 3600))
"""Pauses between looks at a key whose decisions cannot be settled; the last one repeats."""
HOLD_TIMEOUTS: Final = 4
"""How long a key is held, in time-outs of a catalog: a look asks it at most three times."""
LOOKS_MAX: Final = 8
"""Keys that one process looks at at a time."""
KEYS_MAX: Final = 1_000
"""Keys that are looked at if somebody asks for all."""
CREATES: Final = frozenset({Operation.TABLE_CREATE, Operation.NAMESPACE_CREATE})
"""Operations of which it takes the body to tell what they have made; of no other it is read."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What a look made of one decision."""

    log_id: int
    key: str
    decision: UUID
    outcome: CommitOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """What is known of a key: what its catalog has (None: it does not say), and what the log has."""

    found: Loaded | None
    decisions: Sequence[OpenDecision]
    indices: dict[UUID, int]
    claims: Sequence[Claim]
    explained: str | None


class Reconciler:
    """Settles the open decisions of all tenants. `pauses` are those between looks that settle nothing."""

    def __init__(self, gateway: Gateway, *, pauses: Sequence[timedelta] = PAUSES, poll_s: float = POLL_S) -> None:
        self._gateway = gateway
        self._poll_s = poll_s
        self._looks = Looks(
            gateway.database,
            gateway.roles,
            clock=gateway.clock,
            hold_for=timedelta(seconds=HOLD_TIMEOUTS * gateway.catalogs.upstreams.timeout_s),
            pauses=pauses,
        )

    async def run(self, stop: asyncio.Event, wake: WakeUp | None = None) -> None:
        """
        Settle what is due until `stop` is set; looks that have begun are given up, and are due for others at once.

        Raises:
            LedgerError: if what is stored is corrupt.
        """
        failures = 0
        while not stop.is_set():
            try:
                if wake is not None:
                    wake.clear()  # before looking: what is appended from here on rings again
                looked = await _unless(stop, self.settle_due())
                failures = 0
                if not looked:
                    await wait_for_any(stop, wake, timeout_s=self._poll_s)
            except UnavailableError as error:
                _log.info("open decisions wait: %s", error)
                await wait_for_any(stop, None, timeout_s=back_off_s(failures))
                failures += 1

    async def settle_due(self) -> list[Reconciled]:
        """
        Look at some of what is due, the longest overdue first; return what became of each decision.

        Raises:
            UnavailableError: if the database or the log cannot be reached.
            LedgerError: if what is stored is corrupt.
        """
        await self._looks.read_news()
        return await self._look_at(await self._looks.hold(limit=LOOKS_MAX))

    async def settle_now(self) -> list[Reconciled]:
        """
        Look once at every open decision past its deadline, however long it was to wait; return what became of each.

        Raises:
            UnavailableError: if the database or the log cannot be reached.
            LedgerError: if what is stored is corrupt.
        """
        held = await self._looks.hold_all(limit=KEYS_MAX)
        results: list[Reconciled] = []
        for first in range(0, len(held), LOOKS_MAX):
            results += await self._look_at(held[first : first + LOOKS_MAX])
        return results

    async def _look_at(self, held: Sequence[Held]) -> list[Reconciled]:
        """Look at keys side by side: a catalog that is slow holds others up for one look at most."""
        results: list[Reconciled] = []
        failed: list[BaseException] = []
        try:
            looks = await asyncio.gather(*(self._look(each) for each in held), return_exceptions=True)
        except asyncio.CancelledError:
            for each in held:
                await self._looks.give_up(each)
            raise
        for each, look in zip(held, looks, strict=True):
            if isinstance(look, BaseException):
                failed.append(look)
                await self._looks.give_up(each)
            else:
                results += look
        if failed:
            raise failed[0]
        return results

    async def _look(self, held: Held) -> list[Reconciled]:
        """Ask the catalog once about a key, settle what can be proven of it, and say when to look again."""
        now = self._gateway.clock()
        async with self._looks.reading(held.log) as connection:
            size = (await read_head(connection, held.log.log_id)).size
            decisions = await read_open(connection, held.log.log_id, held.key)
        overdue = [decision for decision in decisions if decision.deadline < now]
        if not overdue:
            await self._looks.end(held)
            return []
        found = await self._find(held.log, overdue[0])
        # The log after the catalog: whoever changed that before we asked is under way still, or has said so by now.
        evidence = await self._read_log(held, found)
        results = await self._settle(held, evidence, now=now)
        if all(each.outcome is not CommitOutcome.UNKNOWN for each in results):
            await self._looks.end(held)
        else:
            # What the log was told after the catalog was asked is read again: it may explain what is found next time.
            read_to = held.read_to if found is None else size
            await self._looks.end_for_now(held, read_to=read_to, explained=evidence.explained)
        return results

    async def _find(self, log: Log, decision: OpenDecision) -> Loaded | None:
        """The target as its catalog has it; None if it does not say, or there is no such catalog any more."""
        if log.tenant is None:
            return None
        try:
            state = await self._gateway.control.current(log.log_id)
            return await self._gateway.catalog(log.tenant, state, decision.target.alias).load(decision.target)
        except GatewayError as error:
            _log.info("the outcome of %s on %s stays unknown: %s", decision.decision, decision.key, error)
            return None

    async def _read_log(self, held: Held, found: Loaded | None) -> _Evidence:
        log_id = held.log.log_id
        async with self._looks.reading(held.log) as connection:
            decisions = await read_open(connection, log_id, held.key)
            indices = await read_decided(connection, log_id, decisions)
            new = [each for each in decisions if held.looked_at is None or each.deadline >= held.looked_at]
            from_index = min([indices[each.decision] - MARGIN_ENTRIES for each in new] or [held.read_to])
            claims = await read_claims(connection, log_id, held.key, from_index=from_index)
        location = None if found is None else found.metadata_location
        is_explained = location is not None and any(claim.metadata_location == location for claim in claims)
        return _Evidence(
            found=found,
            decisions=decisions,
            indices=indices,
            claims=claims,
            explained=location if is_explained else held.explained,
        )

    async def _settle(self, held: Held, evidence: _Evidence, *, now: datetime) -> list[Reconciled]:
        """Weigh the evidence for each decision; what one is found to have made is not counted for the next."""
        results: list[Reconciled] = []
        claims = list(evidence.claims)
        for decision in evidence.decisions:
            if decision.deadline >= now:
                continue
            outcome = CommitOutcome.UNKNOWN
            if evidence.found is not None:
                index = evidence.indices[decision.decision]
                known = Known(
                    index=index,
                    asked=await self._asked(held.log, decision, index),
                    claims=tuple(claims),
                    explained=evidence.explained,
                    under_way=tuple(each for each in evidence.decisions if each.deadline >= now),
                )
                outcome = prove(decision, evidence.found, known)
            settled = _settled(decision, outcome, evidence.found)
            appended = await self._append(decision, settled)
            if appended is None and outcome is not CommitOutcome.UNKNOWN:
                break  # its own process has settled it after all: the next look knows how, and what that explains
            if outcome is CommitOutcome.ACCEPTED and appended is not None:
                claims.append(claim_of(appended, settled, decision.operation))
            results.append(
                Reconciled(log_id=held.log.log_id, key=held.key, decision=decision.decision, outcome=outcome)
            )
        return results

    async def _asked(self, log: Log, decision: OpenDecision, index: int) -> Mapping[str, Any] | None:
        if decision.operation not in CREATES:
            return None
        async with self._looks.reading(log) as connection:
            return await read_asked(connection, log.log_id, index, opener=self._gateway.opener)

    async def _append(self, decision: OpenDecision, settled: CommitSettled) -> int | None:
        """Append an outcome; return its index, or None if it was known already, or the decision is settled by now."""
        is_unknown = settled.outcome is CommitOutcome.UNKNOWN
        if is_unknown and decision.is_unknown:
            return None
        guard = (doubt_guard if is_unknown else close_guard)(decision.decision, decision.key)
        group = Group(
            id=derived_group_id("commit.reconciled", {"key": decision.key, "settled": to_data(settled)}),
            then=(settled_event(settled, key=decision.key, actor=SYSTEM_ACTOR, at=self._gateway.clock()),),
            guard=(guard,),
        )
        with append_errors(not_appended="an outcome could not be recorded: it is looked for again"):
            appended = await self._gateway.append(decision.log_id, group)
        if isinstance(appended, Appended) and appended.branch is Branch.THEN:
            return appended.indices.start
        return None


def _settled(decision: OpenDecision, outcome: CommitOutcome, found: Loaded | None) -> CommitSettled:
    """
    An outcome as the log holds it. The metadata file of an accepted change is the one it was found in.

    By then others may have changed the table too, but in that file the change is.
    """
    is_accepted = outcome is CommitOutcome.ACCEPTED and found is not None
    table_uuid = decision.table_uuid
    if is_accepted and table_uuid is None and found is not None and found.metadata is not None:
        table_uuid = str(found.metadata["table-uuid"])
    return CommitSettled(
        decision=str(decision.decision),
        evidence=OutcomeEvidence.RECONCILED,
        metadata_location=found.metadata_location if is_accepted and found is not None else None,
        metadata_sha256=None,
        outcome=outcome,
        snapshots=decision.snapshots,
        table_uuid=table_uuid,
    )


async def _unless(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what `work` returns; None if `stop` is set before, and `work` was cancelled."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            task.cancel()  # of one that is done nothing comes
        await asyncio.wait({working, stopping})
    return None if working.cancelled() else working.result()
