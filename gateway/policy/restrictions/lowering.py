# SPDX-License-Identifier: Apache-2.0
"""
Makes a predicate over field ids of a row filter as it was written, for one caller and one schema.

Guarantee: the predicate holds for exactly the rows for which the filter is true, where a test of a null, and one of an
attribute or address that the caller does not have, is neither true nor false, and `&&`, `||` and `!` follow SQL's (and
Kleene's) logic. What is neither is not shown. So `row.region != 'EU'` hides a row without a region, and so does
`!(row.region == 'EU')`.

A predicate of Iceberg has two values, so a test becomes two of them: where it is true (`_true`), and where it is false
(`_false`), each with `not-null` where Iceberg would take null for less than everything. `!` exchanges the two.

`check_filter` compiles for no caller in particular: each test of a caller stands for a part of its own. What passes
there cannot fail later for any caller, unless that one has more roles or groups than a list may have elements.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from gateway.errors import BadRequestError
from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.restrictions.columns import Column, Kind, TableSchema
from gateway.policy.restrictions.form import (
    COMPARED,
    EVERY_ROW,
    NO_ROW,
    ORDERED,
    Comparing,
    Comparison,
    Constant,
    Joined,
    Joining,
    Member,
    Membership,
    Nullness,
    NullTest,
    Predicate,
    check_size,
    depth_of,
)
from gateway.policy.restrictions.values import ZONED, Value, parse_value
from gateway.policy.restrictions.written import (
    Always,
    CallerCompared,
    CallerHas,
    CallerIn,
    CallerMatches,
    CallerTest,
    CallerText,
    CallerTexts,
    ColumnCompared,
    ColumnIn,
    ColumnIsNull,
    ColumnStartsWith,
    Every,
    Negated,
    Operand,
    Place,
    RowColumn,
    Some,
    Written,
    WrittenLiteral,
)
from gateway.policy.variables import PrincipalView

_OPS: Final = {
    "==": (Comparing.EQ, Comparing.NOT_EQ),
    "!=": (Comparing.NOT_EQ, Comparing.EQ),
    "<": (Comparing.LT, Comparing.GT_EQ),
    "<=": (Comparing.LT_EQ, Comparing.GT),
    ">": (Comparing.GT, Comparing.LT_EQ),
    ">=": (Comparing.GT_EQ, Comparing.LT),
}
"""By the sign: the comparison, and its contrary."""
_TRUE_ON_NULL: Final = frozenset({Comparing.NOT_EQ, Comparing.LT, Comparing.LT_EQ, Comparing.NOT_STARTS_WITH})
_EQUALITY: Final = frozenset({"==", "!="})
_ON_LITERALS: Final = {
    "bool": frozenset({Kind.BOOLEAN}),
    "int": frozenset({Kind.INT, Kind.LONG, Kind.DECIMAL}),
    "bytes": frozenset({Kind.FIXED, Kind.BINARY}),
    "timestamp": ZONED,
    "string": frozenset(
        {
            *(Kind.STRING, Kind.DECIMAL, Kind.DATE, Kind.TIME, Kind.UUID),
            *(Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS),
        }
    ),
}
"""By the kind of a literal: the types of columns with which it can be compared."""
_OPEN: Final = NullTest(op=Nullness.IS_NULL, field_id=-1)
"""What stands for a test of a caller who is not known yet."""


def lower_filter(written: Written, schema: TableSchema, caller: PrincipalView) -> Predicate:
    """
    Return the predicate for the rows that `caller` may see.

    Raises:
        PolicyNotCompiledError: if the filter is not one of this schema; carries the place in its text.
        RestrictionTooLargeError: if it is too large for this caller.
    """
    predicate = _Lowering(schema, caller).true(written)
    check_size(predicate)
    return predicate


def check_filter(written: Written, schema: TableSchema) -> None:
    """
    Check that a filter can be lowered for this schema, whoever the caller is.

    Raises:
        PolicyNotCompiledError: if a column does not exist, or cannot be tested like that; carries the place.
        RestrictionTooLargeError: if it is too large.
    """
    check_size(_Lowering(schema, None).true(written))


def decide(written: Written, caller: PrincipalView) -> bool | None:
    """
    Return whether the condition of a mask holds for a caller; None if it is neither true nor false.

    Raises:
        PolicyNotCompiledError: if it reads the row.
    """
    match written:
        case Always(value=value):
            return value
        case Negated(part=part):
            found = decide(part, caller)
            return None if found is None else not found
        case Every(parts=parts):
            results = [decide(part, caller) for part in parts]
            return False if False in results else None if None in results else True
        case Some(parts=parts):
            results = [decide(part, caller) for part in parts]
            return True if True in results else None if None in results else False
        case CallerCompared() | CallerIn() | CallerMatches() | CallerHas():
            return test_of_caller(written, caller)
        case _:
            raise _refused(written.at, "the condition of a mask is about the caller, and cannot read the row")


def test_of_caller(test: CallerTest, caller: PrincipalView) -> bool | None:
    """
    Return what a test of a caller gives; None if it reads an attribute that the caller does not have.
    """
    match test:
        case CallerHas(key=key):
            return key in dict(caller.attributes)
        case CallerCompared(left=left, right=right):
            one, other = _text(left, caller), _text(right, caller)
            return None if one is None or other is None else one == other
        case CallerMatches(operand=operand, method=method, part=part):
            text, affix = _text(operand, caller), _text(part, caller)
            if text is None or affix is None:
                return None
            return text.startswith(affix) if method == "startsWith" else text.endswith(affix)
        case CallerIn(operand=operand, options=options):
            text, texts = _text(operand, caller), _texts(options, caller)
            if text is None:
                return None
            if text in texts:
                return True
            return None if None in texts else False
        case _:
            assert_never(test)


class _Lowering:
    """Lowers for one schema and one caller, or with None for a caller who is not known yet."""

    def __init__(self, schema: TableSchema, caller: PrincipalView | None) -> None:
        self._schema = schema
        self._caller = caller

    def true(self, written: Written) -> Predicate:
        """Return where `written` is true."""
        match written:
            case Always(value=value):
                return Constant(value=value)
            case Negated(part=part):
                return self.false(part)
            case Every(parts=parts):
                return every(map(self.true, parts))
            case Some(parts=parts):
                return some(map(self.true, parts))
            case CallerCompared() | CallerIn() | CallerMatches() | CallerHas():
                return self._caller_test(written, wanted=True)
            case ColumnCompared() | ColumnIn() | ColumnStartsWith() | ColumnIsNull():
                return self._column_test(written)[0]
            case _:
                assert_never(written)

    def false(self, written: Written) -> Predicate:
        """Return where `written` is false."""
        match written:
            case Always(value=value):
                return Constant(value=not value)
            case Negated(part=part):
                return self.true(part)
            case Every(parts=parts):
                return some(map(self.false, parts))
            case Some(parts=parts):
                return every(map(self.false, parts))
            case CallerCompared() | CallerIn() | CallerMatches() | CallerHas():
                return self._caller_test(written, wanted=False)
            case ColumnCompared() | ColumnIn() | ColumnStartsWith() | ColumnIsNull():
                return self._column_test(written)[1]
            case _:
                assert_never(written)

    def _caller_test(self, test: CallerTest, *, wanted: bool) -> Predicate:
        if self._caller is None:
            return _OPEN
        return Constant(value=test_of_caller(test, self._caller) is wanted)

    def _column_test(
        self, test: ColumnCompared | ColumnIn | ColumnStartsWith | ColumnIsNull
    ) -> tuple[Predicate, Predicate]:
        """Return where a test of a column is true, and where it is false."""
        column = self._column(test.column)
        match test:
            case ColumnIsNull():
                is_null = NullTest(op=Nullness.IS_NULL, field_id=column.id)
                return is_null, _not_null(column)
            case ColumnCompared(op=op, operand=operand):
                ops = _OPS[op]
                if op not in _EQUALITY and column.type.kind not in ORDERED:
                    raise _refused(
                        test.at, f"{column.name} is a {column.type}, which can only be compared with == and !="
                    )
                return self._compared(column, ops, operand)
            case ColumnStartsWith(prefix=prefix):
                if column.type.kind is not Kind.STRING:
                    raise _refused(test.at, f"{column.name} is a {column.type}: only a string begins with a text")
                return self._compared(column, (Comparing.STARTS_WITH, Comparing.NOT_STARTS_WITH), prefix)
            case ColumnIn(options=options):
                return self._in(column, options, test.at)
            case _:
                assert_never(test)

    def _compared(
        self, column: Column, ops: tuple[Comparing, Comparing], operand: Operand
    ) -> tuple[Predicate, Predicate]:
        literal = self._literal(column, operand)
        if literal is None:  # an attribute that the caller does not have
            return NO_ROW, NO_ROW
        is_true, is_false = (
            every([*([_not_null(column)] if op in _TRUE_ON_NULL else []), _comparison(op, column, literal)])
            for op in ops
        )
        return is_true, is_false

    def _in(self, column: Column, options: tuple[Operand, ...] | CallerTexts, at: Place) -> tuple[Predicate, Predicate]:
        """A list with an attribute that the caller does not have never lets the test be false."""
        if isinstance(options, CallerTexts):
            _check_text_column(column, options.at, f"principal.{options.field}")
            texts = [_unknown(options.at)] if self._caller is None else _texts(options, self._caller)
            found: list[Value] = list(texts)
        else:
            if column.type.kind not in COMPARED:
                raise _refused(at, _not_compared(column))
            found = [self._literal(column, each) for each in options]
        literals = tuple(dict.fromkeys(each for each in found if each is not None))
        if not literals:
            return NO_ROW, NO_ROW if None in found else _not_null(column)
        if len(literals) == 1:
            is_in: Predicate = _comparison(Comparing.EQ, column, literals[0])
            not_in: Predicate = _comparison(Comparing.NOT_EQ, column, literals[0])
        else:
            is_in = Membership(op=Member.IN, field_id=column.id, type=column.type, literals=literals)
            not_in = Membership(op=Member.NOT_IN, field_id=column.id, type=column.type, literals=literals)
        return is_in, NO_ROW if None in found else every([_not_null(column), not_in])

    def _column(self, written: RowColumn) -> Column:
        column = self._schema.at(written.path)
        name = ".".join(written.path)
        if column is None:
            raise _refused(
                written.at, f"there is no column {name!r:.80}; the nearest is {self._schema.nearest_to(name)!r:.80}"
            )
        if column.is_repeated:
            raise _refused(written.at, f"{name} is within a list or a map: a row may have several values of it")
        return column

    def _literal(self, column: Column, operand: Operand) -> Value:
        """Return the value with which a column is compared; None if the caller does not have that attribute."""
        if column.type.kind not in COMPARED:
            raise _refused(operand.at, _not_compared(column))
        if isinstance(operand, CallerText):
            named = "principal.email" if operand.key is None else f"principal.attributes.{operand.key}"
            _check_text_column(column, operand.at, named)
            return _unknown(operand.at) if self._caller is None else _text(operand, self._caller)
        if column.type.kind not in _ON_LITERALS[operand.kind]:
            kinds = [kind for kind, types in _ON_LITERALS.items() if column.type.kind in types]
            raise _refused(
                operand.at, f"{column.name} is a {column.type}: expected {' or '.join(kinds)}, found {operand.kind}"
            )
        try:
            return parse_value(column.type, operand.value, where=column.name)
        except BadRequestError as error:
            raise _refused(operand.at, str(error)) from error


def every(predicates: Iterable[Predicate]) -> Predicate:
    """
    Return the predicate that holds where all of `predicates` do.
    """
    return _joined(Joining.AND, predicates, neutral=EVERY_ROW, absorbing=NO_ROW)


def some(predicates: Iterable[Predicate]) -> Predicate:
    """
    Return the predicate that holds where at least one of `predicates` does.
    """
    return _joined(Joining.OR, predicates, neutral=NO_ROW, absorbing=EVERY_ROW)


def _joined(op: Joining, predicates: Iterable[Predicate], *, neutral: Constant, absorbing: Constant) -> Predicate:
    """
    Join predicates, always the two that are least deep: no other order takes fewer levels.

    So with some of them left out it takes no more levels, and what fits for every caller fits for each.
    """
    parts = list(dict.fromkeys(one for one in predicates if one != neutral))
    if absorbing in parts:
        return absorbing
    waiting = [(depth_of(one), place, one) for place, one in enumerate(parts)]
    heapq.heapify(waiting)
    while len(waiting) > 1:
        (_, place, left), (depth, other, right) = heapq.heappop(waiting), heapq.heappop(waiting)
        joined = Joined(op=op, left=left, right=right) if place < other else Joined(op=op, left=right, right=left)
        heapq.heappush(waiting, (depth + 1, min(place, other), joined))
    return waiting[0][2] if waiting else neutral


def _not_null(column: Column) -> Predicate:
    return NullTest(op=Nullness.NOT_NULL, field_id=column.id)


def _comparison(op: Comparing, column: Column, literal: Value) -> Predicate:
    return Comparison(op=op, field_id=column.id, type=column.type, literal=literal)


def _text(operand: Operand, caller: PrincipalView) -> str | None:
    """
    Return a literal, or the text of the caller that it stands for; None if that is not known.

    An address that is not known is empty in a view of the caller. It must not be taken for that of an empty column.
    """
    match operand:
        case WrittenLiteral(value=value):
            return str(value)
        case CallerText(key=None):
            return caller.email or None
        case CallerText(key=str(key)):
            return dict(caller.attributes).get(key)
        case _:
            return None


def _texts(options: tuple[Operand, ...] | CallerTexts, caller: PrincipalView) -> Sequence[str | None]:
    if isinstance(options, CallerTexts):
        return list(caller.roles if options.field == "roles" else caller.groups)
    return [_text(option, caller) for option in options]


def _unknown(at: Place) -> str:
    """Return what stands for a text of a caller who is not known yet: like no other text."""
    return f"\0{at.line}:{at.column}"


def _check_text_column(column: Column, at: Place, named: str) -> None:
    if column.type.kind is not Kind.STRING:
        raise _refused(at, f"{column.name} is a {column.type}: {named} is compared with columns of strings alone")


def _not_compared(column: Column) -> str:
    if column.type.kind in {Kind.FLOAT, Kind.DOUBLE}:
        return (
            f"{column.name} is a {column.type}, which can only be compared with null: readers differ on NaN and on the "
            "sign of zero; filter by a decimal"
        )
    return f"{column.name} is a {column.type}, which can only be compared with null"


def _refused(at: Place, reason: str) -> PolicyNotCompiledError:
    return PolicyNotCompiledError(reason, line=at.line, column=at.column)
