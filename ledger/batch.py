"""
One transaction of the Appender, statement by statement.

The order is the protocol. `begin`: BEGIN, lock the heads (SKIP LOCKED, in log_id order), then look the group ids up, in
a statement of its own: it sees what was committed before the lock was had. `sequence`: the pure rules, with guards one
by one in between. `commit`: insert, move the heads, COMMIT. What needs no answer in between shares a round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, AsyncCursor

from ledger.contention import LOCK_WAIT_MS
from ledger.entry import parse_entry
from ledger.errors import BrokenError, Fault, GuardError
from ledger.event import Part
from ledger.guards import GuardRegistry
from ledger.pending_tiles import PendingTiles
from ledger.read import QUERIES, parse_head
from ledger.sequence import Group, GuardAnswer, Head, Outcome, Row, Sequenced, StoredGroup, sequence
from ledger.tiles import TILE_WIDTH, Pending, Tile

PIPELINE_SIZE_BYTES_MAX: Final = 512 * 1024
"""A pipeline that carries 1 MiB over a unix socket can block for ever on both sides; larger batches go without."""
ROW_SIZE_BYTES: Final = 256
"""What an entry's row weighs besides the entry: hash, ids, type, key."""
TILE_SIZE_BYTES: Final = 32 * TILE_WIDTH

CONNECTION: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    # A server that has vanished without a word is noticed within about ten seconds, by us …
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
SESSION: Final = {
    "application_name": "lakeproof appender",
    "synchronous_commit": "on",
    "TimeZone": "UTC",
    "lock_timeout": f"{LOCK_WAIT_MS}ms",
    # A process that is stopped in a transaction must not hold a head for ever …
    "idle_in_transaction_session_timeout": "5s",
    "transaction_timeout": "30s",
    # … and neither must one whose machine has vanished (over a unix socket these have no effect).
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}


async def connect(dsn: str) -> AsyncConnection[Any]:
    """
    Open the appender's connection: autocommit, durable commits, bounded waits, keepalives.
    """
    connection = await AsyncConnection.connect(dsn, autocommit=True, **CONNECTION)
    try:
        query = "SELECT set_config(name, setting, false) FROM unnest(%s::text[], %s::text[]) AS s (name, setting)"
        await connection.execute(query, (list(SESSION), list(SESSION.values())))
    except BaseException:
        await connection.close()
        raise
    return connection


@dataclass(slots=True, kw_only=True)
class _LogBatch:
    """What the transaction does to one log whose head it has locked."""

    head: Head
    clock: datetime
    stored: dict[UUID, StoredGroup]
    rows: Sequence[Row] = ()
    new_head: Head | None = None
    tiles: Sequence[Tile] = ()
    pending: Pending | None = None


