# SPDX-License-Identifier: Apache-2.0
"""The pipeline of a connection: answers in their order, errors in their place, any amount, and no wait for ever."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from threading import Event, Thread
from typing import Final, TypeAlias
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from lakeproof.serving.event_loop import new_event_loop
from ledger.store.session import is_refusal
from ledger.store.wire import (
    PREPARE_AFTER,
    PREPARED_MAX,
    Pipeline,
    Query,
    Statement,
    StatementResult,
    affected,
    dump,
    int4,
    int4_array,
    parse_int,
    rows,
    tag,
)

PART_BYTES: Final = 100_000
"""More than is read of a socket at once, and less than what fits into it."""
LARGE = Query("SELECT repeat('x', 1000000)")
DOUBLE = Query("SELECT %(n)s::integer * 2")
ECHO = Query("SELECT %(data)b::bytea")
ECHO_NOTHING: Statement = (ECHO, {"data": b""})
BROKEN: Statement = (Query("SELECT 1 / 0"), {})
INSERT = Query("INSERT INTO t (n) SELECT unnest(%(ns)b::integer[])")
COUNT: Statement = (Query("SELECT count(*) FROM t"), {})


Short: TypeAlias = Callable[[], AbstractContextManager[Path]]


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
    assert Query("SELECT %(c)t, %(a)s").names == ("c", "a")
    assert query.text == b"SELECT $1, $2::bytea, $1 LIKE 'x%'"


async def test_answers_come_in_the_order_of_their_statements(wire: Pipeline) -> None:
    wire.send(double(1), double(2))
    wire.send(double(3))
    first = wire.sync()
    wire.send(double(4))
    second = wire.sync()
    assert [number_in(answer) for answer in await second] == [8]
    assert [number_in(answer) for answer in await first] == [2, 4, 6]


async def test_parts_of_an_exchange_have_their_own_answers(wire: Pipeline) -> None:
    for _ in range(2 * PREPARE_AFTER):  # also while queries are prepared
        wire.send(double(1))
        first, second = wire.part(), wire.part()
        wire.send(double(2), double(3))
        third = wire.part()
        wire.send(double(4))
        rest = wire.sync()
        answers = [[number_in(answer) for answer in await part] for part in (first, second, third, rest)]
        assert answers == [[2], [], [4, 6], [8]]


async def test_an_error_is_that_of_its_part_and_of_those_behind_it(wire: Pipeline) -> None:
    wire.send(double(1))
    before = wire.part()
    wire.send(BROKEN)
    broken = wire.part()
    wire.send(double(2))
    behind = wire.part()
    end = wire.sync()
    assert [number_in(answer) for answer in await before] == [2]
    for part in (broken, behind, end):
        with pytest.raises(psycopg.errors.DivisionByZero):
            await part
    wire.send(double(3))
    assert [number_in(answer) for answer in await wire.sync()] == [6]


async def test_an_error_before_the_end_of_its_exchange_holds_up_nothing(wire: Pipeline) -> None:
    wire.send(BROKEN)
    wire.flush()
    await asyncio.sleep(0.1)  # the server says so before the exchange ends, and the event loop goes on
    wire.send(double(1))
    with pytest.raises(psycopg.errors.DivisionByZero):
        await wire.sync()
    wire.send(double(21))
    assert [number_in(answer) for answer in await wire.sync()] == [42]


async def test_parts_that_nobody_waits_for_delay_none(wire: Pipeline) -> None:
    wire.send(double(1))
    wire.part().cancel()
    wire.send(BROKEN)
    wire.part().cancel()
    wire.sync().cancel()
    wire.send(double(2))
    assert [number_in(answer) for answer in await wire.sync()] == [4]


async def test_a_lost_connection_ends_every_part(wire: Pipeline) -> None:
    wire.send((Query("SELECT pg_terminate_backend(pg_backend_pid())"), {}))
    parts = [wire.part(), wire.part(), wire.sync()]
    for part in parts:
        with pytest.raises(psycopg.OperationalError):
            await part


async def test_there_is_no_part_of_nothing(wire: Pipeline) -> None:
    with pytest.raises(RuntimeError):
        wire.part()


async def test_a_query_is_prepared_after_some_uses_and_answers_as_before(wire: Pipeline) -> None:
    for number in range(2 * PREPARE_AFTER):
        wire.send(double(number))
        assert [number_in(answer) for answer in await wire.sync()] == [2 * number]
    prepared = await (await wire.lend().execute("SELECT count(*) FROM pg_prepared_statements")).fetchone()
    assert prepared == (1,)


async def prepared(connection: AsyncConnection) -> list[str]:
    """Return the statements that the server has prepared for this connection."""
    cursor = await connection.execute("SELECT statement FROM pg_prepared_statements")
    return [statement for (statement,) in await cursor.fetchall()]


async def test_a_query_that_fails_is_prepared_once_and_those_behind_it_when_they_are_reached(wire: Pipeline) -> None:
    share = Query("SELECT 1 / %(n)s::integer")
    for _ in range(3 * PREPARE_AFTER):
        wire.send((share, {"n": int4(0)}), double(1))
        with pytest.raises(psycopg.errors.DivisionByZero):
            await wire.sync()
    assert await prepared(wire.lend()) == ["SELECT 1 / $1::integer"]
    for number in range(3):
        wire.send((share, {"n": int4(1)}), double(number))
        assert [number_in(answer) for answer in await wire.sync()] == [1, 2 * number]
    assert sorted(await prepared(wire.lend())) == ["SELECT $1::integer * 2", "SELECT 1 / $1::integer"]


async def test_no_more_than_so_many_queries_are_prepared(wire: Pipeline) -> None:
    for number in range(PREPARED_MAX + 10):
        query = Query(f"SELECT {number}")
        wire.send(*[(query, {})] * (PREPARE_AFTER + 2))
        assert {number_in(answer) for answer in await wire.sync()} == {number}
    assert len(await prepared(wire.lend())) == PREPARED_MAX


# Parameters that the driver dumps

VALUES: Final[tuple[object, ...]] = (
    None,
    True,
    7,
    70_000,
    2**40,
    2**70,
    -1.5,
    Decimal("1.10"),
    "text 𝄞",
    b"\x00\xff",
    UUID(int=5),
    datetime(2026, 3, 1, 12, tzinfo=UTC),
    ["a", None, "b"],
    [b"\x01", b""],
    [1, 2**40],
    [],
    Jsonb({"a": [1, None]}),
)
PLUS: Final = Query("SELECT %(n)s + 1")
SHOW: Final = Query("SELECT %(value)s::text")


@pytest.mark.parametrize("value", VALUES, ids=str)
async def test_what_the_driver_dumps_arrives_as_it_does_through_the_driver(
    connection: AsyncConnection, wire: Pipeline, value: object
) -> None:
    transformer = Transformer(connection)
    for _ in range(2 * PREPARE_AFTER):
        wire.send(dump(SHOW, {"value": value, "another": 1}, transformer))
        ((text,),) = rows((await wire.sync())[0])
    cursor = await wire.lend().execute("SELECT %(value)s::text", {"value": value})
    assert await cursor.fetchone() == (None if text is None else text.decode(),)


async def test_a_query_is_prepared_for_each_combination_of_types(connection: AsyncConnection, wire: Pipeline) -> None:
    transformer = Transformer(connection)
    for value in (1, 2**40) * 2 * PREPARE_AFTER:
        wire.send(dump(PLUS, {"n": value}, transformer))
        ((found,),) = rows((await wire.sync())[0])
        assert found == str(value + 1).encode()
    assert await prepared(wire.lend()) == ["SELECT $1 + 1"] * 2


@pytest.mark.parametrize(
    ("parameters", "says"),
    [({}, "query parameter missing: value"), ({"value": "\ud800"}, "surrogates"), ({"value": object()}, "adapt")],
)
async def test_what_has_no_form_in_sql_is_refused_in_the_driver_s_words(
    connection: AsyncConnection, parameters: dict[str, object], says: str
) -> None:
    with pytest.raises((psycopg.Error, ValueError, TypeError), match=says) as ours:
        dump(SHOW, parameters, Transformer(connection))
    with pytest.raises(type(ours.value)) as theirs:
        await connection.execute("SELECT %(value)s", parameters)
    assert str(theirs.value) == str(ours.value)


async def test_rows_are_counted_as_the_driver_counts_them(wire: Pipeline) -> None:
    counts = {
        "INSERT INTO t SELECT generate_series(1, 3)": 3,
        "INSERT INTO t VALUES (1) RETURNING n": 1,
        "UPDATE t SET n = n WHERE n = 1": 2,
        "DELETE FROM t WHERE n = 9": 0,
        "SELECT FROM t LIMIT 2": 2,
        "WITH i AS (INSERT INTO t VALUES (5)) SELECT WHERE false": 0,
        "SAVEPOINT nothing": 0,
    }
    wire.send((Query("BEGIN"), {}), *((Query(text), {}) for text in counts))
    assert [affected(answer) for answer in (await wire.sync())[1:]] == list(counts.values())
    await wire.lend().execute("ROLLBACK")
    for text, expected in list(counts.items())[:-1]:
        assert (await wire.lend().execute(text.encode())).rowcount == expected


async def test_an_error_ends_its_exchange_and_no_other(wire: Pipeline) -> None:
    wire.send((INSERT, {"ns": int4_array([1, 2])}), BROKEN, (INSERT, {"ns": int4_array([3])}))
    bad = wire.sync()
    wire.send(COUNT)
    good = wire.sync()
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        await bad
    assert is_refusal(caught.value)
    assert [number_in(answer) for answer in await good] == [0]  # an exchange without BEGIN is one transaction


async def test_the_connection_can_be_lent_to_the_driver_while_nothing_is_on_its_way(wire: Pipeline) -> None:
    for number in range(3):
        wire.send((INSERT, {"ns": int4_array([number])}))
        assert [tag(answer) for answer in await wire.sync()] == [b"INSERT 0 1"]
        assert await (await wire.lend().execute("SELECT count(*) FROM t")).fetchone() == (number + 1,)


async def test_the_connection_is_not_lent_while_something_is_on_its_way(wire: Pipeline) -> None:
    wire.send(double(1))
    with pytest.raises(RuntimeError):
        wire.lend()
    answers = wire.sync()
    with pytest.raises(RuntimeError):
        wire.lend()
    await answers
    assert await (await wire.lend().execute("SELECT 1")).fetchone() == (1,)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "production"])
def test_a_connection_that_is_lost_while_nothing_is_on_its_way_is_watched_no_more(
    database: str, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def lose() -> None:
        async with await AsyncConnection.connect(database, autocommit=True) as connection:
            wire = Pipeline(connection)
            wire.send(double(1))
            await wire.sync()
            async with await AsyncConnection.connect(database, autocommit=True) as owner:
                await owner.execute("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))
            async with asyncio.timeout(10):
                while wire._reads:  # noqa: ASYNC110  (nothing else announces it)
                    await asyncio.sleep(0.01)
            with pytest.raises(psycopg.OperationalError):
                wire.send(double(1))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(lose())


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


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop], ids=["asyncio", "production"])
def test_a_connection_that_breaks_within_an_answer_ends_every_wait(
    database: str, short_directory: Short, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def ask(relay: _Relay, dsn: str) -> None:
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            wire = Pipeline(connection)
            wire.send((LARGE, {}))
            waits = wire.sync()
            relay.pass_a_part()  # without the event loop, which sees the part and the end at the same time
            wire.send(double(1))
            behind = wire.sync()
            relay.reset()
            for future in (waits, behind):
                with pytest.raises(psycopg.OperationalError):
                    await asyncio.wait_for(future, 30)

    with (
        short_directory() as directory,
        closing(_Relay(database, directory)) as relay,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(ask(relay, make_conninfo(database, host=str(directory), port="1")))


class _Relay:
    """A socket in front of the server's, which passes on everything until it is told to pass a part of an answer."""

    def __init__(self, database: str, directory: Path) -> None:
        found = conninfo_to_dict(database)
        self._target = f"{found['host']}/.s.PGSQL.{found['port']}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / ".s.PGSQL.1"))
        self._listener.listen()
        self._passed = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def pass_a_part(self) -> None:
        assert self._passed.wait(30)

    def reset(self) -> None:
        """Close the connection without having read all that came: the other side finds an error behind the part."""
        self._client.close()

    def close(self) -> None:
        self._listener.close()
        self._thread.join()

    def _run(self) -> None:
        self._client, _ = self._listener.accept()
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            is_asked = False
            while not is_asked:
                for readable in select.select([self._client, server], [], [])[0]:
                    data = readable.recv(65_536)
                    is_asked = is_asked or LARGE.text in data
                    (server if readable is self._client else self._client).sendall(data)
            answer = b""
            while len(answer) < PART_BYTES:
                answer += server.recv(PART_BYTES - len(answer))
            self._client.sendall(answer)
            self._passed.set()


