# SPDX-License-Identifier: Apache-2.0
"""
Statements on a connection through libpq's pipeline: they are sent together, and results arrive in their order.

The driver's own pipeline costs more than the statements of a small batch, and blocks for ever if both sides write at
once. Here the event loop reads while it writes, so a pipeline may carry any amount. Several exchanges can be in flight:
the next one is sent before the results of the first have arrived, and the server continues without a pause.

Guarantee: the results of an exchange are those of its own statements, or an error that says why there are none. While
nothing is in flight, `lend` gives the connection to the driver, and it can be used as any other.

The values come first, as PostgreSQL reads and writes them in binary, for the few types that an append needs. Source:
PostgreSQL's `…send` and `…recv` functions (array_recv, timestamptz_recv). Integers are big-endian, a time is
microseconds since 2000-01-01 UTC, an array is a header and its elements, each with its length before it.
"""

from __future__ import annotations

import asyncio
import re
import select
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final, TypeAlias
from uuid import UUID

import psycopg
from psycopg.abc import Buffer, Transformer
from psycopg.adapt import PyFormat
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, Format
from psycopg.pq.abc import PGresult

from ledger.errors import FormatError
from ledger.store.session import Connection
from ledger.values import value_class

BinaryValue = bytes | None
"""A value in PostgreSQL's binary form; None is NULL."""
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_ARRAY = struct.Struct("!iiIii")
_LENGTH = struct.Struct("!i")
_NULL: Final = _LENGTH.pack(-1)
# Object ids of types (pg_type.dat); they never change.
_BOOL, _BYTEA, _INT8, _INT2, _INT4, _TEXT, _TIMESTAMPTZ, _UUID = 16, 17, 20, 21, 23, 25, 1184, 2950

PREPARE_AFTER: Final = 5
"""Uses of a query on one connection before it is prepared, as the driver does it."""
PREPARED_MAX: Final = 256
"""Prepared queries of one connection. A query counts once for each combination of the types of its parameters."""
_PLACEHOLDER = re.compile(r"%\((\w+)\)([bst])")
_FORMATS: Final = {"s": PyFormat.AUTO, "b": PyFormat.BINARY, "t": PyFormat.TEXT}


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


