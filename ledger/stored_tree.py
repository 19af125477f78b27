"""
The tree of a log as PostgreSQL holds it: its frontier at any size, computations on its tiles.

Tiles and leaf hashes are given out as they are stored, for those who compare them with what was signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from psycopg import AsyncCursor

from ledger.edge import edge_places, frontier_of
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.merkle import HASH_SIZE_BYTES, Frontier, HashReader
from ledger.read import TILE_QUERIES, Connection, parse_tile_root
from ledger.tiles import (
    TILE_WIDTH,
    Place,
    Tile,
    TileReader,
    pending_widths,
    subtree_place,
    tile_hash_reader,
)

R = TypeVar("R")


class NoCheckpointError(LedgerError):
    """The log, or the part of it that is asked for, has not been signed yet."""


async def read_frontier(connection: Connection, log_id: int, size: int) -> Frontier:
    """
    Return the frontier that the tree of a log had at `size`, from its tiles and leaf hashes.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile or a leaf hash is missing.
    """
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(size))
    for (level, _, _), tile in (await read_tiles(connection, log_id, edge_places(size))).items():
        edge[level] = tile.hashes
    return frontier_of(tuple(edge))


async def on_tiles(connection: Connection, log_id: int, compute: Callable[[TileReader], R]) -> R:
    """
    Return `compute(read_tile)` for a computation that reads tiles and does no I/O itself.

    It runs twice: first on tiles of zeros, to learn which ones it reads, then on those. It must therefore read the same
    tiles whatever their hashes are, as making a proof does.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile is missing.
    """
    tiles = await read_tiles(connection, log_id, places_read(compute))
    return compute(lambda level, index, width: tiles[level, index, width])


def places_read(compute: Callable[[TileReader], object]) -> set[Place]:
    """
    Return the tiles that `compute` reads, whatever their hashes are.
    """
    places: set[Place] = set()

    def note(level: int, index: int, width: int) -> Tile:
        places.add((level, index, width))
        return Tile(level=level, index=index, hashes=(bytes(HASH_SIZE_BYTES),) * width)

    compute(note)
    return places


async def on_subtrees(connection: Connection, log_id: int, size: int, compute: Callable[[HashReader], R]) -> R:
    """
    Return `compute(read)`, where `read` gives the perfect subtrees of the tree of `size`, as making a proof needs them.

    It runs twice, as with `on_tiles`: first on zeros.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile is missing.
    """
    places: set[Place] = set()

    def note(level: int, index: int) -> bytes:
        places.add(subtree_place(level=level, index=index, size=size)[0])
        return bytes(HASH_SIZE_BYTES)

    compute(note)
    tiles = await read_tiles(connection, log_id, places)
    return compute(tile_hash_reader(lambda level, index, width: tiles[level, index, width], size))


async def read_tiles(connection: Connection, log_id: int, places: Iterable[Place]) -> dict[Place, Tile]:
    """
    Return the tiles of several places in one round trip; partial ones are computed from what lies below them.

    Raises:
        BrokenError: (`Fault.TILE`) if one is not stored, or its hashes are not all there.
    """
    wanted = list(places)
    complete = [place for place in wanted if place[2] == TILE_WIDTH]
    leaves = [place for place in wanted if place[2] < TILE_WIDTH and place[0] == 0]
    above = [place for place in wanted if place[2] < TILE_WIDTH and place[0] > 0]
    async with connection.pipeline():
        asked = (
            await _ask(connection, "complete_tiles", log_id, levels=_levels(complete), tiles=[p[1] for p in complete]),
            await _ask(connection, "leaves_of_stretches", log_id, **_stretches(leaves)),
            await _ask(connection, "tile_roots", log_id, levels=[p[0] - 1 for p in above], **_stretches(above)),
        )
    stored, leaf_rows, root_rows = [await cursor.fetchall() if cursor else [] for cursor in asked]
    hashes: dict[tuple[int, int], bytes] = {}
    for index, leaf in leaf_rows:
        hashes[0, index] = bytes(leaf)
    for level, index, root in root_rows:
        hashes[level + 1, index] = parse_tile_root(bytes(root))
    tiles: dict[Place, Tile] = {}
    for level, index, packed in stored:
        tiles[level, index, TILE_WIDTH] = Tile.parse(bytes(packed), level=level, index=index)
    for level, index, width in (*leaves, *above):
        first = index * TILE_WIDTH
        if all((level, at) in hashes for at in range(first, first + width)):
            own = tuple(hashes[level, at] for at in range(first, first + width))
            tiles[level, index, width] = Tile(level=level, index=index, hashes=own)
    for level, index, width in wanted:
        if (level, index, width) not in tiles:
            where = f"ledger.tiles level {level} tile {index}"
            raise BrokenError(Fault.TILE, where=where, expected=f"{width} hashes", found="not all of them")
    return tiles


async def _ask(connection: Connection, query: str, log_id: int, **columns: Sequence[int]) -> AsyncCursor[Any] | None:
    """Ask for the rows at these places; for none, nothing is asked."""
    if not any(columns.values()):
        return None
    cursor = connection.cursor(binary=True)
    return await cursor.execute(TILE_QUERIES[query], {"log_id": log_id, **columns})


def _levels(places: Sequence[Place]) -> list[int]:
    return [level for level, _, _ in places]


def _stretches(places: Sequence[Place]) -> dict[str, list[int]]:
    """Return where the hashes of partial tiles begin and end on their levels."""
    return {
        "firsts": [index * TILE_WIDTH for _, index, _ in places],
        "ends": [index * TILE_WIDTH + width for _, index, width in places],
    }
