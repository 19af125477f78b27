# SPDX-License-Identifier: Apache-2.0
"""
Accepts whole pages of entries: `hashing.py` hashes them, the compiled kernel checks the rules over their bytes.

Guarantee: `EntryRules` would accept, entry by entry, every page that is accepted here, and would be in the same state
afterwards. A page that is not accepted here may still be sound: the caller passes it to the rules, which name what is
wrong. Loading the kernel takes half a second, so small logs are verified without it.
"""

from __future__ import annotations

from mmap import MAP_PRIVATE, mmap
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np

from ledger.files.directory import BUNDLE_SIZE_BYTES_MAX
from ledger.format.event import CONTROL_FAMILIES
from ledger.format.merkle import HASH_SIZE_BYTES, split_hashes
from ledger.format.tiles import TILE_WIDTH
from ledger.format.verification import ChainState, EntryRules, binary_id
from ledger.verify import kernel
from ledger.verify.hashing import Bytes, Numbers, PageHashes, load_page_hashes
from ledger.verify.tree import LeafPage

_FAMILY_BYTES: Final = 1 + max(map(len, CONTROL_FAMILIES))
_FAMILIES: Final = np.array(
    [list(family.encode().ljust(_FAMILY_BYTES, b"\0")) for family in sorted(CONTROL_FAMILIES)], dtype=np.uint8
)


class FastPage(NamedTuple):
    """The bytes of a page, where its entries (and columns) lie in them, and the joined leaf hashes."""

    data: Bytes
    spans: Numbers
    hashes: bytes

    @property
    def leaves(self) -> list[bytes]:
        """The leaf hashes."""
        return split_hashes(self.hashes)

    def entries(self) -> list[bytes]:
        """Return the entries."""
        places = self.spans[:, kernel.ENTRY : kernel.ENTRY + 2].tolist()
        return [self.data[start:end].tobytes() for start, end in places]


class FastPath:
    """
    The compiled kernel with its buffers. One log and one thread at a time: every page reuses the same buffers.

    `hashes` hashes the entries; by default the fastest implementation here.
    """

    def __init__(self, hashes: PageHashes | None = None) -> None:
        self._ids = np.zeros(16 * (TILE_WIDTH + 1), dtype=np.uint8)
        self._firsts = np.zeros(TILE_WIDTH, dtype=np.int64)
        self._stack = np.zeros((kernel.LEVELS_MAX, 2), dtype=np.int64)
        # One buffer for all bundles: allocating it for each costs more than reading into it. Mapped, not allocated:
        # most logs fill little of its 16 MiB, and clearing them takes as long as verifying a small log.
        self.buffer = memoryview(mmap(-1, BUNDLE_SIZE_BYTES_MAX + 1, flags=MAP_PRIVATE))
        self._view = np.frombuffer(self.buffer.toreadonly(), dtype=np.uint8)
        self._hashes = hashes or load_page_hashes()

    def bundle_page(self, size_bytes: int, width: int) -> FastPage | None:
        """Return the page of the bundle in `buffer`, if it holds `width` entries; valid until the next one is read."""
        spans = np.zeros((width, kernel.SPANS), dtype=np.int64)
        if size_bytes >= len(self.buffer) or kernel.bundle_spans(self._view, size_bytes, spans) != width:
            return None
        self.buffer[size_bytes] = 0
        return self._page(self._view, spans)

    def rows_page(self, data: bytes, width: int) -> FastPage | None:
        """Return the page of these rows (see `kernel.row_spans`), if there are exactly `width`."""
        view, spans = np.frombuffer(data + b"\0", dtype=np.uint8), np.zeros((width, kernel.SPANS), dtype=np.int64)
        return self._page(view, spans) if kernel.row_spans(view, len(data), spans) == width else None

    def in_tree(self, page: FastPage) -> LeafPage:
        """Return the leaf hashes of a page with their root."""
        return LeafPage(page.hashes, self._hashes.root(page.hashes))

    def accept(self, page: FastPage, rules: EntryRules) -> bool:
        """Tell whether the page's entries keep the rules; if so, advance `rules` past them."""
        accepted = self._check(page, rules)
        if accepted is not None:
            accepted.adopt(rules)
        return accepted is not None

    def accept_rows(self, page: FastPage, rules: EntryRules) -> int | None:
        """
        Accept a page whose columns agree with its entries, and advance `rules` past them; None if it is not accepted.

        Returns the position in the page of its last control entry, -1 if it has none.
        """
        accepted = self._check(page, rules)
        if accepted is None:
            return None
        first = accepted.state.size - len(page.spans)
        control: int = kernel.check_columns(
            page.data, page.spans, accepted.members, accepted.leaves, self._ids, _FAMILIES, first
        )
        if control < -1:
            return None
        accepted.adopt(rules)
        return control

    def _page(self, data: Bytes, spans: Numbers) -> FastPage:
        places = np.ascontiguousarray(spans[:, kernel.ENTRY : kernel.ENTRY + 2])
        return FastPage(data, spans, self._hashes.leaves(data, places))

    def _check(self, page: FastPage, rules: EntryRules) -> _Accepted | None:
        before = rules.state
        leaves = np.frombuffer(before.last + page.hashes, dtype=np.uint8)
        counters = np.array([before.size, before.position, before.of, 0], dtype=np.int64)
        group_id = binary_id(before.group_id)
        packed = before.recorded_at.ljust(kernel.ID_AT, b"\0") + group_id.ljust(16, b"\0") + before.branch[:1]
        entry_before = np.frombuffer(bytearray(packed.ljust(kernel.ENTRY_BEFORE_BYTES, b"\0")), dtype=np.uint8)
        members = np.zeros((len(page.spans), kernel.MEMBERS), dtype=np.int64)
        origin = np.frombuffer(rules.origin, dtype=np.uint8)
        found = kernel.check_entries(
            page.data, page.spans, leaves, origin, counters, entry_before, self._ids, self._firsts, members, self._stack
        )
        if found != len(page.spans):
            return None
        size, position, of, groups = counters.tolist()
        packed = entry_before.tobytes()
        state = ChainState(
            size=size,
            last=page.hashes[-HASH_SIZE_BYTES:],
            recorded_at=packed[: kernel.ID_AT],
            group_id=str(UUID(bytes=packed[kernel.ID_AT : kernel.BRANCH_AT])).encode(),
            branch=b"then" if packed[kernel.BRANCH_AT :] == b"t" else b"else",
            of=of,
            position=position,
        )
        ids, firsts = self._ids[: 16 * groups].tobytes(), self._firsts[:groups].tobytes()
        return _Accepted(state, (ids, firsts), members, leaves)


class _Accepted(NamedTuple):
    state: ChainState
    groups: tuple[bytes, bytes]
    members: Numbers
    leaves: Bytes

    def adopt(self, rules: EntryRules) -> None:
        rules.adopt(self.state)
        rules.groups.extend(self.groups)
