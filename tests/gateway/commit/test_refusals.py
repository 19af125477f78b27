# SPDX-License-Identifier: Apache-2.0
"""
Refusals without a decision: recorded with their counts, and bounded so that they cannot fill the log.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from gateway.commit import recorded_callers, refusals
from gateway.commit.recorded_callers import INTERVAL, REMEMBERED_MAX
from gateway.commit.refusals import RECORDED_MAX, Refusals
from gateway.identifiers import Target
from gateway.identity import Principal, PrincipalSource
from ledger.errors import LogUnavailableError
from ledger.format.events import Reason
from ledger.format.sequence import Group

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
SYSTEM, ACME = 1, 2
ADA, EVE = "a" * 32, "e" * 32
REASON = Reason(id="frozen", version=3)


def caller(actor: str, key_id: str = "key-1") -> Principal:
    return Principal(
        tenant=UUID(int=1),
        log_id=ACME,
        actor=actor,
        issuer=None,
        sub="somebody@acme.example",
        roles=(),
        source=PrincipalSource.API_KEY,
        key_id=key_id,
    )


def table(name: str) -> Target:
    return Target(alias="lake", namespace=("sales",), name=name)


class World:
    """A clock that tests move, and a log that may be out of reach."""

    def __init__(self) -> None:
        self.now = NOON
        self.is_down = False
        self.recorded: list[tuple[int, dict[str, Any]]] = []
        self.refusals = Refusals(self.append, system_log_id=SYSTEM, clock=lambda: self.now, random=bytes)

    async def append(self, log_id: int, group: Group) -> None:
        if self.is_down:
            raise LogUnavailableError("no log")
        (event,) = group.then
        self.recorded.append((log_id, json.loads(event.event)))

    async def refuse(
        self, name: str, *, actor: str = ADA, operation: str = "table.load", key_id: str = "key-1"
    ) -> None:
        await self.refusals.not_permitted(caller(actor, key_id), operation, table(name), REASON)

    def counted(self) -> int:
        return sum(event["data"]["count"] for _, event in self.recorded)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_refusal_says_who_was_refused_what_and_why(world: World) -> None:
    await world.refuse("orders")
    ((log_id, event),) = world.recorded
    assert (log_id, event["version"]) == (ACME, 2)
    assert (event["type"], event["actor"], event["key"]) == ("access.refused", ADA, "table:lake/sales/orders")
    assert event["data"] == {
        "count": 1,
        "identifier": {"alias": "lake", "name": "orders", "namespace": ["sales"]},
        "key": "key-1",
        "operation": "table.load",
        "reason": {"id": "frozen", "version": 3},
    }


async def test_a_refusal_says_with_which_key_it_came(world: World) -> None:
    for key_id in ("key-1", "key-2", "key-1"):
        await world.refuse("orders", key_id=key_id)
    assert [event["data"]["key"] for _, event in world.recorded] == ["key-1", "key-2"]


async def test_many_keys_of_one_caller_do_not_fill_the_log(world: World) -> None:
    for number in range(RECORDED_MAX + 50):
        await world.refuse("orders", key_id=f"key-{number}")
    assert len(world.recorded) == RECORDED_MAX + 1
    _, together = world.recorded[-1]
    assert (together["version"], together["data"]["identifier"]) == (1, None)


async def test_strangers_are_the_system_logs(world: World) -> None:
    await world.refusals.unauthenticated("GET /v1/config")
    ((log_id, event),) = world.recorded
    assert (log_id, event["actor"], event["key"]) == (SYSTEM, "system", "gateway:access")
    assert event["data"] == {"count": 1, "identifier": None, "operation": "GET /v1/config", "reason": None}


async def test_one_refusal_is_recorded_once_a_minute_with_its_number(world: World) -> None:
    for _ in range(10):
        await world.refuse("orders")
    assert [event["data"]["count"] for _, event in world.recorded] == [1]
    world.now += INTERVAL
    await world.refuse("orders")
    assert [event["data"]["count"] for _, event in world.recorded] == [1, 10]
    world.now += INTERVAL - timedelta(microseconds=1)
    await world.refuse("orders")
    assert len(world.recorded) == 2


async def test_refusals_that_differ_are_counted_apart(world: World) -> None:
    for _ in range(2):
        await world.refuse("orders")
        await world.refuse("customers")
        await world.refuse("orders", actor=EVE)
        await world.refuse("orders", operation="table.exists")
    assert len(world.recorded) == 4


async def test_a_flood_of_different_refusals_is_counted_together(world: World) -> None:
    flood = 5_000
    for number in range(flood):
        await world.refuse(f"t{number}")
    assert len(world.recorded) == RECORDED_MAX + 1
    *_, (_, together) = world.recorded
    assert (together["key"], together["data"]["identifier"]) == ("gateway:access", None)
    assert together["data"]["operation"] == "table.load"
    await world.refuse("orders", actor=EVE)
    assert world.recorded[-1][1]["key"] == "table:lake/sales/orders", "another caller has room of its own"
    world.now += INTERVAL
    for number in range(flood):
        await world.refuse(f"u{number}")
    assert len(world.recorded) == 2 * (RECORDED_MAX + 1) + 1
    world.now += INTERVAL
    for number in range(RECORDED_MAX + 1):
        await world.refuse(f"v{number}")
    assert world.counted() == 2 * flood + 1 + RECORDED_MAX + 1, "none was lost"


@pytest.fixture
def remembered_max(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many are remembered: a twentieth of what a gateway does, and more than it records."""
    fewer = REMEMBERED_MAX // 20
    monkeypatch.setattr(refusals, "REMEMBERED_MAX", fewer)
    monkeypatch.setattr(recorded_callers, "REMEMBERED_MAX", fewer)
    assert fewer > RECORDED_MAX
    return fewer


async def test_what_is_forgotten_was_counted(world: World, remembered_max: int) -> None:
    for _ in range(3):
        await world.refuse("orders")
    for number in range(remembered_max + 10):
        await world.refuse("orders", actor=f"{number:032x}")
    world.now += INTERVAL
    for number in range(RECORDED_MAX):
        await world.refuse(f"t{number}")
    await world.refuse("one more")
    assert world.counted() == 3 + remembered_max + 10 + RECORDED_MAX + 1


async def test_memory_is_bounded_however_many_callers_are_refused(world: World, remembered_max: int) -> None:
    for number in range(remembered_max + 100):
        actor = f"{number:032x}"
        await world.refusals.not_permitted(caller(actor), "policy.configure", None, None)
    assert len(world.refusals._counts) == len(world.refusals._callers._callers) == remembered_max


async def test_what_is_about_nothing_in_particular_is_recorded_once_a_minute_too(world: World) -> None:
    for number in range(RECORDED_MAX + 1):
        await world.refuse(f"t{number}")
    before = len(world.recorded)
    for _ in range(10):
        await world.refusals.not_permitted(caller(ADA), "policy.configure", None, None)
    assert len(world.recorded) == before + 1


async def test_refusals_are_recorded_later_if_the_log_is_unreachable(world: World) -> None:
    world.is_down = True
    for _ in range(3):
        await world.refuse("orders")
    assert world.recorded == []
    world.is_down = False
    world.now += INTERVAL
    await world.refuse("orders")
    assert [event["data"]["count"] for _, event in world.recorded] == [4]
