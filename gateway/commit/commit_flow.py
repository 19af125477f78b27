"""
The way of every catalog mutation through the gateway, in fourteen steps. This is the file to read.

     1  tenant       comes from the credentials, never from the path
     2  identifiers  of the path are decoded, bounded and free of control characters
     3  principal    the actor and roles that the credentials stand for, still in force
     4  body         read up to its cap; the request's keyed hash
     5  parse        into one typed mutation; unknown updates and requirements are refused by name
     6  idempotency  no key lifetime is advertised, so engines send no key and there is nothing to claim
     7  catalog      the adapter behind the alias, as the tenant's control plane has it
     8  load         the target as it is, what the mutation would make of it, and whether names and places are its own
     9  control      policies and access rules, brought up to the log's newest control entry
    10  judge        access first (forbid > permit > default deny), then every policy
    11  decide       the decision, durable before anything is changed
    12  change       the pointer swaps, or the upstream is asked
    13  settle       the outcome
    14  answer       what the engine is told

For a catalog whose pointers lie beside the log (`SwapsPointer`) steps 11 to 13 are one group: the guard swaps the
pointer in the transaction that appends decision and outcome (`swapping.py`). For a catalog elsewhere (`Forwards`) they
are a group whose guard opens the decision, a request, and a group whose guard closes it (`forwarding.py`).

What this file guarantees: no change without a record of it before, no accepted record without the change, judged by
exactly the rules in force at its place in the log, and an answer that never says more than is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Final, assert_never
from uuid import UUID

from gateway.catalogs import Adapter, Change, Forwards, Loaded, SwapsPointer
from gateway.commit.approved import Answer, Approved, Step
from gateway.commit.changes import change
from gateway.commit.events import Requested, decided, request_hash
from gateway.commit.forwarding import forward
from gateway.commit.house import House
from gateway.commit.judgement import Asked, Judgement, judge_access, judge_all
from gateway.commit.requests import Request, read_body
from gateway.commit.swapping import swap
from gateway.control.plane import ControlState
from gateway.errors import (
    ConflictError,
    ForbiddenError,
    GatewayError,
    NotFoundError,
    RequirementFailedError,
    UnavailableError,
)
from gateway.identity import Principal
from gateway.mutations import parse_mutation
from gateway.policy.variables import RequestView
from ledger.errors import GroupMismatchError, LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.canonical import Json
from ledger.format.event import derived_group_id
from ledger.format.events import CommitDecision
from ledger.format.sequence import Group, Stale

ATTEMPTS_MAX: Final = 5
"""Times a commit that lost its pointer to another is tried again while its requirements still hold."""
STALE_MAX: Final = 5
"""Times a commit is judged again because the rules changed while it was judged."""


async def commit(request: Request, house: House, step: Step) -> Answer:
    """
    Take one mutation through the fourteen steps.

    Raises:
        GatewayError: if it was refused, conflicted, or could not be done; its class says whether anything was changed.
    """
    principal = await house.authenticator.authenticate(request.authorization)
    step(1)
    path = request.target()
    step(2)
    state = await rules_in_force(house, principal)
    step(3)
    body = await read_body(
        request.chunks,
        content_length=request.content_length,
        size_bytes_max=min(request.body_size_bytes_max, house.body_size_bytes_max),
    )
    key = await house.request_keys.key(principal.log_id)
    requested_hash = request_hash(key, method=request.method, path=request.path, body=body)
    step(4)
    parse = partial(parse_mutation, request.operation, path, body=body, purge=request.purge)
    mutation = await house.large_requests.parse(principal.log_id, body, parse)
    step(5)
    step(6)
    requested = Requested(
        mutation=mutation,
        principal=principal,
        method=request.method,
        path=request.path,
        client=request.client,
        body=body,
        request_hash=requested_hash,
        onward=request.onward,
    )
    try:
        catalog = house.catalog(principal.tenant, state, path.alias, request.onward)
    except NotFoundError:
        # Whom nothing is permitted there is told the same as of a catalog that exists.
        await _check_permitted(house, state, requested)
        raise
    step(7)
    flow = _Flow(house=house, log_id=principal.log_id, requested=requested, catalog=catalog, step=step)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        answer = await flow.attempt(state, is_last=attempt == ATTEMPTS_MAX)
        if answer is not None:
            step(14)
            return answer
        # What it was judged against had moved: load again and see whether the requirements still hold.
        state = await flow.rules()
    raise RequirementFailedError(f"Commit failed: {mutation.target.path} changed {ATTEMPTS_MAX} times meanwhile")


async def rules_in_force(house: House, principal: Principal) -> ControlState:
    """
    Return the tenant's control plane as of now, with the caller's credentials still in force in it.

    Raises:
        UnauthorizedError: if they were revoked, or their time has passed.
        UnavailableError: if it cannot be read: nothing can be judged.
    """
    state = await house.control.current(principal.log_id)
    principal.check_in_force(state, now=house.clock())
    return state


async def _check_permitted(house: House, state: ControlState, requested: Requested) -> None:
    """Check access to what there is no catalog for, and so nothing to decide."""
    mutation, request = requested.mutation, RequestView(method=requested.method, path=requested.path)
    asked = Asked(commit=mutation.view(), principal=requested.principal, request=request)
    judgement = await judge_access(house.engine, state, asked, timeout_s=house.policy_timeout_s)
    operation = mutation.operation.value
    await house.check_permitted(requested.principal, judgement, operation=operation, target=mutation.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """Steps 8 to 13 of one request."""

    house: House
    log_id: int
    requested: Requested
    catalog: Adapter
    step: Step

    async def attempt(self, state: ControlState, *, is_last: bool) -> Answer | None:
        """Load, judge and change once; None if another commit was first and this one may try again."""
        loaded, resulting = await self._load()
        self.step(8)
        for _ in range(STALE_MAX):
            # At first these are the rules of step 3: if they have changed since, the append says so, and they are
            # brought up to date before this is judged again.
            self.step(9)
            judgement = await self._judge(state, loaded, resulting)
            self.step(10)
            outcome = await self._decide(judgement, loaded, resulting, is_last=is_last)
            if not isinstance(outcome, Stale):
                return outcome
            state = await self.rules()
        path = self.requested.mutation.target.path
        raise UnavailableError(f"{path}: policies changed {STALE_MAX} times while it was judged; nothing was changed")

    async def rules(self) -> ControlState:
        """The rules as of now; the caller's credentials and the alias must still be in force in them."""
        principal = self.requested.principal
        state = await rules_in_force(self.house, principal)
        self.house.catalog(principal.tenant, state, self.requested.mutation.target.alias, self.requested.onward)
        return state

    async def _load(self) -> tuple[Loaded, Change | GatewayError]:
        """The target as it is, and as it would be; why it cannot be is kept until access has permitted an answer."""
        mutation = self.requested.mutation
        loaded = Loaded(namespace_exists=False)
        try:
            loaded = await self.catalog.load(mutation.target)
            now_ms = int(self.house.clock().timestamp() * 1000)
            new_uuid = str(UUID(bytes=self.house.random(16), version=4))
            changed = change(mutation, loaded, self.catalog, now_ms=now_ms, new_uuid=new_uuid)
            await self.catalog.check(mutation, loaded, changed)
        except UnavailableError:
            raise
        except GatewayError as error:
            return loaded, error
        return loaded, changed

    async def _judge(self, state: ControlState, loaded: Loaded, resulting: Change | GatewayError) -> Judgement:
        """Step 10. Of what cannot be done there is no result to judge: access alone says whether the caller is told."""
        requested, engine, timeout_s = self.requested, self.house.engine, self.house.policy_timeout_s
        asked = Asked(
            commit=requested.mutation.view(),
            principal=requested.principal,
            request=RequestView(method=requested.method, path=requested.path, client_version=requested.client),
            table=loaded.metadata,
            result=None if isinstance(resulting, GatewayError) else resulting.metadata,
        )
        judge = judge_access if isinstance(resulting, GatewayError) else judge_all
        judgement = await judge(engine, state, asked, timeout_s=timeout_s)
        self.house.count_failures(judgement)
        return judgement

    async def _decide(
        self, judgement: Judgement, loaded: Loaded, resulting: Change | GatewayError, *, is_last: bool
    ) -> Answer | Stale | None:
        """Steps 11 to 13; raises what the engine is told if the answer is no."""
        mutation = self.requested.mutation
        if judgement.decision is not CommitDecision.APPROVED:
            return await self._refuse(judgement, loaded, _refusal(judgement))
        if isinstance(resulting, GatewayError):
            if mutation.staged or not isinstance(resulting, ConflictError | RequirementFailedError):
                raise resulting
            conflict = replace(judgement, decision=CommitDecision.CONFLICTED, message=str(resulting))
            return await self._refuse(conflict, loaded, resulting)
        approved = Approved(
            house=self.house,
            log_id=self.log_id,
            requested=self.requested,
            judgement=judgement,
            loaded=loaded,
            change=resulting,
            is_last=is_last,
            step=self.step,
        )
        match self.catalog:
            case SwapsPointer() as catalog:
                return await swap(catalog, approved)
            case Forwards() as catalog:
                return await forward(catalog, approved)
            case _:
                assert_never(self.catalog)

    async def _refuse(self, judgement: Judgement, loaded: Loaded, error: GatewayError) -> Stale:
        """Step 11 for a decision that changes nothing; raises `error` once it is durable."""
        event = decided(self.requested, judgement, loaded, None, at=self.house.clock(), random=self.house.random)
        is_undecidable = judgement.decision is CommitDecision.UNDECIDABLE
        group_id = self._id_of_undecidable(judgement) if is_undecidable else self.house.new_group_id()
        group = Group(id=group_id, then=(event,), as_of=judgement.as_of)
        try:
            outcome = await self.house.append(self.log_id, group)
        except GroupMismatchError:
            if not is_undecidable:
                raise
            # The same request, undecided for the same cause, is in the log; the parts of its record differ.
            raise error from None
        except (LogUnavailableError, QueueFullError, OutcomeUnknownError) as unrecorded:
            raise UnavailableError("the decision could not be recorded: nothing was changed, try again") from unrecorded
        if isinstance(outcome, Stale):
            return outcome
        self.step(11)
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
