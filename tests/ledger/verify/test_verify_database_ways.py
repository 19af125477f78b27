# SPDX-License-Identifier: Apache-2.0
"""Ways to verify a log in PostgreSQL: several processes, from a checkpoint on, taken up again. All find the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest
import pytest_asyncio
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
from testkit.ledger.logs import TENANT, head_of, noise, plain_rows, put, rows_of
from testkit.ledger.tampering.instances import save
from testkit.ledger.tampering.world import PREPARATION

pytestmark = pytest.mark.asyncio(loop_scope="module")

SIZE = 2_300
OTHER_TENANT, OTHER_SIZE = UUID(int=5), 600
SIGNED = (0, 1, 300, 1_000, 2_048, 2_100)
TIMEOUT_S = 30
SEGMENTS = Effort(processes=2, processes_entries_min=0, kernel_entries_min=2**62, segment_pages=2)
ALONE = (Effort(), Effort(kernel_entries_min=0))
EFFORTS = (*ALONE, SEGMENTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A log in a database, whoever verifies it, and the owner, whom no constraint hinders."""

    database: str
    dsn: str
    owner: Connection
    connection: Connection
    log: Log
    rows: list[SequencedEntry]

    async def change(self, statement: str, *parameters: object) -> None:
        assert (await self.owner.execute(statement.encode(), parameters)).rowcount > 0

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


