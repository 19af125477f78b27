# SPDX-License-Identifier: Apache-2.0
"""
Exports a log as a directory that anyone can verify without us, or serves the same files one by one (C2SP tlog-tiles).

`files/directory.py` says which file lies where.

Guarantee: the directory holds what is stored, up to the newest checkpoint, and nothing is repaired. If the log is
broken, so is its export, and the verifier says where. Running an export again completes an interrupted one, and extends
one whose log has grown: complete bundles and tiles never change, so they are kept. Incomplete ones are removed once
they are outgrown.

Payload parts that an earlier export disclosed are removed, because the log alone does not tell which of them have been
erased since. `export_parts` writes those that still exist, each time anew.

Each file appears whole or not at all. `checkpoint` appears after all that it covers, so a directory with a checkpoint
is complete. The key and the time stamp of a checkpoint appear after it, and are removed before it is replaced, because
next to another checkpoint they would contradict it. Files are not synced one by one: an export is a copy, can be made
again, and is verified where it arrives.

`read_resource` serves nothing that the newest signed checkpoint does not cover, so a client sees the log grow from one
signed tree to the next. A partial tile or bundle is a prefix of its complete form, computed on request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from psycopg.sql import SQL, Identifier

from ledger.anchoring.published import read_cosigned_note, read_published_checkpoint, read_to_publish, signing_key
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.files.atomic import SHARED, Forced, replace_file
from ledger.files.directory import (
    CHECKPOINT_FILE,
    KEY_FILE,
    STAMP_FILE,
    TEMPORARY_SUFFIX,
    LogDirectory,
    bundle_addresses,
    format_parts,
    is_bundle,
    is_log_file,
    log_files,
    parse_parts_path,
    parts_path,
    tile_addresses,
)
from ledger.files.regular_file import UnreadableError
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.key_history import Trusted
from ledger.format.merkle import HASH_SIZE_BYTES
from ledger.format.note import VerifierKey, parse_note
from ledger.format.sealing import PLAIN, Opener
from ledger.format.tiles import (
    TILE_WIDTH,
    bundle_path,
    format_bundle,
    parse_bundle,
    parse_bundle_path,
    parse_tile_path,
    tile_path,
    tile_width,
)
from ledger.format.verification import ProgressCallback, read_checkpoint
from ledger.format.witness_policy import WitnessPolicy
from ledger.store.read import QUERIES, Log, read_entries, read_parts, read_tile
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError

_PARTS_READ: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Up to where a log was exported, and the key that has signed that; with it, the export can be verified."""

    checkpoint: Checkpoint
    key: VerifierKey


async def export_log(
    connection: Connection,
    log: Log,
    path: Path,
    *,
    keys: Trusted,
    policy: WitnessPolicy | None,
    progress: ProgressCallback = lambda _done, _of: None,
) -> Exported:
    """
    Write the log, up to its newest checkpoint, into the directory `path`, and return that checkpoint.

    Payload parts that an earlier export disclosed are removed.

    `connection` reads as the auditor. `keys` are all that have ever signed the log; what none of them has signed is not
    exported. With a `policy`, the system log is exported only up to a checkpoint that enough witnesses have cosigned.

    Raises:
        NoCheckpointError: if nothing of the log has been signed yet.
        ExportRefusedError: if `path` holds anything but an earlier export of this log, or cannot be written.
        BrokenError: if the checkpoint is not signed by one of `keys`, or an entry or a tile is missing.
    """
    note, checkpoint = await read_to_publish(connection, log, keys=keys, policy=policy)
    end = ExportEnd(note=note, checkpoint=checkpoint, key=signing_key(note, checkpoint, keys=keys))
    return await _export(connection, log, ExportFiles(path), end, progress=progress)


async def export_stamped_log(
    connection: Connection,
    log: Log,
    path: Path,
    *,
    keys: Trusted,
    policy: WitnessPolicy | None,
    progress: ProgressCallback = lambda _done, _of: None,
) -> Exported:
    """
    Write the log, up to its newest time-stamped checkpoint, and its time stamp (RFC 3161); return the checkpoint.

    Raises:
        NoCheckpointError: if none of its checkpoints that may be published has been stamped yet.
        ExportRefusedError, BrokenError: as `export_log`.
    """
    published = await read_published_checkpoint(connection, log, keys=keys, policy=policy)
    if published is None or published.stamped is None:
        raise NoCheckpointError(
            f"log {log.origin} has no time-stamped checkpoint: only `system` is stamped, and only if "
            "LAKEPROOF_TIME_STAMP_URL names an authority"
        )
    stamped = published.stamped
    note = await read_cosigned_note(connection, log, size=stamped.size, note=stamped.note)
    checkpoint = read_checkpoint(note, keys, where="ledger.checkpoints", origin=log.origin)
    key = signing_key(note, checkpoint, keys=keys)
    end = ExportEnd(note=note, checkpoint=checkpoint, key=key, token=stamped.token)
    return await _export(connection, log, ExportFiles(path), end, progress=progress)


async def _export(
    connection: Connection, log: Log, writer: ExportFiles, end: ExportEnd, *, progress: ProgressCallback
) -> Exported:
    writer.begin(end)
    size = end.checkpoint.size
    for index, width in bundle_addresses(size):
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
    for level, index, width in tile_addresses(size):
        if not (width == TILE_WIDTH and writer.has_tile(level, index)):
            tile = await read_tile(connection, log.log_id, level=level, index=index, width=width)
            writer.write(tile_path(level, index, width), tile.pack())
    writer.finish(end)
    return Exported(checkpoint=end.checkpoint, key=end.key)


