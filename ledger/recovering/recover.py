# SPDX-License-Identifier: Apache-2.0
"""
Recovers a log whose database has lost signed entries, from an export that still holds them; adopts stored checkpoints.

`recover_log` works in these steps. Nothing changes before step 3:

1. Verify the export. The signer's last note and the newest stored checkpoint must lie on its history.
2. Verify the log in the database. It must be a prefix of the exported log: the same tree at its size.
3. Make the export's checkpoint the signer's last note, if it is newer. From here on the signer refuses the log, so
   nothing is appended to it until it is complete.
4. Replay what is missing: entries byte for byte, payload parts, tiles, the head and guarded rows. Each transaction
   holds a few whole groups. It locks the head and continues only if the head is where the transaction before left it.
   Parts that an entry of the export erases are not restored, even if an older copy of the export still holds them.

The caller then repeats the erasures that the backup had forgotten (`rerun_erasures`). The signer puts its note back and
confirms the log. Running the same command again resumes an interrupted recovery. What is not in the log is not
restored: secrets of API keys issued since the backup, and the names behind actors.

Two logs of one origin can diverge: a restored database may have grown in another way than the exported log. From that
index on the same index means different entries. `count_shared` returns the length of the common prefix.

`read_adoptable` and `adopt` are for the opposite case: the key directory is older than the database, or its notes are
lost. A note is stored next to the key before it leaves, so otherwise no database holds a checkpoint without its note.
The database may have been set back as well, and no check here can tell. So an operator decides, who may ask a witness
or an auditor for the newest checkpoint they have seen. What is adopted was verified: every entry and every checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.erasing.rerun import ErasedParts, exported_erasures
from ledger.errors import LedgerError
from ledger.files.directory import LogDirectory, bundle_addresses, exported_edge
from ledger.format.checkpoint import Checkpoint
from ledger.format.note import VerifierKey
from ledger.format.sequence import LogHead
from ledger.format.tiles import TILE_WIDTH, frontier_of, tile_width
from ledger.format.verification import ProgressCallback, read_checkpoint
from ledger.recovering.replay import RecoveryError, Replayer, ReplayRules, batches, read_groups
from ledger.signing.key_directory import KeyDirectory, SignedNote
from ledger.store.read import QUERIES, Log, read_head, read_leaves
from ledger.store.session import Connection
from ledger.store.stored_tree import read_frontier
from ledger.verify.database import verify_database
from ledger.verify.directory import verify_directory

KEYS_WAIT_S: Final = 10.0
"""A round of the signer takes less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a recovery has restored: entries from_index … to_index - 1; the log now equals the exported one."""

    checkpoint: Checkpoint
    from_index: int
    to_index: int
    parts: int


async def recover_log(
    auditor: Connection,
    appender: Connection,
    log: Log,
    path: Path,
    *,
    keys: KeyDirectory,
    replay: ReplayRules,
    pinned: Sequence[VerifierKey] = (),
    progress: ProgressCallback = lambda _done, _of: None,
) -> Recovered:
    """
    Replay what the database has lost of a log from its export in the directory `path`.

    `auditor` and `appender` are connections of those roles in autocommit mode. If keys are `pinned`, one of them must
    have signed the export: whoever made the export might have written those in the key directory.

    Raises:
        RecoveryError: if the export does not extend both the database and the signer's note, nothing is missing, or
            another process appends.
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
    progress: ProgressCallback,
) -> SignedNote:
    """Return the checkpoint of an export that is complete, of this log, and not behind what was signed."""
    note = directory.read_checkpoint()
    exported = read_checkpoint(note, trusted, where=str(directory.root), origin=log.origin)
    held: list[bytes] = []
    if noted is not None:
        held.append(noted.note)
        if noted.checkpoint.size > exported.size:
            raise RecoveryError(
                f"{directory.root} ends with {exported.size} entries, but the signer has signed "
                f"{noted.checkpoint.size}: name an export that holds them all, or continue under another origin "
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
    progress: ProgressCallback,
) -> LogHead:
    """Return the head of a log that is intact and a prefix of the exported one."""
    head = await read_head(auditor, log.log_id)
    if head.size >= exported.size:
        raise RecoveryError(
            f"log {log.origin} holds {head.size} entries, the export {exported.size}: nothing is missing"
        )
    await verify_database(auditor, log, trusted, progress=progress)
    if frontier_of(exported_edge(directory, size=head.size, of=exported.size)) != head.frontier:
        index = await first_difference(auditor, log, directory, size=head.size, of=exported.size)
        raise RecoveryError(
            f"log {log.origin} and the export differ from index {index} on: the database diverged after the "
            "backup, and its entries cannot be kept; continue under another origin (--new-origin)"
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
    Return the number of entries in the common prefix of the log in the database and the exported one.

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
    for index, width in bundle_addresses(size):
        first = index * TILE_WIDTH
        exported = directory.read_tile(0, index, tile_width(level=0, index=index, size=of)).hashes
        stored = await read_leaves(auditor, log.log_id, from_index=first, to_index=first + width)
        for position, leaf in enumerate(stored):
            if leaf != exported[position]:
                return first + position
    return size


class NothingToAdoptError(LedgerError):
    """The signer knows of everything that was signed of this log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoptable:
    """What the signer would adopt: `stored`, instead of `noted`; the log has `size` entries and this root."""

    size: int
    root: bytes
    stored: SignedNote
    noted: SignedNote | None

    @property
    def checkpoint(self) -> Checkpoint:
        """The newest checkpoint that is stored."""
        return self.stored.checkpoint


async def read_adoptable(
    connection: Connection, log: Log, keys: KeyDirectory, *, progress: ProgressCallback = lambda _done, _of: None
) -> Adoptable:
    """
    Verify a log in the database against its newest checkpoint and the last note; return what could be adopted.

    `connection` works as the auditor, in autocommit mode.

    Raises:
        NothingToAdoptError: if the signer's note of the log is not behind the newest checkpoint.
        BrokenError: if the log is broken, or does not extend the note.
    """
    row = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log.log_id})).fetchone()
    noted = keys.read_notes().get(log.origin)
    if row is None:
        raise NothingToAdoptError(f"log {log.origin} has no checkpoint: the signer needs nothing to begin with it")
    note = bytes(row[1])
    stored = SignedNote(checkpoint=keys.open(note, log.origin), note=note)
    if noted is not None and noted.checkpoint.size >= stored.checkpoint.size:
        raise NothingToAdoptError(
            f"log {log.origin}: the signer's note is of size {noted.checkpoint.size}, the newest checkpoint in the "
            f"database of {stored.checkpoint.size}: there is nothing that the signer does not know of"
        )
    held = [noted.note] if noted else []
    report = await verify_database(connection, log, keys.verifier_keys(log.origin), held=held, progress=progress)
    return Adoptable(size=report.size, root=report.root, stored=stored, noted=noted)


def adopt(keys: KeyDirectory, adoptable: Adoptable) -> None:
    """
    Make the newest stored checkpoint the signer's last note of its log.

    Raises:
        NothingToAdoptError: if the notes have changed since `read_adoptable`.
        BusyKeyDirectoryError: if a signer holds the directory for long.
        OSError: if the note cannot be kept.
    """
    origin = adoptable.checkpoint.origin
    with keys.locked(timeout_s=KEYS_WAIT_S):
        notes = keys.read_notes()
        if notes.get(origin) != adoptable.noted:
            raise NothingToAdoptError(f"log {origin}: the signer's note has changed in the meantime: check again")
        keys.keep_notes({**notes, origin: adoptable.stored})
