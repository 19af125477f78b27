"""
Steps 11 to 13 where the catalog is elsewhere: a group that opens the decision, a request, a group that closes it.

In between the decision is open, a row for all to see, and nothing is held: no connection, no lock, no thread. If this
process dies, or the outcome stays unknown, what may have happened is known, and `reconciler.py` finds out. What the
engine is told follows from the reply alone (`catalogs/replies.py`), whether or not the log could be told too.
"""

from __future__ import annotations

import logging
from uuid import UUID

from gateway.catalogs.catalog import Forwards, Outgoing
from gateway.catalogs.json_text import off_loop
from gateway.catalogs.replies import Answered, ForwardOutcome, Refused, outcome_of
from gateway.commit.approved import Approved, Changed
from gateway.commit.events import decided, settled_by_reply, table_uuid
from gateway.commit.metrics import Stage
from gateway.commit.open_decisions import Forwarding, close_guard, doubt_guard, open_guard, state_digest
from gateway.errors import (
    CommitStateUnknownError,
    GatewayError,
    RequirementFailedError,
    UnavailableError,
    UpstreamNotAllowedError,
    append_errors,
)
from gateway.metadata import added_snapshot_ids, check_requirements
from ledger.errors import LedgerError
from ledger.format.events import CommitOutcome
from ledger.format.sequence import Appended, Group, Stale

_log = logging.getLogger(__name__)


async def forward(catalog: Forwards, approved: Approved) -> Changed | Stale | None:
    """
    Make the change; None if what it was judged against had moved and it is to be judged again.

    Raises:
        UnavailableError: if nothing was changed for certain: it was not recorded, or did not leave
            (UpstreamNotAllowedError: because the upstream is where the gateway does not go).
        UpstreamAnswerError, UpstreamCredentialsError: if the upstream says for certain that it did nothing.
        CommitStateUnknownError: if it may or may not have been made.
    """
    body = approved.requested.body
    outgoing = await off_loop(catalog.prepare, len(body), approved.mutation, approved.loaded, body)
    if approved.mutation.staged:
        # Nothing is written there either: what it promises is decided when it is committed.
        return await _stage(catalog, approved, outgoing)
    decision = approved.gateway.new_group_id()
    opened = await _open(decision, approved, outgoing)
    if isinstance(opened, Stale):
        return opened
    approved.done(Stage.DECIDE)
    outcome = outcome_of(approved.mutation.operation, await catalog.forward(outgoing))
    approved.done(Stage.CHANGE)
    await _settle(decision, approved, outcome)
    approved.done(Stage.SETTLE)
    match outcome.settled, outcome.reply:
        case CommitOutcome.ACCEPTED, Answered() as answered:
            return approved.answer(await off_loop(catalog.show_answer, len(answered.body), answered))
        case CommitOutcome.CONFLICTED, Answered() as answered:
            if not approved.is_last and await _lost_by_a_pin(catalog, outgoing):
                return None
            raise catalog.refusal(answered)
        case CommitOutcome.REFUSED, Answered() as answered:
            raise catalog.refusal(answered)
        case CommitOutcome.FAILED, Refused(cause=cause):
            raise UpstreamNotAllowedError(f"nothing was sent and nothing was changed: {cause}")
        case CommitOutcome.FAILED, _:
            raise UnavailableError(f"the upstream was not reached, nothing was changed: {outcome.cause}")
        case _:
            raise CommitStateUnknownError(
                f"the commit may or may not have happened, do not delete its files: {outcome.cause}"
            )


async def _stage(catalog: Forwards, approved: Approved, outgoing: Outgoing) -> Changed:
    """A staged create is a question: what the table would be is the upstream's to say."""
    reply = await catalog.forward(outgoing)
    outcome = outcome_of(outgoing.mutation.operation, reply)
    if isinstance(reply, Answered) and outcome.settled in {CommitOutcome.CONFLICTED, CommitOutcome.REFUSED}:
        raise catalog.refusal(reply)
    if isinstance(reply, Answered) and 200 <= reply.status <= 299:
        return approved.answer(catalog.show_answer(reply))
    raise UnavailableError(f"the upstream did not answer as it should, nothing was changed: {outcome.cause}")


async def _open(decision: UUID, approved: Approved, outgoing: Outgoing) -> Appended | Stale:
    """Step 11: the decision is durable, and open, before the upstream sees anything."""
    gateway, mutation, at = approved.gateway, approved.mutation, approved.gateway.clock()
    requested, loaded, change = approved.requested, approved.loaded, approved.change
    forwarding = Forwarding(
        owner=gateway.ownership.owner,
        deadline=at + gateway.ownership.timeout,
        requirements=outgoing.requirements,
        result=state_digest(change),
    )
    event = decided(requested, approved.judgement, loaded, change, at=at, random=gateway.random, forwarding=forwarding)
    guard = open_guard(
        decision,
        forwarding,
        target=mutation.target,
        operation=mutation.operation.value,
        base=loaded.metadata_location,
        table_uuid=table_uuid(loaded, change),
        snapshots=added_snapshot_ids(mutation.updates),
    )
    group = Group(id=decision, then=(event,), guard=(guard,), as_of=approved.judgement.as_of)
    # Even if it was recorded: it was not forwarded, and will not be.
    with append_errors(not_appended="the decision could not be recorded: nothing was changed, try again"):
        return await gateway.append(approved.log_id, group)


async def _settle(decision: UUID, approved: Approved, outcome: ForwardOutcome) -> None:
    """Step 13. What cannot be recorded now stays open, and is found out again; the engine is told what is known."""
    gateway, key = approved.gateway, approved.mutation.target.key
    at = gateway.clock()
    event = settled_by_reply(approved.requested, decision, approved.loaded, approved.change, outcome, at=at)
    guard = (doubt_guard if outcome.settled is CommitOutcome.UNKNOWN else close_guard)(decision, key)
    try:
        await gateway.append(approved.log_id, Group(id=gateway.new_group_id(), then=(event,), guard=(guard,)))
    except LedgerError as error:
        _log.warning("decision %s is %s and stays open: %s", decision, outcome.settled, error)


async def _lost_by_a_pin(catalog: Forwards, outgoing: Outgoing) -> bool:
    """Tell whether what the gateway itself required has moved, and what the engine requires still holds."""
    try:
        metadata = (await catalog.load(outgoing.mutation.target)).metadata
        check_requirements(metadata, outgoing.mutation.requirements)
    except GatewayError:
        # The upstream has said what the engine needs to know; nothing is to be found out beyond that.
        return False
    try:
        check_requirements(metadata, outgoing.pins)
    except RequirementFailedError:
        return True
    return False
