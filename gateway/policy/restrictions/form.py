# SPDX-License-Identifier: Apache-2.0
"""
The form of a restriction: a predicate over field ids, and an action for each field that is masked. And its JSON.

The predicates are Iceberg's, and have two values: on a row where the field is null, `not-eq`, `lt`, `lt-eq`, `not-in`
and `not-starts-with` are *true*, and `eq`, `gt`, `gt-eq`, `in` and `starts-with` are false. Whoever makes a predicate
that shall be as in SQL, where they are unknown, adds `not-null` (`lowering.py` does). `evaluation.py` says what each of
them means, and is what other readers of this form are compared with.

Guarantee: a predicate within `check_size` is at most `DEPTH_MAX` levels deep, with lists of at most `ELEMENTS_MAX`
elements. A literal has one of the types in `COMPARED`: floating point is not among them, since
readers differ on NaN and on the sign of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from gateway.errors import UnprocessableError
from gateway.policy.restrictions.columns import ColumnType, Kind
from gateway.policy.restrictions.values import Value, format_value
from ledger.format.events import MaskAction

if TYPE_CHECKING:
    from ledger.format.canonical import Json

DEPTH_MAX: Final = 8
"""As Iceberg's predicates join two by two, that is at most 255 of them."""
ELEMENTS_MAX: Final = 256
"""Of all lists of a predicate together."""

ORDERED: Final = frozenset(
    {
        *(Kind.INT, Kind.LONG, Kind.DECIMAL, Kind.STRING, Kind.DATE, Kind.TIME),
        *(Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS),
    }
)
"""Types whose values can be less than others. How bytes and UUIDs are ordered differs between readers."""
COMPARED: Final = ORDERED | {Kind.BOOLEAN, Kind.UUID, Kind.FIXED, Kind.BINARY}
"""Types whose values can be equal to others."""


class Comparing(StrEnum):
    """A comparison of a field with a literal."""

    EQ = "eq"
    NOT_EQ = "not-eq"
    LT = "lt"
    LT_EQ = "lt-eq"
    GT = "gt"
    GT_EQ = "gt-eq"
    STARTS_WITH = "starts-with"
    NOT_STARTS_WITH = "not-starts-with"


class Member(StrEnum):
    """Whether a field is one of several literals."""

    IN = "in"
    NOT_IN = "not-in"


class Nullness(StrEnum):
    """Whether a field is null."""

    IS_NULL = "is-null"
    NOT_NULL = "not-null"


class Joining(StrEnum):
    """How two predicates are joined."""

    AND = "and"
    OR = "or"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Always true, or always false."""

    value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A field compared with a literal, a value of the `type` of the field (`values.py`)."""

    op: Comparing
    field_id: int
    type: ColumnType
    literal: Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A field that is one of some literals, at least one, or none of them."""

    op: Member
    field_id: int
    type: ColumnType
    literals: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NullTest:
    """A field that is null, or is not."""

    op: Nullness
    field_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """What is true where `child` is false."""

    child: Predicate


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Two predicates of which both, or at least one, must hold."""

    op: Joining
    left: Predicate
    right: Predicate


Predicate: TypeAlias = Constant | Comparison | Membership | NullTest | Not | Joined

EVERY_ROW: Final = Constant(value=True)
NO_ROW: Final = Constant(value=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What is done to the values of one field before anybody sees them."""

    field_id: int
    action: MaskAction


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRestrictions:
    """
    What one caller may see of a table: rows for which `row_filter` holds, by their original values, and of those each
    field in `projections` masked.
    """

    row_filter: Predicate = EVERY_ROW
    projections: tuple[Projection, ...] = ()


class RestrictionTooLargeError(UnprocessableError):
    """A predicate is larger than the readers of restrictions are asked to take."""


def check_size(predicate: Predicate) -> None:
    """
    Check that a predicate is within the limits.

    Raises:
        RestrictionTooLargeError: otherwise; says which, and what to do.
    """
    elements = depth = 0
    level: list[Predicate] = [predicate]
    while level:
        depth += 1
        elements += sum(len(one.literals) for one in level if isinstance(one, Membership))
        level = [child for one in level for child in children_of(one)]
    for what, found, most in (
        ("levels", depth, DEPTH_MAX),
        ("elements of lists", elements, ELEMENTS_MAX),
    ):
        if found > most:
            raise RestrictionTooLargeError(
                f"expected a row filter that takes at most {most} {what}, found {found}: compare with a list (`in`) "
                "instead of many times, or have the table hold one column to filter by"
            )


def depth_of(predicate: Predicate) -> int:
    """Return how many levels a predicate has: one without a predicate within it has one."""
    return 1 + max(map(depth_of, children_of(predicate)), default=0)


def children_of(predicate: Predicate) -> Sequence[Predicate]:
    """Return the predicates right within one."""
    match predicate:
        case Not(child=child):
            return (child,)
        case Joined(left=left, right=right):
            return (left, right)
        case _:
            return ()


def format_restrictions(restrictions: ReadRestrictions) -> dict[str, Json]:
    """
    Return what `read-restrictions` of a loaded table is (Iceberg REST specification, `ReadRestrictions`).

    An object without members restricts nothing.
    """
    shown: dict[str, Json] = {}
    if restrictions.row_filter != EVERY_ROW:
        shown["required-row-filter"] = format_predicate(restrictions.row_filter)
    if restrictions.projections:
        shown["required-column-projections"] = [
            {"field-id": one.field_id, "action": one.action.value} for one in restrictions.projections
        ]
    return shown


def format_predicate(predicate: Predicate) -> Json:
    """
    Return a predicate as the Iceberg REST specification writes it (`Predicate`), with references by field id.
    """
    match predicate:
        case Constant(value=value):
            return value
        case Comparison(op=op, field_id=field_id, type=type_, literal=literal):
            return {"type": op.value, "left": _reference(field_id), "right": _literal(type_, literal)}
        case Membership(op=op, field_id=field_id, type=type_, literals=literals):
            values = [format_value(type_, each) for each in literals]
            return {"type": op.value, "child": _reference(field_id), "values": values}
        case NullTest(op=op, field_id=field_id):
            return {"type": op.value, "child": _reference(field_id)}
        case Not(child=child):
            return {"type": "not", "child": format_predicate(child)}
        case Joined(op=op, left=left, right=right):
            return {"type": op.value, "left": format_predicate(left), "right": format_predicate(right)}
        case _:
            assert_never(predicate)


def _reference(field_id: int) -> Json:
    return {"type": "reference", "id": field_id}


def _literal(type_: ColumnType, value: Value) -> Json:
    return {"type": "literal", "value": format_value(type_, value)}
