# SPDX-License-Identifier: Apache-2.0
"""
PostgreSQL as the source of evidence: entries, tiles and checkpoints as the auditor reads them, parts as the tenant.

A bundle is best proven against a checkpoint that the system log has anchored: then one cosigned or time-stamped
checkpoint of the system log covers it. The newest anchor and its checkpoint are looked up when a source is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from ledger.anchoring.anchors import anchor_key, parse_anchor
from ledger.anchoring.published import Published, read_published_checkpoint
from ledger.format.entry import parse_entry
from ledger.format.event import Part
from ledger.format.note import VerifierKey
from ledger.format.proof import prove_entries
from ledger.format.sealing import PLAIN, Opener
from ledger.format.verification import read_checkpoint
from ledger.format.witness_policy import WitnessPolicy
from ledger.proving.evidence.bundle import BundledEntry, Section
from ledger.proving.evidence.gather import EvidenceCheckpoint
from ledger.proving.export import as_reader
from ledger.store.queries import load_queries
from ledger.store.read import QUERIES as LOG_QUERIES
from ledger.store.read import Log, read_entries, read_parts
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError, compute_on_subtrees

_QUERIES: Final = load_queries("ledger.store", "evidence.sql")
_PAGE: Final = 500
SEARCHED_ENTRIES: Final = 20_000
"""So many entries are searched by one statement: between two of them a search can be given up."""

Looked = Callable[[int, int], None]
"""Called with how many entries were searched, and of how many."""


class DatabaseSource:
    """A log in the database (implements `gather.EvidenceSource`); opened by `open_source`. Owned by one task."""

    def __init__(
        self,
        connection: Connection,
        log: Log,
        *,
        newest: EvidenceCheckpoint,
        anchored: EvidenceCheckpoint | None,
        opener: Opener,
        looked: Looked,
    ) -> None:
        self.newest = newest
        self.anchored = anchored
        self._connection = connection
        self._log = log
        self._opener = opener
        self._looked = looked

    async def entries(self, first: int, end: int) -> Sequence[bytes]:
        """Return the entries `first` … `end` - 1."""
        return await read_entries(self._connection, self._log.log_id, from_index=first, to_index=end)

    async def first_of_group(self, group_id: UUID) -> int | None:
        """Return the index of the first entry of a group, or None."""
        row = await self._fetch("group_index", group_id=group_id)
        return row[0][0] if row else None

    async def containing(self, texts: Collection[bytes], *, first: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` on that contain each of `texts`."""
        size, at, found = self.newest.checkpoint.size, first, list[bytes]()
        while at < size and len(found) < limit:
            end = min(at + SEARCHED_ENTRIES, size)
            searched = {"texts": list(texts), "first": at, "end": end, "limit": limit - len(found)}
            found += [bytes(row[0]) for row in await self._fetch("entries_containing", **searched)]
            self._looked(end, size)
            at = end
        return found

    async def about(self, key: str, *, first: int, end: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` to `end` - 1 about a key."""
        rows = await self._fetch("entries_about", key=key, first=first, end=end, limit=limit)
        self._looked(end, end)
        return [bytes(row[0]) for row in rows]

    async def control_entries(self, *, end: int) -> Sequence[bytes]:
        """Return the control entries below index `end`, in order."""
        found: list[bytes] = []
        after = -1
        while True:
            bounds = {"log_id": self._log.log_id, "after": after, "limit": _PAGE}
            rows = await (await self._connection.execute(LOG_QUERIES["control_entries"], bounds)).fetchall()
            found += [bytes(entry) for index, entry in rows if index < end]
            if len(rows) < _PAGE or rows[-1][0] >= end:
                return found
            after = rows[-1][0]

    async def parts(self, index: int) -> Mapping[str, Part]:
        """Return the payload parts of an entry that still exist, read as the log's tenant."""
        async with as_reader(self._connection, self._log):
            found = await read_parts(
                self._connection, self._log.log_id, from_index=index, to_index=index + 1, opener=self._opener
            )
        return found.get(index, {})

    async def prove(self, indexes: Sequence[int], *, size: int) -> Sequence[bytes]:
        """Return the proof of these entries in the tree of that size."""
        return await _prove(self._connection, self._log, indexes, size=size)

    async def _fetch(self, query: str, **parameters: object) -> list[Any]:
        values = {"log_id": self._log.log_id, **parameters}
        return await (await self._connection.execute(_QUERIES[query], values)).fetchall()


async def open_source(
    connection: Connection,
    log: Log,
    system: Log | None,
    *,
    keys: Sequence[VerifierKey],
    policy: WitnessPolicy | None,
    opener: Opener = PLAIN,
    looked: Looked = lambda _searched, _of: None,
) -> DatabaseSource:
    """
    Return the log as a source of evidence; `connection` works as the auditor.

    `system` is the system log, None for no anchor; `keys` are those of both. With a `policy`, the system log ends at a
    checkpoint that enough witnesses have cosigned. `opener` opens sealed parts. `looked` is told how far searches are.

    Raises:
        NoCheckpointError: if nothing of the log has been signed yet.
        BrokenError: if a checkpoint is not signed by one of `keys`, or its anchor is broken.
    """
    published = await read_published_checkpoint(connection, log, keys=keys, policy=policy)
    if published is None:
        raise NoCheckpointError(
            f"log {log.origin} has no signed checkpoint yet: `lakeproof up` signs one soon after the first append"
        )
    newest = EvidenceCheckpoint(note=published.note, checkpoint=published.checkpoint, stamp=published.token)
    anchored = None
    if system is not None and system.log_id != log.log_id:
        anchored = await _read_anchored(connection, log, system, keys, policy)
    return DatabaseSource(connection, log, newest=newest, anchored=anchored, opener=opener, looked=looked)


async def _read_anchored(
    connection: Connection, log: Log, system: Log, keys: Sequence[VerifierKey], policy: WitnessPolicy | None
) -> EvidenceCheckpoint | None:
    """Return the newest checkpoint of a log that the published checkpoint of the system log covers, or None."""
    published = await read_published_checkpoint(connection, system, keys=keys, policy=policy)
    if published is None:
        return None
    note, stamp = _witnessed_note(published)
    covering = read_checkpoint(note, keys, where="ledger.checkpoints", origin=system.origin)
    parameters = {"log_id": system.log_id, "key": anchor_key(log.origin), "size": covering.size}
    row = await (await connection.execute(_QUERIES["newest_anchor"], parameters)).fetchone()
    if row is None:
        return None
    entry = bytes(row[0])
    anchor = parse_anchor(parse_entry(entry))
    at = {"log_id": log.log_id, "size": anchor.size}
    kept = await (await connection.execute(_QUERIES["checkpoint_at"], at)).fetchone()
    if kept is None:
        return None
    checkpoint = read_checkpoint(bytes(kept[0]), keys, where="ledger.checkpoints", origin=log.origin)
    proof = await _prove(connection, system, [anchor.index], size=covering.size)
    section = Section(entries=(BundledEntry(entry=entry),), proof=tuple(proof), checkpoint=note, stamp=stamp)
    return EvidenceCheckpoint(note=bytes(kept[0]), checkpoint=checkpoint, anchor=section)


def _witnessed_note(published: Published) -> tuple[bytes, bytes | None]:
    """Return the note of the system log that others have witnessed, and its time stamp, if it has one."""
    if published.stamped is not None and published.token is None and not published.cosigned_by:
        return published.stamped.note, published.stamped.token
    return published.note, published.token


async def _prove(connection: Connection, log: Log, indexes: Sequence[int], *, size: int) -> list[bytes]:
    return await compute_on_subtrees(
        connection, log.log_id, size, lambda read: prove_entries(indexes, size=size, read=read)
    )
