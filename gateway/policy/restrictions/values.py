# SPDX-License-Identifier: Apache-2.0
"""
Values of a table's columns: Iceberg's JSON for one value (specification, "JSON single-value serialization") and back.

In Python a value is: a boolean as bool, an int or long as int, a float or double as float, a decimal as Decimal of the
type's scale, a string as str, a UUID as UUID, fixed and binary as bytes, a date as the days since 1970-01-01, a time as
the microseconds of the day, a timestamp as the microseconds or nanoseconds since 1970-01-01 (UTC for one with a zone),
a struct as a dict by name, a list as a list, a map as a list of pairs, a variant as JSON. None is null.

Structs are written by name here, not by field id: people write them, in the rows of examples. What is written is
accepted in any spelling that means the same value, and always returned in one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from gateway.errors import BadRequestError
from gateway.policy.nearest import nearest
from gateway.policy.restrictions.columns import Column, ColumnType, Kind

if TYPE_CHECKING:
    from ledger.format.canonical import Json

Value: TypeAlias = Any
"""What a value is in Python, as above; which of them, its column's type says."""

TEXT_BYTES_MAX: Final = 4_096
"""Of one text or one sequence of bytes."""
ITEMS_MAX: Final = 256
"""Of one list or map."""

INTEGER_BITS: Final[Mapping[Kind, int]] = {Kind.INT: 32, Kind.LONG: 64}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = _EPOCH.date().toordinal()
_DAY_US: Final = 86_400_000_000
_FRACTIONS: Final[Mapping[Kind, int]] = {
    Kind.TIMESTAMP: 6,
    Kind.TIMESTAMPTZ: 6,
    Kind.TIMESTAMP_NS: 9,
    Kind.TIMESTAMPTZ_NS: 9,
}
"""Timestamps, with their digits of a second."""
ZONED: Final = frozenset({Kind.TIMESTAMPTZ, Kind.TIMESTAMPTZ_NS})

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,38}(\.[0-9]{1,38})?")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX: Final = re.compile(r"([0-9a-fA-F]{2})*")


def parse_value(type_: ColumnType, value: Json, *, where: str) -> Value:
    """
    Return the value of that type which `value` is in JSON; null is None.

    Raises:
        BadRequestError: if it is none; names the place, and what was expected.
    """
    if value is None:
        return None
    try:
        return _PARSERS[type_.kind](type_, value, where)
    except (TypeError, ValueError, OverflowError, InvalidOperation) as error:
        raise BadRequestError(f"expected {_words(type_)}, found {value!r:.80}", field=where) from error


def parse_row(fields: tuple[Column, ...], value: Json, *, where: str) -> dict[str, Value]:
    """
    Return a row, or a struct, of which `value` has the values by name; one that is missing is null.

    Raises:
        BadRequestError: if a value is malformed, a name is unknown, or a required one is missing; names the place.
    """
    if not isinstance(value, Mapping):
        raise BadRequestError(f"expected an object with values of columns, found {value!r:.80}", field=where)
    names = [field.path[-1] for field in fields]
    for name in value:
        if name not in names:
            known = f"; the nearest column is {nearest(str(name)[:80], names)}" if names else ""
            raise BadRequestError(f"expected columns of the schema, found {name!r:.80}{known}", field=where)
    row: dict[str, Value] = {}
    for field, name in zip(fields, names, strict=True):
        place = f"{where}.{name}"[:300]
        row[name] = parse_value(field.type, value.get(name), where=place)
        if row[name] is None and field.required:
            raise BadRequestError("expected a value, since the column is required, found none", field=place)
    return row


def format_value(type_: ColumnType, value: Value) -> Json:
    """
    Return the JSON of a value of that type.
    """
    if value is None:
        return None
    match type_.kind:
        case Kind.STRUCT:
            return {field.path[-1]: format_value(field.type, value[field.path[-1]]) for field in type_.fields}
        case Kind.LIST:
            (element,) = type_.fields
            return [format_value(element.type, each) for each in value]
        case Kind.MAP:
            key, item = type_.fields
            return {
                "keys": [format_value(key.type, each) for each, _ in value],
                "values": [format_value(item.type, each) for _, each in value],
            }
        case Kind.FLOAT | Kind.DOUBLE:
            return value if value - value == 0 else str(value)  # NaN and the infinities have no JSON
        case Kind.DECIMAL:
            return f"{value:f}"
        case Kind.UUID:
            return str(value)
        case Kind.FIXED | Kind.BINARY:
            return str(value.hex().upper())
        case Kind.DATE:
            return date.fromordinal(_EPOCH_DAY + value).isoformat()
        case Kind.TIME:
            return _format_time(value)
        case kind if kind in _FRACTIONS:
            return _format_timestamp(kind, value)
        case _:
            plain: Json = value
            return plain


