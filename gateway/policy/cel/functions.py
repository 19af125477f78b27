# SPDX-License-Identifier: Apache-2.0
"""
The operators and functions of CEL where cel-python has Python's meaning instead.

Guarantee: every entry of `FUNCTIONS` gives a value, or `CELEvalError` for operands it is not defined on (CEL language
definition, "List of Standard Definitions"); none looks at a clock, a time zone or anything else outside its operands.

Corrected, since it could turn a "no" or an error into a "yes": `true == 1` held and `5 == 5.0` failed; `'a' in 'abc'`
tested the characters; `size(null)` was 0; `[1][-1]` was the last element; `'x' * 9` repeated and `'%9d' % 1`
formatted, without bound; `bool(2)` was a boolean; `int('1_0')` was 10; `timestamp('now')` was the current time.
Patterns are RE2's, in which word, digit, space and word boundary mean ASCII on every machine.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import re2  # type: ignore[import-untyped]  # it ships no types
from celpy import celtypes
from celpy.evaluation import CELEvalError, base_functions

from gateway.policy.cel.values import Kind, Value, equal, kind_of, plain_number

Function: TypeAlias = Callable[..., Value]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})"
)
"""RFC 3339. cel-python would take any text that one of its libraries can read as a time."""

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
}


@lru_cache(maxsize=128)
def compile_pattern(pattern: str) -> Any:
    """
    Return `pattern` as an RE2 object of at most 1 MiB; the last 128 are kept.

    Raises:
        ValueError: if it is not an RE2 pattern, or needs more memory than that.
    """
    options = re2.Options()
    options.max_mem = 2**20
    options.log_errors = False
    options.never_capture = True
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
        wrap = _WRAPPED.get(type(result))  # Python's operators forget the class
        return wrap(result) if wrap else result

    return calculated


def _equals(a: Value, b: Value) -> Value:
    return celtypes.BoolType(equal(a, b))


def _differs(a: Value, b: Value) -> Value:
    return celtypes.BoolType(not equal(a, b))


def _in(item: Value, container: Value) -> Value:
    match kind_of(container):
        case Kind.LIST:
            return celtypes.BoolType(any(equal(item, element) for element in container))
        case Kind.MAP:
            return celtypes.BoolType(item in container)
        case _:
            raise TypeError("neither a list nor a map")


def _element(container: Value, index: Value) -> Value:
    match kind_of(container):
        case Kind.MAP:
            return container[index]
        case Kind.LIST if isinstance(index, celtypes.IntType | celtypes.UintType):
            if not 0 <= int(index) < len(container):
                raise IndexError("outside of the list")
            return container[int(index)]
        case _:
            raise TypeError("neither a map nor a list with an integer")


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
    if value not in {"true", "false"}:
        raise ValueError("neither 'true' nor 'false'")
    return celtypes.BoolType(value == "true")


def _string(value: Value) -> Value:
    match kind_of(value):
        case Kind.BOOL:
            return celtypes.StringType("true" if value else "false")
        case Kind.LIST | Kind.MAP | Kind.NULL | Kind.TYPE:
            raise TypeError("no text form")
        case _:
            return celtypes.StringType(value)


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
    _only(_TEXT, value)
    if not _TIME.fullmatch(value):
        raise ValueError("not an RFC 3339 time")
    return celtypes.TimestampType(value)


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
    "_==_": _equals,
    "_!=_": _differs,
    "_<_": _compare(operator.lt),
    "_<=_": _compare(operator.le),
    "_>_": _compare(operator.gt),
    "_>=_": _compare(operator.ge),
    "_+_": _calculate(operator.add, also=_TIMES | _SEQUENCES),
    "_-_": _calculate(operator.sub, also=_TIMES),
    "_*_": _calculate(operator.mul),
    "_/_": _calculate(operator.truediv),
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
    "double": _number(celtypes.DoubleType, _NUMBER),
    "duration": _from_text(celtypes.DurationType, Kind.DURATION),
    "int": _number(celtypes.IntType, _INTEGER),
    "string": _string,
    "timestamp": _timestamp,
    "type": _type,
    "uint": _number(celtypes.UintType, _INTEGER),
}

FUNCTIONS: Final[Mapping[str, Function]] = {name: _lifted(function) for name, function in _PLAIN.items()}
