# SPDX-License-Identifier: Apache-2.0
"""
The operators and functions of CEL where cel-python has Python's meaning instead.

Guarantee: every entry of `FUNCTIONS` gives a value, or `CELEvalError` for operands it is not defined on (CEL language
definition, "List of Standard Definitions"); none looks at a clock, a time zone or anything else outside its operands.

Corrected, since it could turn a "no" or an error into a "yes": `true == 1` held and `5 == 5.0` failed; `'a' in 'abc'`
tested the characters; `size(null)` was 0; `[1][-1]` was the last element; `'x' * 9` repeated and `'%9d' % 1`
formatted, without bound; `bool(2)` was a boolean; `int('1_0')` was 10; `timestamp('now')` was the current time; `0.0 /
0.0` was infinite, and equal to itself. What is finer than a microsecond is an error: it was dropped, and equal to zero.
Patterns are RE2's, in which word, digit, space and word boundary mean ASCII on every machine.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, TypeAlias

import re2  # type: ignore[import-untyped]  # it ships no types
from celpy import celtypes
from celpy.evaluation import CELEvalError, base_functions

from gateway.policy.cel.values import Kind, Value, equal, key_of, kind_of, plain_number

Function: TypeAlias = Callable[..., Value]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?|NaN|-?Infinity")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{1,6}0*)?(Z|[+-][0-9]{2}:[0-9]{2})"
)
"""RFC 3339, to the microsecond. cel-python would take any text that one of its libraries can read as a time."""
_SPAN: Final = re.compile(r"([+-]?)(?:0|((?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:h|ms|m|s|us|µs|ns))+))")
_SPAN_PART: Final = re.compile(r"([0-9.]+)([a-zµ]+)")
_MICROSECONDS: Final[Mapping[str, Fraction]] = {
    "h": Fraction(3_600_000_000),
    "m": Fraction(60_000_000),
    "s": Fraction(1_000_000),
    "ms": Fraction(1_000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "ns": Fraction(1, 1_000),
}
_MICROSECOND: Final = timedelta(microseconds=1)
_SPAN_MAX: Final = timedelta(microseconds=2**63 // 1_000)
"""A duration is one int64 of nanoseconds (CEL language definition, "Overflow")."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT_BOUND: Final = 2.0**63
_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "false", "FALSE", "False"), False),
}

TIME_PARTS: Final = (
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
)
"""
The parts of a timestamp, always those of UTC.

With the name of a time zone they would depend on one machine's tables on one day.
"""


_ORDERED: Final = frozenset({Kind.BOOL, Kind.NUMBER, Kind.STRING, Kind.BYTES, Kind.TIMESTAMP, Kind.DURATION})
_SIZED: Final = frozenset({Kind.STRING, Kind.BYTES, Kind.LIST, Kind.MAP})
_TEXT: Final = frozenset({Kind.STRING})

_TIMES: Final = frozenset({Kind.TIMESTAMP, Kind.DURATION})
_SEQUENCES: Final = frozenset({Kind.STRING, Kind.BYTES, Kind.LIST})

_WRAPPED: Final[Mapping[type, Function]] = {
    float: celtypes.DoubleType,
    str: celtypes.StringType,
    bytes: celtypes.BytesType,
    list: celtypes.ListType,
    timedelta: celtypes.DurationType,
}


@lru_cache(maxsize=128)
def compile_pattern(pattern: str) -> Any:
    """
    Return `pattern` as an RE2 object of at most 1 MiB; the last 128 are kept.

    Raises:
        ValueError: if it is not an RE2 pattern, or needs more memory than that.
    """
    return _compiled(pattern, never_capture=True)


@lru_cache(maxsize=128)
def compile_capturing(pattern: str) -> Any:
    """
    Return `pattern` as `compile_pattern` does, with its groups.

    Raises:
        ValueError: as `compile_pattern`.
    """
    return _compiled(pattern, never_capture=False)


def _compiled(pattern: str, *, never_capture: bool) -> Any:
    options = re2.Options()
    options.max_mem = 2**20
    options.log_errors = False
    options.never_capture = never_capture
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError("not an RE2 pattern") from error


def _only(allowed: frozenset[Kind], *values: Value) -> None:
    for value in values:
        if kind_of(value) not in allowed:
            raise TypeError("not defined for this type")


def _compare(compare: Callable[[Any, Any], bool]) -> Function:
    def compared(a: Value, b: Value) -> Value:
        _only(_ORDERED, a, b)
        if kind_of(a) is not kind_of(b):
            raise TypeError("types without a common order")
        if kind_of(a) is Kind.NUMBER:
            a, b = plain_number(a), plain_number(b)
        return celtypes.BoolType(bool(compare(a, b)))

    return compared


