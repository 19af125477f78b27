# SPDX-License-Identifier: Apache-2.0
"""
Commits that are tried on what the process knows, without reading it first: the log tells whether it is still so.

A group is checked under the lock of its log, whatever was read before. It is stale if a control entry is newer than
those by which it was judged, and its guard holds only if the table's pointer is where it was judged. Keys are revoked,
and rules, policies and catalogs changed, by control entries; a person is erased in the group that revokes their keys.
So if the caller was just verified, and this process has changed the table last, a commit to the built-in catalog goes
from the request to its append without a read.

Guarantee: what is answered on that is a commit that the log has, or that the log could not be written. One that is
refused, cannot be made, changes nothing, is stale or meets another pointer takes all steps of `commit_flow.py`, and is
answered as if it had not been tried. Until then nobody has learned anything, and nothing but a file was written, which
is deleted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Final

from gateway.catalogs.catalog import ChangedBy, SwapsPointer
from gateway.commit import commit_flow
from gateway.commit.approved import Approved, Changed
from gateway.commit.changes import changes_nothing
from gateway.commit.commit_flow import Feasible, Flow, parse_and_find, read_rest
from gateway.commit.gateway import Gateway
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


def _known(request: Request, gateway: Gateway) -> tuple[Arrived, KnownTable] | None:
    """Return who a commit is from, what is in force, and where its table is; None if that has to be read."""
    length = request.content_length
    if request.operation is not Operation.TABLE_COMMIT or request.idempotency_key is not None:
        return None
    if length is None or length > BODY_BYTES_MAX or (target := request.table()) is None:
        return None
    if (arrived := gateway.authenticator.known(request.credentials)) is None:
        return None
    table = gateway.known_tables.get(arrived.principal.log_id, target)
    return None if table is None else (arrived, table)


class _Trial:
    """A commit that is tried."""

    def __init__(self, request: Request, gateway: Gateway, done: Done) -> None:
        self._request = request
        self._gateway = gateway
        self._done = done
        self._body: bytes | None = None
        """The body of the request, once it was read."""

    def request_again(self) -> Request:
        """Return the request as it was before: its body can be read again."""
        return self._request if self._body is None else replace(self._request, chunks=_again(self._body))

    async def commit(self, arrived: Arrived, table: KnownTable) -> Changed | None:
        """
        Make the commit; None if all steps have to be taken.

        Raises:
            UnavailableError, CommitStateUnknownError: as `swap`, and `TargetBusyError` as `TargetQueues.turn`.
            UnauthorizedError: if it has waited, and the credentials are not in force any more.
        """
        is_approved = False
        try:
            flow, catalog = await self._prepared(arrived, table)
            if catalog is None:
                return None
            async with flow.turn() as turn:
                approved = await _approved(flow, catalog, turn)
                if approved is None:
                    return None
                is_approved = True
                changed = await _swapped(flow, catalog, approved, turn)
        except TargetBusyError:
            # It has waited long enough; only the caller is still to be verified.
            await self._gateway.authenticator.authenticate(self._request.credentials)
            raise
        except GatewayError as error:
            # Nothing has told yet whether the caller may learn why, unless the log cannot be written.
            if is_approved and isinstance(error, UnavailableError | CommitStateUnknownError):
                raise
            return None
        if changed is not None:
            flow.note_left(changed)  # since the turn is over, nothing of this process is newer
            self._done(MutationStage.ANSWER)
        return changed

    async def _prepared(self, arrived: Arrived, table: KnownTable) -> tuple[Flow, SwapsPointer | None]:
        """Steps 1 to 7. Raises what the request would be refused with."""
        arrived = Arrived(principal=arrived.principal, state=arrived.state, table=table.row)
        read = await read_rest(self._request, self._gateway, self._done, arrived, table.since_s)
        self._body = read.body
        flow = await parse_and_find(self._request, self._gateway, self._done, read)
        return flow, flow.catalog if flow.catalog.changed_by is ChangedBy.GUARD else None


async def _approved(flow: Flow, catalog: SwapsPointer, turn: Turn) -> Approved | None:
    """Steps 8 to 10; None if the commit cannot be made, is not approved, or changes nothing."""
    read, target = flow.read, flow.requested.mutation.target
    if turn.before is None and turn.is_newer_than(read.arrived_s):
        return None  # another mutation of this process has changed the table since
    state = flow.gateway.rules_at_arrival(read.arrived)
    plan = await flow.load(turn.before, partial(catalog.load, target, row=read.arrived.table))
    flow.done(MutationStage.LOAD)
    if not isinstance(plan, Feasible) or changes_nothing(plan.change, plan.loaded):
        return None
    flow.done(MutationStage.CONTROL)
    ends = await flow.judge(state, plan, at=flow.gateway.clock())
    flow.done(MutationStage.JUDGE)
    if ends[-1].judgement.decision is not CommitDecision.APPROVED:
        _note_vain(flow)  # it is judged twice now, the next one once
        return None
    return flow.approved(plan, ends, is_last=False)


async def _swapped(flow: Flow, catalog: SwapsPointer, approved: Approved, turn: Turn) -> Changed | None:
    """Steps 11 to 13; None if something is not as it was known. Raises as `swap`."""
    outcome = await swap(catalog, approved, turn)
    if isinstance(outcome, Changed):
        turn.end(outcome.left)
        return outcome
    if outcome is None and turn.before is None:
        _note_vain(flow)
    return None


def _note_vain(flow: Flow) -> None:
    flow.gateway.known_tables.tried_in_vain(flow.read.log_id, flow.requested.mutation.target)


async def _again(body: bytes) -> AsyncIterator[bytes]:
    yield body
