# SPDX-License-Identifier: Apache-2.0
"""
Repeats erasures that a database has forgotten, before anything is served from it.

A database that was restored from an older backup, or was stopped in the middle of an erasure, holds what was erased.
Its own log (`payload.erased`), the key folder (which is stored elsewhere and remembers every destroyed key), and the
exports of its log say what that is. If there is nothing to do, this costs three queries.

Where parts are written anew, from a copy that is older than an erasure, `ErasedParts` excludes what the log's own
`payload.erased` entries name. Of many erasures by age only the latest of each kind counts, so it stays small for a log
with daily retention.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ledger.erasing.execution import (
    Copies,
    ErasureTargets,
    NoCopies,
    RecordedErasure,
    erase_person,
    execute_erasure_if_free,
    parse_erasure,
)
from ledger.errors import LedgerError
from ledger.files.directory import LogDirectory, bundle_addresses
from ledger.format.entry import parse_entry
from ledger.format.events import PayloadErased
from ledger.format.sealing import SubjectKeys, SubjectKeysError
from ledger.store.queries import load_queries
from ledger.store.session import Connection

_QUERIES: Final = load_queries("ledger.store", "erasure.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """
    How many erasures were repeated, and how many parts that deleted.

    `unrecorded` are subjects, by log_id, whose keys were destroyed although this log does not record it: the log was
    set back behind their erasure. Erase them again through the log (`Eraser.erase_subject`). `failed` maps the log_ids
    of logs whose erasures could not be executed to the first reason: none of them may be confirmed.
    """

    erasures: int
    parts: int
    unrecorded: tuple[tuple[int, str], ...]
    failed: Mapping[int, LedgerError]


async def rerun_erasures(connection: Connection, keys: SubjectKeys, copies: Copies | None = None) -> Rerun:
    """
    Execute every erasure that the logs record and that this database, or the key folder, has forgotten.

    Superseded generations of read models are dropped, too: a running rebuild may have kept them.

    `connection` works as the eraser's role, in autocommit mode. An erasure that another process is executing is left to
    it. A log whose erasures fail does not stop those of the others.

    Raises:
        SubjectKeysError: if the key folder cannot be read.
    """
    erasing = ErasureTargets(connection=connection, keys=keys, copies=copies or NoCopies())
    erasures = parts = 0
    failed: dict[int, LedgerError] = {}
    for log_id, index, entry in await _rows(connection, "erasures_to_do"):
        try:
            recorded = RecordedErasure(log_id=log_id, index=index, event=parse_erasure(bytes(entry)))
            deleted = await execute_erasure_if_free(erasing, recorded)
        except LedgerError as error:
            failed.setdefault(log_id, error)
            continue
        if deleted is not None:
            erasures, parts = erasures + 1, parts + deleted.parts
    destroyed = await asyncio.to_thread(keys.destroyed)
    forgotten = {(log_id, subject) for log_id, subject in await _rows(connection, "erased_subjects")}
    forgotten = {each for each in forgotten if each[1] not in destroyed}
    forgotten.update((log_id, subject) for log_id, subject in await _rows(connection, "erased_with_remains"))
    for log_id, subject in sorted(forgotten):
        try:
            parts += (await erase_person(erasing, log_id, subject)).parts
        except LedgerError as error:
            failed.setdefault(log_id, error)
        else:
            erasures += 1
    await erasing.copies.drop_superseded()
    unrecorded = await _rows(connection, "unrecorded", subjects=list(destroyed)) if destroyed else []
    return Rerun(
        erasures=erasures,
        parts=parts,
        unrecorded=tuple((log_id, subject) for log_id, subject in unrecorded),
        failed=failed,
    )


async def erase_before_confirming(
    connection: Connection, keys: SubjectKeys, log_ids: Collection[int], copies: Copies | None = None
) -> Mapping[int, LedgerError]:
    """
    Execute all known erasures before these logs accept entries again; return the logs where that failed, and why.

    Subjects that only the key folder knows to be erased are erased, too. `read_unrecorded` finds that their log does
    not record it yet. Other logs are left alone: one that is still to be recovered from an export will record it then.

    Raises:
        SubjectKeysError: if the key folder cannot be read.
    """
    done = await rerun_erasures(connection, keys, copies)
    erasing = ErasureTargets(connection=connection, keys=keys, copies=copies or NoCopies())
    failed = dict(done.failed)
    for log_id, subject in done.unrecorded:
        if log_id in log_ids:
            try:
                await erase_person(erasing, log_id, subject)
            except LedgerError as error:
                failed.setdefault(log_id, error)
    return failed


async def read_unrecorded(connection: Connection) -> list[tuple[int, str]]:
    """
    Return the subjects, by log_id, that are erased in this database although no log records it yet.
    """
    return [(log_id, subject) for log_id, subject in await _rows(connection, "erased_unrecorded")]


async def read_confirmed_logs(connection: Connection) -> frozenset[int]:
    """
    Return the log_ids of the logs that are confirmed, and so accept entries.
    """
    return frozenset(log_id for (log_id,) in await _rows(connection, "confirmed_log_ids"))


def exported_erasures(path: Path, *, size: int) -> Iterator[PayloadErased]:
    """
    Yield every erasure of its own parts among the `size` entries of the log exported in `path`, in order.

    Verify the export first.

    Raises:
        UnreadableError: if it cannot be read.
        FormatError: if an entry is not one.
    """
    directory = LogDirectory(path)
    for index, width in bundle_addresses(size):
        for data in directory.read_bundle(index, width):
            if b'"payload.erased"' not in data or parse_entry(data).type != PayloadErased.TYPE:
                continue
            if isinstance(statement := parse_erasure(data), PayloadErased):
                yield statement


async def check_key_folder(connection: Connection, keys_id: object) -> None:
    """
    Check that the key folder is the one that this database's parts were sealed with; the first one is remembered.

    `connection` works as the eraser's role. With another folder, everybody's parts would seem erased.

    Raises:
        SubjectKeysError: if it is another one.
    """
    row = await (await connection.execute(_QUERIES["key_folder"], {"id": keys_id})).fetchone()
    if row is None or row[0] != keys_id:
        raise SubjectKeysError(
            f"the parts in this database were sealed with the keys of folder {row and row[0]}, found folder {keys_id}: "
            "restore keys/subjects in the home from its newest backup, or share it between the processes"
        )


async def _rows(connection: Connection, query: str, **parameters: object) -> list[tuple[Any, ...]]:
    return await (await connection.execute(_QUERIES[query], parameters)).fetchall()


class ErasedParts:
    """The parts that some erasures name; each erasure was checked (`events.check_erased`)."""

    def __init__(self, erasures: Iterable[PayloadErased]) -> None:
        self._subjects: set[str] = set()
        self._single: set[tuple[int, str | None]] = set()
        self._before: dict[tuple[str | None, str | None], int] = {}
        for erased in erasures:
            if erased.subject is not None:
                self._subjects.add(erased.subject)
            elif erased.index is not None:
                self._single.add((erased.index, erased.name))
            elif erased.before is not None:
                kind = (erased.name, erased.type)
                self._before[kind] = max(erased.before, self._before.get(kind, 0))

    def covers(self, *, index: int, type: str, part: str, subject: str | None) -> bool:  # noqa: A002  (an entry's word)
        """
        Return whether `part` of the entry at `index`, of this `type`, is erased; `subject` is who it is about, if
        anybody.
        """
        if subject in self._subjects or (index, part) in self._single:
            return True
        kinds = ((None, None), (part, None), (None, type), (part, type))
        return any(index < self._before.get(kind, 0) for kind in kinds)
