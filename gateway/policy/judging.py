# SPDX-License-Identifier: Apache-2.0
"""
Evaluates access rules and policies for one request: on which variables, in how many calls, and what the verdicts mean.

Usually that is one call of the engine. There are more where rules are asked about each check (`checks.py`), where a
commit moves several refs and a rule reads `ref` (the rules are evaluated for each, and the strictest result stands),
and where a rule of the former vocabulary reads a variable that holds another value now (`former.py`).

Policies are combined by *and* in Kleene's three values: deny, unknown, allow, and the lowest wins. One deny refuses the
commit even where another policy could not be evaluated: a client should not repeat what cannot succeed.
Without a deny, one policy that could not be evaluated makes the whole undecidable, since it might have denied. No
policies at all approve: policies only restrict, and what no access rule permits is refused before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gateway.policy.access import (
    VOCABULARY,
    Access,
    AccessDecision,
    AccessRequest,
    JudgedRule,
    access_activation,
    decide_access,
    refs_of,
)
from gateway.policy.checks import Check, check_activation, decide_unit, is_elsewhere, units_of
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, Program, SecondsLeft, Verdict
from gateway.policy.former import ambiguous, compared, former_values
from gateway.policy.variables import CommitView, PrincipalView
from ledger.format.events import CommitDecision, Effect

if TYPE_CHECKING:
    from ledger.format.canonical import Json

REFS_MAX: Final = 16
"""Refs that one commit may move if a rule reads `ref`: the rules are evaluated for each of them."""

CONTENT_OPERATIONS: Final = {
    "table": ("create", "commit", "drop", "load", "exists"),
    "view": ("create", "replace", "drop", "load", "exists"),
    "function": ("load",),
    "namespace": ("create", "update", "drop", "load", "exists", "list"),
}
"""The operations on a catalog's content, by its kind."""

_OPEN: Final = frozenset({"path", "ref", "actions", "uuid"})
_NAMED: Final = frozenset({"path", "ref", "catalog", "uuid"})
_STRICTEST: Final = (Access.DENIED, Access.UNDECIDABLE, Access.PERMITTED)


class Evaluate(Protocol):
    """Evaluates programs: the engine's `judge`, for one tenant."""

    async def __call__(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, timeout_s: float
    ) -> tuple[Verdict, ...]:
        """Return a verdict for each of `programs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The decision of access rules, and the verdicts of all programs in the call that decided it."""

    decision: AccessDecision
    verdicts: tuple[Verdict, ...]


async def judge_rules(
    evaluate: Evaluate,
    rules: Sequence[JudgedRule],
    request: AccessRequest,
    *,
    timeout_s: float,
    policies: Sequence[Program] = (),
    variables: Mapping[str, Json] | None = None,
) -> Judged:
    """
    Return the decision of `rules` about `request`.

    `policies` are evaluated with them on their own `variables`, in the first call; the result has their verdicts, too.

    Raises:
        UnknownOperationError: if the request's operation has no name in the vocabulary of rules.
        PolicyEngineError: if the engine gave no answer.
    """
    asking = _Asking(evaluate=evaluate, rules=rules, request=request, remaining_s=countdown(timeout_s))
    if any(rule.asks_each_check for rule in rules):
        return await _judge_each_check(asking, policies, variables)
    refs = refs_of(request.commit)
    if len(refs) > 1 and not any(rule.may_read("ref") for rule in rules):
        refs = refs[:1]
    if len(refs) > REFS_MAX:
        return _too_many(len(refs))
    judged: list[Judged] = []
    of_policies: tuple[Verdict, ...] = ()
    for ref in refs:
        if not judged:
            verdicts, of_policies = await asking.once(rules, ref, policies, variables)
        else:
            verdicts, _ = await asking.once(rules, ref)
        decision = decide_access(
            rules, verdicts, beyond=request.grant.beyond(request.principal), retired=request.retired
        )
        judged.append(Judged(decision=decision, verdicts=(*verdicts, *of_policies)))
    return min(judged, key=lambda one: _STRICTEST.index(one.decision.outcome))


