# SPDX-License-Identifier: Apache-2.0
"""
Generations: rebuild a projection from the log next to the live generation, compare, switch.

Guarantee: readers move from one complete generation to another of the same entries, by one committed change of one row,
and `rebuild` switches only if the two digests are equal. Nothing is renamed and no number is used twice. The superseded
generation is kept until the next rebuild, `prune` or erasure, since a reader may still use its name. No further entry
is applied to it, so what is erased after the switch would stay in it: `drop_superseded`.

The steps of a rebuild:
1. Take the rebuild's lock; drop what earlier rebuilds left.
2. Create the next generation and fill it from entry 0 to the live cursor; the live generation continues meanwhile.
3. Hold the live generation (its row lock) and fill the rest.
4. In one REPEATABLE READ snapshot, in which both cursors are equal, compute both digests and compare them.
5. Switch the pointer, release the locks, and append the attestation.

Lock and snapshot use two connections: a snapshot taken by the statement that waits for the lock would be older than
what the previous holder has committed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

import psycopg
from psycopg.errors import LockNotAvailable

from ledger.format.events import ProjectionAttested
from ledger.format.sealing import PLAIN, Opener
from ledger.store.read import Log, read_head
from ledger.store.session import Connection
from projections.errors import (
    DigestMismatchError,
    NotProjectedError,
    ProjectionError,
    RebuildRunningError,
    StaleGenerationError,
)
from projections.processing import cursors
from projections.processing.cursors import Live
from projections.processing.projection import BATCH_ENTRIES_MAX, Projection, Transaction, apply_batch
from projections.processing.runner import connect

ReportProgress = Callable[[int, int], None]
"""Called with the number of entries in the new generation, and how many there will be."""

NEAR_ENTRIES: Final = 2 * BATCH_ENTRIES_MAX
"""At this distance from the live generation, filling the rest while holding it takes at most a second."""


class AppendAttestation(Protocol):
    """Appends `projection.attested` to the log that was projected, through the caller's Appender."""

    async def __call__(self, log: Log, attested: ProjectionAttested, /) -> None: ...