class Transaction:
    """
    Runs batches on one connection, one after the other: `begin`, `sequence`, then `commit` or `rollback`.

    After an error the connection is in no state to go on: make another.
    """

    def __init__(self, connection: AsyncConnection[Any], guards: GuardRegistry) -> None:
        self._connection = connection
        self._guards = guards
        self._pending = PendingTiles(connection)
        self._cursors: dict[str, AsyncCursor[Any]] = {}
        self._origins: dict[int, str] = {}
        self._batches: dict[int, _LogBatch] = {}
        self._in_savepoint = False

    async def begin(self, groups: Mapping[int, Sequence[Group]], *, wait: bool) -> set[int]:
        """
        Begin, lock the heads that are free and look up which groups their logs hold already.

        With `wait`, wait up to 100 ms for the head of the one log asked for. Returns the log_ids that are locked.

        Raises:
            FormatError: if what is stored is corrupt.
        """
        self._batches = {}
        self._in_savepoint = False
        query, parameters = (
            (QUERIES["lock_head"], {"log_id": next(iter(groups))})
            if wait
            else (QUERIES["lock_heads"], {"log_ids": list(groups)})
        )
        try:
            async with self._connection.pipeline():
                await self._execute("BEGIN")
                heads = await self._execute(query, parameters)
                found = await self._execute(*_find_groups(groups))
        except psycopg.errors.LockNotAvailable:
            return set()
        for *head, clock in await heads.fetchall():
            log_id, parsed = parse_head(head)
            self._batches[log_id] = _LogBatch(head=parsed, clock=clock, stored={})
        firsts = [row for row in await found.fetchall() if row[0] in self._batches]
        if firsts:
            await self._read_stored(firsts)
        return set(self._batches)

    async def knows(self, log_id: int) -> bool:
        """Tell whether there is such a log, whoever holds its head."""
        return await self._origin(log_id) is not None

    def stored(self, log_id: int) -> Mapping[UUID, StoredGroup]:
        """Return the groups of this batch that the locked log holds already."""
        return self._batches[log_id].stored

    async def sequence(self, groups: Mapping[int, Sequence[Group]]) -> dict[int, list[Outcome]]:
        """
        Give every group its place; returns the outcomes in order, true once `commit` has returned True.

        Raises:
            LedgerError: if what is stored is corrupt.
        """
        outcomes: dict[int, list[Outcome]] = {}
        for log_id in sorted(groups):
            batch = self._batches[log_id]
            sequenced = await self._drive(log_id, batch, groups[log_id])
            batch.rows, batch.new_head, outcomes[log_id] = sequenced.rows, sequenced.head, sequenced.outcomes
            if batch.rows:
                leaves = [row.leaf for row in batch.rows]
                batch.tiles, batch.pending = await self._pending.complete(log_id, size=batch.head.size, leaves=leaves)
        return outcomes

    @property
    def changes(self) -> bool:
        """Whether the batch appends anything."""
        return any(batch.rows for batch in self._batches.values())

    async def commit(self, may_commit: Callable[[], bool]) -> bool:
        """
        Write the batch and COMMIT; returns True when that is durable.

        `may_commit` is asked right before COMMIT is sent, with nothing awaited in between; if it says no, the batch is
        rolled back and False is returned.

        Raises:
            psycopg.Error: if the answer to COMMIT does not arrive; the batch may or may not be in the log.
        """
        changed = {log_id: batch for log_id, batch in self._batches.items() if batch.rows}
        rows = [(log_id, row) for log_id, batch in changed.items() for row in batch.rows]
        parts = [(log_id, row.index, part) for log_id, row in rows for part in row.parts]
        tiles = [(log_id, tile) for log_id, batch in changed.items() for tile in batch.tiles]
        allowed = False
        async with AsyncExitStack() as stack:
            if _weight(rows, parts, tiles) < PIPELINE_SIZE_BYTES_MAX:
                await stack.enter_async_context(self._connection.pipeline())
            if self._in_savepoint:
                # Else the head, locked outside and changed inside of a savepoint, would cost a multixact.
                await self._execute("RELEASE SAVEPOINT guard")
            if rows:
                await self._execute(QUERIES["insert_entries"], _entry_columns(rows))
            if parts:
                await self._execute(QUERIES["insert_parts"], _part_columns(parts))
            if tiles:
                await self._execute(QUERIES["insert_tiles"], _tile_columns(tiles))
            if changed:
                await self._execute(*_update_heads(changed))
            allowed = may_commit()
            await self._execute("COMMIT" if allowed else "ROLLBACK")
        if allowed:
            for log_id, batch in changed.items():
                if batch.pending is not None and batch.new_head is not None:
                    self._pending.keep(log_id, batch.new_head.size, batch.pending)
        return allowed

    async def rollback(self) -> None:
        """End the transaction without a trace."""
        await self._connection.execute("ROLLBACK")

    async def _execute(self, query: str, parameters: Mapping[str, object] | None = None) -> AsyncCursor[Any]:
        """Run one of our queries, each on a cursor that is kept: it remembers how its parameters are written."""
        cursor = self._cursors.get(query)
        if cursor is None:
            cursor = self._cursors[query] = self._connection.cursor()
        return await cursor.execute(query, parameters)

    async def _read_stored(self, firsts: Sequence[tuple[int, int, bytes]]) -> None:
        """Read the groups whose first entries were found: the other entries, and the salts of the parts still there."""
        ranges = {(log_id, index): parse_entry(bytes(entry)) for log_id, index, entry in firsts}
        bounds = {
            "log_ids": [log_id for log_id, _ in ranges],
            "firsts": [index for _, index in ranges],
            "ends": [index + first.of for (_, index), first in ranges.items()],
        }
        entries = {(log_id, index): bytes(entry) for log_id, index, entry in firsts}
        cursor = await self._execute(QUERIES["entries_of_groups"], bounds)
        entries |= {(log_id, index): bytes(entry) for log_id, index, entry in await cursor.fetchall()}
        salts: dict[tuple[int, int], dict[str, bytes]] = {}
        cursor = await self._execute(QUERIES["salts_of_groups"], bounds)
        for log_id, index, name, salt in await cursor.fetchall():
            salts.setdefault((log_id, index), {})[name] = bytes(salt)
        for (log_id, index), first in ranges.items():
            places = [(log_id, at) for at in range(index, index + first.of)]
            if any(place not in entries for place in places):
                raise BrokenError(
                    Fault.GROUP,
                    where="ledger.entries",
                    expected=f"{first.of} entries of group {first.group_id}",
                    found=f"{sum(place in entries for place in places)}",
                    index=index,
                )
            self._batches[log_id].stored[first.group_id] = StoredGroup(
                entries=tuple(entries[place] for place in places),
                salts=tuple(salts.get(place, {}) for place in places),
            )

    async def _origin(self, log_id: int) -> str | None:
        if log_id not in self._origins:
            cursor = await self._execute(QUERIES["log_by_id"], {"log_id": log_id})
            row = await cursor.fetchone()
            if row is None:
                return None
            self._origins[log_id] = row[1]
        return self._origins[log_id]

    async def _drive(self, log_id: int, batch: _LogBatch, groups: Sequence[Group]) -> Sequenced:
        """Run the pure rules, answering from SQL whether guards hold."""
        origin = await self._origin(log_id)
        if origin is None:
            raise BrokenError(Fault.ORIGIN, where="ledger.logs", expected=f"an origin of log {log_id}", found="none")
        flow = sequence(batch.head, groups, log=origin, stored=batch.stored, clock=batch.clock)
        try:
            group = next(flow)
            while True:
                group = flow.send(await self._holds(log_id, group))
        except StopIteration as done:
            result: Sequenced = done.value
            return result

    async def _holds(self, log_id: int, group: Group) -> GuardAnswer:
        """Run a group's guards in a savepoint; whatever they changed stays only if all of them hold."""
        try:
            statements = [s for call in group.guard for s in self._guards.statements(call, log_id=log_id)]
        except GuardError as error:
            return error
        again = "RELEASE SAVEPOINT guard; " if self._in_savepoint else ""
        await self._connection.execute(f"{again}SAVEPOINT guard", prepare=False)
        self._in_savepoint = True
        try:
            for statement, parameters in statements:
                if (await self._connection.execute(statement, parameters)).rowcount != 1:
                    await self._connection.execute("ROLLBACK TO SAVEPOINT guard")
                    return False
        except (psycopg.Error, TypeError, ValueError) as error:
            # TypeError and ValueError: a parameter that has no form in SQL (a lone surrogate, an unknown class).
            if self._connection.closed or (isinstance(error, psycopg.Error) and not is_refusal(error)):
                raise
            await self._connection.execute("ROLLBACK TO SAVEPOINT guard")
            return GuardError(f"a guard of group {group.id} failed: {in_brief(error)}")
        return True


