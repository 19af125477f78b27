# SPDX-License-Identifier: Apache-2.0
"""
Tries access rules on requests, to find where they hold and whether others decide there: for rules that nothing can be
proven of (`exact/`).

Found by evaluation, by the engine that judges requests, over the space of `rule_space.py`. A search for requests for
which a rule holds goes dimension by dimension, and drops what is false already while later dimensions are unknown: that
is false whatever they are. Around each request that was found, one dimension after the other is changed, to find one
where the other rules do not hold. For rules that are conjunctions of conditions on one variable each, that finds one if
the space has one; for others it may find none, and so a finding says how many requests it was looked for in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from gateway.asking.exact.deciding import may_cover
from gateway.asking.rule_findings import Finding, Kind
from gateway.asking.rule_space import DIMENSIONS, OPERATION, Point, Space
from gateway.policy.access import EACH_CHECK, AccessRequest, JudgedRule, speaks
from gateway.policy.checks import may_permit
from gateway.policy.engine import JudgesRows, Outcome, outcomes_of
from ledger.format.events import Effect

if TYPE_CHECKING:
    from ledger.format.canonical import Json

POINTS_MAX: Final = 4_000
"""Points of one dimension that a rule is tried on."""
AT_ONCE: Final = 250
"""Points that are made before other requests of the process get a turn."""
HELD_MAX: Final = 60
"""Points at which a rule holds that other rules are tried on."""
FROM_MAX: Final = 20
"""Those of them whose neighbours are looked at."""
NEIGHBOURS_MAX: Final = 3_000


@dataclass(slots=True, kw_only=True)
class Evaluation:
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
class Search:
    """Points at which a rule holds; without any, the dimension at which the last were dropped."""

    held: Sequence[Point]
    tried: int
    ended_at: str = ""
    was_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Tries the rules of one set; what was found of each is kept."""

    space: Space
    evaluation: Evaluation
    rules: Sequence[JudgedRule]
    searches: dict[str, Search] = field(default_factory=dict)

    async def search(self, rule: JudgedRule) -> Search:
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
        search = Search(
            held=[point for point, holds in zip(beam, held, strict=True) if holds],
            tried=self.evaluation.tried - before,
            ended_at=ended_at,
            was_cut=was_cut,
        )
        self.searches[rule.id] = search
        return search

    async def decided_by_others(self, rule: JudgedRule, held: Sequence[Point]) -> list[Finding]:
        """Return whether others decide wherever a permitting rule holds."""
        points = _spread(held, HELD_MAX)
        forbids = [one for one in self.rules if one.effect is Effect.FORBID]
        wider = [one for one in self.rules if may_cover(one, rule)]
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


def _decided(
    rule: JudgedRule, kind: Kind, message: str, by: Sequence[str], *, held: Sequence[Point], tried: int
) -> Finding:
    return Finding(rule=rule, kind=kind, message=message, by=by, tried=tried, held=len(held), example=held[0].words())


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
