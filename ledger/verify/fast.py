"""
Accepts whole pages of entries at once: `hashing.py` hashes them, the compiled kernel checks the rules over their bytes.

Guarantee: a page that is accepted here would be accepted by `EntryRules`, entry by entry, and leaves them in the same
state. A page that is not accepted is in no way refused: the rules themselves look at it then, and they can say what is
wrong, if anything is. Loading the kernel takes half a second, so small logs do without.
"""

from __future__ import annotations

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
from ledger.verify.tree import Page

_FAMILY_BYTES: Final = 1 + max(map(len, CONTROL_FAMILIES))
_FAMILIES: Final = np.array(
    [list(family.encode().ljust(_FAMILY_BYTES, b"\0")) for family in sorted(CONTROL_FAMILIES)], dtype=np.uint8
)


class FastPage(NamedTuple):
    """The bytes of a page of entries, where they lie in it, and their leaf hashes, joined."""

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
    The compiled kernel with the room that it works in, over the entries of one log at a time.

    `hashes` hashes the entries: by default, whatever does it fastest here.
    """

    def __init__(self, hashes: PageHashes | None = None) -> None:
        self._ids = np.zeros(16 * (TILE_WIDTH + 1), dtype=np.uint8)
        self._firsts = np.zeros(TILE_WIDTH, dtype=np.int64)
        self._stack = np.zeros((kernel.LEVELS_MAX, 2), dtype=np.int64)
        # One room for all pages: memory that is asked for anew costs more than reading into it.
        self.room = memoryview(bytearray(BUNDLE_SIZE_BYTES_MAX + 1))
        self._view = np.frombuffer(self.room.toreadonly(), dtype=np.uint8)
        self._hashes = hashes or load_page_hashes()

    def bundle_page(self, size_bytes: int, width: int) -> FastPage | None:
        """Return the page that the bundle in `room` is, if it holds `width` entries; the next replaces it."""
        spans = np.zeros((width, kernel.SPANS), dtype=np.int64)
        if size_bytes >= len(self.room) or kernel.bundle_spans(self._view, size_bytes, spans) != width:
            return None
        self.room[size_bytes] = 0
        return self._page(self._view, spans)

    def rows_page(self, data: bytes, width: int) -> FastPage | None:
        """Return the page that rows are (see `kernel.row_spans`), if there are exactly `width`."""
        view, spans = np.frombuffer(data + b"\0", dtype=np.uint8), np.zeros((width, kernel.SPANS), dtype=np.int64)
        return self._page(view, spans) if kernel.row_spans(view, len(data), spans) == width else None

    def in_tree(self, page: FastPage) -> Page:
        """Return what the tree needs of a page."""
        return Page(page.hashes, self._hashes.root(page.hashes))

    def accept(self, page: FastPage, rules: EntryRules) -> bool:
        """Tell whether the page's entries keep the rules, and if so bring `rules` behind them."""
        accepted = self._check(page, rules)
        if accepted is not None:
            accepted.adopt(rules)
        return accepted is not None

    def accept_rows(self, page: FastPage, rules: EntryRules) -> int | None:
        """
        Accept a page whose columns say what its entries do, and bring `rules` behind them; None if it is not accepted.

        Returns the place in the page of its last control entry, -1 if it has none.
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
        numbers = np.array([before.size, before.position, before.of, 0], dtype=np.int64)
        group_id = binary_id(before.group_id)
        said = before.recorded_at.ljust(kernel.ID_AT, b"\0") + group_id.ljust(16, b"\0") + before.branch[:1]
        carried = np.frombuffer(bytearray(said.ljust(kernel.CARRIED_BYTES, b"\0")), dtype=np.uint8)
        members = np.zeros((len(page.spans), kernel.MEMBERS), dtype=np.int64)
        origin = np.frombuffer(rules.origin, dtype=np.uint8)
        found = kernel.check_entries(
            page.data, page.spans, leaves, origin, numbers, carried, self._ids, self._firsts, members, self._stack
        )
        if found != len(page.spans):
            return None
        size, position, of, groups = numbers.tolist()
        said = carried.tobytes()
        state = ChainState(
            size=size,
            last=page.hashes[-HASH_SIZE_BYTES:],
            recorded_at=said[: kernel.ID_AT],
            group_id=str(UUID(bytes=said[kernel.ID_AT : kernel.BRANCH_AT])).encode(),
            branch=b"then" if said[kernel.BRANCH_AT :] == b"t" else b"else",
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
