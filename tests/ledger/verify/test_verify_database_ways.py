# SPDX-License-Identifier: Apache-2.0
"""Ways to verify a log in PostgreSQL: several processes, from a checkpoint on, taken up again. All find the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import BrokenError, Fault
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.note import Ed25519Signer, sign_note
from ledger.format.sequence import SequencedEntry
from ledger.format.tiles import TILE_WIDTH
from ledger.format.verification import ChainState, VerificationReport
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from ledger.verify import database_pages, resuming
from ledger.verify.database import verify_database
from ledger.verify.database_pages import EntryRow, Job, _check_on, read_rows, read_sound_head
from ledger.verify.resuming import ProgressFile, ProgressKeeper
from ledger.verify.workers import Effort, Segment
from testkit.ledger.logs import TENANT, change, head_of, noise, plain_rows, put, rows_of

SIZE = 2_300
SIGNED = (0, 1, 300, 1_000, 2_048, 2_100)
TIMEOUT_S = 30
SEGMENTS = Effort(processes=2, processes_entries_min=0, kernel_entries_min=2**62, segment_pages=2)
EFFORTS = (Effort(), Effort(kernel_entries_min=0), SEGMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A log in a database, and whoever verifies it."""

    database: str
    dsn: str
    connection: Connection
    log: Log
    rows: list[SequencedEntry]

    @property
    def signer(self) -> Ed25519Signer:
        return Ed25519Signer.from_seed(name=self.log.origin, seed=bytes(32))

    def note(self, size: int, root: bytes | None = None) -> bytes:
        root = root or head_of(self.rows[:size]).frontier.root()
        return sign_note(format_checkpoint(Checkpoint(origin=self.log.origin, size=size, root=root)), [self.signer])

    async def verify(
        self,
        *,
        effort: Effort | None = None,
        since: bytes | None = None,
        held: tuple[bytes, ...] = (),
        keeper: ProgressKeeper | None = None,
        stop_at: int = SIZE + 1,
    ) -> VerificationReport:
        def told(done: int, _: int) -> None:
            if done >= stop_at:
                raise StoppedError

        return await verify_database(
            self.connection,
            self.log,
            [self.signer.verifier_key],
            effort=effort,
            since=since,
            held=held,
            keeper=keeper,
            workers_dsn=self.dsn,
            progress=told,
        )

    async def broken(
        self, *, effort: Effort | None = None, since: bytes | None = None, held: tuple[bytes, ...] = ()
    ) -> tuple[Fault, int | None, str, str]:
        with pytest.raises(BrokenError) as caught:
            await self.verify(effort=effort, since=since, held=held)
        return caught.value.fault, caught.value.index, caught.value.where, str(caught.value)


def loosen(database: str) -> None:
    """Drop what keeps no bytes, or NULL, out of tiles and entries, as an owner can."""
    with psycopg.connect(database) as owner:
        owner.execute("ALTER TABLE ledger.tiles DROP CONSTRAINT tiles_root_check, ALTER hashes DROP NOT NULL")
        owner.execute(
            "ALTER TABLE ledger.entries "
            "DROP CONSTRAINT entries_leaf_check, ALTER entry DROP NOT NULL, ALTER leaf DROP NOT NULL"
        )


class StoppedError(Exception):
    """What stops the work in the middle."""


@pytest.fixture
async def stored(database: str, installation: Provisioned) -> AsyncIterator[Stored]:
    log_id = create_tenant_log(database, installation, TENANT)
    rows = rows_of(SIZE, log=installation.origin(TENANT))
    await put(database, log_id, rows)
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        log = await find_log(connection, installation.origin(TENANT))
        stored = Stored(database=database, dsn=dsn, connection=connection, log=log, rows=rows)
        with psycopg.connect(database) as owner:
            for size in SIGNED:
                owner.execute("INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", (log_id, size, stored.note(size)))
        yield stored


async def test_however_the_work_is_done_a_clean_log_is_clean(stored: Stored) -> None:
    reports = [replace(await stored.verify(effort=effort), elapsed_s=0.0) for effort in EFFORTS]
    assert reports[0] == reports[1] == reports[2]
    assert (reports[0].size, reports[0].signed_size, reports[0].checkpoints) == (SIZE, SIGNED[-1], len(SIGNED))


