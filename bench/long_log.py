# SPDX-License-Identifier: Apache-2.0
"""
A long log for a benchmark: entries that differ only in index and hash, written by COPY as the database's owner.

It is a real log: the chain, every tile with its root, the head and a signed checkpoint are right, and it verifies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import psycopg

from ledger.format import canonical
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.entry import FIRST_PREVIOUS, Branch, format_entry
from ledger.format.event import Event, prepare
from ledger.format.merkle import Frontier, leaf_hash
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.tiles import Pending, complete_tiles
from ledger.store.read import Log

CHUNK: Final = 65_536
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
TEXT_LENGTH: Final = 300
"""Of the only member of an event's data; an entry has about 340 bytes more."""

Row = tuple[int, bytes, bytes, UUID]
"""Index, entry, leaf hash, group id."""


def rows(origin: str, *, first: int, end: int, previous: bytes, text_length: int = TEXT_LENGTH) -> Iterator[Row]:
    """Yield the rows of entries `first` … `end - 1`, each a group of its own, behind the leaf hash `previous`."""
    event = prepare(
        Event(
            type="lineage.received",
            version=1,
            key="table:lake/sales/orders",
            actor="system",
            occurred_at=START,
            data={"text": "x" * text_length},
        )
    ).event
    for index in range(first, end):
        group_id = UUID(int=(0x018C << 112) | (0x7 << 76) | (0x2 << 62) | index)
        entry = format_entry(
            event,
            log=origin,
            index=index,
            previous=previous,
            recorded_at=canonical.format_time(START + timedelta(milliseconds=index // 100)),
            group_id=group_id,
            branch=Branch.THEN,
            of=1,
            position=0,
        )
        previous = leaf_hash(entry)
        yield index, entry, previous, group_id


def write_long_log(
    owner_dsn: str,
    log: Log,
    size: int,
    *,
    signer: Ed25519Signer | None = None,
    text_length: int = TEXT_LENGTH,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> Checkpoint:
    """
    Make the empty `log` one of `size` entries, and return its checkpoint; with `signer`, that is stored, signed.
    """
    pending: Pending = ()
    previous, frontier = FIRST_PREVIOUS, Frontier.empty()
    with psycopg.connect(owner_dsn) as connection:
        for first in range(0, size, CHUNK):
            chunk = list(
                rows(log.origin, first=first, end=min(first + CHUNK, size), previous=previous, text_length=text_length)
            )
            previous = chunk[-1][2]
            pending = _copy(connection, log.log_id, chunk, pending)
            frontier = frontier.extended(leaf for _, _, leaf, _ in chunk)
            progress(frontier.size, size)
        connection.execute(
            "UPDATE ledger.heads SET size = %s, last = %s, frontier = %s, recorded_at = %s WHERE log_id = %s",
            (size, previous, frontier.pack(), START + timedelta(milliseconds=(size - 1) // 100), log.log_id),
        )
        checkpoint = Checkpoint(origin=log.origin, size=size, root=frontier.root())
        if signer is not None:
            note = sign_note(format_checkpoint(checkpoint), [signer])
            connection.execute("INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", (log.log_id, size, note))
    with psycopg.connect(owner_dsn, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE) ledger.entries, ledger.tiles")
    return checkpoint


def _copy(connection: psycopg.Connection, log_id: int, chunk: list[Row], pending: Pending) -> Pending:
    columns = "log_id, index, entry, leaf, type, key, is_control, group_id"
    types = ("int4", "int8", "bytea", "bytea", "text", "text", "bool", "uuid")
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY ledger.entries ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(types)
            for index, entry, leaf, group_id in chunk:
                copy.write_row(
                    (log_id, index, entry, leaf, "lineage.received", "table:lake/sales/orders", False, group_id)
                )
        tiles, pending = complete_tiles(size=chunk[0][0], pending=pending, leaves=[row[2] for row in chunk])
        cursor.executemany(
            "INSERT INTO ledger.tiles (log_id, level, tile, hashes, root) VALUES (%s, %s, %s, %s, %s)",
            [(log_id, tile.level, tile.index, tile.pack(), tile.root()) for tile in tiles],
        )
    return pending
