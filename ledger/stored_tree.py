"""
The tree of a log as PostgreSQL holds it: its frontier at any size, computations on its tiles.

Tiles and leaf hashes are given out as they are stored, for those who compare them with what was signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

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
    asked = {
        "log_id": log_id,
        "tile_levels": [level for level, _, _ in complete],
        "tiles": [index for _, index, _ in complete],
        "leaf_firsts": [index * TILE_WIDTH for _, index, _ in leaves],
        "leaf_ends": [index * TILE_WIDTH + width for _, index, width in leaves],
        "root_levels": [level - 1 for level, _, _ in above],
        "root_firsts": [index * TILE_WIDTH for _, index, _ in above],
        "root_ends": [index * TILE_WIDTH + width for _, index, width in above],
    }
    cursor = await connection.execute(TILE_QUERIES["tiles_and_what_is_below"], asked, binary=True)
    hashes: dict[tuple[int, int], bytes] = {}
    tiles: dict[Place, Tile] = {}
    for kind, level, index, stored in await cursor.fetchall():
        if stored is None:  # as if it were not there: whoever owns a database can drop NOT NULL
            continue
        if kind == "tile":
            tiles[level, index, TILE_WIDTH] = Tile.parse(bytes(stored), level=level, index=index)
        else:
            hashes[level, index] = bytes(stored) if kind == "leaf" else parse_tile_root(bytes(stored))
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