async def test_closing_ends_every_wait(wire: Pipeline) -> None:
    wire.send((Query("SELECT pg_sleep(60)"), {}))
    waits = wire.sync()
    wire.close()
    with pytest.raises(psycopg.OperationalError, match="closed"):
        await waits


async def test_a_sync_without_a_statement_is_refused(wire: Pipeline) -> None:
    with pytest.raises(RuntimeError):
        wire.sync()


async def test_a_query_that_is_forgotten_is_dropped_by_the_server(wire: Pipeline) -> None:
    async def prepared() -> int:
        row = await (await wire.lend().execute("SELECT count(*) FROM pg_prepared_statements")).fetchone()
        assert row is not None
        return int(row[0])

    for _ in range(PREPARE_AFTER + 1):
        wire.send(double(1), ECHO_NOTHING)
        await wire.sync()
    assert await prepared() == 2
    wire.forget(DOUBLE)
    wire.forget(COUNT[0])  # never used
    wire.send(ECHO_NOTHING, double(4))
    assert number_in((await wire.sync())[1]) == 8
    assert await prepared() == 1
    for _ in range(PREPARE_AFTER):
        wire.send(double(4))
        (answer,) = await wire.sync()
        assert number_in(answer) == 8
    assert await prepared() == 2, "used again as often, it is prepared again"
