# SPDX-License-Identifier: Apache-2.0
"""
Finds the roles of a caller, and those that a key would grant, for which conditions hold, or finds that there are none.

Roles are sorted, each once, at most `ROLES_MAX`. So the first of them, which is `role`, is the smallest.

Guarantee: lists that are returned fulfil what was asked, and None says that there are none. Where elements would have
to be chosen together to know (the order, or a bound on their number), `UndecidedError` says that it is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from gateway.admin.limits import ROLES_MAX
from gateway.asking.exact.conditions import LEAST, SOME, Atom, Condition, Literal, both, literals_in, opposite
from gateway.policy.rule_formulas import ELEMENT

FindElement: TypeAlias = Callable[[Condition], str | None]
"""Returns a role for which a condition on `ELEMENT` holds, None if there is none."""
_TOGETHER_MAX: Final = 4
_TRIED_MAX: Final = 8


class UndecidedError(Exception):
    """It is not known whether there are such lists."""


class Granting(Enum):
    """How the roles that a key would grant are related to the caller's own."""

    WITHIN = auto()
    BEYOND = auto()


@dataclass(frozen=True, slots=True)
class Lists:
    """The roles of a caller, and those of a key."""

    roles: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()


@dataclass(slots=True)
class _Wanted:
    """What is wanted of one list: an element for each of `each`, all of which fulfil `every`, and its length."""

    each: list[Condition] = field(default_factory=list)
    every: Condition = True
    least: int = 0
    most: int = ROLES_MAX

    @classmethod
    def of(cls, literals: Iterable[Literal]) -> _Wanted:
        wanted = cls()
        for literal in literals:
            operand = literal.atom.operand
            if literal.atom.test == LEAST:
                count = int(str(operand))
                if literal.wanted:
                    wanted.least = max(wanted.least, count)
                else:
                    wanted.most = min(wanted.most, count - 1)
            elif literal.atom.test == SOME and literal.wanted:
                wanted.each.append(_condition(operand))
            else:
                wanted.every = both((wanted.every, opposite(_condition(operand))))
        return wanted


def find_lists(
    roles: Sequence[Literal],
    first: Condition,
    granted: Sequence[Literal],
    granting: Granting | None,
    find: FindElement,
) -> Lists | None:
    """
    Return lists for which literals on them hold; `first` is a condition on the first role, True if there need be none.

    `granting` is None where nothing is granted.

    Raises:
        UndecidedError: if it is not known whether there are such.
        OverBudgetError: as `find`.
    """
    of_caller, of_key = _Wanted.of(roles), _Wanted.of(granted)
    of_caller.every = both((of_caller.every, *_bounds(first)))
    chosen = _choose(of_caller, first, find)
    if granting is None or chosen is None or _choose(of_key, True, find) is None:  # noqa: FBT003 - no condition
        return None if chosen is None or granting is not None else Lists(chosen)
    if granting is Granting.WITHIN:
        of_key.every = both((of_key.every, of_caller.every))
        of_caller.each = [*of_caller.each, *(both((one, of_key.every)) for one in of_key.each)]
        chosen = _choose(of_caller, first, find)
        return None if chosen is None else _within(of_caller, of_key, first, find)
    return _beyond(of_caller, of_key, first, find)


def _beyond(of_caller: _Wanted, of_key: _Wanted, first: Condition, find: FindElement) -> Lists | None:
    """Return lists of which that of the key has a role that the caller does not have."""
    tried: list[str] = []
    while (other := find(both((of_key.every, _is_none_of(tried))))) is not None:
        without = both((of_caller.every, opposite(_is(other))))
        chosen = _choose(replace(of_caller, every=without), first, find)
        granted = _choose(replace(of_key, each=[*of_key.each, _is(other)]), True, find)  # noqa: FBT003 - no condition
        if chosen is not None and granted is not None:
            return Lists(chosen, granted)
        tried.append(other)
        if len(tried) > _TRIED_MAX:
            raise UndecidedError
    return None


def _within(of_caller: _Wanted, of_key: _Wanted, first: Condition, find: FindElement) -> Lists | None:
    """Return lists of which that of the key is a part of the caller's."""
    granted = _choose(of_key, True, find)  # noqa: FBT003 - no condition
    if granted is None:
        return None
    of_caller.each = [*of_caller.each, *map(_is, granted)]
    together = _choose(of_caller, first, find)
    if together is None:
        raise UndecidedError  # other roles might be both
    return Lists(together, granted)


