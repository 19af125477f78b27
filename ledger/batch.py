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

from ledger.entry import parse_entry
from ledger.errors import BrokenError, Fault, GuardError
from ledger.guards import GuardRegistry
from ledger.pending_tiles import Edge, PendingTiles
from ledger.read import QUERIES, parse_head
from ledger.sequence import Group, GuardAnswer, Head, Outcome, Row, Sequenced, StoredGroup, sequence
from ledger.session import in_brief, is_refusal
from ledger.statements import (
    find_groups,
    insert_entries,
    insert_parts,
    insert_tiles,
    update_heads,
    weight_bytes,
)
from ledger.tiles import Tile

PIPELINE_SIZE_BYTES_MAX: Final = 512 * 1024
"""A pipeline that carries 1 MiB over a unix socket can block for ever on both sides; larger batches go without."""


@dataclass(slots=True, kw_only=True)
class _LogBatch:
    """What the transaction does to one log whose head it has locked."""

    head: Head
    clock: datetime
    stored: dict[UUID, StoredGroup]
    rows: Sequence[Row] = ()
    new_head: Head
    tiles: Sequence[Tile] = ()
    edge: Edge | None = None


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
                found = await self._execute(*find_groups(groups))
        except psycopg.errors.LockNotAvailable:
            return set()
        for *head, clock in await heads.fetchall():
            log_id, parsed = parse_head(head)
            self._batches[log_id] = _LogBatch(head=parsed, clock=clock, stored={}, new_head=parsed)
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
                batch.tiles, batch.edge = await self._pending.complete(log_id, size=batch.head.size, leaves=leaves)
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
        rows = {log_id: batch.rows for log_id, batch in self._batches.items() if batch.rows}
        tiles = {log_id: batch.tiles for log_id, batch in self._batches.items() if batch.tiles}
        heads = {log_id: batch.new_head for log_id, batch in self._batches.items() if log_id in rows}
        allowed = False
        async with AsyncExitStack() as stack:
            if weight_bytes(rows, tiles) < PIPELINE_SIZE_BYTES_MAX:
                await stack.enter_async_context(self._connection.pipeline())
            if self._in_savepoint:
                # Else the head, locked outside and changed inside of a savepoint, would cost a multixact.
                await self._execute("RELEASE SAVEPOINT guard")
            if rows:
                writes = (insert_entries(rows), insert_parts(rows), insert_tiles(tiles), update_heads(heads))
                for write in writes:
                    if write is not None:
                        await self._execute(*write)
            allowed = may_commit()
            await self._execute("COMMIT" if allowed else "ROLLBACK")
        if allowed:
            for log_id in heads:
                if (edge := self._batches[log_id].edge) is not None:
                    self._pending.keep(log_id, edge)
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
