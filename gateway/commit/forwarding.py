# SPDX-License-Identifier: Apache-2.0
"""
Steps 11 to 13 for a foreign catalog: a group that opens the decision, a request, a group that closes it.

In between, the decision is open: a row that all processes see, and no connection, lock or thread is held. If this
process dies, or the outcome stays unknown, that row remains, and the reconciler determines the outcome. The answer to
the engine follows from the upstream's reply alone (`catalogs/replies.py`), whether or not the outcome was recorded.

A transaction is one request, too: one group opens a decision for each of its tables, and what became of it is recorded,
or found out, for each table. `one_after_another.py` has those that are several requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Final
from uuid import UUID

from gateway.catalogs.catalog import Forwards, Loaded, Outgoing, Shown
from gateway.catalogs.json_text import SMALL_BYTES, off_loop
from gateway.catalogs.registered import is_registered, registered_digest
from gateway.catalogs.replies import Answered, ForwardOutcome, NeverSent, Refused, outcome_of, parse_table
from gateway.commit.approved import Approved, Changed
from gateway.commit.changes import changes_nothing
from gateway.commit.events import base_of, decided, settled_by_reply, snapshots_of, table_uuid
from gateway.commit.kept_tables import OTHERWISE_PAUSE_S
from gateway.commit.metrics import MutationStage
from gateway.commit.open_decisions import (
    Forwarding,
    close_guard,
    doubt_guard,
    open_guard,
    open_still_guard,
    state_digest,
)
from gateway.commit.settled_ahead import SettledAhead, settle_ahead
from gateway.errors import (
    CommitStateUnknownError,
    GatewayError,
    RequirementFailedError,
    UnavailableError,
    UpstreamNotAllowedError,
)
from gateway.log_errors import append_errors
from gateway.metadata import Metadata, Requirement, check_requirements, uuid_of
from gateway.metadata.paths import files_since
from gateway.metadata.views import check_view_requirements
from gateway.mutations import Mutation, Operation
from ledger.errors import LedgerError
from ledger.format.entry import Branch
from ledger.format.event import PreparedEvent
from ledger.format.events import CommitOutcome, OutcomeEvidence
from ledger.format.guards import GuardCall
from ledger.format.sequence import Appended, Group, Stale
from ledger.futures import Meanwhile

SENT: Final = 1
"""What is done meanwhile is done behind what sends a group to the database."""

_log = logging.getLogger(__name__)


class Order(Enum):
    """How the commits of a transaction are forwarded."""

    AT_ONCE = "at once"
    IN_TURN = "in turn"


async def forward(catalog: Forwards, approved: Approved) -> Changed | Stale | None:
    """
    Make the change; None if the target had changed meanwhile and the request has to be judged again.

    Raises:
        UnavailableError: if certainly nothing was changed: the decision was not recorded, or the request was not sent
            (UpstreamNotAllowedError: because the gateway may not connect to the upstream's address).
        UpstreamAnswerError, UpstreamCredentialsError: if the upstream certainly did nothing.
        CommitStateUnknownError: if the change may or may not have been made.
    """
    outgoing = await prepare(catalog, approved)
    if approved.mutation.staged:
        # The upstream writes nothing either: the change is decided when the staged create is committed.
        return await _stage(catalog, approved, outgoing)
    return await forward_prepared(catalog, approved, outgoing)


async def forward_prepared(
    catalog: Forwards, approved: Approved, outgoing: Outgoing, *, confirmed: Callable[[], Awaitable[bool]] | None = None
) -> Changed | Stale | None:
    """
    Make a change that was prepared; None also if the target is not `confirmed` to be as it was judged. Raises as
    `forward`.

    What is not confirmed is not sent: the decision, which is recorded meanwhile, is settled as `failed`.
    """
    decision = approved.ids.next()
    if len(outgoing.body) <= SMALL_BYTES:
        Meanwhile(outgoing.sent_body, behind=SENT)
    opened = await open_all(decision, [(approved, outgoing)])
    if isinstance(opened, Stale):
        return opened
    approved.ids.taken += 1
    approved.done(MutationStage.DECIDE)
    if confirmed is not None and not await confirmed():
        await _withdraw(decision, approved)
        return None
    ahead = Meanwhile(partial(settle_ahead, decision, approved))
    outcome = outcome_of(approved.mutation.operation, await catalog.forward(outgoing, decision=decision))
    if approved.mutation.registered is not None and outcome.settled is CommitOutcome.ACCEPTED:
        outcome = await _as_judged(approved, outcome)
    approved.done(MutationStage.CHANGE)
    shown = _shown_meanwhile(catalog, outcome)
    kept = _kept_meanwhile(catalog, approved, outcome)
    await settle(decision, [(approved, outcome)], ahead=ahead.result())
    if kept is not None:
        kept.result()
    approved.done(MutationStage.SETTLE)
    match outcome.settled, outcome.reply:
        case CommitOutcome.ACCEPTED, Answered() as answered:
            if shown is not None:
                return approved.answer(Shown(shown.result()))
            return approved.answer(Shown(await off_loop(catalog.show_answer, len(answered.body), answered)))
        case CommitOutcome.CONFLICTED, Answered() if await is_tried_again(catalog, approved, [outgoing]):
            return None
    raise not_made(catalog, outcome)


async def _withdraw(decision: UUID, approved: Approved) -> None:
    """
    Record that nothing was sent, and never will be.

    Raises:
        UnavailableError: if that is not recorded: the decision stays open, and what is made later might be taken for
            its result.
    """
    cause = "it was judged on another state than the catalog has"
    never = ForwardOutcome(settled=CommitOutcome.FAILED, reply=NeverSent(cause=cause), cause=cause)
    mutation = approved.mutation
    approved.gateway.kept_tables.forget(approved.log_id, mutation.target, pause_s=OTHERWISE_PAUSE_S)
    if not await settle(decision, [(approved, never)]):
        raise UnavailableError(f"{mutation.target.path}: {cause}; nothing was sent and nothing was changed, try again")
    approved.ids.lost = approved.ids.taken


def _shown_meanwhile(catalog: Forwards, outcome: ForwardOutcome) -> Meanwhile[bytes] | None:
    """Make what the engine will be answered while the outcome is recorded; None if that is large, or not known yet."""
    answered = outcome.reply
    if outcome.settled is not CommitOutcome.ACCEPTED or not isinstance(answered, Answered):
        return None
    if len(answered.body) > SMALL_BYTES:
        return None
    return Meanwhile(partial(catalog.show_answer, answered), behind=SENT)


def _kept_meanwhile(catalog: Forwards, approved: Approved, outcome: ForwardOutcome) -> Meanwhile[None] | None:
    """Keep a table as a commit has left it, while the outcome is recorded; what else was sent may have changed it."""
    kept, mutation, answered = approved.gateway.kept_tables, approved.mutation, outcome.reply
    is_known = outcome.settled is CommitOutcome.ACCEPTED and mutation.operation is Operation.TABLE_COMMIT
    if not is_known or not isinstance(answered, Answered):
        for end in approved.ends:
            kept.forget(approved.log_id, end.requested.mutation.target)
        return None
    return Meanwhile(partial(kept.answered, approved.log_id, mutation.target, catalog, answered), behind=SENT)


async def forward_all(catalog: Forwards, approved: Sequence[Approved]) -> Stale | bool:
    """
    Make the commits of a transaction in one request; False if one of the tables had changed meanwhile and all have to
    be judged again.

    Raises as `forward`.
    """
    first = approved[0]
    prepared = [(each, await prepare(catalog, each)) for each in approved]
    decision = first.ids.next()
    opened = await open_all(decision, prepared)
    if isinstance(opened, Stale):
        return opened
    first.ids.taken += 1
    first.done(MutationStage.DECIDE)
    outgoing = [each for _, each in prepared]
    outcome = outcome_of(None, await catalog.forward_all(outgoing, decision=decision))
    for each in approved:
        first.gateway.kept_tables.forget(first.log_id, each.mutation.target)
    first.done(MutationStage.CHANGE)
    outcomes = [(each, outcome) for each in approved]
    if outcome.settled is CommitOutcome.ACCEPTED:
        found = await asyncio.gather(*(_load_again(catalog, each) for each in approved))
        outcomes = list(zip(approved, map(partial(_outcome_on, outcome), approved, found), strict=True))
        if any(map(_is_as_before, approved, found)):
            outcome = replace(outcome, settled=CommitOutcome.UNKNOWN, cause="it was accepted, but a table is as before")
    await settle(decision, outcomes)
    first.done(MutationStage.SETTLE)
    match outcome.settled:
        case CommitOutcome.ACCEPTED:
            return True
        case CommitOutcome.CONFLICTED if await is_tried_again(catalog, first, outgoing):
            return False
    raise not_made(catalog, outcome)


async def prepare(catalog: Forwards, approved: Approved) -> Outgoing:
    """
    Return what the upstream is to be sent.

    Raises:
        BadRequestError: if parsers could read it differently.
    """
    body = approved.requested.body
    return await off_loop(catalog.prepare, len(body), approved.mutation, approved.loaded, approved.change, body)


async def _as_judged(approved: Approved, outcome: ForwardOutcome) -> ForwardOutcome:
    """
    What is registered must be what was judged: the upstream has read the file by itself, and later.
    """
    target, found, answered = approved.mutation.target, approved.change.found, outcome.reply
    table = parse_table(answered, is_view=target.is_view) if isinstance(answered, Answered) else None
    if found is None or table is None or not isinstance(answered, Answered):
        raise AssertionError("an accepted answer to a registration has what was registered with a file")
    compare = partial(is_registered, found, *table, is_view=target.is_view)
    if await off_loop(compare, len(answered.body)):
        return outcome
    cause = f"the upstream has registered another {target.kind} than the file described when it was judged"
    return ForwardOutcome(settled=CommitOutcome.UNKNOWN, reply=answered, cause=cause)


def not_made(catalog: Forwards, outcome: ForwardOutcome) -> GatewayError:
    """
    Return what the engine is answered if the change was not made, or that is not known.
    """
    match outcome.settled, outcome.reply:
        case CommitOutcome.CONFLICTED | CommitOutcome.REFUSED, Answered() as answered:
            return catalog.refusal(answered)
        case CommitOutcome.FAILED, Refused(cause=cause):
            return UpstreamNotAllowedError(f"nothing was sent and nothing was changed: {cause}")
        case CommitOutcome.FAILED, _:
            return UnavailableError(f"the upstream was not reached, nothing was changed: {outcome.cause}")
    return CommitStateUnknownError(f"the commit may or may not have happened, do not delete its files: {outcome.cause}")


async def _load_again(catalog: Forwards, approved: Approved) -> Loaded | None:
    """Load a table after a transaction, whose success says nothing of metadata; None if there is nothing to read."""
    try:
        found = await catalog.load(approved.mutation.target)
        check_requirements(found.metadata, ())
    except GatewayError as error:
        _log.warning("what a transaction made of %s is not known yet: %s", approved.mutation.target.path, error)
        return None
    return found


def _outcome_on(outcome: ForwardOutcome, approved: Approved, found: Loaded | None) -> ForwardOutcome:
    """
    What an accepted transaction is for one of its tables, which was `found` so behind it.

    The file that follows the one before is the transaction's. Any other contains the change, too, but may be another
    commit's. What cannot be told is left to the reconciler.
    """
    if found is None or _is_as_before(approved, found):
        return replace(outcome, settled=CommitOutcome.UNKNOWN)
    table, before = found.metadata, approved.loaded
    if table is None or before.metadata is None or uuid_of(table) != uuid_of(before.metadata):
        return replace(outcome, evidence=OutcomeEvidence.RECONCILED)  # dropped since: it has no metadata now
    is_next = files_since(before.metadata_location, table) == []
    return replace(
        outcome,
        metadata_location=found.metadata_location,
        evidence=OutcomeEvidence.ANSWER if is_next else OutcomeEvidence.RECONCILED,
    )


def _is_as_before(approved: Approved, found: Loaded | None) -> bool:
    """Whether a commit that changes something has left the table's file in place."""
    before = approved.loaded
    is_same = found is not None and found.metadata_location == before.metadata_location
    return is_same and not changes_nothing(approved.change, before)


async def _stage(catalog: Forwards, approved: Approved, outgoing: Outgoing) -> Changed:
    """A staged create changes nothing: the upstream only answers what the table would be."""
    reply = await catalog.forward(outgoing)
    outcome = outcome_of(outgoing.mutation.operation, reply)
    if isinstance(reply, Answered) and outcome.settled in {CommitOutcome.CONFLICTED, CommitOutcome.REFUSED}:
        raise catalog.refusal(reply)
    if isinstance(reply, Answered) and 200 <= reply.status <= 299:
        return approved.answer(Shown(catalog.show_answer(reply)))
    raise UnavailableError(f"the upstream did not answer as it should, nothing was changed: {outcome.cause}")


async def open_all(
    decision: UUID, prepared: Sequence[tuple[Approved, Outgoing]], *, order: Order = Order.AT_ONCE
) -> Appended | Stale:
    """
    Step 11: the decision is durable, and open, before the upstream sees anything.

    Raises:
        UnavailableError: if it could not be recorded.
    """
    first = prepared[0][0]
    gateway, at = first.gateway, first.gateway.clock()
    events, guards = list[PreparedEvent](), list[GuardCall]()
    after: str | None = None
    for turn, (approved, outgoing) in enumerate(prepared, start=1):
        loaded, change = approved.loaded, approved.change
        forwarding = Forwarding(
            owner=gateway.ownership.owner,
            deadline=at + gateway.ownership.timeout * (turn if order is Order.IN_TURN else 1),
            requirements=outgoing.requirements,
            result=_digest_of(approved),
            share=len(prepared),
            after=after,
        )
        if order is Order.IN_TURN:
            after = approved.mutation.target.key
        for end in approved.ends:
            mutation = end.requested.mutation
            events.append(
                decided(
                    end.requested,
                    end.judgement,
                    loaded,
                    change,
                    at=end.at,
                    random=gateway.random,
                    forwarding=forwarding,
                    share=len(prepared),
                )
            )
            guards.append(
                open_guard(
                    decision,
                    forwarding,
                    target=mutation.target,
                    operation=mutation.operation.value,
                    base=base_of(mutation, loaded),
                    table_uuid=table_uuid(loaded, change),
                    snapshots=snapshots_of(approved.mutation, change),
                )
            )
    group = Group(id=decision, then=tuple(events), guard=tuple(guards), as_of=first.judgement.as_of)
    # Even if it was recorded: it was not forwarded, and will not be.
    with append_errors(not_appended="the decision could not be recorded: nothing was changed, try again"):
        opened = await gateway.append(first.log_id, group)
    if isinstance(opened, Appended) and opened.branch is not Branch.THEN:
        raise AssertionError("a decision of a new group is opened whatever there is")
    return opened


def _digest_of(approved: Approved) -> str | None:
    """What the outcome is recognised by later; a catalog keeps what it registers in its own form."""
    mutation, change = approved.mutation, approved.change
    if mutation.registered is not None and change.metadata is not None:
        return registered_digest(change.metadata, is_view=mutation.target.is_view)
    return state_digest(change)


async def settle(
    decision: UUID,
    outcomes: Sequence[tuple[Approved, ForwardOutcome]],
    *,
    while_open: str | None = None,
    ahead: SettledAhead | None = None,
) -> bool:
    """
    Step 13: record outcomes, if the decision on the key `while_open` is open, too; return whether they are recorded.

    `ahead` is what was made of the only outcome before it was known. If an outcome cannot be recorded, its decision
    stays open for the reconciler.
    """
    first, outcome = outcomes[0]
    gateway, at = first.gateway, first.gateway.clock()
    group = None if ahead is None else ahead.group(outcome, at)
    if group is None:
        group = _settling(decision, outcomes, at=at, while_open=while_open)
    try:
        appended = await gateway.append(first.log_id, group)
    except LedgerError as error:
        _log.warning("decision %s is %s and stays open: %s", decision, outcome.settled, error)
        return False
    return isinstance(appended, Appended) and appended.branch is Branch.THEN


def _settling(
    decision: UUID, outcomes: Sequence[tuple[Approved, ForwardOutcome]], *, at: datetime, while_open: str | None
) -> Group:
    """Return the group that records outcomes."""
    events, guards = list[PreparedEvent](), list[GuardCall]()
    for approved, outcome in outcomes:
        settle = doubt_guard if outcome.settled is CommitOutcome.UNKNOWN else close_guard
        for end in approved.ends:
            events.append(settled_by_reply(end.requested, decision, approved.loaded, approved.change, outcome, at=at))
            guards.append(settle(decision, end.requested.mutation.target.key))
    if while_open is not None:
        guards.append(open_still_guard(decision, while_open))
    return Group(id=outcomes[0][0].gateway.new_group_id(), then=tuple(events), guard=tuple(guards))


async def is_tried_again(catalog: Forwards, approved: Approved, sent: Sequence[Outgoing]) -> bool:
    """
    Return whether a request that conflicted is to be judged again: a pin of the gateway failed, while all of the
    engine's own requirements still hold, and it is not the last attempt.
    """
    if approved.is_last or not await _is_lost_by_a_pin(catalog, sent):
        return False
    approved.ids.lost = approved.ids.taken
    return True


async def _is_lost_by_a_pin(catalog: Forwards, sent: Sequence[Outgoing]) -> bool:
    """
    Return whether a pin of the gateway failed while all of the engine's own requirements still hold.

    Where the catalog compares the whole target with what was judged, that is one.
    """
    is_lost = False
    for outgoing in sent:
        mutation = outgoing.mutation
        try:
            found = await catalog.load(mutation.target)
            _check(mutation, found.metadata, mutation.requirements)
        except GatewayError:
            # The engine gets the upstream's own answer; there is nothing more to find out.
            return False
        try:
            _check(mutation, found.metadata, outgoing.pins)
        except RequirementFailedError:
            is_lost = True
        is_lost = is_lost or (outgoing.judged is not None and not _is_same(found, outgoing.judged))
    return is_lost


def _is_same(found: Loaded, judged: Loaded) -> bool:
    return (found.metadata_location, found.properties) == (judged.metadata_location, judged.properties)


def _check(mutation: Mutation, metadata: Metadata | None, requirements: Sequence[Requirement]) -> None:
    if mutation.target.is_view:
        check_view_requirements(metadata or {}, requirements)
    else:
        check_requirements(metadata, requirements)
