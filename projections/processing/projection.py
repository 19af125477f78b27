# SPDX-License-Identifier: Apache-2.0
"""
What a projection is, and the one way in which entries get into it: `apply_batch`.

Guarantee: entries and cursor move in the same transaction, so a crash at any point neither loses nor repeats an entry.
The caller holds the row lock of `projections.live` (runner), or is the only one that knows the generation (rebuild).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from psycopg.abc import Query

from ledger.format.sealing import PLAIN, Opener
from ledger.store.read import Log, read_entries, read_parts
from ledger.store.session import Connection
from projections.entries import LogEntry, read_log_entry
from projections.processing import cursors

BATCH_ENTRIES_MAX: Final = 250
"""Entries applied in one transaction: enough to amortise the commit, few enough to hold lock and event loop briefly."""

ROWS_FETCHED: Final = 2_000
"""Rows held in memory while a digest is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """An open transaction of the projector role, on one generation of one log's projection."""

    connection: Connection
    log: Log
    generation: int
    opener: Opener = PLAIN
    """Opens the payload parts that are sealed."""


class Projection(Protocol):
    """
    A read model. Each method works on the one generation that the transaction names and never commits.

    `apply` must depend on the entries alone, never on how they were cut into batches. A change of what is stored, or of
    the digest, is a new `version`.
    """

    name: str
    version: int

    async def prepare(self, transaction: Transaction) -> None:
        """Create the empty generation."""

    async def apply(self, entries: Sequence[LogEntry], transaction: Transaction) -> None:
        """Apply `entries`, which follow those applied before without a gap."""

    async def digest(self, transaction: Transaction) -> bytes:
        """Return the digest of the generation: canonical, by natural keys (32 bytes)."""

    async def drop(self, transaction: Transaction) -> None:
        """Remove the generation, which is not live."""


async def apply_batch(
    projection: Projection, transaction: Transaction, *, to_index: int, batch_max: int = BATCH_ENTRIES_MAX
) -> range:
    """
    Apply the next entries below `to_index`, at most `batch_max`, and move the cursor; return their indices.

    Raises:
        FormatError: if an entry is corrupt; nothing is applied.
        UnknownControlError: if a control entry is not known here; nothing is applied.
    """
    connection, log_id = transaction.connection, transaction.log.log_id
    at = await cursors.read_next_index(connection, projection.name, log_id, transaction.generation)
    entries = await read_log_entries(
        connection, log_id, from_index=at, to_index=min(to_index, at + batch_max), opener=transaction.opener
    )
    if not entries:
        return range(at, at)
    await projection.apply(entries, transaction)
    applied = range(at, at + len(entries))
    await cursors.move(connection, projection.name, log_id, transaction.generation, next_index=applied.stop)
    return applied


async def read_log_entries(
    connection: Connection, log_id: int, *, from_index: int, to_index: int, opener: Opener = PLAIN
) -> list[LogEntry]:
    """
    Return the entries from_index … to_index - 1 that exist, in order, each with the payload parts that still exist.

    Raises:
        FormatError, UnknownControlError: see `read_log_entry`.
        SubjectKeysError: if a part is sealed and `opener` has no keys.
    """
    entries = await read_entries(connection, log_id, from_index=from_index, to_index=to_index)
    parts = await read_parts(connection, log_id, from_index=from_index, to_index=to_index, opener=opener)
    return [read_log_entry(data, parts.get(index, {})) for index, data in enumerate(entries, start=from_index)]


async def iterate_rows(
    connection: Connection, query: Query, parameters: Mapping[str, object] | None = None
) -> AsyncIterator[list[tuple[Any, ...]]]:
    """
    Yield the rows of a query, in lists of at most 2,000, through a server-side cursor; needs an open transaction.
    """
    async with connection.cursor("lakeproof_rows") as cursor:
        await cursor.execute(query, parameters)
        while rows := await cursor.fetchmany(ROWS_FETCHED):
            yield rows
