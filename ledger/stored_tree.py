"""
The tree of a log as PostgreSQL holds it: its newest checkpoint, its frontier at any size, computations on its tiles.

Tiles and leaf hashes are given out as they are stored, for those who compare them with what was signed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ledger.checkpoint import Checkpoint
from ledger.edge import edge_places, frontier_of
from ledger.errors import LedgerError
from ledger.merkle import HASH_SIZE_BYTES, Frontier
from ledger.note import VerifierKey
from ledger.read import QUERIES, Connection, Log, read_tile
from ledger.tiles import Tile, TileReader, pending_widths
from ledger.verify.rules import read_checkpoint

R = TypeVar("R")


class NoCheckpointError(LedgerError):
    """The log, or the part of it that is asked for, has not been signed yet."""


async def read_newest_checkpoint(connection: Connection, log: Log, *, key: VerifierKey) -> tuple[bytes, Checkpoint]:
    """
    Return the newest signed note of a log and the checkpoint in it.

    Raises:
        NoCheckpointError: if there is none yet.
        BrokenError: if it is not a checkpoint of this log that `key` has signed.
    """
    row = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log.log_id})).fetchone()
    if row is None:
        raise NoCheckpointError(
            f"log {log.origin} has no signed checkpoint yet: `lakeproof up` signs one soon after the first append"
        )
    note = bytes(row[1])
    return note, read_checkpoint(note, [key], where="ledger.checkpoints", origin=log.origin)


async def read_frontier(connection: Connection, log_id: int, size: int) -> Frontier:
    """
    Return the frontier that the tree of a log had at `size`, from its tiles and leaf hashes.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile or a leaf hash is missing.
    """
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(size))
    for level, index, width in edge_places(size):
        edge[level] = (await read_tile(connection, log_id, level=level, index=index, width=width)).hashes
    return frontier_of(tuple(edge))


async def on_tiles(connection: Connection, log_id: int, compute: Callable[[TileReader], R]) -> R:
    """
    Return `compute(read_tile)` for a computation that reads tiles and does no I/O itself.

    It runs twice: first on tiles of zeros, to learn which ones it reads, then on those. It must therefore read the same
    tiles whatever their hashes are, as making a proof does.

    Raises:
        BrokenError: (`Fault.TILE`) if a tile is missing.
    """
    wanted: set[tuple[int, int, int]] = set()

    def note(level: int, index: int, width: int) -> Tile:
        wanted.add((level, index, width))
        return Tile(level=level, index=index, hashes=(bytes(HASH_SIZE_BYTES),) * width)

    compute(note)
    tiles = {
        (level, index, width): await read_tile(connection, log_id, level=level, index=index, width=width)
        for level, index, width in wanted
    }
    return compute(lambda level, index, width: tiles[level, index, width])
