"""
Runs erasures again that a database has forgotten, before anything is served from it.

A database that was restored from an older backup, or was stopped in the middle of an erasure, holds what was erased.
Who knows better: its own log (`payload.erased`), the folder of keys (which lies elsewhere and never forgets a destroyed
key), and the exports of its log. Costs three look-ups where nothing is to be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ledger.directory import LogDirectory, bundle_places
from ledger.entry import parse_entry
from ledger.erase import carry_out, erase_person, parse_erasure
from ledger.events import PayloadErased
from ledger.queries import load_queries
from ledger.read import Connection
from ledger.sealing import SubjectKeys, SubjectKeysError

_QUERIES: Final = load_queries("ledger", "erasure.sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """
    How many erasures were run again, and how many parts that deleted.

    `unrecorded` are subjects, by log_id, whose keys were destroyed though this log does not say so: it was set back
    behind their erasure. They are to be erased again through the log (`Eraser.erase_subject`).
    """

    erasures: int
    parts: int
    unrecorded: tuple[tuple[int, str], ...]


async def rerun_erasures(connection: Connection, keys: SubjectKeys) -> Rerun:
    """
    Carry out every erasure that the logs know of and that this database, or the folder of keys, has forgotten.

    `connection` works as the eraser's role, in autocommit mode.

    Raises:
        FormatError: if a `payload.erased` is not one.
        SubjectKeysError: if a key cannot be destroyed.
    """
    erasures = parts = 0
    for log_id, index, entry in await _rows(connection, "erasures_to_do"):
        parts += await carry_out(connection, keys, log_id, index, parse_erasure(bytes(entry)))
        erasures += 1
    destroyed = await asyncio.to_thread(keys.destroyed)
    forgotten = {(log_id, subject) for log_id, subject in await _rows(connection, "erased_subjects")}
    forgotten = {each for each in forgotten if each[1] not in destroyed}
    forgotten.update((log_id, subject) for log_id, subject in await _rows(connection, "still_there"))
    for log_id, subject in sorted(forgotten):
        parts += await erase_person(connection, keys, log_id, subject)
        erasures += 1
    unrecorded = await _rows(connection, "unrecorded", subjects=list(destroyed)) if destroyed else []
    return Rerun(erasures=erasures, parts=parts, unrecorded=tuple((log_id, subject) for log_id, subject in unrecorded))


def exported_erasures(path: Path, *, size: int) -> Iterator[PayloadErased]:
    """
    Yield every erasure among the `size` entries of the log exported in `path`, in order. Verify the export first.

    Raises:
        UnreadableError: if it cannot be read.
        FormatError: if an entry is not one.
    """
    directory = LogDirectory(path)
    for index, width in bundle_places(size):
        for data in directory.read_bundle(index, width):
            if b'"payload.erased"' in data and parse_entry(data).type == PayloadErased.TYPE:
                yield parse_erasure(data)


async def check_key_folder(connection: Connection, keys_id: object) -> None:
    """
    Check that the folder of keys is the one that this database's parts were sealed with; the first one is remembered.

    `connection` works as the eraser's role. Another folder would take everybody's parts for erased.

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