def _choose(wanted: _Wanted, first: Condition, find: FindElement) -> tuple[str, ...] | None:
    """Return a list as it is wanted."""
    if wanted.least > wanted.most:
        return None
    each = [both((one, wanted.every)) for one in dict.fromkeys(wanted.each)]
    if first is not True:
        return _choose_with_first(wanted, each, both((first, wanted.every)), find)
    found = set[str]()
    for one in each:
        if not any(_fulfils(element, one, find) for element in found):
            element = find(one)
            if element is None:
                return None
            found.add(element)
    if len(found) > wanted.most:
        together = _together(each, wanted.most, find)
        if together is None:
            return None
        found = together
    return _filled(found, wanted, wanted.every, find)


def _choose_with_first(
    wanted: _Wanted, each: Sequence[Condition], first: Condition, find: FindElement
) -> tuple[str, ...] | None:
    if wanted.most == 0:
        return None
    if wanted.most == 1:
        only = find(both((first, *each)))
        return None if only is None else (only,)
    found = [find(one) for one in each]
    others = {element for element in found if element is not None}
    if None in found or find(first) is None:
        return None
    smallest = find(both((first, _is_not_behind(min(others))))) if others else find(first)
    if smallest is None:
        # The first is behind what was found: what else could the others be?
        smallest = str(find(first))
        behind = [find(both((one, _is_from(smallest)))) for one in each]
        if None in behind:
            if find(both((first, opposite(_is(smallest))))) is None or all(
                find(both((one, opposite(_is(str(element)))))) is None for one, element in zip(each, found, strict=True)
            ):
                return None
            raise UndecidedError
        others = {str(element) for element in behind}
    chosen = {smallest, *others}
    if len(chosen) > wanted.most:
        raise UndecidedError
    try:
        return _filled(chosen, wanted, both((wanted.every, _is_from(smallest))), find) or _undecided()
    except UndecidedError:
        if find(both((first, opposite(_is(smallest))))) is None and len(chosen) == 1:
            return None
        raise


def _undecided() -> tuple[str, ...]:
    raise UndecidedError


def _filled(found: set[str], wanted: _Wanted, every: Condition, find: FindElement) -> tuple[str, ...] | None:
    """Return a list with more elements, if that many are wanted; None if there are no more."""
    if wanted.least > ROLES_MAX:
        return None
    chosen = set(found)
    while len(chosen) < wanted.least:
        more = find(both((every, _is_none_of(chosen))))
        if more is None:
            return None
        chosen.add(more)
    return tuple(sorted(chosen))


def _together(each: Sequence[Condition], most: int, find: FindElement) -> set[str] | None:
    """Return at most so many elements that fulfil all of `each`, by trying who goes with whom."""
    if len(each) > _TOGETHER_MAX:
        raise UndecidedError

    def placed(number: int, groups: tuple[Condition, ...]) -> set[str] | None:
        if number == len(each):
            found = [find(group) for group in groups]
            return None if None in found else {str(element) for element in found}
        for place, group in enumerate(groups):
            joined = both((group, each[number]))
            if find(joined) is not None:
                tried = placed(number + 1, (*groups[:place], joined, *groups[place + 1 :]))
                if tried is not None:
                    return tried
        return placed(number + 1, (*groups, each[number])) if len(groups) < most else None

    return placed(0, ())


def _bounds(first: Condition) -> list[Condition]:
    """Return what a condition on the first element, which is the smallest, says about all of them."""
    return [
        _is_from(str(one.atom.operand))
        for one in literals_in(first)
        if one.wanted and one.atom.test in {"is", "begins", "from"}
    ]


def _fulfils(element: str, condition: Condition, find: FindElement) -> bool:
    return find(both((_is(element), condition))) is not None


def _condition(operand: object) -> Condition:
    return operand  # type: ignore[return-value]  # the operand of `SOME`


def _is(text: str) -> Condition:
    return Literal(Atom(ELEMENT, "is", text))


def _is_from(text: str) -> Condition:
    return Literal(Atom(ELEMENT, "from", text))


def _is_not_behind(text: str) -> Condition:
    """Return that an element is `text`, or sorts before it: not from the one that comes next."""
    return Literal(Atom(ELEMENT, "from", f"{text}\0"), wanted=False)


def _is_none_of(texts: Iterable[str]) -> Condition:
    return both(opposite(_is(text)) for text in sorted(texts))
