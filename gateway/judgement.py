"""
Step 10: what access rules and policies say about one request. One call to the engine, one judgement out.

Access comes first (forbid > permit > default deny), then every policy; the first deny is the reason, all verdicts are
kept. An engine that gives no answer makes the request undecidable, which is a refusal that is recorded, never a pass.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.control import ControlState
from gateway.errors import UnavailableError
from gateway.identifiers import Target
from gateway.identity import Principal
from gateway.policy.access import Access, AccessDecision, AccessRule, Effect, access_activation, decide_access
from gateway.policy.decide import Decided as Ruled
from gateway.policy.decide import decide
from gateway.policy.engine import PolicyEngine, PolicyEngineError, Verdict
from gateway.policy.variables import CommitView, PrincipalView, RequestView, activation
from gateway.policy.verdicts import format_verdicts
from ledger.canonical import Json
from ledger.events import Decided, Reason

READ_JUDGEMENTS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is judged: who asks for what, in which request; `table` and `result` are a table's metadata around it."""

    commit: CommitView
    principal: Principal
    request: RequestView
    table: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None

    def principal_view(self) -> PrincipalView:
        """Return the caller as rules see it."""
        caller = self.principal
        return PrincipalView(actor=caller.actor, source=caller.source.value, sub=caller.sub, roles=caller.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """
    What was decided, by which rules (digest `policy_set`, as of control entry `as_of`), and why.

    `message` is for the client: the reason of a refusal, empty if approved. `verdicts` is the record's payload part.
    """

    decision: Decided
    reason: Reason | None
    message: str
    verdicts: dict[str, Json]
    as_of: int
    policy_set: str


async def judge_access(engine: PolicyEngine, state: ControlState, asked: Asked, *, timeout_s: float) -> Judgement:
    """
    Return what the access rules in force say; policies are not asked.
    """
    rules = tuple(state.access_rules.values())
    try:
        variables = access_activation(commit=asked.commit, principal=asked.principal_view())
        verdicts = await engine.judge([rule.program() for rule in rules], variables, timeout_s=timeout_s)
    except UnavailableError as error:
        return _undecidable(state, error)
    return _judgement(state, _access(state, verdicts), verdicts)


async def judge_all(engine: PolicyEngine, state: ControlState, asked: Asked, *, timeout_s: float) -> Judgement:
    """
    Return what access rules and policies in force say, in one call of the engine.
    """
    judges = [rule.program() for rule in state.access_rules.values()]
    judges += [policy.program() for policy in state.policies.values()]
    caller = asked.principal_view()
    try:
        variables = activation(
            table=asked.table, result=asked.result, commit=asked.commit, principal=caller, request=asked.request
        ) | access_activation(commit=asked.commit, principal=caller)
    except UnavailableError as error:
        # Policies cannot be asked; what is wrong with the table is told to those alone whom access permits.
        access_alone = await judge_access(engine, state, asked, timeout_s=timeout_s)
        return _undecidable(state, error) if access_alone.decision is Decided.APPROVED else access_alone
    try:
        verdicts = await engine.judge(judges, variables, timeout_s=timeout_s)
    except UnavailableError as error:
        return _undecidable(state, error)
    access = _access(state, verdicts)
    if access.outcome is not Access.PERMITTED:
        return _judgement(state, access, verdicts)
    ruled = decide(verdicts)
    if ruled.outcome is Ruled.APPROVED:
        return _judgement(state, access, verdicts)
    message = ruled.message
    if ruled.outcome is Ruled.REJECTED and ruled.reason is not None:
        # The words of whoever wrote the policy are the reason that the client is told.
        message = f"{state.policies[ruled.reason[0]].message} (policy {ruled.reason[0]}, version {ruled.reason[1]})"
    decided = Decided.REJECTED if ruled.outcome is Ruled.REJECTED else Decided.UNDECIDABLE
    return _made(state, decided, ruled.reason, message, verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One way to read one thing, by one caller, under one set of rules: all that decides whether it is permitted."""

    log_id: int
    policy_set: str
    actor: str
    roles: tuple[str, ...]
    target: Target
    operation: str


class ReadJudgements:
    """
    What access rules said about reads; the least recently used of more than `judgements_max` is forgotten.

    Remembering is sound: rules look at the variables of `access_activation` alone, have no clock and no randomness, and
    for a read (it updates nothing) those variables are made from the members of `Read`. Its `policy_set` names id and
    version of every rule in force, and what stands under them never changes. What could not be judged is asked again.
    """

    def __init__(self, *, judgements_max: int = READ_JUDGEMENTS_MAX) -> None:
        self._judgements_max = judgements_max
        self._judgements: OrderedDict[Read, Judgement] = OrderedDict()

    def get(self, read: Read) -> Judgement | None:
        """Return what is remembered of `read`. Its `as_of` may be an earlier one under which the same rules held."""
        judgement = self._judgements.get(read)
        if judgement is not None:
            self._judgements.move_to_end(read)
        return judgement

    def put(self, read: Read, judgement: Judgement) -> None:
        """Remember a judgement, unless it was undecidable."""
        if judgement.decision is Decided.UNDECIDABLE:
            return
        self._judgements[read] = judgement
        self._judgements.move_to_end(read)
        if len(self._judgements) > self._judgements_max:
            self._judgements.popitem(last=False)


def _access(state: ControlState, verdicts: Sequence[Verdict]) -> AccessDecision:
    rules = [
        AccessRule(id=rule.id, version=rule.version, effect=Effect(rule.effect.value), expression=rule.expression)
        for rule in state.access_rules.values()
    ]
    return decide_access(rules, verdicts)


def _judgement(state: ControlState, access: AccessDecision, verdicts: Sequence[Verdict]) -> Judgement:
    match access.outcome:
        case Access.PERMITTED:
            return _made(state, Decided.APPROVED, None, "", verdicts)
        case Access.DENIED:
            return _made(state, Decided.REJECTED, access.reason, access.message, verdicts)
        case Access.UNDECIDABLE:
            return _made(state, Decided.UNDECIDABLE, access.reason, access.message, verdicts)


def _undecidable(state: ControlState, error: UnavailableError) -> Judgement:
    """No verdict at all: the engine gave none, or what is to be judged cannot be put into words."""
    verdicts = error.verdicts if isinstance(error, PolicyEngineError) else ()
    return _made(state, Decided.UNDECIDABLE, None, str(error), verdicts)


def _made(
    state: ControlState, decision: Decided, reason: tuple[str, int] | None, message: str, verdicts: Sequence[Verdict]
) -> Judgement:
    return Judgement(
        decision=decision,
        reason=None if reason is None else Reason(id=reason[0], version=reason[1]),
        message=message,
        verdicts=format_verdicts(verdicts),
        as_of=state.as_of,
        policy_set=state.policy_set,
    )
