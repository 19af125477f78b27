# SPDX-License-Identifier: Apache-2.0
"""
Pages of decisions that another process reads: the same as this one reads, and read here if it cannot.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

import psycopg
import pytest
import pytest_asyncio

from gateway.replaying import application
from gateway.replaying.comparing import Change
from gateway.replaying.page_process import ANSWER_TIMEOUT_S, Access, PageProcess
from gateway.replaying.pages import Bounds, Page, PageReader, Settled, Wanted
from gateway.replaying.reading import DecisionReader
from gateway.replaying.recorded import Decision, Lend
from gateway.replaying.replay import Proposed
from lakeproof.page_access import page_access
from ledger.errors import BrokenError, Fault
from ledger.store.read import read_head
from testkit.gateway.connections import until
from testkit.gateway.replays import erase_ada, replay
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, properties
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTS = ("inputs", "principal")


@pytest_asyncio.fixture(loop_scope="module")
async def busy(sales: Gateway) -> Gateway:
    """Commits to a table, one of which is refused by the table, and a rename."""
    for value in range(4):
        (await sales.http.post(ORDERS, json=properties(a=str(value)))).raise_for_status()
    body = {"requirements": [{"type": "assert-table-uuid", "uuid": "0" * 8 + "-0000-4000-8000-" + "0" * 12}]}
    assert (await sales.http.post(ORDERS, json={**body, "updates": []})).status_code == 409
    assert (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).status_code == 200
    names = {
        "source": {"namespace": ["sales"], "name": "more"},
        "destination": {"namespace": ["sales"], "name": "less"},
    }
    (await sales.http.post(NAMESPACES.replace("namespaces", "tables/rename"), json=names)).raise_for_status()
    return sales


def lend_of(gateway: Gateway) -> Lend:
    parts = gateway.services.gateway
    return partial(parts.database.as_role, parts.roles.tenant(gateway.acme.tenant))


async def size_of(gateway: Gateway) -> int:
    async with lend_of(gateway)() as connection:
        return (await read_head(connection, gateway.acme.log_id)).size


def access_of(gateway: Gateway) -> Access:
    return page_access(gateway.services, gateway.acme.tenant)


def wanted_of(gateway: Gateway) -> Wanted:
    return Wanted(gateway.acme.log_id, PARTS, with_files=True)


def reader_of(gateway: Gateway) -> PageReader:
    return PageReader(lend_of(gateway), wanted_of(gateway), gateway.services.opener)


def bounds_of(size: int, entries: int) -> list[Bounds]:
    starts = range(0, size, entries)
    return [Bounds(at, min(at + entries, size), at == 0, at == starts[-1]) for at in starts]


def checked(page: Page) -> Page:
    """The page as another process tells it: commitments have done their work."""
    return Page([one if isinstance(one, Settled) else replace(one, commitments={}) for one in page.items], page.end)


class Counting(PageProcess):
    """Counts the pages that were read."""

    count = 0

    async def read(self, bounds: Bounds) -> Page | None:
        page = await super().read(bounds)
        self.count += page is not None
        return page


@asynccontextmanager
async def ready(gateway: Gateway, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> AsyncIterator[Counting]:
    """Yield a process that can be asked for pages."""
    async with Counting(access_of(gateway), answer_timeout_s=answer_timeout_s) as process:
        process.want(wanted_of(gateway))
        await until(lambda: process.is_ready)
        yield process


async def decisions_of(
    gateway: Gateway, beside: PageProcess | None, *, entries: int = 1, kill_after: int | None = None
) -> Sequence[Decision]:
    reader = DecisionReader(
        lend_of(gateway),
        gateway.acme.log_id,
        opener=gateway.services.opener,
        parts=PARTS,
        with_files=True,
        first=0,
        page_entries=entries,
        beside=beside,
    )
    found: list[Decision] = []
    number = 0
    async for decisions, _ in reader.pages(0, await size_of(gateway)):
        found += [replace(one, commitments={}) for one in decisions]
        if number == kill_after and beside is not None and beside.pid is not None:
            os.kill(beside.pid, signal.SIGKILL)
        number += 1
    return found


@pytest.mark.parametrize("is_erased", [False, True])
async def test_another_process_reads_each_page_as_this_one_does(busy: Gateway, *, is_erased: bool) -> None:
    if is_erased:
        await erase_ada(busy)
    size, reader = await size_of(busy), reader_of(busy)
    async with ready(busy) as process:
        for bounds in (one for entries in (1, 2, 5, 1_000) for one in bounds_of(size, entries)):
            page = await reader.read(bounds)
            assert await process.read(bounds) == checked(page)
    decisions = [one for one in page.items if isinstance(one, Decision)]
    assert len(decisions) > 7
    assert any("principal" in one.parts for one in decisions) is not is_erased


@pytest.mark.parametrize("entries", [1, 2, 3, 7])
async def test_pages_have_whole_groups_and_each_decision_once(busy: Gateway, entries: int) -> None:
    size, reader = await size_of(busy), reader_of(busy)
    pages = [await reader.read(bounds) for bounds in bounds_of(size, entries)]
    (whole,) = [await reader.read(Bounds(0, size, is_first=True, is_last=True))]
    assert [item for page in pages for item in page.items] == whole.items
    for page in pages:
        decisions = [one for one in page.items if isinstance(one, Decision)]
        for group_id in {one.group_id for one in decisions}:
            of_group = [one for one in whole.items if isinstance(one, Decision) and one.group_id == group_id]
            assert of_group == [one for one in decisions if one.group_id == group_id]


async def test_decisions_of_two_processes_are_in_the_order_of_the_log(busy: Gateway) -> None:
    alone = await decisions_of(busy, None)
    async with ready(busy) as process:
        assert await decisions_of(busy, process) == alone
        assert process.count > 1
    assert {one.operation for one in alone} >= {"table.create", "table.commit", "table.rename_from"}


async def test_pages_of_a_process_that_is_killed_are_read_here(busy: Gateway) -> None:
    alone = await decisions_of(busy, None)
    async with ready(busy) as process:
        assert await decisions_of(busy, process, kill_after=1) == alone
        assert not process.is_ready


async def test_pages_of_a_process_that_stands_still_are_read_here_and_it_is_ended(busy: Gateway) -> None:
    alone = await decisions_of(busy, None)
    async with ready(busy, answer_timeout_s=0.2) as process:
        assert process._process is not None
        os.kill(process._process.pid, signal.SIGSTOP)
        assert await decisions_of(busy, process) == alone
        assert not process.is_ready
        assert process.count == 0
        await process._process.wait()


async def test_a_process_that_cannot_open_the_keys_reads_nothing_and_stops_nothing(
    busy: Gateway, tmp_path: Path
) -> None:
    (tmp_path / "kek").write_text("damaged\n", encoding="ascii")
    (tmp_path / "kek").chmod(0o600)
    async with Counting(access_of(busy)._replace(key_encryption=str(tmp_path / "kek"))) as process:
        assert await decisions_of(busy, process) == await decisions_of(busy, None)
        assert process.count == 0


async def test_a_corrupt_entry_is_named_by_this_process(busy: Gateway) -> None:
    with psycopg.connect(busy.services.installation.admin_dsn, autocommit=True) as owner:
        owner.execute(
            "UPDATE ledger.entries SET entry = replace(encode(entry, 'escape'), 'table.commit', 'table.create')::bytea "
            "WHERE log_id = %s AND index = (SELECT max(index) FROM ledger.entries WHERE type = 'commit.decided' "
            "AND position('table.commit'::bytea IN entry) > 0)",
            (busy.acme.log_id,),
        )
    async with ready(busy) as process:
        with pytest.raises(BrokenError) as caught:
            await decisions_of(busy, process)
    assert caught.value.fault is Fault.ENTRY


async def test_a_replay_with_another_process_finds_the_same_and_leaves_none(
    busy: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "BESIDE_ENTRIES_MIN", 1)
    monkeypatch.setattr(application, "PAGE_ENTRIES", 1)
    seen: list[PageProcess] = []

    class Seen(PageProcess):
        async def __aenter__(self) -> Self:
            seen.append(self)
            return await super().__aenter__()

    monkeypatch.setattr(application, "PageProcess", Seen)
    proposal = Proposed(id="never", expression="result.columns.all(c, c.name != 'a') && commit.operation != 'x'")
    found = await replay(busy, proposal, access=access_of(busy))
    assert found == await replay(busy, proposal)
    assert found.counts[Change.UNKNOWN] == 0
    (process,) = seen
    assert process.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


async def test_a_replay_that_is_cancelled_leaves_no_process(busy: Gateway) -> None:
    began = asyncio.Event()

    async def work() -> int:
        async with Counting(access_of(busy)) as process:
            began.set()
            try:
                await decisions_of(busy, process)
                await asyncio.sleep(60)
            finally:
                pids.append(process.pid or 0)
        return 0

    pids: list[int] = []
    working = asyncio.create_task(work())
    await began.wait()
    await asyncio.sleep(0)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


async def test_connection_string_and_keys_are_not_among_the_arguments(busy: Gateway) -> None:
    async with ready(busy) as process:
        command = await asyncio.to_thread(Path(f"/proc/{process.pid}/cmdline").read_text, encoding="utf-8")
        assert command.split("\0")[-2] == "gateway.replaying.page_process"
    assert busy.services.installation.dsn not in repr(access_of(busy))
