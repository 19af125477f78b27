"""Proofs made from stored tiles: right at every place and size, with roots kept beside tiles or not, only if true."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from lakeproof.provision import Installation, create_tenant_log
from ledger.checkpoint import Checkpoint, format_checkpoint
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.merkle import Frontier, root_of
from ledger.note import Ed25519Signer, sign_note
from ledger.proof import check_proof
from ledger.prove import prove, prove_growth
from ledger.read import Connection, Log, find_log
from ledger.stored_tree import NoCheckpointError, read_frontier
from tests.ledger.logs import TENANT, change, plain_rows, put

SIZE = 256 * 256 + 300
"""Complete tiles on levels 0 and 1, and an edge on level 2."""
SMALL = 800
PLACES = (0, 1, 255, 256, 300, 65_279, 65_280, 65_535, 65_536, 65_791, 65_792, SIZE - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A large log with its leaf hashes, and somebody who proves from it."""

    database: str
    connection: Connection
    log: Log
    leaves: list[bytes]
    signer: Ed25519Signer
    roots: dict[int, bytes] = field(default_factory=dict)

    def checkpoint(self, size: int) -> Checkpoint:
        root = self.roots[size] = self.roots.get(size) or root_of(self.leaves[:size])
        return Checkpoint(origin=self.log.origin, size=size, root=root)

    def sign(self, checkpoint: Checkpoint) -> None:
        note = sign_note(format_checkpoint(checkpoint), [self.signer])
        with psycopg.connect(self.database, autocommit=True) as owner:
            owner.execute("DELETE FROM ledger.checkpoints")
            row = (self.log.log_id, checkpoint.size, note)
            owner.execute("INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", row)

    def keep_roots(self) -> None:
        """Keep beside each complete tile its root, as the Appender does."""
        with psycopg.connect(self.database, autocommit=True) as owner:
            for level, tile, hashes in owner.execute("SELECT level, tile, hashes FROM ledger.tiles").fetchall():
                root = root_of([hashes[at : at + 32] for at in range(0, len(hashes), 32)])
                owner.execute("UPDATE ledger.tiles SET root = %s WHERE level = %s AND tile = %s", (root, level, tile))


@asynccontextmanager
async def open_desk(database: str, installation: Installation, size: int) -> AsyncIterator[Desk]:
    log_id = create_tenant_log(database, installation, TENANT)
    origin = installation.origin(TENANT)
    rows = plain_rows(size, log=origin)
    await put(database, log_id, rows)
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield Desk(
            database=database,
            connection=connection,
            log=await find_log(connection, origin),
            leaves=[row.leaf for row in rows],
            signer=Ed25519Signer.from_seed(name=origin, seed=bytes(range(32))),
        )


@pytest_asyncio.fixture
async def large(database: str, installation: Installation) -> AsyncIterator[Desk]:
    async with open_desk(database, installation, SIZE) as desk:
        yield desk


@pytest_asyncio.fixture
async def desk(database: str, installation: Installation) -> AsyncIterator[Desk]:
    async with open_desk(database, installation, SMALL) as desk:
        yield desk


async def test_entries_are_proven_and_growth_is_whether_roots_are_kept_or_not(large: Desk) -> None:
    key = large.signer.verifier_key
    for with_roots in (False, True):
        if with_roots:
            large.keep_roots()
        for size in (SIZE, 65_536, 65_537, 300):
            large.sign(newest := large.checkpoint(size))
            for index in (place for place in PLACES if place < size):
                proven = check_proof(await prove(large.connection, large.log, index, keys=[key], policy=None), [key])
                assert (proven.index, proven.checkpoint.size) == (index, size)
            for older in (place for place in PLACES if 0 < place <= size):
                await prove_growth(large.connection, large.log, large.checkpoint(older), newest)
                frontier = await read_frontier(large.connection, large.log.log_id, older)
                assert frontier == Frontier.empty().extended(large.leaves[:older])


async def test_a_proof_that_does_not_lead_to_the_signed_root_is_not_given_out(desk: Desk) -> None:
    key = desk.signer.verifier_key
    desk.keep_roots()
    desk.sign(newest := desk.checkpoint(SMALL))
    change(desk.database, "UPDATE ledger.tiles SET root = sha256(root) WHERE level = 0 AND tile = 2")
    with pytest.raises(BrokenError) as caught:
        await prove(desk.connection, desk.log, 0, keys=[key], policy=None)
    assert caught.value.fault is Fault.PROOF
    with pytest.raises(BrokenError):
        await prove_growth(desk.connection, desk.log, desk.checkpoint(300), newest)
    change(desk.database, "DELETE FROM ledger.tiles WHERE level = 0 AND tile = 2")
    with pytest.raises(BrokenError) as caught:
        await prove(desk.connection, desk.log, 0, keys=[key], policy=None)
    assert caught.value.fault is Fault.TILE


async def test_a_tree_that_did_not_grow_from_another_is_not_proven_to(desk: Desk) -> None:
    desk.sign(newest := desk.checkpoint(SMALL))
    other = Checkpoint(origin=desk.log.origin, size=600, root=root_of(desk.leaves[1:601]))
    with pytest.raises(BrokenError):
        await prove_growth(desk.connection, desk.log, other, newest)
    with pytest.raises(LedgerError):
        await prove_growth(desk.connection, desk.log, newest, desk.checkpoint(300))


async def test_what_is_not_signed_or_not_there_is_said_apart(desk: Desk) -> None:
    key = desk.signer.verifier_key
    with pytest.raises(NoCheckpointError, match="no signed checkpoint yet"):
        await prove(desk.connection, desk.log, 0, keys=[key], policy=None)
    desk.sign(desk.checkpoint(300))
    with pytest.raises(NoCheckpointError, match="not signed yet"):
        await prove(desk.connection, desk.log, 300, keys=[key], policy=None)
    for index in (-1, SMALL):
        with pytest.raises(LedgerError, match="expected an index"):
            await prove(desk.connection, desk.log, index, keys=[key], policy=None)
