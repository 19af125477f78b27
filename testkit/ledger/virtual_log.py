# SPDX-License-Identifier: Apache-2.0
"""
Logs of any size, from one hash a height.

All leaves are alike, so that a perfect subtree of a height has one hash, wherever it stands. Some leaves may be told
apart (`marked`): else a proof that leads to the wrong place of the tree would lead to the right root. The root of a log
of 2^40 entries takes some forty hashes, and as many again for each leaf that is marked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from ledger.files.directory import CHECKPOINT_FILE
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.tiles import Tile, tile_path

LEAF = sha256(b"\x00the same entry, again and again").digest()


class VirtualLog:
    """The tree of a log of `size` entries; `marked` has the leaf hashes that are not `LEAF`, by index."""

    def __init__(self, size: int, marked: Mapping[int, bytes] | None = None) -> None:
        self.size = size
        self._marked = dict(marked or {})
        self._places = sorted(self._marked)
        self._alike = [LEAF]
        self._known: dict[tuple[int, int], bytes] = {}

    def at(self, size: int) -> VirtualLog:
        """Return the log as it was at `size`."""
        return VirtualLog(size, {index: leaf for index, leaf in self._marked.items() if index < size})

    def leaf(self, index: int) -> bytes:
        """Return a leaf hash."""
        return self._marked.get(index, LEAF)

    def mth(self, start: int, end: int) -> bytes:
        """Return MTH(D[start:end]) by the definition of RFC 9162, section 2.1.1."""
        width = end - start
        if width == 0:
            return sha256(b"").digest()
        if width == 1:
            return self.leaf(start)
        if not self._has_marks(start, end) and width & (width - 1) == 0:
            return self._of_height(width.bit_length() - 1)
        if (start, end) not in self._known:
            k = 1
            while 2 * k < width:  # the largest power of two smaller than the width
                k *= 2
            left, right = self.mth(start, start + k), self.mth(start + k, end)
            self._known[start, end] = sha256(b"\x01" + left + right).digest()
        return self._known[start, end]

    def root(self) -> bytes:
        """Return the root hash."""
        return self.mth(0, self.size)

    def read(self, level: int, index: int) -> bytes:
        """Give the hash of a perfect subtree (`HashReader`)."""
        assert 0 <= index << level < (index + 1) << level <= self.size
        return self.mth(index << level, (index + 1) << level)

    def tile(self, level: int, index: int, width: int) -> Tile:
        """Give a tile (`TileReader`)."""
        first = index * 256
        return Tile(level=level, index=index, hashes=tuple(self.read(8 * level, first + i) for i in range(width)))

    def frontier(self) -> tuple[bytes, ...]:
        """Return the roots of the perfect subtrees that the size falls into, largest first."""
        found, start = [], 0
        for height in reversed(range(self.size.bit_length())):
            if self.size >> height & 1:
                found.append(self.mth(start, start + (1 << height)))
                start += 1 << height
        return tuple(found)

    def inclusion(self, index: int, *, start: int = 0, end: int | None = None) -> list[bytes]:
        """Return the inclusion proof by the definition of RFC 9162, section 2.1.3.1."""
        end = self.size if end is None else end
        if end - start == 1:
            return []
        k = 1
        while 2 * k < end - start:
            k *= 2
        if index < start + k:
            return [*self.inclusion(index, start=start, end=start + k), self.mth(start + k, end)]
        return [*self.inclusion(index, start=start + k, end=end), self.mth(start, start + k)]

    def consistency(self, size1: int) -> list[bytes]:
        """Return the proof that the log extends `size1`, by the definition of RFC 9162, section 2.1.4.1."""
        return self._subproof(size1, 0, self.size, is_known=True)

    def checkpoint(self, origin: str) -> Checkpoint:
        """Return the checkpoint of the log under that name."""
        return Checkpoint(origin=origin, size=self.size, root=self.root())

    def signed(self, signer: Ed25519Signer) -> bytes:
        """Return the signed checkpoint of the log, whose origin is the signer's name."""
        return sign_note(format_checkpoint(self.checkpoint(signer.name)), [signer])

    def write(self, path: Path, places: Iterable[tuple[int, int, int]], signer: Ed25519Signer) -> Path:
        """Write an exported directory of which only the checkpoint and some tiles are there: level, index, width."""
        path.mkdir(exist_ok=True)
        (path / CHECKPOINT_FILE).write_bytes(self.signed(signer))
        for level, index, width in places:
            file = path / tile_path(level, index, width)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.tile(level, index, width).pack())
        return path

    def _subproof(self, m: int, start: int, end: int, *, is_known: bool) -> list[bytes]:
        if m == end - start:
            return [] if is_known else [self.mth(start, end)]
        k = 1
        while 2 * k < end - start:
            k *= 2
        if m <= k:
            return [*self._subproof(m, start, start + k, is_known=is_known), self.mth(start + k, end)]
        return [*self._subproof(m - k, start + k, end, is_known=False), self.mth(start, start + k)]

    def _has_marks(self, start: int, end: int) -> bool:
        at = bisect_left(self._places, start)
        return at < len(self._places) and self._places[at] < end

    def _of_height(self, height: int) -> bytes:
        while len(self._alike) <= height:
            self._alike.append(sha256(b"\x01" + 2 * self._alike[-1]).digest())
        return self._alike[height]
