# SPDX-License-Identifier: Apache-2.0
"""
The values of cel-python: their kinds, when two are equal, and the keys of maps.

Its classes extend Python's own, of which booleans are integers, and compare as these do. Compiled expressions use them
for what Python has no class for (`natives.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from celpy import celtypes

Value: TypeAlias = Any
"""A value of cel-python: its classes extend Python's own, and its annotations are too loose to be useful."""


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


@dataclass(frozen=True, slots=True)
class Key:
    """
    A key of a map that is no string: `value`, in whichever classes the map has.

    Two keys are one where CEL says that they are equal: `1`, `1u` and `1.0` are, `1` and `true` are not. To Python all
    four are one key, and cel-python's classes fail when they are compared.
    """

    kind: Kind
    number: float
    value: Value = field(compare=False)


def key_of(value: Value) -> Value:
    """
    Return what a map has `value` under: a string as it is, numbers and booleans as a `Key`.

    A double can be looked for. It cannot be the key of a new map (`is_key`).

    Raises:
        TypeError: if nothing of its type can be a key.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | celtypes.BoolType):
        return Key(Kind.BOOL, int(value), value)
    if isinstance(value, int | float):
        return Key(Kind.NUMBER, plain_number(value), value)
    raise TypeError("no key of a map")


def is_key(value: Value) -> bool:
    """Return whether a map can be made with `value` as a key."""
    return isinstance(value, str | int)


def of_key(key: Value) -> Value:
    """Return the value that is a key of a map."""
    return key.value if type(key) is Key else key


def equal(a: Value, b: Value) -> bool:
    """Return whether `a` and `b` are equal: across types never, but for numbers, which compare by value."""
    kind = kind_of(a)
    if kind is not kind_of(b):
        return False
    match kind:
        case Kind.LIST:
            return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
        case Kind.MAP:
            return a.keys() == b.keys() and all(equal(value, dict.__getitem__(b, key)) for key, value in a.items())
        case Kind.TYPE | Kind.NULL:
            return a is b
        case Kind.NUMBER:
            return plain_number(a) == plain_number(b)
        case _:
            return bool(a == b)


def plain_number(number: Value) -> int | float:
    """Take a number out of its class, whose comparisons fail across classes; Python's own are exact."""
    return float(number) if isinstance(number, float) else int(number)