async def _judge_each_check(
    asking: _Asking, policies: Sequence[Program], variables: Mapping[str, Json] | None
) -> Judged:
    """Judge by rules of which some are asked about each check of the request, and the others about the whole of it."""
    rules, request = asking.rules, asking.request
    if is_elsewhere(request):
        message = (
            f"{request.commit.name!r:.80} names another branch or commit of the Nessie: use the alias of its branch"
        )
        return Judged(decision=AccessDecision(outcome=Access.DENIED, message=message), verdicts=())
    units = units_of(request)
    if len(units) > REFS_MAX:
        return _too_many(len(units))
    older = [rule for rule in rules if not rule.asks_each_check]
    later = [rule for rule in rules if rule.asks_each_check]
    judged: list[Judged] = []
    of_policies: tuple[Verdict, ...] = ()
    for unit in units:
        whole: tuple[Verdict, ...] = ()
        if not judged and policies:
            whole, of_policies = await asking.once(older, unit.ref, policies, variables)
        elif older:
            whole, _ = await asking.once(older, unit.ref)
        checked = {check: await asking.check(later, check) for check in unit.checks}
        decision, verdicts = decide_unit(rules, whole, checked, request)
        judged.append(Judged(decision=decision, verdicts=(*verdicts, *of_policies)))
    return min(judged, key=lambda one: _STRICTEST.index(one.decision.outcome))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """What rules are asked about one request, within the time that remains."""

    evaluate: Evaluate
    rules: Sequence[JudgedRule]
    request: AccessRequest
    remaining_s: Callable[[], float]

    async def once(
        self,
        rules: Sequence[JudgedRule],
        ref: str,
        policies: Sequence[Program] = (),
        variables: Mapping[str, Json] | None = None,
    ) -> tuple[tuple[Verdict, ...], tuple[Verdict, ...]]:
        """Return the verdicts of `rules` on the request as a whole, and those of `policies` on their variables."""
        activation = access_activation(self.request, ref=ref)
        programs = [*(rule.program() for rule in rules), *policies]
        found = await self.evaluate(programs, {**(variables or {}), **activation}, timeout_s=self.remaining_s())
        verdicts, of_policies = found[: len(rules)], found[len(rules) :]
        former = former_values(self.request.commit)
        if older := ambiguous(rules, activation, former):
            before = [rule.program() for rule in older]
            earlier = await self.evaluate(before, {**activation, **former}, timeout_s=self.remaining_s())
            verdicts = compared(verdicts, earlier)
        return verdicts, of_policies

    async def check(self, rules: Sequence[JudgedRule], check: Check) -> tuple[Verdict, ...]:
        """Return the verdicts of `rules` on one check."""
        programs = [rule.program() for rule in rules]
        return await self.evaluate(programs, check_activation(self.request, check), timeout_s=self.remaining_s())


def _too_many(count: int) -> Judged:
    message = f"access rules speak of `ref`, and this commit moves {count}: expected at most {REFS_MAX}"
    return Judged(decision=AccessDecision(outcome=Access.DENIED, message=message), verdicts=())


