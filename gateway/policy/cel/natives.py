# SPDX-License-Identifier: Apache-2.0
"""
The values that a compiled expression computes with: JSON as it is, in Python's own classes.

A bool, int, float, str, bytes, list, dict and None of Python are a value of CEL each. Other types keep cel-python's
classes: uint, timestamp and duration. The type of a value is a `CelType`. A map that an expression makes may have keys
that are no strings: each is a `Key`.

Guarantee: operators hold across types exactly where CEL says so (`1 == 1.0`, never `true == 1`), and `wrapped` and
`plain` lose nothing. What is not defined for its operands raises one of `FAILURES`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from celpy import celtypes

from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.values import TYPES, Key, Kind, Value, key_of

FAILURES: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What an operation raises on operands that it is not defined for."""
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, eq=False)
class CelType:
    """A type as a value, as in `type(x) == int`; `wrapped` is cel-python's class."""

    wrapped: type


NAMED_TYPES: Final[Mapping[str, CelType]] = {name: CelType(kind) for name, kind in TYPES.items()}
_TYPE_OF: Final[Mapping[type, CelType]] = {one.wrapped: one for one in NAMED_TYPES.values()}
_PLAIN_TYPES: Final[Mapping[type, CelType]] = {
    bool: NAMED_TYPES["bool"],
    bytes: NAMED_TYPES["bytes"],
    CelType: NAMED_TYPES["type"],
    dict: NAMED_TYPES["map"],
    float: NAMED_TYPES["double"],
    int: NAMED_TYPES["int"],
    list: NAMED_TYPES["list"],
    str: NAMED_TYPES["string"],
    type(None): NAMED_TYPES["null_type"],
}
_KINDS: Final[Mapping[type, Kind]] = {
    bool: Kind.BOOL,
    bytes: Kind.BYTES,
    CelType: Kind.TYPE,
    celtypes.UintType: Kind.NUMBER,
    dict: Kind.MAP,
    float: Kind.NUMBER,
    int: Kind.NUMBER,
    list: Kind.LIST,
    str: Kind.STRING,
    type(None): Kind.NULL,
}
_ALIKE: Final = frozenset({bool, bytes, float, int, str})
"""Classes of which two values are equal, or ordered, as Python says."""
_JSON: Final = frozenset({str, bool, float})
"""Classes of JSON values, besides the ones that contain others and those with a range."""
_ORDERED: Final = frozenset({Kind.BOOL, Kind.NUMBER, Kind.STRING, Kind.BYTES, Kind.TIMESTAMP, Kind.DURATION})
_SIZED: Final = frozenset({str, bytes, list, dict})
_JOINED: Final = frozenset({str, bytes, list})
_INDICES: Final = frozenset({int, celtypes.UintType, float})


def check_json(value: Any, interruption: Interruption) -> None:
    """
    Check that CEL has a value for a JSON value, and for all that is in it.

    Raises:
        JudgingStopped: at the next list or map, once `interruption` is set.
        ValueError: for an integer beyond 64 bits, and anything that is not JSON.
    """
    kind = type(value)
    if kind is dict or kind is list:
        interruption.check()
        for item in value.values() if kind is dict else value:
            if type(item) is not str:
                check_json(item, interruption)
    elif kind is int:
        if not INT64_MIN <= value <= INT64_MAX:
            raise ValueError("an integer beyond 64 bits")
    elif value is not None and kind not in _JSON:
        raise ValueError(f"{kind.__name__} has no value in CEL")


def kind_of(value: Value) -> Kind:
    """
    Return the kind of `value`.

    Raises:
        TypeError: if it is not a value of a compiled expression.
    """
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, datetime):
        return Kind.TIMESTAMP
    if isinstance(value, timedelta):
        return Kind.DURATION
    raise TypeError(f"{type(value).__name__} is no type of CEL")


def equal(a: Value, b: Value) -> bool:
    """Return whether `a` and `b` are equal: across types never, but for numbers, which compare by value."""
    kind = type(a)
    if kind is type(b) and kind in _ALIKE:
        return bool(a == b)
    of_kind = kind_of(a)
    if of_kind is not kind_of(b):
        return False
    match of_kind:
        case Kind.LIST:
            return len(a) == len(b) and all(map(equal, a, b))
        case Kind.MAP:
            return a.keys() == b.keys() and all(equal(value, b[key]) for key, value in a.items())
        case Kind.TYPE | Kind.NULL:
            return a is b
        case Kind.NUMBER:
            return _number(a) == _number(b)
        case _:
            return bool(a == b)


def compared(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], bool]:
    """
    Return the comparison of two values of one kind that has an order.

    Raises (when it is called):
        TypeError: if they are of two kinds, or of one without an order.
    """

    def result(a: Value, b: Value) -> bool:
        kind = type(a)
        if kind is type(b) and kind in _ALIKE:
            return bool(compare(a, b))
        of_kind = kind_of(a)
        if of_kind not in _ORDERED or of_kind is not kind_of(b):
            raise TypeError("types without a common order")
        return bool(compare(_number(a), _number(b)) if of_kind is Kind.NUMBER else compare(a, b))

    return result


def _number(number: Value) -> int | float:
    """Take a uint out of its class, whose comparisons fail with others."""
    return number if type(number) is float else int(number)


