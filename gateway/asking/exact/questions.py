# SPDX-License-Identifier: Apache-2.0
"""
Asks of access rules whether there is a request for which one holds and others do not.

Guarantee: an `Answer` that there is none is a proof, for all requests of all scenes. One that there is has a request,
and the engine that judges requests has judged the rules on it as the answer says. All else is not known: `Answer.known`
is false.

A rule that could not be judged neither holds nor fails to hold: it permits nothing, and where a forbidding rule could
not be judged, nothing is permitted either, but for the retirement of that rule (`access.decide_access`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from gateway.asking.exact.budget import Budget, OverBudgetError
from gateway.asking.exact.conditions import (
    Atom,
    Condition,
    Literal,
    OfGround,
    Reading,
    Results,
    View,
    both,
    either,
    opposite,
)
from gateway.asking.exact.scenes import Scene
from gateway.asking.exact.solving import Known, Solver, Values
from gateway.policy.access import EACH_CHECK, AccessRequest, JudgedRule, access_activation, speaks
from gateway.policy.checks import check_activation, may_permit, units_of
from gateway.policy.engine import ACCESS_RULE, Outcome, PolicyNotCompiledError, Program, outcomes_of
from gateway.policy.rule_formulas import Formula, Ground, JudgesRules, Opaque, parts_of
from ledger.format.events import Effect

if TYPE_CHECKING:
    from ledger.format.canonical import Json

STEPS_MAX: Final = 2_000_000
"""Steps of one question: some seconds."""
UNCONFIRMED_MAX: Final = 40
"""Requests that the engine judges otherwise, since something in a rule is opaque, before a question is given up."""
AT_ONCE: Final = 64
"""Requests that are found before the engine judges them."""
SCENES_KEPT_MAX: Final = 1_024
"""Scenes of which the views are kept: some times those of one tenant."""
VALUES_MAX: Final = 100_000
"""Values of unknowns that are kept."""
_RETIRES: Final = "access_rule.configure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A request, as the rule in question sees it: as a whole, or at one of its checks (`check`)."""

    scene: Scene
    check: View | None
    request: AccessRequest
    whole: Mapping[str, Json]
    checks: Mapping[str, Mapping[str, Json]]

    def variables(self) -> Mapping[str, Json]:
        """Return the variables of the rule in question."""
        return self.whole if self.check is None else self.checks[self.check.key]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    Requests that were found, none if it is `known` that there is none. `is_whole`: of each place it is known. `tried`
    is how many requests the engine has judged.
    """

    found: Sequence[Witness] = ()
    known: bool = True
    is_whole: bool = True
    tried: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """A scene, and the check at which a rule is asked, None for the request as a whole."""

    scene: Scene
    check: View | None


MakeConditions: TypeAlias = Callable[[Place], Iterable[Condition]]
Confirms: TypeAlias = Callable[[Witness, Mapping[str, Sequence[Outcome]]], bool]
"""Whether a request is as it should be, by an outcome of each rule for the whole, or one for each check."""


@dataclass(slots=True, kw_only=True)
class Rules:
    """
    Rules with their formulas, and the scenes that they are asked about. Made by `read_rules`.
    """

    rules: Sequence[JudgedRule]
    formulas: Mapping[str, Formula]
    of_ground: OfGround
    scenes: Sequence[Scene]
    judges: JudgesRules
    log_id: int
    timeout_s: float
    ends_s: float
    clock: Callable[[], float]
    _known: dict[tuple[str, int, str], Results] = field(default_factory=dict)
    _values: Known = field(default_factory=dict)

    def places(self, rule: JudgedRule) -> Iterator[Place]:
        """Yield where `rule` is asked."""
        for scene in self.scenes:
            yield from _places_in(scene, rule)

    def opaque_parts(self, rule: JudgedRule) -> list[str]:
        """Return the texts of those parts of `rule` that nothing is known of."""
        return [part.text for part in parts_of(self.formulas[rule.id]) if isinstance(part, Opaque)]

    def holds(self, rule: JudgedRule, place: Place) -> Condition:
        """Return when `rule` holds, and counts, at a place."""
        if not counts(rule, place.scene):
            return False
        return self._results(rule, place)[0]

    def forbids(self, rule: JudgedRule, place: Place) -> Condition:
        """Return when a forbidding rule holds for the request of a place."""
        return either(self._results(rule, each)[0] for each in _places_in(place.scene, rule))

    def lets_pass(self, rule: JudgedRule, place: Place) -> Condition:
        """Return when a forbidding rule certainly does not keep a request of a place from being permitted."""
        each = [self._results(rule, one) for one in _places_in(place.scene, rule)]
        fails = both(false for _, false in each)
        if place.scene.operation != _RETIRES or place.scene.is_top:
            return fails
        retires_it = Literal(Atom("path", "is", f".config.access_rule.{rule.id}"))
        return either((fails, both((retires_it, *(opposite(true) for true, _ in each)))))

    def _results(self, rule: JudgedRule, place: Place) -> Results:
        view = _whole_of(place.scene) if rule.vocabulary < EACH_CHECK or place.check is None else place.check
        key = rule.id, id(place.scene), view.key
        if key not in self._known:
            self._known[key] = Reading(view, self.of_ground).results(self.formulas[rule.id])
        return self._known[key]

    async def find(
        self,
        places: Sequence[Place],
        conditions: MakeConditions,
        confirms: Confirms,
        judged: Sequence[JudgedRule],
        *,
        every: bool = False,
    ) -> Answer:
        """
        Return a request of one of `places` for which all `conditions` hold (with `every`: one of each place).

        The rules `judged` are judged on it by the engine, and it counts if that `confirms` it.
        """
        budget = Budget(steps=STEPS_MAX, ends_s=self.ends_s, clock=self.clock)
        found: list[Witness] = []
        is_whole, tried, waiting = True, 0, list(places)
        while waiting and (every or not found):
            reached, is_certain, waiting = await asyncio.to_thread(
                self._search, waiting, conditions, budget, AT_ONCE if every else 1
            )
            tried += len(reached)
            confirmed = await self._confirmed(reached, confirms, judged)
            found += confirmed
            is_whole = is_whole and is_certain and len(confirmed) == len(reached)
            if budget.steps < 0 or tried - len(found) > UNCONFIRMED_MAX:
                break
        is_whole = is_whole and not waiting
        return Answer(found=found, known=is_whole or bool(found), is_whole=is_whole, tried=tried)

    def _search(
        self, places: Sequence[Place], conditions: MakeConditions, budget: Budget, at_most: int
    ) -> tuple[list[tuple[Place, Values]], bool, list[Place]]:
        """Return what was found, whether the rest has certainly nothing, and the places that are left."""
        found: list[tuple[Place, Values]] = []
        is_certain = True
        for number, place in enumerate(places):
            if len(found) >= at_most:
                return found, is_certain, list(places[number:])
            if len(self._values) > VALUES_MAX:
                self._values.clear()
            solver = Solver(place.scene.unknowns(), budget, self._values)
            try:
                budget.spend(1)
                values = solver.solve(conditions(place))
            except OverBudgetError:
                budget.steps = -1
                return found, False, list(places[number:])
            if values is not None:
                found.append((place, values))
            else:
                is_certain = is_certain and not solver.is_in_doubt
        return found, is_certain, []

    async def _confirmed(
        self,
        reached: Sequence[tuple[Place, Values]],
        confirms: Confirms,
        judged: Sequence[JudgedRule],
    ) -> list[Witness]:
        witnesses = [one for place, values in reached if (one := witness_of(place, values, judged)) is not None]
        outcomes = await self.outcomes(judged, witnesses)
        return [one for one, each in zip(witnesses, outcomes, strict=True) if confirms(one, each)]

    async def outcomes(
        self, rules: Sequence[JudgedRule], witnesses: Sequence[Witness]
    ) -> list[dict[str, tuple[Outcome, ...]]]:
        """Return by rule what the engine judges: of each witness one outcome for the whole, or one for each check."""
        of_wholes = [rule for rule in rules if rule.vocabulary < EACH_CHECK]
        of_checks = [rule for rule in rules if rule.vocabulary >= EACH_CHECK]
        wholes = await self._judge(of_wholes, [one.whole for one in witnesses])
        checks = iter(await self._judge(of_checks, [row for one in witnesses for row in one.checks.values()]))
        found = []
        for one, whole in zip(witnesses, wholes, strict=True):
            each = [next(checks) for _ in one.checks]
            of_rules: dict[str, tuple[Outcome, ...]] = {
                rule.id: (outcome,) for rule, outcome in zip(of_wholes, whole, strict=True)
            }
            of_rules |= {rule.id: tuple(row[place] for row in each) for place, rule in enumerate(of_checks)}
            found.append(of_rules)
        return found

    async def _judge(
        self, rules: Sequence[JudgedRule], rows: Sequence[Mapping[str, Json]]
    ) -> list[tuple[Outcome, ...]]:
        programs = [rule.program() for rule in rules]
        if not programs or not rows:
            return [() for _ in rows]
        judged = await self.judges.judge_rows(programs, {}, rows, log_id=self.log_id, timeout_s=self.timeout_s)
        return [outcomes_of(letters) for letters in judged]


def at_place(witness: Witness, outcomes: Sequence[Outcome], rule: JudgedRule) -> Outcome:
    """Return the outcome of a rule that is asked where the rule in question is; the strongest of all if that is not."""
    if rule.vocabulary < EACH_CHECK:
        return outcomes[0]
    if witness.check is not None:
        return outcomes[list(witness.checks).index(witness.check.key)]
    return next((one for one in (Outcome.ALLOW, Outcome.ERROR) if one in outcomes), Outcome.DENY)


def counts(rule: JudgedRule, scene: Scene) -> bool:
    """Return whether what `rule` permits counts where it holds, as in `access` and `checks`."""
    if rule.effect is Effect.FORBID:
        return True
    beyond = scene.beyond or frozenset()
    if rule.vocabulary < EACH_CHECK:
        return speaks(rule, beyond)
    return may_permit(rule, scene.request_of(None), beyond)


def witness_of(place: Place, values: Values, judged: Sequence[JudgedRule]) -> Witness | None:
    """
    Return the request with these values, as the functions that judge requests make it; None if it is none of the place.
    """
    scene = place.scene
    retired = None
    if scene.operation == _RETIRES and not scene.is_top:
        of_rule = values.texts["path"].removeprefix(".config.access_rule.")
        retired = of_rule if any(rule.id == of_rule for rule in judged) else None
    request = scene.request_of(values, retired=retired)
    ref = values.texts.get("ref", "main") if scene.kind == "table" else ""
    unit = next((one for one in units_of(request) if one.ref == ref), None)
    if unit is None:
        return None
    checks = {check.op: check_activation(request, check) for check in unit.checks}
    if [view.key for view in checks_of(scene)] != list(checks):
        return None
    whole = access_activation(request, ref=unit.ref)
    return Witness(scene=scene, check=place.check, request=request, whole=whole, checks=checks)


def checks_of(scene: Scene) -> tuple[View, ...]:
    """Return what rules see of each of the checks of a request of a scene."""
    return _views(scene)[1]


def _whole_of(scene: Scene) -> View:
    return _views(scene)[0]


@lru_cache(maxsize=SCENES_KEPT_MAX)
def _views(scene: Scene) -> tuple[View, tuple[View, ...]]:
    return scene.whole(), tuple(scene.checks())


def _places_in(scene: Scene, rule: JudgedRule) -> Iterator[Place]:
    """Yield where a rule is asked about a request of a scene."""
    if rule.vocabulary < EACH_CHECK:
        yield Place(scene, None)
    else:
        yield from (Place(scene, check) for check in checks_of(scene))


async def read_rules(
    judges: JudgesRules,
    rules: Sequence[JudgedRule],
    scenes: Sequence[Scene],
    *,
    log_id: int,
    timeout_s: float,
    ends_s: float,
    clock: Callable[[], float],
) -> Rules:
    """
    Return `rules` with what they say. `ends_s` is when all questions about them end, by `clock`.

    Raises:
        PolicyEngineError: if the engine gave no answer.
    """
    formulas: dict[str, Formula] = {}
    for rule in rules:
        try:
            formulas[rule.id] = await judges.read_rule(rule.expression, log_id=log_id, timeout_s=timeout_s)
        except PolicyNotCompiledError:
            formulas[rule.id] = Opaque(rule.expression)
    texts = list(
        dict.fromkeys(part.text for one in formulas.values() for part in parts_of(one) if isinstance(part, Ground))
    )
    triples = dict.fromkeys(view.ground for scene in scenes for view in (_whole_of(scene), *checks_of(scene)))
    known = await _judged_ground(judges, texts, list(triples), log_id=log_id, timeout_s=timeout_s)
    return Rules(
        rules=rules,
        formulas=formulas,
        of_ground=lambda text, triple: known[text, triple],
        scenes=scenes,
        judges=judges,
        log_id=log_id,
        timeout_s=timeout_s,
        ends_s=ends_s,
        clock=clock,
    )


async def _judged_ground(
    judges: JudgesRules,
    texts: Sequence[str],
    triples: Sequence[tuple[str, str, str]],
    *,
    log_id: int,
    timeout_s: float,
) -> dict[tuple[str, tuple[str, str, str]], bool | None]:
    """Return what the engine gives for each text, for the values of op, content type and type."""
    programs = [
        Program(kind=ACCESS_RULE, id=f"part-{number}", version=1, expression=text) for number, text in enumerate(texts)
    ]
    api: Json = {"apiName": "Iceberg", "apiVersion": 1}
    rows: list[Mapping[str, Json]] = [
        {"op": op, "contentType": content_type, "type": own, "api": api} for op, content_type, own in triples
    ]
    judged = await judges.judge_rows(programs, {}, rows, log_id=log_id, timeout_s=timeout_s)
    values = {Outcome.ALLOW: True, Outcome.DENY: False, Outcome.ERROR: None}
    return {
        (text, triple): values[outcome]
        for triple, letters in zip(triples, judged, strict=True)
        for text, outcome in zip(texts, outcomes_of(letters), strict=True)
    }