async def permits_anything(
    evaluate: Evaluate, rules: Sequence[JudgedRule], principal: PrincipalView, *, catalog: str, timeout_s: float
) -> bool:
    """
    Return whether `rules` may permit `principal` anything at all in a catalog.

    False only if they certainly do not. Names of namespaces, tables and refs are left undefined, and an expression that
    cannot be decided without them counts as one that may hold.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    remaining_s = countdown(timeout_s)
    programs = [rule.program() for rule in rules]
    every = list(_all_that_can_be_asked(principal, catalog))
    # Without any operation most rules already show that nothing is permitted: one call instead of many.
    of_all = {name: value for name, value in every[0].items() if name not in {"op", "contentType"}}
    if not _may_permit(rules, await evaluate(programs, of_all, timeout_s=remaining_s())):
        return False
    for known in every:
        if _may_permit(rules, await evaluate(programs, known, timeout_s=remaining_s())):
            return True
    return False


async def permits_every(
    evaluate: Evaluate, rules: Sequence[JudgedRule], principal: PrincipalView, *, operation: str, timeout_s: float
) -> bool:
    """
    Return whether `rules` permit `principal` a read (`table.load`, `namespace.list`) of whatever there is of its kind.

    True only if they certainly do. Names of catalogs, namespaces, tables and refs are left undefined, and an expression
    that cannot be decided without them counts as one that may be anything. Rules of other vocabularies are not certain.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    if any(rule.vocabulary != VOCABULARY for rule in rules):
        return False
    kind = operation.partition(".")[0]
    view = CommitView(catalog="", namespace=(), name="", kind=kind, operation=operation)
    every = access_activation(AccessRequest(commit=view, principal=principal), ref="")
    known = {name: value for name, value in every.items() if name not in _NAMED}
    verdicts = await evaluate([rule.program() for rule in rules], known, timeout_s=timeout_s)
    outcomes = [(rule.effect, verdict.outcome) for rule, verdict in zip(rules, verdicts, strict=True)]
    forbids = any(effect is Effect.FORBID and outcome is not Outcome.DENY for effect, outcome in outcomes)
    return not forbids and (Effect.PERMIT, Outcome.ALLOW) in outcomes


def _all_that_can_be_asked(principal: PrincipalView, catalog: str) -> Iterator[dict[str, Json]]:
    """Yield the variables of each kind of request to the catalog that do not depend on names."""
    for kind, verbs in CONTENT_OPERATIONS.items():
        for verb in verbs:
            view = CommitView(catalog=catalog, namespace=(), name="", kind=kind, operation=f"{kind}.{verb}")
            known = access_activation(AccessRequest(commit=view, principal=principal), ref="")
            yield {name: value for name, value in known.items() if name not in _OPEN}


def countdown(timeout_s: float) -> Callable[[], float]:
    """Return a function that returns the rest of `timeout_s`; the first call of it starts the time."""
    clock = asyncio.get_running_loop().time
    until: float | None = None

    def remaining_s() -> float:
        nonlocal until
        if until is None:
            until = clock() + timeout_s
            return timeout_s
        return SecondsLeft(max(until - clock(), 0.001), of_s=timeout_s)

    return remaining_s


def _may_permit(rules: Sequence[JudgedRule], verdicts: Sequence[Verdict]) -> bool:
    outcomes = [(rule.effect, verdict.outcome) for rule, verdict in zip(rules, verdicts, strict=True)]
    if (Effect.FORBID, Outcome.ALLOW) in outcomes:
        return False
    return any(effect is Effect.PERMIT and outcome is not Outcome.DENY for effect, outcome in outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome, and the policy (id, version) that is its reason; `message` is for the client, empty if approved."""

    outcome: CommitDecision
    reason: tuple[str, int] | None = None
    message: str = ""


def decide_policies(verdicts: Sequence[Verdict]) -> Decision:
    """
    Return the decision that follows from `verdicts`, whose order decides which of several refusals is the reason.

    Verdicts of access rules may stand among them and are left to `access.decide_access`; any other kind is undecidable.
    """
    judged = [verdict for verdict in verdicts if verdict.kind != ACCESS_RULE]
    for verdict in judged:
        if verdict.kind == POLICY and verdict.outcome is Outcome.DENY:
            message = f"policy {verdict.id} (version {verdict.version}) does not allow this commit"
            return Decision(outcome=CommitDecision.REJECTED, reason=(verdict.id, verdict.version), message=message)
    for verdict in judged:
        if verdict.kind != POLICY or verdict.outcome is not Outcome.ALLOW:
            message = f"policy {verdict.id} (version {verdict.version}) could not be judged: {verdict.detail}"
            return Decision(outcome=CommitDecision.UNDECIDABLE, reason=(verdict.id, verdict.version), message=message)
    return Decision(outcome=CommitDecision.APPROVED)
