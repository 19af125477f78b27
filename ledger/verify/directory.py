"""
Verifies an exported log from nothing but its files and the keys that the caller trusts. No database, no network.

The steps, in order; the first that fails names the fault:

1. the checkpoint is one, and the log that it speaks of has signed it with a key that is trusted for it;
2. a checkpoint held elsewhere, or signed last by a key that is retired, is not of a larger log: nothing was cut off;
3. no bundle and no tile is missing, and there is none too many;
4. every entry, in order, keeps the rules of `rules.py`, and its disclosed payload parts match its commitments;
5. every tile holds the hashes of what lies below it;
6. the tree has the signed root, and at the size of a checkpoint held elsewhere, that one's;
7. a log that by its origin goes on from another begins with what that one's signer had signed last.

With `since`, a checkpoint up to which the caller has verified the log before, only what is behind it is read. Steps 3
and 7 are left out then: instead the tiles must prove that the log goes on from that checkpoint (`starting.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
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
from ledger.errors import BrokenError, Fault
from ledger.tiles import TILE_WIDTH, TileReader, bundle_path, parse_bundle_path, tile_width
from ledger.verify.continued import check_continued
from ledger.verify.directory_pages import DirectoryJob, DirectoryPages, check_segment, last_entry
from ledger.verify.effort import Effort, segments_checked
from ledger.verify.resuming import NoProgressFile, ProgressKeeper
from ledger.verify.rules import EntryRules, Progress, Report, held_checkpoints, read_checkpoint
from ledger.verify.starting import SINCE, Start, check_earlier, first_read, prove_earlier, read_prefix, start_behind
from ledger.verify.tree import Page, TreeRules, check_roots
from ledger.verify.trusted import Trusted


def verify_directory(
    path: Path,
    trusted: Trusted,
    *,
    held: Sequence[bytes] = (),
    since: bytes | None = None,
    keeper: ProgressKeeper | None = None,
    effort: Effort | None = None,
    progress: Progress = lambda _done, _of: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """
    Verify the exported log in the directory `path`, and say what was verified.

    `trusted` are the keys that the caller trusts, from elsewhere; `held` are signed checkpoints of this log that
    were kept elsewhere: the log must go on from each of them. `since` is one more, up to which the caller has verified
    the log before: what is before it is not read again. `keeper` keeps how far the work is, so that it can be taken up
    again. `clock` counts seconds.

    Raises:
        BrokenError: at the first fault; names its class, the file, and the entry's index where there is one.
        UnreadableError: if there is no exported log there, or a file cannot be read.
        FormatError: if what `keeper` has kept is of another log or not of its form.
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
    return Report(
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


def _check_continued(directory: LogDirectory, trusted: Trusted, checkpoint: Checkpoint) -> None:
    index, width = next(bundle_places(checkpoint.size))
    first_entry = directory.read_bundle(index, width)[0]
    check_continued(first_entry, trusted, origin=checkpoint.origin, where=bundle_path(index, width))


def _start_behind(directory: LogDirectory, since: Checkpoint, newest: Checkpoint) -> Start:
    edge, inclusion = read_prefix(_read_widest(directory, newest.size), since=since)
    if not (first := first_read(since)):
        return start_behind(since, edge, inclusion, entry=None, where=SINCE)
    bundle = first // TILE_WIDTH - 1
    return start_behind(since, edge, inclusion, entry=last_entry(directory, bundle), where=bundle_path(bundle))


def _check_earlier(directory: LogDirectory, earlier: Sequence[Checkpoint], newest: Checkpoint) -> None:
    """Check that the log goes on from the checkpoints whose size is not reached again."""
    proofs = prove_earlier(_read_widest(directory, newest.size), earlier, size=newest.size)
    check_earlier(earlier, proofs, size=newest.size, root=newest.root)


def _read_widest(directory: LogDirectory, size: int) -> TileReader:
    """Read tiles as they are stored: as wide as they are in the newest tree, perhaps wider than is asked for."""
    return lambda level, index, _: directory.read_tile(level, index, tile_width(level=level, index=index, size=size))


class _DirectoryPass:
    """One pass over the bundles of a directory, in order. Owned by one call of `verify_directory`, or one worker."""

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

    def run(self, progress: Progress, effort: Effort, keeper: ProgressKeeper) -> None:
        size, rules = self._newest.size, self.rules
        self._pages.load_fast_path(size - rules.size, effort)

        def join(page: Page) -> None:
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

    def _join(self, page: Page) -> None:
        edge, start = self._tree.edge, self._tree.size
        for tile in self._tree.add(page):
            self._pages.check_tile(tile)
        # The root at the end waits until the tiles of the edge were looked at: they can be named, a root cannot.
        end = min(self._tree.size, self._newest.size - 1)
        if due := [known for known in self._checkpoints if start < known.size <= end]:
            check_roots(edge, page.split(), due)
