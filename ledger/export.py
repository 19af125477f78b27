"""
Writes a log as a directory that anyone can verify without us (`directory.py` says what lies where).

Guarantee: the directory holds what is stored, up to the newest checkpoint, and nothing is repaired: if the log is
broken, so is its export, and the verifier says where. Each file appears whole or not at all, `checkpoint` last, so a
directory with one is complete. An export that was cut off, or whose log has grown, is gone on with: complete bundles
and tiles never change, so those that are there are kept; incomplete ones that are outgrown are removed.

Files are not forced to the disk one by one: an export is a copy, can be made again, and is verified where it arrives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from psycopg.sql import SQL, Identifier

from ledger.anchoring.published import read_cosigned_note, read_published_checkpoint, read_to_publish
from ledger.checkpoint import Checkpoint, parse_checkpoint
from ledger.directory import (
    CHECKPOINT_FILE,
    KEY_FILE,
    STAMP_FILE,
    TEMPORARY_SUFFIX,
    LogDirectory,
    UnreadableError,
    bundle_places,
    format_parts,
    is_log_file,
    log_files,
    parse_parts_path,
    parts_path,
    tile_places,
)
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.merkle import HASH_SIZE_BYTES
from ledger.note import VerifierKey, parse_note
from ledger.read import Connection, Log, read_entries, read_parts, read_tile
from ledger.sealing import PLAIN, Opener
from ledger.stored_tree import NoCheckpointError
from ledger.tiles import TILE_WIDTH, bundle_path, format_bundle, parse_bundle, tile_path
from ledger.verify.rules import Progress, read_checkpoint
from ledger.witness.policy import Policy

_PARTS_READ: Final = 256


class ExportRefusedError(LedgerError):
    """The directory cannot take this export: it holds something else, or cannot be written."""


async def export_log(
    connection: Connection,
    log: Log,
    path: Path,
    *,
    key: VerifierKey,
    policy: Policy | None,
    progress: Progress = lambda _done, _of: None,
) -> Checkpoint:
    """
    Write the log, up to its newest checkpoint, into the directory `path`, and return that checkpoint.

    `connection` reads as the auditor. `key` is the log's verifier key: what it has not signed is not exported. With a
    `policy`, nor is of the system log what too few witnesses have cosigned.

    Raises:
        NoCheckpointError: if nothing of the log has been signed yet.
        ExportRefusedError: if `path` holds anything but an earlier export of this log, or cannot be written.
        BrokenError: if the checkpoint is not signed by `key`, or an entry or a tile is missing.
    """
    note, checkpoint = await read_to_publish(connection, log, key=key, policy=policy)
    end = _End(note=note, checkpoint=checkpoint)
    return await _export(connection, log, _Writer(path), end, key=key, progress=progress)


async def export_stamped_log(
    connection: Connection,
    log: Log,
    path: Path,
    *,
    key: VerifierKey,
    policy: Policy | None,
    progress: Progress = lambda _done, _of: None,
) -> Checkpoint:
    """
    Write the log, up to its newest time-stamped checkpoint, with the stamp (RFC 3161) beside that, and return it.

    Raises:
        NoCheckpointError: if none of its checkpoints that may be published has been stamped yet.
        ExportRefusedError, BrokenError: as `export_log`.
    """
    published = await read_published_checkpoint(connection, log, keys=[key], policy=policy)
    if published is None or published.stamped is None:
        raise NoCheckpointError(
            f"log {log.origin} has no time-stamped checkpoint: only `system` is stamped, and only if "
            "LAKEPROOF_TIME_STAMP_URL names an authority"
        )
    stamped = published.stamped
    note = await read_cosigned_note(connection, log, size=stamped.size, note=stamped.note)
    checkpoint = read_checkpoint(note, [key], where="ledger.checkpoints", origin=log.origin)
    end = _End(note=note, checkpoint=checkpoint, token=stamped.token)
    return await _export(connection, log, _Writer(path), end, key=key, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """Up to where a log is exported: a checkpoint, the note that signs it, and a time stamp over that, if asked for."""

    note: bytes
    checkpoint: Checkpoint
    token: bytes | None = None


async def _export(
    connection: Connection, log: Log, writer: _Writer, end: _End, *, key: VerifierKey, progress: Progress
) -> Checkpoint:
    writer.begin(key, end.checkpoint)
    size = end.checkpoint.size
    for index, width in bundle_places(size):
        if not (width == TILE_WIDTH and writer.has_bundle(index)):
            first = index * TILE_WIDTH
            entries = await read_entries(connection, log.log_id, from_index=first, to_index=first + width)
            if len(entries) != width:
                missing = first + len(entries)
                raise BrokenError(
                    Fault.INDEX, where="ledger.entries", expected=f"entry {missing}", found="none", index=missing
                )
            writer.write(bundle_path(index, width), format_bundle(entries))
        progress(min((index + 1) * TILE_WIDTH, size), size)
    for level, index, width in tile_places(size):
        if not (width == TILE_WIDTH and writer.has_tile(level, index)):
            tile = await read_tile(connection, log.log_id, level=level, index=index, width=width)
            writer.write(tile_path(level, index, width), tile.pack())
    writer.finish(end)
    return end.checkpoint


async def export_parts(
    connection: Connection,
    log: Log,
    path: Path,
    *,
    opener: Opener = PLAIN,
    progress: Progress = lambda _done, _of: None,
) -> int:
    """
    Write beside an exported log the payload parts that still exist; return how many entries have some.

    This discloses what the parts hold, in the clear. `connection` reads as a role that may see them (`as_reader`),
    `opener` has the keys of those that are sealed.

    Raises:
        SubjectKeysError: if one is sealed and cannot be opened for want of keys.
        ExportRefusedError: if `path` is not an export of this log, or cannot be written.
    """
    writer = _Writer(path)
    exported = writer.exported()
    if exported is None or exported.origin != log.origin:
        raise ExportRefusedError(f"{path} is not an export of {log.origin}: export the log first")
    kept = {file for file in writer.directory.files() if parse_parts_path(file) is not None}
    written: set[str] = set()
    for first in range(0, exported.size, _PARTS_READ):
        end = min(first + _PARTS_READ, exported.size)
        found = await read_parts(connection, log.log_id, from_index=first, to_index=end, opener=opener)
        for index, parts in found.items():
            writer.write(parts_path(index), format_parts(index, parts.values()))
            written.add(parts_path(index))
        progress(end, exported.size)
    writer.remove(kept - written)  # parts that were erased since must not outlive that in a copy
    return len(written)


@asynccontextmanager
async def as_reader(connection: Connection, log: Log) -> AsyncIterator[None]:
    """
    Let `connection` read as the log's tenant does, payload parts included, in one transaction.

    Raises:
        LedgerError: if the log has no tenant: nobody may read the parts of the system log.
        psycopg.Error: if the connection's login may not take that role.
    """
    if log.reader is None:
        raise LedgerError(f"log {log.origin} belongs to no tenant: its payload parts are not given out")
    async with connection.transaction():
        await connection.execute(SQL("SET LOCAL ROLE {}").format(Identifier(log.reader)))
        yield


class _Writer:
    """Writes the files of one export. Owned by one call."""

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

    def begin(self, key: VerifierKey, checkpoint: Checkpoint) -> None:
        """Check that the directory is empty or holds an earlier export of this log, and mark it as one."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            occupied = any(file.suffix != TEMPORARY_SUFFIX for file in self.path.iterdir())
            if occupied and self._origin() != key.name:
                raise ExportRefusedError(
                    f"{self.path} is not empty and holds no export of {checkpoint.origin}: name an empty directory"
                )
        except OSError as error:
            raise _refused(self.path, error) from error
        earlier = self.exported()
        if earlier is not None and earlier.size > checkpoint.size:
            raise ExportRefusedError(
                f"{self.path} holds an export of {earlier.size} entries, the database has a checkpoint of "
                f"{checkpoint.size}, as after restoring a backup: name an empty directory to export it anyway"
            )
        self.write(KEY_FILE, (key.format() + "\n").encode())

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

    def remove(self, names: set[str]) -> None:
        """Remove files that are not to be there any more."""
        for name in names:
            try:
                (self.path / name).unlink()
            except OSError as error:
                raise _refused(self.path / name, error) from error

    def finish(self, end: _End) -> None:
        """Write the checkpoint and its stamp, then remove what an earlier export needed and this one does not."""
        files = self.directory.files()
        if end.token is not None:
            self.write(STAMP_FILE, end.token)
        elif STAMP_FILE in files:
            self.remove({STAMP_FILE})  # over another checkpoint
        self.write(CHECKPOINT_FILE, end.note)
        outgrown = files.difference(log_files(end.checkpoint.size))
        self.remove({name for name in outgrown if is_log_file(name)})

    def _origin(self) -> str | None:
        """Return whose export lies there, by the key beside it; the key itself may have been rotated since."""
        try:
            return VerifierKey.parse(self.directory.read_key()).name
        except (BrokenError, FormatError, UnreadableError):
            return None


def _refused(path: Path, error: OSError) -> ExportRefusedError:
    return ExportRefusedError(
        f"{path} cannot be written ({error.strerror or error}): make room, or name another directory"
    )
