# SPDX-License-Identifier: Apache-2.0
"""
The tree cut into tiles of 256 hashes, the form in which it is stored and published (C2SP tlog-tiles).

Guarantee: a path, a tile or a bundle has one spelling, and `complete_tiles` returns the same tiles however the leaves
arrive: one by one, in batches, or all at once.

A tile of level 0 holds leaf hashes. Each hash of a tile of level n is the root of one complete tile of level n-1. Only
complete tiles are final. A partial one is a prefix of its complete form, so it is computed on request, and its hashes
are not needed on the levels above. `Pending` is what an appender keeps of the incomplete tile of each level.

The incomplete tiles are the right edge of the tree. Every hash of an edge tile is the root of a perfect subtree, and
together these cover the tree. So the edge suffices to append more, or to check whether a tile, put in its place, leads
to a known root. Widths of the edge tiles are the digits of the size in base 256.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from ledger.errors import BrokenError, Fault, FormatError, LedgerError, LimitExceededError
from ledger.format.merkle import HASH_SIZE_BYTES, Frontier, HashReader, perfect_subtrees, root_of, split_hashes

TILE_HEIGHT = 8
TILE_WIDTH = 1 << TILE_HEIGHT
LEVEL_MAX = 63
"""The highest level that a tile path can name (tlog-tiles, "Merkle Tree"); trees of 63-bit size end at level 7."""
INDEX_MAX = 2**63 - 1
"""The highest tile index that a path may name: what fits a signed 64-bit integer, as do tree sizes."""
ENTRY_SIZE_BYTES_MAX = 65_535
"""The maximum of the 16-bit length before an entry in a bundle (tlog-tiles, "Log entries")."""
Pending: TypeAlias = tuple[tuple[bytes, ...], ...]
"""
For each level, the hashes of the right-most, incomplete tile: as many levels as the size has digits in base 256, and in
each as many hashes as that digit. Level 0: the leaf hashes from `size - size % 256` on.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """The `index`-th tile of a level: 1 to 256 hashes, 256 if it is complete."""

    level: int
    index: int
    hashes: tuple[bytes, ...]
    _root: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """The root, once computed: the tile above and the row of this one both need it."""

    def __post_init__(self) -> None:
        _check_address(level=self.level, index=self.index, width=len(self.hashes))
        if set(map(len, self.hashes)) != {HASH_SIZE_BYTES}:
            raise FormatError("tile", expected="hashes of 32 bytes", found=[len(h) for h in self.hashes])

    @classmethod
    def parse(cls, data: bytes, *, level: int, index: int) -> Tile:
        """
        Return the tile whose packed hashes are `data`; its address comes from the path that it was read from.

        Raises:
            FormatError: if `data` is not 1 to 256 hashes of 32 bytes.
        """
        return cls(level=level, index=index, hashes=tuple(split_hashes(data)))

    def pack(self) -> bytes:
        """Return the hashes joined, 32 bytes each: the content of the tile's file."""
        return b"".join(self.hashes)

    def root(self) -> bytes:
        """Return the root over the tile's hashes; of a complete tile, this is its hash one level up."""
        root = self._root
        if root is None:
            root = root_of(self.hashes)
            object.__setattr__(self, "_root", root)
        return root


TileAddress: TypeAlias = tuple[int, int, int]
"""Level, index and width of a tile."""


class TileReader(Protocol):
    """Gives the tile at an address, whose first `width` hashes, at least, are final."""

    def __call__(self, level: int, index: int, width: int) -> Tile: ...


def tile_path(level: int, index: int, width: int = TILE_WIDTH) -> str:
    """
    Return the path of a tile, relative to the log: `tile/0/x001/067`, or `tile/0/x001/067.p/5` if it is partial.

    Raises:
        FormatError: if there can be no tile of that level, index or width.
    """
    _check_address(level=level, index=index, width=width)
    return f"tile/{level}/{_format_index(index, width)}"


def parse_tile_path(path: str) -> tuple[int, int, int]:
    """
    Return level, index and width of the tile at `path`.

    Raises:
        FormatError: if `path` is not exactly as `tile_path` writes it.
    """
    match path.split("/", 2):
        case ["tile", level, place] if len(level) <= len(str(LEVEL_MAX)) and _is_decimal(level):
            index, width = _parse_index(place, path)
            if int(level) <= LEVEL_MAX and tile_path(int(level), index, width) == path:
                return int(level), index, width
    raise _bad_path(path)