@pytest.mark.parametrize(
    ("statement", "fault", "index"),
    [
        ("UPDATE ledger.entries SET key = 'x' WHERE index = 1500", Fault.DERIVED, 1_500),
        ("DELETE FROM ledger.entries WHERE index = 1279", Fault.INDEX, 1_279),
        ("UPDATE ledger.entries SET entry = '' WHERE index = 511", Fault.ENTRY, 511),
        ("UPDATE ledger.tiles SET hashes = sha256(hashes) || substr(hashes, 33) WHERE tile = 6", Fault.TILE, None),
        ("UPDATE ledger.heads SET control_index = 1 WHERE size = 2300", Fault.HEAD, None),
        ("UPDATE ledger.checkpoints SET note = '' WHERE size = 1000", Fault.CHECKPOINT, None),
        # What no constraint keeps out any more. An entry behind which a segment begins, and one of the tree's edge.
        ("UPDATE ledger.tiles SET root = '' WHERE tile = 6", Fault.DERIVED, None),
        ("UPDATE ledger.tiles SET hashes = NULL WHERE tile = 6", Fault.TILE, None),
        ("UPDATE ledger.entries SET entry = NULL WHERE index = 1023", Fault.ENTRY, 1_023),
        ("UPDATE ledger.entries SET leaf = NULL WHERE index = 2299", Fault.DERIVED, 2_299),
        ("UPDATE ledger.entries SET leaf = '' WHERE index = 2299", Fault.DERIVED, 2_299),
    ],
)
async def test_however_the_work_is_done_the_same_fault_is_named(
    stored: Stored, statement: str, fault: Fault, index: int | None
) -> None:
    loosen(stored.database)
    change(stored.database, statement)
    found = [await stored.broken(effort=effort) for effort in EFFORTS]
    assert found[0] == found[1] == found[2]
    assert found[0][:2] == (fault, index)


