# SPDX-License-Identifier: Apache-2.0
"""
How every catalog mutation passes through the gateway, step by step. This is the file to read.

     1  tenant       comes from the credentials, never from the path
     2  identifiers  in the path are decoded, bounded and free of control characters
     3  principal    the actor and roles that the credentials stand for, still in force
     4  body         read up to its cap; the request's keyed hash
     5  parse        into one typed mutation; unknown updates and requirements are refused by name
     7  catalog      the adapter behind the alias, as the tenant's control plane has it
     8  load         the target as it is, what the mutation would make of it, and whether names and places are its own
     9  control      policies and access rules, brought up to the log's newest control entry
    10  judge        access first (forbid > permit > default deny), then every policy
    11  decide       the decision, durable before anything is changed
    12  change       the pointer is swapped, or the foreign catalog is sent the request
    13  settle       the outcome is recorded
    14  answer       what the engine receives

Step 6 is reserved for idempotency keys: no key lifetime is advertised, so engines send none.

From step 8 on, the mutations of one target take turns in this process (`target_queues.py`): each is judged on what the
one before it makes. Only other processes are raced. A mutation that loses such a race takes another turn, and is loaded
and judged again for as long as its requirements hold, within bounds of number and time. Callers who are known not to be
permitted wait for no turn: they change nothing, and must not delay those who may.

A catalog whose pointers are rows of our database (`SwapsPointer`) does steps 11 to 13 in one group: its guard swaps the
pointer in the transaction that appends decision and outcome (`swapping.py`). For a foreign catalog (`Forwards`) they
are a group whose guard opens the decision, a request, and a group whose guard closes it (`forwarding.py`).

What this file guarantees: no change without a record of it before, no accepted record without the change, judged by
exactly the rules in force at its place in the log, and an answer that never claims more than is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final, TypeAlias
from uuid import UUID

from gateway.catalogs.catalog import Change, ChangedBy, Loaded
from gateway.catalogs.registry import Adapter
from gateway.commit.approved import Approved, Changed, Judged
from gateway.commit.changes import change
from gateway.commit.events import Requested, decided
from gateway.commit.forwarding import forward
from gateway.commit.gateway import Gateway
from gateway.commit.judgement import JudgedRequest, Judgement
from gateway.commit.metrics import Done, MutationStage
from gateway.commit.request_hash import request_hash
from gateway.commit.requests import Request, read_body
from gateway.commit.swapping import swap
from gateway.commit.target_queues import TargetQueues, Turn
from gateway.control.plane import ControlState
from gateway.errors import (
    ConflictError,
    ForbiddenError,
    GatewayError,
    NotFoundError,
    RequirementFailedError,
    UnavailableError,
)
from gateway.fresh import TableRow
from gateway.identity.authenticator import Arrived
from gateway.log_errors import append_errors
from gateway.mutations import parse_mutation
from gateway.policy.variables import RequestView
from ledger.errors import GroupMismatchError
from ledger.format.canonical import Json
from ledger.format.event import derived_group_id
from ledger.format.events import CommitDecision
from ledger.format.sequence import Group, Stale

ATTEMPTS_MAX: Final = 50
"""Attempts of a commit that loses races with other processes while its requirements still hold."""
ATTEMPTS_S: Final = 20.0
"""The last attempt of such a commit begins before this time is over."""
PAUSE_S_MAX: Final = 0.02
"""Before the next attempt it pauses, up to this long at random, so that two processes do not keep step."""
FORWARD_TURN_S: Final = 1.0
"""After this long, a mutation that waits for a foreign catalog delays the next ones of its target no more."""
STALE_MAX: Final = 5
"""Times a request is judged before it is given up because the rules keep changing."""


async def commit(request: Request, gateway: Gateway, done: Done) -> Changed:
    """
    Take one mutation through all steps.

    Raises:
        GatewayError: if it was refused, conflicted, or could not be done; its class says whether anything was changed.
    """
    arrived_s = monotonic()
    arrived = await gateway.authenticator.arrive(request.authorization, request.table())
    done(MutationStage.TENANT)
    path = request.target()
    done(MutationStage.IDENTIFIERS)
    # Both were read in step 1: whom the credentials stand for, and what is in force.
    principal, state = arrived.principal, gateway.rules_at_arrival(arrived)
    done(MutationStage.PRINCIPAL)
    body = await read_body(
        request.chunks,
        content_length=request.content_length,
        size_bytes_max=min(request.body_size_bytes_max, gateway.intake.body_size_bytes_max),
    )
    key = await gateway.intake.request_keys.key(principal.log_id)
    keyed_hash = request_hash(key, method=request.method, path=request.path, body=body)
    done(MutationStage.BODY)
    parse = partial(parse_mutation, request.operation, path, body=body, purge=request.purge)
    mutation = await gateway.intake.large_requests.parse(principal.log_id, body, parse)
    done(MutationStage.PARSE)
    requested = Requested(
        mutation=mutation,
        principal=principal,
        method=request.method,
        path=request.path,
        client=request.client,
        body=body,
        request_hash=keyed_hash,
        onward=request.onward,
    )
    try:
        catalog = gateway.catalog(principal.tenant, state, path.alias, request.onward)
    except NotFoundError:
        # Callers who are permitted nothing there get the same answer as for a catalog that exists.
        await _check_permitted(gateway, state, requested)
        raise
    done(MutationStage.CATALOG)
    unjudged = _unjudged(requested)
    flow = _Flow(
        gateway=gateway,
        log_id=principal.log_id,
        arrived=arrived,
        arrived_s=arrived_s,
        requested=requested,
        unjudged=unjudged,
        catalog=catalog,
        queues=TargetQueues() if gateway.judge.is_known_refused(state, unjudged) else gateway.queues,
        done=done,
    )
    changed = await flow.run(row=arrived.table if mutation.target == path else None)
    done(MutationStage.ANSWER)
    return changed


def _unjudged(requested: Requested) -> JudgedRequest:
    """Return a request as access rules judge it, which do not see the target's state."""
    request = RequestView(method=requested.method, path=requested.path, client_version=requested.client)
    return JudgedRequest(commit=requested.mutation.view(), principal=requested.principal, request=request)


