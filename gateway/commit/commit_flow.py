# SPDX-License-Identifier: Apache-2.0
"""
How every catalog mutation passes through the gateway, step by step. This is the file to read.

     1  tenant       comes from the credentials, never from the path
     2  identifiers  in the path are decoded, bounded and free of control characters
     3  principal    the actor and roles that the credentials stand for, still in force
     4  body         read up to its cap; the request's keyed hash
     5  parse        into one typed mutation; unknown updates and requirements are refused by name
     6  repeats      a request that was made before under its Idempotency-Key is answered from the log (`repeats.py`)
     7  catalog      the adapter behind the alias, as the tenant's control plane has it
     8  load         the target as it is, what the mutation would make of it, and whether names and places are its own;
                     a foreign catalog is asked for it while step 1 reads the rights (`early_loads.py`)
     9  control      policies and access rules, brought up to the log's newest control entry
    10  judge        access first (forbid > permit > default deny), then every policy
    11  decide       the decision, durable before anything is changed
    12  change       the pointer is swapped, or the foreign catalog is sent the request
    13  settle       the outcome is recorded
    14  answer       what the engine receives

Step 6 comes last: only what cannot be made is looked for in the log.

What steps 1 and 8 read is known of a caller who was just verified, and of a table that this process has changed last;
steps 11 to 13 tell whether it is still so. So such a commit is first tried without reading it (`as_known.py`). Only a
foreign catalog is asked all the same, while steps 9 to 11 are taken (`kept_tables.py`).

From step 8 on, the mutations of one target take turns in this process (`target_queues.py`): each is judged on what the
one before it makes. Only other processes are raced. A mutation that loses such a race takes another turn, and is loaded
and judged again for as long as its requirements hold, within bounds of number and time. Callers who are known not to be
permitted wait for no turn: they change nothing, and must not delay those who may.

A catalog whose pointers are rows of our database (`SwapsPointer`) does steps 11 to 13 in one group: its guard swaps the
pointer in the transaction that appends decision and outcome (`swapping.py`). For a foreign catalog (`Forwards`) they
are a group whose guard opens the decision, a request, and a group whose guard closes it (`forwarding.py`). A
transaction takes the same steps for several tables at once (`transaction.py`).

What this file guarantees: no change without a record of it before, no accepted record without the change, judged by
exactly the rules in force at its place in the log, and an answer that never claims more than is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Final, TypeAlias
from uuid import UUID

from gateway.catalogs.catalog import Change, ChangedBy, FoundFile, Loaded
from gateway.catalogs.judged_metadata import DigestOf, JudgedMetadata
from gateway.catalogs.registry import Adapter
from gateway.commit.approved import Approved, Changed, Judged
from gateway.commit.changes import change
from gateway.commit.decision_ids import DecisionIds
from gateway.commit.early_loads import EarlyLoad
from gateway.commit.events import Requested, decided
from gateway.commit.forwarding import forward
from gateway.commit.gateway import Gateway
from gateway.commit.judgement import JudgedRequest, Judgement, KnownDecision
from gateway.commit.metrics import Done, MutationStage
from gateway.commit.repeats import Repeats, made_before
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
    PolicyDeniedError,
    RequirementFailedError,
    UnavailableError,
    UndecidableError,
)
from gateway.identifiers import Target
from gateway.identity.authenticator import Arrived
from gateway.log_errors import append_errors
from gateway.metadata import known_uuid
from gateway.mutations import Mutation, parse_mutation
from gateway.policy.access import Access
from gateway.policy.variables import RequestView
from ledger.errors import GroupMismatchError
from ledger.format.canonical import Json
from ledger.format.event import derived_group_id
from ledger.format.events import CommitDecision
from ledger.format.sequence import Group, Stale
from ledger.values import value_class

ATTEMPTS_MAX: Final = 50
"""Attempts of a commit that loses races with other processes while its requirements still hold."""
ATTEMPTS_S: Final = 20.0
"""The last attempt of such a commit begins before this time is over."""
PAUSE_S_MAX: Final = 0.02
"""Before the next attempt it pauses, up to this long at random, so that two processes do not keep step."""
FORWARD_TURN_S: Final = 1.0
"""After this long, a mutation that waits for a foreign catalog delays the next ones of its target no more."""
LOCATION: Final = "location"
"""The property of a namespace that says where its tables are to be."""
STALE_MAX: Final = 5
"""Times a request is judged before it is given up because the rules keep changing."""


async def commit(request: Request, gateway: Gateway, done: Done) -> Changed:
    """
    Take one mutation through all steps.

    Raises:
        GatewayError: if it was refused, conflicted, or could not be done; its class says whether anything was changed.
    """
    with EarlyLoad(gateway, request) as early:
        return await _commit(request, gateway, done, early)


async def _commit(request: Request, gateway: Gateway, done: Done, early: EarlyLoad) -> Changed:
    read = await read_request(request, gateway, done, early)
    flow = await parse_and_find(request, gateway, done, read)
    mutation, catalog, ids = flow.requested.mutation, flow.catalog, flow.ids
    first = partial(read.first_load, catalog, early) if mutation.target == read.path else None
    run = partial(flow.run, first=first)
    if ids.is_repeatable:
        repeats = read.repeats(gateway, ids)
        changed = await repeats.make_once(run, partial(made_before, catalog, mutation, flow.check_permitted))
    else:
        changed = await run()
    flow.note_left(changed)
    done(MutationStage.ANSWER)
    return changed


@value_class
class ReadRequest:
    """A request after step 4: who sent it, what its path names, and its body."""

    arrived: Arrived
    arrived_s: float
    state: ControlState
    path: Target
    body: bytes
    request_hash: str

    @property
    def log_id(self) -> int:
        """Return the log of the caller's tenant."""
        return self.arrived.principal.log_id

    async def first_load(self, catalog: Adapter, early: EarlyLoad) -> Loaded:
        """Return the target of the path as it was loaded early, or by its row, which was read at arrival."""
        return await early.loaded() or await catalog.load(self.path, row=self.arrived.table)

    def decision_ids(self, request: Request, gateway: Gateway) -> DecisionIds:
        """Return the ids of the request's decisions."""
        actor = self.arrived.principal.actor
        return DecisionIds(gateway.new_group_id, actor=actor, key=request.idempotency_key)

    def repeats(self, gateway: Gateway, ids: DecisionIds) -> Repeats:
        """Return what answers the request if it was made before."""
        return Repeats(gateway=gateway, principal=self.arrived.principal, request_hash=self.request_hash, ids=ids)

    def requested(self, request: Request, mutation: Mutation, body: bytes) -> Requested:
        """Return what the request is about, or (of a transaction) a part of that; `body` is the part's."""
        return Requested(
            mutation=mutation,
            principal=self.arrived.principal,
            method=request.method,
            path=request.path,
            client=request.client,
            address=request.address,
            body=body,
            request_hash=self.request_hash,
            onward=request.onward,
        )


