# SPDX-License-Identifier: Apache-2.0
"""
Finds access rules in force that do nothing: they hold for no request, or another rule decides wherever they hold.

 never       the rule holds for no request. It is certain where that follows from operations, callers or aliases alone,
             whatever the names are; otherwise no request was found
 unknown     it names an operation, a content type, an alias or a role that there is not
 overridden  a permitting rule: wherever it holds, a forbidding one holds, too
 covered     a permitting rule: wherever it holds, another permitting one holds, which is wider or was there before

Found by evaluation, by the engine that judges requests, over the space of `rule_space.py`. A search for requests for
which a rule holds goes dimension by dimension, and drops what is false already while later dimensions are unknown: that
is false whatever they are. Around each request that was found, one dimension after the other is changed, to find one
where the other rules do not hold. For rules that are conjunctions of conditions on one variable each, that finds one if
the space has one; for others it may find none, and so a finding says how many requests it was looked for in.

Everything is bounded, and what was not looked at is listed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from gateway.asking.callers import NOBODY
from gateway.asking.names import read_names
from gateway.asking.requests import OPERATIONS
from gateway.asking.rule_space import DIMENSIONS, OPERATION, Point, Space
from gateway.commit.gateway import Gateway
from gateway.control.plane import ControlState
from gateway.policy.access import (
    CONTENT_TYPES,
    EACH_CHECK,
    IN_CEDAR,
    NO_CONTENT,
    AccessRequest,
    JudgedRule,
    operation_of,
    speaks,
)
from gateway.policy.checks import OF_REFERENCES, may_permit
from gateway.policy.engine import ACCESS_RULE, JudgesRows, Outcome, outcomes_of
from gateway.policy.former import is_in_doubt
from gateway.policy.variables import CommitView
from gateway.policy.vocabulary import variables_of
from gateway.policy.words import compared_with, reads
from ledger.format.events import Effect

if TYPE_CHECKING:
    from ledger.format.canonical import Json

LINT_S: Final = 30.0
RULES_MAX: Final = 200
CALLERS_MAX: Final = 60
POINTS_MAX: Final = 4_000
"""Points of one dimension that a rule is tried on."""
AT_ONCE: Final = 250
"""Points that are made before other requests of the process get a turn."""
HELD_MAX: Final = 60
"""Points at which a rule holds that other rules are tried on."""
FROM_MAX: Final = 20
"""Those of them whose neighbours are looked at."""
NEIGHBOURS_MAX: Final = 3_000

_CLOSED: Final = (OPERATION, "catalog")
"""Dimensions of which the space has all values that there are; of callers it has all roles that the rule names."""


class Kind(StrEnum):
    """What a finding is."""

    NEVER = "never"
    UNKNOWN = "unknown"
    OVERRIDDEN = "overridden"
    COVERED = "covered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """
    A rule that does nothing, or less than it says.

    `by` are the rules that decide in its place, `names` what there is not. It was `tried` on so many requests, and held
    for `held` of them, `example` among them. `certain` says that it does not depend on which requests were tried.
    """

    rule: JudgedRule
    kind: Kind
    message: str
    certain: bool = False
    by: Sequence[str] = ()
    names: Sequence[str] = ()
    tried: int = 0
    held: int = 0
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """What was found in the rules as of control entry `as_of`, and what was not looked at."""

    as_of: int
    rules: int
    tried: int
    findings: Sequence[Finding]
    left_out: Sequence[str]


async def lint_rules(gateway: Gateway, tenant: UUID, log_id: int) -> Linted:
    """
    Return which access rules in force do nothing.

    Raises:
        UnavailableError: if the rules cannot be read, or not be evaluated.
    """
    state = await gateway.control.current(log_id)
    every = [rule.judged() for rule in state.access_rules.values()]
    rules = [rule for rule in every if not is_in_doubt(rule) and rule.vocabulary != IN_CEDAR]
    names = await read_names(gateway, tenant, state)
    left_out = list(names.left_out)
    if doubtful := [rule.id for rule in every if is_in_doubt(rule)]:
        left_out.append(f"rules of the first vocabulary that may mean something else now: {', '.join(doubtful)}")
    if in_cedar := [rule.id for rule in every if rule.vocabulary == IN_CEDAR]:
        left_out.append(f"rules in Cedar, and what they do to the others: {', '.join(in_cedar)}")
    if more := rules[RULES_MAX:]:
        left_out.append(f"rules after the first {RULES_MAX}: {len(more)}")
    keys = [key for key in state.keys.values() if not key.is_expired(gateway.clock())]
    callers = list(dict.fromkeys((key.roles, key.actor) for key in keys))
    if len(callers) > CALLERS_MAX:
        left_out.append(f"holders of keys after the first {CALLERS_MAX}: {len(callers) - CALLERS_MAX}")
    space = Space(callers=(*callers[:CALLERS_MAX], ((), NOBODY)), names=names.by_alias)
    known = _Known(state=state, roles=frozenset(role for key in keys for role in key.roles))
    evaluation = _Evaluation(judges=gateway.judge.rows, log_id=log_id, timeout_s=LINT_S)
    findings: list[Finding] = []
    linting = _Linting(space=space, known=known, evaluation=evaluation, rules=rules[:RULES_MAX])
    ends_s = asyncio.get_running_loop().time() + LINT_S
    for position, rule in enumerate(linting.rules):
        if asyncio.get_running_loop().time() > ends_s:
            left_out.append(f"after {LINT_S:g} s, the rules from {rule.id} on: {len(linting.rules) - position}")
            break
        findings += await linting.findings(rule)
    return Linted(
        as_of=state.as_of, rules=len(every), tried=evaluation.tried, findings=findings, left_out=tuple(left_out)
    )


def linted_shown(linted: Linted) -> dict[str, Any]:
    """Return it as JSON."""
    return {
        "as_of": linted.as_of,
        "rules": linted.rules,
        "tried": linted.tried,
        "findings": [
            {
                "rule": {"id": each.rule.id, "version": each.rule.version},
                "effect": each.rule.effect.value,
                "finding": each.kind.value,
                "certain": each.certain,
                "by": list(each.by),
                "names": list(each.names),
                "tried": each.tried,
                "held": each.held,
                "example": each.example,
                "message": each.message,
            }
            for each in linted.findings
        ],
        "not_looked_at": list(linted.left_out),
    }


@dataclass(slots=True, kw_only=True)
class _Evaluation:
    """Evaluates rules at points; counts the points."""

    judges: JudgesRows
    log_id: int
    timeout_s: float
    tried: int = 0

    async def outcomes(
        self, rules: Sequence[JudgedRule], points: Sequence[Point], *, unknown: frozenset[str] = frozenset()
    ) -> list[tuple[Outcome, ...]]:
        """Return for each point an outcome of each rule; the variables that are `unknown` have no value."""
        self.tried += len(points)
        rows: list[dict[str, Json]] = []
        for number, point in enumerate(points):
            rows.append({name: value for name, value in point.variables().items() if name not in unknown})
            if not number % AT_ONCE:
                await asyncio.sleep(0)
        programs = [rule.program() for rule in rules]
        judged = await self.judges.judge_rows(programs, {}, rows, log_id=self.log_id, timeout_s=self.timeout_s)
        return [outcomes_of(letters) for letters in judged]

    async def holding(self, rule: JudgedRule, points: Sequence[Point]) -> list[bool]:
        """Return for each point whether `rule` holds there, and counts."""
        return (await self.holding_each([rule], points))[rule.id]

    async def holding_each(self, rules: Sequence[JudgedRule], points: Sequence[Point]) -> dict[str, list[bool]]:
        """Return by rule for each point whether it holds there, and counts."""
        outcomes = await self.outcomes(rules, points)
        requests = [point.request() for point in points]
        return {
            rule.id: [
                each[place] is Outcome.ALLOW and _counts(rule, request)
                for each, request in zip(outcomes, requests, strict=True)
            ]
            for place, rule in enumerate(rules)
        }

    async def anywhere(self, rule: JudgedRule, points: Sequence[Point]) -> list[bool]:
        """Return for each point whether a rule of version 3 holds at one of the checks of its request."""
        each = [list(point.each_check()) for point in points]
        held = iter(await self.holding(rule, [check for checks in each for check in checks]))
        return [any(list(islice(held, len(checks)))) for checks in each]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What there is that rules name."""

    state: ControlState
    roles: frozenset[str]

    def missing(self, rule: JudgedRule) -> dict[str, str]:
        """Return what the rule names and there is not, each with what it was taken for."""
        kinds = {*CONTENT_TYPES.values(), *(content_type for content_type, _ in NO_CONTENT.values())}
        known: Mapping[str, tuple[str, Collection[str]]] = {
            "op": ("operation", _OPERATIONS),
            "contentType": ("content type", kinds),
            "type": ("content type", kinds),
            "catalog": ("catalog in force", self.state.catalogs),
        }
        found: dict[str, str] = {}
        for variable, (what, names) in known.items():
            found |= dict.fromkeys(_absent(rule, variable, names), what)
        of_roles = (*_absent(rule, "roles", self.roles), *_absent(rule, "role", self.roles))
        return found | dict.fromkeys(of_roles, "role of a key in force")


