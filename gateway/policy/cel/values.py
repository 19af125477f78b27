# SPDX-License-Identifier: Apache-2.0
"""
The values of CEL: their kinds, when two are equal, and how JSON becomes one.

Guarantee: `is_true` and `is_false` hold for exactly the two booleans and for nothing that Python would take for one.
cel-python builds its values on Python's classes, of which booleans are integers, and compares as Python does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from celpy import celtypes

from gateway.policy.cel.interruption import Interruption

Value: TypeAlias = Any
"""A value of cel-python: its classes extend Python's own, and its annotations are too loose to be useful."""

TRUE: Final = celtypes.BoolType(True)  # noqa: FBT003  cel-python's class has no keyword for it
FALSE: Final = celtypes.BoolType(False)  # noqa: FBT003  as above

_INT64_MAX: Final = 2**63 - 1


class Kind(Enum):
    """The types of CEL, with the three number types as one, because they compare with each other."""

    BOOL = auto()
    NUMBER = auto()
    STRING = auto()
    BYTES = auto()
    TIMESTAMP = auto()
    DURATION = auto()
    LIST = auto()
    MAP = auto()
    NULL = auto()
    TYPE = auto()


TYPES: Final[Mapping[str, type]] = {
    "bool": celtypes.BoolType,
    "bytes": celtypes.BytesType,
    "double": celtypes.DoubleType,
    "int": celtypes.IntType,
    "list": celtypes.ListType,
    "map": celtypes.MapType,
    "null_type": type(None),
    "string": celtypes.StringType,
    "type": celtypes.TypeType,
    "uint": celtypes.UintType,
}
"""What the names of types stand for where they are not called, as in `type(x) == int`."""

_KINDS: Final[tuple[tuple[type | tuple[type, ...], Kind], ...]] = (
    (celtypes.BoolType, Kind.BOOL),  # first: it is an int to Python
    ((celtypes.IntType, celtypes.UintType, float), Kind.NUMBER),
    (str, Kind.STRING),
    (bytes, Kind.BYTES),
    (datetime, Kind.TIMESTAMP),
    (timedelta, Kind.DURATION),
    (list, Kind.LIST),
    (dict, Kind.MAP),
    (type(None), Kind.NULL),
    (type, Kind.TYPE),
)

_EXACT: Final[Mapping[type, Kind]] = {  # what nearly every value is
    celtypes.BoolType: Kind.BOOL,
    celtypes.IntType: Kind.NUMBER,
    celtypes.StringType: Kind.STRING,
    celtypes.ListType: Kind.LIST,
    celtypes.MapType: Kind.MAP,
}


def kind_of(value: Value) -> Kind:
    """
    Return the kind of `value`.

    Raises:
        TypeError: if it is not a value of CEL (a function, or a plain int that an operation of Python returned).
    """
    exact = _EXACT.get(type(value))
    if exact is not None:
        return exact
    for classes, kind in _KINDS:
        if isinstance(value, classes):
            return kind
    raise TypeError(f"{type(value).__name__} is no type of CEL")


def equal(a: Value, b: Value) -> bool:
    """Return whether `a` and `b` are equal: across types never, but for numbers, which compare by value."""
    kind = kind_of(a)
    if kind is not kind_of(b):
        return False
    match kind:
        case Kind.LIST:
            return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
        case Kind.MAP:
            return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
        case Kind.TYPE | Kind.NULL:
            return a is b
        case Kind.NUMBER:
            return plain_number(a) == plain_number(b)
        case _:
            return bool(a == b)


def plain_number(number: Value) -> int | float:
    """Take a number out of its class, whose comparisons fail across classes; Python's own are exact."""
    return float(number) if isinstance(number, float) else int(number)


def is_true(value: Value) -> bool:
    """Return whether `value` is exactly the boolean true."""
    return type(value) is celtypes.BoolType and int(value) == 1


def is_false(value: Value) -> bool:
    """Return whether `value` is exactly the boolean false."""
    return type(value) is celtypes.BoolType and int(value) == 0


def cel_of(value: Any, interruption: Interruption) -> Value:
    """
    Return a JSON value as a value of CEL. Faster than cel-python's own, which checks each key and each type twice.

    Raises:
        JudgingStopped: at the next list or map, once `interruption` is set.
        ValueError: for what CEL has no value for (an integer beyond 64 bits, anything that is not JSON).
    """
    kind = type(value)
    if kind is str:
        return str.__new__(celtypes.StringType, value)
    if kind is dict:
        interruption.check()
        converted = celtypes.MapType.__new__(celtypes.MapType)
        items = value.items()
        dict.update(
            converted, {str.__new__(celtypes.StringType, name): cel_of(item, interruption) for name, item in items}
        )
        return converted
    if kind is list:
        interruption.check()
        return celtypes.ListType([cel_of(item, interruption) for item in value])
    if kind is int and -_INT64_MAX - 1 <= value <= _INT64_MAX:
        return int.__new__(celtypes.IntType, value)
    if kind is bool:
        return TRUE if value else FALSE
    if value is None:
        return None
    if kind is float:
        return celtypes.DoubleType(value)
    raise ValueError(f"{kind.__name__} has no value in CEL")
