# SPDX-License-Identifier: Apache-2.0
"""
Turns event dataclasses into canonical data and back, strictly.

The members of an event's `data` are exactly the fields of its dataclass. Reading refuses a missing or an unknown member
and a value of another type. In our own events that is corruption, so there are no defaults.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

from ledger.errors import FormatError
from ledger.format.canonical import Json
from ledger.format.event import Event, Part, PreparedEvent, prepare


class EventData(Protocol):
    """What every event dataclass has: its type and version, and fields that canonical JSON can represent."""

    TYPE: ClassVar[str]
    VERSION: ClassVar[int]
    __dataclass_fields__: ClassVar[dict[str, Any]]


D = TypeVar("D")
_Reader = Callable[[Json, str], Any]

_PLAIN: typing.Final = frozenset({str, int, bool, types.NoneType})
"""Types whose values are in canonical JSON what they are here: most of the fields."""
_LISTS: typing.Final = (list, tuple)
"""A union of types would be made for each check."""


def to_data(event: object) -> dict[str, Json]:
    """
    Return the `data` member of an event: one member a field, nested dataclasses as objects, tuples as lists.
    """
    kind: Any = type(event)
    # Most fields are written as they are: without a call for each.
    return {name: value if type(value := getattr(event, name)) in _PLAIN else _write(value) for name in _names(kind)}


def prepare_event(
    data: EventData, *, key: str, actor: str, occurred_at: datetime, parts: tuple[Part, ...] = ()
) -> PreparedEvent:
    """
    Return an event of the vocabulary, ready to be appended; its type and version are those of `data`.

    Raises as `prepare`.
    """
    event = Event(
        type=data.TYPE,
        version=data.VERSION,
        key=key,
        actor=actor,
        occurred_at=occurred_at,
        data=to_data(data),
        parts=parts,
    )
    return prepare(event)


def from_data(cls: type[D], data: Json) -> D:
    """
    Return `data` as an instance of `cls`.

    Raises:
        FormatError: if a member is missing, unknown or of another type; names the member.
    """
    kind: Any = cls
    return typing.cast("D", _reader(kind)(data, cls.__name__))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass."""
    if not is_dataclass(kind):
        raise FormatError("event data", expected="a dataclass", found=kind)
    return tuple(field.name for field in fields(kind))


def _write(value: Any) -> Json:
    if isinstance(value, _LISTS):
        return [item if type(item) in _PLAIN else _write(item) for item in value]
    if isinstance(value, StrEnum):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return to_data(value)
    if isinstance(value, Mapping):
        return {name: _write(member) for name, member in value.items()}
    plain: Json = value
    return plain


@cache
def _reader(kind: Any) -> _Reader:
    """Return the function that reads one type; there are few types, so each is built once."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing.Union, types.UnionType}:
        return _optional(arguments)
    if origin is tuple:
        return _tuple(_reader(arguments[0]), _as_they_are(arguments[0]))
    if origin is Mapping or origin is dict:
        return _mapping(_reader(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _member_of(kind)
    if is_dataclass(kind):
        return _dataclass(typing.cast("type", kind))
    return _exactly(kind)


def _exactly(kind: type) -> _Reader:
    def read(value: Json, where: str) -> Any:
        # bool is an int to Python, but not in a stored format.
        if type(value) is not kind:
            raise FormatError(where, expected=kind.__name__, found=value)
        return value

    return read


def _optional(arguments: tuple[Any, ...]) -> _Reader:
    (kind,) = (argument for argument in arguments if argument is not type(None))
    inner = _reader(kind)
    return lambda value, where: None if value is None else inner(value, where)


def _tuple(inner: _Reader, plain: frozenset[type]) -> _Reader:
    def read(value: Json, where: str) -> Any:
        if not isinstance(value, list):
            raise FormatError(where, expected="a list", found=value)
        if plain.issuperset(map(type, value)):
            return tuple(value)
        return tuple(inner(item, f"{where}[{position}]") for position, item in enumerate(value))

    return read


def _mapping(inner: _Reader) -> _Reader:
    def read(value: Json, where: str) -> Any:
        if not isinstance(value, dict):
            raise FormatError(where, expected="an object", found=value)
        return {name: inner(member, f"{where}.{name}") for name, member in value.items()}

    return read


def _member_of(kind: type[StrEnum]) -> _Reader:
    members: dict[str, StrEnum] = {member.value: member for member in kind}

    def read(value: Json, where: str) -> Any:
        member = members.get(value) if isinstance(value, str) else None
        if member is None:
            raise FormatError(where, expected=f"one of {list(members)}", found=value)
        return member

    return read


def _dataclass(kind: type) -> _Reader:
    hints = typing.get_type_hints(kind)
    readers = {field.name: (_as_they_are(hints[field.name]), _reader(hints[field.name])) for field in fields(kind)}

    def read(value: Json, where: str) -> Any:
        if not isinstance(value, dict) or value.keys() != readers.keys():
            found = sorted(value) if isinstance(value, dict) else value
            raise FormatError(where, expected=f"exactly the members {sorted(readers)}", found=found)
        # Most members are taken as they are: without a call, and a text of where they stand, for each.
        return kind(
            **{
                name: member if type(member := value[name]) in plain else read_field(member, f"{where}.{name}")
                for name, (plain, read_field) in readers.items()
            }
        )

    return read


def _as_they_are(kind: Any) -> frozenset[type]:
    """Return the types of values that a field of this type takes as they are in canonical JSON."""
    kinds = typing.get_args(kind) if typing.get_origin(kind) in {typing.Union, types.UnionType} else (kind,)
    return frozenset(kinds) & _PLAIN
