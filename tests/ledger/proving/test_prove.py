# SPDX-License-Identifier: Apache-2.0
"""Proofs made from stored tiles: only what is true, signed and of its form is proven."""

from __future__ import annotations

from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.errors import BrokenError, Fault, LedgerError
from ledger.format.checkpoint import Checkpoint
from ledger.format.merkle import root_of
from ledger.format.proof import check_proof
from ledger.proving.prove import prove, prove_growth
from ledger.store.session import Connection
from ledger.store.stored_tree import NoCheckpointError
from testkit.ledger.logs import away, change
from testkit.ledger.signed_logs import SignerLog, open_signer_log
from testkit.ledger.tampering.instances import save
from testkit.ledger.tampering.world import PREPARATION

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZE = 800


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def written(
    module_database: str, module_installation: Provisioned
) -> AsyncIterator[tuple[SignerLog, Connection]]:
    """A small log with the root of each tile, and its owner, whom no constraint hinders."""
    async with (
        open_signer_log(module_database, module_installation, SIZE) as signer_log,
        await AsyncConnection.connect(module_database, autocommit=True) as owner,
    ):
        signer_log.keep_roots()
        await owner.execute(PREPARATION.encode())
        await save(owner)
        yield signer_log, owner


@pytest_asyncio.fixture(loop_scope="module")
async def signer_log(written: tuple[SignerLog, Connection]) -> AsyncIterator[SignerLog]:
    """The small log, whose every row is put back afterwards."""
    signer_log, owner = written
    yield signer_log
    await owner.execute("SELECT saved.put_back(false)")


async def test_a_proof_that_does_not_lead_to_the_signed_root_is_not_given_out(signer_log: SignerLog) -> None:
    key = signer_log.signer.verifier_key
    signer_log.sign(newest := signer_log.checkpoint(SIZE))
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
    signer_log.sign(newest := signer_log.checkpoint(SIZE))
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
    for index in (-1, SIZE, 2**63, 2**70):  # those that no column holds, too
        with pytest.raises(LedgerError, match="expected an index"):
            await prove(signer_log.connection, signer_log.log, index, keys=[key], policy=None)


async def test_a_size_beside_a_note_that_is_not_the_notes_own_leads_nobody_astray(signer_log: SignerLog) -> None:
    key = signer_log.signer.verifier_key
    signer_log.sign(signer_log.checkpoint(300))
    for said in (1, 299, 301, SIZE, 2**53, 2**63 - 2):
        change(signer_log.database, "UPDATE ledger.checkpoints SET size = %s", said)
        for index in (0, 299):
            proven = check_proof(
                await prove(signer_log.connection, signer_log.log, index, keys=[key], policy=None), [key]
            )
            assert (proven.index, proven.checkpoint.size) == (index, 300)
        with pytest.raises(NoCheckpointError, match="not signed yet"):
            await prove(signer_log.connection, signer_log.log, 300, keys=[key], policy=None)


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
    signer_log.sign(signer_log.checkpoint(SIZE))
    await prove(signer_log.connection, signer_log.log, 0, keys=[signer_log.signer.verifier_key], policy=None)
    with psycopg.connect(signer_log.database, autocommit=True) as owner:
        row = "DELETE FROM ledger.{0} WHERE {2}" if to == "gone" else "UPDATE ledger.{0} SET {1} = %s WHERE {2}"
        changed = owner.execute(row.format(table, column, where), None if to == "gone" else (to,))
        assert changed.rowcount == 1
    with pytest.raises(BrokenError) as caught:
        await prove(signer_log.connection, signer_log.log, 0, keys=[signer_log.signer.verifier_key], policy=None)
    assert caught.value.fault is fault


@pytest.mark.parametrize("table", ["checkpoints", "entries", "tiles"])
async def test_a_table_that_cannot_be_read_is_said_in_the_servers_words_and_the_next_proof_is_made(
    signer_log: SignerLog, table: str
) -> None:
    signer_log.sign(signer_log.checkpoint(SIZE))
    keys = [signer_log.signer.verifier_key]
    with (
        away(signer_log.database, f"ledger.{table}"),
        pytest.raises(psycopg.errors.UndefinedTable, match=rf"ledger\.{table}"),
    ):
        await prove(signer_log.connection, signer_log.log, 0, keys=keys, policy=None)
    assert check_proof(await prove(signer_log.connection, signer_log.log, 0, keys=keys, policy=None), keys).index == 0
