"""
Values as PostgreSQL reads and writes them in binary, for the few types that an append needs. Pure.

Only the bytes that `appending/wire.py` carries are made here. Source: PostgreSQL's `…send` and `…recv` functions
(array_recv, timestamptz_recv); integers are big-endian, a time is microseconds since 2000-01-01 UTC, an array is a head
and its elements, each with its length before it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from ledger.errors import FormatError

Value = bytes | None
"""What stands for a value on the wire; None is NULL."""

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ARRAY = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_NULL: Final = _LENGTH.pack(-1)

# Object ids of types (pg_type.dat); they never change.
_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT, _TIMESTAMPTZ, _UUID = 16, 17, 20, 21, 23, 25, 1184, 2950


def int4(value: int) -> bytes:
    """
    Return an `integer`.
    """
    return value.to_bytes(4, "big", signed=True)


def int8(value: int) -> bytes:
    """
    Return a `bigint`.
    """
    return value.to_bytes(8, "big", signed=True)


def parse_int(data: bytes) -> int:
    """
    Return the number that an `integer` or `bigint` is.
    """
    return int.from_bytes(data, "big", signed=True)


def timestamptz(value: datetime) -> bytes:
    """
    Return an aware time as a `timestamptz`.
    """
    return int8((value - _EPOCH) // _MICROSECOND)


def parse_timestamptz(data: bytes) -> datetime:
    """
    Return the time, in UTC, that a `timestamptz` is.
    """
    return _EPOCH + parse_int(data) * _MICROSECOND


def int2_array(values: Sequence[int]) -> bytes:
    """
    Return a `smallint[]`.
    """
    return _array_of_equal(_INT2, 2, [value.to_bytes(2, "big", signed=True) for value in values])


def int4_array(values: Sequence[int]) -> bytes:
    """
    Return an `integer[]`.
    """
    return _array_of_equal(_INT4, 4, [value.to_bytes(4, "big", signed=True) for value in values])


def int8_array(values: Sequence[int]) -> bytes:
    """
    Return a `bigint[]`.
    """
    return _array_of_equal(_INT8, 8, [value.to_bytes(8, "big", signed=True) for value in values])


def bool_array(values: Sequence[bool]) -> bytes:
    """
    Return a `boolean[]`.
    """
    return _array_of_equal(_BOOL, 1, [b"\x01" if value else b"\x00" for value in values])


def timestamptz_array(values: Sequence[datetime]) -> bytes:
    """
    Return a `timestamptz[]`.
    """
    return _array_of_equal(_TIMESTAMPTZ, 8, [timestamptz(value) for value in values])


def uuid_array(values: Sequence[UUID | None]) -> bytes:
    """
    Return a `uuid[]`.
    """
    if None in values:
        return _array(_UUID, [None if value is None else value.bytes for value in values])
    return _array_of_equal(_UUID, 16, [value.bytes for value in values if value is not None])


def bytea_array(values: Sequence[bytes | None]) -> bytes:
    """
    Return a `bytea[]`.
    """
    return _array(_BYTEA, values)


def hash_array(values: Sequence[bytes]) -> bytes:
    """
    Return a `bytea[]` of hashes, 32 bytes each.
    """
    return _array_of_equal(_BYTEA, 32, values)


def text_array(values: Sequence[str | None]) -> bytes:
    """
    Return a `text[]`; the database speaks UTF-8.

    Raises:
        FormatError: at a lone surrogate.
    """
    try:
        return _array(_TEXT, [None if value is None else value.encode() for value in values])
    except UnicodeEncodeError as error:
        raise FormatError("text", expected="characters that UTF-8 has", found=error.object) from error


def _array(oid: int, values: Sequence[bytes | None]) -> bytes:
    if not values:
        return struct.pack("!iiI", 0, 0, oid)
    has_null = None in values
    # Lengths and values in turn, put into place by slices: a loop would cost more than everything else of a batch.
    pieces: list[bytes] = [b""] * (2 * len(values))
    if has_null:
        pieces[0::2] = [_NULL if value is None else len(value).to_bytes(4, "big") for value in values]
        pieces[1::2] = [value or b"" for value in values]
    else:
        pieces[0::2] = [len(value).to_bytes(4, "big") for value in values if value is not None]
        pieces[1::2] = [value for value in values if value is not None]
    return _ARRAY.pack(1, has_null, oid, len(values), 1) + b"".join(pieces)


def _array_of_equal(oid: int, size_bytes: int, values: Sequence[bytes]) -> bytes:
    """Return an array of values that are all of one length, None among them not allowed."""
    if not values:
        return struct.pack("!iiI", 0, 0, oid)
    length = _LENGTH.pack(size_bytes)
    return _ARRAY.pack(1, 0, oid, len(values), 1) + length + length.join(values)
