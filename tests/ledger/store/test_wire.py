# SPDX-License-Identifier: Apache-2.0
"""The pipeline of a connection: answers in their order, errors in their place, any amount, and no wait for ever."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import psycopg
import pytest
from psycopg import AsyncConnection

from ledger.store.session import is_refusal
from ledger.store.wire import (
    PREPARE_AFTER,
    Pipeline,
    Query,
    Statement,
    StatementResult,
    int4,
    int4_array,
    parse_int,
    rows,
    tag,
)

DOUBLE = Query("SELECT %(n)s::integer * 2")
ECHO = Query("SELECT %(data)b::bytea")
BROKEN: Statement = (Query("SELECT 1 / 0"), {})
INSERT = Query("INSERT INTO t (n) SELECT unnest(%(ns)b::integer[])")
COUNT: Statement = (Query("SELECT count(*) FROM t"), {})


@pytest.fixture
async def connection(database: str) -> AsyncIterator[AsyncConnection]:
    connection = await AsyncConnection.connect(database, autocommit=True)
    await connection.execute("CREATE TEMPORARY TABLE t (n integer)")
    yield connection
    await connection.close()


@pytest.fixture
async def wire(connection: AsyncConnection) -> AsyncIterator[Pipeline]:
    wire = Pipeline(connection)
    yield wire
    wire.close()


def double(number: int) -> Statement:
    return DOUBLE, {"n": int4(number)}


def number_in(answer: StatementResult) -> int:
    ((value,),) = rows(answer)
    assert value is not None
    return parse_int(value)


def test_parameters_are_numbered_as_they_first_stand() -> None:
    query = Query("SELECT %(b)s, %(a)b::bytea, %(b)s LIKE 'x%%'")
    assert query.names == ("b", "a")
    assert query.text == b"SELECT $1, $2::bytea, $1 LIKE 'x%'"


async def test_answers_come_in_the_order_of_their_statements(wire: Pipeline) -> None:
    wire.send(double(1), double(2))
    wire.send(double(3))
    first = wire.sync()
    wire.send(double(4))
    second = wire.sync()
    assert [number_in(answer) for answer in await second] == [8]
    assert [number_in(answer) for answer in await first] == [2, 4, 6]


async def test_a_query_is_prepared_after_some_uses_and_answers_as_before(
    connection: AsyncConnection, wire: Pipeline
) -> None:
    for number in range(2 * PREPARE_AFTER):
        wire.send(double(number))
        assert [number_in(answer) for answer in await wire.sync()] == [2 * number]
    prepared = await (await connection.execute("SELECT count(*) FROM pg_prepared_statements")).fetchone()
    assert prepared == (1,)


async def test_an_error_ends_its_exchange_and_no_other(wire: Pipeline) -> None:
    wire.send((INSERT, {"ns": int4_array([1, 2])}), BROKEN, (INSERT, {"ns": int4_array([3])}))
    bad = wire.sync()
    wire.send(COUNT)
    good = wire.sync()
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        await bad
    assert is_refusal(caught.value)
    assert [number_in(answer) for answer in await good] == [0]  # an exchange without BEGIN is one transaction


async def test_the_connection_is_the_driver_s_while_nothing_is_on_its_way(
    connection: AsyncConnection, wire: Pipeline
) -> None:
    for number in range(3):
        wire.send((INSERT, {"ns": int4_array([number])}))
        assert [tag(answer) for answer in await wire.sync()] == [b"INSERT 0 1"]
        assert await (await connection.execute("SELECT count(*) FROM t")).fetchone() == (number + 1,)


async def test_megabytes_both_ways_do_not_block(wire: Pipeline) -> None:
    # Each answer is as large as its statement, so the server writes while we do: who does not read waits for ever.
    data = [os.urandom(2 * 1024 * 1024) for _ in range(4)]
    for one in data:
        wire.send((ECHO, {"data": one}))
    answers = await asyncio.wait_for(wire.sync(), 30)
    assert [rows(answer) for answer in answers] == [[[one]] for one in data]


async def test_a_lost_connection_is_no_refusal(database: str, connection: AsyncConnection, wire: Pipeline) -> None:
    wire.send((Query("SELECT pg_sleep(60)"), {}))
    waits = wire.sync()
    wire.send(double(1))
    behind = wire.sync()
    async with await AsyncConnection.connect(database, autocommit=True) as other:
        await other.execute("SELECT pg_terminate_backend(%s)", (connection.pgconn.backend_pid,))
    for future in (waits, behind):
        with pytest.raises(psycopg.OperationalError) as caught:
            await future
        assert not is_refusal(caught.value)
    with pytest.raises(psycopg.OperationalError, match="lost"):
        wire.send(double(1))


async def test_closing_ends_every_wait(wire: Pipeline) -> None:
    wire.send((Query("SELECT pg_sleep(60)"), {}))
    waits = wire.sync()
    wire.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        await waits


async def test_a_sync_without_a_statement_is_refused(wire: Pipeline) -> None:
    with pytest.raises(RuntimeError):
        wire.sync()