def parse_bytea_array(data: bytes) -> list[bytes]:
    """
    Return the values of a `bytea[]` without NULL, of one dimension or empty.

    Raises:
        FormatError: if it is another array.
    """
    try:
        dimensions, _, oid = struct.unpack_from("!iiI", data)
        if dimensions == 0 and oid == _BYTEA:
            return []
        dimensions, has_null, oid, count, _ = _ARRAY.unpack_from(data)
        if (dimensions, has_null, oid) != (1, 0, _BYTEA):
            raise FormatError("bytea[]", expected="one dimension without NULL", found=data[: _ARRAY.size].hex())
        values, at = [], _ARRAY.size
        for _ in range(count):
            (size,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
            values.append(data[at : at + size])
            at += size
    except struct.error as error:
        raise FormatError("bytea[]", expected="a whole array", found=f"{len(data)} bytes") from error
    if at != len(data):
        raise FormatError("bytea[]", expected=f"an array of {at} bytes", found=f"{len(data)} bytes")
    return values


def hash_array(values: Sequence[bytes]) -> bytes:
    """
    Return a `bytea[]` of hashes, 32 bytes each.
    """
    return _array_of_equal(_BYTEA, 32, values)


def text_array(values: Sequence[str | None]) -> bytes:
    """
    Return a `text[]`; the encoding of the database is UTF-8.

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


class Query:
    """A query with its parameters numbered; `Query("… %(name)s …")` takes the placeholders of the driver."""

    __slots__ = ("formats", "names", "text")

    def __init__(self, text: str) -> None:
        formats = {name: _FORMATS[letter] for name, letter in _PLACEHOLDER.findall(text)}
        self.names: Final = tuple(formats)
        self.formats: Final = tuple(formats.values())
        """In which form the driver dumps each parameter."""
        numbers = {name: f"${number}" for number, name in enumerate(self.names, start=1)}
        self.text: Final = _PLACEHOLDER.sub(lambda found: numbers[found[1]], text).replace("%%", "%").encode()


@value_class
class DumpedValues:
    """The parameters of a query, in their order, as the driver dumps Python's values: see `dump`."""

    values: Sequence[Buffer | None]
    types: tuple[int, ...] | None
    """Object ids of types; None: the server finds them out."""
    formats: Sequence[Format]


Statement: TypeAlias = tuple[Query, Mapping[str, BinaryValue] | DumpedValues]
"""A query and its parameters: by name, in PostgreSQL's binary form, or as the driver dumps them."""

StatementResult: TypeAlias = PGresult
"""The result of one statement; see `rows`, `tag`."""


_Prepared: TypeAlias = tuple[Query, tuple[int, ...] | None]
"""What is prepared: a query for parameters of some types. None: the server finds the types out."""


_Part: TypeAlias = "asyncio.Future[list[StatementResult]]"


@dataclass(slots=True, eq=False)
class _Exchange:
    """Statements that end with one Sync: after an error in one of them the server skips those behind it."""

    done: asyncio.Future[list[StatementResult]]
    expected: deque[bool | _Part | None] = field(default_factory=deque)
    """
    For each result that is still to come, whether it is the caller's. False: of preparing; None: of dropping. A part
    stands behind the results that it has.
    """
    results: list[StatementResult] = field(default_factory=list)
    """The caller's results, of the part that is being read."""
    prepares: deque[_Prepared] = field(default_factory=deque)
    """What it prepares, and the server has not yet said that it has."""
    error: psycopg.Error | None = None


def dump(query: Query, parameters: Mapping[str, object], transformer: Transformer) -> Statement:
    """
    Return a statement whose parameters, Python's values by name, are dumped as the driver does it.

    Raises:
        psycopg.Error: if a parameter is missing, or is of a class that cannot be adapted.
        TypeError, ValueError: if a value has no form in SQL.
    """
    if missing := [name for name in query.names if name not in parameters]:
        raise psycopg.ProgrammingError(f"query parameter missing: {', '.join(sorted(missing))}")
    values = transformer.dump_sequence([parameters[name] for name in query.names], query.formats)
    return query, DumpedValues(values=values, types=transformer.types, formats=transformer.formats or ())


class Pipeline:
    """The pipeline of one connection; `close` it before the connection."""

    def __init__(self, connection: Connection) -> None:
        # Only the event loop's thread touches any of these: the methods, and `_read` and `_write` as its callbacks.
        self._connection = connection
        self._pgconn = connection.pgconn
        self._socket = self._pgconn.socket
        self._loop = asyncio.get_running_loop()
        self._uses: dict[_Prepared, int] = {}
        """How often each query was sent on this connection, until it was prepared."""
        self._prepared: dict[_Prepared, bytes] = {}
        """The names of prepared queries; a failed exchange removes those that it did not come to."""
        self._names = count()
        self._forgotten: deque[bytes] = deque()
        """The names of prepared queries that the server is still to drop."""
        self._sent: deque[_Exchange] = deque()
        """Waiting for results, in order; the last one may still be open for more statements."""
        self._open: _Exchange | None = None
        self._reads = self._writes = False
        """Whether the loop watches the socket. It reads from the first statement on, until `lend`."""
        self._errors = select.poll()
        self._errors.register(self._socket, 0)  # an error or the end of the connection is always reported

    def send(self, *statements: Statement) -> None:
        """
        Add statements to the open exchange; they are sent with `flush` or `sync`, or when there are many.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        exchange = self._open or self._begin()
        while self._forgotten:
            self._drop(exchange, self._forgotten.popleft())
        for query, parameters in statements:
            if isinstance(parameters, DumpedValues):
                dumped = parameters.values, parameters.types, parameters.formats
                self._send(exchange, query, *dumped, result=Format.TEXT)
            else:
                values = [parameters[name] for name in query.names]
                self._send(exchange, query, values, None, [Format.BINARY] * len(values), result=Format.BINARY)

    def part(self) -> asyncio.Future[list[StatementResult]]:
        """
        Divide the open exchange; the future has the results up to here, or the first error among them.

        What follows still belongs to the exchange: it is sent and answered with it, and `sync` has the rest of the
        results. After an error the server skips the rest, and the parts behind it have the same error.
        """
        if (exchange := self._open) is None:
            raise _nothing_sent()
        part = self._loop.create_future()
        exchange.expected.append(part)
        _end_parts(exchange)
        return part

    def sync(self) -> asyncio.Future[list[StatementResult]]:
        """
        End the open exchange; the future has its results (behind its last part), or the first error among them.

        An error tells whether the session can be used further, as the driver's errors do.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        exchange, self._open = self._open, None
        if exchange is None:
            raise _nothing_sent()
        self._pgconn.pipeline_sync()
        self.flush()
        return exchange.done

    def flush(self) -> None:
        """
        Write what the socket accepts; the rest is written when it accepts more.

        Raises:
            psycopg.Error: if the connection is lost.
        """
        left = bool(self._pgconn.flush())
        if left and not self._writes:
            self._loop.add_writer(self._socket, self._write)
        elif not left and self._writes:
            self._loop.remove_writer(self._socket)
        self._writes = left

    def forget(self, query: Query) -> None:
        """Have the server drop what it has prepared of a query, before the next statements: it is not used any more."""
        for prepared in [each for each in self._prepared if each[0] is query]:
            self._forgotten.append(self._prepared.pop(prepared))
        for used in [each for each in self._uses if each[0] is query]:
            del self._uses[used]

    def lend(self) -> Connection:
        """
        Return the connection for use through the driver, which has it until the next statement is sent here.

        Raises:
            RuntimeError: if statements are in flight.
        """
        if self._sent:
            message = "statements are in flight"
            raise RuntimeError(message)
        if self._reads:
            self._let_go()
            self._pgconn.exit_pipeline_mode()
        return self._connection

    def close(self) -> None:
        """Stop watching the socket; every call that waits for results fails with a lost connection."""
        self._fail(psycopg.OperationalError("the connection was closed"))

    def _begin(self) -> _Exchange:
        if not self._sent and self._pgconn.status != ConnStatus.OK:
            raise psycopg.OperationalError("the connection is lost")
        if not self._reads:
            self._pgconn.enter_pipeline_mode()
            self._loop.add_reader(self._socket, self._read)
            self._reads = True
        self._open = exchange = _Exchange(self._loop.create_future())
        self._sent.append(exchange)
        return exchange

    def _send(
        self,
        exchange: _Exchange,
        query: Query,
        values: Sequence[Buffer | None],
        types: tuple[int, ...] | None,
        formats: Sequence[Format],
        *,
        result: Format,
    ) -> None:
        name = self._name(exchange, (query, types))
        if name is None:
            self._pgconn.send_query_params(query.text, values, types, formats, result)
        else:
            self._pgconn.send_query_prepared(name, values, formats, result)
        exchange.expected.append(True)

    def _name(self, exchange: _Exchange, query: _Prepared) -> bytes | None:
        """Return the name under which a query is prepared; prepares it when it is used often; None if it is not."""
        name = self._prepared.get(query)
        if name is None and len(self._prepared) < PREPARED_MAX:
            uses = self._uses[query] = self._uses.get(query, 0) + 1
            if uses > PREPARE_AFTER:
                name = self._prepared[query] = b"wire_%d" % next(self._names)
                self._pgconn.send_prepare(name, query[0].text, query[1])
                exchange.prepares.append(query)
                exchange.expected.append(False)
        return name

    def _drop(self, exchange: _Exchange, name: bytes) -> None:
        self._pgconn.send_query_params(b"DEALLOCATE " + name, [])
        exchange.expected.append(None)

    def _write(self) -> None:
        try:
            self.flush()
        except psycopg.Error as error:
            self._fail(error)

    def _read(self) -> None:
        try:
            self._read_some()
            # uvloop calls back once for a socket with an error, and watches it no more. What has arrived before the
            # error is larger than what is read at once, perhaps; behind it is the error, which ends this.
            while self._errors.poll(0):
                self._read_some()
        except psycopg.Error as error:
            self._fail(error)

    def _read_some(self) -> None:
        self._pgconn.consume_input()
        ended = False
        while self._sent and not self._pgconn.is_busy():
            if (result := self._pgconn.get_result()) is not None:
                self._take(result)
                ended = False
            elif ended:
                break  # all that was sent is answered, and the exchange goes on: an error is not held until its end
            else:
                ended = True  # the end of one statement's results

    def _take(self, result: StatementResult) -> None:
        exchange = self._sent[0]
        match result.status:
            case ExecStatus.PIPELINE_SYNC:
                self._sent.popleft()
                for query in exchange.prepares:  # skipped behind an error: prepared again, by another name
                    self._prepared.pop(query, None)
                _finish(exchange)
            case ExecStatus.PIPELINE_ABORTED:
                pass  # a statement behind the one that failed: the server has skipped it
            case ExecStatus.FATAL_ERROR:
                exchange.error = exchange.error or _error_of(result)
            case _:
                match exchange.expected.popleft():
                    case True:
                        exchange.results.append(result)
                    case False:
                        exchange.prepares.popleft()
                _end_parts(exchange)

    def _fail(self, error: psycopg.Error) -> None:
        """End every exchange: with the error that it had already, or with this one."""
        self._let_go()
        sent, self._open = list(self._sent), None
        self._sent.clear()
        for exchange in sent:
            exchange.error = exchange.error or error
            _finish(exchange)

    def _let_go(self) -> None:
        """
        Stop watching the socket. Done once: libpq closes a socket that it has lost, and its number may belong to
        another connection by the next time.
        """
        reads, writes, self._reads, self._writes = self._reads, self._writes, False, False
        with suppress(OSError):  # closed already, so it is no longer watched
            if writes:
                self._loop.remove_writer(self._socket)
        with suppress(OSError):
            if reads:
                self._loop.remove_reader(self._socket)


def rows(result: StatementResult) -> list[list[BinaryValue]]:
    """
    Return the rows of a result, each value in PostgreSQL's binary form.
    """
    columns = range(result.nfields)
    return [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]


def tag(result: StatementResult) -> bytes:
    """
    Return the command tag of a result: `COMMIT`, `INSERT 0 3`.
    """
    return result.command_status or b""


def affected(result: StatementResult) -> int:
    """
    Return how many rows a statement changed or returned, as the driver counts them.
    """
    return result.ntuples if result.status == ExecStatus.TUPLES_OK else result.command_tuples or 0


def _error_of(result: StatementResult) -> psycopg.Error:
    if result.error_field(DiagnosticField.SQLSTATE) is None:
        # Libpq's own error, not the server's: the connection is lost, and nothing is known of what was sent.
        return psycopg.OperationalError(result.get_error_message())
    return error_from_result(result)


def _end_parts(exchange: _Exchange) -> None:
    """Answer the parts of which every result has come."""
    while exchange.expected and isinstance(part := exchange.expected[0], asyncio.Future):
        exchange.expected.popleft()
        results, exchange.results = exchange.results, []
        if not part.done():  # otherwise the waiting call was cancelled
            part.set_result(results)


def _finish(exchange: _Exchange) -> None:
    if exchange.error is None and not exchange.done.done():
        exchange.done.set_result(exchange.results)
        return
    parts = [part for part in exchange.expected if isinstance(part, asyncio.Future)]
    for part in (*parts, exchange.done):
        if exchange.error is not None and not part.done():  # otherwise the waiting call was cancelled
            part.set_exception(exchange.error)
            part.exception()  # marks it as retrieved: perhaps nobody waits for it any more


def _nothing_sent() -> RuntimeError:
    return RuntimeError("no statement was sent")