@pytest.mark.parametrize("size", [0, 1, 300, 512, 2_048, 2_100, SIZE])
async def test_from_a_checkpoint_on_only_what_is_new_is_read(stored: Stored, size: int) -> None:
    for effort in EFFORTS:
        report = await stored.verify(effort=effort, since=stored.note(size))
        assert (report.since, report.first, report.size) == (size, size - size % TILE_WIDTH, SIZE)
        assert report.root == head_of(stored.rows).frontier.root()


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where the pages begin whose entries are looked at one by one, not by the kernel."""
    pages: list[int] = []

    async def reading(connection: Connection, log_id: int, *, first: int, end: int) -> list[EntryRow]:
        pages.append(first)
        return await read_rows(connection, log_id, first=first, end=end)

    monkeypatch.setattr(database_pages, "read_rows", reading)
    return pages


@pytest.mark.parametrize(
    "size", [257, 17 * TILE_WIDTH + 1], ids=["an entry behind a page", "more than streamed at once"]
)
async def test_the_kernel_reads_every_page(stored: Stored, one_by_one: list[int], size: int) -> None:
    rows = plain_rows(size, log=stored.log.origin)
    change(stored.database, "DELETE FROM ledger.checkpoints")
    await put(stored.database, stored.log.log_id, rows)
    async with asyncio.timeout(TIMEOUT_S):
        report = await stored.verify(effort=Effort(kernel_entries_min=0), stop_at=size + 1)
    assert (report.size, report.root) == (size, head_of(rows).frontier.root())
    assert not one_by_one


async def test_from_a_checkpoint_on_the_kernel_reads_what_is_new(stored: Stored, one_by_one: list[int]) -> None:
    await stored.verify(effort=Effort(kernel_entries_min=0), since=stored.note(1_000))
    assert not one_by_one
    await stored.verify(effort=Effort(kernel_entries_min=2**62), since=stored.note(1_000))
    assert one_by_one == list(range(768, SIZE, TILE_WIDTH))


async def test_from_a_checkpoint_on_faults_behind_it_are_found_and_those_before_are_not(stored: Stored) -> None:
    change(stored.database, "UPDATE ledger.entries SET key = 'x' WHERE index IN (700, 1500)")
    assert (await stored.broken(since=stored.note(1_000)))[:2] == (Fault.DERIVED, 1_500)
    assert (await stored.verify(since=stored.note(SIZE))).size == SIZE
    change(stored.database, "UPDATE ledger.entries SET entry = '' WHERE index = 767")
    assert (await stored.broken(since=stored.note(1_000)))[:2] == (Fault.ENTRY, 767)


async def test_a_control_index_that_points_behind_the_prefix_wrongly_is_found(stored: Stored) -> None:
    # The newest control entry may lie in the prefix, which is not read; one behind it cannot hide.
    change(stored.database, "UPDATE ledger.heads SET control_index = 2299 WHERE log_id = %s", stored.log.log_id)
    assert (await stored.broken(since=stored.note(SIZE - 252)))[0] is Fault.HEAD
    change(stored.database, "UPDATE ledger.heads SET control_index = 5 WHERE log_id = %s", stored.log.log_id)
    assert (await stored.broken(since=stored.note(1_000)))[0] is Fault.HEAD


async def test_null_where_tiles_prove_a_prefix_is_a_fault(stored: Stored) -> None:
    loosen(stored.database)
    change(stored.database, "UPDATE ledger.entries SET entry = NULL WHERE index = 2047")
    assert (await stored.broken(since=stored.note(2_048)))[:2] == (Fault.ENTRY, 2_047)
    change(stored.database, "UPDATE ledger.tiles SET hashes = NULL, root = NULL WHERE tile = 2")
    assert (await stored.broken(since=stored.note(1_000)))[0] is Fault.TILE


@pytest.mark.parametrize("size", [1, 300, 1_000, 2_048, 2_200])
async def test_a_log_that_does_not_go_on_from_the_checkpoint_is_found(stored: Stored, size: int) -> None:
    other = stored.note(size, root=noise("another history"))
    assert (await stored.broken(since=other))[0] is Fault.ROOT
    assert (await stored.broken(since=stored.note(2_250), held=(other,)))[0] is Fault.ROOT


async def test_work_that_was_cut_off_is_taken_up_again(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "SAVE_ENTRIES", 512)
    file = tmp_path / "progress"
    for stop_at in (1_024, 2_048):
        with pytest.raises(StoppedError):
            await stored.verify(keeper=ProgressFile(file), stop_at=stop_at)
    change(stored.database, "UPDATE ledger.entries SET key = 'x' WHERE index = 100")  # which was read
    report = await stored.verify(keeper=ProgressFile(file))
    assert (report.resumed_at, report.size) == (1_536, SIZE)
    assert (await stored.broken())[:2] == (Fault.DERIVED, 100)


async def test_what_was_verified_before_must_still_be_there(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "SAVE_ENTRIES", 512)
    file = tmp_path / "progress"
    with pytest.raises(StoppedError):
        await stored.verify(keeper=ProgressFile(file), stop_at=SIZE)
    change(stored.database, "DELETE FROM ledger.checkpoints WHERE log_id = %s", stored.log.log_id)
    end = next(row.index for row in stored.rows[900:] if row.group_id)
    await put(stored.database, stored.log.log_id, stored.rows[:end])
    with pytest.raises(BrokenError) as caught:
        await stored.verify(keeper=ProgressFile(file))
    assert (caught.value.fault, caught.value.index) == (Fault.INDEX, end)


# Needed by one fault alone


async def test_a_worker_comes_from_the_state_before_a_segment_to_the_one_behind_it(stored: Stored) -> None:
    head = (await read_sound_head(stored.connection, stored.log.log_id)).head
    job = Job(stored.dsn, "", stored.log, head, None)
    before = ChainState()
    async with stored.connection.transaction():
        for first in range(0, SIZE, 512):
            end = min(first + 512, SIZE)
            checked = await _check_on(stored.connection, job, Segment(first, end))
            assert (checked.before, checked.after.size) == (before, end)
            assert [leaf for page in checked.pages for leaf in page.split()] == [r.leaf for r in stored.rows[first:end]]
            before = checked.after


@pytest.mark.parametrize("effort", EFFORTS, ids=["exact", "fast", "segments"])
async def test_tiles_whose_roots_were_never_kept_verify(stored: Stored, effort: Effort) -> None:
    change(stored.database, "UPDATE ledger.tiles SET root = NULL")
    assert (await stored.verify(effort=effort)).size == SIZE


@pytest.mark.parametrize("effort", EFFORTS, ids=["exact", "fast", "segments"])
async def test_a_tile_of_too_many_hashes_is_named(stored: Stored, effort: Effort) -> None:
    with psycopg.connect(stored.database) as owner:
        owner.execute("ALTER TABLE ledger.tiles DROP CONSTRAINT tiles_hashes_check")
        owner.execute("UPDATE ledger.tiles SET hashes = hashes || sha256('') WHERE tile = 6")
    assert (await stored.broken(effort=effort))[0] is Fault.TILE


async def test_two_heads_of_one_log_are_named(stored: Stored) -> None:
    with psycopg.connect(stored.database) as owner:
        owner.execute("ALTER TABLE ledger.heads DROP CONSTRAINT heads_pkey CASCADE")
        owner.execute("INSERT INTO ledger.heads SELECT * FROM ledger.heads WHERE size = 2300")
    assert (await stored.broken())[0] is Fault.HEAD


@pytest.mark.parametrize("index", [256, 257, 599])
async def test_a_head_that_names_another_last_control_entry_is_found_if_that_was_read(
    stored: Stored, installation: Provisioned, index: int
) -> None:
    tenant = UUID(int=5)
    log_id = create_tenant_log(stored.database, installation, tenant)
    rows = plain_rows(600, log=installation.origin(tenant))
    assert not any(row.is_control for row in rows)
    await put(stored.database, log_id, rows)
    log = await find_log(stored.connection, installation.origin(tenant))
    other = replace(stored, log=log, rows=rows)
    since = other.note(300)
    assert (await other.verify(since=since)).first == 256
    change(stored.database, f"UPDATE ledger.heads SET control_index = {index} WHERE size = 600")  # noqa: S608
    assert (await other.broken(since=since))[0] is Fault.HEAD
