"""
Checks the pages of an exported log: bundles, tiles, disclosed payload parts. In a worker, segment by segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.checkpoint import Checkpoint
from ledger.directory import LogDirectory, parts_path
from ledger.envelope import Envelope, commitments, read_envelope
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.event import commitment
from ledger.merkle import leaf_hash
from ledger.tiles import TILE_WIDTH, Tile, bundle_path, tile_width
from ledger.verify.effort import Checked, Effort, Segment, load_fast_path
from ledger.verify.rules import ChainState, EntryRules, state_behind
from ledger.verify.tree import Page, check_tile, first_difference


@dataclass(frozen=True, slots=True)
class DirectoryJob:
    """A directory to verify: its checkpoints, the newest last, and the indices of entries whose parts lie there."""

    path: Path
    known: Sequence[Checkpoint]
    disclosed: set[int]


class DirectoryPages:
    """Checks bundles in order, behind `state`."""

    def __init__(self, job: DirectoryJob, state: ChainState) -> None:
        self._directory = LogDirectory(job.path)
        self._newest = job.known[-1]
        self._disclosed = job.disclosed
        self.rules = EntryRules(origin=self._newest.origin, where=self._where, state=state)
        self.load_fast_path(0, Effort())

    def load_fast_path(self, entries: int, effort: Effort) -> None:
        """Load the fast path, if so many entries are worth it."""
        self._fast = load_fast_path(entries, effort)

    @property
    def is_fast(self) -> bool:
        """Whether the fast path is loaded."""
        return self._fast is not None

    def check_page(self) -> Page:
        """Check the next bundle and its tile."""
        index = self.rules.size // TILE_WIDTH
        width = tile_width(level=0, index=index, size=self._newest.size)
        return self._accepted(index, width) or self._checked(index, width)

    def _accepted(self, index: int, width: int) -> Page | None:
        """Return the page of a bundle that the fast path accepts, with its tile."""
        if self._fast is None:
            return None
        size_bytes = self._directory.read_bundle_into(index, width, self._fast.room)
        page = self._fast.bundle_page(size_bytes, width)
        if page is None or page.hashes != self._directory.read_tile_file(0, index, width):
            return None
        if not self._fast.accept(page, self.rules):
            return None
        first = index * TILE_WIDTH
        if not self._disclosed.isdisjoint(range(first, first + width)):
            for entry in page.entries():
                envelope = read_envelope(entry)
                if envelope.entry_index in self._disclosed:
                    self._check_parts(envelope)
        return self._fast.in_tree(page)

    def _checked(self, index: int, width: int) -> Page:
        """Return the page of a bundle whose entries keep the rules, each looked at by itself, and match its tile."""
        entries = self._directory.read_bundle(index, width)
        stored = self._directory.read_tile(0, index, width)
        leaves = [leaf_hash(entry) for entry in entries]
        # What lies behind the first entry that is not in the tree is not looked at: that one, or one before it, is bad.
        differs = first_difference(leaves, stored.hashes)
        end = None if differs is None else differs + 1
        for position, (entry, leaf) in enumerate(zip(entries[:end], leaves, strict=False)):
            envelope = self.rules.check(entry, leaf)
            if envelope.entry_index in self._disclosed and position != differs:
                self._check_parts(envelope)
        if differs is not None:
            self._check_count(index, width, found=len(entries), same=differs)
            self.check_tile(Tile(level=0, index=index, hashes=tuple(leaves[:width])))
        return Page.of(leaves)

    def check_tile(self, computed: Tile) -> None:
        stored = self._directory.read_tile(computed.level, computed.index, len(computed.hashes))
        check_tile(
            computed,
            stored,
            size=self._newest.size,
            root=self._newest.root,
            read_tile=self._directory.read_tile,
        )

    def _check_count(self, index: int, width: int, *, found: int, same: int) -> None:
        """Check that the bundle neither ends before its tile nor goes on behind it, if the two agree until then."""
        if same >= min(width, found):
            raise BrokenError(
                Fault.INDEX,
                where=bundle_path(index, width),
                expected=f"{width} entries",
                found=f"{found} entries",
                index=index * TILE_WIDTH + same,
            )

    def _check_parts(self, envelope: Envelope) -> None:
        known = commitments(envelope)
        index = envelope.entry_index
        for part in self._directory.read_parts(index):
            found = commitment(salt=part.salt, payload=part.payload)
            if known.get(part.name) != found:
                expected = known[part.name].hex() if part.name in known else f"one of the parts {sorted(known)}"
                where = f"{parts_path(index)} part {part.name}"
                raise BrokenError(Fault.PART, where=where, expected=expected, found=found.hex(), index=index)

    def _where(self, index: int) -> str:
        """Return the path of the bundle that holds the entry at `index`, or of the last one."""
        bundle = min(index, self._newest.size - 1) // TILE_WIDTH
        return bundle_path(bundle, tile_width(level=0, index=bundle, size=self._newest.size))


def check_segment(job: DirectoryJob, segment: Segment) -> Checked:
    """Check a segment in a worker, from the state that the entry before it claims."""
    before, done = ChainState(), list[Page]()
    directory = LogDirectory(job.path)
    try:
        if segment.first:
            bundle = segment.first // TILE_WIDTH - 1
            before = state_behind(last_entry(directory, bundle), index=segment.first - 1, where=bundle_path(bundle))
        work = DirectoryPages(job, before)
        work.load_fast_path(segment.end - segment.first, Effort())
        while work.rules.size < segment.end:
            done.append(work.check_page())
    except LedgerError:  # the caller comes to the same place, and finds and names it itself
        return Checked(before, before, [], (b"", b""))
    return Checked(before, work.rules.state, done, work.rules.groups.pack())


def last_entry(directory: LogDirectory, bundle: int) -> bytes:
    """Return the last entry of a complete bundle."""
    entries = directory.read_bundle(bundle, TILE_WIDTH)
    if len(entries) != TILE_WIDTH:
        index, where = bundle * TILE_WIDTH + len(entries), bundle_path(bundle)
        raise BrokenError(
            Fault.INDEX, where=where, expected="256 entries", found=f"{len(entries)} entries", index=index
        )
    return entries[-1]
