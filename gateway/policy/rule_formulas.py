# SPDX-License-Identifier: Apache-2.0
"""
What an access rule says, as a formula over tests of single variables.

Guarantee: a formula has the same three results as its expression (true, false, an error) for every request, if each
`Opaque` part is given the result that the engine gives it. `cel/rule_reader.py` makes one from a tree, in the process
that judges; it comes from there as JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol, TypeAlias

from gateway.policy.engine import JudgesRows
from gateway.policy.frames import FrameError

ELEMENT: Final = "@"
"""The variable of a `Text` within a `Some`: the element of the list."""
ROLE: Final = "role"


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same for every request: true, false, or an error (None)."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Ground:
    """An expression that reads at most `op`, `contentType`, `type` and `api`, which have few values together."""

    text: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """An expression of which nothing is known but its text, such as one with `matches`."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """
    A test of a text: `is` the operand, `begins`, `ends` or `contains`; `from`: it is the operand or sorts behind it;
    `long`: it has at least so many characters. A variable that is not known makes it an error.
    """

    variable: str
    test: str
    operand: str | int


@dataclass(frozen=True, slots=True)
class Some:
    """A list of texts has an element for which `body` is true."""

    variable: str
    body: Formula


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A list has at least so many elements."""

    variable: str
    count: int


@dataclass(frozen=True, slots=True)
class Inverse:
    """The opposite of `part`."""

    part: Formula


@dataclass(frozen=True, slots=True)
class AllOf:
    """False if one part is, whatever the others are; an error if one is one, without a false one."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if one part is, whatever the others are; an error if one is one, without a true one."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """`then` where the condition is true, `otherwise` where it is false, an error where it is one."""

    condition: Formula
    then: Formula
    otherwise: Formula


Formula: TypeAlias = Fixed | Ground | Opaque | Text | Some | AtLeast | Inverse | AllOf | AnyOf | Choice

_CLASSES: Final[dict[str, type[Any]]] = {
    one.__name__: one for one in (Fixed, Ground, Opaque, Text, Some, AtLeast, Inverse, AllOf, AnyOf, Choice)
}


class ReadsRules(Protocol):
    """What reads access rules as formulas (`pool.WorkerEngine`)."""

    async def read_rule(self, expression: str, *, log_id: int, timeout_s: float) -> Formula:
        """
        Return what an access rule says.

        Raises:
            PolicyNotCompiledError: if it does not compile; carries the place.
            PolicyEngineError: if the engine gave no answer within `timeout_s`, counted from when it began.
        """


class JudgesRules(JudgesRows, ReadsRules, Protocol):
    """Judges rules on many requests, and reads them."""


def parts_of(formula: Formula) -> Iterator[Formula]:
    """Yield a formula and all formulas within it."""
    waiting = [formula]
    while waiting:
        one = waiting.pop()
        yield one
        match one:
            case Inverse(part=part) | Some(body=part):
                waiting.append(part)
            case AllOf(parts=parts) | AnyOf(parts=parts):
                waiting += parts
            case Choice():
                waiting += (one.condition, one.then, one.otherwise)
            case _:
                pass


def format_formula(formula: Any) -> Any:
    """Return what goes over the pipe: a list of the class's name and its members."""
    if isinstance(formula, tuple):
        return [format_formula(each) for each in formula]
    if type(formula).__name__ in _CLASSES:
        of_members = [format_formula(getattr(formula, one.name)) for one in fields(formula)]
        return {"is": type(formula).__name__, "of": of_members}
    return formula


def parse_formula(sent: Any) -> Any:
    """
    Return what came over the pipe.

    Raises:
        FrameError: if it is nothing that `format_formula` returns.
    """
    match sent:
        case {"is": str(name), "of": list(members)} if name in _CLASSES:
            try:
                return _CLASSES[name](*map(parse_formula, members))
            except TypeError as error:
                raise FrameError("expected a formula, found something else") from error
        case list():
            return tuple(map(parse_formula, sent))
        case None | bool() | int() | str():
            return sent
        case _:
            raise FrameError("expected a formula, found something else")