def is_in(item: Value, container: Value) -> bool:
    """
    Return whether a list has an element that is equal to `item`, or a map this key.

    Raises:
        TypeError: if it is neither, or `item` cannot be a key.
    """
    if type(container) is list:
        if type(item) is str and all(type(other) is str for other in container):
            return item in container
        return any(equal(item, element) for element in container)
    if type(container) is dict:
        return (item if type(item) is str else key_of(item)) in container
    raise TypeError("neither a list nor a map")


def element(container: Value, index: Value) -> Value:
    """
    Return an element of a list, or the value of a key of a map.

    Raises:
        TypeError: if it is neither, or `index` is no number, or cannot be a key.
        ValueError: if the index of a list has a fraction.
        LookupError: if there is none.
    """
    if type(container) is dict:
        return container[index if type(index) is str else key_of(index)]
    if type(container) is list and type(index) in _INDICES:
        place = index if type(index) is int else whole(index)
        if not 0 <= place < len(container):
            raise IndexError("outside of the list")
        return container[place]
    raise TypeError("neither a map nor a list with a number")


def whole(number: Value) -> int:
    """
    Return the integer that a number of any type is. Raises ValueError if it is none.
    """
    if isinstance(number, float) and not number.is_integer():
        raise ValueError("not a whole number")
    return int(number)


def has(container: Value, field: str) -> bool:
    """
    Return whether a map has a key.

    Raises:
        TypeError: if it is no map.
    """
    if type(container) is not dict:
        raise TypeError("has() on no map")
    return field in container


def size(value: Value) -> int:
    """
    Return the number of characters, bytes, elements or keys.

    Raises:
        TypeError: if it has none of these.
    """
    if type(value) not in _SIZED:
        raise TypeError("not defined for this type")
    return len(value)


def contains(container: Value, item: Value) -> bool:
    """
    Return whether a text contains another one, or a list an element. Raises TypeError otherwise.
    """
    if type(container) is list:
        return is_in(item, container)
    _check_texts(container, item)
    return item in container


def starts_with(text: Value, part: Value) -> bool:
    """
    Return whether a text begins with another one. Raises TypeError if one of them is none.
    """
    _check_texts(text, part)
    return bool(text.startswith(part))


def ends_with(text: Value, part: Value) -> bool:
    """
    Return whether a text ends with another one. Raises TypeError if one of them is none.
    """
    _check_texts(text, part)
    return bool(text.endswith(part))


def _check_texts(*values: Value) -> None:
    for value in values:
        if type(value) is not str:
            raise TypeError("not defined for this type")


def negation(value: Value) -> bool:
    """
    Return the other boolean. Raises TypeError if it is none.
    """
    if type(value) is not bool:
        raise TypeError("no boolean")
    return not value


def type_of(value: Value) -> CelType:
    """
    Return the type of a value.
    """
    kind: Any = type(value)
    return _PLAIN_TYPES.get(kind) or _type(kind)


def calculated(
    calculate: Callable[[Any, Any], Any], otherwise: Callable[[Value, Value], Value], *, joins: bool = False
) -> Callable[[Value, Value], Value]:
    """
    Return the operation on two ints, or with `joins` on two strings, bytes or lists; `otherwise` is that of all others.

    Raises (when it is called):
        ValueError: if the result is beyond 64 bits.
    """

    def result(a: Value, b: Value) -> Value:
        kind = type(a)
        if kind is type(b):
            if kind is int:
                number = calculate(a, b)
                if INT64_MIN <= number <= INT64_MAX:
                    return number
                raise ValueError("overflow")
            if joins and kind in _JOINED:
                return a + b
        return otherwise(a, b)

    return result


def wrapped(value: Value) -> Value:
    """Return a value, or a key of a map, in cel-python's classes."""
    kind = type(value)
    wrap = _WRAP.get(kind)
    if wrap is not None:
        return wrap(value)
    if kind is list:
        return celtypes.ListType([wrapped(item) for item in value])
    if kind is dict:
        converted = celtypes.MapType()
        dict.update(converted, {wrapped(key): wrapped(item) for key, item in value.items()})
        return converted
    return Key(value.kind, value.number, wrapped(value.value)) if kind is Key else value


def plain(value: Value) -> Value:
    """Return a value, or a key of a map, of cel-python's classes as a compiled expression has it."""
    kind = type(value)
    unwrap = _UNWRAP.get(kind)
    if unwrap is not None:
        return unwrap(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, type):
        return _type(value)
    return Key(value.kind, value.number, plain(value.value)) if kind is Key else value


@cache
def _type(kind: type) -> CelType:
    """The one type that stands for a class of cel-python; there are few."""
    return _TYPE_OF.get(kind) or CelType(kind)


_WRAP: Final[Mapping[type, Callable[[Any], Value]]] = {
    bool: celtypes.BoolType,
    bytes: celtypes.BytesType,
    CelType: operator.attrgetter("wrapped"),
    float: celtypes.DoubleType,
    int: celtypes.IntType,
    str: celtypes.StringType,
}
_UNWRAP: Final[Mapping[type, Callable[[Any], Value]]] = {
    celtypes.BoolType: lambda value: int(value) == 1,
    celtypes.BytesType: bytes,
    celtypes.DoubleType: float,
    celtypes.IntType: int,
    celtypes.StringType: lambda value: str.__str__(value),
}