def _calculate(calculate: Function, *, also: frozenset[Kind] = frozenset()) -> Function:
    """Apply `calculate` to two numbers of one class, or to two values of a kind in `also`."""

    def calculated(a: Value, b: Value) -> Value:
        kinds = {kind_of(a), kind_of(b)}
        if kinds == {Kind.NUMBER}:
            if type(a) is not type(b):
                raise TypeError("numbers of two types")
        elif not (kinds <= also and (len(kinds) == 1 or kinds == _TIMES)):
            raise TypeError("not defined for these types")
        result = calculate(a, b)
        if isinstance(result, timedelta):
            _check_span(result)
        wrap = _WRAPPED.get(type(result))  # Python's operators forget the class
        return wrap(result) if wrap else result

    return calculated


def _check_span(span: timedelta) -> None:
    if abs(span) > _SPAN_MAX:
        raise ValueError("overflow")


def _divided(a: Value, b: Value) -> Value:
    if not isinstance(a, float) or b != 0.0:
        return operator.truediv(a, b)
    if a == 0.0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, math.copysign(1.0, a) * math.copysign(1.0, b))


def _equals(a: Value, b: Value) -> Value:
    return celtypes.BoolType(equal(a, b))


def _differs(a: Value, b: Value) -> Value:
    return celtypes.BoolType(not equal(a, b))


def _in(item: Value, container: Value) -> Value:
    match kind_of(container):
        case Kind.LIST:
            return celtypes.BoolType(any(equal(item, element) for element in container))
        case Kind.MAP:
            return celtypes.BoolType(key_of(item) in container)
        case _:
            raise TypeError("neither a list nor a map")


def _element(container: Value, index: Value) -> Value:
    match kind_of(container):
        case Kind.MAP:
            return dict.__getitem__(container, key_of(index))
        case Kind.LIST if kind_of(index) is Kind.NUMBER:
            if int(index) != plain_number(index):
                raise ValueError("not a whole number")
            if not 0 <= int(index) < len(container):
                raise IndexError("outside of the list")
            return container[int(index)]
        case _:
            raise TypeError("neither a map nor a list with a number")


def _not(value: Value) -> Value:
    if kind_of(value) is not Kind.BOOL:
        raise TypeError("no boolean")
    return celtypes.BoolType(not value)


def _negated(number: Value) -> Value:
    _only(frozenset({Kind.NUMBER}), number)
    return -number


def _size(value: Value) -> Value:
    _only(_SIZED, value)
    return celtypes.IntType(len(value))


def _contains(container: Value, item: Value) -> Value:
    if kind_of(container) is Kind.LIST:
        return _in(item, container)
    _only(_TEXT, container, item)
    return celtypes.BoolType(item in container)


def _starts_with(text: Value, part: Value) -> Value:
    _only(_TEXT, text, part)
    return celtypes.BoolType(text.startswith(part))


def _ends_with(text: Value, part: Value) -> Value:
    _only(_TEXT, text, part)
    return celtypes.BoolType(text.endswith(part))


def _matches(text: Value, pattern: Value) -> Value:
    _only(_TEXT, text, pattern)
    return celtypes.BoolType(compile_pattern(str(pattern)).search(str(text)) is not None)


def _type(value: Value) -> Value:
    return celtypes.TypeType if kind_of(value) is Kind.TYPE else type(value)


def _bool(value: Value) -> Value:
    if kind_of(value) is Kind.BOOL:
        return value
    _only(_TEXT, value)
    if value not in _BOOLEANS:
        raise ValueError("neither 'true' nor 'false'")
    return celtypes.BoolType(_BOOLEANS[value])


