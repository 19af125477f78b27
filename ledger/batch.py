"""
One transaction of the Appender, statement by statement.

The order is the protocol: lock the heads (SKIP LOCKED, in log_id order), then in statements of their own the clock and
the look-up of group ids (they must see what was committed before the lock was had), guards one by one, inserts, heads,
COMMIT. Statements that need no answer in between share one pipeline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from ledger.entry import parse_entry
from ledger.errors import BrokenError, Fault, GuardError
from ledger.guards import GuardRegistry
from ledger.read import QUERIES, parse_head, read_entries, read_leaves, read_parts, read_tile_roots
from ledger.sequence import Group, GuardAnswer, Head, Outcome, Sequenced, StoredGroup, sequence
from ledger.tiles import TILE_WIDTH, Pending, Tile, complete_tiles

PIPELINE_SIZE_BYTES_MAX: Final = 1024 * 1024
"""A pipeline that carries more over a unix socket can block for ever on both sides; larger batches go without."""

LOCK_WAIT_MS: Final = 100
SESSION: Final = {
    "application_name": "lakeproof appender",
    "synchronous_commit": "on",
    # A process that is stopped in a transaction must not hold a head for ever.
    "idle_in_transaction_session_timeout": "5s",
    "transaction_timeout": "30s",
    "lock_timeout": f"{LOCK_WAIT_MS}ms",
    "TimeZone": "UTC",
}


async def connect(dsn: str) -> AsyncConnection[Any]:
    """
    Open the appender's connection: autocommit, durable commits, bounded waits, keepalives.
    """
    connection = await AsyncConnection.connect(
        dsn,
        autocommit=True,
        connect_timeout=5,
        keepalives=1,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
    )
    for name, value in SESSION.items():
        await connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    return connection


@dataclass(slots=True)
class _LogBatch:
    head: Head
    sequenced: Sequenced
    tiles: list[Tile]
    pending: Pending | None


class Transaction:
    """
    Runs batches on one connection, one after the other: `lock`, `sequence`, then `commit` or `rollback`.

    Keeps between batches the pending tiles of logs that nobody else has appended to since.
    """

    def __init__(self, connection: AsyncConnection[Any], guards: GuardRegistry) -> None:
        self._connection = connection
        self._guards = guards
        self._origins: dict[int, str] = {}
        self._pending: dict[int, tuple[int, Pending]] = {}
        self._heads: dict[int, Head] = {}
        self._clock: datetime | None = None
        self._batches: dict[int, _LogBatch] = {}

    async def log_exists(self, log_id: int) -> bool:
        """Tell whether there is such a log."""
        return log_id in self._origins or await self._find_origin(log_id)

    async def _find_origin(self, log_id: int) -> bool:
        cursor = await self._connection.execute("SELECT origin FROM ledger.logs WHERE log_id = %s", (log_id,))
        row = await cursor.fetchone()
        if row is not None:
            self._origins[log_id] = row[0]
        return row is not None

    async def lock(self, log_ids: Collection[int], *, wait: bool) -> set[int]:
        """
        Begin a transaction and lock the heads that are free; with `wait`, wait up to 100 ms for the one asked for.

        Returns the log_ids that are locked.
        """
        self._batches = {}
        query, parameters = (
            (QUERIES["lock_head"], {"log_id": next(iter(log_ids))})
            if wait
            else (QUERIES["lock_heads"], {"log_ids": list(log_ids)})
        )
        try:
            async with self._connection.pipeline():
                await self._connection.execute("BEGIN")
                heads = await self._connection.execute(query, parameters)
                clock = await self._connection.execute(QUERIES["clock"])
        except psycopg.errors.LockNotAvailable:
            return set()
        self._heads = dict(map(parse_head, await heads.fetchall()))
        row = await clock.fetchone()
        self._clock = row[0] if row else None
        return set(self._heads)

    async def sequence(self, groups: Mapping[int, Sequence[Group]]) -> dict[int, list[Outcome]]:
        """
        Give every group its place; returns the outcomes in order, true once `commit` has returned.

        Raises:
            LedgerError: if what is stored is corrupt.
        """
        stored = await self._find_groups(groups)
        outcomes: dict[int, list[Outcome]] = {}
        for log_id in sorted(groups):
            head = self._heads[log_id]
            sequenced = await self._drive(log_id, head, groups[log_id], stored[log_id])
            tiles, pending = await self._tiles(log_id, head, [row.leaf for row in sequenced.rows])
            self._batches[log_id] = _LogBatch(head=head, sequenced=sequenced, tiles=tiles, pending=pending)
            outcomes[log_id] = sequenced.outcomes
        return outcomes

    async def commit(self) -> bool:
        """
        Write the batch and COMMIT; returns whether any log changed.

        Raises:
            psycopg.Error: if the answer to COMMIT does not arrive; the batch may or may not be in the log.
        """
        changed = {log_id: batch for log_id, batch in self._batches.items() if batch.sequenced.rows}
        if not changed:
            await self._connection.execute("COMMIT")
            return False
        rows = [(log_id, row) for log_id, batch in changed.items() for row in batch.sequenced.rows]
        parts = [(log_id, row.index, part) for log_id, row in rows for part in row.parts]
        weight = sum(len(row.entry) for _, row in rows) + sum(len(part.payload) for *_, part in parts)
        async with AsyncExitStack() as stack:
            if weight < PIPELINE_SIZE_BYTES_MAX // 2:
                await stack.enter_async_context(self._connection.pipeline())
            await self._connection.execute(QUERIES["insert_entries"], _entry_columns(rows))
            if parts:
                await self._connection.execute(QUERIES["insert_parts"], _part_columns(parts))
            if tiles := [(log_id, tile) for log_id, batch in changed.items() for tile in batch.tiles]:
                await self._connection.execute(QUERIES["insert_tiles"], _tile_columns(tiles))
            await self._connection.execute(QUERIES["update_heads"], _head_columns(changed))
            await self._connection.execute("COMMIT")
        for log_id, batch in changed.items():
            if batch.pending is not None:
                self._pending[log_id] = (batch.sequenced.head.size, batch.pending)
        return True

    async def rollback(self) -> None:
        """End the transaction without a trace."""
        await self._connection.execute("ROLLBACK")

    async def _find_groups(self, groups: Mapping[int, Sequence[Group]]) -> dict[int, dict[UUID, StoredGroup]]:
        """Look up which groups the logs hold already, in a statement after the one that locked."""
        cursors = {}
        async with self._connection.pipeline():
            for log_id, wanted in groups.items():
                bounds = {"log_id": log_id, "group_ids": [group.id for group in wanted]}
                cursors[log_id] = await self._connection.execute(QUERIES["find_groups"], bounds)
        found: dict[int, dict[UUID, StoredGroup]] = {}
        for log_id, cursor in cursors.items():
            found[log_id] = {
                group_id: await self._stored_group(log_id, index, bytes(entry))
                for group_id, index, entry in await cursor.fetchall()
            }
        return found

    async def _stored_group(self, log_id: int, index: int, first: bytes) -> StoredGroup:
        end = index + parse_entry(first).of
        entries = await read_entries(self._connection, log_id, from_index=index, to_index=end)
        if len(entries) != end - index:
            raise BrokenError(
                Fault.GROUP, where="ledger.entries", expected=f"{end - index} entries", found=len(entries), index=index
            )
        parts = await read_parts(self._connection, log_id, from_index=index, to_index=end)
        salts = [{name: part.salt for name, part in parts.get(at, {}).items()} for at in range(index, end)]
        return StoredGroup(entries=tuple(entries), salts=tuple(salts))

    async def _drive(
        self, log_id: int, head: Head, groups: Sequence[Group], stored: Mapping[UUID, StoredGroup]
    ) -> Sequenced:
        """Run the pure rules, answering from SQL whether guards hold."""
        if log_id not in self._origins:
            await self._find_origin(log_id)
        if self._clock is None:
            raise BrokenError(Fault.TIME, where="the database's clock", expected="a time", found="none")
        flow = sequence(head, groups, log=self._origins[log_id], stored=stored, clock=self._clock)
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
        await self._connection.execute("SAVEPOINT guard")
        try:
            for statement, parameters in statements:
                if (await self._connection.execute(statement, parameters)).rowcount != 1:
                    await self._connection.execute("ROLLBACK TO SAVEPOINT guard")
                    return False
        except (psycopg.IntegrityError, psycopg.DataError, psycopg.ProgrammingError) as error:
            await self._connection.execute("ROLLBACK TO SAVEPOINT guard")
            return GuardError(f"a guard of group {group.id} failed: {error}")
        await self._connection.execute("RELEASE SAVEPOINT guard")
        return True

    async def _tiles(self, log_id: int, head: Head, leaves: list[bytes]) -> tuple[list[Tile], Pending | None]:
        """Return the tiles that `leaves` complete; what is pending is read again if another process has appended."""
        size, pending = self._pending.get(log_id, (-1, ()))
        if size != head.size:
            if head.size % TILE_WIDTH + len(leaves) < TILE_WIDTH:
                return [], None
            pending = await self._read_pending(log_id, head.size)
        return complete_tiles(size=head.size, pending=pending, leaves=leaves)

    async def _read_pending(self, log_id: int, size: int) -> Pending:
        levels = [
            tuple(await read_leaves(self._connection, log_id, from_index=size - size % TILE_WIDTH, to_index=size))
        ]
        level, complete = 1, size // TILE_WIDTH
        while complete:
            first = complete - complete % TILE_WIDTH
            roots = await read_tile_roots(self._connection, log_id, level=level - 1, from_tile=first, to_tile=complete)
            levels.append(tuple(roots))
            level, complete = level + 1, complete // TILE_WIDTH
        return tuple(levels)


def _entry_columns(rows: Sequence[tuple[int, Any]]) -> dict[str, object]:
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


def _part_columns(parts: Sequence[tuple[int, int, Any]]) -> dict[str, object]:
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
        "hashes": [b"".join(tile.hashes) for _, tile in tiles],
    }


def _head_columns(batches: Mapping[int, _LogBatch]) -> dict[str, object]:
    heads = [(log_id, batch.sequenced.head) for log_id, batch in batches.items()]
    return {
        "log_ids": [log_id for log_id, _ in heads],
        "sizes": [head.size for _, head in heads],
        "lasts": [head.last for _, head in heads],
        "frontiers": [head.frontier.pack() for _, head in heads],
        "controls": [head.control_index for _, head in heads],
        "recorded": [head.recorded_at for _, head in heads],
    }
