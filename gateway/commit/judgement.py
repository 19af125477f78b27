# SPDX-License-Identifier: Apache-2.0
"""
Step 10: the judgement on one request by access rules and policies, in one call of the policy engine.

Access comes first (forbid > permit > default deny), then every policy whose scope covers the commit, in order of
creation. The first deny is the reason, and all verdicts are kept, in that order. If the engine gives no answer the
request is undecidable: a refusal that is recorded, never an approval.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from gateway.commit.look_ups import LookUps
from gateway.commit.metrics import FailedPrograms
from gateway.control.aggregates import Catalog, Policy
from gateway.control.plane import ControlState
from gateway.errors import TooLargeError, UnavailableError
from gateway.identifiers import Target
from gateway.identity import Principal
from gateway.metadata import uuid_of
from gateway.mutations import Operation
from gateway.policy.access import (
    NOTHING,
    Access,
    AccessDecision,
    AccessRequest,
    Grant,
    JudgedRule,
    UnknownOperationError,
    access_actions,
    refs_of,
)
from gateway.policy.checks import Unit, units_of
from gateway.policy.engine import Outcome, PolicyEngine, PolicyEngineError, Program, Verdict
from gateway.policy.judging import (
    Evaluate,
    Judged,
    decide_policies,
    judge_rules,
    permits_anything,
    permits_every,
)
from gateway.policy.known_names import Asked, KnownNames
from gateway.policy.known_verdicts import KnownVerdicts
from gateway.policy.many import decide_each
from gateway.policy.messages import fields_in, fill
from gateway.policy.rule_formulas import JudgesRules
from gateway.policy.scopes import EVERYTHING, covers
from gateway.policy.variables import (
    NO_FINDINGS,
    NO_LINEAGE,
    CommitView,
    FindingsView,
    LineageView,
    PrincipalView,
    RequestView,
    activation,
    lineage_members,
)
from gateway.policy.verdicts import format_verdicts
from gateway.policy.vocabulary import LOOKED_UP
from gateway.policy.words import on_demand
from ledger.format import canonical
from ledger.format.canonical import Json, format_time
from ledger.format.events import CommitDecision, Reason
from ledger.values import value_class

READ_JUDGEMENTS_MAX: Final = 10_000
ACCESS_DECISIONS_MAX: Final = 10_000
DEMANDS_MAX: Final = 1_000
LIST_TIMEOUT_S: Final = 10.0
"""For the names of a list that are read at a time. They are judged in pieces, and commits in between."""
HAVE_UUID: Final = frozenset({"table", "view"})
"""The kinds of what rules know by a uuid."""
EVERYTHING_READ: Final = "*"
"""In place of an alias, which none has: a read of whatever there is."""


@value_class
class JudgedRequest:
    """
    A request to judge, with its caller; `table` and `result` are the table's metadata before and after it.

    `grant` is the key that would be issued, `retired` the access rule that would be retired. `branch` is the catalog's
    own, as `AccessRequest` has it. `uuid` is that of the table or view (empty: there is none; None: it is not known).
    `at` is the time of the judgement, which the record of the decision has; None where there is no such record.
    `findings` and `lineage` are what was looked up of the table; None if it was not.
    """

    commit: CommitView
    principal: Principal
    request: RequestView
    table: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    grant: Grant = NOTHING
    retired: str | None = None
    at: datetime | None = None
    branch: str | None = None
    findings: FindingsView | None = None
    lineage: LineageView | None = None
    uuid: str | None = None

    def principal_view(self) -> PrincipalView:
        """Return the caller as rules see it."""
        return principal_view(self.principal)

    def access(self) -> AccessRequest:
        """Return it as access rules see it."""
        refs = (self.table or {}).get("refs")
        return AccessRequest(
            commit=self.commit,
            principal=self.principal_view(),
            grant=self.grant,
            retired=self.retired,
            branch=self.branch,
            refs=frozenset(refs) if isinstance(refs, Mapping) else frozenset(),
            uuid=self.uuid if self.commit.kind in HAVE_UUID else "",
        )


def principal_view(caller: Principal) -> PrincipalView:
    """
    Return a caller as rules see it.
    """
    return PrincipalView(
        actor=caller.actor,
        source=caller.source.value,
        sub=caller.sub,
        email=caller.email or "",
        roles=caller.roles,
        groups=caller.groups,
        attributes=caller.attributes,
    )


@value_class
class Judgement:
    """
    A decision, its rules (digest `policy_set`, as of control entry `as_of`) and its reason.

    `message` is for the client: the reason of a refusal, empty if approved. `verdicts` is a payload part of the record;
    `failed` has the kind of each program that could not be judged; `is_of_policies` says that access was permitted, and
    policies decided. `noted` has the variables, by name, that policies in force name and that the record of a decision
    has nowhere else.
    """

    decision: CommitDecision
    reason: Reason | None
    message: str
    verdicts: dict[str, Json]
    as_of: int
    policy_set: str
    failed: tuple[str, ...] = ()
    is_of_policies: bool = False
    noted: Mapping[str, Json] | None = None
    _part: bytes | None = field(default=None, init=False, compare=False, repr=False)

    def verdicts_part(self) -> bytes:
        """Return the payload part `verdicts`, made once for all requests that are judged alike."""
        part = self._part
        if part is None:
            part = canonical.encode(self.verdicts)
            object.__setattr__(self, "_part", part)
        return part


class Read(NamedTuple):
    """
    One kind of read of one target by one caller under one set of rules: all that its judgement depends on.

    `target` is its event key, which no other target has; `branch` and `uuid` are what rules see of them, if they do.
    """

    log_id: int
    policy_set: str
    actor: str
    roles: tuple[str, ...]
    target: str
    operation: str
    branch: str | None = None
    uuid: str | None = ""


class ReadJudgements:
    """
    A cache of judgements on reads; beyond `judgements_max` the least recently used is dropped. Event loop only.

    Caching is sound: rules depend only on the variables of `access_activation`, without clock or randomness, and for a
    read (it has no updates) those variables follow from the members of `Read`. Its `policy_set` identifies id and
    version of every rule in force, whose content never changes. Undecidable judgements are not cached.
    """

    def __init__(self, *, judgements_max: int = READ_JUDGEMENTS_MAX) -> None:
        self._judgements_max = judgements_max
        self._judgements: OrderedDict[Read, Judgement] = OrderedDict()

    def get(self, read: Read) -> Judgement | None:
        """Return the cached judgement, if any. Its `as_of` may be an earlier one with the same rules in force."""
        judgement = self._judgements.get(read)
        if judgement is not None:
            self._judgements.move_to_end(read)
        return judgement

    def put(self, read: Read, judgement: Judgement) -> None:
        """Cache a judgement, unless it was undecidable."""
        if judgement.decision is CommitDecision.UNDECIDABLE:
            return
        self._judgements[read] = judgement
        self._judgements.move_to_end(read)
        if len(self._judgements) > self._judgements_max:
            self._judgements.popitem(last=False)


class AccessKey(NamedTuple):
    """
    All that access rules can see of a request (`access.access_activation`), and which rules they are.

    A request that would issue a key or retire a rule has none: what it grants is seen, too. `units` are the checks
    that it takes, where rules are asked about each; `uuid` is that of the table, where a rule reads it.
    """

    log_id: int
    policy_set: str
    actor: str
    roles: tuple[str, ...]
    catalog: str
    namespace: tuple[str, ...]
    name: str
    kind: str
    operation: str
    actions: tuple[str, ...]
    refs: tuple[str, ...]
    units: tuple[Unit, ...] = ()
    uuid: str | None = ""


class KnownDecision:
    """A decision of the access rules `policy_set`, and its judgement as of the state that was asked for last."""

    __slots__ = ("_judgement", "_state", "judged", "policy_set")

    def __init__(self, judged: Judged, policy_set: str) -> None:
        self.judged: Final = judged
        self.policy_set: Final = policy_set
        self._state: ControlState | None = None
        self._judgement: Judgement | None = None

    def judgement(self, state: ControlState) -> Judgement:
        """Return the judgement as of `state`, in which the same rules are in force."""
        judgement = self._judgement
        if judgement is None or self._state is not state:
            judgement = self._judgement = _of_access(state, self.judged.decision, self.judged.verdicts)
            self._state = state
        return judgement


class KnownAccess:
    """
    A cache of what access rules decide; beyond `decisions_max` the least recently used is dropped. Event loop only.

    It is sound for the reasons of `ReadJudgements`. Only decisions without any failed rule are cached.
    """

    def __init__(self, *, decisions_max: int = ACCESS_DECISIONS_MAX) -> None:
        self._decisions_max = decisions_max
        self._decisions: OrderedDict[AccessKey, KnownDecision] = OrderedDict()

    def get(self, key: AccessKey) -> KnownDecision | None:
        """Return the cached decision, if any."""
        known = self._decisions.get(key)
        if known is not None:
            self._decisions.move_to_end(key)
        return known

    def put(self, key: AccessKey, judged: Judged) -> None:
        """Cache a decision, unless it is undecidable or one of its rules failed."""
        failed = any(verdict.outcome is Outcome.ERROR for verdict in judged.verdicts)
        if failed or judged.decision.outcome is Access.UNDECIDABLE:
            return
        self._decisions[key] = KnownDecision(judged, key.policy_set)
        if len(self._decisions) > self._decisions_max:
            self._decisions.popitem(last=False)


class Demands:
    """
    Which fields that are made on demand the policies in force read: of each tenant, as long as these are the same.
    Event loop only.
    """

    def __init__(self, *, tenants_max: int = DEMANDS_MAX) -> None:
        self._tenants_max = tenants_max
        self._known: OrderedDict[int, tuple[Mapping[str, Policy], Mapping[str, frozenset[str]]]] = OrderedDict()

    def of(self, state: ControlState, *, log_id: int) -> Mapping[str, frozenset[str]]:
        """Return them by variable; `state` is that of the log `log_id`."""
        known = self._known.get(log_id)
        if known is not None and known[0] is state.policies:
            return known[1]
        demanded = on_demand(text for policy in state.policies.values() for text in _read_by(policy))
        self._known[log_id] = (state.policies, demanded)
        self._known.move_to_end(log_id)
        if len(self._known) > self._tenants_max:
            self._known.popitem(last=False)
        return demanded


class FindBranch(Protocol):
    """Finds the branch that a catalog is (`CatalogRegistry.branch`)."""

    async def __call__(self, tenant: UUID, registered: Mapping[str, Catalog], alias: str) -> str | None:
        """Return the branch behind an alias, "" if it is not known; None for a catalog without branches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """
    Judges requests with the policy engine, which may take `timeout_s` for one request; `rows` judges many at a time.

    `find_branch` is asked for the branch of a catalog where rules are asked about references, and `look_ups` for what
    read models know of a table where policies read that.

    `failed_programs` and the caches are shared by all requests and belong to the event loop. What a rule or policy has
    judged on the same inputs is not evaluated again (`verdicts`), nor is access decided again for the same request by
    the same rules (`known_access`), or for a name of a list (`known_names`).
    """

    engine: PolicyEngine
    rows: JudgesRules
    timeout_s: float
    find_branch: FindBranch
    look_ups: LookUps
    failed_programs: FailedPrograms = field(default_factory=FailedPrograms)
    read_judgements: ReadJudgements = field(default_factory=ReadJudgements, init=False)
    known_access: KnownAccess = field(default_factory=KnownAccess, init=False)
    known_names: KnownNames = field(default_factory=KnownNames, init=False)
    verdicts: KnownVerdicts = field(default_factory=KnownVerdicts, init=False)
    demands: Demands = field(default_factory=Demands, init=False)

    async def access(self, state: ControlState, request: JudgedRequest) -> Judgement:
        """
        Return the judgement of the access rules in force; policies are not evaluated.
        """
        request = await self._with_branch(state, request)
        try:
            judged = await self._judged(state, request)
        except UnavailableError as error:
            return _undecidable(state, error)
        return _of_access(state, judged.decision, judged.verdicts)

    def known_decision(self, state: ControlState, request: JudgedRequest) -> KnownDecision | None:
        """
        Return what the access rules in force decide, as far as that is known without an evaluation, whatever the table.
        """
        if state.asks_each_check or state.reads_uuid:
            return None  # that depends on the table, and on the branch of the catalog
        try:
            key = access_key(state, request)
        except UnknownOperationError:
            return None
        return None if key is None else self.known_access.get(key)

    async def access_and_policies(
        self, state: ControlState, request: JudgedRequest, known: KnownDecision | None = None
    ) -> Judgement:
        """
        Return the judgement of the access rules and policies in force, in one call of the engine at most.

        Policies whose scope does not cover the commit are not evaluated. `known` is what `known_decision` has said of
        the request; it is not asked again while the same rules are in force.

        Raises:
            TooLargeError: if access permits what is too large for policies to judge.
        """
        applying = policies_for(state, request.commit, table=request.table, result=request.result)
        if not applying:
            if known is not None and known.policy_set == state.policy_set:
                return known.judgement(state)
            return await self.access(state, request)
        request = await self._with_branch(state, request)
        demanded = self._demanded(state, request, applying)
        if LOOKED_UP.isdisjoint(demanded):
            judgement = await self._by_access_and_policies(state, request, applying, demanded)
        else:
            judgement, request = await self._by_access_and_look_ups(state, request, applying, demanded)
        noted = _noted(request, demanded)
        return replace(judgement, noted=noted) if noted else judgement

    def _demanded(
        self, state: ControlState, request: JudgedRequest, applying: Sequence[Policy]
    ) -> Mapping[str, frozenset[str]]:
        """Return the fields that are made on demand; of what is looked up, those that policies read which apply."""
        demanded = self.demands.of(state, log_id=request.principal.log_id)
        if LOOKED_UP.isdisjoint(demanded):
            return demanded
        here = on_demand(text for policy in applying for text in _read_by(policy))
        return {name: fields for name, fields in demanded.items() if name not in LOOKED_UP or name in here}

    async def _by_access_and_look_ups(
        self,
        state: ControlState,
        request: JudgedRequest,
        applying: Sequence[Policy],
        demanded: Mapping[str, frozenset[str]],
    ) -> tuple[Judgement, JudgedRequest]:
        """Judge with what is known of the table, which is looked up only for callers whom access permits."""
        access_alone = await self.access(state, request)
        if access_alone.decision is not CommitDecision.APPROVED:
            return access_alone, request
        try:
            request = await self._looked_up(request, demanded)
        except UnavailableError as error:
            return _undecidable(state, error), request
        return await self._by_access_and_policies(state, request, applying, demanded), request

    async def _looked_up(self, request: JudgedRequest, demanded: Mapping[str, frozenset[str]]) -> JudgedRequest:
        """Return a request with what is known of its table. Raises as `LookUps`."""
        if request.commit.kind != "table":
            return request
        tenant, log_id, table_uuid = request.principal.tenant, request.principal.log_id, _table_uuid(request)
        if "findings" in demanded:
            request = replace(request, findings=await self.look_ups.findings(tenant, log_id, table_uuid))
        if "lineage" in demanded:
            key = _key_of(request.commit)
            lineage = await self.look_ups.lineage(tenant, log_id, key, table_uuid)
            if "classified" in demanded["lineage"]:
                classified = await self.look_ups.classified(tenant, log_id, lineage.upstream)
                lineage = replace(lineage, classified=classified)
            request = replace(request, lineage=lineage)
        return request

    async def _by_access_and_policies(
        self,
        state: ControlState,
        request: JudgedRequest,
        applying: Sequence[Policy],
        demanded: Mapping[str, frozenset[str]],
    ) -> Judgement:
        try:
            variables = activation(
                table=request.table,
                result=request.result,
                commit=request.commit,
                principal=request.principal_view(),
                request=_timed(request) if "request" in demanded else request.request,
                findings=NO_FINDINGS if request.findings is None else request.findings,
                lineage=NO_LINEAGE if request.lineage is None else request.lineage,
                demanded=demanded,
            )
        except UnavailableError as error:
            # Policies cannot be evaluated. Only callers whom access permits learn what is wrong with the table.
            access_alone = await self.access(state, request)
            return _undecidable(state, error) if access_alone.decision is CommitDecision.APPROVED else access_alone
        try:
            judged = await self._judged(state, request, variables, [policy.program() for policy in applying])
        except TooLargeError:
            access_alone = await self.access(state, request)  # as above
            if access_alone.decision is CommitDecision.APPROVED:
                raise
            return access_alone
        except UnavailableError as error:
            return _undecidable(state, error)
        if judged.decision.outcome is not Access.PERMITTED:
            return _of_access(state, judged.decision, judged.verdicts)
        return _of_policies(state, judged.verdicts, variables)

    async def read(
        self,
        state: ControlState,
        principal: Principal,
        target: Target,
        *,
        operation: str,
        request: Callable[[], RequestView],
        uuid: str | None = None,
    ) -> Judgement:
        """
        Return the judgement of the access rules in force on a read of `target`, a table or view with a `uuid` as in
        `JudgedRequest`; if it is cached, `request` is not called.
        """
        branch = await self._branch(state, principal, target.alias) if state.asks_each_check else None
        seen = uuid if state.reads_uuid else ""
        read = _read(state, principal, target, operation, branch, seen)
        judgement = self.read_judgements.get(read)
        if judgement is None:
            view = CommitView(
                catalog=target.alias,
                namespace=target.namespace,
                name=target.name or "",
                kind=target.kind,
                operation=operation,
            )
            judged = JudgedRequest(commit=view, principal=principal, request=request(), branch=branch, uuid=seen)
            judgement = await self.access(state, judged)
            self.read_judgements.put(read, judgement)
        return judgement

    async def permits_anything(self, state: ControlState, principal: Principal, *, alias: str) -> bool:
        """
        Return whether the access rules in force may permit `principal` anything at all in the catalog `alias`.

        Raises:
            UnavailableError: if the engine gave no answer.
        """
        read = _read(state, principal, Target(alias=alias, namespace=()), "catalog.configuration")
        if (known := self.read_judgements.get(read)) is not None:
            return known.decision is CommitDecision.APPROVED
        permitted = await permits_anything(
            self._evaluate(principal),
            access_rules(state),
            principal_view(principal),
            catalog=alias,
            timeout_s=self.timeout_s,
        )
        decision = CommitDecision.APPROVED if permitted else CommitDecision.REJECTED
        self.read_judgements.put(read, _judgement(state, decision, None, "", ()))
        return permitted

    async def permits_every(self, state: ControlState, principal: Principal, *, operation: str) -> bool:
        """
        Return whether the access rules in force certainly permit `principal` a read (`operation`) of whatever there is.

        Raises:
            UnavailableError: if the engine gave no answer.
        """
        read = _read(state, principal, Target(alias=EVERYTHING_READ, namespace=()), operation)
        if (known := self.read_judgements.get(read)) is not None:
            return known.decision is CommitDecision.APPROVED
        permitted = await permits_every(
            self._evaluate(principal),
            access_rules(state),
            principal_view(principal),
            operation=operation,
            timeout_s=self.timeout_s,
        )
        decision = CommitDecision.APPROVED if permitted else CommitDecision.REJECTED
        self.read_judgements.put(read, _judgement(state, decision, None, "", ()))
        return permitted

    async def ask(
        self, state: ControlState, request: JudgedRequest, *, unknown: frozenset[str] = frozenset()
    ) -> AccessDecision:
        """
        Return what the access rules in force would decide about a request that nobody makes, and why.

        The variables that are `unknown` have no value: a rule that cannot be judged without them has failed.
        """
        request = await self._with_branch(state, request)
        # Not by what is kept: that is for requests, and a question would displace it.
        judge = partial(self.engine.judge, log_id=request.principal.log_id)

        async def evaluate(
            programs: Sequence[Program], activation: Mapping[str, Json], *, timeout_s: float
        ) -> tuple[Verdict, ...]:
            known = {name: value for name, value in activation.items() if name not in unknown}
            return await judge(programs, known, timeout_s=timeout_s)

        try:
            judged = await judge_rules(evaluate, access_rules(state), request.access(), timeout_s=self.timeout_s)
        except UnavailableError as error:
            return AccessDecision(outcome=Access.UNDECIDABLE, message=str(error))
        return judged.decision

    async def decide_reads(
        self, state: ControlState, principal: Principal, views: Sequence[CommitView], uuids: Sequence[str | None]
    ) -> list[Access]:
        """
        Return what the access rules in force decide about each of `views`, the same read of different targets of one
        kind in one catalog. Nothing of it is recorded.

        Raises:
            UnavailableError: if the engine gave no answer.
        """
        if not views:
            return []
        first = views[0]
        branch = await self._branch(state, principal, first.catalog) if state.asks_each_check else None
        asked = Asked(
            log_id=principal.log_id,
            policy_set=state.policy_set,
            actor=principal.actor,
            roles=principal.roles,
            catalog=first.catalog,
            kind=first.kind,
            operation=first.operation,
            branch=branch,
        )

        async def decide(places: Sequence[int]) -> list[Access]:
            caller, rules = principal_view(principal), access_rules(state)
            requests = [
                AccessRequest(commit=views[place], principal=caller, branch=branch, uuid=uuids[place])
                for place in places
            ]
            evaluate, rows = self._evaluate(principal), partial(self.rows.judge_rows, log_id=principal.log_id)
            return await decide_each(evaluate, rows, rules, requests, timeout_s=LIST_TIMEOUT_S)

        names = [(tuple(view.namespace), view.name, uuid) for view, uuid in zip(views, uuids, strict=True)]
        return await self.known_names.decide(asked, names, decide)

    async def sees(
        self, state: ControlState, principal: Principal, views: Sequence[CommitView], uuids: Sequence[str | None]
    ) -> list[bool]:
        """
        Return for each of `views` whether the access rules in force permit it; what cannot be judged is not permitted.

        Raises as `decide_reads`.
        """
        decided = await self.decide_reads(state, principal, views, uuids)
        return [outcome is Access.PERMITTED for outcome in decided]

    async def _with_branch(self, state: ControlState, request: JudgedRequest) -> JudgedRequest:
        """Return a request with the branch of its catalog, if rules see that."""
        if not state.asks_each_check or request.branch is not None or not request.commit.catalog:
            return request
        return replace(request, branch=await self._branch(state, request.principal, request.commit.catalog))

    async def _branch(self, state: ControlState, principal: Principal, alias: str) -> str | None:
        return await self.find_branch(principal.tenant, state.catalogs, alias)

    async def _judged(
        self,
        state: ControlState,
        request: JudgedRequest,
        variables: Mapping[str, Json] | None = None,
        policies: Sequence[Program] = (),
    ) -> Judged:
        """Judge access, unless that is known, and `policies` on `variables`."""
        key, evaluate = access_key(state, request), self._evaluate(request.principal)
        known = None if key is None else self.known_access.get(key)
        if known is not None:
            if variables is None:
                return known.judged
            verdicts = await evaluate(policies, variables, timeout_s=self.timeout_s)
            return replace(known.judged, verdicts=(*known.judged.verdicts, *verdicts))
        rules = access_rules(state)
        judged = await judge_rules(
            evaluate,
            rules,
            request.access(),
            timeout_s=self.timeout_s,
            policies=policies,
            variables=variables,
        )
        if key is not None and len(judged.verdicts) == len(rules) + len(policies):
            self.known_access.put(key, replace(judged, verdicts=judged.verdicts[: len(rules)]))
        return judged

    def count_failures(self, judgement: Judgement) -> None:
        """Count the access rules and policies that could not be judged."""
        for kind in judgement.failed:
            self.failed_programs.count(kind)

    def _evaluate(self, principal: Principal) -> Evaluate:
        return partial(self.verdicts.judge, self.engine, log_id=principal.log_id)


