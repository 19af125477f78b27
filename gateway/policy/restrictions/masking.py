# SPDX-License-Identifier: Apache-2.0
"""
The nine actions on the values of a column, as the Iceberg REST specification defines them (`ReadRestrictions`).

Guarantee: `masked` returns a value of the column's own type. Null stays null, with one exception that the specification
makes: `mask-to-fixed-value` replaces it, too, so that nobody sees which values are missing. `why_not` refuses an action
on a type for which the specification does not define it; then nothing may be returned at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.policy.restrictions.columns import NESTED, Column, ColumnType, Kind
from gateway.policy.restrictions.values import (
    INTEGER_BITS,
    Value,
    date_of,
    day_of,
    decimal_of,
    is_timestamp,
    moment_of,
    timestamp_of,
)
from ledger.format.events import MaskAction

SALT_BYTES_MIN: Final = 16
"""Of the random salt that a reader makes for each query, for `sha-256-query-local`."""
SHOWN: Final = 4
"""How many characters `show-first-4` and `show-last-4` leave."""
FIXED_TEXT: Final = "XXXXXXXX"

_KEPT: Final = frozenset("(),.-@")
_DIGITS: Final = frozenset("0123456789")
_DATES: Final = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS})
_TEXTS: Final = frozenset({Kind.STRING})
_HASHED: Final = frozenset({Kind.STRING, Kind.INT, Kind.LONG, Kind.BINARY})
_WITHOUT_FIXED_VALUE: Final = frozenset({Kind.UNKNOWN, Kind.GEOMETRY, Kind.GEOGRAPHY})

APPLICABLE: Final[Mapping[MaskAction, frozenset[Kind]]] = {
    MaskAction.MASK_ALPHANUM: _TEXTS,
    MaskAction.MASK_TO_FIXED_VALUE: frozenset(Kind) - _WITHOUT_FIXED_VALUE,
    MaskAction.REPLACE_WITH_NULL: frozenset(Kind),
    MaskAction.SHOW_FIRST_4: _TEXTS,
    MaskAction.SHOW_LAST_4: _TEXTS,
    MaskAction.TRUNCATE_TO_YEAR: _DATES,
    MaskAction.TRUNCATE_TO_MONTH: _DATES,
    MaskAction.SHA_256_GLOBAL: _HASHED,
    MaskAction.SHA_256_QUERY_LOCAL: _HASHED,
}
"""For each action, the types of columns for which it is defined."""


def why_not(action: MaskAction, column: Column) -> str | None:
    """
    Return why an action cannot be on a column; None if it can.
    """
    if column.is_of_key:
        return f"{column.name} is the key of a map, or within one: mask the whole map, or the value"
    kinds = APPLICABLE[action]
    if column.type.kind not in kinds:
        fitting = [other.value for other in MaskAction if why_not_of_type(other, column) is None]
        return f"{action.value} is not for a {column.type}; {column.name} can have {', '.join(fitting) or 'none'}"
    return why_not_of_type(action, column)


def why_not_of_type(action: MaskAction, column: Column) -> str | None:
    """Return why an action is not defined for the type of a column, or for one within it; None if it is."""
    if column.type.kind not in APPLICABLE[action]:
        return f"{action.value} is not for a {column.type}"
    if action is MaskAction.REPLACE_WITH_NULL and column.required:
        return f"{column.name} is required, so that it cannot be null: use mask-to-fixed-value"
    if action is MaskAction.MASK_TO_FIXED_VALUE and not _has_fixed_value(column.type):
        return f"{column.name} holds a geometry, a geography or an unknown, which have no fixed value"
    return None


def masked(action: MaskAction, type_: ColumnType, value: Value, *, salt: bytes) -> Value:
    """
    Return what an action makes of a value of that type, for which the action is defined.

    `salt` is that of the query, at least `SALT_BYTES_MIN` random bytes.
    """
    if action is MaskAction.MASK_TO_FIXED_VALUE:
        return fixed_value(type_)
    if value is None or action is MaskAction.REPLACE_WITH_NULL:
        return None
    return _ACTIONS[action](type_, value, salt)


def masked_row(
    fields: tuple[Column, ...], row: Mapping[str, Value], actions: Mapping[int, MaskAction], *, salt: bytes
) -> dict[str, Value]:
    """
    Return a row, or a struct, with each field masked for which `actions` has an action, by id, on every level.
    """
    return {field.path[-1]: _masked_within(field, row[field.path[-1]], actions, salt) for field in fields}


def fixed_value(type_: ColumnType) -> Value:
    """
    Return the value that `mask-to-fixed-value` has for a type.
    """
    match type_.kind:
        case Kind.STRUCT:
            return {field.path[-1]: fixed_value(field.type) for field in type_.fields}
        case Kind.DECIMAL:
            return decimal_of(0, scale=type_.scale)
        case Kind.FIXED:
            return bytes(type_.length)
        case Kind.LIST | Kind.MAP:
            return []
        case Kind.VARIANT:
            return {}
        case kind:
            return _FIXED[kind]


def _masked_within(column: Column, value: Value, actions: Mapping[int, MaskAction], salt: bytes) -> Value:
    if (action := actions.get(column.id)) is not None:
        return masked(action, column.type, value, salt=salt)
    if value is None or column.type.kind not in NESTED:
        return value
    match column.type.kind:
        case Kind.STRUCT:
            return masked_row(column.type.fields, value, actions, salt=salt)
        case Kind.LIST:
            (element,) = column.type.fields
            return [_masked_within(element, each, actions, salt) for each in value]
        case _:
            _, item = column.type.fields
            return [(key, _masked_within(item, each, actions, salt)) for key, each in value]


def _has_fixed_value(type_: ColumnType) -> bool:
    return type_.kind not in _WITHOUT_FIXED_VALUE and all(_has_fixed_value(field.type) for field in type_.fields)


def _alphanum(text: str) -> str:
    """Return a text with digits as n, and everything else but some punctuation as x."""
    return "".join("n" if each in _DIGITS else each if each in _KEPT else "x" for each in text)


def _mask_alphanum(_type: ColumnType, value: Value, _salt: bytes) -> Value:
    return _alphanum(value)


def _show_first_4(_type: ColumnType, value: Value, _salt: bytes) -> Value:
    return value[:SHOWN] + _alphanum(value[SHOWN:])


def _show_last_4(_type: ColumnType, value: Value, _salt: bytes) -> Value:
    return value if len(value) <= SHOWN else _alphanum(value[:-SHOWN]) + value[-SHOWN:]


def _truncate_to_year(type_: ColumnType, value: Value, _salt: bytes) -> Value:
    return _truncated(type_, value, month=1)


def _truncate_to_month(type_: ColumnType, value: Value, _salt: bytes) -> Value:
    return _truncated(type_, value, month=None)


def _truncated(type_: ColumnType, value: int, *, month: int | None) -> int:
    """Return the first day of the month of a date, and with `month` of that month; times are cut, in UTC."""
    if not is_timestamp(type_.kind):
        day = day_of(value)
        return date_of(day.replace(month=month or day.month, day=1))
    moment = moment_of(type_.kind, value)
    start = datetime(moment.year, month or moment.month, 1, tzinfo=moment.tzinfo)
    return timestamp_of(type_.kind, start)


def _sha_256_global(type_: ColumnType, value: Value, _salt: bytes) -> Value:
    return _hashed(type_, value, b"")


def _sha_256_query_local(type_: ColumnType, value: Value, salt: bytes) -> Value:
    return _hashed(type_, value, salt)


def _hashed(type_: ColumnType, value: Value, salt: bytes) -> Value:
    """Return SHA-256(salt || bytes of the value), in the type of the value: integers are little-endian and signed."""
    size = INTEGER_BITS.get(type_.kind, 0) // 8
    if size:
        digest = hashlib.sha256(salt + value.to_bytes(size, "little", signed=True)).digest()
        return int.from_bytes(digest[:size], "little", signed=True)
    if type_.kind is Kind.STRING:
        return hashlib.sha256(salt + value.encode()).hexdigest()
    return hashlib.sha256(salt + value).digest()


_ACTIONS: Final[Mapping[MaskAction, Callable[[ColumnType, Value, bytes], Value]]] = {
    MaskAction.MASK_ALPHANUM: _mask_alphanum,
    MaskAction.SHOW_FIRST_4: _show_first_4,
    MaskAction.SHOW_LAST_4: _show_last_4,
    MaskAction.TRUNCATE_TO_YEAR: _truncate_to_year,
    MaskAction.TRUNCATE_TO_MONTH: _truncate_to_month,
    MaskAction.SHA_256_GLOBAL: _sha_256_global,
    MaskAction.SHA_256_QUERY_LOCAL: _sha_256_query_local,
}

_FIXED: Final[Mapping[Kind, Value]] = {
    Kind.BOOLEAN: False,
    Kind.INT: 0,
    Kind.LONG: 0,
    Kind.FLOAT: 0.0,
    Kind.DOUBLE: 0.0,
    Kind.STRING: FIXED_TEXT,
    Kind.DATE: 0,
    Kind.TIME: 0,
    Kind.TIMESTAMP: 0,
    Kind.TIMESTAMPTZ: 0,
    Kind.TIMESTAMP_NS: 0,
    Kind.TIMESTAMPTZ_NS: 0,
    Kind.UUID: UUID(int=0),
    Kind.BINARY: b"",
}