async def export_parts(
    connection: Connection,
    log: Log,
    path: Path,
    *,
    opener: Opener = PLAIN,
    progress: ProgressCallback = lambda _done, _of: None,
) -> int:
    """
    Add the payload parts that still exist to an exported log; return how many entries have some.

    This discloses the content of the parts, in the clear. `connection` reads as a role that may see them (`as_reader`);
    `opener` has the keys of sealed parts.

    Raises:
        SubjectKeysError: if one is sealed and its key is not available.
        ExportRefusedError: if `path` is not an export of this log, or cannot be written.
    """
    writer = ExportFiles(path)
    exported = writer.exported()
    if exported is None or exported.origin != log.origin:
        raise ExportRefusedError(f"{path} is not an export of {log.origin}: export the log first")
    before = disclosed_in(writer.directory.files())
    written: set[str] = set()
    for first in range(0, exported.size, _PARTS_READ):
        end = min(first + _PARTS_READ, exported.size)
        found = await read_parts(connection, log.log_id, from_index=first, to_index=end, opener=opener)
        for index, parts in found.items():
            writer.write(parts_path(index), format_parts(index, parts.values()))
            written.add(parts_path(index))
        progress(end, exported.size)
    writer.remove(before - written)  # parts that were erased since must not outlive that in a copy
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


class ExportRefusedError(LedgerError):
    """The directory cannot take this export: it holds something else, or cannot be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportEnd:
    """Where an export ends: a checkpoint, its note, the key that signed it and, on request, a time stamp over it."""

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
        """Return the checkpoint in the directory, unverified, or None."""
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
        """Return whether a complete bundle exists, so that it need not be read again."""
        try:
            return len(parse_bundle((self.path / bundle_path(index)).read_bytes())) == TILE_WIDTH
        except (OSError, FormatError):
            return False

    def has_tile(self, level: int, index: int) -> bool:
        """Return whether a complete tile exists, so that it need not be read again."""
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
            replace_file(file, data, mode=SHARED, forced=Forced.NOTHING, temporary=unfinished)
        except OSError as error:
            raise _refused(file, error) from error

    def remove(self, names: AbstractSet[str]) -> None:
        """Remove files."""
        for name in names:
            try:
                (self.path / name).unlink()
            except OSError as error:
                raise _refused(self.path / name, error) from error

    def finish(self, end: ExportEnd) -> None:
        """Write the checkpoint and its stamp, then remove what only an earlier export needed."""
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
        """
        Return the origin of the export in the directory, from its key file; the key may have been rotated since.
        """
        try:
            return VerifierKey.parse(self.directory.read_key()).name
        except (BrokenError, FormatError, UnreadableError):
            return None


def disclosed_in(files: Iterable[str]) -> set[str]:
    """
    Return which of these files of an export hold payload parts, including those of an interrupted export.
    """
    return {file for file in files if parse_parts_path(file.removesuffix(TEMPORARY_SUFFIX)) is not None}


def _refused(path: Path, error: OSError) -> ExportRefusedError:
    return ExportRefusedError(
        f"{path} cannot be written ({error.strerror or error}): free some space, or name another directory"
    )


OCTETS: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"


class NotPublishedError(LedgerError):
    """A log has no such resource, or the newest signed checkpoint does not cover it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """The content of one resource. `is_final` if it never changes; `is_entries` if it is a bundle."""

    content: bytes
    content_type: str
    is_final: bool
    is_entries: bool = False


async def read_resource(connection: Connection, log: Log, path: str) -> Resource:
    """
    Return what is published of a log at `path`, relative to it: `checkpoint`, `tile/0/x001/067`, `tile/entries/000`.

    Nothing of the system log is published: operators and their auditors get an export of it.

    `connection` reads as any role that sees the log. What is stored is returned as it is; the client verifies it.

    Raises:
        NotPublishedError: if there is no such resource, or not yet.
        BrokenError: if something is missing in the database.
    """
    if log.tenant is None:
        raise NotPublishedError(f"log {log.origin} belongs to no tenant: it is not published, but exported")
    note, checkpoint = await _newest(connection, log)
    if path == CHECKPOINT_FILE:
        return Resource(content=note, content_type=TEXT, is_final=False)
    try:
        level, index, width = (0, *parse_bundle_path(path)) if is_bundle(path) else parse_tile_path(path)
    except FormatError as error:
        raise NotPublishedError(f"{path!r:.100}: expected 'checkpoint' or the path of a tile, found neither") from error
    if tile_width(level=level, index=index, size=checkpoint.size) < width:
        raise NotPublishedError(f"{path}: expected a place in a signed tree of {checkpoint.size} entries")
    if not is_bundle(path):
        tile = await read_tile(connection, log.log_id, level=level, index=index, width=width)
        return Resource(content=tile.pack(), content_type=OCTETS, is_final=True)
    first = index * TILE_WIDTH
    entries = await read_entries(connection, log.log_id, from_index=first, to_index=first + width)
    if len(entries) != width:
        missing = first + len(entries)
        raise BrokenError(Fault.INDEX, where="ledger.entries", expected=f"entry {missing}", found="none", index=missing)
    return Resource(content=format_bundle(entries), content_type=OCTETS, is_final=True, is_entries=True)


async def _newest(connection: Connection, log: Log) -> tuple[bytes, Checkpoint]:
    row = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log.log_id})).fetchone()
    if row is None:
        raise NotPublishedError(f"log {log.origin} has no signed checkpoint yet: try again in a moment")
    note = bytes(row[1])
    try:
        text, _ = parse_note(note)
        return note, parse_checkpoint(text)
    except FormatError as error:
        where = f"ledger.checkpoints size {row[0]}"
        raise BrokenError(Fault.CHECKPOINT, where=where, expected="a signed checkpoint", found=error) from error
