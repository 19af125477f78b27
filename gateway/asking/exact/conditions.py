# SPDX-License-Identifier: Apache-2.0
"""
Conditions on the unknowns of a request: tests of them (`Atom`), combined by and, or and not; not stands at tests alone.

A rule has three results. So its formula becomes two conditions: that it is true, and that it is false. Where neither
holds, it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from gateway.asking.exact.texts import holds
from gateway.policy.rule_formulas import (
    ELEMENT,
    ROLE,
    AllOf,
    AnyOf,
    AtLeast,
    Choice,
    Fixed,
    Formula,
    Ground,
    Inverse,
    Opaque,
    Some,
    Text,
)

OPAQUE: Final = "opaque"
HAS: Final = "has"
SOME: Final = "some"
LEAST: Final = "least"
ACTIONS: Final = "actions"
ROLES: Final = "roles"


class Atom(NamedTuple):
    """
    A test of an unknown: of a text as in `rule_formulas.Text`; of a list `SOME` (a condition on the `ELEMENT`) and
    `LEAST`; of actions `HAS`. The unknown of a part that is `OPAQUE` is named after its text, its test is the result.
    """

    subject: str
    test: str
    operand: object


@dataclass(frozen=True, slots=True)
class Literal:
    """An atom that is to hold, or not."""

    atom: Atom
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Both:
    """All of at least two parts."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of at least two parts."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = bool | Literal | Both | Either
Results: TypeAlias = tuple[Condition, Condition]
"""That a rule is true, and that it is false."""


def both(parts: Iterable[Condition]) -> Condition:
    """Return that all of `parts` hold."""
    kept: dict[Condition, None] = {}
    for part in parts:
        if part is False:
            return False
        if part is not True:
            kept.update(dict.fromkeys(part.parts if isinstance(part, Both) else (part,)))
    return Both(tuple(kept)) if len(kept) > 1 else next(iter(kept), True)


def either(parts: Iterable[Condition]) -> Condition:
    """Return that one of `parts` holds."""
    kept: dict[Condition, None] = {}
    for part in parts:
        if part is True:
            return True
        if part is not False:
            kept.update(dict.fromkeys(part.parts if isinstance(part, Either) else (part,)))
    return Either(tuple(kept)) if len(kept) > 1 else next(iter(kept), False)


def opposite(condition: Condition) -> Condition:
    """Return that `condition` does not hold."""
    match condition:
        case Literal(atom=atom, wanted=wanted):
            return Literal(atom, not wanted)
        case Both(parts=parts):
            return either(map(opposite, parts))
        case Either(parts=parts):
            return both(map(opposite, parts))
        case _:
            return not condition


def literals_in(condition: Condition) -> Iterator[Literal]:
    """Yield the literals of a condition."""
    match condition:
        case Literal():
            yield condition
        case Both(parts=parts) | Either(parts=parts):
            for part in parts:
                yield from literals_in(part)
        case _:
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """
    What a rule sees of a scene: of the request as a whole, or of one of its checks (`key` says which).

    `texts` has for each variable the name of an unknown, or its value in a tuple of one; None where it is not known, so
    that to read it is an error. `actions` are all that there can be; they are exactly these unless `open_actions`.
    `may_grant`: the lists of a grant are not empty.
    """

    key: str
    op: str
    content_type: str
    type: str
    texts: Mapping[str, str | tuple[str] | None]
    actions: frozenset[str] = frozenset()
    open_actions: bool = False
    may_grant: bool = False

    @property
    def ground(self) -> tuple[str, str, str]:
        """The values of the variables that have few."""
        return self.op, self.content_type, self.type


OfGround: TypeAlias = Callable[[str, tuple[str, str, str]], bool | None]
"""Returns the result of a `Ground` text for the values of op, content type and type."""
_ERROR: Final[Results] = (False, False)


