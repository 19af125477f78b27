"""
The way of every catalog mutation through the gateway, in fourteen steps. This is the file to read.

     1  tenant       comes from the credentials, never from the path
     2  identifiers  of the path are decoded, bounded and free of control characters
     3  principal    the actor and roles that the credentials stand for, still in force
     4  body         read up to its cap; the request's keyed hash
     5  parse        into one typed mutation; unknown updates and requirements are refused by name
     6  idempotency  no key lifetime is advertised, so engines send no key and there is nothing to claim
     7  catalog      the adapter behind the alias, as the tenant's control plane has it
     8  load         the target as it is, and what the mutation would make of it
     9  control      policies and access rules, brought up to the log's newest control entry
    10  judge        access first (forbid > permit > default deny), then every policy
    11  decide       the decision, durable before anything is changed
    12  change       the pointer swaps, or the upstream is asked
    13  settle       the outcome
    14  answer       what the engine is told

For a catalog whose pointers lie beside the log (`SwapsPointer`) steps 11 to 13 are one group: the guard swaps the
pointer in the transaction that appends decision and outcome. What this file guarantees: no change without a record of
it, no accepted record without the change, judged by exactly the rules in force at its place in the log, and an answer
that never says more than is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

from gateway.catalogs import Change, Loaded, SwapsPointer
from gateway.changes import change, changes_nothing
from gateway.control import ControlState
from gateway.errors import (
    CommitStateUnknownError,
    ConflictError,
    ForbiddenError,
    GatewayError,
    RequirementFailedError,
    UnavailableError,
)
from gateway.house import House
from gateway.identity import Principal
from gateway.judgement import Asked, Judgement, judge_access, judge_all
from gateway.metadata_files import MetadataFileError, Written
from gateway.mutations import Mutation, parse_mutation
from gateway.policy.variables import RequestView
from gateway.records import Requested, decided, request_hash, settled
from gateway.requests import Request, read_body
from ledger.canonical import Json
from ledger.entry import Branch
from ledger.errors import GroupMismatchError, LedgerError, LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.event import derived_group_id, random_group_id
from ledger.events import Decided, Settled
from ledger.sequence import Appended, Group, Stale

ATTEMPTS_MAX: Final = 5
"""Times a commit that lost its pointer to another is tried again while its requirements still hold."""
STALE_MAX: Final = 5
"""Times a commit is judged again because the rules changed while it was judged."""

Step: TypeAlias = Callable[[int], None]
"""Called with the number of each step when it is done: for latency metrics, and for tests that stop the process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the engine is told when all went well: the target as it is now. A staged create has no location."""

    mutation: Mutation
    loaded: Loaded
    change: Change
    metadata_location: str | None

    @property
    def before_properties(self) -> Mapping[str, str]:
        """Return the properties of a namespace before the change."""
        return self.loaded.properties or {}


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
    mutation = parse_mutation(request.operation, path, body=body, purge=request.purge)
    step(5)
    step(6)
    catalog = house.catalog(principal.tenant, state, path.alias)
    step(7)
    requested = Requested(
        mutation=mutation,
        principal=principal,
        method=request.method,
        path=request.path,
        client=request.client,
        body=body,
        request_hash=requested_hash,
    )
    flow = _Flow(house=house, log_id=principal.log_id, requested=requested, catalog=catalog, step=step)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        answer = await flow.attempt(state, is_last=attempt == ATTEMPTS_MAX)
        if answer is not None:
            step(14)
            return answer
        # The pointer had moved: load again and see whether the requirements still hold.
        state = await flow.rules()
    raise AssertionError("the last attempt answers or raises")


async def rules_in_force(house: House, principal: Principal) -> ControlState:
    """
    Return the tenant's control plane as of now, with the caller's credentials still in force in it.

    Raises:
        UnauthorizedError: if they were revoked.
        UnavailableError: if it cannot be read: nothing can be judged.
    """
    state = await house.control.current(principal.log_id)
    principal.check_in_force(state)
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flow:
    """Steps 8 to 13 of one request."""

    house: House
    log_id: int
    requested: Requested
    catalog: SwapsPointer
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
        self.house.catalog(principal.tenant, state, self.requested.mutation.target.alias)
        return state

    async def _load(self) -> tuple[Loaded, Change | GatewayError]:
        """The target as it is, and as it would be; why it cannot be is kept until access has permitted an answer."""
        mutation = self.requested.mutation
        loaded = Loaded(namespace_exists=False)
        try:
            loaded = await self.catalog.load(mutation.target)
            now_ms = int(self.house.clock().timestamp() * 1000)
            new_uuid = str(UUID(bytes=self.house.random(16), version=4))
            return loaded, change(mutation, loaded, self.catalog, now_ms=now_ms, new_uuid=new_uuid)
        except UnavailableError:
            raise
        except GatewayError as error:
            return loaded, error

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
        if isinstance(resulting, GatewayError):
            return await judge_access(engine, state, asked, timeout_s=timeout_s)
        return await judge_all(engine, state, asked, timeout_s=timeout_s)

    async def _decide(
        self, judgement: Judgement, loaded: Loaded, resulting: Change | GatewayError, *, is_last: bool
    ) -> Answer | Stale | None:
        """Steps 11 to 13; raises what the engine is told if the answer is no."""
        mutation = self.requested.mutation
        if judgement.decision is not Decided.APPROVED:
            return await self._refuse(judgement, loaded, _refusal(judgement))
        if isinstance(resulting, GatewayError):
            if mutation.staged or not isinstance(resulting, ConflictError | RequirementFailedError):
                raise resulting
            conflict = replace(judgement, decision=Decided.CONFLICTED, message=str(resulting))
            return await self._refuse(conflict, loaded, resulting)
        if mutation.staged:
            # A staged create promises nothing and writes nothing, so there is nothing to record.
            return Answer(mutation=mutation, loaded=loaded, change=resulting, metadata_location=None)
        if changes_nothing(resulting, loaded):
            # Nor is there for a commit that leaves the table as it is, under the metadata that it has.
            location = loaded.metadata_location
            return Answer(mutation=mutation, loaded=loaded, change=resulting, metadata_location=location)
        return await self._swap(judgement, loaded, resulting, is_last=is_last)

    async def _refuse(self, judgement: Judgement, loaded: Loaded, error: GatewayError) -> Stale:
        """Step 11 for a decision that changes nothing; raises `error` once it is durable."""
        event = decided(self.requested, judgement, loaded, None, at=self.house.clock(), random=self.house.random)
        is_undecidable = judgement.decision is Decided.UNDECIDABLE
        group_id = self._id_of_undecidable(judgement) if is_undecidable else self._group_id()
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

    async def _swap(
        self, judgement: Judgement, loaded: Loaded, resulting: Change, *, is_last: bool
    ) -> Answer | Stale | None:
        """Steps 11 to 13 as one group: decision and outcome are appended if the guard swaps the pointer."""
        mutation = self.requested.mutation
        written = await self.catalog.write(loaded, resulting)
        group_id = self._group_id()
        facts = (self.requested, group_id, loaded, resulting)
        at = self.house.clock()
        decision = decided(self.requested, judgement, loaded, resulting, at=at, random=self.house.random)
        accepted = settled(*facts, written, outcome=Settled.ACCEPTED, at=at)
        conflicted = settled(*facts, None, outcome=Settled.CONFLICTED, at=at)
        group = Group(
            id=group_id,
            then=(decision, accepted),
            otherwise=(decision, conflicted) if is_last else (),
            guard=self.catalog.guards(mutation, loaded, resulting, written),
            as_of=judgement.as_of,
        )
        outcome = await self._append_swap(group, written)
        if isinstance(outcome, Stale):
            await self._discard(written)
            return outcome
        for number in (11, 12, 13):
            self.step(number)
        if outcome.branch is Branch.THEN:
            location = written.location if written else None
            return Answer(mutation=mutation, loaded=loaded, change=resulting, metadata_location=location)
        await self._discard(written)
        if is_last:
            raise RequirementFailedError(
                f"Commit failed: {mutation.target.path} changed {ATTEMPTS_MAX} times meanwhile"
            )
        return None

    async def _append_swap(self, group: Group, written: Written | None) -> Appended | Stale:
        """Append; what was written is deleted only if it is certain that the log does not name it."""
        try:
            return await self.house.append(self.log_id, group)
        except OutcomeUnknownError as error:
            raise CommitStateUnknownError(
                "the log did not answer: the commit may or may not have happened; do not delete its files"
            ) from error
        except LedgerError as error:
            await self._discard(written)
            if isinstance(error, LogUnavailableError | QueueFullError):
                raise UnavailableError("the commit could not be recorded: nothing was changed, try again") from error
            raise

    async def _discard(self, written: Written | None) -> None:
        """Delete a metadata file that is definitely not in the log; one that stays behind harms nobody."""
        if written is None:
            return
        try:
            await self.catalog.discard(written)
        except MetadataFileError as error:
            _log.warning("a metadata file that no table names could not be deleted: %s", error)

    def _group_id(self) -> UUID:
        now_ms = int(self.house.clock().timestamp() * 1000)
        return random_group_id(now_ms=now_ms, random=self.house.random(10))

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
    if judgement.decision is Decided.UNDECIDABLE:
        return UnavailableError(f"policies could not be evaluated, so nothing was changed: {judgement.message}")
    return ForbiddenError(judgement.message)
