# SPDX-License-Identifier: Apache-2.0
"""
The rules of the tree over a log's entries: it is computed from them and compared with tiles and signed roots. Pure.

Where an entry and a tile disagree, or two tiles, one of them was changed; the signed root decides (`leads_to_root`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ledger.errors import BrokenError, Fault
from ledger.format.checkpoint import Checkpoint
from ledger.format.merkle import HASH_SIZE_BYTES, Frontier, root_of, split_hashes
from ledger.format.tiles import (
    TILE_WIDTH,
    Pending,
    Tile,
    TileReader,
    bundle_path,
    complete_tiles,
    edge_addresses,
    frontier_of,
    leads_to_root,
    tile_path,
)


class LeafPage(NamedTuple):
    """The leaf hashes of up to 256 checked entries, joined, and the root over them."""

    leaves: bytes
    root: bytes

    @staticmethod
    def of(leaves: Sequence[bytes]) -> LeafPage:
        """Return the page of these leaf hashes: 256, or fewer at the end of a log."""
        return LeafPage(b"".join(leaves), root_of(leaves))

    def split(self) -> list[bytes]:
        """Return the leaf hashes."""
        return split_hashes(self.leaves)


class TreeRules:
    """
    The tree over a log's leaf hashes, page by page; `edge` holds its incomplete tiles, lowest level first.

    It begins empty, or with the edge of the tree of `size` entries, a multiple of 256. Owned by one pass over a log.
    """

    def __init__(self, *, size: int = 0, edge: Pending = ()) -> None:
        self.size = size
        self.edge = edge

    def add(self, page: LeafPage) -> list[Tile]:
        """
        Append a page; return the tiles above it that it completes, lowest level first. The stored ones must be equal.

        No page can follow one that is not complete.
        """
        width = len(page.leaves) // HASH_SIZE_BYTES
        above: list[Tile] = []
        if width == TILE_WIDTH:
            upper = self.edge[1:]
            tiles, upper = complete_tiles(size=self.size // TILE_WIDTH, pending=upper, leaves=[page.root])
            above = [replace(tile, level=tile.level + 1) for tile in tiles]
            self.edge = ((), *upper)
        elif width:
            self.edge = (tuple(page.split()), *self.edge[1:])
        self.size += width
        return above

    def edge_tiles(self) -> list[Tile]:
        """Return the incomplete tiles, lowest level first."""
        return [
            Tile(level=level, index=index, hashes=self.edge[level]) for level, index, _ in edge_addresses(self.size)
        ]


def check_roots(edge: Pending, leaves: Sequence[bytes], checkpoints: Iterable[Checkpoint]) -> None:
    """
    Check that the tree with this edge, extended by `leaves`, has the root of each checkpoint at its size.

    `checkpoints` are of sizes that are reached within `leaves`, smallest first.

    Raises:
        BrokenError: (`Fault.ROOT`) if not; no index can be named, because entries and tiles agree with each other.
    """
    frontier: Frontier | None = None
    start = 0
    for checkpoint in checkpoints:
        if frontier is None:
            frontier = frontier_of(edge)
            start = frontier.size
        frontier = frontier.extended(leaves[frontier.size - start : checkpoint.size - start])
        if (root := frontier.root()) != checkpoint.root:
            raise BrokenError(
                Fault.ROOT,
                where=f"checkpoint of size {checkpoint.size}",
                expected=f"the signed root {checkpoint.root.hex()}",
                found=f"{root.hex()}, on which the entries and tiles agree: they were rewritten together",
            )


def check_tile(computed: Tile, stored: Tile, *, size: int, root: bytes, read_tile: TileReader) -> None:
    """
    Check that a stored tile is the one that the entries lead to.

    `size` and `root` are those of a signed checkpoint that covers the tile; they decide which of the two is wrong.

    Raises:
        BrokenError: what `tile_fault` says.
    """
    if first_difference(computed.hashes, stored.hashes) is not None:
        genuine = leads_to_root(computed, size=size, root=root, read_tile=read_tile)
        entries = bundle_path(computed.index, len(computed.hashes)) if computed.level == 0 else ""
        raise tile_fault(computed, stored, entries_are_genuine=genuine, entries=entries)


def tile_fault(computed: Tile, stored: Tile, *, entries_are_genuine: bool, entries: str) -> BrokenError:
    """
    Return what is wrong where a stored tile differs from the one computed from below.

    If the signed root follows from the entries, the stored tile is wrong. If not, the first thing below it that differs
    is: an entry, with its index, in what `entries` names, or a tile.
    """
    position = first_difference(computed.hashes, stored.hashes) or 0
    path = tile_path(computed.level, computed.index, len(computed.hashes))
    below, above = _hash_at(computed.hashes, position), _hash_at(stored.hashes, position)
    if entries_are_genuine:
        return BrokenError(Fault.TILE, where=path, expected=f"{below} as hash {position}", found=above)
    index = computed.index * TILE_WIDTH + position
    if computed.level == 0:
        expected = f"the leaf hash {above} of {path}"
        return BrokenError(Fault.ENTRY, where=entries, expected=expected, found=below, index=index)
    where = tile_path(computed.level - 1, index)
    return BrokenError(Fault.TILE, where=where, expected=f"the root {above} of {path}", found=below)


def first_difference(hashes: Sequence[bytes], others: Sequence[bytes]) -> int | None:
    """
    Return the first position at which the two differ (also where one has ended), or None.
    """
    if tuple(hashes) == tuple(others):
        return None
    shorter = min(len(hashes), len(others))
    return next((i for i in range(shorter) if hashes[i] != others[i]), shorter)


def _hash_at(hashes: Sequence[bytes], position: int) -> str:
    return hashes[position].hex() if position < len(hashes) else "no hash"
