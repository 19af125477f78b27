"""
Lets the signer go on from checkpoints in a database of which its key directory knows nothing, or only earlier ones.

A note is kept beside the key before it leaves, so a database never holds a checkpoint without its note, unless the
notes were lost, or the key directory was restored from an older backup. The database may have been set back as well,
behind what others hold; nobody here can tell. So a person decides, who may have asked a witness or an auditor for the
newest checkpoint they have seen. What is adopted was verified: every entry of it, and every checkpoint that is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.errors import LedgerError
from ledger.format.checkpoint import Checkpoint
from ledger.format.rules import Progress
from ledger.signing.key_directory import KeyDirectory, SignedNote
from ledger.store.read import QUERIES, Connection, Log
from ledger.verify.database import verify_database

ADOPT_WAIT_S: Final = 10.0
"""A round of the signer takes less."""


class NothingToAdoptError(LedgerError):
    """The signer knows of everything that was signed of this log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoptable:
    """What the signer would go on from: `stored`, instead of `noted`; the log has `size` entries and this root."""

    size: int
    root: bytes
    stored: SignedNote
    noted: SignedNote | None

    @property
    def checkpoint(self) -> Checkpoint:
        """The newest checkpoint that is stored."""
        return self.stored.checkpoint


async def read_adoptable(
    connection: Connection, log: Log, keys: KeyDirectory, *, progress: Progress = lambda _done, _of: None
) -> Adoptable:
    """
    Verify a log in the database against its newest checkpoint and the last note; return what could be adopted.

    `connection` works as the auditor, in autocommit mode.

    Raises:
        NothingToAdoptError: if the signer's note of the log is not behind the newest checkpoint.
        BrokenError: if the log is broken, or does not go on from the note.
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
        NothingToAdoptError: if the notes have changed since it was looked at.
        BusyKeyDirectoryError: if a signer holds the directory for long.
        OSError: if the note cannot be kept.
    """
    origin = adoptable.checkpoint.origin
    with keys.locked(timeout_s=ADOPT_WAIT_S):
        notes = keys.read_notes()
        if notes.get(origin) != adoptable.noted:
            raise NothingToAdoptError(f"log {origin}: the signer's note has changed in the meantime: look again")
        keys.keep_notes({**notes, origin: adoptable.stored})
