"""
Brings back the end of a log that its database has lost, from an export that still holds it.

The steps, in order; nothing is changed before the last two:

1. the export is verified, and the signer's last note and the newest stored checkpoint lie on its history;
2. the log in the database is verified, and is the beginning of the exported one: the same tree at its size;
3. the export's checkpoint becomes the signer's last note, if it is newer: from here on the signer refuses the log, and
   so nothing is appended to it, until all of it is back;
4. what is missing is replayed, entries to the byte, with payload parts, tiles, head and guarded rows, a few whole
   groups in one transaction, each under the head lock and only if the head is where the one before has left it. Parts
   that by an entry of the export are erased stay away, though an older copy of them may still lie in it.

Then whoever recovers erases what the backup has of it, too (`rerun_erasures`), and the signer puts its note back and
confirms the log by itself. A recovery that was cut off is gone on with by the same command. What is not in the log does
not come back: secrets of API keys made since, names behind actors.

Two logs of one origin need not share all: a database that was restored goes on another way than the one whose export
was kept, and from there on an index means one entry here and another there. `count_shared` says how many entries both
begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from psycopg import AsyncConnection

from ledger.erasing.rerun import ErasedParts, exported_erasures
from ledger.errors import LedgerError
from ledger.files.directory import LogDirectory, bundle_places, exported_edge
from ledger.format.checkpoint import Checkpoint
from ledger.format.note import VerifierKey
from ledger.format.rules import Progress, read_checkpoint
from ledger.format.sequence import Head
from ledger.format.tiles import TILE_WIDTH, frontier_of, tile_width
from ledger.recovering.replay import RecoveryError, Replay, Replayer, batches, read_groups
from ledger.signing.key_directory import KeyDirectory, SignedNote
from ledger.store.read import QUERIES, Connection, Log, read_head, read_leaves
from ledger.store.stored_tree import read_frontier
from ledger.verify.database import verify_database
from ledger.verify.directory import verify_directory

KEYS_WAIT_S: Final = 10.0
"""A round of the signer takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a recovery has brought back: entries from_index … to_index - 1; the log is now the exported one."""

    checkpoint: Checkpoint
    from_index: int
    to_index: int
    parts: int


async def recover_log(
    auditor: Connection,
    appender: AsyncConnection[Any],
    log: Log,
    path: Path,
    *,
    keys: KeyDirectory,
    replay: Replay,
    pinned: Sequence[VerifierKey] = (),
    progress: Progress = lambda _done, _of: None,
) -> Recovered:
    """
    Replay what the database has lost of a log from its export in the directory `path`.

    `auditor` and `appender` are connections of those roles in autocommit mode. If keys are `pinned`, one of them must
    have signed the export: those in the key directory may have been put there by whoever made it.

    Raises:
        RecoveryError: if the export does not go on from both the database and the signer's note, nothing is missing, or
            somebody else appends.
        BrokenError: if the export or the log in the database is broken.
        BusyKeyDirectoryError: if a signer holds the key directory for long.
    """
    directory, trusted = LogDirectory(path), keys.verifier_keys(log.origin)
    noted = keys.read_notes().get(log.origin)
    if pinned:
        read_checkpoint(directory.read_checkpoint(), pinned, where=str(directory.root), origin=log.origin)
    exported = await _verified(auditor, log, directory, noted, trusted, progress)  # 1
    head = await _check_beginning(auditor, log, directory, exported.checkpoint, trusted, progress)  # 2
    erased = ErasedParts(exported_erasures(path, size=exported.checkpoint.size))
    _keep(keys, exported, noted)  # 3
    start, size = head.size, exported.checkpoint.size
    edge = exported_edge(directory, size=start, of=size)
    replayer = Replayer(appender, log, replay, edge=edge, erased=erased)
    for batch in batches(read_groups(directory, start, size)):
        head = await replayer.add(batch, head)  # 4
        progress(head.size - start, size - start)
    return Recovered(checkpoint=exported.checkpoint, from_index=start, to_index=head.size, parts=replayer.parts)


async def _verified(
    auditor: Connection,
    log: Log,
    directory: LogDirectory,
    noted: SignedNote | None,
    trusted: Sequence[VerifierKey],
    progress: Progress,
) -> SignedNote:
    """Return the checkpoint of an export that is whole, of this log, and not behind what was signed."""
    note = directory.read_checkpoint()
    exported = read_checkpoint(note, trusted, where=str(directory.root), origin=log.origin)
    held: list[bytes] = []
    if noted is not None:
        held.append(noted.note)
        if noted.checkpoint.size > exported.size:
            raise RecoveryError(
                f"{directory.root} ends with {exported.size} entries, but the signer has signed "
                f"{noted.checkpoint.size}: name an export that holds them all, or go on under another origin "
                "(--new-origin)"
            )
    newest = await (await auditor.execute(QUERIES["latest_checkpoint"], {"log_id": log.log_id})).fetchone()
    if newest is not None:
        held.append(bytes(newest[1]))
    verify_directory(directory.root, trusted, held=held, progress=progress)
    return SignedNote(checkpoint=exported, note=note)


async def _check_beginning(
    auditor: Connection,
    log: Log,
    directory: LogDirectory,
    exported: Checkpoint,
    trusted: Sequence[VerifierKey],
    progress: Progress,
) -> Head:
    """Return the head of a log that is whole and the beginning of the exported one."""
    head = await read_head(auditor, log.log_id)
    if head.size >= exported.size:
        raise RecoveryError(
            f"log {log.origin} holds {head.size} entries, the export {exported.size}: nothing is missing that it has"
        )
    await verify_database(auditor, log, trusted, progress=progress)
    if frontier_of(exported_edge(directory, size=head.size, of=exported.size)) != head.frontier:
        index = await first_difference(auditor, log, directory, size=head.size, of=exported.size)
        raise RecoveryError(
            f"log {log.origin} and the export differ from index {index} on: the database went another way after the "
            "backup, and its entries cannot be kept; go on under another origin (--new-origin)"
        )
    return head


def _keep(keys: KeyDirectory, exported: SignedNote, noted: SignedNote | None) -> None:
    """Make the exported checkpoint the last note, if it is newer; `noted` is what it was compared with."""
    origin = exported.checkpoint.origin
    with keys.locked(timeout_s=KEYS_WAIT_S):
        notes = keys.read_notes()
        if notes.get(origin) != noted:
            raise RecoveryError(f"log {origin} was signed in the meantime: run this again")
        if noted is None or noted.checkpoint.size < exported.checkpoint.size:
            keys.keep_notes({**notes, origin: exported})


async def count_shared(auditor: Connection, log: Log, directory: LogDirectory, *, origin: str, size: int) -> int:
    """
    Return how many entries the log in the database and the exported one begin with, one like the other.

    The export, of `size` entries of the log `origin`, must have been verified.

    Raises:
        LedgerError: if it is of another log.
        BrokenError: (`Fault.TILE`) if a tile or a leaf hash is missing.
    """
    if origin != log.origin:
        raise LedgerError(f"{directory.root}: expected an export of {log.origin}, found one of {origin}")
    common = min((await read_head(auditor, log.log_id)).size, size)
    if await read_frontier(auditor, log.log_id, common) == frontier_of(exported_edge(directory, size=common, of=size)):
        return common
    return await first_difference(auditor, log, directory, size=common, of=size)


async def first_difference(auditor: Connection, log: Log, directory: LogDirectory, *, size: int, of: int) -> int:
    """
    Return the first index below `size` at which the leaf hashes of both logs differ; `size` if none does.

    Raises:
        UnreadableError, BrokenError: as `LogDirectory.read_tile`.
    """
    for index, width in bundle_places(size):
        first = index * TILE_WIDTH
        exported = directory.read_tile(0, index, tile_width(level=0, index=index, size=of)).hashes
        stored = await read_leaves(auditor, log.log_id, from_index=first, to_index=first + width)
        for position, leaf in enumerate(stored):
            if leaf != exported[position]:
                return first + position
    return size