@dataclass(frozen=True, slots=True)
class Reading:
    """Makes formulas into conditions, as they are in one view."""

    view: View
    of_ground: OfGround
    known: dict[int, Results] = field(default_factory=dict)

    def results(self, formula: Formula) -> Results:
        """Return when `formula` is true, and when it is false."""
        match formula:
            case Fixed(value=value):
                return _fixed(value)
            case Ground(text=text):
                return _fixed(self.of_ground(text, self.view.ground))
            case Opaque(text=text):
                subject = f"{OPAQUE} {self.view.key} {text}"
                return Literal(Atom(subject, OPAQUE, True)), Literal(Atom(subject, OPAQUE, False))  # noqa: FBT003
            case Text():
                return self._text(formula)
            case Some(variable=variable, body=body):
                return self._some(variable, body)
            case AtLeast(variable=variable, count=count):
                return self._at_least(variable, count)
            case Inverse(part=part):
                true, false = self.results(part)
                return false, true
            case AllOf(parts=parts):
                each = [self.results(part) for part in parts]
                return both(one for one, _ in each), either(other for _, other in each)
            case AnyOf(parts=parts):
                each = [self.results(part) for part in parts]
                return either(one for one, _ in each), both(other for _, other in each)
            case Choice():
                holds_, fails = self.results(formula.condition)
                then, otherwise = self.results(formula.then), self.results(formula.otherwise)
                true, false = (
                    either((both((holds_, one)), both((fails, other))))
                    for one, other in zip(then, otherwise, strict=True)
                )
                return true, false

    def _text(self, text: Text) -> Results:
        if text.variable == ROLE:
            first = Literal(Atom(ROLE, text.test, text.operand))
            is_there = Literal(Atom(ROLES, LEAST, 1))
            of_none = both((opposite(is_there), holds(text.test, text.operand, "")))
            of_none_not = both((opposite(is_there), not holds(text.test, text.operand, "")))
            return either((both((is_there, first)), of_none)), either((both((is_there, opposite(first))), of_none_not))
        if text.variable == ELEMENT:
            return _certain(Literal(Atom(ELEMENT, text.test, text.operand)))
        match self.view.texts[text.variable]:
            case None:
                return _ERROR
            case (str(value),):
                return _certain(holds(text.test, text.operand, value))
            case subject:
                return _certain(Literal(Atom(str(subject), text.test, text.operand)))

    def _some(self, variable: str, body: Formula) -> Results:
        true, false = self.results(body)
        if variable == ACTIONS:
            each = [(name, _of_element(true, name), _of_element(false, name)) for name in sorted(self.view.actions)]
            if not self.view.open_actions:
                return either(one for _, one, _ in each), both(other for _, _, other in each)
            has = {name: Literal(Atom(ACTIONS, HAS, name)) for name, _, _ in each}
            return (
                either(both((has[name], one)) for name, one, _ in each),
                both(either((opposite(has[name]), other)) for name, _, other in each),
            )
        if variable == "granted" and not self.view.may_grant:
            return False, True
        return _exists(variable, true), opposite(_exists(variable, opposite(false)))

    def _at_least(self, variable: str, count: int) -> Results:
        if count == 0:
            return True, False
        if variable == ACTIONS:
            if not self.view.open_actions:
                return _certain(len(self.view.actions) >= count)
            if count == 1:
                some = either(Literal(Atom(ACTIONS, HAS, name)) for name in sorted(self.view.actions))
                return _certain(some)
            return self.results(Opaque(f"size(actions) >= {count}"))
        if variable == "granted" and not self.view.may_grant:
            return False, True
        return _certain(Literal(Atom(variable, LEAST, count)))


def _exists(variable: str, body: Condition) -> Condition:
    if body is False:
        return False
    return Literal(Atom(variable, LEAST, 1)) if body is True else Literal(Atom(variable, SOME, body))


def _of_element(condition: Condition, value: str) -> Condition:
    """Return what a condition on an element is for one of a certain value."""
    match condition:
        case Literal(atom=atom, wanted=wanted):
            return holds(atom.test, atom.operand, value) is wanted
        case Both(parts=parts):
            return both(_of_element(part, value) for part in parts)
        case Either(parts=parts):
            return either(_of_element(part, value) for part in parts)
        case _:
            return condition


def _fixed(value: bool | None) -> Results:  # noqa: FBT001 - a result
    return _ERROR if value is None else (value, not value)


def _certain(condition: Condition) -> Results:
    return condition, opposite(condition)
