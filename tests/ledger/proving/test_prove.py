# SPDX-License-Identifier: Apache-2.0
"""Proofs made from stored tiles: right at every place and size, with roots kept beside tiles or not, only if true."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import Frontier, root_of
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.proof import check_proof
from ledger.proving.prove import prove, prove_growth
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError, read_frontier
from testkit.ledger.logs import TENANT, away, change, plain_rows, put

SIZE = 256 * 256 + 300
"""Complete tiles on levels 0 and 1, and an edge on level 2."""
SMALL = 800
PLACES = (0, 1, 255, 256, 300, 65_279, 65_280, 65_535, 65_536, 65_791, 65_792, SIZE - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerLog:
    """A log with its leaf hashes, its signer, and the connection that proofs are made over."""

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
async def open_signer_log(database: str, installation: Provisioned, size: int) -> AsyncIterator[SignerLog]:
    log_id = create_tenant_log(database, installation, TENANT)
    origin = installation.origin(TENANT)
    rows = plain_rows(size, log=origin)
    await put(database, log_id, rows)
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield SignerLog(
            database=database,
            connection=connection,
            log=await find_log(connection, origin),
            leaves=[row.leaf for row in rows],
            signer=Ed25519Signer.from_seed(name=origin, seed=bytes(range(32))),
        )


@pytest_asyncio.fixture
async def large(database: str, installation: Provisioned) -> AsyncIterator[SignerLog]:
    async with open_signer_log(database, installation, SIZE) as signer_log:
        yield signer_log


@pytest_asyncio.fixture
async def signer_log(database: str, installation: Provisioned) -> AsyncIterator[SignerLog]:
    async with open_signer_log(database, installation, SMALL) as signer_log:
        yield signer_log


async def test_entries_are_proven_and_growth_is_whether_roots_are_kept_or_not(large: SignerLog) -> None:
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


async def test_a_proof_that_does_not_lead_to_the_signed_root_is_not_given_out(signer_log: SignerLog) -> None:
    key = signer_log.signer.verifier_key
    signer_log.keep_roots()
    signer_log.sign(newest := signer_log.checkpoint(SMALL))
    change(signer_log.database, "UPDATE ledger.tiles SET root = sha256(root) WHERE level = 0 AND tile = 2")
    with pytest.raises(BrokenError) as caught:
        await prove(signer_log.connection, signer_log.log, 0, keys=[key], policy=None)
    assert caught.value.fault is Fault.PROOF
    with pytest.raises(BrokenError):
        await prove_growth(signer_log.connection, signer_log.log, signer_log.checkpoint(300), newest)
    change(signer_log.database, "DELETE FROM ledger.tiles WHERE level = 0 AND tile = 2")
    with pytest.raises(BrokenError) as caught:
        await prove(signer_log.connection, signer_log.log, 0, keys=[key], policy=None)
    assert caught.value.fault is Fault.TILE


async def test_a_tree_that_did_not_grow_from_another_is_not_proven_to(signer_log: SignerLog) -> None:
    signer_log.sign(newest := signer_log.checkpoint(SMALL))
    other = Checkpoint(origin=signer_log.log.origin, size=600, root=root_of(signer_log.leaves[1:601]))
    with pytest.raises(BrokenError):
        await prove_growth(signer_log.connection, signer_log.log, other, newest)
    with pytest.raises(LedgerError):
        await prove_growth(signer_log.connection, signer_log.log, newest, signer_log.checkpoint(300))


async def test_what_is_not_signed_or_not_there_is_said_apart(signer_log: SignerLog) -> None:
    key = signer_log.signer.verifier_key
    with pytest.raises(NoCheckpointError, match="no signed checkpoint yet"):
        await prove(signer_log.connection, signer_log.log, 0, keys=[key], policy=None)
    signer_log.sign(signer_log.checkpoint(300))
    with pytest.raises(NoCheckpointError, match="not signed yet"):
        await prove(signer_log.connection, signer_log.log, 300, keys=[key], policy=None)
    for index in (-1, SMALL, 2**63, 2**70):  # those that no column holds, too
        with pytest.raises(LedgerError, match="expected an index"):
            await prove(signer_log.connection, signer_log.log, index, keys=[key], policy=None)


async def test_a_size_beside_a_note_that_is_not_the_notes_own_leads_nobody_astray(signer_log: SignerLog) -> None:
    key = signer_log.signer.verifier_key
    signer_log.sign(signer_log.checkpoint(300))
    for said in (1, 299, 301, SMALL, 2**53, 2**63 - 2):
        change(signer_log.database, "UPDATE ledger.checkpoints SET size = %s", said)
        for index in (0, 299):
            proven = check_proof(
                await prove(signer_log.connection, signer_log.log, index, keys=[key], policy=None), [key]
            )
            assert (proven.index, proven.checkpoint.size) == (index, 300)
        with pytest.raises(NoCheckpointError, match="not signed yet"):
            await prove(signer_log.connection, signer_log.log, 300, keys=[key], policy=None)


FREE = "ALTER TABLE ledger.{0} ALTER {1} DROP NOT NULL, DROP CONSTRAINT IF EXISTS {0}_{1}_check"
"""What whoever owns a database can do first."""


@pytest.mark.parametrize(
    ("table", "column", "to", "where", "fault"),
    [
        ("entries", "entry", None, "index = 0", Fault.ENTRY),
        ("entries", "entry", "gone", "index = 0", Fault.INDEX),
        ("entries", "entry", b"another", "index = 0", Fault.PROOF),
        ("entries", "leaf", None, "index = 799", Fault.TILE),
        ("entries", "leaf", b"short", "index = 799", Fault.TILE),
        ("entries", "leaf", bytes(8_192), "index = 799", Fault.TILE),
        ("entries", "leaf", "gone", "index = 799", Fault.TILE),
        ("tiles", "hashes", None, "tile = 0", Fault.TILE),
        ("tiles", "hashes", b"short", "tile = 0", Fault.TILE),
        ("tiles", "hashes", bytes(32 * 257), "tile = 0", Fault.TILE),
        ("tiles", "root", b"", "tile = 2", Fault.PROOF),
        ("tiles", "root", b"short", "tile = 2", Fault.TILE),
    ],
)
async def test_what_is_not_of_its_form_is_said_to_be_broken_not_proven(
    signer_log: SignerLog, table: str, column: str, to: object, where: str, fault: Fault
) -> None:
    signer_log.keep_roots()
    signer_log.sign(signer_log.checkpoint(SMALL))
    await prove(signer_log.connection, signer_log.log, 0, keys=[signer_log.signer.verifier_key], policy=None)
    with psycopg.connect(signer_log.database, autocommit=True) as owner:
        owner.execute(FREE.format(table, column))
        row = "DELETE FROM ledger.{0} WHERE {2}" if to == "gone" else "UPDATE ledger.{0} SET {1} = %s WHERE {2}"
        changed = owner.execute(row.format(table, column, where), None if to == "gone" else (to,))
        assert changed.rowcount == 1
    with pytest.raises(BrokenError) as caught:
        await prove(signer_log.connection, signer_log.log, 0, keys=[signer_log.signer.verifier_key], policy=None)
    assert caught.value.fault is fault


async def test_a_proof_takes_two_round_trips_whatever_its_place(large: SignerLog, tmp_path: Path) -> None:
    large.sign(large.checkpoint(SIZE))
    for _ in range(10):  # until the driver has every statement prepared, which it sends apart
        await prove(large.connection, large.log, 0, keys=[large.signer.verifier_key], policy=None)
    for index in PLACES:
        with (tmp_path / "wire").open("wb+") as wire:
            large.connection.pgconn.trace(wire.fileno())
            await prove(large.connection, large.log, index, keys=[large.signer.verifier_key], policy=None)
            large.connection.pgconn.untrace()
            wire.seek(0)
            sent = re.findall(rb"\tF\t\d+\t(Bind|Sync|Flush|Query)", wire.read())
        # Each Sync is waited for, and each Flush; but behind a Sync the driver sends one that has nothing to wait for.
        waits = [b for a, b in pairwise([b"", *sent]) if b == b"Sync" or (b == b"Flush" and a != b"Sync")]
        assert (waits, sent.count(b"Query")) == ([b"Sync", b"Sync"], 0)


@pytest.mark.parametrize("table", ["checkpoints", "entries", "tiles"])
async def test_a_table_that_cannot_be_read_is_said_in_the_servers_words_and_the_next_proof_is_made(
    signer_log: SignerLog, table: str
) -> None:
    signer_log.sign(signer_log.checkpoint(SMALL))
    keys = [signer_log.signer.verifier_key]
    with (
        away(signer_log.database, f"ledger.{table}"),
        pytest.raises(psycopg.errors.UndefinedTable, match=rf"ledger\.{table}"),
    ):
        await prove(signer_log.connection, signer_log.log, 0, keys=keys, policy=None)
    assert check_proof(await prove(signer_log.connection, signer_log.log, 0, keys=keys, policy=None), keys).index == 0
