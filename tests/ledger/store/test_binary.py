# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL reads back, as themselves, the values that `store/wire.py` writes."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.errors import FormatError
from ledger.store import wire

TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
TEXTS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=20)
INT8 = st.integers(-(2**63), 2**63 - 1)


def read_back(database: str, kind: str, data: bytes) -> object:
    with psycopg.connect(database) as connection:
        result = connection.pgconn.exec_params(f"SELECT $1::{kind}::text".encode(), [data], None, [1])
        assert result.error_message == b""
        found = result.get_value(0, 0)
        query = f"SELECT %s::text::{kind}"
        ((value,),) = connection.execute(query.encode(), (found.decode() if found is not None else None,)).fetchall()
    return value


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ints=st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
    longs=st.lists(INT8, max_size=5),
    shorts=st.lists(st.integers(-(2**15), 2**15 - 1), max_size=5),
    flags=st.lists(st.booleans(), max_size=5),
    blobs=st.lists(st.none() | st.binary(max_size=20), max_size=5),
    hashes=st.lists(st.binary(min_size=32, max_size=32), max_size=5),
    texts=st.lists(st.none() | TEXTS, max_size=5),
    ids=st.lists(st.none() | st.uuids(), max_size=5),
    times=st.lists(TIMES, max_size=5),
)
def test_arrays_are_read_as_what_they_were(
    database: str,
    ints: list[int],
    longs: list[int],
    shorts: list[int],
    flags: list[bool],
    blobs: list[bytes | None],
    hashes: list[bytes],
    texts: list[str | None],
    ids: list[UUID | None],
    times: list[datetime],
) -> None:
    assert read_back(database, "integer[]", wire.int4_array(ints)) == ints
    assert read_back(database, "bigint[]", wire.int8_array(longs)) == longs
    assert read_back(database, "smallint[]", wire.int2_array(shorts)) == shorts
    assert read_back(database, "boolean[]", wire.bool_array(flags)) == flags
    assert read_back(database, "bytea[]", wire.bytea_array(blobs)) == blobs
    assert read_back(database, "bytea[]", wire.hash_array(hashes)) == hashes
    assert read_back(database, "text[]", wire.text_array(texts)) == texts
    assert read_back(database, "uuid[]", wire.uuid_array(ids)) == ids
    assert read_back(database, "timestamptz[]", wire.timestamptz_array(times)) == times


@given(number=INT8, time=TIMES)
def test_single_values_are_parsed_as_what_they_were(number: int, time: datetime) -> None:
    assert wire.parse_int(wire.int8(number)) == number
    assert wire.parse_timestamptz(wire.timestamptz(time)) == time


@given(
    blobs=st.lists(st.binary(max_size=20), max_size=5), cut=st.integers(1, 30), more=st.binary(min_size=1, max_size=5)
)
def test_an_array_of_bytes_is_parsed_as_what_it_was_and_no_other_is(blobs: list[bytes], cut: int, more: bytes) -> None:
    data = wire.bytea_array(blobs)
    assert wire.parse_bytea_array(data) == blobs
    for other in (
        data[:-cut],
        wire.bytea_array([*blobs, None]),
        wire.text_array(["a"]),
        *([data + more] if blobs else []),
    ):
        with pytest.raises(FormatError, match=r"bytea\[\]"):
            wire.parse_bytea_array(other)


def test_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OverflowError):
        wire.int4(2**31)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(FormatError, match="UTF-8"):
        wire.text_array(["a", "\ud800"])


def test_a_null_among_the_ids_stands_where_it_stood(database: str) -> None:
    ids = [uuid4(), None, uuid4()]
    assert read_back(database, "uuid[]", wire.uuid_array(ids)) == ids
