# SPDX-License-Identifier: Apache-2.0
"""Proofs of a log over two levels of tiles, and its export: right at every place and size, with roots kept or not."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import pytest_asyncio

from lakeproof.provision import Provisioned
from ledger.files.directory import LogDirectory, log_files
from ledger.format.merkle import Frontier
from ledger.format.proof import check_proof
from ledger.proving.export import export_log
from ledger.proving.prove import prove, prove_growth
from ledger.store.stored_tree import read_frontier
from ledger.verify.directory import verify_directory
from testkit.ledger.logs import change
from testkit.ledger.signed_logs import SignerLog, open_signer_log

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZE = 256 * 256 + 300
"""Complete tiles on levels 0 and 1, and an edge on level 2."""
PLACES = (0, 1, 255, 256, 300, 65_279, 65_280, 65_535, 65_536, 65_791, 65_792, SIZE - 1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def large(module_database: str, module_installation: Provisioned) -> AsyncIterator[SignerLog]:
    async with open_signer_log(module_database, module_installation, SIZE) as signer_log:
        yield signer_log


async def test_entries_are_proven_and_growth_is_whether_roots_are_kept_or_not(large: SignerLog) -> None:
    key = large.signer.verifier_key
    frontiers = {0: Frontier.empty()}
    for before, size in pairwise(PLACES):
        frontiers[size] = frontiers[before].extended(large.leaves[before:size])
    change(large.database, "UPDATE ledger.tiles SET root = NULL")
    for with_roots in (False, True):
        if with_roots:
            large.keep_roots()
        for size, places in ((SIZE, PLACES), (65_536, (1, 65_279, 65_535)), (65_537, (255, 65_536)), (300, PLACES)):
            large.sign(newest := large.checkpoint(size))
            for index in (place for place in places if place < size):
                proven = check_proof(await prove(large.connection, large.log, index, keys=[key], policy=None), [key])
                assert (proven.index, proven.checkpoint.size) == (index, size)
            for older in (place for place in places if 0 < place <= size):
                await prove_growth(large.connection, large.log, large.checkpoint(older), newest)
                frontier = await read_frontier(large.connection, large.log.log_id, older)
                assert frontier == frontiers[older]


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


async def test_it_is_exported_and_verifies(large: SignerLog, tmp_path: Path) -> None:
    key = large.signer.verifier_key
    large.sign(large.checkpoint(SIZE))
    await export_log(large.connection, large.log, tmp_path / "out", keys=[key], policy=None)
    assert LogDirectory(tmp_path / "out").files() == {*log_files(SIZE), "checkpoint", "vkey"}
    assert verify_directory(tmp_path / "out", [key]).root == large.checkpoint(SIZE).root
