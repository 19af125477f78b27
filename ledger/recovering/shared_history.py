"""
How far an exported log and the one in the database are one history: the entries that both of them begin with.

Two logs of one origin need not share all: a database that was restored goes on another way than the one whose export
was kept, and from there on an index means one entry here and another there.
"""

from __future__ import annotations

from ledger.directory import LogDirectory, bundle_places
from ledger.edge import frontier_of
from ledger.errors import LedgerError
from ledger.exported_tree import exported_edge
from ledger.read import Connection, Log, read_head, read_leaves
from ledger.stored_tree import read_frontier
from ledger.tiles import TILE_WIDTH, tile_width


async def count_shared(auditor: Connection, log: Log, directory: LogDirectory, *, origin: str, size: int) -> int:
    """
    Return how many entries the log in the database and the exported one begin with, one like the other.

    The export, of `size` entries of the log `origin`, must have been verified.

    Raises:
        LedgerError: if it is of another log.
        BrokenError: (`Fault.TILE`) if a tile or a leaf hash is missing.
    """
    if origin != log.origin:
        raise LedgerError(f"{directory.root}: expected an export of {log.origin}, found one of {origin}")
    common = min((await read_head(auditor, log.log_id)).size, size)
    if await read_frontier(auditor, log.log_id, common) == frontier_of(exported_edge(directory, size=common, of=size)):
        return common
    return await first_difference(auditor, log, directory, size=common, of=size)


async def first_difference(auditor: Connection, log: Log, directory: LogDirectory, *, size: int, of: int) -> int:
    """
    Return the first index below `size` at which the leaf hashes of both logs differ; `size` if none does.

    Raises:
        UnreadableError, BrokenError: as `LogDirectory.read_tile`.
    """
    for index, width in bundle_places(size):
        first = index * TILE_WIDTH
        exported = directory.read_tile(0, index, tile_width(level=0, index=index, size=of)).hashes
        stored = await read_leaves(auditor, log.log_id, from_index=first, to_index=first + width)
        for position, leaf in enumerate(stored):
            if leaf != exported[position]:
                return first + position
    return size