def moment_of(kind: Kind, value: int) -> datetime:
    """Return the second of a timestamp, in UTC; the fraction is cut."""
    return _EPOCH + timedelta(seconds=value // 10 ** _FRACTIONS[kind])


def timestamp_of(kind: Kind, moment: datetime) -> int:
    """Return the timestamp of a whole second in UTC."""
    unit: int = 10 ** _FRACTIONS[kind]
    return (moment - _EPOCH) // timedelta(seconds=1) * unit


def day_of(value: int) -> date:
    """Return the day of a date."""
    return date.fromordinal(_EPOCH_DAY + value)


def date_of(day: date) -> int:
    """Return the date of a day."""
    return day.toordinal() - _EPOCH_DAY


def is_timestamp(kind: Kind) -> bool:
    """Return whether values of a type are timestamps."""
    return kind in _FRACTIONS


def _boolean(_type: ColumnType, value: Json, _where: str) -> Value:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(type_: ColumnType, value: Json, _where: str) -> Value:
    limit = 2 ** (INTEGER_BITS[type_.kind] - 1)
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise ValueError
    return value


def _floating(_type: ColumnType, value: Json, _where: str) -> Value:
    # Files of restrictions write fractions as texts: YAML's own numbers mean different things to different readers.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _decimal(type_: ColumnType, value: Json, _where: str) -> Value:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _DECIMAL.fullmatch(text):
        raise ValueError
    sign, digits, exponent = Decimal(text).as_tuple()
    fraction = -int(exponent)
    unscaled = int("".join(map(str, digits)))
    more = fraction - type_.scale
    if more > 0:
        if unscaled % 10**more:
            raise ValueError  # it would be rounded
        unscaled //= 10**more
    else:
        unscaled *= 10**-more
    if unscaled >= 10**type_.precision:
        raise ValueError
    return decimal_of(-unscaled if sign else unscaled, scale=type_.scale)


def decimal_of(unscaled: int, *, scale: int) -> Decimal:
    """Return the decimal with these digits, without rounding, whatever the precision of the process."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _string(_type: ColumnType, value: Json, _where: str) -> Value:
    if not isinstance(value, str) or len(value.encode()) > TEXT_BYTES_MAX:
        raise ValueError
    return value


def _uuid(_type: ColumnType, value: Json, _where: str) -> Value:
    if not isinstance(value, str) or not _UUID.fullmatch(value):
        raise ValueError
    return UUID(value)


def _bytes(type_: ColumnType, value: Json, _where: str) -> Value:
    if not isinstance(value, str) or len(value) > 2 * TEXT_BYTES_MAX or not _HEX.fullmatch(value):
        raise ValueError
    found = bytes.fromhex(value)
    if type_.kind is Kind.FIXED and len(found) != type_.length:
        raise ValueError
    return found


def _date(_type: ColumnType, value: Json, _where: str) -> Value:
    if not isinstance(value, str) or not _DATE.fullmatch(value):
        raise ValueError
    return date_of(date.fromisoformat(value))


def _time(_type: ColumnType, value: Json, _where: str) -> Value:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError
    hour, minute, second = (int(found[number]) for number in (1, 2, 3))
    microseconds = ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((found[4] or "0").ljust(6, "0"))
    if minute > 59 or second > 59 or microseconds >= _DAY_US:
        raise ValueError
    return microseconds


def _timestamp(type_: ColumnType, value: Json, _where: str) -> Value:
    found = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[3] is not None) != (type_.kind in ZONED):
        raise ValueError
    moment = datetime.fromisoformat(f"{found[1]}{(found[3] or 'Z').replace('Z', '+00:00')}").astimezone(UTC)
    digits = _FRACTIONS[type_.kind]
    fraction = (found[2] or "").rstrip("0")
    if len(fraction) > digits:
        raise ValueError  # it would be rounded
    return timestamp_of(type_.kind, moment) + int(fraction.ljust(digits, "0") or "0")


def _struct(type_: ColumnType, value: Json, where: str) -> Value:
    return parse_row(type_.fields, value, where=where)


def _list(type_: ColumnType, value: Json, where: str) -> Value:
    (element,) = type_.fields
    if not isinstance(value, list | tuple) or len(value) > ITEMS_MAX:
        raise ValueError
    return [_item(element, each, where=f"{where}[{position}]") for position, each in enumerate(value)]


def _map(type_: ColumnType, value: Json, where: str) -> Value:
    key, item = type_.fields
    match value:
        case {"keys": list() as keys, "values": list() as items, **more} if not more:
            if len(keys) != len(items) or len(keys) > ITEMS_MAX:
                raise ValueError
            return [
                (_item(key, one, where=f"{where}.keys"), _item(item, other, where=f"{where}.values"))
                for one, other in zip(keys, items, strict=True)
            ]
        case _:
            raise ValueError


def _item(column: Column, value: Json, *, where: str) -> Value:
    found = parse_value(column.type, value, where=where)
    if found is None and column.required:
        raise BadRequestError("expected a value, since it is required, found none", field=where)
    return found


def _variant(_type: ColumnType, value: Json, _where: str) -> Value:
    return value


def _none(_type: ColumnType, _value: Json, _where: str) -> Value:
    raise ValueError


_PARSERS: Final = {
    Kind.BOOLEAN: _boolean,
    Kind.INT: _integer,
    Kind.LONG: _integer,
    Kind.FLOAT: _floating,
    Kind.DOUBLE: _floating,
    Kind.DECIMAL: _decimal,
    Kind.DATE: _date,
    Kind.TIME: _time,
    Kind.TIMESTAMP: _timestamp,
    Kind.TIMESTAMPTZ: _timestamp,
    Kind.TIMESTAMP_NS: _timestamp,
    Kind.TIMESTAMPTZ_NS: _timestamp,
    Kind.STRING: _string,
    Kind.UUID: _uuid,
    Kind.FIXED: _bytes,
    Kind.BINARY: _bytes,
    Kind.VARIANT: _variant,
    Kind.GEOMETRY: _none,
    Kind.GEOGRAPHY: _none,
    Kind.UNKNOWN: _none,
    Kind.STRUCT: _struct,
    Kind.LIST: _list,
    Kind.MAP: _map,
}

_WORDS: Final[Mapping[Kind, str]] = {
    Kind.BOOLEAN: "true or false",
    Kind.INT: "an integer of 32 bits",
    Kind.LONG: "an integer of 64 bits",
    Kind.FLOAT: "a number, or one in a text",
    Kind.DOUBLE: "a number, or one in a text",
    Kind.DATE: "a date in a text, as in '2026-01-31'",
    Kind.TIME: "a time of day in a text, as in '13:00:00'",
    Kind.TIMESTAMP: "a time without an offset in a text, as in '2026-01-31T13:00:00', to the microsecond",
    Kind.TIMESTAMPTZ: "a time with its offset in a text, as in '2026-01-31T13:00:00Z', to the microsecond",
    Kind.TIMESTAMP_NS: "a time without an offset in a text, as in '2026-01-31T13:00:00', to the nanosecond",
    Kind.TIMESTAMPTZ_NS: "a time with its offset in a text, as in '2026-01-31T13:00:00Z', to the nanosecond",
    Kind.STRING: f"a text of at most {TEXT_BYTES_MAX:,} bytes",
    Kind.UUID: "a UUID in a text",
    Kind.BINARY: f"bytes in hexadecimal, at most {TEXT_BYTES_MAX:,}",
    Kind.LIST: f"a list of at most {ITEMS_MAX} elements",
    Kind.MAP: f"an object with the lists keys and values, each of at most {ITEMS_MAX} elements",
}


def _words(type_: ColumnType) -> str:
    """Say what a value of a type looks like."""
    match type_.kind:
        case Kind.DECIMAL:
            return f"an integer or a text that is a {type_}, without rounding, as in '12.50'"
        case Kind.FIXED:
            return f"{type_.length} bytes in hexadecimal"
        case kind:
            return _WORDS.get(kind, f"null: values of {type_} cannot be written here")


def _format_time(microseconds: int) -> str:
    seconds, fraction = divmod(microseconds, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"


def _format_timestamp(kind: Kind, value: int) -> str:
    digits = _FRACTIONS[kind]
    text = moment_of(kind, value).replace(tzinfo=None).isoformat()
    return f"{text}.{value % 10**digits:0{digits}d}" + ("+00:00" if kind in ZONED else "")