DROP_WAIT_S: Final = 5
"""How long an erasure waits for a reader of a superseded generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """
    A switch from generation `replaced` to the attested one; `compared` is true for a rebuild, false for a replace.
    """

    attested: ProjectionAttested
    replaced: int
    compared: bool


async def rebuild(
    dsn: str,
    projection: Projection,
    log: Log,
    *,
    append: AppendAttestation,
    report: ReportProgress = lambda _done, _of: None,
    batch_max: int = BATCH_ENTRIES_MAX,
    opener: Opener = PLAIN,
) -> Rebuilt:
    """
    Rebuild a projection from entry 0, compare it with the live generation, and switch to it if they are equal.

    `dsn` works as the projector role, `opener` opens sealed payload parts.

    Raises:
        DigestMismatchError: if the digests differ; nothing is switched, both generations are kept.
        StaleGenerationError: if the live generation is of another version: there is nothing to compare, use `replace`.
        NotProjectedError: if there is no live generation.
        RebuildRunningError: if another rebuild or prune of it is under way.
    """
    async with connect(dsn) as builder, sole_rebuild(builder, projection, log):
        live = await _live(builder, projection, log)
        if live.version != projection.version:
            raise StaleGenerationError(
                f"projection {projection.name} of {log.origin}: expected a live generation of version "
                f"{projection.version} to compare with, found version {live.version}: replace it"
            )
        built = await _begin(builder, projection, log)
        while (live := await _live(builder, projection, log)).next_index > built.next_index + NEAR_ENTRIES:
            built = await _fill(builder, projection, log, built, live.next_index, report, batch_max, opener)
        async with _hold_live(dsn, projection, log) as holder:
            live = await _live(holder, projection, log)
            built = await _fill(builder, projection, log, built, live.next_index, report, batch_max, opener)
            digest = await _compare(builder, projection, log, live=live, built=built)
            await cursors.switch(holder, projection.name, log.log_id, built.generation)
    attested = _attestation(projection, built, digest)
    await append(log, attested)
    return Rebuilt(attested=attested, replaced=live.generation, compared=True)


async def replace(
    dsn: str,
    projection: Projection,
    log: Log,
    *,
    append: AppendAttestation,
    report: ReportProgress = lambda _done, _of: None,
    batch_max: int = BATCH_ENTRIES_MAX,
    opener: Opener = PLAIN,
) -> Rebuilt:
    """
    Rebuild a projection from entry 0 and switch to it without a comparison.

    For a live generation of another version, and for one that a rebuild has found to be wrong. The new generation is
    never behind the one that it replaces.

    Raises:
        NotProjectedError: if there is no live generation.
        RebuildRunningError: if another rebuild or prune of it is under way.
    """
    async with connect(dsn) as builder, sole_rebuild(builder, projection, log):
        built = await _begin(builder, projection, log)
        while (size := (await read_head(builder, log.log_id)).size) > built.next_index + NEAR_ENTRIES:
            built = await _fill(builder, projection, log, built, size, report, batch_max, opener)
        async with _hold_live(dsn, projection, log) as holder:
            live = await _live(holder, projection, log)
            size = max(size, live.next_index)
            built = await _fill(builder, projection, log, built, size, report, batch_max, opener)
            async with builder.transaction():
                digest = await projection.digest(_on(builder, log, built.generation))
            await cursors.switch(holder, projection.name, log.log_id, built.generation)
    attested = _attestation(projection, built, digest)
    await append(log, attested)
    return Rebuilt(attested=attested, replaced=live.generation, compared=False)


async def prune(dsn: str, projection: Projection, log: Log) -> list[int]:
    """
    Drop every generation that is not live; return their numbers.

    Raises:
        RebuildRunningError: if a rebuild is under way, whose generation would be dropped.
    """
    async with connect(dsn) as connection, sole_rebuild(connection, projection, log):
        return await drop_others(connection, projection, log)


async def drop_superseded(dsn: str, projections: Sequence[Projection]) -> list[str]:
    """
    Drop generations that are not live and to which the newest erasure of their log was not applied; `dsn` as `prune`.

    While a rebuild runs, its projection and log are skipped: the erasure is applied to what it fills before that goes
    live. A generation that a reader holds for more than five seconds is skipped as well. Return the names of the
    projections of which something is left: call this again later.
    """
    known, left = {projection.name: projection for projection in projections}, []
    async with connect(dsn) as connection:
        superseded = await cursors.behind_erasure(connection, list(known))
    for name, log in superseded:
        async with connect(dsn) as connection:
            await connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{DROP_WAIT_S}s",))
            try:
                async with sole_rebuild(connection, known[name], log):
                    await drop_others(connection, known[name], log)
            except (RebuildRunningError, LockNotAvailable):
                left.append(name)
    return left


@asynccontextmanager
async def sole_rebuild(connection: Connection, projection: Projection, log: Log) -> AsyncIterator[None]:
    """
    Hold the lock of rebuilds. At the latest the end of the session releases it.

    Raises:
        RebuildRunningError: if another rebuild or prune holds it.
    """
    if not await cursors.try_lock_rebuild(connection, projection.name, log.log_id):
        raise RebuildRunningError(
            f"projection {projection.name} of {log.origin}: another rebuild is under way; wait until it has ended"
        )
    try:
        yield
    finally:
        # A session ends some time after its client has left, and whoever repeats this would still meet the lock.
        with suppress(psycopg.Error):
            await cursors.unlock_rebuild(connection, projection.name, log.log_id)


@asynccontextmanager
async def _hold_live(dsn: str, projection: Projection, log: Log) -> AsyncIterator[Connection]:
    """Yield a connection whose transaction locks the live generation; it commits at the end, or undoes the switch."""
    async with connect(dsn) as holder, holder.transaction():
        # The transaction is idle while the digests are computed, which may take minutes.
        await holder.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await cursors.lock_live(holder, projection.name, log.log_id)
        yield holder


async def _begin(connection: Connection, projection: Projection, log: Log) -> Live:
    """Drop what earlier rebuilds left and create the next, empty generation."""
    await drop_others(connection, projection, log)
    async with connection.transaction():
        number = await cursors.next_generation(connection, projection.name, log.log_id)
        await cursors.insert(connection, projection.name, log.log_id, number, version=projection.version)
        await projection.prepare(_on(connection, log, number))
    return Live(generation=number, version=projection.version, next_index=0)


async def drop_others(connection: Connection, projection: Projection, log: Log) -> list[int]:
    """Drop every generation that is not live, within `sole_rebuild`; return their numbers."""
    others = await cursors.other_generations(connection, projection.name, log.log_id)
    for number in others:
        async with connection.transaction():
            await projection.drop(_on(connection, log, number))
            await cursors.delete(connection, projection.name, log.log_id, number)
    return others


async def _fill(
    connection: Connection,
    projection: Projection,
    log: Log,
    built: Live,
    to_index: int,
    report: ReportProgress,
    batch_max: int,
    opener: Opener,
) -> Live:
    """Apply entries to the generation `built`, which no other process knows, up to `to_index` exactly."""
    at = built.next_index
    while at < to_index:
        async with connection.transaction():
            applied = await apply_batch(
                projection, _on(connection, log, built.generation, opener), to_index=to_index, batch_max=batch_max
            )
        if not applied:
            raise ProjectionError(f"log {log.origin}: expected {to_index} entries, found no entry {at}")
        at = applied.stop
        report(at, to_index)
    return Live(generation=built.generation, version=built.version, next_index=at)


async def _compare(connection: Connection, projection: Projection, log: Log, *, live: Live, built: Live) -> bytes:
    """Return the digest of both generations, read in one snapshot; the caller holds the live one."""
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for generation in (live.generation, built.generation):
            at = await cursors.read_next_index(connection, projection.name, log.log_id, generation)
            if at != built.next_index:
                raise ProjectionError(
                    f"projection {projection.name} of {log.origin}: expected generation {generation} to be held at "
                    f"entry {built.next_index}, found it at {at}"
                )
        live_digest = await projection.digest(_on(connection, log, live.generation))
        built_digest = await projection.digest(_on(connection, log, built.generation))
    if live_digest != built_digest:
        raise DigestMismatchError(
            projection.name,
            live=live.generation,
            live_digest=live_digest,
            built=built.generation,
            built_digest=built_digest,
            size=built.next_index,
        )
    return built_digest


async def _live(connection: Connection, projection: Projection, log: Log) -> Live:
    live = await cursors.read_live(connection, projection.name, log.log_id)
    if live is None:
        raise NotProjectedError(f"projection {projection.name} of {log.origin}: no runner has seen this log yet")
    return live


def _on(connection: Connection, log: Log, generation: int, opener: Opener = PLAIN) -> Transaction:
    return Transaction(connection=connection, log=log, generation=generation, opener=opener)


def _attestation(projection: Projection, built: Live, digest: bytes) -> ProjectionAttested:
    return ProjectionAttested(
        projection=projection.name,
        projection_version=projection.version,
        generation=built.generation,
        size=built.next_index,
        digest=digest.hex(),
    )