def is_refusal(error: psycopg.Error) -> bool:
    """
    Tell whether `error` is a refusal of one statement, by the server or by psycopg: the session goes on, and if the
    statement was a COMMIT or stood before one, nothing was committed.

    A FATAL error is not: it may come behind a COMMIT that was carried out, in place of its answer.
    """
    if error.sqlstate is None:
        return not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.diag.severity_nonlocalized == "ERROR"


def in_brief(error: Exception) -> str:
    """
    Return what went wrong, without the details that a server adds: they may hold what the callers wrote.
    """
    return (isinstance(error, psycopg.Error) and error.diag.message_primary) or str(error)


def _find_groups(groups: Mapping[int, Sequence[Group]]) -> tuple[str, dict[str, object]]:
    """Return the look-up of all group ids of a batch."""
    if len(groups) == 1:
        # Half the cost of the general form, and by far the most frequent one under load.
        ((log_id, wanted),) = groups.items()
        return QUERIES["find_groups"], {"log_id": log_id, "group_ids": [group.id for group in wanted]}
    pairs = [(log_id, group.id) for log_id, wanted in groups.items() for group in wanted]
    return QUERIES["find_groups_of_logs"], {
        "log_ids": [log_id for log_id, _ in pairs],
        "group_ids": [group_id for _, group_id in pairs],
    }