def _string(value: Value) -> Value:
    match kind_of(value):
        case Kind.BOOL:
            return celtypes.StringType("true" if value else "false")
        case Kind.LIST | Kind.MAP | Kind.NULL | Kind.TYPE:
            raise TypeError("no text form")
        case Kind.TIMESTAMP:
            return celtypes.StringType(f"{_without_zeros(value.replace(tzinfo=None).isoformat())}Z")
        case Kind.DURATION:
            seconds, micros = divmod(abs(value) // _MICROSECOND, 10**6)
            sign = "-" if value < timedelta(0) else ""
            return celtypes.StringType(f"{sign}{_without_zeros(f'{seconds}.{micros:06}')}s")
        case _:
            return celtypes.StringType(value)


def _without_zeros(text: str) -> str:
    """Take the zeros at the end of a fraction away, and the point if nothing follows it."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def _int(value: Value) -> Value:
    # The bounds themselves are out of range: what a double gives there depends on the compiler of CEL.
    if isinstance(value, float) and not -_INT_BOUND < value < _INT_BOUND:
        raise ValueError("out of range")
    return celtypes.IntType(value)


def _double(value: Value) -> Value:
    number = celtypes.DoubleType(value)
    if isinstance(value, str) and math.isinf(number) and not value.endswith("Infinity"):
        raise ValueError("out of range")
    return number


def _number(convert: Function, form: re.Pattern[str]) -> Function:
    """Convert from a number, a timestamp, or a string of this `form` (Python would read far more than that)."""
    kinds = frozenset({Kind.NUMBER, Kind.TIMESTAMP, Kind.STRING})

    def converted(value: Value) -> Value:
        _only(kinds, value)
        if isinstance(value, str) and not form.fullmatch(value):
            raise ValueError("not a number")
        return convert(value)

    return converted


def _timestamp(value: Value) -> Value:
    if kind_of(value) is Kind.TIMESTAMP:
        return value
    if isinstance(value, celtypes.IntType):
        return celtypes.TimestampType(_EPOCH + timedelta(seconds=int(value)))
    _only(_TEXT, value)
    if not _TIME.fullmatch(value):
        raise ValueError("not an RFC 3339 time")
    return celtypes.TimestampType(datetime.fromisoformat(str(value)).astimezone(UTC))


def _duration(text: str) -> Value:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError("not a duration")
    parts = _SPAN_PART.findall(found[2] or "")
    microseconds = sum((Fraction(number) * _MICROSECONDS[unit] for number, unit in parts), Fraction(0))
    if microseconds.denominator != 1:
        raise ValueError("finer than a microsecond")
    span = timedelta(microseconds=microseconds.numerator)
    _check_span(span)
    return celtypes.DurationType(-span if found[1] == "-" else span)


def _milliseconds(value: Value) -> Value:
    """Those of a timestamp's second, or what a duration has beyond whole seconds."""
    if kind_of(value) is not Kind.DURATION:
        return base_functions["getMilliseconds"](value)
    milliseconds = abs(value) // timedelta(milliseconds=1) % 1_000
    return celtypes.IntType(-milliseconds if value < timedelta(0) else milliseconds)


def _from_text(convert: Function, kind: Kind) -> Function:
    def converted(value: Value) -> Value:
        if kind_of(value) is kind:
            return value
        _only(_TEXT, value)
        return convert(value)

    return converted


def _lifted(function: Function) -> Function:
    """
    Make an error among the operands the result, and an error in `function` a value.

    `||` and `&&` absorb errors that are values (CEL language definition, "Logical Operators"); raised ones pass by.
    """

    def lifted(*operands: Value) -> Value:
        for operand in operands:
            if isinstance(operand, CELEvalError):
                return operand
        try:
            return function(*operands)
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            return CELEvalError("failed", type(error), error.args)

    return lifted


_PLAIN: Final[Mapping[str, Function]] = {
    **{name: base_functions[name] for name in TIME_PARTS},
    "getMilliseconds": _milliseconds,
    "_==_": _equals,
    "_!=_": _differs,
    "_<_": _compare(operator.lt),
    "_<=_": _compare(operator.le),
    "_>_": _compare(operator.gt),
    "_>=_": _compare(operator.ge),
    "_+_": _calculate(operator.add, also=_TIMES | _SEQUENCES),
    "_-_": _calculate(operator.sub, also=_TIMES),
    "_*_": _calculate(operator.mul),
    "_/_": _calculate(_divided),
    "_%_": _calculate(operator.mod),
    "!_": _not,
    "-_": _negated,
    "_in_": _in,
    "_[_]": _element,
    "size": _size,
    "contains": _contains,
    "startsWith": _starts_with,
    "endsWith": _ends_with,
    "matches": _matches,
    "bool": _bool,
    "bytes": _from_text(celtypes.BytesType, Kind.BYTES),
    "double": _number(_double, _NUMBER),
    "duration": _from_text(_duration, Kind.DURATION),
    "int": _number(_int, _INTEGER),
    "string": _string,
    "timestamp": _timestamp,
    "type": _type,
    "uint": _number(celtypes.UintType, _INTEGER),
}

FUNCTIONS: Final[Mapping[str, Function]] = {name: _lifted(function) for name, function in _PLAIN.items()}