def _absent(rule: JudgedRule, variable: str, names: Collection[str]) -> list[str]:
    """Return the texts that a rule compares a variable with, and that are none of `names`, nor a part of one."""
    return [
        text
        for text, is_whole in compared_with(rule.expression, variable).items()
        if (text not in names if is_whole else not any(text in name for name in names))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """Points at which a rule holds; without any, the dimension at which the last were dropped."""

    held: Sequence[Point]
    tried: int
    ended_at: str = ""
    was_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linting:
    space: Space
    known: _Known
    evaluation: _Evaluation
    rules: Sequence[JudgedRule]
    searches: dict[str, _Search] = field(default_factory=dict)

    async def findings(self, rule: JudgedRule) -> list[Finding]:
        search = await self.search(rule)
        missing = self.known.missing(rule)
        if not search.held:
            return [_never(rule, search, missing)]
        found = []
        if missing:
            words = ", ".join(f"no {what} is {text!r:.80}" for text, what in missing.items())
            example = search.held[0].words()
            found.append(
                Finding(
                    rule=rule,
                    kind=Kind.UNKNOWN,
                    message=words,
                    names=tuple(missing),
                    tried=search.tried,
                    held=len(search.held),
                    example=example,
                )
            )
        if rule.effect is Effect.PERMIT:
            found += await self._decided_by_others(rule, search.held)
        return found

    async def search(self, rule: JudgedRule) -> _Search:
        """Look for points at which `rule` holds, dimension by dimension."""
        if (known := self.searches.get(rule.id)) is not None:
            return known
        before = self.evaluation.tried
        beam, was_cut, ended_at = list(self.space.operations(rule)), False, ""
        unknown = {name for names in DIMENSIONS.values() for name in names}
        for dimension in (OPERATION, *DIMENSIONS):
            if dimension != OPERATION:
                widths = [len(list(self.space.widened(dimension, point, [rule]))) for point in _spread(beam, FROM_MAX)]
                # Fewer points rather than fewer values: what a rule names has to be among these.
                kept = _spread(beam, max(1, POINTS_MAX // max(1, *widths)))
                was_cut = was_cut or len(kept) < len(beam)
                beam = [wider for point in kept for wider in self.space.widened(dimension, point, [rule])]
                unknown -= {*DIMENSIONS[dimension]}
            outcomes = await self.evaluation.outcomes([rule], beam, unknown=frozenset(unknown))
            beam = [point for point, (outcome,) in zip(beam, outcomes, strict=True) if outcome is not Outcome.DENY]
            if not beam:
                ended_at = dimension
                break
        held = [] if not beam else await self.evaluation.holding(rule, beam)
        search = _Search(
            held=[point for point, holds in zip(beam, held, strict=True) if holds],
            tried=self.evaluation.tried - before,
            ended_at=ended_at,
            was_cut=was_cut,
        )
        self.searches[rule.id] = search
        return search

    async def _decided_by_others(self, rule: JudgedRule, held: Sequence[Point]) -> list[Finding]:
        """Return whether others decide wherever a permitting rule holds."""
        points = _spread(held, HELD_MAX)
        forbids = [one for one in self.rules if one.effect is Effect.FORBID]
        wider = [one for one in self.rules if _may_cover(one, rule)]
        forbidden, covered = await self._held_by(forbids, wider, points)
        wider = [one for one in wider if all(covered[one.id])]
        is_forbidden = bool(forbids) and all(any(held) for held in zip(*forbidden.values(), strict=True))
        if not wider and not is_forbidden:
            return []
        # Look around: one dimension after the other, by what these rules name.
        suspects = [rule, *wider, *(forbids if is_forbidden else ())]
        around = dict.fromkeys(
            near for point in _spread(points, FROM_MAX) for near in self.space.neighbours(point, suspects)
        )
        near = _spread(list(around), NEIGHBOURS_MAX)
        also = [point for point, holds in zip(near, await self.evaluation.holding(rule, near), strict=True) if holds]
        every = [*points, *also]
        forbidden, covered = await self._held_by(forbids if is_forbidden else [], wider, every)
        found = []
        if is_forbidden and all(any(held) for held in zip(*forbidden.values(), strict=True)):
            by = [one.id for one in forbids if any(forbidden[one.id])]
            message = f"wherever it holds, a forbidding rule holds, too: {', '.join(by)}"
            found.append(_decided(rule, Kind.OVERRIDDEN, message, by, held=every, tried=len(points) + len(near)))
        for one in wider:
            if all(covered[one.id]) and (how := await self._how_covered(rule, one)):
                message = f"wherever it holds, {one.id} holds, {how}"
                found.append(_decided(rule, Kind.COVERED, message, [one.id], held=every, tried=len(points) + len(near)))
                break
        return found

    async def _held_by(
        self, forbids: Sequence[JudgedRule], permits: Sequence[JudgedRule], points: Sequence[Point]
    ) -> tuple[dict[str, list[bool]], dict[str, list[bool]]]:
        """Return by rule for which points' requests they forbid, and which points they permit."""
        of_wholes = [one for one in (*forbids, *permits) if one.vocabulary < EACH_CHECK]
        held = await self.evaluation.holding_each(of_wholes, [point.as_whole() for point in points])
        of_checks = [one for one in permits if one.vocabulary >= EACH_CHECK]
        held |= await self.evaluation.holding_each(of_checks, points)
        held |= {one.id: await self.evaluation.anywhere(one, points) for one in forbids if one.vocabulary >= EACH_CHECK}
        return {one.id: held[one.id] for one in forbids}, {one.id: held[one.id] for one in permits}

    async def _how_covered(self, rule: JudgedRule, by: JudgedRule) -> str:
        """Return in which way `by` is more than `rule`; empty if `rule` stays, of two that mean the same."""
        if by.vocabulary != rule.vocabulary:
            return "for all checks of a request"
        search = await self.search(by)
        others = await self.evaluation.holding(rule, search.held)
        if not all(others):
            return "and for more"
        order = [one.id for one in self.rules]
        return "which is older, and no request tells them apart" if order.index(by.id) < order.index(rule.id) else ""


def _never(rule: JudgedRule, search: _Search, missing: Mapping[str, str]) -> Finding:
    read = reads(rule.expression, variables_of(ACCESS_RULE))
    words = "; ".join(f"no {what} is {text!r:.80}" for text, what in missing.items())
    # What a key would grant is no closed dimension.
    certain = search.ended_at in _CLOSED and not search.was_cut and "grant" not in read
    if not read:
        message, certain = "it is false, whatever is asked", search.ended_at == OPERATION
    elif search.ended_at == OPERATION:
        message = "it holds for no operation"
    elif search.ended_at == "catalog":
        message = "it holds in no catalog in force"
    else:
        message = f"no request was found for which it holds, in {search.tried:,} that were tried"
    message = f"{message}: {words}" if words else message
    return Finding(
        rule=rule, kind=Kind.NEVER, message=message, certain=certain, names=tuple(missing), tried=search.tried
    )


def _decided(
    rule: JudgedRule, kind: Kind, message: str, by: Sequence[str], *, held: Sequence[Point], tried: int
) -> Finding:
    return Finding(rule=rule, kind=kind, message=message, by=by, tried=tried, held=len(held), example=held[0].words())


def _may_cover(one: JudgedRule, rule: JudgedRule) -> bool:
    """Return whether a permitting rule could stand for `rule`: one that is asked about each check not for a whole."""
    if one.id == rule.id or one.effect is not Effect.PERMIT:
        return False
    return one.vocabulary < EACH_CHECK or rule.vocabulary >= EACH_CHECK


def _counts(rule: JudgedRule, request: AccessRequest) -> bool:
    """Return whether what `rule` permits counts for a request where it holds, as in `access` and `checks`."""
    if rule.effect is Effect.FORBID:
        return True
    beyond = request.grant.beyond(request.principal)
    return speaks(rule, beyond) if rule.vocabulary < EACH_CHECK else may_permit(rule, request, beyond)


def _spread(points: Sequence[Point], at_most: int) -> list[Point]:
    """Return at most so many points, from all over the list."""
    if len(points) <= at_most:
        return list(points)
    return [points[number * len(points) // at_most] for number in range(at_most)]


def _every_operation() -> frozenset[str]:
    of_requests = {
        operation_of(CommitView(catalog="", namespace=(), name="", kind=kind, operation=f"{kind}.{verb}"))
        for kind, verbs in OPERATIONS.items()
        for verb in verbs
    }
    return frozenset(of_requests) | OF_REFERENCES


_OPERATIONS: Final = _every_operation()