async def _check_permitted(gateway: Gateway, state: ControlState, requested: Requested) -> None:
    """Check access where there is no catalog, and so nothing to decide."""
    judgement, mutation = await gateway.judge.access(state, _unjudged(requested)), requested.mutation
    operation = mutation.operation.value
    await gateway.check_permitted(requested.principal, judgement, operation=operation, target=mutation.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Feasible:
    """The target as it was loaded, and what the mutation would make of it."""

    loaded: Loaded
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class _Infeasible:
    """The target as it was loaded, and why the mutation cannot be made; the caller learns why once access permits."""

    loaded: Loaded
    error: GatewayError


_Plan: TypeAlias = _Feasible | _Infeasible


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """Steps 8 to 13 of one request."""

    gateway: Gateway
    log_id: int
    arrived: Arrived
    arrived_s: float
    requested: Requested
    unjudged: JudgedRequest
    catalog: Adapter
    queues: TargetQueues
    done: Done

    async def run(self, *, row: TableRow | None) -> Changed:
        """Attempt it until no other process was first. `row` is the target's row, read when the request arrived."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ATTEMPTS_S
        for attempt in range(1, ATTEMPTS_MAX + 1):
            async with self.queues.turn(self.log_id, self.requested.mutation.target) as turn:
                # The credentials may have expired while this one waited.
                state = self.gateway.rules_at_arrival(self.arrived) if attempt == 1 else await self._rules()
                is_last = attempt == ATTEMPTS_MAX or loop.time() > until_s
                if turn.is_newer_than(self.arrived_s):
                    row = None
                changed = await self._attempt(state, turn, row, is_last=is_last)
                if changed is not None:
                    turn.end(changed.left)
                    return changed
            if await turn.before_is_made():
                self.gateway.races.note(self.requested.path)
            if is_last:
                break
            # The target was changed meanwhile: load it again and see whether the requirements still hold.
            row = None
            await asyncio.sleep(PAUSE_S_MAX * self.gateway.random(1)[0] / 255)
        path = self.requested.mutation.target.path
        raise RequirementFailedError(f"Commit failed: other processes changed {path} {attempt} times meanwhile")

    async def _attempt(self, state: ControlState, turn: Turn, row: TableRow | None, *, is_last: bool) -> Changed | None:
        """Load, judge and change once; None if another process was first, or what it was judged on is not made."""
        plan = await self._load(turn.before, row)
        self.done(MutationStage.LOAD)
        for _ in range(STALE_MAX):
            # At first these are the rules of step 3. If they have changed since, the append returns Stale; they are
            # then brought up to date and the request is judged again.
            self.done(MutationStage.CONTROL)
            ends = await self._judge(state, plan)
            self.done(MutationStage.JUDGE)
            outcome = await self._decide(ends, plan, turn, is_last=is_last)
            if not isinstance(outcome, Stale):
                return outcome
            state = await self._rules()
        path = self.requested.mutation.target.path
        raise UnavailableError(f"{path}: policies changed {STALE_MAX} times while it was judged; nothing was changed")

    async def _rules(self) -> ControlState:
        """The rules as of now; the caller's credentials and the alias must still be in force in them."""
        principal = self.requested.principal
        state = await self.gateway.rules_in_force(principal)
        self.gateway.catalog(principal.tenant, state, self.requested.mutation.target.alias, self.requested.onward)
        return state

    async def _load(self, seen: Loaded | None, row: TableRow | None) -> _Plan:
        """Step 8, without reading what is known: the target as it was `seen`, or its `row`."""
        mutation = self.requested.mutation
        loaded = Loaded(namespace_exists=False)
        try:
            loaded = seen or await self.catalog.load(mutation.target, row=row)
            loaded = await self._load_more(loaded)
            now_ms = int(self.gateway.clock().timestamp() * 1000)
            planned = change(mutation, loaded, self.catalog, now_ms=now_ms, random=self.gateway.random)
            await self.catalog.check(mutation, loaded, planned)
        except UnavailableError:
            raise
        except GatewayError as error:
            return _Infeasible(loaded=loaded, error=error)
        return _Feasible(loaded=loaded, change=planned)

    async def _load_more(self, loaded: Loaded) -> Loaded:
        """What only to register and to rename need: the file of a new table, the new name of one that is there."""
        mutation, is_there = self.requested.mutation, loaded.metadata is not None
        if mutation.registered is not None and loaded.namespace_exists and not is_there:
            return replace(loaded, found=await self.catalog.find_file(mutation.registered))
        if mutation.destination is not None and is_there:
            return replace(loaded, there=await self.catalog.load(mutation.destination))
        return loaded

    async def _judge(self, state: ControlState, plan: _Plan) -> Sequence[Judged]:
        """Step 10, of both ends of a rename; whatever is behind one that is not approved is not judged."""
        judgement = await self._judge_end(state, plan, self.unjudged)
        ends, other = [Judged(self.requested, judgement)], self.requested.mutation.other_end
        if other is not None and judgement.decision is CommitDecision.APPROVED:
            requested = replace(self.requested, mutation=other)
            ends.append(Judged(requested, await self._judge_end(state, plan, _unjudged(requested))))
        return ends

    async def _judge_end(self, state: ControlState, plan: _Plan, unjudged: JudgedRequest) -> Judgement:
        """Without a result there is nothing for policies: access alone says whether the caller learns why."""
        judge, table = self.gateway.judge, plan.loaded.metadata
        match plan:
            case _Feasible(change=planned):
                request = replace(unjudged, table=table, result=planned.metadata)
                judgement = await judge.access_and_policies(state, request)
            case _Infeasible():
                judgement = await judge.access(state, replace(unjudged, table=table))
        judge.count_failures(judgement)
        return judgement

    async def _decide(
        self, ends: Sequence[Judged], plan: _Plan, turn: Turn, *, is_last: bool
    ) -> Changed | Stale | None:
        """Steps 11 to 13; raises what the engine is answered if the decision is no."""
        judgement = ends[-1].judgement  # only the last one may be a no
        is_approved = judgement.decision is CommitDecision.APPROVED and isinstance(plan, _Feasible)
        if not is_approved and not await turn.before_is_made():
            return None  # nothing is refused for what the target never was
        if judgement.decision is not CommitDecision.APPROVED:
            return await self._refuse(ends[-1], plan.loaded, _refusal(judgement))
        match plan:
            case _Infeasible(loaded=loaded, error=error):
                if self.requested.mutation.staged or not isinstance(error, ConflictError | RequirementFailedError):
                    raise error
                conflict = replace(ends[0].judgement, decision=CommitDecision.CONFLICTED, message=str(error))
                return await self._refuse(Judged(self.requested, conflict), loaded, error)
            case _Feasible(loaded=loaded, change=planned):
                approved = Approved(
                    gateway=self.gateway,
                    log_id=self.log_id,
                    ends=ends,
                    loaded=loaded,
                    change=planned,
                    is_last=is_last,
                    done=self.done,
                )
                catalog = self.catalog
                if catalog.changed_by is ChangedBy.GUARD:
                    return await swap(catalog, approved, turn)
                with turn.ending_after(FORWARD_TURN_S):
                    return await forward(catalog, approved)

    async def _refuse(self, end: Judged, loaded: Loaded, error: GatewayError) -> Stale:
        """Step 11 for a decision that changes nothing; raises `error` once it is durable."""
        gateway, judgement = self.gateway, end.judgement
        is_undecidable = judgement.decision is CommitDecision.UNDECIDABLE
        event = decided(end.requested, judgement, loaded, None, at=gateway.clock(), random=gateway.random)
        group_id = self._id_of_undecidable(judgement) if is_undecidable else gateway.new_group_id()
        group = Group(id=group_id, then=(event,), as_of=judgement.as_of)
        try:
            with append_errors(not_appended="the decision could not be recorded: nothing was changed, try again"):
                outcome = await gateway.append(self.log_id, group)
        except GroupMismatchError:
            if not is_undecidable:
                raise
            # The log has the same request, undecided for the same cause; only the parts of its entry differ.
            raise error from None
        if isinstance(outcome, Stale):
            return outcome
        self.done(MutationStage.DECIDE)
        raise error

    def _id_of_undecidable(self, judgement: Judgement) -> UUID:
        """Engines retry a 503: the same request, undecided for the same cause, is recorded once."""
        requested = self.requested
        content: dict[str, Json] = {
            "actor": requested.principal.actor,
            "cause": judgement.message,
            "policy_set": judgement.policy_set,
            "request": requested.request_hash,
        }
        return derived_group_id("commit.undecidable", content)


def _refusal(judgement: Judgement) -> GatewayError:
    if judgement.decision is CommitDecision.UNDECIDABLE:
        return UnavailableError(f"policies could not be evaluated, so nothing was changed: {judgement.message}")
    return ForbiddenError(judgement.message)