def bundle_path(index: int, width: int = TILE_WIDTH) -> str:
    """
    Return the path of an entry bundle, relative to the log: `tile/entries/x001/067`, `….p/5` if it is partial.

    Raises:
        FormatError: if there can be no bundle of that index or width.
    """
    _check_address(level=0, index=index, width=width)
    return f"tile/entries/{_format_index(index, width)}"


def parse_bundle_path(path: str) -> tuple[int, int]:
    """
    Return index and width of the entry bundle at `path`.

    Raises:
        FormatError: if `path` is not exactly as `bundle_path` writes it.
    """
    index, width = _parse_index(path.removeprefix("tile/entries/"), path)
    if bundle_path(index, width) != path:
        raise _bad_path(path)
    return index, width


def format_bundle(entries: Sequence[bytes]) -> bytes:
    """
    Return the entry bundle of 1 to 256 entries: each with its length before it, 16 bits, big-endian.

    Raises:
        FormatError: if there are none, or too many for one bundle.
        LimitExceededError: if an entry is longer than its length field can say.
    """
    _check_address(level=0, index=0, width=len(entries))
    parts: list[bytes] = []
    for entry in entries:
        if len(entry) > ENTRY_SIZE_BYTES_MAX:
            raise LimitExceededError("entry size in bytes", found=len(entry), limit=ENTRY_SIZE_BYTES_MAX)
        parts += (len(entry).to_bytes(2, "big"), entry)
    return b"".join(parts)


def parse_bundle(data: bytes) -> list[bytes]:
    """
    Return the 1 to 256 entries of a bundle.

    Raises:
        FormatError: if `data` ends within an entry, or holds no entry or more than 256.
    """
    entries: list[bytes] = []
    at = 0
    while at < len(data) and len(entries) <= TILE_WIDTH:  # one too many is enough to refuse the bundle
        start = at + 2
        at = start + int.from_bytes(data[at:start], "big")
        if at > len(data):  # also if the length itself is incomplete: then `start` lies beyond the end
            expected = f"{at} bytes or more, for entry {len(entries)} of the bundle"
            raise FormatError("entry bundle", expected=expected, found=f"{len(data)} bytes")
        entries.append(data[start:at])
    _check_address(level=0, index=0, width=len(entries))
    return entries


def pending_widths(size: int) -> tuple[int, ...]:
    """Return how many hashes are pending on each level of a tree of `size`: its digits in base 256, lowest first."""
    widths: list[int] = []
    while size:
        widths.append(size % TILE_WIDTH)
        size //= TILE_WIDTH
    return tuple(widths)


