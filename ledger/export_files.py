"""
The directory that an export is written into: what is there already, and how files come and go.

Guarantee: each file appears whole or not at all, `checkpoint` after all that it covers, so a directory with one is
complete. The key and the time stamp of a checkpoint appear after it, and are gone before it is replaced: beside another
one they would accuse it.

Files are not forced to the disk one by one: an export is a copy, can be made again, and is verified where it arrives.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from ledger.checkpoint import Checkpoint, parse_checkpoint
from ledger.directory import (
    CHECKPOINT_FILE,
    KEY_FILE,
    STAMP_FILE,
    TEMPORARY_SUFFIX,
    LogDirectory,
    UnreadableError,
    is_log_file,
    log_files,
    parse_parts_path,
)
from ledger.errors import BrokenError, FormatError, LedgerError
from ledger.merkle import HASH_SIZE_BYTES
from ledger.note import VerifierKey, parse_note
from ledger.tiles import TILE_WIDTH, bundle_path, parse_bundle, tile_path


class ExportRefusedError(LedgerError):
    """The directory cannot take this export: it holds something else, or cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportEnd:
    """Up to where a log is exported: a checkpoint, note and key that sign it, a time stamp over that, if asked for."""

    note: bytes
    checkpoint: Checkpoint
    key: VerifierKey
    token: bytes | None = None

    @property
    def key_file(self) -> bytes:
        """The content of the file that holds the key."""
        return (self.key.format() + "\n").encode()


class ExportFiles:
    """The files of one export, read and written. Owned by one call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.directory = LogDirectory(path)

    def exported(self) -> Checkpoint | None:
        """Return the checkpoint that lies in the directory, believed, or None."""
        try:
            text, _ = parse_note(self.directory.read_checkpoint())
            return parse_checkpoint(text)
        except (BrokenError, FormatError, UnreadableError):
            return None

    def begin(self, end: ExportEnd) -> None:
        """Check that the directory is empty or holds an earlier export of this log, and mark it as one."""
        checkpoint, earlier = end.checkpoint, self.exported()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            occupied = any(file.suffix != TEMPORARY_SUFFIX for file in self.path.iterdir())
            if occupied and checkpoint.origin not in {self._origin_of_key(), earlier and earlier.origin}:
                raise ExportRefusedError(
                    f"{self.path} is not empty and holds no export of {checkpoint.origin}: name an empty directory"
                )
        except OSError as error:
            raise _refused(self.path, error) from error
        if earlier is not None and earlier.size > checkpoint.size:
            raise ExportRefusedError(
                f"{self.path} holds an export of {earlier.size} entries, the database has a checkpoint of "
                f"{checkpoint.size}, as after restoring a backup: name an empty directory to export it anyway"
            )
        if earlier is None:
            self.write(KEY_FILE, end.key_file)

    def has_bundle(self, index: int) -> bool:
        """Tell whether a complete bundle is there, so that it need not be read again."""
        try:
            return len(parse_bundle((self.path / bundle_path(index)).read_bytes())) == TILE_WIDTH
        except (OSError, FormatError):
            return False

    def has_tile(self, level: int, index: int) -> bool:
        """Tell whether a complete tile is there, so that it need not be read again."""
        try:
            return (self.path / tile_path(level, index)).stat().st_size == TILE_WIDTH * HASH_SIZE_BYTES
        except OSError:
            return False

    def write(self, name: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        file = self.path / name
        unfinished = file.with_name(file.name + TEMPORARY_SUFFIX)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(data)
            unfinished.replace(file)
        except OSError as error:
            raise _refused(file, error) from error

    def remove(self, names: AbstractSet[str]) -> None:
        """Remove files that are not to be there any more."""
        for name in names:
            try:
                (self.path / name).unlink()
            except OSError as error:
                raise _refused(self.path / name, error) from error

    def finish(self, end: ExportEnd) -> None:
        """Write the checkpoint and its stamp, then remove what an earlier export needed and this one does not."""
        files = self.directory.files()
        self.remove(disclosed_in(files))  # before the entries that say what was erased of it
        kept = {KEY_FILE} if self._has_key(end) else set()
        self.remove(files & ({STAMP_FILE, KEY_FILE} - kept))
        self.write(CHECKPOINT_FILE, end.note)
        if not kept:
            self.write(KEY_FILE, end.key_file)
        if end.token is not None:
            self.write(STAMP_FILE, end.token)
        outgrown = files.difference(log_files(end.checkpoint.size))
        self.remove({name for name in outgrown if is_log_file(name)})

    def _has_key(self, end: ExportEnd) -> bool:
        try:
            return self.directory.read_key() == end.key.format()
        except (BrokenError, UnreadableError):
            return False

    def _origin_of_key(self) -> str | None:
        """Return whose export lies there, by the key beside it; the key itself may have been rotated since."""
        try:
            return VerifierKey.parse(self.directory.read_key()).name
        except (BrokenError, FormatError, UnreadableError):
            return None


def disclosed_in(files: Iterable[str]) -> set[str]:
    """
    Return which of these files of an export hold payload parts, those of one that was cut off included.
    """
    return {file for file in files if parse_parts_path(file.removesuffix(TEMPORARY_SUFFIX)) is not None}


def _refused(path: Path, error: OSError) -> ExportRefusedError:
    return ExportRefusedError(
        f"{path} cannot be written ({error.strerror or error}): make room, or name another directory"
    )
