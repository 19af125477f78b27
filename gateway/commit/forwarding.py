# SPDX-License-Identifier: Apache-2.0
"""
Steps 11 to 13 for a foreign catalog: a group that opens the decision, a request, a group that closes it.

In between, the decision is open: a row that all processes see, and no connection, lock or thread is held. If this
process dies, or the outcome stays unknown, that row remains, and the reconciler determines the outcome. The answer to
the engine follows from the upstream's reply alone (`catalogs/replies.py`), whether or not the outcome was recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from gateway.catalogs.catalog import Forwards, Outgoing, Shown
from gateway.catalogs.json_text import off_loop
from gateway.catalogs.replies import Answered, ForwardOutcome, Refused, outcome_of
from gateway.commit.approved import Approved, Changed
from gateway.commit.events import base_of, decided, settled_by_reply, table_uuid
from gateway.commit.metrics import MutationStage
from gateway.commit.open_decisions import Forwarding, close_guard, doubt_guard, open_guard, state_digest
from gateway.errors import (
    CommitStateUnknownError,
    GatewayError,
    RequirementFailedError,
    UnavailableError,
    UpstreamNotAllowedError,
)
from gateway.log_errors import append_errors
from gateway.metadata import Metadata, Requirement, added_snapshot_ids, check_requirements
from gateway.metadata.views import check_view_requirements
from gateway.mutations import Mutation
from ledger.errors import LedgerError
from ledger.format.entry import Branch
from ledger.format.events import CommitOutcome
from ledger.format.sequence import Appended, Group, Stale

_log = logging.getLogger(__name__)


async def forward(catalog: Forwards, approved: Approved) -> Changed | Stale | None:
    """
    Make the change; None if the target had changed meanwhile and the request has to be judged again.

    Raises:
        UnavailableError: if certainly nothing was changed: the decision was not recorded, or the request was not sent
            (UpstreamNotAllowedError: because the gateway may not connect to the upstream's address).
        UpstreamAnswerError, UpstreamCredentialsError: if the upstream certainly did nothing.
        CommitStateUnknownError: if the change may or may not have been made.
    """
    body = approved.requested.body
    outgoing = await off_loop(catalog.prepare, len(body), approved.mutation, approved.loaded, body)
    if approved.mutation.staged:
        # The upstream writes nothing either: the change is decided when the staged create is committed.
        return await _stage(catalog, approved, outgoing)
    decision = approved.ids.next()
    opened = await _open(decision, approved, outgoing)
    if isinstance(opened, Stale):
        return opened
    approved.ids.taken += 1
    approved.done(MutationStage.DECIDE)
    outcome = outcome_of(approved.mutation.operation, await catalog.forward(outgoing))
    approved.done(MutationStage.CHANGE)
    await _settle(decision, approved, outcome)
    approved.done(MutationStage.SETTLE)
    match outcome.settled, outcome.reply:
        case CommitOutcome.ACCEPTED, Answered() as answered:
            return approved.answer(Shown(await off_loop(catalog.show_answer, len(answered.body), answered)))
        case CommitOutcome.CONFLICTED, Answered() as answered:
            if not approved.is_last and await _lost_by_a_pin(catalog, outgoing):
                approved.ids.lost = approved.ids.taken
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
    """A staged create changes nothing: the upstream only answers what the table would be."""
    reply = await catalog.forward(outgoing)
    outcome = outcome_of(outgoing.mutation.operation, reply)
    if isinstance(reply, Answered) and outcome.settled in {CommitOutcome.CONFLICTED, CommitOutcome.REFUSED}:
        raise catalog.refusal(reply)
    if isinstance(reply, Answered) and 200 <= reply.status <= 299:
        return approved.answer(Shown(catalog.show_answer(reply)))
    raise UnavailableError(f"the upstream did not answer as it should, nothing was changed: {outcome.cause}")


async def _open(decision: UUID, approved: Approved, outgoing: Outgoing) -> Appended | Stale:
    """Step 11: the decision is durable, and open, before the upstream sees anything."""
    gateway, mutation, at = approved.gateway, approved.mutation, approved.gateway.clock()
    loaded, change = approved.loaded, approved.change
    forwarding = Forwarding(
        owner=gateway.ownership.owner,
        deadline=at + gateway.ownership.timeout,
        requirements=outgoing.requirements,
        result=state_digest(change),
    )
    events = [
        decided(end.requested, end.judgement, loaded, change, at=at, random=gateway.random, forwarding=forwarding)
        for end in approved.ends
    ]
    guards = [
        open_guard(
            decision,
            forwarding,
            target=end.requested.mutation.target,
            operation=end.requested.mutation.operation.value,
            base=base_of(end.requested.mutation, loaded),
            table_uuid=table_uuid(loaded, change),
            snapshots=added_snapshot_ids(mutation.updates),
        )
        for end in approved.ends
    ]
    group = Group(id=decision, then=tuple(events), guard=tuple(guards), as_of=approved.judgement.as_of)
    # Even if it was recorded: it was not forwarded, and will not be.
    with append_errors(not_appended="the decision could not be recorded: nothing was changed, try again"):
        opened = await gateway.append(approved.log_id, group)
    if isinstance(opened, Appended) and opened.branch is not Branch.THEN:
        raise AssertionError("a decision of a new group is opened whatever there is")
    return opened


async def _settle(decision: UUID, approved: Approved, outcome: ForwardOutcome) -> None:
    """Step 13. If the outcome cannot be recorded, the decision stays open for the reconciler."""
    gateway, at = approved.gateway, approved.gateway.clock()
    settle = doubt_guard if outcome.settled is CommitOutcome.UNKNOWN else close_guard
    events = [
        settled_by_reply(end.requested, decision, approved.loaded, approved.change, outcome, at=at)
        for end in approved.ends
    ]
    guards = [settle(decision, end.requested.mutation.target.key) for end in approved.ends]
    group = Group(id=gateway.new_group_id(), then=tuple(events), guard=tuple(guards))
    try:
        await gateway.append(approved.log_id, group)
    except LedgerError as error:
        _log.warning("decision %s is %s and stays open: %s", decision, outcome.settled, error)


async def _lost_by_a_pin(catalog: Forwards, outgoing: Outgoing) -> bool:
    """Return whether a pin of the gateway failed while the engine's own requirements still hold."""
    mutation = outgoing.mutation
    try:
        metadata = (await catalog.load(mutation.target)).metadata
        _check(mutation, metadata, mutation.requirements)
    except GatewayError:
        # The engine gets the upstream's own answer; there is nothing more to find out.
        return False
    try:
        _check(mutation, metadata, outgoing.pins)
    except RequirementFailedError:
        return True
    return False


def _check(mutation: Mutation, metadata: Metadata | None, requirements: Sequence[Requirement]) -> None:
    if mutation.target.is_view:
        check_view_requirements(metadata or {}, requirements)
    else:
        check_requirements(metadata, requirements)