def _read(
    state: ControlState,
    principal: Principal,
    target: Target,
    operation: str,
    branch: str | None = None,
    uuid: str | None = "",
) -> Read:
    return Read(
        log_id=principal.log_id,
        policy_set=state.policy_set,
        actor=principal.actor,
        roles=principal.roles,
        target=target.key,
        operation=operation,
        branch=branch,
        uuid=uuid,
    )


def access_key(state: ControlState, request: JudgedRequest) -> AccessKey | None:
    """
    Return the key of the access decision on a request; None if it would grant something, or retire a rule.

    Raises:
        UnknownOperationError: as `access.access_activation`.
    """
    if request.grant is not NOTHING or request.retired is not None:
        return None
    commit, principal = request.commit, request.principal
    return AccessKey(
        log_id=principal.log_id,
        policy_set=state.policy_set,
        actor=principal.actor,
        roles=principal.roles,
        catalog=commit.catalog,
        namespace=tuple(commit.namespace),
        name=commit.name,
        kind=commit.kind,
        operation=commit.operation,
        actions=access_actions(commit),
        refs=refs_of(commit),
        units=units_of(request.access()) if state.asks_each_check else (),
        uuid=request.access().uuid if state.reads_uuid else "",
    )


def policies_for(
    state: ControlState,
    commit: CommitView,
    *,
    table: Mapping[str, Any] | None = None,
    result: Mapping[str, Any] | None = None,
) -> list[Policy]:
    """
    Return the policies in force whose scope covers a commit, in order of creation; `table` and `result` are the
    metadata before and after it.
    """
    return [
        policy
        for policy in state.policies.values()
        if policy.scope is EVERYTHING or covers(policy.scope, commit, table=table, result=result)
    ]