def complete_tiles(*, size: int, pending: Pending, leaves: Sequence[bytes]) -> tuple[list[Tile], Pending]:
    """
    Return the complete tiles, of every level, that appending `leaves` to a log of `size` finishes, and the new pending.

    `leaves` are leaf hashes. Lower levels come first, and within a level lower indexes: a tile comes after those it is
    built on. Costs about one node hash for each leaf.

    Raises:
        FormatError: if `pending` is not that of a log of `size`.
    """
    if (found := tuple(map(len, pending))) != (expected := pending_widths(size)):
        raise FormatError("pending tiles", expected=f"widths {expected} for size {size}", found=found)
    tiles: list[Tile] = []
    remaining: list[tuple[bytes, ...]] = []
    fresh: Sequence[bytes] = leaves
    level = 0
    while fresh:
        hashes = (*pending[level], *fresh) if level < len(pending) else tuple(fresh)
        first = size >> (TILE_HEIGHT * (level + 1))
        complete = [
            Tile(level=level, index=first + i, hashes=hashes[i * TILE_WIDTH : (i + 1) * TILE_WIDTH])
            for i in range(len(hashes) // TILE_WIDTH)
        ]
        tiles += complete
        remaining.append(hashes[len(complete) * TILE_WIDTH :])
        fresh = [tile.root() for tile in complete]
        level += 1
    return tiles, (*remaining, *pending[level:])


def tile_width(*, level: int, index: int, size: int) -> int:
    """Return how many hashes the tile at that address has in the tree of `size`: 0 (there is none) to 256."""
    return min(max((size >> (TILE_HEIGHT * level)) - index * TILE_WIDTH, 0), TILE_WIDTH)


def subtree_address(*, level: int, index: int, size: int) -> tuple[TileAddress, int, int]:
    """
    Return the tile of the tree of `size` that holds the `index`-th perfect subtree of 2**level leaves, and where in it.

    That is the tile's address, the position of the subtree's first hash in it, and how many hashes it spans.

    Raises:
        LedgerError: if the subtree does not lie within the tree.
    """
    if level < 0 or index < 0 or (index + 1) << level > size:
        raise LedgerError(f"subtree: expected one within {size} leaves, found the {index}th of level {level}")
    tile_level, height = divmod(level, TILE_HEIGHT)
    tile_index, start = divmod(index << height, TILE_WIDTH)
    return (tile_level, tile_index, tile_width(level=tile_level, index=tile_index, size=size)), start, 1 << height


def tile_hash_reader(read_tile: TileReader, size: int) -> HashReader:
    """
    Return a reader of the perfect subtrees of the tree of `size`, for proving, on top of its tiles.

    Each tile is read once and kept as long as the returned reader lives: make one for each proof. A proof needs at
    most two tiles a level. The tiles are trusted here: checking the proof checks them.

    Raises (when the returned reader is called):
        LedgerError: if the subtree does not lie within the tree.
        BrokenError: (`Fault.TILE`) if `read_tile` gives another tile, or one too narrow.
    """
    subtrees: dict[TileAddress, list[list[bytes]]] = {}

    def read(level: int, index: int) -> bytes:
        address, start, width = subtree_address(level=level, index=index, size=size)
        if address not in subtrees:  # one proof reads nearly all hashes of a tile, and many proofs read the same tiles
            tile = _read_exactly(read_tile, level=address[0], index=address[1], width=address[2])
            subtrees[address] = perfect_subtrees(tile.hashes)
        return subtrees[address][level % TILE_HEIGHT][start // width]

    return read


def _read_exactly(read_tile: TileReader, *, level: int, index: int, width: int) -> Tile:
    tile = read_tile(level, index, width)
    if (tile.level, tile.index) != (level, index) or len(tile.hashes) < width:
        raise BrokenError(
            Fault.TILE,
            where=tile_path(level, index, width),
            expected=f"tile {index} of level {level}, {width} hashes or more",
            found=f"tile {tile.index} of level {tile.level}, {len(tile.hashes)} hashes",
        )
    return tile


def _check_address(*, level: int, index: int, width: int) -> None:
    if not (0 <= level <= LEVEL_MAX and 0 <= index <= INDEX_MAX and 1 <= width <= TILE_WIDTH):
        expected = f"level 0 to {LEVEL_MAX}, index 0 to 2^63 - 1, width 1 to {TILE_WIDTH}"
        raise FormatError("tile", expected=expected, found=f"level {level}, index {index}, width {width}")


def _format_index(index: int, width: int) -> str:
    groups = [f"{index % 1000:03}"]
    while index := index // 1000:
        groups.insert(0, f"x{index % 1000:03}")
    return "/".join(groups) + ("" if width == TILE_WIDTH else f".p/{width}")


def _parse_index(place: str, path: str) -> tuple[int, int]:
    """Return index and width from the end of `path`, leniently: callers format them again and compare."""
    numbers, partial, width = place.partition(".p/")
    digits = numbers.replace("/x", "").replace("/", "").removeprefix("x")
    # Bounded before they become numbers: Python refuses to read very long ones, with an error that is not ours.
    if not (_is_decimal(digits) and len(digits) <= len(str(INDEX_MAX)) + 2):
        raise _bad_path(path)
    if not partial:
        return int(digits), TILE_WIDTH
    if not (_is_decimal(width) and len(width) <= len(str(TILE_WIDTH))):
        raise _bad_path(path)
    return int(digits), int(width)


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _bad_path(path: str) -> FormatError:
    expected = "tile/<0..63 or entries>/<index in groups of three digits>, .p/<1..255> if partial"
    return FormatError("tile path", expected=expected, found=path)


def edge_addresses(size: int) -> list[tuple[int, int, int]]:
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
    Return whether the tree of `size` has this `root` if it contains `tile` and all other tiles as they are read.

    Reads the tiles from `tile` to the edge, and the edge itself: two on each level at most. Of two versions of a tile
    at most one leads to a signed root, and that one is genuine. If neither does, something else is wrong as well.
    """
    level, index, hashes = tile.level, tile.index, tile.hashes
    while tile_width(level=level, index=index, size=size) == TILE_WIDTH:
        child = root_of(hashes)
        level, index, position = level + 1, index >> TILE_HEIGHT, index % TILE_WIDTH
        hashes = read_tile(level, index, tile_width(level=level, index=index, size=size)).hashes
        hashes = (*hashes[:position], child, *hashes[position + 1 :])
    edge: list[tuple[bytes, ...]] = [()] * len(pending_widths(size))
    for edge_level, edge_index, width in edge_addresses(size):
        edge[edge_level] = read_tile(edge_level, edge_index, width).hashes[:width]
    edge[level] = hashes[: tile_width(level=level, index=index, size=size)]
    return frontier_of(tuple(edge)).root() == root
