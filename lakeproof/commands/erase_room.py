"""
The commands of `erasing.py`, done: what each of them prints is what its function here returns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from lakeproof.commands.room import LogRoom, OpenRoom
from ledger.erasing.erase import Asked, ErasingDesk, Erasure, NoSuchSubjectError, first_index_since
from ledger.erasing.rerun import exported_erasures
from ledger.errors import LedgerError
from ledger.files.directory import CHECKPOINT_FILE, LogDirectory
from ledger.format.events import ErasureReason, PayloadErased
from ledger.format.note import VerifierKey
from ledger.format.verification import Progress, read_checkpoint
from ledger.proving.export import as_reader
from ledger.recovering.recover import count_shared
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.verify.directory import verify_directory

_QUERIES: Final = load_queries("ledger.store", "look.sql")
_SUBJECT: Final = re.compile(r"[0-9a-f]{32}")
_REMAINS: Final = (
    "sealed copies in backups, replicas and archived WAL cannot be read any more; who it was, and what read models had "
    "of it, remains in WAL segments and free pages until they are written over (--reclaim writes those tables anew)"
)
_RECLAIMED: Final = (
    "the tables that held it were written anew; WAL segments from before go with the next checkpoints and archives, "
    "and backups from before say who it was until they expire"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """How long payload parts are kept, and which."""

    older_than: timedelta
    name: str | None
    type: str | None

    @property
    def is_everything(self) -> bool:
        """Whether all that is as old is meant."""
        return self.name is None and self.type is None


async def erase_person(open_room: OpenRoom, name: str, subject: str, *, reason: ErasureReason, reclaim: bool) -> str:
    """
    Erase a person (32 hex digits, or the identity that they log in with) from a log, and say what that did.

    Raises:
        NoSuchSubjectError: if the log knows nobody of that name.
        LedgerError: if it cannot be done.
    """
    async with open_room() as room, room.erasing_desk() as desk:
        log = await room.find_log(name)
        erased = await desk.eraser.erase_person(log, await _subject(room, log, subject), _asked(desk, reason))
        return await _finish(desk, log, erased, reclaim=reclaim)


async def erase_one_part(
    open_room: OpenRoom, name: str, *, index: int, part: str, reason: ErasureReason, reclaim: bool
) -> str:
    """
    Erase one payload part of one entry, and say what that did.

    Raises:
        NoSuchSubjectError: if the log has no such part.
        LedgerError: if it cannot be done.
    """
    async with open_room() as room, room.erasing_desk() as desk:
        log = await room.find_log(name)
        erased = await desk.eraser.erase_part(log, index, part, _asked(desk, reason))
        return await _finish(desk, log, [erased], reclaim=reclaim)


async def erase_older(open_room: OpenRoom, name: str, retained: Retained, *, reclaim: bool) -> str:
    """
    Erase the payload parts that were kept as long as they may be, and say what that did.

    Where all of them are meant, messages of that age that could not be handled are deleted, too.

    Raises:
        LedgerError: if it cannot be done.
    """
    async with open_room() as room, room.erasing_desk() as desk:
        log = await room.find_log(name)
        asked, since = _asked(desk, ErasureReason.RETENTION), desk.clock() - retained.older_than
        told = []
        if before := await first_index_since(desk.connection, log, since):
            erased = await desk.eraser.erase_before(log, before, asked, name=retained.name, type=retained.type)
            told.append(await _finish(desk, log, [erased], reclaim=reclaim))
        if retained.is_everything and (deleted := await room.kept_messages.delete_before(log, since)):
            told.append(f"{deleted:,} dead letters deleted: messages that could not be handled, as they came")
            if reclaim:
                await room.kept_messages.reclaim()
        return "\n".join(told) or "nothing was erased: nothing is as old as that"


async def erase_as_exported(
    open_room: OpenRoom, name: str, directory: Path, *, keys: list[VerifierKey], reclaim: bool, progress: Progress
) -> str:
    """
    Erase what an export of the log knows to be erased and the log itself, set back to a backup, does not.

    The log may have gone on another way since (with this very erasure, say): what an erasure names by its place is
    erased only among the entries that it shares with the export.

    Raises:
        BrokenError: if the export does not verify.
        LedgerError: if it cannot be done.
    """
    async with open_room() as room, room.erasing_desk() as desk:
        log = await room.find_log(name)
        report = verify_directory(directory, keys or _signing_keys(room, log, directory), progress=progress)
        files = LogDirectory(directory)
        shared = await count_shared(room.connection, log, files, origin=report.origin, size=report.size)
        erasures = list(exported_erasures(directory, size=report.size))
        known = [await _erase_again(desk, log, each, shared=shared) for each in erasures]
        told = await _finish(desk, log, [each for each in known if each is not None], reclaim=reclaim)
        elsewhere = sum(each.index is not None and each.index >= shared for each in erasures)
        if elsewhere:
            told += f"\n{elsewhere:,} more name entries that only the export has: both share those below {shared:,}"
        return told


def _signing_keys(room: LogRoom, log: Log, directory: Path) -> Sequence[VerifierKey]:
    """Return the keys that may have signed an export as large as this one: it may be from before a rotation."""
    history, note = room.key_history(), LogDirectory(directory).read_checkpoint()
    exported = read_checkpoint(note, history, where=CHECKPOINT_FILE, origin=log.origin)
    return history.keys_for(log.origin, exported.size)


async def _erase_again(desk: ErasingDesk, log: Log, erased: PayloadErased, *, shared: int) -> Erasure | None:
    """
    Erase what is there of it; None if this log has never come to know it.

    Entries from `shared` on are others than the exported ones, even those that are appended only now. A person is the
    same in both: nobody else is ever given those 128 random bits.
    """
    asked = _asked(desk, erased.reason)
    try:
        if erased.subject is not None:
            return await desk.eraser.erase_subject(log, erased.subject, asked)
        if erased.index is not None and erased.index < shared:
            return await desk.eraser.erase_part(log, erased.index, erased.name or "", asked)
    except NoSuchSubjectError:
        return None
    if not (before := min(erased.before or 0, shared)):
        return None
    return await desk.eraser.erase_before(log, before, asked, name=erased.name, type=erased.type)


async def _finish(desk: ErasingDesk, log: Log, erased: Sequence[Erasure], *, reclaim: bool) -> str:
    lines = [f"{each.parts:,} payload parts deleted; entry {each.index} of {each.origin} says so" for each in erased]
    if copies := sum(each.copies for each in erased):
        lines.append(f"{copies:,} copies of the login erased: in dead letters, waiting messages and files of this home")
    if not erased:
        return f"nothing was erased: {log.origin} knows nothing of it"
    if reclaim:
        await desk.reclaim(log, max(each.index for each in erased))
    return "\n".join((*lines, _RECLAIMED if reclaim else _REMAINS))


def _asked(desk: ErasingDesk, reason: ErasureReason) -> Asked:
    return Asked(reason=reason, at=desk.clock())


async def _subject(room: LogRoom, log: Log, name: str) -> str:
    if _SUBJECT.fullmatch(name):
        return name
    if log.reader is None:
        raise LedgerError(f"subject {name!r:.100}: expected 32 hex digits in a log without a tenant")
    async with as_reader(room.connection, log):
        query = {"log_id": log.log_id, "identity": name}
        row = await (await room.connection.execute(_QUERIES["actors_of_identity"], query)).fetchone()
    if row is None:
        raise NoSuchSubjectError(
            f"log {log.origin}: expected 32 hex digits or an identity that it knows, found neither"
        )
    return str(row[0])
