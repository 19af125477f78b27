# SPDX-License-Identifier: Apache-2.0
"""Looking at a log: what is shown is what matches, in order, and what a log holds adds up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from psycopg import AsyncConnection
from psycopg.sql import SQL

from lakeproof.commands.show import entry_line, entry_page, statistics_json, statistics_page
from lakeproof.provision import Provisioned, create_tenant_log
from ledger.errors import BrokenError, Fault, FormatError, NoSuchLogError
from ledger.format.entry import Entry, parse_entry
from ledger.format.sequence import SequencedEntry
from ledger.proving import search
from ledger.proving.search import EntryFilter, find_newest, follow, read_statistics, with_parts
from ledger.store import read
from ledger.store.notifications import LOG_GROWN
from ledger.store.queries import load_queries
from ledger.store.read import Log, find_log, first_index_since
from ledger.store.session import Connection
from testkit.ledger.logs import START, TENANT, change, put, rows_of

SIZE = 700
LATER = START + timedelta(milliseconds=100)
"""When the second batch of groups was recorded."""


@pytest.fixture(scope="module")
def log_id(module_database: str, module_installation: Provisioned) -> int:
    return create_tenant_log(module_database, module_installation, TENANT)


@pytest.fixture(scope="module")
def rows(module_database: str, module_installation: Provisioned, log_id: int) -> list[SequencedEntry]:
    rows = rows_of(SIZE, log=module_installation.origin(TENANT))
    asyncio.run(put(module_database, log_id, rows))
    return rows


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connection(module_installation: Provisioned) -> AsyncIterator[Connection]:
    dsn = module_installation.as_role(module_installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def log(connection: Connection, module_installation: Provisioned, rows: list[SequencedEntry]) -> Log:
    assert rows
    return await find_log(connection, module_installation.origin(TENANT))


@pytest_asyncio.fixture(loop_scope="module")
async def changing(module_database: str, log: Log, rows: list[SequencedEntry]) -> AsyncIterator[str]:
    """The owner's connection string to the database, in which the log's entries are put back afterwards."""
    yield module_database
    await put(module_database, log.log_id, rows)


Matches = Callable[[Entry], bool]


CASES: list[tuple[EntryFilter, Matches]] = [
    (EntryFilter(), lambda _: True),
    (EntryFilter(type="commit.settled"), lambda e: e.type == "commit.settled"),
    (EntryFilter(type="commit.*"), lambda e: e.type.startswith("commit.")),
    (EntryFilter(key="table:sales/orders3"), lambda e: e.key == "table:sales/orders3"),
    (EntryFilter(key="table:sales/orders1*"), lambda e: e.key.startswith("table:sales/orders1")),
    (EntryFilter(actors=("system",)), lambda e: e.actor == "system"),
    (EntryFilter(actors=("syste",)), lambda _: False),
    (EntryFilter(type="commit.%"), lambda _: False),
    (EntryFilter(after=LATER), lambda e: e.recorded_at >= LATER),
    (EntryFilter(before=LATER), lambda e: e.recorded_at < LATER),
    (EntryFilter(after=LATER, before=LATER), lambda _: False),
    (
        EntryFilter(type="policy.*", actors=("system",), after=LATER),
        lambda e: e.type.startswith("policy.") and e.actor == "system" and e.recorded_at >= LATER,
    ),
]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_newest_entries_that_match_are_found_and_no_others(
    connection: Connection, log: Log, rows: list[SequencedEntry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "RANGE_MAX", 64)
    for wanted, matches in CASES:
        expected = [row.entry for row in rows if matches(parse_entry(row.entry))]
        for count_max in (0, 7, SIZE):
            found, size = await find_newest(connection, log, wanted, count_max=count_max)
            assert size == SIZE
            assert [one.entry for one in found] == expected[len(expected) - min(count_max, len(expected)) :], wanted
            assert [one.index for one in found] == [parse_entry(one.entry).index for one in found]


@pytest.mark.asyncio(loop_scope="module")
async def test_nothing_before_an_index_is_shown_and_an_index_too_large_shows_nothing(
    connection: Connection, log: Log
) -> None:
    found, _ = await find_newest(connection, log, EntryFilter(), count_max=SIZE, from_index=SIZE - 3)
    assert [one.index for one in found] == [SIZE - 3, SIZE - 2, SIZE - 1]
    assert await find_newest(connection, log, EntryFilter(), count_max=SIZE, from_index=SIZE + 5) == ([], SIZE)


@pytest.mark.parametrize("searched_max", [1, 2, read.SEARCHED_MAX, SIZE])
@pytest.mark.asyncio(loop_scope="module")
async def test_the_first_entry_of_any_time_is_found_however_many_are_read_at_once(
    connection: Connection, log: Log, rows: list[SequencedEntry], searched_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "SEARCHED_MAX", searched_max)
    times = [parse_entry(row.entry).recorded_at for row in rows]
    for time in sorted({*times, START - timedelta(days=1), times[-1] + timedelta(microseconds=1)}):
        expected = next((index for index, recorded in enumerate(times) if recorded >= time), SIZE)
        assert await first_index_since(connection, log.log_id, time, size=SIZE) == expected


@pytest.mark.asyncio(loop_scope="module")
async def test_a_corrupt_time_is_an_error_and_no_answer(connection: Connection, log: Log, changing: str) -> None:
    change(changing, "UPDATE ledger.entries SET entry = 'x' WHERE log_id = %s AND index = 350", log.log_id)
    with pytest.raises(FormatError):
        await find_newest(connection, log, EntryFilter(after=START), count_max=1)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_missing_entry_is_an_error_and_no_answer(connection: Connection, log: Log, changing: str) -> None:
    change(changing, "DELETE FROM ledger.entries WHERE index = 350")
    with pytest.raises(BrokenError) as caught:
        await first_index_since(connection, log.log_id, LATER, size=SIZE)
    assert (caught.value.fault, caught.value.index) == (Fault.INDEX, 350)


@pytest.mark.asyncio(loop_scope="module")
async def test_of_a_log_that_is_not_there_nothing_is_shown(connection: Connection) -> None:
    nowhere = Log(log_id=99, origin="no/where", tenant=None, reader=None)
    with pytest.raises(NoSuchLogError):
        await find_newest(connection, nowhere, EntryFilter(), count_max=1)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_follower_sees_each_new_entry_that_matches_once(
    connection: Connection, log: Log, rows: list[SequencedEntry], changing: str
) -> None:
    more = rows_of(SIZE + 100, log=log.origin)
    seen: list[int] = []
    followed = follow(connection, log, EntryFilter(type="commit.decided"), from_index=SIZE - 10)
    expected = [row.index for row in more[SIZE - 10 :] if row.type == "commit.decided"]
    async for found in followed:
        seen.append(found.index)
        if len(seen) == 2:
            await put(changing, log.log_id, more)
            async with await AsyncConnection.connect(changing, autocommit=True) as ringing:
                await ringing.execute(f"NOTIFY {LOG_GROWN}")
        if len(seen) == len(expected):
            break
    await followed.aclose()
    assert seen == expected


@pytest.mark.asyncio(loop_scope="module")
async def test_a_follower_from_beyond_the_end_sees_nothing_before_that(
    connection: Connection, log: Log, changing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "POLL_S", 0.01)
    followed = follow(connection, log, EntryFilter(), from_index=SIZE + 30)
    first = asyncio.ensure_future(anext(followed))
    for size in (SIZE + 10, SIZE + 31):  # it looks while these are written, and before there is what it waits for
        await put(changing, log.log_id, rows_of(size, log=log.origin))
    assert (await first).index == SIZE + 30
    await followed.aclose()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_follower_ends_when_what_comes_is_too_late(
    connection: Connection, log: Log, rows: list[SequencedEntry]
) -> None:
    followed = follow(connection, log, EntryFilter(before=LATER), from_index=0)
    assert [one.entry async for one in followed] == [
        row.entry for row in rows if parse_entry(row.entry).recorded_at < LATER
    ]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_figures_of_a_log_add_up(connection: Connection, log: Log, rows: list[SequencedEntry]) -> None:
    figures = await read_statistics(connection, log)
    assert (figures.size, figures.groups) == (SIZE, sum(row.group_id is not None for row in rows))
    assert figures.size_bytes == sum(len(row.entry) for row in rows)
    assert {one.type: (one.entries, one.size_bytes) for one in figures.types} == {
        kind: (len(of), sum(map(len, of)))
        for kind in {row.type for row in rows}
        if (of := [row.entry for row in rows if row.type == kind])
    }
    assert (figures.first_recorded_at, figures.last_recorded_at) == (START, parse_entry(rows[-1].entry).recorded_at)
    assert (figures.last_hour, figures.last_day, figures.parts_held) == (0, 0, None)
    assert statistics_json(figures)["size"] == SIZE
    assert f"size       {SIZE} entries in {figures.groups} groups" in statistics_page(figures)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_parts_that_still_exist_are_counted_as_the_tenant_sees_them(
    log: Log, rows: list[SequencedEntry], module_installation: Provisioned, connection: Connection
) -> None:
    figures = await read_statistics(connection, log)
    reader = module_installation.as_role(module_installation.roles.tenant(TENANT))
    async with await AsyncConnection.connect(reader, autocommit=True) as as_tenant:
        held = await with_parts(as_tenant, log, figures)
    assert held.parts_held == sum(len(row.parts) for row in rows)
    assert f"parts      {held.parts_held} held" in statistics_page(held)


@pytest.mark.asyncio(loop_scope="module")
async def test_an_empty_log_has_figures_too(connection: Connection, module_installation: Provisioned) -> None:
    figures = await read_statistics(connection, await find_log(connection, module_installation.system_origin))
    assert (figures.size, figures.first_recorded_at, figures.types) == (0, None, ())
    assert "size       0 entries" in statistics_page(figures)


@given(st.sampled_from(rows_of(60)))
def test_a_line_and_a_page_of_an_entry_never_move_the_cursor(row: SequencedEntry) -> None:
    line = entry_line(row.entry)
    page = entry_page(row.entry, parts_held=None)
    assert line.isprintable()
    assert all(part.isprintable() for part in page.split("\n"))
    assert f"leaf       {row.leaf.hex()}" in page
    data = page[page.index("\n{") :]
    assert json.loads(data) == json.loads(row.entry)["event"]["data"]


def test_a_page_says_which_parts_are_held_and_which_were_erased() -> None:
    row = next(row for row in rows_of(60) if len(row.parts) == 2)
    page = entry_page(row.entry, parts_held={"principal"})
    assert "part       inputs, erased, commitment " in page
    assert "part       principal, held, commitment " in page


def test_what_is_no_entry_is_not_shown() -> None:
    with pytest.raises(FormatError):
        entry_line(b"{}")


@pytest.mark.asyncio(loop_scope="module")
async def test_entries_about_a_key_are_found_through_the_pages_that_may_have_it_and_are_those_of_the_log(
    changing: str, log: Log, rows: list[SequencedEntry]
) -> None:
    about = load_queries("ledger.store", "evidence.sql")["entries_about"]
    entries = [parse_entry(row.entry) for row in rows]
    async with await AsyncConnection.connect(changing, autocommit=True) as owner:
        await owner.execute("SELECT brin_summarize_new_values('ledger.entries_key')")
        async with owner.transaction(force_rollback=True):
            # So short a log is read faster by its other index than page by page.
            await owner.execute("ALTER TABLE ledger.entries DROP CONSTRAINT entries_pkey")
            await owner.execute("SET LOCAL enable_seqscan = off")
            for key in ("table:sales/orders3", "table:sales/orders", "table:sales/none"):
                for first, end in ((0, SIZE), (100, 300), (SIZE, SIZE)):
                    bounds = {"log_id": log.log_id, "key": key, "first": first, "end": end, "limit": SIZE}
                    plan = await (await owner.execute(SQL("EXPLAIN ") + SQL(about), bounds)).fetchall()
                    found = await (await owner.execute(about, bounds)).fetchall()
                    expected = [
                        row.entry
                        for row, entry in zip(rows, entries, strict=True)
                        if entry.key == key and first <= entry.index < end
                    ]
                    assert "Bitmap Index Scan on entries_key" in str(plan)
                    assert [bytes(row[0]) for row in found] == expected