class StoppedError(Exception):
    """What stops the work in the middle."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def written(module_database: str, module_installation: Provisioned) -> AsyncIterator[dict[UUID, Stored]]:
    """A log with signed sizes, and one without any control entry and signature; by tenant."""
    logs: dict[UUID, Stored] = {}
    dsn = module_installation.as_role(module_installation.roles.auditor)
    async with (
        await AsyncConnection.connect(dsn, autocommit=True) as connection,
        await AsyncConnection.connect(module_database, autocommit=True) as owner,
    ):
        for tenant, size, make in ((TENANT, SIZE, rows_of), (OTHER_TENANT, OTHER_SIZE, plain_rows)):
            log_id = create_tenant_log(module_database, module_installation, tenant)
            rows = make(size, log=module_installation.origin(tenant))
            await put(module_database, log_id, rows)
            log = await find_log(connection, module_installation.origin(tenant))
            logs[tenant] = Stored(
                database=module_database, dsn=dsn, owner=owner, connection=connection, log=log, rows=rows
            )
        stored = logs[TENANT]
        for size in SIGNED:
            note = stored.note(size)
            await owner.execute("INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", (stored.log.log_id, size, note))
        await owner.execute(PREPARATION.encode())
        await save(owner)
        yield logs


@pytest_asyncio.fixture(loop_scope="module")
async def stored(written: dict[UUID, Stored]) -> AsyncIterator[Stored]:
    """The signed log, whose every row is put back afterwards."""
    yield written[TENANT]
    await written[TENANT].owner.execute("SELECT saved.put_back(false)")


async def test_however_the_work_is_done_a_clean_log_is_clean(stored: Stored) -> None:
    reports = [replace(await stored.verify(effort=effort), elapsed_s=0.0) for effort in EFFORTS]
    assert reports[0] == reports[1] == reports[2]
    assert (reports[0].size, reports[0].signed_size, reports[0].checkpoints) == (SIZE, SIGNED[-1], len(SIGNED))


@pytest.mark.parametrize(
    ("efforts", "statement", "fault", "index"),
    [
        (EFFORTS, "UPDATE ledger.entries SET key = 'x' WHERE index = 1500", Fault.DERIVED, 1_500),
        (EFFORTS, "DELETE FROM ledger.entries WHERE index = 1279", Fault.INDEX, 1_279),
        (ALONE, "UPDATE ledger.entries SET entry = '' WHERE index = 511", Fault.ENTRY, 511),
        (
            EFFORTS,
            "UPDATE ledger.tiles SET hashes = sha256(hashes) || substr(hashes, 33) WHERE tile = 6",
            Fault.TILE,
            None,
        ),
        (EFFORTS, "UPDATE ledger.heads SET control_index = 1 WHERE size = 2300", Fault.HEAD, None),
        (ALONE, "UPDATE ledger.checkpoints SET note = '' WHERE size = 1000", Fault.CHECKPOINT, None),
        # What no constraint keeps out any more. An entry behind which a segment begins, and one of the tree's edge.
        (ALONE, "UPDATE ledger.tiles SET root = '' WHERE tile = 6", Fault.DERIVED, None),
        (ALONE, "UPDATE ledger.tiles SET hashes = NULL WHERE tile = 6", Fault.TILE, None),
        (ALONE, "UPDATE ledger.tiles SET hashes = hashes || sha256('') WHERE tile = 6", Fault.TILE, None),
        (EFFORTS, "UPDATE ledger.entries SET entry = NULL WHERE index = 1023", Fault.ENTRY, 1_023),
        (EFFORTS, "UPDATE ledger.entries SET leaf = NULL WHERE index = 2299", Fault.DERIVED, 2_299),
        (ALONE, "UPDATE ledger.entries SET leaf = '' WHERE index = 2299", Fault.DERIVED, 2_299),
    ],
)
async def test_however_the_work_is_done_the_same_fault_is_named(
    stored: Stored, efforts: Sequence[Effort], statement: str, fault: Fault, index: int | None
) -> None:
    await stored.change(statement)
    found = {await stored.broken(effort=effort) for effort in efforts}
    assert {one[:2] for one in found} == {(fault, index)}
    assert len(found) == 1


@pytest.mark.parametrize("size", [0, 1, 300, 512, 2_048, 2_100, SIZE])
async def test_from_a_checkpoint_on_only_what_is_new_is_read(stored: Stored, size: int) -> None:
    for effort in EFFORTS if size in {300, 512} else ALONE:  # which end within a segment's first page, and with it
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
    await stored.change("DELETE FROM ledger.checkpoints")
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
    await stored.change("UPDATE ledger.entries SET key = 'x' WHERE index IN (700, 1500)")
    assert (await stored.broken(since=stored.note(1_000)))[:2] == (Fault.DERIVED, 1_500)
    assert (await stored.verify(since=stored.note(SIZE))).size == SIZE
    await stored.change("UPDATE ledger.entries SET entry = '' WHERE index = 767")
    assert (await stored.broken(since=stored.note(1_000)))[:2] == (Fault.ENTRY, 767)


async def test_a_control_index_that_points_behind_the_prefix_wrongly_is_found(stored: Stored) -> None:
    # The newest control entry may lie in the prefix, which is not read; one behind it cannot hide.
    await stored.change("UPDATE ledger.heads SET control_index = 2299 WHERE log_id = %s", stored.log.log_id)
    assert (await stored.broken(since=stored.note(SIZE - 252)))[0] is Fault.HEAD
    await stored.change("UPDATE ledger.heads SET control_index = 5 WHERE log_id = %s", stored.log.log_id)
    assert (await stored.broken(since=stored.note(1_000)))[0] is Fault.HEAD


async def test_null_where_tiles_prove_a_prefix_is_a_fault(stored: Stored) -> None:
    await stored.change("UPDATE ledger.entries SET entry = NULL WHERE index = 2047")
    assert (await stored.broken(since=stored.note(2_048)))[:2] == (Fault.ENTRY, 2_047)
    await stored.change("UPDATE ledger.tiles SET hashes = NULL, root = NULL WHERE tile = 2")
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
    await stored.change("UPDATE ledger.entries SET key = 'x' WHERE index = 100")  # which was read
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
    await stored.change("DELETE FROM ledger.checkpoints WHERE log_id = %s", stored.log.log_id)
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


async def test_tiles_whose_roots_were_never_kept_verify(stored: Stored) -> None:
    await stored.change("UPDATE ledger.tiles SET root = NULL")
    for effort in EFFORTS:
        assert (await stored.verify(effort=effort)).size == SIZE


@pytest.mark.parametrize("index", [256, 257, 599])
async def test_a_head_that_names_another_last_control_entry_is_found_if_that_was_read(
    stored: Stored, written: dict[UUID, Stored], index: int
) -> None:
    other = written[OTHER_TENANT]
    assert not any(row.is_control for row in other.rows)
    since = other.note(300)
    assert (await other.verify(since=since)).first == 256
    await stored.change(f"UPDATE ledger.heads SET control_index = {index} WHERE size = {OTHER_SIZE}")  # noqa: S608
    assert (await other.broken(since=since))[0] is Fault.HEAD
