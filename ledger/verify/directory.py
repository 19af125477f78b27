"""
Verifies an exported log from nothing but its files and the keys that the caller trusts. No database, no network.

The steps, in order; the first that fails names the fault:

1. the checkpoint is one, and the log that it speaks of has signed it with one of the keys;
2. a checkpoint held elsewhere is not of a larger log: this one was not cut off;
3. no bundle and no tile is missing, and there is none too many;
4. every entry, in order, keeps the rules of `rules.py`, and its disclosed payload parts match its commitments;
5. every tile holds the hashes of what lies below it;
6. the tree has the signed root, and at the size of a checkpoint held elsewhere, that one's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ledger.checkpoint import Checkpoint
from ledger.directory import (
    CHECKPOINT_FILE,
    KEY_FILE,
    LogDirectory,
    UnreadableError,
    bundle_places,
    is_bundle,
    is_log_file,
    log_files,
    parse_parts_path,
    parts_path,
)
from ledger.envelope import Envelope, commitments
from ledger.errors import BrokenError, Fault
from ledger.event import commitment
from ledger.merkle import leaf_hash
from ledger.note import VerifierKey
from ledger.tiles import TILE_WIDTH, Tile, bundle_path, parse_bundle_path, tile_width
from ledger.verify.rules import EntryRules, Progress, Report, held_checkpoints, read_checkpoint
from ledger.verify.tree import TreeRules, check_roots, check_tile, first_difference


def verify_directory(
    path: Path,
    keys: Sequence[VerifierKey],
    *,
    held: Sequence[bytes] = (),
    progress: Progress = lambda _done, _of: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """
    Verify the exported log in the directory `path`, and say what was verified.

    `keys` are the verifier keys that the caller trusts, from elsewhere; `held` are signed checkpoints of this log that
    were kept elsewhere: the log must go on from each of them. `clock` counts seconds.

    Raises:
        BrokenError: at the first fault; names its class, the file, and the entry's index where there is one.
        UnreadableError: if there is no exported log there, or a file cannot be read.
    """
    started_s = clock()
    directory = LogDirectory(path)
    files = directory.files()
    if CHECKPOINT_FILE not in files and not any(map(is_log_file, files)):
        raise UnreadableError(f"{path}: expected an exported log, found neither a checkpoint nor tiles")
    checkpoint = read_checkpoint(directory.read_checkpoint(), keys, where=CHECKPOINT_FILE)  # 1
    known = [*held_checkpoints(held, keys, origin=checkpoint.origin, size=checkpoint.size), checkpoint]  # 2
    _check_files(files, checkpoint.size)  # 3
    disclosed = {index for file in files if (index := parse_parts_path(file)) is not None}
    _check_parts_of_other_entries(disclosed, checkpoint.size)
    _DirectoryPass(directory, known, disclosed).run(progress)  # 4, 5, 6
    checked = {CHECKPOINT_FILE, KEY_FILE, *map(parts_path, disclosed)}
    return Report(
        origin=checkpoint.origin,
        size=checkpoint.size,
        root=checkpoint.root,
        signed_size=checkpoint.size,
        checkpoints=len(known),
        parts=len(disclosed),
        elapsed_s=clock() - started_s,
        unchecked=tuple(sorted(file for file in files - checked if not is_log_file(file))),
    )


def _check_files(files: set[str], size: int) -> None:
    """
    Check that the bundles and tiles are exactly those of a log of `size`; names the first that is not.

    Ends at the first that is missing: a log may be signed as larger than any memory.
    """
    expected: set[str] = set()
    for path in log_files(size):
        if path not in files:
            first = parse_bundle_path(path)[0] * TILE_WIDTH if is_bundle(path) else None
            fault = Fault.TILE if first is None else Fault.INDEX
            wanted = f"a file, in a log of {size} entries"
            raise BrokenError(fault, where=path, expected=wanted, found="none", index=first)
        expected.add(path)
    surplus = sorted(path for path in files - expected if is_log_file(path))
    if surplus:
        fault = Fault.INDEX if is_bundle(surplus[0]) else Fault.TILE
        raise BrokenError(fault, where=surplus[0], expected=f"no such file, in a log of {size} entries", found="one")


def _check_parts_of_other_entries(disclosed: set[int], size: int) -> None:
    """Check that payload parts lie there only of entries that the log has."""
    if disclosed and (index := max(disclosed)) >= size:
        expected = f"parts of entries below {size}"
        raise BrokenError(Fault.PART, where=parts_path(index), expected=expected, found=f"parts of entry {index}")


class _DirectoryPass:
    """One pass over the bundles of a directory, in order. Owned by one call of `verify_directory`."""

    def __init__(self, directory: LogDirectory, checkpoints: Sequence[Checkpoint], disclosed: set[int]) -> None:
        self._directory = directory
        self._checkpoints = checkpoints
        self._newest = checkpoints[-1]
        self._disclosed = disclosed
        self._rules = EntryRules(origin=self._newest.origin, where=self._where)
        self._tree = TreeRules()

    def run(self, progress: Progress) -> None:
        size = self._newest.size
        for index, width in bundle_places(size):
            self._check_bundle(index, width)
            progress(self._rules.size, size)
        self._rules.finish()
        for tile in self._tree.edge_tiles():
            self._check_tile(tile)
        check_roots(self._tree.edge, (), [known for known in self._checkpoints if known.size == size])

    def _check_bundle(self, index: int, width: int) -> None:
        entries = self._directory.read_bundle(index, width)
        stored = self._directory.read_tile(0, index, width)
        leaves = [leaf_hash(entry) for entry in entries]
        # What lies behind the first entry that is not in the tree is not looked at: that one, or one before it, is bad.
        differs = first_difference(leaves, stored.hashes)
        end = None if differs is None else differs + 1
        for position, (entry, leaf) in enumerate(zip(entries[:end], leaves, strict=False)):
            envelope = self._rules.check(entry, leaf)
            if envelope.entry_index in self._disclosed and position != differs:
                self._check_parts(envelope)
        if differs is not None:
            self._check_count(index, width, found=len(entries), same=differs)
            self._check_tile(Tile(level=0, index=index, hashes=tuple(leaves[:width])))
        self._check_tree(leaves)

    def _check_tree(self, leaves: Sequence[bytes]) -> None:
        edge, start = self._tree.edge, self._tree.size
        for tile in self._tree.extend(leaves):
            if tile.level > 0:
                self._check_tile(tile)
        # The root at the end waits until the tiles of the edge were looked at: they can be named, a root cannot.
        end = min(self._tree.size, self._newest.size - 1)
        check_roots(edge, leaves, [known for known in self._checkpoints if start < known.size <= end])

    def _check_tile(self, computed: Tile) -> None:
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
