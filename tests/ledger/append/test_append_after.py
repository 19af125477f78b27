# SPDX-License-Identifier: Apache-2.0
"""A group that comes after something else: nothing of it is in the log before that is done, and it delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from lakeproof.provision import Provisioned
from ledger.append import writer
from ledger.append.appender import Appender
from ledger.errors import GroupMismatchError, LogUnavailableError, NotPreparedError
from testkit.ledger.appending import appended, appender, event, group, read_log, verify

LONG_S = 30.0
"""More than anything here takes, and less than a test may."""


@pytest.fixture(scope="module")
def database(module_database: str) -> str:
    return module_database


@pytest.fixture(scope="module")
def installation(module_installation: Provisioned) -> Provisioned:
    return module_installation


@pytest.fixture
async def running(installation: Provisioned) -> AsyncIterator[Appender]:
    async with appender(installation) as started:
        yield started


class Something(asyncio.Future[None]):
    """What a group comes after; it tells that it is waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = asyncio.Event()

    def add_done_callback(self, *arguments: Any, **named: Any) -> None:
        super().add_done_callback(*arguments, **named)
        self.is_waited_for.set()


async def test_a_group_is_appended_once_what_it_comes_after_is_done(
    database: str, installation: Provisioned, log_id: int, running: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "PREPARED_S", LONG_S)
    after, one = Something(), group()
    appending = asyncio.create_task(running.append(log_id, one, after=after))
    await after.is_waited_for.wait()
    assert await read_log(database, log_id) == []
    after.set_result(None)
    assert appended(await appending).indices == range(1)
    assert [entry.group_id for entry in await read_log(database, log_id)] == [one.id]
    await verify(installation, log_id)


async def test_what_is_done_already_is_waited_for_no_longer(database: str, log_id: int, running: Appender) -> None:
    after = Something()
    after.set_result(None)
    assert appended(await running.append(log_id, group(), after=after)).indices == range(1)
    assert len(await read_log(database, log_id)) == 1


@pytest.mark.parametrize("fails", ["before", "while it is waited for"])
@pytest.mark.parametrize("how", ["error", "cancelled"])
async def test_a_group_is_not_appended_if_what_it_comes_after_fails(
    database: str, log_id: int, running: Appender, monkeypatch: pytest.MonkeyPatch, *, fails: str, how: str
) -> None:
    monkeypatch.setattr(writer, "PREPARED_S", LONG_S)
    after, one = Something(), group()

    def fail() -> None:
        if how == "error":
            after.set_exception(OSError("no space left on the device"))
        else:
            after.cancel()

    if fails == "before":
        fail()
    appending = asyncio.create_task(running.append(log_id, one, after=after))
    if fails != "before":
        await after.is_waited_for.wait()
        fail()
    with pytest.raises(NotPreparedError):
        await appending
    assert await read_log(database, log_id) == []
    assert appended(await running.append(log_id, one)).indices == range(1), "it may be submitted again"


async def test_what_takes_long_holds_the_log_for_no_one(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    after, one = Something(), group()
    appending = asyncio.create_task(running.append(log_id, one, after=after))
    await after.is_waited_for.wait()
    others = [group() for _ in range(20)]
    for number, other in enumerate(others):
        assert appended(await running.append(log_id, other)).indices == range(number, number + 1)
    async with appender(installation) as another:
        assert appended(await another.append(log_id, group())).indices == range(20, 21)
    assert not appending.done()
    after.set_result(None)
    assert appended(await appending).indices == range(21, 22)
    await verify(installation, log_id)
    assert [entry.group_id for entry in await read_log(database, log_id)][-1] == one.id


async def test_groups_that_are_written_together_with_one_that_fails_are_appended(
    database: str, installation: Provisioned, log_id: int, running: Appender
) -> None:
    afters = [Something() for _ in range(30)]
    groups = [group() for _ in afters]
    appending = [
        asyncio.create_task(running.append(log_id, one, after=after)) for one, after in zip(groups, afters, strict=True)
    ]
    await afters[0].is_waited_for.wait()
    for number, after in enumerate(afters):
        if number % 3:
            after.set_result(None)
        else:
            after.set_exception(OSError("no space left on the device"))
    outcomes = await asyncio.gather(*appending, return_exceptions=True)
    assert [isinstance(each, NotPreparedError) for each in outcomes] == [not number % 3 for number in range(30)]
    there = {entry.group_id for entry in await read_log(database, log_id)}
    assert there == {one.id for number, one in enumerate(groups) if number % 3}
    await verify(installation, log_id)


async def test_a_group_whose_caller_has_gone_is_not_appended_before_what_it_comes_after(
    database: str, log_id: int, running: Appender
) -> None:
    after = Something()
    appending = asyncio.create_task(running.append(log_id, group(), after=after))
    await after.is_waited_for.wait()
    appending.cancel()
    with suppress(asyncio.CancelledError):
        await appending
    other = appended(await running.append(log_id, group()))
    assert other.indices == range(1)
    after.set_exception(OSError("no space left on the device"))
    after.exception()
    assert len(await read_log(database, log_id)) == 1


async def test_a_group_is_given_up_at_its_deadline_though_what_it_comes_after_is_not_done(
    database: str, log_id: int, running: Appender
) -> None:
    after, one = Something(), group()
    with pytest.raises(LogUnavailableError):
        await running.append(log_id, one, after=after, timeout_s=0.3)
    after.set_result(None)
    appended(await running.append(log_id, group()))
    assert len(await read_log(database, log_id)) == 1


async def test_a_group_that_is_in_the_log_is_found_whatever_it_comes_after(
    database: str, log_id: int, running: Appender
) -> None:
    one, after = group(), Something()
    first = appended(await running.append(log_id, one))
    after.set_result(None)
    again = appended(await running.append(log_id, one, after=after))
    assert (again.indices, again.repeated) == (first.indices, True)
    with pytest.raises(GroupMismatchError):
        await running.append(log_id, group(event({"other": True}), group_id=one.id), after=after)
    assert len(await read_log(database, log_id)) == 1