def _read_by(policy: Policy) -> tuple[str, ...]:
    """Return what names the variables of a policy: its expression, and each field of its message."""
    return (policy.expression, *fields_in(policy.message)) if policy.is_template else (policy.expression,)


def access_rules(state: ControlState) -> tuple[JudgedRule, ...]:
    """
    Return the access rules in force as they are judged.
    """
    return tuple(rule.judged() for rule in state.access_rules.values())


def _timed(request: JudgedRequest) -> RequestView:
    """Return a request with the time of its judgement."""
    return request.request if request.at is None else replace(request.request, time=format_time(request.at))


def _key_of(commit: CommitView) -> str:
    """Return the event key of what a commit is of."""
    return Target(alias=commit.catalog, namespace=tuple(commit.namespace), name=commit.name).key


def _table_uuid(request: JudgedRequest) -> str | None:
    """Return the uuid by which a table is known; None for one that is created: nothing is known of it."""
    if request.commit.operation == Operation.TABLE_CREATE:
        return None
    return uuid_of(request.table or request.result or {}) or None


def _noted(request: JudgedRequest, demanded: Mapping[str, frozenset[str]]) -> dict[str, Json]:
    """
    Return what must be recorded of the variables that are `demanded`, so that they can be judged again.

    All others follow from the request, from the table's metadata before it, from the time of the decision, and from the
    entries of the log before the index that is recorded.
    """
    noted: dict[str, Json] = {}
    if "address" in demanded.get("request", ()):
        noted["request.address"] = request.request.address
    of_principal = demanded.get("principal", ())
    if "groups" in of_principal:
        noted["principal.groups"] = list(request.principal.groups)
    if "attributes" in of_principal:
        noted["principal.attributes"] = dict(request.principal.attributes)
    if request.findings is not None:
        noted["findings.as_of"] = request.findings.as_of
    if request.lineage is not None:
        known = lineage_members(request.lineage)
        if request.lineage.classified is None:
            del known["classified"]
        noted |= {f"lineage.{name}": value for name, value in known.items()}
    return noted


