# SPDX-License-Identifier: Apache-2.0
"""
A transaction for a foreign catalog that offers none: its commits are forwarded one after another.

The operator asks for it with the option `transactions` of the catalog. All commits are judged first, and if one of them
is refused nothing is forwarded. Then one group opens the decisions on all of them, and they are forwarded in the order
of the request. The first one that is not accepted is the last one that is forwarded: those before it stay, and those
behind it are recorded as failed, since they were never sent.

A commit is not sent before the log has that the one before it was accepted, and that group is appended only while the
decision on the commit itself is open. So if this process dies, the log tells which of them cannot have been sent, and
the reconciler closes their decisions: under the same lock of the log, it cannot do so while they are about to be sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import orjson

from gateway.catalogs.catalog import Forwards
from gateway.catalogs.replies import Answered, ForwardOutcome, NeverSent, error_of, message_of, outcome_of
from gateway.commit.approved import Approved
from gateway.commit.forwarding import Order, is_tried_again, not_made, open_all, prepare, settle
from gateway.commit.metrics import MutationStage
from gateway.errors import CommitStateUnknownError, GatewayError, PartlyMadeError, UnavailableError, UpstreamAnswerError
from ledger.format.events import CommitOutcome
from ledger.format.sequence import Stale

NAMED_MAX: Final = 10
"""Tables that an error names of each kind; it says how many more there are."""


async def forward_in_turn(catalog: Forwards, approved: Sequence[Approved]) -> Stale | bool:
    """
    Make the commits of a transaction in their order; False if none was made, because the first table had changed
    meanwhile, and all have to be judged again.

    Raises as `forward` if none of them was made: the error names the table. Otherwise:
        PartlyMadeError: if one was certainly not made, nor those behind it.
        CommitStateUnknownError: if one may or may not have been made, and those behind it were not.
    """
    first = approved[0]
    prepared = [(each, await prepare(catalog, each)) for each in approved]
    decision = first.ids.next()
    opened = await open_all(decision, prepared, order=Order.IN_TURN)
    if isinstance(opened, Stale):
        return opened
    first.ids.taken += 1
    first.done(MutationStage.DECIDE)
    for position, (each, outgoing) in enumerate(prepared):
        outcome = outcome_of(each.mutation.operation, await catalog.forward(outgoing, decision=decision))
        first.gateway.kept_tables.forget(first.log_id, each.mutation.target)
        first.done(MutationStage.CHANGE)
        behind = approved[position + 1 :]
        may_send_next = await _settle(decision, each, outcome, behind)
        first.done(MutationStage.SETTLE)
        if outcome.settled is CommitOutcome.ACCEPTED and (may_send_next or not behind):
            continue
        is_free = outcome.settled is CommitOutcome.CONFLICTED and position == 0
        if is_free and await is_tried_again(catalog, first, [outgoing]):
            return False
        raise _stopped(catalog, approved, position, outcome)
    return True


async def _settle(decision: UUID, each: Approved, outcome: ForwardOutcome, behind: Sequence[Approved]) -> bool:
    """Record an outcome; return whether the next commit may be sent. If not, those behind are recorded as not sent."""
    if outcome.settled is not CommitOutcome.ACCEPTED or not behind:
        await settle(decision, [(each, outcome)])
    elif await settle(decision, [(each, outcome)], while_open=behind[0].mutation.target.key):
        return True
    else:
        # The log cannot be used; or it took so long that the reconciler was first, and the next is closed.
        await settle(decision, [(each, outcome)])
    if behind:
        cause = f"it was not sent, since {each.mutation.target.path} is {outcome.settled}"
        never = ForwardOutcome(settled=CommitOutcome.FAILED, reply=NeverSent(cause=cause), cause=cause)
        await settle(decision, [(one, never) for one in behind])
    return False


def _stopped(catalog: Forwards, approved: Sequence[Approved], position: int, outcome: ForwardOutcome) -> GatewayError:
    """
    Return what the engine is answered if not all commits were made.

    If some were, no status of a refusal is true: an engine that is told that its transaction conflicts, or is refused,
    deletes all of its files, those that are current now among them (REST specification, commitTransaction, 409).
    """
    paths = [each.mutation.target.path for each in approved]
    is_made = outcome.settled is CommitOutcome.ACCEPTED
    made, last = paths[: position + is_made], paths[position]
    behind = f"; not sent: {named(paths[position + 1 :])}" if paths[position + 1 :] else ""
    if is_made:
        return PartlyMadeError(f"{partly(made)}, and the outcome of {last} could not be recorded{behind}")
    if outcome.settled is CommitOutcome.UNKNOWN:
        before = f"; committed before: {named(made)}" if made else ""
        return CommitStateUnknownError(
            f"{last}: the commit may or may not have happened, do not delete its files: {outcome.cause}{before}{behind}"
        )
    if made:
        return PartlyMadeError(f"{partly(made)}; {last} is {outcome.settled}: {outcome.cause}{behind}")
    return _naming(last, not_made(catalog, outcome), outcome, behind)


def _naming(path: str, error: GatewayError, outcome: ForwardOutcome, behind: str) -> GatewayError:
    """Return the error for a first table that was not committed to, so that none was, with its name in the message."""
    if isinstance(error, UpstreamAnswerError) and isinstance(outcome.reply, Answered):
        message = f"{path}: {message_of(outcome.reply)}; nothing was changed{behind}"
        said = error_of(outcome.reply) or {}
        body = {"error": {"message": message, "type": said.get("type", error.kind), "code": error.status}}
        return UpstreamAnswerError(
            message,
            status=error.status,
            body=orjson.dumps(body),
            content_type=error.content_type,
            retry_after=error.retry_after,
        )
    if isinstance(error, UnavailableError):
        return type(error)(f"{path}: {error}{behind}")
    return error


def partly(made: Sequence[str]) -> str:
    """
    Return the beginning of a message about a transaction of which some commits were made.
    """
    return f"the transaction was made in part, do not delete its files: committed: {named(made)}"


def named(paths: Sequence[str]) -> str:
    """
    Return the names of tables for a message.
    """
    more = f" and {len(paths) - NAMED_MAX} more" if len(paths) > NAMED_MAX else ""
    return ", ".join(paths[:NAMED_MAX]) + more
