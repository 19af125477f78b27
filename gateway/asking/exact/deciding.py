# SPDX-License-Identifier: Apache-2.0
"""
What an access rule does beside others: whether it ever holds, and whether others decide wherever it does.

Guarantee: every result is proven for all requests, or is a request that the engine has judged so; None says that it is
not known, since something in a rule is opaque, or the time was over.

Of many rules, those alone are looked at that hold where the rule in question was seen to hold: others are added as
long as requests are found that show that these are not all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.asking.exact.conditions import Condition, opposite
from gateway.asking.exact.questions import Answer, Place, Rules, Witness, at_place, counts
from gateway.policy.access import EACH_CHECK, JudgedRule
from gateway.policy.engine import Outcome
from ledger.format.events import Effect

ADDED_MAX: Final = 40
"""How often rules are added to those that are looked at."""

Outcomes: TypeAlias = Mapping[str, Sequence[Outcome]]
"""Of each rule: one for the request as a whole, or one for each of its checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """
    Others decide wherever a rule holds: `by` these. `is_wider`: the one that covers it holds for more; `may_fail`: a
    forbidding one may also be one that cannot be judged.
    """

    by: Sequence[JudgedRule]
    is_wider: bool = False
    may_fail: bool = False


@dataclass(slots=True)
class Deciding:
    """Answers about the rules of one set; what was found of each is kept."""

    rules: Rules
    tried: int = 0
    _held: dict[str, Answer] = field(default_factory=dict)

    async def holds(self, rule: JudgedRule) -> Answer:
        """Return a request for which `rule` holds, of each place where it does."""
        if rule.id not in self._held:
            self._held[rule.id] = await self._find(rule, [], list(self.rules.places(rule)), every=True)
        return self._held[rule.id]

    async def forbidden(self, rule: JudgedRule, forbids: Sequence[JudgedRule]) -> Decided | bool | None:
        """
        Return which of `forbids` keep a rule from permitting anything; False if they leave something.
        """
        by = await self._needed(rule, forbids, self.rules.lets_pass, _does_not_pass)
        if not isinstance(by, list):
            return by
        holding = await self._needed(
            rule, by, lambda one, place: opposite(self.rules.forbids(one, place)), _is_forbidden
        )
        if holding is None:
            return None
        return Decided(by=by, may_fail=holding is False)

    async def covered(self, rule: JudgedRule, others: Sequence[JudgedRule]) -> Decided | bool | None:
        """
        Return one of `others` that permits all that `rule` does, and is wider or comes before it; False if none does.
        """
        held = await self.holds(rule)
        outcomes = await self.rules.outcomes(others, held.found)
        order = {one.id: number for number, one in enumerate(self.rules.rules)}
        is_known = True
        for one in others:
            if not all(_permits(witness, each, one) for witness, each in zip(held.found, outcomes, strict=True)):
                continue
            places = self._places_of(rule, held)
            answer = await self._find(rule, [one], places, self._does_not_hold, _permits)
            is_known = is_known and answer.known
            if answer.found or not answer.known:
                continue
            if one.vocabulary != rule.vocabulary:
                return Decided(by=[one], is_wider=True)
            back = await self._find(one, [rule], list(self.rules.places(one)), self._does_not_hold, _permits)
            is_known = is_known and back.known
            if back.found or (back.known and order[one.id] < order[rule.id]):
                return Decided(by=[one], is_wider=bool(back.found))
        return False if is_known else None

    async def covered_together(self, rule: JudgedRule, others: Sequence[JudgedRule]) -> Decided | bool | None:
        """
        Return those of `others` that together permit all that `rule` does; False if they do not.
        """
        by = await self._needed(rule, others, self._does_not_hold, _permits)
        return Decided(by=by) if isinstance(by, list) else by

    def _does_not_hold(self, one: JudgedRule, place: Place) -> Condition:
        return opposite(self.rules.holds(one, place))

    async def _needed(
        self,
        rule: JudgedRule,
        others: Sequence[JudgedRule],
        condition: Callable[[JudgedRule, Place], Condition],
        decides: Callable[[Witness, Outcomes, JudgedRule], bool],
    ) -> list[JudgedRule] | bool | None:
        """
        Return those of `others` of which one decides wherever `rule` holds; False if there is a request where none
        does. `condition` says that one does not decide, `decides` whether the engine's outcomes say that it does.
        """
        held = await self.holds(rule)
        seen = await self.rules.outcomes(others, held.found)
        if not all(
            any(decides(witness, each, one) for one in others) for witness, each in zip(held.found, seen, strict=True)
        ):
            return False
        needed = [
            one
            for one in others
            if any(decides(witness, each, one) for witness, each in zip(held.found, seen, strict=True))
        ]
        for _ in range(ADDED_MAX):
            answer = await self._find(rule, needed, self._places_of(rule, held), condition, decides)
            if not answer.found:
                return needed if answer.known else None
            (each,) = await self.rules.outcomes(others, answer.found[:1])
            more = [one for one in others if decides(answer.found[0], each, one)]
            if not more:
                return False
            needed = [one for one in others if one in needed or one in more]
        return None

    def _places_of(self, rule: JudgedRule, held: Answer) -> list[Place]:
        """Return where `rule` may hold."""
        if not held.is_whole:
            return list(self.rules.places(rule))
        places = dict.fromkeys((witness.scene, witness.check and witness.check.key) for witness in held.found)
        return [place for place in self.rules.places(rule) if (place.scene, place.check and place.check.key) in places]

    async def _find(
        self,
        rule: JudgedRule,
        others: Sequence[JudgedRule],
        places: Sequence[Place],
        condition: Callable[[JudgedRule, Place], Condition] | None = None,
        decides: Callable[[Witness, Outcomes, JudgedRule], bool] | None = None,
        *,
        every: bool = False,
    ) -> Answer:
        """Return where `rule` holds, and `condition` does of each of `others`: where by the engine none `decides`."""

        def conditions(place: Place) -> list[Condition]:
            of_others = [] if condition is None else [condition(one, place) for one in others]
            return [self.rules.holds(rule, place), *of_others]

        def confirms(witness: Witness, outcomes: Outcomes) -> bool:
            is_decided = decides is not None and any(decides(witness, outcomes, one) for one in others)
            return _permits(witness, outcomes, rule) and not is_decided

        answer = await self.rules.find(places, conditions, confirms, [rule, *others], every=every)
        self.tried += answer.tried
        return answer


def _permits(witness: Witness, outcomes: Outcomes, one: JudgedRule) -> bool:
    """Return whether a rule holds, and counts, where the rule in question was asked."""
    return at_place(witness, outcomes[one.id], one) is Outcome.ALLOW and counts(one, witness.scene)


def _is_forbidden(_: Witness, outcomes: Outcomes, one: JudgedRule) -> bool:
    return Outcome.ALLOW in outcomes[one.id]


def _does_not_pass(witness: Witness, outcomes: Outcomes, one: JudgedRule) -> bool:
    """Return whether a forbidding rule keeps a request from being permitted."""
    if witness.request.retired == one.id:
        return Outcome.ALLOW in outcomes[one.id]
    return any(outcome is not Outcome.DENY for outcome in outcomes[one.id])


def may_cover(one: JudgedRule, rule: JudgedRule) -> bool:
    """Return whether a permitting rule could stand for `rule`: one that is asked about each check not for a whole."""
    if one.id == rule.id or one.effect is not Effect.PERMIT:
        return False
    return one.vocabulary < EACH_CHECK or rule.vocabulary >= EACH_CHECK