def _of_access(state: ControlState, access: AccessDecision, verdicts: Sequence[Verdict]) -> Judgement:
    match access.outcome:
        case Access.PERMITTED:
            return _judgement(state, CommitDecision.APPROVED, None, "", verdicts)
        case Access.DENIED:
            return _judgement(state, CommitDecision.REJECTED, access.reason, access.message, verdicts)
        case Access.UNDECIDABLE:
            return _judgement(state, CommitDecision.UNDECIDABLE, access.reason, access.message, verdicts)


def _of_policies(state: ControlState, verdicts: Sequence[Verdict], variables: Mapping[str, Json]) -> Judgement:
    ruled = decide_policies(verdicts)
    message = ruled.message
    if ruled.outcome is CommitDecision.REJECTED and ruled.reason is not None:
        # The client is given the reason as the author of the policy wrote it.
        policy = state.policies[ruled.reason[0]]
        words = fill(policy.message, variables) if policy.is_template else policy.message
        message = f"{words} (policy {ruled.reason[0]}, version {ruled.reason[1]})"
    return _judgement(state, ruled.outcome, ruled.reason, message, verdicts, is_of_policies=True)


def _undecidable(state: ControlState, error: UnavailableError) -> Judgement:
    """There are no verdicts: the engine gave none, or the variables for policies could not be made."""
    verdicts = error.verdicts if isinstance(error, PolicyEngineError) else ()
    return _judgement(state, CommitDecision.UNDECIDABLE, None, str(error), verdicts)


def _judgement(
    state: ControlState,
    decision: CommitDecision,
    reason: tuple[str, int] | None,
    message: str,
    verdicts: Sequence[Verdict],
    *,
    is_of_policies: bool = False,
) -> Judgement:
    return Judgement(
        decision=decision,
        reason=None if reason is None else Reason(id=reason[0], version=reason[1]),
        message=message,
        verdicts=format_verdicts(verdicts),
        as_of=state.as_of,
        policy_set=state.policy_set,
        failed=tuple([verdict.kind for verdict in verdicts if verdict.outcome is Outcome.ERROR]),
        is_of_policies=is_of_policies,
    )
