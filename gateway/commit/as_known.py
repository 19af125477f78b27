# SPDX-License-Identifier: Apache-2.0
"""
Commits that are tried on what the process knows, without reading it first: the log tells whether it is still so.

A group is checked under the lock of its log, whatever was read before. It is stale if a control entry is newer than
those by which it was judged, and its guard holds only if the table's pointer is where it was judged. Keys are revoked,
and rules, policies and catalogs changed, by control entries; a person is erased in the group that revokes their keys.
So if the caller was just verified, and this process has changed the table last, a commit to the built-in catalog goes
from the request to its append without a read.

No guard compares a table of a foreign catalog. So the catalog is asked for it while a commit is judged on the table as
this process has left it, and while the decision is recorded. Only if it shows the same is the commit sent; else the
decision is settled as `failed`: nothing was sent (`kept_tables.py`).

Guarantee: what is answered on that is a commit that the log has, or that the log could not be written. One that is
refused, cannot be made, changes nothing, is stale or meets another table takes all steps of `commit_flow.py`, and is
answered as if it had not been tried. Until then nobody has learned anything, and what was written is a file, which is
deleted, or a decision, which is settled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from gateway.catalogs.catalog import ChangedBy, Forwards, SwapsPointer
from gateway.commit import commit_flow
from gateway.commit.approved import Approved, Changed
from gateway.commit.changes import changes_nothing
from gateway.commit.commit_flow import FORWARD_TURN_S, Feasible, Flow, Plan, parse_and_find, read_rest
from gateway.commit.forwarding import forward_prepared, prepare
from gateway.commit.gateway import Gateway
from gateway.commit.kept_tables import REFUSED_PAUSE_S, Confirming
from gateway.commit.known_tables import KnownTable
from gateway.commit.metrics import Done, MutationStage
from gateway.commit.requests import Request
from gateway.commit.swapping import swap
from gateway.commit.target_queues import TargetBusyError, Turn
from gateway.errors import CommitStateUnknownError, GatewayError, UnavailableError
from gateway.identity import Arrived
from gateway.mutations import Operation
from ledger.format.events import CommitDecision

BODY_BYTES_MAX: Final = 64 * 1024
"""A body is kept until the commit is made: the request may need it again."""
_IF_NOT_RECORDED: Final = (UnavailableError, CommitStateUnknownError)
"""Until a decision is recorded, nothing tells whether the caller may learn more than that the log cannot be written."""


async def commit(request: Request, gateway: Gateway, done: Done) -> Changed:
    """
    Take one mutation through all steps of `commit_flow.commit`, if possible on what is known.

    Raises as that does.
    """
    if (known := _known(request, gateway)) is not None:
        tried = _Trial(request, gateway, done)
        changed = await tried.commit(*known)
        if changed is not None:
            return changed
        request = tried.request_again()
    return await commit_flow.commit(request, gateway, done)


def _known(request: Request, gateway: Gateway) -> tuple[Arrived, KnownTable | None] | None:
    """
    Return who a commit is from, what is in force, and where its table is, if it is built-in; None if that has to be
    read.
    """
    length = request.content_length
    if request.operation is not Operation.TABLE_COMMIT or request.idempotency_key is not None:
        return None
    if length is None or length > BODY_BYTES_MAX or (target := request.table()) is None:
        return None
    if (arrived := gateway.authenticator.known(request.credentials)) is None:
        return None
    log_id = arrived.principal.log_id
    table = gateway.known_tables.get(log_id, target)
    return None if table is None and gateway.kept_tables.get(log_id, target) is None else (arrived, table)


class _Trial:
    """A commit that is tried."""

    def __init__(self, request: Request, gateway: Gateway, done: Done) -> None:
        self._request = request
        self._gateway = gateway
        self._done = done
        self._body: bytes | None = None
        """The body of the request, once it was read."""
        self._told: tuple[type[GatewayError], ...] = ()
        """The errors that the caller may be told by now."""

    def request_again(self) -> Request:
        """Return the request as it was before: its body can be read again."""
        return self._request if self._body is None else replace(self._request, chunks=_again(self._body))

    async def commit(self, arrived: Arrived, table: KnownTable | None) -> Changed | None:
        """
        Make the commit; None if all steps have to be taken.

        Raises:
            UnavailableError, CommitStateUnknownError: as `swap`, and `TargetBusyError` as `TargetQueues.turn`.
            GatewayError: as `forward`, once the decision is recorded.
            UnauthorizedError: if it has waited, and the credentials are not in force any more.
        """
        try:
            flow = await self._prepared(arrived, table)
            async with flow.turn() as turn:
                if flow.catalog.changed_by is ChangedBy.REQUEST:
                    changed = await self._forwarded(flow, flow.catalog, turn)
                else:
                    changed = None if table is None else await self._swapped(flow, flow.catalog, turn)
        except TargetBusyError:
            # It has waited long enough; only the caller is still to be verified.
            await self._gateway.authenticator.authenticate(self._request.credentials)
            raise
        except GatewayError as error:
            if isinstance(error, self._told):
                raise
            return None
        if changed is not None:
            flow.note_left(changed)  # since the turn is over, nothing of this process is newer
            self._done(MutationStage.ANSWER)
        return changed

    async def _prepared(self, arrived: Arrived, table: KnownTable | None) -> Flow:
        """Steps 1 to 7. Raises what the request would be refused with."""
        arrived_s = monotonic()
        if table is not None:
            arrived, arrived_s = replace(arrived, table=table.row), table.since_s
        read = await read_rest(self._request, self._gateway, self._done, arrived, arrived_s)
        self._body = read.body
        return await parse_and_find(self._request, self._gateway, self._done, read)

    async def _swapped(self, flow: Flow, catalog: SwapsPointer, turn: Turn) -> Changed | None:
        """Steps 8 to 13 in the built-in catalog; None if something is not as it was known."""
        read, mutation = flow.read, flow.requested.mutation
        if turn.before is None and turn.is_newer_than(read.arrived_s):
            return None  # another mutation of this process has changed the table since
        plan = await flow.load(turn.before, partial(catalog.load, mutation.target, row=read.arrived.table))
        if isinstance(plan, Feasible) and changes_nothing(plan.change, plan.loaded):
            return None
        approved = await _approved(flow, plan)
        if approved is None:
            return None
        self._told = _IF_NOT_RECORDED
        outcome = await swap(catalog, approved, turn)
        if isinstance(outcome, Changed):
            turn.end(outcome.left)
            return outcome
        if outcome is None and turn.before is None:
            _note_vain(flow)
        return None

    async def _forwarded(self, flow: Flow, catalog: Forwards, turn: Turn) -> Changed | None:
        """Steps 8 to 13 in a foreign catalog; None if something is not as it was known."""
        target, kept = flow.requested.mutation.target, self._gateway.kept_tables
        left = kept.get(flow.read.log_id, target)
        if left is None:
            return None
        with Confirming(catalog, target, left) as confirming:
            if flow.is_permitted:
                await confirming.begin()  # before anything is judged
            approved = await _approved(flow, await flow.load(left))
            if approved is None:
                return None
            await confirming.begin()
            outgoing = await prepare(catalog, approved)
            if confirming.is_refuted():
                kept.forget(flow.read.log_id, target)
                return None

            async def confirmed() -> bool:
                self._told = (GatewayError,)  # the decision is recorded
                return await confirming.is_shown()

            self._told = _IF_NOT_RECORDED
            with turn.ending_after(FORWARD_TURN_S):
                outcome = await forward_prepared(catalog, approved, outgoing, confirmed=confirmed)
        return outcome if isinstance(outcome, Changed) else None


async def _approved(flow: Flow, plan: Plan) -> Approved | None:
    """Steps 8 to 10 on a target that was loaded; None if the commit cannot be made, or is not approved."""
    state = flow.gateway.rules_at_arrival(flow.read.arrived)
    flow.done(MutationStage.LOAD)
    if not isinstance(plan, Feasible):
        return None
    flow.done(MutationStage.CONTROL)
    ends = await flow.judge(state, plan, at=flow.gateway.clock())
    flow.done(MutationStage.JUDGE)
    if ends[-1].judgement.decision is not CommitDecision.APPROVED:
        _note_vain(flow)  # it is judged twice now, the next one once
        return None
    return flow.approved(plan, ends, is_last=False)


def _note_vain(flow: Flow) -> None:
    gateway, log_id, target = flow.gateway, flow.read.log_id, flow.requested.mutation.target
    if flow.catalog.changed_by is ChangedBy.GUARD:
        gateway.known_tables.tried_in_vain(log_id, target)
    else:
        gateway.kept_tables.forget(log_id, target, pause_s=REFUSED_PAUSE_S)


async def _again(body: bytes) -> AsyncIterator[bytes]:
    yield body
