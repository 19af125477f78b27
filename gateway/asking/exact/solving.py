# SPDX-License-Identifier: Apache-2.0
"""
Looks for values of the unknowns of a scene for which a condition holds.

Guarantee: values that are returned fulfil the condition; None says that there are none. The search assumes literals
that must hold, asks whether values fulfil those of each unknown (unknowns do not depend on each other, apart from the
two lists), drops what cannot hold, and tries what is left of the shortest alternative one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from string import ascii_letters, digits
from typing import Final, TypeAlias

from gateway.asking.exact.actions import WithActions
from gateway.asking.exact.budget import Budget
from gateway.asking.exact.conditions import ACTIONS, OPAQUE, ROLES, Both, Condition, Either, Literal, both, opposite
from gateway.asking.exact.lists import Granting, Lists, UndecidedError, find_lists
from gateway.asking.exact.texts import Language, Of, find
from gateway.policy.rule_formulas import ELEMENT, ROLE

ROLE_NAMES: Final = Of(f"{ascii_letters}{digits}_.:/@-", f"{ascii_letters}{digits}")
"""What roles can be (`admin.limits.check_roles`)."""
LISTS: Final = "lists"
_OF_LISTS: Final = frozenset({ROLES, ROLE, "granted"})

Store: TypeAlias = Mapping[str, frozenset[Literal]]
Found: TypeAlias = "str | Lists | frozenset[str] | bool"


class _Undecided:
    """In place of a value: it is not known whether there is one."""


_UNDECIDED: Final = _Undecided()
Known: TypeAlias = "dict[tuple[object, frozenset[Literal]], Found | _Undecided | None]"
"""Values by what an unknown can be, and the literals that are to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknowns:
    """What there can be: `texts` by name, the `actions` of the request, and what a key grants."""

    texts: Mapping[str, Language | tuple[str, ...]]
    actions: WithActions | None = None
    granting: Granting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Values of the unknowns of a scene."""

    texts: Mapping[str, str]
    lists: Lists
    actions: frozenset[str]


@dataclass(slots=True)
class Solver:
    """
    Looks for values of one scene's unknowns. `is_in_doubt`, once something could not be decided. What was `known` of
    some literals stays so for every unknown that can be the same.
    """

    unknowns: Unknowns
    budget: Budget
    known: Known = field(default_factory=dict)
    is_in_doubt: bool = False

    def solve(self, conditions: Iterable[Condition]) -> Values | None:
        """
        Return values for which all `conditions` hold, None if there are none; then `is_in_doubt` may say otherwise.

        Raises:
            OverBudgetError: if the budget is spent before that is known.
        """
        whole = both(conditions)
        store = self._search([whole], {})
        return None if store is None else self._values(store)

    def _search(self, conditions: Iterable[Condition], store: Store) -> Store | None:
        held = dict(store)
        alternatives = self._settled(list(conditions), held)
        if alternatives is None:
            return None
        if not alternatives:
            return held if all(self._value(group, literals) is not None for group, literals in held.items()) else None
        shortest = min(alternatives, key=lambda one: len(one.parts))
        others = [one for one in alternatives if one is not shortest]
        ruled_out: list[Condition] = []
        for part in shortest.parts:
            found = self._search([*others, *ruled_out, part], held)
            if found is not None:
                return found
            if isinstance(part, Literal):
                ruled_out.append(opposite(part))
        return None

    def _settled(self, waiting: list[Condition], held: dict[str, frozenset[Literal]]) -> list[Either] | None:
        """
        Assume in `held` what must hold of the conditions `waiting`; return what is open, None if they cannot hold.
        """
        alternatives: list[Either] = []
        while waiting:
            while waiting:
                condition = waiting.pop()
                if condition is False or (isinstance(condition, Literal) and not self._assume(held, condition)):
                    return None
                if isinstance(condition, Both):
                    waiting += condition.parts
                elif isinstance(condition, Either):
                    alternatives.append(condition)
            narrowed = [self._narrowed(alternative, held) for alternative in alternatives]
            alternatives = [one for one in narrowed if isinstance(one, Either)]
            waiting += (one for one in narrowed if not isinstance(one, Either))
        return alternatives

    def _narrowed(self, alternative: Either, held: Store) -> Condition:
        """Return what of an alternative is possible yet; True if one part of it holds anyway."""
        possible: list[Condition] = []
        for part in alternative.parts:
            if isinstance(part, Literal):
                if not self._may(held, part):
                    continue
                if not self._may(held, Literal(part.atom, not part.wanted)):
                    return True
            elif isinstance(part, Both) and not all(
                self._may(held, one) for one in part.parts if isinstance(one, Literal)
            ):
                continue
            possible.append(part)
        if len(possible) > 1:
            return Either(tuple(possible))
        return possible[0] if possible else False

    def _assume(self, held: dict[str, frozenset[Literal]], literal: Literal) -> bool:
        group = _group_of(literal)
        with_it = held.get(group, frozenset()) | {literal}
        if self._value(group, with_it) is None:
            return False
        held[group] = with_it
        return True

    def _may(self, held: Store, literal: Literal) -> bool:
        group = _group_of(literal)
        return self._value(group, held.get(group, frozenset()) | {literal}) is not None

    def _value(self, group: str, literals: frozenset[Literal]) -> Found | None:
        """Return a value of an unknown (of both lists) for which its literals hold."""
        key = self._domain(group), literals
        if key not in self.known:
            self.budget.spend(1)
            try:
                self.known[key] = self._find(group, literals)
            except UndecidedError:
                self.known[key] = _UNDECIDED
        found = self.known[key]
        if isinstance(found, _Undecided):
            self.is_in_doubt = True
            return None
        return found

    def _domain(self, group: str) -> object:
        if group in self.unknowns.texts:
            return self.unknowns.texts[group]
        if group == ACTIONS:
            return self.unknowns.actions
        return (LISTS, self.unknowns.granting) if group == LISTS else group

    def _find(self, group: str, literals: frozenset[Literal]) -> Found | None:
        if group == LISTS:
            return self._find_lists(literals)
        if group == ACTIONS:
            names = {
                wanted: {str(one.atom.operand) for one in literals if one.wanted is wanted} for wanted in (True, False)
            }
            return None if self.unknowns.actions is None else self.unknowns.actions.find(names[True], names[False])
        if group.startswith(OPAQUE):
            results = {bool(one.atom.operand) for one in literals if one.wanted}
            return None if len(results) > 1 or _is_contradicted(literals) else True
        language: Language | tuple[str, ...] = ROLE_NAMES if group == ELEMENT else self.unknowns.texts[group]
        return find(
            language, [(one.atom.test, one.atom.operand, one.wanted) for one in _ordered(literals)], self.budget
        )

    def _find_lists(self, literals: frozenset[Literal]) -> Lists | None:
        ordered = _ordered(literals)
        first = both(
            Literal(one.atom._replace(subject=ELEMENT), one.wanted) for one in ordered if one.atom.subject == ROLE
        )
        return find_lists(
            [one for one in ordered if one.atom.subject == ROLES],
            first,
            [one for one in ordered if one.atom.subject == "granted"],
            self.unknowns.granting,
            self._element,
        )

    def _element(self, condition: Condition) -> str | None:
        store = self._search([condition], {})
        if store is None:
            return None
        value = self._value(ELEMENT, store.get(ELEMENT, frozenset()))
        return value if isinstance(value, str) else None

    def _values(self, store: Store) -> Values | None:
        found = {group: self._value(group, literals) for group, literals in store.items()}
        for group in (*self.unknowns.texts, LISTS, ACTIONS):
            if group not in found and (group != ACTIONS or self.unknowns.actions is not None):
                found[group] = self._value(group, frozenset())
        if any(value is None for value in found.values()):
            return None
        lists, actions = found[LISTS], found.get(ACTIONS)
        return Values(
            texts={name: str(found[name]) for name in self.unknowns.texts},
            lists=lists if isinstance(lists, Lists) else Lists(),
            actions=actions if isinstance(actions, frozenset) else frozenset(),
        )


def _group_of(literal: Literal) -> str:
    subject = literal.atom.subject
    return LISTS if subject in _OF_LISTS else subject


def _is_contradicted(literals: frozenset[Literal]) -> bool:
    return any(Literal(one.atom, not one.wanted) in literals for one in literals)


def _ordered(literals: Iterable[Literal]) -> list[Literal]:
    """Return literals in an order that does not depend on hashes, so that answers do not either."""
    return sorted(literals, key=repr)
