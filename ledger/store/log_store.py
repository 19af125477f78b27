# SPDX-License-Identifier: Apache-2.0
"""
The log for synchronous code in worker threads: append a group, read control entries and recorded events.

The Appender and the connections belong to the event loop; this is the bridge. Every call has a deadline. A call on the
loop's own thread is refused, because it would wait for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol, TypeAlias, TypeVar
from uuid import UUID

import psycopg

from ledger.errors import FormatError, LedgerError, LogUnavailableError, OutcomeUnknownError
from ledger.format.aggregates import RecordedKind
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.read import QUERIES, read_head
from ledger.store.session import Connection, brief_message

STORE_TIMEOUT_S: Final = 10.0
LOOP_GRACE_S: Final = 2.0
"""How much longer a thread waits than the deadline that it gave the loop, so that the loop can answer first."""

R = TypeVar("R")
LendConnection: TypeAlias = Callable[[], AbstractAsyncContextManager[Connection]]
"""Lends a connection for one use, as the `connection` method of a psycopg pool does."""


class Appends(Protocol):
    """What the store needs of an Appender."""

    async def append(self, log_id: int, group: Group, *, timeout_s: float = ...) -> Appended | Stale:
        """Append `group`, or say that it is stale."""


class LogStore:
    """
    The appender and the connections of all tenants, for worker threads. Make it on the event loop.

    `lend` lends connections that may read the requested entries and heads, and for recorded events the rows outside the
    log, as a tenant's reader or the auditor may. `new_group_id` makes a UUIDv7.
    """

    def __init__(
        self,
        appender: Appends,
        lend: LendConnection,
        *,
        new_group_id: Callable[[], UUID],
        timeout_s: float = STORE_TIMEOUT_S,
    ) -> None:
        # Set once; threads only read them. All work runs on `_loop`, which owns the appender and the connections.
        self.new_group_id = new_group_id
        self._appender = appender
        self._lend = lend
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()

    def append(self, log_id: int, group: Group) -> Appended | Stale:
        """
        Append `group`; blocks this thread until that is durable.

        Raises:
            OutcomeUnknownError: if no answer came in time.
            LedgerError: whatever the Appender raises.
        """
        unknown = OutcomeUnknownError(f"group {group.id}: no answer within {self._timeout_s} s; it may be in the log")
        return self._wait(self._appender.append(log_id, group, timeout_s=self._timeout_s), otherwise=unknown)

    def aggregate_entries(self, log_id: int, key: str) -> list[tuple[int, bytes]]:
        """Return index and entry of every event of one aggregate, in order."""
        return self._read(lambda connection: _rows(connection, "aggregate_entries", log_id=log_id, key=key))

    def entries_of_aggregates(self, log_id: int, keys: Sequence[str]) -> list[tuple[int, bytes]]:
        """Return index and entry of every event of some aggregates, in order."""
        return self._read(lambda connection: _rows(connection, "entries_of_aggregates", log_id=log_id, keys=[*keys]))

    def control_entries(self, log_id: int, *, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return index and entry of the first `limit` control entries behind index `after`, in order."""
        return self._read(
            lambda connection: _rows(connection, "control_entries", log_id=log_id, after=after, limit=limit)
        )

    def control_index(self, log_id: int) -> int:
        """Return the index of the newest control entry, `NO_CONTROL` if there is none."""
        return self._read(lambda connection: read_head(connection, log_id)).control_index

    def recorded_events(
        self, log_id: int, kind: RecordedKind, key: str, versions: range, *, newest_first: bool, limit: int
    ) -> list[tuple[int, int, bytes]]:
        """
        Return version, index and entry of what is recorded of an aggregate, by version: those in `versions`.

        Raises:
            FormatError: if a row names an entry that does not exist; the rows outside the log are corrupt.
        """
        query = "recorded_events_newest_first" if newest_first else "recorded_events"

        async def read(connection: Connection) -> list[tuple[int, int, bytes]]:
            parameters = {"log_id": log_id, "kind": kind.value, "originator": key, "limit": limit}
            bounds = {"least": versions.start, "most": versions.stop - 1}
            rows = await (await connection.execute(QUERIES[query], parameters | bounds)).fetchall()
            for version, index, _ in rows:
                if index is None:
                    raise FormatError(f"{kind} {version} of {key}", expected="its entry in the log", found="none")
            return [(version, index, bytes(entry)) for version, index, entry in rows]

        return self._read(read)

    def entries_of_type(self, log_id: int, event_type: str, indices: range, *, limit: int) -> list[tuple[int, bytes]]:
        """Return index and entry of the first `limit` entries of a type at `indices`, in order."""
        bounds = {"from_index": indices.start, "to_index": indices.stop}
        return self._read(
            lambda connection: _rows(
                connection, "entries_of_type", log_id=log_id, type=event_type, limit=limit, **bounds
            )
        )

    def newest_of_type(self, log_id: int, event_type: str) -> int | None:
        """Return the index of the last entry of a type, None if there is none."""

        async def read(connection: Connection) -> int | None:
            parameters = {"log_id": log_id, "type": event_type}
            row = await (await connection.execute(QUERIES["newest_of_type"], parameters)).fetchone()
            return None if row is None else int(row[0])

        return self._read(read)

    def _read(self, read: Callable[[Connection], Coroutine[Any, Any, R]]) -> R:
        async def on_the_loop() -> R:
            try:
                async with asyncio.timeout(self._timeout_s), self._lend() as connection:
                    return await read(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError, TimeoutError) as error:
                raise LogUnavailableError(f"the log could not be read: {error}") from error
            except psycopg.Error as error:
                raise LedgerError(
                    f"the database refuses to read the log for this role: {brief_message(error)}"
                ) from error

        return self._wait(on_the_loop(), otherwise=LogUnavailableError(f"no answer within {self._timeout_s} s"))

    def _wait(self, work: Coroutine[Any, Any, R], *, otherwise: LedgerError) -> R:
        """Run `work` on the loop and wait for it in this thread; raises `otherwise` if no answer arrives."""
        if _running_loop() is self._loop:
            work.close()
            raise LedgerError("the log store was called on the event loop's own thread: call it in a worker thread")
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:  # the loop is closed
            work.close()
            raise LogUnavailableError("the event loop is closed: nothing was appended") from error
        try:
            return future.result(timeout=self._timeout_s + LOOP_GRACE_S)
        except (TimeoutError, CancelledError) as error:
            future.cancel()
            raise otherwise from error


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def _rows(connection: Connection, query: str, **parameters: object) -> list[tuple[int, bytes]]:
    rows = await (await connection.execute(QUERIES[query], parameters)).fetchall()
    return [(index, bytes(entry)) for index, entry in rows]
