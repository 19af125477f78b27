"""
The tree of a log as an export holds it, at any size it ever had (as `stored_tree.py` has it from PostgreSQL). Pure.
"""

from __future__ import annotations

from ledger.directory import LogDirectory
from ledger.edge import edge_places
from ledger.tiles import Pending, pending_widths, tile_width


def exported_edge(directory: LogDirectory, *, size: int, of: int) -> Pending:
    """
    Return the edge that an exported tree had at `size`: each tile of it is the beginning of one that is there.

    Raises:
        UnreadableError, BrokenError: as `LogDirectory.read_tile`.
    """
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(size))
    for level, index, width in edge_places(size):
        tile = directory.read_tile(level, index, tile_width(level=level, index=index, size=of))
        edge[level] = tile.hashes[:width]
    return tuple(edge)
