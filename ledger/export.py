"""
Writes a log as a directory that anyone can verify without us (`directory.py` says what lies where).

Guarantee: the directory holds what is stored, up to the newest checkpoint, and nothing is repaired: if the log is
broken, so is its export, and the verifier says where. An export that was cut off, or whose log has grown, is gone on
with: complete bundles and tiles never change, so those that are there are kept (`export_files.py`); incomplete ones
that are outgrown are removed.

Payload parts that an earlier export has disclosed are removed: from the log alone nobody can tell which of them are
erased by now. `export_parts` writes those that still exist, each time anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from psycopg.sql import SQL, Identifier

from ledger.anchoring.published import (
    read_cosigned_note,
    read_published_checkpoint,
    read_to_publish,
    signing_key,
)
from ledger.checkpoint import Checkpoint
from ledger.directory import bundle_places, format_parts, parts_path, tile_places
from ledger.erasing.sealing import PLAIN, Opener
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.export_files import ExportEnd, ExportFiles, ExportRefusedError, disclosed_in
from ledger.note import VerifierKey
from ledger.read import Connection, Log, read_entries, read_parts, read_tile
from ledger.stored_tree import NoCheckpointError
from ledger.tiles import TILE_WIDTH, bundle_path, format_bundle, tile_path
from ledger.verify.rules import Progress, read_checkpoint
from ledger.verify.trusted import Trusted
from ledger.witness.policy import Policy

_PARTS_READ: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Up to where a log was exported, and the key that has signed that: with it, the export is verified."""

    checkpoint: Checkpoint
    key: VerifierKey


async def export_log(
    connection: Connection,
    log: Log,
    path: Path,
    *,
    keys: Trusted,
    policy: Policy | None,
    progress: Progress = lambda _done, _of: None,
) -> Exported:
    """
    Write the log, up to its newest checkpoint, into the directory `path`, and return that checkpoint.

    No payload parts are there afterwards, whatever an earlier export has disclosed.

    `connection` reads as the auditor. `keys` are all that have ever signed the log: what none of them has signed is not
    exported. With a `policy`, nor is of the system log what too few witnesses have cosigned.

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
    policy: Policy | None,
    progress: Progress = lambda _done, _of: None,
) -> Exported:
    """
    Write the log, up to its newest time-stamped checkpoint, with the stamp (RFC 3161) beside that, and return it.

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
    connection: Connection, log: Log, writer: ExportFiles, end: ExportEnd, *, progress: Progress
) -> Exported:
    writer.begin(end)
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
    return Exported(checkpoint=end.checkpoint, key=end.key)


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
