"""
The incomplete tiles that an Appender keeps between batches, so that it can tell which tiles a batch completes.

Guarantee: the tiles it names are those of the whole log, whoever else has appended in between. What is kept belongs to
a size that the log had after a COMMIT, so it never changes; what is missing behind it is read from the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection

from ledger.errors import BrokenError, Fault
from ledger.read import read_leaves, read_tile_roots
from ledger.tiles import TILE_WIDTH, Pending, Tile, complete_tiles

LOGS_KEPT_MAX: Final = 1_000
"""Logs whose incomplete tiles are kept, 10 to 25 KiB each; of others they are read when a tile is complete."""
CATCH_UP_MAX: Final = 65_536
"""Leaves that are read to catch up with others; further behind, reading the tiles costs less."""


class PendingTiles:
    """The incomplete tiles of the logs that this process appends to, as one connection reads them."""

    def __init__(self, connection: AsyncConnection[Any]) -> None:
        self._connection = connection
        self._kept: dict[int, tuple[int, Pending]] = {}  # by log_id, for the size named first

    async def complete(self, log_id: int, *, size: int, leaves: Sequence[bytes]) -> tuple[list[Tile], Pending | None]:
        """
        Return the tiles that appending `leaves` to the log of `size` completes, lower levels first, and what to `keep`.

        None is to keep if no tile is completed and nothing is known of the log: it may be another process that goes on.
        """
        earlier, pending = self._kept.get(log_id, (-1, ()))
        if earlier != size:
            if size % TILE_WIDTH + len(leaves) < TILE_WIDTH:
                return [], None
            pending = await self._catch_up(log_id, size, earlier, pending)
        return complete_tiles(size=size, pending=pending, leaves=leaves)

    def keep(self, log_id: int, size: int, pending: Pending) -> None:
        """Keep the incomplete tiles of the log of `size`, which must be committed."""
        self._kept.pop(log_id, None)
        self._kept[log_id] = (size, pending)
        if len(self._kept) > LOGS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]  # the one not used for the longest time

    async def _catch_up(self, log_id: int, size: int, earlier: int, pending: Pending) -> Pending:
        """Return the incomplete tiles of the log of `size`, from those of the `earlier` size if it is near."""
        if earlier < 0 or size - earlier > CATCH_UP_MAX:
            return await self._read(log_id, size)
        missed = await self._leaves(log_id, from_index=earlier, to_index=size)
        return complete_tiles(size=earlier, pending=pending, leaves=missed)[1]

    async def _read(self, log_id: int, size: int) -> Pending:
        """Read the incomplete tiles of every level: leaves for level 0, roots of the tiles below for the others."""
        levels = [await self._leaves(log_id, from_index=size - size % TILE_WIDTH, to_index=size)]
        level, complete = 1, size // TILE_WIDTH
        while complete:
            first = complete - complete % TILE_WIDTH
            roots = await read_tile_roots(self._connection, log_id, level=level - 1, from_tile=first, to_tile=complete)
            if len(roots) != complete - first:
                raise BrokenError(
                    Fault.TILE,
                    where=f"ledger.tiles, log {log_id}, level {level - 1}",
                    expected=f"tiles {first} to {complete - 1}",
                    found=f"{len(roots)} of them",
                )
            levels.append(roots)
            level, complete = level + 1, complete // TILE_WIDTH
        return tuple(map(tuple, levels)) if size else ()

    async def _leaves(self, log_id: int, *, from_index: int, to_index: int) -> list[bytes]:
        leaves = await read_leaves(self._connection, log_id, from_index=from_index, to_index=to_index)
        if len(leaves) != to_index - from_index:
            raise BrokenError(
                Fault.INDEX,
                where="ledger.entries",
                expected=f"entries {from_index} to {to_index - 1}",
                found=f"{len(leaves)} of them",
                index=from_index,
            )
        return leaves
