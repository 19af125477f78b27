# SPDX-License-Identifier: Apache-2.0
"""
Verifies an exported log from nothing but its files and the keys that the caller trusts. No database, no network.

The steps, in order; the first that fails names the fault:

1. the checkpoint can be read, and its log has signed it with a trusted key;
2. no checkpoint held elsewhere, or signed last by a retired key, is of a larger log: nothing was cut off;
3. no bundle and no tile is missing, and none is surplus;
4. every entry, in order, keeps the rules of `format/verification.py`, and its disclosed payload parts match its
   commitments;
5. every tile holds the hashes of what lies below it;
6. the tree has the signed root, and at the size of each checkpoint held elsewhere that checkpoint's root;
7. a log whose origin says that it continues another begins with what that log's signer had signed last.

With `since`, a checkpoint up to which the caller has verified the log before, only what follows it is read. Steps 3 and
7 are left out then: instead the tiles must prove that the log continues from that checkpoint (`starting.py`).

Bundles, tiles and parts are checked segment by segment, in workers (`check_segment`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ledger.errors import BrokenError, Fault, LedgerError
from ledger.files.directory import (
    CHECKPOINT_FILE,
    KEY_FILE,
    LogDirectory,
    bundle_addresses,
    is_bundle,
    is_log_file,
    log_files,
    parse_parts_path,
    parts_path,
)
from ledger.files.regular_file import UnreadableError
from ledger.format.checkpoint import Checkpoint
from ledger.format.entry import Envelope, commitments, read_envelope
from ledger.format.event import commitment
from ledger.format.key_history import Trusted
from ledger.format.merkle import leaf_hash
from ledger.format.tiles import TILE_WIDTH, Tile, TileReader, bundle_path, parse_bundle_path, tile_width
from ledger.format.verification import (
    ChainState,
    EntryRules,
    ProgressCallback,
    VerificationReport,
    held_checkpoints,
    read_checkpoint,
    state_behind,
)
from ledger.verify.resuming import NoProgressFile, ProgressKeeper
from ledger.verify.starting import (
    SINCE,
    Start,
    check_continued,
    check_earlier,
    first_read,
    prove_earlier,
    read_prefix,
    start_behind,
)
from ledger.verify.tree import LeafPage, TreeRules, check_roots, check_tile, first_difference
from ledger.verify.workers import Effort, Segment, SegmentResult, load_fast_path, segments_checked


def verify_directory(
    path: Path,
    trusted: Trusted,
    *,
    held: Sequence[bytes] = (),
    since: bytes | None = None,
    keeper: ProgressKeeper | None = None,
    effort: Effort | None = None,
    progress: ProgressCallback = lambda _done, _of: None,
    clock: Callable[[], float] = time.perf_counter,
) -> VerificationReport:
    """
    Verify the exported log in the directory `path`, and say what was verified.

    `trusted` are the keys that the caller trusts, from elsewhere. `held` are signed checkpoints of this log that were
    kept elsewhere: the log must continue from each of them. `since` is one more, up to which the caller has verified
    the log before: what is before it is not read again. `keeper` saves progress, so that interrupted work can be
    resumed. `clock` counts seconds.

    Raises:
        BrokenError: at the first fault; names its class, the file, and the entry's index where there is one.
        UnreadableError: if there is no exported log there, or a file cannot be read.
        FormatError: if the progress that `keeper` has saved is of another log or malformed.
    """
    started_s = clock()
    keeper, effort = keeper or NoProgressFile(), effort or Effort()
    directory = LogDirectory(path)
    files = directory.files() if since is None else set()
    if since is None and CHECKPOINT_FILE not in files and not any(map(is_log_file, files)):
        raise UnreadableError(f"{path}: expected an exported log, found neither a checkpoint nor tiles")
    note = directory.read_checkpoint()
    checkpoint = read_checkpoint(note, trusted, where=CHECKPOINT_FILE)  # 1
    begun = keeper.load(checkpoint.origin, note)
    kept = [*held, *([since] if since else []), *([begun.note] if begun else [])]
    known = [*held_checkpoints(kept, trusted, origin=checkpoint.origin, size=checkpoint.size), checkpoint]  # 2
    behind = read_checkpoint(since, trusted, where=SINCE) if since else None
    if behind is None:
        _check_files(files, checkpoint.size)  # 3
        disclosed = {index for file in files if (index := parse_parts_path(file)) is not None}
        _check_parts_of_other_entries(disclosed, checkpoint.size)
    else:
        disclosed = directory.disclosed_from(first_read(behind), checkpoint.size)
    start = begun.start if begun else _start_behind(directory, behind, checkpoint) if behind else Start()
    first = start.state.size
    if first:
        reached = max(first, behind.size if behind else 0)
        _check_earlier(directory, [old for old in known if old.size <= reached], checkpoint)
    work = _DirectoryPass(DirectoryJob(path, known, disclosed), start)
    if begun:
        work.rules.groups.extend(begun.groups)
    work.run(progress, effort, keeper)  # 4, 5, 6
    if behind is None and checkpoint.size:
        _check_continued(directory, trusted, checkpoint)  # 7
    keeper.forget()
    checked = {CHECKPOINT_FILE, KEY_FILE, *map(parts_path, disclosed)}
    return VerificationReport(
        origin=checkpoint.origin,
        size=checkpoint.size,
        root=checkpoint.root,
        signed_size=checkpoint.size,
        checkpoints=len(known),
        parts=len(disclosed),
        elapsed_s=clock() - started_s,
        first=first,
        since=behind.size if behind else None,
        resumed_at=first if begun else None,
        unchecked=tuple(sorted(file for file in files - checked if not is_log_file(file))),
    )


def _check_files(files: set[str], size: int) -> None:
    """
    Check that the bundles and tiles are exactly those of a log of `size`; names the first that is missing or surplus.

    Ends at the first that is missing: the signed size may be larger than any memory.
    """
    expected: set[str] = set()
    for path in log_files(size):
        if path not in files:
            first = parse_bundle_path(path)[0] * TILE_WIDTH if is_bundle(path) else None
            fault = Fault.TILE if first is None else Fault.INDEX
            expected_file = f"a file, in a log of {size} entries"
            raise BrokenError(fault, where=path, expected=expected_file, found="none", index=first)
        expected.add(path)
    surplus = sorted(path for path in files - expected if is_log_file(path))
    if surplus:
        fault = Fault.INDEX if is_bundle(surplus[0]) else Fault.TILE
        raise BrokenError(fault, where=surplus[0], expected=f"no such file, in a log of {size} entries", found="one")


def _check_parts_of_other_entries(disclosed: set[int], size: int) -> None:
    """Check that there are no payload parts of entries that the log does not have."""
    if disclosed and (index := max(disclosed)) >= size:
        expected = f"parts of entries below {size}"
        raise BrokenError(Fault.PART, where=parts_path(index), expected=expected, found=f"parts of entry {index}")


def _check_continued(directory: LogDirectory, trusted: Trusted, checkpoint: Checkpoint) -> None:
    index, width = next(bundle_addresses(checkpoint.size))
    first_entry = directory.read_bundle(index, width)[0]
    check_continued(first_entry, trusted, origin=checkpoint.origin, where=bundle_path(index, width))


def _start_behind(directory: LogDirectory, since: Checkpoint, newest: Checkpoint) -> Start:
    edge, inclusion = read_prefix(_read_widest(directory, newest.size), since=since)
    if not (first := first_read(since)):
        return start_behind(since, edge, inclusion, entry=None, where=SINCE)
    bundle = first // TILE_WIDTH - 1
    return start_behind(since, edge, inclusion, entry=last_entry(directory, bundle), where=bundle_path(bundle))


def _check_earlier(directory: LogDirectory, earlier: Sequence[Checkpoint], newest: Checkpoint) -> None:
    """Check that the log continues from the checkpoints whose size is before what is read."""
    proofs = prove_earlier(_read_widest(directory, newest.size), earlier, size=newest.size)
    check_earlier(earlier, proofs, size=newest.size, root=newest.root)


def _read_widest(directory: LogDirectory, size: int) -> TileReader:
    """Read tiles as they are stored: as wide as in the newest tree, perhaps wider than requested."""
    return lambda level, index, _: directory.read_tile(level, index, tile_width(level=level, index=index, size=size))


class _DirectoryPass:
    """One pass over the bundles of a directory, in order. Used by one call of `verify_directory`, in one thread."""

    def __init__(self, job: DirectoryJob, start: Start) -> None:
        self._job = job
        self._checkpoints = job.known
        self._newest = job.known[-1]
        self._pages = DirectoryPages(job, start.state)
        self._tree = TreeRules(size=start.state.size, edge=start.edge)

    @property
    def rules(self) -> EntryRules:
        """The rules, as far as the entries were checked."""
        return self._pages.rules

    def run(self, progress: ProgressCallback, effort: Effort, keeper: ProgressKeeper) -> None:
        size, rules = self._newest.size, self.rules
        self._pages.load_fast_path(size - rules.size, effort)

        def join(page: LeafPage) -> None:
            self._join(page)
            progress(self._tree.size, size)

        check, is_fast = partial(check_segment, self._job), self._pages.is_fast
        with segments_checked(check, rules.size, size, effort, is_fast=is_fast) as segments:
            for segment, future in segments:
                if future and (checked := future.result()).before == rules.state:
                    for page in checked.pages:
                        join(page)
                    rules.adopt(checked.after)
                    rules.groups.extend(checked.groups)
                while rules.size < segment.end:
                    join(self._pages.check_page())
                keeper.save(Start(state=rules.state, edge=self._tree.edge), rules.groups)
        while rules.size < size:
            join(self._pages.check_page())
            keeper.save(Start(state=rules.state, edge=self._tree.edge), rules.groups)
        rules.finish()
        for tile in self._tree.edge_tiles():
            self._pages.check_tile(tile)
        check_roots(self._tree.edge, (), [known for known in self._checkpoints if known.size == size])

    def _join(self, page: LeafPage) -> None:
        edge, start = self._tree.edge, self._tree.size
        for tile in self._tree.add(page):
            self._pages.check_tile(tile)
        # The root at the end is checked after the tiles of the edge: a bad tile can be named, a bad root cannot.
        end = min(self._tree.size, self._newest.size - 1)
        if due := [known for known in self._checkpoints if start < known.size <= end]:
            check_roots(edge, page.split(), due)


@dataclass(frozen=True, slots=True)
class DirectoryJob:
    """A directory to verify: its checkpoints, the newest last, and the indices of entries with disclosed parts."""

    path: Path
    known: Sequence[Checkpoint]
    disclosed: set[int]


class DirectoryPages:
    """Checks bundles in order, from `state` on."""

    def __init__(self, job: DirectoryJob, state: ChainState) -> None:
        self._directory = LogDirectory(job.path)
        self._newest = job.known[-1]
        self._disclosed = job.disclosed
        self.rules = EntryRules(origin=self._newest.origin, where=self._where, state=state)
        self.load_fast_path(0, Effort())

    def load_fast_path(self, entries: int, effort: Effort) -> None:
        """Load the fast path, if there are enough entries for it."""
        self._fast = load_fast_path(entries, effort)

    @property
    def is_fast(self) -> bool:
        """Whether the fast path is loaded."""
        return self._fast is not None

    def check_page(self) -> LeafPage:
        """Check the next bundle and its tile."""
        index = self.rules.size // TILE_WIDTH
        width = tile_width(level=0, index=index, size=self._newest.size)
        return self._accepted(index, width) or self._checked(index, width)

    def _accepted(self, index: int, width: int) -> LeafPage | None:
        """Return the page of a bundle that the fast path accepts, with its tile."""
        if self._fast is None:
            return None
        size_bytes = self._directory.read_bundle_into(index, width, self._fast.buffer)
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

    def _checked(self, index: int, width: int) -> LeafPage:
        """Return the page of a bundle, its entries checked one by one against the rules and the tile."""
        entries = self._directory.read_bundle(index, width)
        stored = self._directory.read_tile(0, index, width)
        leaves = [leaf_hash(entry) for entry in entries]
        # Entries after the first that is not in the tree are not checked: that one, or one before it, is bad.
        differs = first_difference(leaves, stored.hashes)
        end = None if differs is None else differs + 1
        for position, (entry, leaf) in enumerate(zip(entries[:end], leaves, strict=False)):
            envelope = self.rules.check(entry, leaf)
            if envelope.entry_index in self._disclosed and position != differs:
                self._check_parts(envelope)
        if differs is not None:
            self._check_count(index, width, found=len(entries), same=differs)
            self.check_tile(Tile(level=0, index=index, hashes=tuple(leaves[:width])))
        return LeafPage.of(leaves)

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
        """Check that bundle and tile have the same number of entries, if they agree as far as both go."""
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


def check_segment(job: DirectoryJob, segment: Segment) -> SegmentResult:
    """Check a segment in a worker, from the state that the entry before it claims."""
    before, done = ChainState(), list[LeafPage]()
    directory = LogDirectory(job.path)
    try:
        if segment.first:
            bundle = segment.first // TILE_WIDTH - 1
            before = state_behind(last_entry(directory, bundle), index=segment.first - 1, where=bundle_path(bundle))
        work = DirectoryPages(job, before)
        work.load_fast_path(segment.end - segment.first, Effort())
        while work.rules.size < segment.end:
            done.append(work.check_page())
    except LedgerError:  # the caller checks this segment itself, and names the fault
        return SegmentResult(before, before, [], (b"", b""))
    return SegmentResult(before, work.rules.state, done, work.rules.groups.pack())


def last_entry(directory: LogDirectory, bundle: int) -> bytes:
    """Return the last entry of a complete bundle."""
    entries = directory.read_bundle(bundle, TILE_WIDTH)
    if len(entries) != TILE_WIDTH:
        index, where = bundle * TILE_WIDTH + len(entries), bundle_path(bundle)
        raise BrokenError(
            Fault.INDEX, where=where, expected="256 entries", found=f"{len(entries)} entries", index=index
        )
    return entries[-1]
