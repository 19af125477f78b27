# SPDX-License-Identifier: Apache-2.0
"""
Compares the read models with the log while the system runs: each is rebuilt in a scratch generation.

Each projection has one transaction with one snapshot, which is rolled back. In it, the entries up to the position of
the live generation are applied to a scratch generation, and the two digests must be equal. At the position of the
newest attestation the digest must be the attested one, unless payload parts were erased since. No reader and no runner
sees any of this or waits for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from psycopg import AsyncConnection

from lakeproof.projecting import PROJECTIONS
from ledger.errors import BrokenError, Fault
from ledger.format.events import ProjectionAttested
from ledger.format.sealing import Opener
from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.processing import cursors
from projections.processing.projection import Projection, Transaction, apply_batch

SCRATCH: Final = 2**31 - 1
"""The number of the scratch generation: no rebuild reaches it."""
_BATCH_ENTRIES: Final = 1_000
_QUERIES: Final = load_queries("lakeproof", "deep.sql")


class Compared(StrEnum):
    """The result of one projection."""

    AT_ATTESTATION = "compared, also at its attestation"
    LIVE = "compared"
    OLDER = "of another version, which the next start replaces"
    ERASING = "behind an erasure that it has not applied yet"
    ABSENT = "not projected yet"


async def check_projections(dsn: str, log: Log, *, attested: Mapping[str, ProjectionAttested], opener: Opener) -> str:
    """
    Check that each projection of a log equals a rebuild from the log; return how many were compared, and where.

    `dsn` connects as the projector; `attested` are the newest attestations, by projection.

    Raises:
        BrokenError: (`Fault.DERIVED`) for the first that does not; names the projection and its generation.
    """
    done: Counter[Compared] = Counter()
    places: list[str] = []
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        for projection in PROJECTIONS:
            async with connection.transaction(force_rollback=True):
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                result, at = await _check(connection, log, projection, attested.get(projection.name), opener)
            done[result] += 1
            places += [f"{projection.name} at {at:,}"] if result in {Compared.AT_ATTESTATION, Compared.LIVE} else []
    compared = done.pop(Compared.AT_ATTESTATION, 0), done.pop(Compared.LIVE, 0)
    rest = "".join(f"; {count} not compared: {why}" for why, count in sorted(done.items()))
    return (
        f"{sum(compared)} projections, each against a rebuild to the entry at which it stands "
        f"({', '.join(places) or 'none'}), {compared[0]} of them at the attested position, too{rest}"
    )


async def _check(
    connection: Connection,
    log: Log,
    projection: Projection,
    attested: ProjectionAttested | None,
    opener: Opener,
) -> tuple[Compared, int]:
    live = await cursors.read_live(connection, projection.name, log.log_id)
    if live is None:
        return Compared.ABSENT, 0
    if live.version != projection.version:
        return Compared.OLDER, live.next_index
    if await _erased_behind(connection, log, live.next_index):
        return Compared.ERASING, live.next_index
    scratch = Transaction(connection=connection, log=log, generation=SCRATCH, opener=opener)
    await cursors.insert(connection, projection.name, log.log_id, SCRATCH, version=projection.version)
    await projection.prepare(scratch)
    where = f"projection {projection.name}, generation {live.generation}"
    is_attested = (
        attested is not None
        and attested.projection_version == projection.version
        and attested.size <= live.next_index
        and not await _erased_behind(connection, log, attested.size)
    )
    if attested is not None and is_attested:
        await _fill(projection, scratch, attested.size)
        digest = (await projection.digest(scratch)).hex()
        if digest != attested.digest:
            where = f"projection.attested of {projection.name} at {attested.size}"
            raise BrokenError(Fault.DERIVED, where=where, expected=digest, found=attested.digest)
    await _fill(projection, scratch, live.next_index)
    rebuilt = (await projection.digest(scratch)).hex()
    found = (await projection.digest(Transaction(connection=connection, log=log, generation=live.generation))).hex()
    if rebuilt != found:
        expected = f"digest {rebuilt}, as a rebuild from the {live.next_index} entries that are in it makes"
        raise BrokenError(Fault.DERIVED, where=where, expected=expected, found=found)
    return (Compared.AT_ATTESTATION if is_attested else Compared.LIVE), live.next_index


async def _fill(projection: Projection, scratch: Transaction, to_index: int) -> None:
    while await apply_batch(projection, scratch, to_index=to_index, batch_max=_BATCH_ENTRIES):
        pass


async def _erased_behind(connection: Connection, log: Log, index: int) -> bool:
    bounds = {"log_id": log.log_id, "from_index": index}
    row = await (await connection.execute(_QUERIES["erased_behind"], bounds)).fetchone()
    return row is not None and bool(row[0])