async def read_request(request: Request, gateway: Gateway, done: Done, early: EarlyLoad | None = None) -> ReadRequest:
    """Steps 1 to 4; what a foreign catalog has of the table that the path names is loaded `early` meanwhile."""
    arrived_s, table = monotonic(), request.table()
    begin = None if early is None or table is None else partial(early.begin, target=table)
    arrived = await gateway.authenticator.arrive(request.credentials, table, foresee=begin)
    return await read_rest(request, gateway, done, arrived, arrived_s)


async def read_rest(request: Request, gateway: Gateway, done: Done, arrived: Arrived, arrived_s: float) -> ReadRequest:
    """Steps 2 to 4, and the end of step 1."""
    done(MutationStage.TENANT)
    path = request.target()
    done(MutationStage.IDENTIFIERS)
    # Both were read and checked in step 1: whom the credentials stand for, and what is in force.
    principal, state = arrived.principal, arrived.state
    done(MutationStage.PRINCIPAL)
    body = await read_body(
        request.chunks,
        content_length=request.content_length,
        size_bytes_max=min(request.body_size_bytes_max, gateway.intake.body_size_bytes_max),
    )
    key = await gateway.intake.request_keys.key(principal.log_id)
    keyed_hash = request_hash(key, method=request.method, path=request.asks_for, body=body)
    done(MutationStage.BODY)
    return ReadRequest(arrived=arrived, arrived_s=arrived_s, state=state, path=path, body=body, request_hash=keyed_hash)


async def parse_and_find(request: Request, gateway: Gateway, done: Done, read: ReadRequest) -> Flow:
    """Steps 5 and 7."""
    parse = partial(parse_mutation, request.operation, read.path, body=read.body, purge=request.purge)
    mutation = await gateway.intake.large_requests.parse(read.log_id, read.body, parse)
    done(MutationStage.PARSE)
    requested = read.requested(request, mutation, read.body)
    catalog = await find_catalog(gateway, read, requested)
    done(MutationStage.CATALOG)
    ids = read.decision_ids(request, gateway)
    return Flow(gateway=gateway, read=read, requested=requested, catalog=catalog, ids=ids, done=done)


