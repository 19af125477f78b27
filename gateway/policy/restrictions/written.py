# SPDX-License-Identifier: Apache-2.0
"""
A row filter, or the condition of a mask, as its author wrote it: what the worker reads from the text of an expression.

It is CEL's syntax tree reduced to what can be made into a predicate: tests of columns and tests of the caller, joined
by `&&`, `||` and `!`. It knows no table: columns are paths of names, and literals have no type of Iceberg yet. It goes
over the pipe of the worker as JSON (`format_written`), and each test carries the place where it stands, for errors.

Loaded by the worker, so it imports nothing of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol, TypeAlias

from gateway.policy.frames import FrameError

ROW_FILTER: Final = "row_filter"
MASK_CONDITION: Final = "mask_condition"
"""The two kinds of such expressions: the condition of a mask cannot read the row."""

DEPTH_MAX: Final = 8
NODES_MAX: Final = 256
LITERAL_BYTES_MAX: Final = 4_096
"""Of one text or sequence of bytes, as UTF-8."""
ELEMENTS_MAX: Final = 256
"""Of one list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Line and column of a text, both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumn:
    """A column of the row: `row.address.city` has the path `("address", "city")`."""

    path: tuple[str, ...]
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLiteral:
    """A literal: `kind` is `bool`, `int`, `string`, `bytes` (in hexadecimal) or `timestamp` (a text within it)."""

    kind: str
    value: bool | int | str
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerText:
    """A text of the caller: `email`, or with a `key` the attribute of that name, which may not be there."""

    field: str
    key: str | None
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerTexts:
    """Texts of the caller: `roles` or `groups`."""

    field: str
    at: Place


Operand: TypeAlias = WrittenLiteral | CallerText


@dataclass(frozen=True, slots=True, kw_only=True)
class Always:
    """`true` or `false`."""

    value: bool
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCompared:
    """A column compared with a literal or a text of the caller; `op` is `==`, `!=`, `<`, `<=`, `>`, `>=`."""

    column: RowColumn
    op: str
    operand: Operand
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnIn:
    """A column that is one of some literals and texts of the caller, or of all roles or groups of the caller."""

    column: RowColumn
    options: tuple[Operand, ...] | CallerTexts
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStartsWith:
    """A column whose text begins with another."""

    column: RowColumn
    prefix: Operand
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnIsNull:
    """A column that is null."""

    column: RowColumn
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerCompared:
    """Two texts that are equal; at least one of them is the caller's."""

    left: Operand
    right: Operand
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerIn:
    """A text that is one of some others; at least one of them, or the first, is the caller's."""

    operand: Operand
    options: tuple[Operand, ...] | CallerTexts
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerMatches:
    """A text of the caller that begins (`startsWith`) or ends (`endsWith`) with another."""

    operand: CallerText
    method: str
    part: Operand
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerHas:
    """The caller has an attribute of that name."""

    key: str
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Negated:
    """What is true where `part` is false."""

    part: Written
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """All of the `parts` hold."""

    parts: tuple[Written, ...]
    at: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Some:
    """At least one of the `parts` holds."""

    parts: tuple[Written, ...]
    at: Place


CallerTest: TypeAlias = CallerCompared | CallerIn | CallerMatches | CallerHas
ColumnTest: TypeAlias = ColumnCompared | ColumnIn | ColumnStartsWith | ColumnIsNull
Written: TypeAlias = Always | CallerTest | ColumnTest | Negated | Every | Some

_CLASSES: Final[Mapping[str, type[Any]]] = {
    cls.__name__: cls
    for cls in (
        Place,
        RowColumn,
        WrittenLiteral,
        CallerText,
        CallerTexts,
        Always,
        ColumnCompared,
        ColumnIn,
        ColumnStartsWith,
        ColumnIsNull,
        CallerCompared,
        CallerIn,
        CallerMatches,
        CallerHas,
        Negated,
        Every,
        Some,
    )
}
_IS: Final = "is"


class ReadsConditions(Protocol):
    """What reads row filters and conditions of masks (`pool.WorkerEngine`)."""

    async def read_condition(self, expression: str, *, kind: str, log_id: int, timeout_s: float) -> Written:
        """
        Return what is written in a row filter (`ROW_FILTER`) or the condition of a mask (`MASK_CONDITION`).

        Raises:
            PolicyNotCompiledError: if it is none; carries the place, and says what is allowed there.
            PolicyEngineError: if the engine gave no answer within `timeout_s`, counted from when it began.
        """


def children_of(written: Written) -> Sequence[Written]:
    """
    Return the parts right within one.
    """
    match written:
        case Negated(part=part):
            return (part,)
        case Every(parts=parts) | Some(parts=parts):
            return parts
        case _:
            return ()


def format_written(value: Any) -> Any:
    """Return what goes over the pipe."""
    if type(value).__name__ in _CLASSES:
        members = {field.name: format_written(getattr(value, field.name)) for field in fields(value)}
        return {_IS: type(value).__name__, **members}
    if isinstance(value, tuple):
        return [format_written(each) for each in value]
    return value


def parse_written(sent: Any) -> Any:
    """
    Return what came over the pipe.

    Raises:
        FrameError: if it is nothing that `format_written` returns.
    """
    match sent:
        case {"is": str(name), **members} if name in _CLASSES:
            try:
                return _CLASSES[name](**{str(member): parse_written(value) for member, value in members.items()})
            except TypeError as error:
                raise FrameError("expected a condition, found something else") from error
        case list():
            return tuple(parse_written(each) for each in sent)
        case None | bool() | int() | str():
            return sent
        case _:
            raise FrameError("expected a condition, found something else")
