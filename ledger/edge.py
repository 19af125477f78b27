"""
The right edge of the tree: its incomplete tiles, from which the frontier and the root follow.

Every hash of an edge tile stands for a perfect subtree, and together they cover the tree, so the edge is all that is
needed to go on appending, or to ask whether some tile, put in its place, leads to a known root. Widths of the edge
tiles are the digits of the size in base 256 (C2SP tlog-tiles).
"""

from __future__ import annotations

from ledger.merkle import Frontier, root_of
from ledger.tiles import TILE_HEIGHT, TILE_WIDTH, Pending, Tile, TileReader, pending_widths, tile_width


def edge_places(size: int) -> list[tuple[int, int, int]]:
    """
    Return level, index and width of each incomplete tile of the tree of `size`, lowest level first.
    """
    return [
        (level, size >> (TILE_HEIGHT * (level + 1)), width)
        for level, width in enumerate(pending_widths(size))
        if width > 0
    ]


def frontier_of(edge: Pending) -> Frontier:
    """
    Return the frontier of the tree with this edge: per level, lowest first, the hashes of its incomplete tile.
    """
    hashes: list[bytes] = []
    size = 0
    for level, tile in reversed(list(enumerate(edge))):
        size += len(tile) << (TILE_HEIGHT * level)
        at = 0
        for height in reversed(range(TILE_HEIGHT)):
            if len(tile) >> height & 1:
                hashes.append(root_of(tile[at : at + (1 << height)]))
                at += 1 << height
    return Frontier(size=size, hashes=tuple(hashes))


def leads_to_root(tile: Tile, *, size: int, root: bytes, read_tile: TileReader) -> bool:
    """
    Tell whether the tree of `size` has this `root` if `tile` stands in its place and all others are as they are read.

    Reads the tiles on the way from `tile` to the edge, and the edge itself: two a level at most. Of two versions of a
    tile at most one leads to a signed root, and that one is genuine; if neither does, something else is wrong as well.
    """
    level, index, hashes = tile.level, tile.index, tile.hashes
    while tile_width(level=level, index=index, size=size) == TILE_WIDTH:
        child = root_of(hashes)
        level, index, position = level + 1, index >> TILE_HEIGHT, index % TILE_WIDTH
        hashes = read_tile(level, index, tile_width(level=level, index=index, size=size)).hashes
        hashes = (*hashes[:position], child, *hashes[position + 1 :])
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(size))
    for edge_level, edge_index, width in edge_places(size):
        edge[edge_level] = read_tile(edge_level, edge_index, width).hashes[:width]
    edge[level] = hashes[: tile_width(level=level, index=index, size=size)]
    return frontier_of(tuple(edge)).root() == root