def _weight(rows: Sequence[tuple[int, Row]], parts: Sequence[tuple[int, int, Part]], tiles: Sequence[object]) -> int:
    entries = sum(len(row.entry) + len(row.key) + ROW_SIZE_BYTES for _, row in rows)
    return entries + sum(len(part.payload) + ROW_SIZE_BYTES for *_, part in parts) + TILE_SIZE_BYTES * len(tiles)


def _entry_columns(rows: Sequence[tuple[int, Row]]) -> dict[str, object]:
    return {
        "log_ids": [log_id for log_id, _ in rows],
        "indices": [row.index for _, row in rows],
        "entries": [row.entry for _, row in rows],
        "leaves": [row.leaf for _, row in rows],
        "types": [row.type for _, row in rows],
        "keys": [row.key for _, row in rows],
        "controls": [row.is_control for _, row in rows],
        "group_ids": [row.group_id for _, row in rows],
    }


def _part_columns(parts: Sequence[tuple[int, int, Part]]) -> dict[str, object]:
    return {
        "log_ids": [log_id for log_id, *_ in parts],
        "indices": [index for _, index, _ in parts],
        "names": [part.name for *_, part in parts],
        "subjects": [part.subject for *_, part in parts],
        "sealed": [part.salt + part.payload for *_, part in parts],
    }


def _tile_columns(tiles: Sequence[tuple[int, Tile]]) -> dict[str, object]:
    return {
        "log_ids": [log_id for log_id, _ in tiles],
        "levels": [tile.level for _, tile in tiles],
        "tiles": [tile.index for _, tile in tiles],
        "hashes": [tile.pack() for _, tile in tiles],
    }


def _update_heads(batches: Mapping[int, _LogBatch]) -> tuple[str, dict[str, object]]:
    """Return the statement that moves all heads of a batch."""
    heads = [(log_id, batch.new_head) for log_id, batch in batches.items() if batch.new_head is not None]
    if len(heads) == 1:
        ((log_id, head),) = heads
        return QUERIES["update_head"], {
            "log_id": log_id,
            "size": head.size,
            "last": head.last,
            "frontier": head.frontier.pack(),
            "control": head.control_index,
            "recorded": head.recorded_at,
        }
    return QUERIES["update_heads"], {
        "log_ids": [log_id for log_id, _ in heads],
        "sizes": [head.size for _, head in heads],
        "lasts": [head.last for _, head in heads],
        "frontiers": [head.frontier.pack() for _, head in heads],
        "controls": [head.control_index for _, head in heads],
        "recorded": [head.recorded_at for _, head in heads],
    }