async def find_catalog(gateway: Gateway, read: ReadRequest, requested: Requested) -> Adapter:
    """Step 7."""
    try:
        return gateway.catalog(requested.principal.tenant, read.state, read.path.alias, requested.onward)
    except NotFoundError:
        # Callers who are permitted nothing there get the same answer as for a catalog that exists.
        await check_permitted(gateway, read.state, requested)
        raise


def _unjudged(requested: Requested) -> JudgedRequest:
    """Return a request as access rules judge it, which see nothing of the target's state but its uuid."""
    request = RequestView(
        method=requested.method, path=requested.path, client_version=requested.client, address=requested.address
    )
    return JudgedRequest(commit=requested.mutation.view(), principal=requested.principal, request=request)


def _uuid(loaded: Loaded) -> str:
    """Return the uuid of a table or view, also of one that is to be registered; empty if there is none."""
    there = loaded.metadata if loaded.found is None else loaded.found.metadata
    return "" if there is None else known_uuid(there)


async def check_permitted(gateway: Gateway, state: ControlState, requested: Requested) -> None:
    """Check access where there is no catalog, and so nothing to decide."""
    nowhere = replace(_unjudged(requested), uuid="")
    judgement, mutation = await gateway.judge.access(state, nowhere), requested.mutation
    operation = mutation.operation.value
    await gateway.check_permitted(requested.principal, judgement, operation=operation, target=mutation.target)


@value_class
class Feasible:
    """The target as it was loaded, and what the mutation would make of it."""

    loaded: Loaded
    change: Change


@value_class
class Infeasible:
    """The target as it was loaded, and why the mutation cannot be made; the caller learns why once access permits."""

    loaded: Loaded
    error: GatewayError


Plan: TypeAlias = Feasible | Infeasible
Load: TypeAlias = Callable[[], Awaitable[Loaded]]


