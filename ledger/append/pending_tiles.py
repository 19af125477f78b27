# SPDX-License-Identifier: Apache-2.0
"""
The incomplete tiles that an Appender keeps between batches, to find out which tiles a batch completes.

Guarantee: the tiles it returns are those of the whole log, even if other processes append in between. What is kept
belongs to a size that the log had after a COMMIT, so it never changes. What follows it is read from the database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ledger.errors import BrokenError, Fault
from ledger.format.tiles import TILE_WIDTH, Pending, Tile, complete_tiles
from ledger.store.read import read_leaves, read_tile_roots
from ledger.store.session import Connection

LOGS_KEPT_MAX: Final = 1_000
"""Logs whose incomplete tiles are kept, 10 to 25 KiB each. Those of other logs are read when a tile is complete."""
CATCH_UP_MAX: Final = 65_536
"""Leaves that are read to catch up with other writers. Further behind, reading the tiles costs less."""
TILE_OF_TILES: Final = TILE_WIDTH * TILE_WIDTH
"""Entries below one tile of level 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RightEdge:
    """
    The incomplete tiles of a log of `size`: of every level, or (`is_whole` False) of level 0 alone.

    Higher levels are read only when a tile there is about to be complete: the roots of up to 255 tiles, 65,000 hashes,
    would delay the first entries that a process appends to a large log.
    """

    size: int
    pending: Pending
    is_whole: bool


class PendingTiles:
    """
    The right edges of the logs that this process appends to, as one connection reads them.

    `lend` returns it, whenever something is read.
    """

    def __init__(self, lend: Callable[[], Connection]) -> None:
        # Both belong to the writer's task, as the connection does.
        self._lend = lend
        self._kept: dict[int, RightEdge] = {}
        """By log_id, least recently used first."""

    def has_to_read(self, log_id: int, *, size: int, count: int) -> bool:
        """Return whether `prepare` must be called before at most `count` leaves are appended to the log of `size`."""
        end = size + count
        lacks = _lacks(self._kept.get(log_id), size, needs_all=_completes_all(size, end))
        return size // TILE_WIDTH != end // TILE_WIDTH and lacks

    async def prepare(self, log_id: int, *, size: int, count: int) -> None:
        """Read what `complete` will need to append at most `count` leaves to the log of `size`, which is committed."""
        needs_all = _completes_all(size, size + count)
        self.keep(log_id, await self._read_edge(log_id, size, self._kept.get(log_id), needs_all=needs_all))

    async def complete(self, log_id: int, *, size: int, leaves: Sequence[bytes]) -> tuple[list[Tile], RightEdge | None]:
        """
        Return the tiles that appending `leaves` to the log of `size` completes, lower levels first, and the edge to
        `keep`.

        The edge is None if no tile is completed and nothing is known of the log: another process may append next.
        Nothing is read if enough was prepared.
        """
        if self.has_to_read(log_id, size=size, count=len(leaves)):
            await self.prepare(log_id, size=size, count=len(leaves))
        return self.complete_prepared(log_id, size=size, leaves=leaves)

    def complete_prepared(
        self, log_id: int, *, size: int, leaves: Sequence[bytes]
    ) -> tuple[list[Tile], RightEdge | None]:
        """`complete`, where `has_to_read` is false or `prepare` was called."""
        end = size + len(leaves)
        edge = self._kept.get(log_id)
        if edge is None or _lacks(edge, size, needs_all=_completes_all(size, end)):
            return [], None  # no tile is completed: otherwise it had to be read
        if edge.is_whole:
            tiles, pending = complete_tiles(size=size, pending=edge.pending, leaves=leaves)
            return tiles, RightEdge(size=end, pending=pending, is_whole=True)
        # Computed as if the log began with its last incomplete tile, then moved to their real indexes.
        tiles, pending = complete_tiles(size=size % TILE_WIDTH, pending=edge.pending, leaves=leaves)
        tiles = [replace(tile, index=tile.index + size // TILE_WIDTH) for tile in tiles]
        return tiles, RightEdge(size=end, pending=pending[:1] if end % TILE_WIDTH else (), is_whole=False)

    def keep(self, log_id: int, edge: RightEdge) -> None:
        """Keep the edge of a log, which must be of a size that is committed."""
        self._kept.pop(log_id, None)
        self._kept[log_id] = edge
        if len(self._kept) > LOGS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]  # the least recently used

    async def _read_edge(self, log_id: int, size: int, earlier: RightEdge | None, *, needs_all: bool) -> RightEdge:
        if earlier is not None and earlier.is_whole and size - earlier.size <= CATCH_UP_MAX:
            missed = await self._leaves(log_id, from_index=earlier.size, to_index=size)
            pending = complete_tiles(size=earlier.size, pending=earlier.pending, leaves=missed)[1]
            return RightEdge(size=size, pending=pending, is_whole=True)
        if needs_all:
            return RightEdge(size=size, pending=await self._read(log_id, size), is_whole=True)
        leaves = await self._leaves(log_id, from_index=size - size % TILE_WIDTH, to_index=size)
        return RightEdge(size=size, pending=(tuple(leaves),) if leaves else (), is_whole=False)

    async def _read(self, log_id: int, size: int) -> Pending:
        """Read the incomplete tiles of every level: leaves for level 0, roots of the tiles below for the others."""
        levels = [await self._leaves(log_id, from_index=size - size % TILE_WIDTH, to_index=size)]
        level, complete = 1, size // TILE_WIDTH
        while complete:
            first = complete - complete % TILE_WIDTH
            roots = await read_tile_roots(self._lend(), log_id, level=level - 1, from_tile=first, to_tile=complete)
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
        leaves = await read_leaves(self._lend(), log_id, from_index=from_index, to_index=to_index)
        if len(leaves) != to_index - from_index:
            raise BrokenError(
                Fault.INDEX,
                where="ledger.entries",
                expected=f"entries {from_index} to {to_index - 1}",
                found=f"{len(leaves)} of them",
                index=from_index,
            )
        return leaves


def _completes_all(size: int, end: int) -> bool:
    """Return whether going from `size` to `end` completes a tile above level 0."""
    return size // TILE_OF_TILES != end // TILE_OF_TILES


def _lacks(edge: RightEdge | None, size: int, *, needs_all: bool) -> bool:
    """Return whether `edge` is not that of the log at `size`, or not enough of it."""
    return edge is None or edge.size != size or (needs_all and not edge.is_whole)
