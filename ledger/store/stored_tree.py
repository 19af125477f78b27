# SPDX-License-Identifier: Apache-2.0
"""
The tree of a log as PostgreSQL holds it: its frontier at any size, and computations on its tiles.

Tiles and leaf hashes are returned as they are stored. The caller compares them with what was signed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from psycopg import AsyncCursor
from psycopg.types.numeric import Int2, Int4, Int8

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format.merkle import HASH_SIZE_BYTES, Frontier, HashReader, split_hashes
from ledger.format.tiles import (
    TILE_WIDTH,
    Tile,
    TileAddress,
    TileReader,
    edge_addresses,
    frontier_of,
    pending_widths,
    subtree_address,
    tile_hash_reader,
)
from ledger.store.read import TILE_QUERIES, parse_tile_root
from ledger.store.session import Connection

R = TypeVar("R")


class NoCheckpointError(LedgerError):
    """The log, or the requested part of it, has not been signed yet."""


async def read_frontier(connection: Connection, log_id: int, size: int) -> Frontier:
    """
    Return the frontier that the tree of a log had at `size`, from its tiles and leaf hashes.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile or a leaf hash is missing.
    """
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(size))
    for (level, _, _), tile in (await read_tiles(connection, log_id, edge_addresses(size))).items():
        edge[level] = tile.hashes
    return frontier_of(tuple(edge))


async def compute_on_tiles(connection: Connection, log_id: int, compute: Callable[[TileReader], R]) -> R:
    """
    Return `compute(read_tile)` for a computation that reads tiles and does no I/O itself.

    It runs twice: first on tiles of zeros, to learn which ones it reads, then on those. So it must read the same tiles
    whatever their hashes are, as making a proof does.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile is missing.
    """
    tiles = await read_tiles(connection, log_id, addresses_read(compute))
    return compute(lambda level, index, width: tiles[level, index, width])


def addresses_read(compute: Callable[[TileReader], object]) -> set[TileAddress]:
    """
    Return the tiles that `compute` reads, whatever their hashes are.
    """
    addresses: set[TileAddress] = set()

    def note(level: int, index: int, width: int) -> Tile:
        addresses.add((level, index, width))
        return Tile(level=level, index=index, hashes=(bytes(HASH_SIZE_BYTES),) * width)

    compute(note)
    return addresses


async def compute_on_subtrees(connection: Connection, log_id: int, size: int, compute: Callable[[HashReader], R]) -> R:
    """
    Return `compute(read)`, where `read` gives the perfect subtrees of the tree of `size`, as making a proof needs them.

    It runs twice, as with `compute_on_tiles`: first on zeros.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile is missing.
    """
    async with connection.pipeline():  # what is requested inside arrives together when it is left
        requested = await request_subtrees(connection, log_id, size, compute)
    return await requested.fetch()


async def request_subtrees(
    connection: Connection, log_id: int, size: int, compute: Callable[[HashReader], R]
) -> RequestedSubtrees[R]:
    """
    Request what `compute` reads, as `compute_on_subtrees` does; in a pipeline, without waiting for it.
    """
    addresses: set[TileAddress] = set()

    def note(level: int, index: int) -> bytes:
        addresses.add(subtree_address(level=level, index=index, size=size)[0])
        return bytes(HASH_SIZE_BYTES)

    compute(note)
    return RequestedSubtrees(tiles=await request_tiles(connection, log_id, addresses), size=size, compute=compute)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedSubtrees(Generic[R]):
    """What `request_subtrees` has requested."""

    tiles: RequestedTiles
    size: int
    compute: Callable[[HashReader], R]

    async def fetch(self) -> R:
        """
        Return what `compute_on_subtrees` returns, once the pipeline is left.

        Raises:
            BrokenError: as `compute_on_subtrees`.
        """
        tiles = await self.tiles.fetch()
        return self.compute(tile_hash_reader(lambda level, index, width: tiles[level, index, width], self.size))


async def read_tiles(connection: Connection, log_id: int, addresses: Iterable[TileAddress]) -> dict[TileAddress, Tile]:
    """
    Return several tiles in one round trip; incomplete ones are computed from what lies below them.

    Raises:
        BrokenError: (`Fault.TILE`) if one is not stored, its hashes are incomplete, or what is stored is no tile.
    """
    async with connection.pipeline():
        requested = await request_tiles(connection, log_id, addresses)
    return await requested.fetch()


async def request_tiles(connection: Connection, log_id: int, addresses: Iterable[TileAddress]) -> RequestedTiles:
    """
    Request tiles by their addresses; in a pipeline, without waiting for them.

    It takes one statement for the complete tiles of each level, and one for each incomplete tile.
    """
    requested = sorted(set(addresses))
    complete: dict[int, list[int]] = {}
    for level, index, width in requested:
        if width == TILE_WIDTH:
            complete.setdefault(level, []).append(index)
    return RequestedTiles(
        addresses=requested,
        below={at: await _request_below(connection, log_id, at) for at in requested if at[2] < TILE_WIDTH},
        whole={level: await _request_complete(connection, log_id, level, tiles) for level, tiles in complete.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedTiles:
    """What `request_tiles` has requested: what lies below each incomplete tile, and the complete ones of each level."""

    addresses: Sequence[TileAddress]
    below: Mapping[TileAddress, AsyncCursor[tuple[int, Any]]]
    whole: Mapping[int, AsyncCursor[tuple[int, Any]]]

    async def fetch(self) -> dict[TileAddress, Tile]:
        """
        Return what `read_tiles` returns, once the pipeline is left.

        Raises:
            BrokenError: as `read_tiles`.
        """
        # NULL counts as missing: the owner of a database can drop NOT NULL.
        tiles: dict[TileAddress, Tile] = {}
        for level, cursor in self.whole.items():
            for index, packed in await cursor.fetchall():
                if packed is not None:
                    tiles[level, index, TILE_WIDTH] = _tile(level, index, split_hashes(bytes(packed)))
        for (level, index, width), cursor in self.below.items():
            found = {at: bytes(stored) for at, stored in await cursor.fetchall() if stored is not None}
            if len(found) == width:
                own = (found[at] if level == 0 else parse_tile_root(found[at]) for at in sorted(found))
                tiles[level, index, width] = _tile(level, index, own)
        for level, index, width in self.addresses:
            if (level, index, width) not in tiles:
                raise _bad_tile(level, index, expected=f"{width} hashes", found="not all of them")
        return tiles


async def _request_complete(
    connection: Connection, log_id: int, level: int, tiles: list[int]
) -> AsyncCursor[tuple[int, Any]]:
    parameters = {"log_id": Int4(log_id), "level": Int2(level), "tiles": list(map(Int8, tiles))}
    return await connection.execute(TILE_QUERIES["complete_tiles"], parameters, binary=True)


async def _request_below(connection: Connection, log_id: int, address: TileAddress) -> AsyncCursor[tuple[int, Any]]:
    """Request what an incomplete tile consists of: leaf hashes, or the roots of complete tiles."""
    level, index, width = address
    first, end = Int8(index * TILE_WIDTH), Int8(index * TILE_WIDTH + width)
    if level == 0:
        bounds = {"log_id": Int4(log_id), "from_index": first, "to_index": end}
        return await connection.execute(TILE_QUERIES["leaves_of_tile"], bounds, binary=True)
    stretch = {"log_id": Int4(log_id), "level": Int2(level - 1), "from_tile": first, "to_tile": end}
    return await connection.execute(TILE_QUERIES["tile_roots_between"], stretch, binary=True)


def _tile(level: int, index: int, hashes: Iterable[bytes]) -> Tile:
    try:
        return Tile(level=level, index=index, hashes=tuple(hashes))
    except FormatError as error:  # the owner of a database can drop a check of its lengths
        raise _bad_tile(level, index, expected="a tile", found=error) from error


def _bad_tile(level: int, index: int, *, expected: str, found: object) -> BrokenError:
    return BrokenError(Fault.TILE, where=f"ledger.tiles level {level} tile {index}", expected=expected, found=found)