@value_class
class Flow:
    """Steps 8 to 13 of one request, or of one commit of a transaction."""

    gateway: Gateway
    read: ReadRequest
    requested: Requested
    catalog: Adapter
    ids: DecisionIds
    done: Done
    unjudged: JudgedRequest = field(init=False)
    known: KnownDecision | None = field(init=False)
    """What the access rules that were in force at arrival decide, if that is known."""

    def __post_init__(self) -> None:
        unjudged = _unjudged(self.requested)
        object.__setattr__(self, "unjudged", unjudged)
        object.__setattr__(self, "known", self.gateway.judge.known_decision(self.read.state, unjudged))

    @property
    def is_permitted(self) -> bool:
        """Return whether the access rules that were in force at arrival are known to permit it."""
        return self._is_known_to_be(Access.PERMITTED)

    def _is_known_to_be(self, decided: Access) -> bool:
        return self.known is not None and self.known.judged.decision.outcome is decided

    def turn(self) -> AbstractAsyncContextManager[Turn]:
        """Wait for the target's turn; not those who are known to be refused: they must not delay others."""
        is_refused = self._is_known_to_be(Access.DENIED)
        queues = TargetQueues() if is_refused else self.gateway.queues
        return queues.turn(self.read.log_id, self.requested.mutation.target)

    async def run(self, *, first: Load | None) -> Changed:
        """Attempt it until no other process was first. `first` loads the target by what was read at arrival."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ATTEMPTS_S
        for attempt in range(1, ATTEMPTS_MAX + 1):
            async with self.turn() as turn:
                # The credentials may have expired while this one waited.
                state = self.gateway.rules_at_arrival(self.read.arrived) if attempt == 1 else await self.rules()
                is_last = attempt == ATTEMPTS_MAX or loop.time() > until_s
                if turn.is_newer_than(self.read.arrived_s):
                    first = None
                changed = await self._attempt(state, turn, first, is_last=is_last)
                if changed is not None:
                    turn.end(changed.left)
                    return changed
            if await turn.before_is_made():
                self.gateway.races.note(self.requested.path)
            if is_last:
                break
            # The target was changed meanwhile: load it again and see whether the requirements still hold.
            first = None
            await asyncio.sleep(PAUSE_S_MAX * self.gateway.random(1)[0] / 255)
        path = self.requested.mutation.target.path
        raise RequirementFailedError(f"Commit failed: other processes changed {path} {attempt} times meanwhile")

    async def _attempt(self, state: ControlState, turn: Turn, first: Load | None, *, is_last: bool) -> Changed | None:
        """Load, judge and change once; None if another process was first, or what it was judged on is not made."""
        plan = await self.load(turn.before, first)
        self.done(MutationStage.LOAD)
        for _ in range(STALE_MAX):
            # At first these are the rules of step 3. If they have changed since, the append returns Stale; they are
            # then brought up to date and the request is judged again.
            self.done(MutationStage.CONTROL)
            ends = await self.judge(state, plan, at=self.gateway.clock())
            self.done(MutationStage.JUDGE)
            outcome = await self._decide(ends, plan, turn, is_last=is_last)
            if not isinstance(outcome, Stale):
                return outcome
            state = await self.rules()
        path = self.requested.mutation.target.path
        raise UnavailableError(f"{path}: policies changed {STALE_MAX} times while it was judged; nothing was changed")

    def note_left(self, changed: Changed) -> None:
        """Note where the mutation has left a table of the built-in catalog."""
        if changed.left is not None and self.catalog.changed_by is ChangedBy.GUARD:
            self.gateway.known_tables.left(self.read.log_id, changed.mutation.target, changed.left)

    async def rules(self) -> ControlState:
        """The rules as of now; the caller's credentials and the alias must still be in force in them."""
        principal = self.requested.principal
        state = await self.gateway.rules_in_force(principal)
        self.gateway.catalog(principal.tenant, state, self.requested.mutation.target.alias, self.requested.onward)
        return state

    async def check_permitted(self) -> None:
        """Check access as of now."""
        await check_permitted(self.gateway, await self.rules(), self.requested)

    async def load(self, seen: Loaded | None, first: Load | None = None) -> Plan:
        """Step 8, without reading what is known: the target as it was `seen`, or as `first` loads it."""
        mutation = self.requested.mutation
        loaded = Loaded(namespace_exists=False)
        try:
            loaded = seen or await (partial(self.catalog.load, mutation.target) if first is None else first)()
            loaded = await self._load_more(loaded)
            now_ms = int(self.gateway.clock().timestamp() * 1000)
            planned = change(mutation, loaded, self.catalog, now_ms=now_ms, random=self.gateway.random)
            await self.catalog.check(mutation, loaded, planned)
        except UnavailableError:
            raise
        except GatewayError as error:
            return Infeasible(loaded=loaded, error=error)
        return Feasible(loaded=loaded, change=planned)

    async def _load_more(self, loaded: Loaded) -> Loaded:
        """What some need besides: the file of what is registered, a new name, where a namespace has its tables."""
        mutation = self.requested.mutation
        is_there = loaded.metadata is not None or loaded.is_of_other_kind
        if mutation.registered is not None and loaded.namespace_exists and not is_there:
            await self._check_may_have_files_read()
            found = await self.catalog.find_file(mutation.registered, is_view=mutation.target.is_view)
            return replace(loaded, found=found, judged=self._judged_on(found))
        if mutation.destination is not None and is_there:
            return replace(loaded, there=await self.catalog.load(mutation.destination))
        is_new = mutation.create is not None and not mutation.create.get("location") and not is_there
        if is_new and self.catalog.changed_by is ChangedBy.GUARD and loaded.namespace_exists:
            target = mutation.target
            namespace = await self.catalog.load(Target(alias=target.alias, namespace=target.namespace))
            return replace(loaded, namespace_location=(namespace.properties or {}).get(LOCATION))
        return loaded

    def _judged_on(self, found: FoundFile) -> JudgedMetadata | None:
        """Return what a foreign catalog's decision records of a file; of a built-in one, its outcome does."""
        if self.catalog.changed_by is ChangedBy.GUARD:
            return None
        return JudgedMetadata(location=found.location, of=DigestOf.FILE, sha256=found.sha256)

    async def _check_may_have_files_read(self) -> None:
        """Nobody has files read who may not register: that takes time, perhaps another host's, that others wait for."""
        judgement = await self.gateway.judge.access(self.read.state, self.unjudged)
        if judgement.decision is CommitDecision.REJECTED:
            raise ForbiddenError(judgement.message)  # access is judged again below, and that is recorded

    async def judge(self, state: ControlState, plan: Plan, *, at: datetime) -> Sequence[Judged]:
        """
        Step 10, of both ends of a rename; whatever is behind one that is not approved is not judged.

        Policies come into force at times, so a judgement is one `at` a time, which is recorded with it.
        """
        state = state.at(at)
        judgement = await self._judge_end(state, plan, self.unjudged, at, self.known)
        ends, other = [Judged(self.requested, judgement, at)], self.requested.mutation.other_end
        if other is not None and judgement.decision is CommitDecision.APPROVED:
            requested = replace(self.requested, mutation=other)
            ends.append(Judged(requested, await self._judge_end(state, plan, _unjudged(requested), at), at))
        return ends

    async def _judge_end(
        self, state: ControlState, plan: Plan, unjudged: JudgedRequest, at: datetime, known: KnownDecision | None = None
    ) -> Judgement:
        """Without a result there is nothing for policies: access alone says whether the caller learns why."""
        judge, table = self.gateway.judge, plan.loaded.metadata
        uuid = _uuid(plan.loaded) if state.reads_uuid else ""
        match plan:
            case Feasible(change=planned):
                request = JudgedRequest(
                    commit=unjudged.commit,
                    principal=unjudged.principal,
                    request=unjudged.request,
                    table=table,
                    result=planned.metadata,
                    at=at,
                    uuid=uuid,
                )
                judgement = await judge.access_and_policies(state, request, known)
            case Infeasible():
                judgement = await judge.access(state, replace(unjudged, table=table, uuid=uuid))
        judge.count_failures(judgement)
        return judgement

    async def _decide(self, ends: Sequence[Judged], plan: Plan, turn: Turn, *, is_last: bool) -> Changed | Stale | None:
        """Steps 11 to 13; raises what the engine is answered if the decision is no."""
        judgement = ends[-1].judgement  # only the last one may be a no
        is_approved = judgement.decision is CommitDecision.APPROVED and isinstance(plan, Feasible)
        if not is_approved and not await turn.before_is_made():
            return None  # nothing is refused for what the target never was
        if judgement.decision is not CommitDecision.APPROVED:
            return await self.refuse(ends[-1], plan.loaded, refusal_of(judgement))
        match plan:
            case Infeasible():
                return await self.cannot(plan, ends[0])
            case Feasible():
                approved, catalog = self.approved(plan, ends, is_last=is_last), self.catalog
                if catalog.changed_by is ChangedBy.GUARD:
                    return await swap(catalog, approved, turn)
                with turn.ending_after(FORWARD_TURN_S):
                    return await forward(catalog, approved)

    def approved(self, plan: Feasible, ends: Sequence[Judged], *, is_last: bool) -> Approved:
        return Approved(
            gateway=self.gateway,
            log_id=self.read.log_id,
            ends=ends,
            loaded=plan.loaded,
            change=plan.change,
            ids=self.ids,
            is_last=is_last,
            done=self.done,
        )

    async def cannot(self, plan: Infeasible, judged: Judged) -> Stale:
        """Raise why the mutation cannot be made; a conflict is a decision, and recorded before."""
        error = plan.error
        if self.requested.mutation.staged or not isinstance(error, ConflictError | RequirementFailedError):
            raise error
        conflict = replace(judged.judgement, decision=CommitDecision.CONFLICTED, message=str(error))
        return await self.refuse(replace(judged, judgement=conflict), plan.loaded, error)

    async def refuse(self, end: Judged, loaded: Loaded, error: GatewayError) -> Stale:
        """Step 11 for a decision that changes nothing; raises `error` once it is durable."""
        gateway, judgement = self.gateway, end.judgement
        is_undecidable = judgement.decision is CommitDecision.UNDECIDABLE
        event = decided(end.requested, judgement, loaded, None, at=end.at, random=gateway.random)
        group_id = self._id_of_undecidable(judgement) if is_undecidable else self.ids.next()
        group = Group(id=group_id, then=(event,), as_of=judgement.as_of)
        try:
            with append_errors(not_appended="the decision could not be recorded: nothing was changed, try again"):
                outcome = await gateway.append(self.read.log_id, group)
        except GroupMismatchError:
            if not is_undecidable:
                raise  # a request with a key was decided before: what it is answered is in the log
            # The log has the same request, undecided for the same cause, with other parts.
            raise error from None
        if isinstance(outcome, Stale):
            return outcome
        if not is_undecidable:
            self.ids.taken += 1
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


def refusal_of(judgement: Judgement) -> GatewayError:
    if judgement.decision is CommitDecision.UNDECIDABLE:
        return UndecidableError(f"policies could not be evaluated, so nothing was changed: {judgement.message}")
    return (PolicyDeniedError if judgement.is_of_policies else ForbiddenError)(judgement.message)
