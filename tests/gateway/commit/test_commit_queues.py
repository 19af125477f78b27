# SPDX-License-Identifier: Apache-2.0
"""
Commits to one table at the same time: in order within a process, raced between processes, and none refused for that.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from gateway.commit.target_queues import TargetQueues
from gateway.policy.engine import PolicyEngine, Program, Verdict
from ledger.errors import LogUnavailableError
from ledger.format.canonical import Json
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.connections import until
from testkit.gateway.log_contents import check_agreement, read_stored
from testkit.gateway.sales import (
    CREATE,
    ORDERS,
    ORDERS_KEY,
    SCHEMA,
    TABLES,
    another_key,
    error_of,
    files_beside,
    location_of_orders,
    properties,
)
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENTS = 16
MORE = f"{TABLES}/more"
NEEDS_THE_FIRST_SCHEMA = {"type": "assert-current-schema-id", "current-schema-id": 0}
CHANGE_THE_SCHEMA = {
    "requirements": [NEEDS_THE_FIRST_SCHEMA],
    "updates": [
        {
            "action": "add-schema",
            "schema": {**SCHEMA, "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]},
        },
        {"action": "set-current-schema", "schema-id": -1},
    ],
}
Answers: TypeAlias = "list[asyncio.Task[httpx.Response]]"


@dataclass(slots=True)
class Gate:
    """The log's append, which lets nothing pass until it is opened; `reached` says that something waits."""

    gateway: Gateway
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None
    groups: int = 0

    async def append(self, log_id: int, group: Group, **after: Any) -> Appended | Stale:
        self.reached.set()
        self.groups += 1
        error, self.error = self.error, None  # for the first, also if a later one does not have to wait
        await self.opened.wait()
        if error is not None:
            raise error
        return await self.gateway.services.gateway.append(log_id, group, **after)


class SlowEngine:
    """An engine that answers about one table only once it is let go."""

    def __init__(self, engine: PolicyEngine, *, slow: str) -> None:
        self._engine = engine
        self._slow = slow
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = "policy") -> None:
        await self._engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        if activation["path"] == self._slow:
            self.reached.set()
            await self.go_on.wait()
        return await self._engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s)


async def arrive(client: httpx.AsyncClient, queues: TargetQueues, *bodies: object) -> Answers:
    """Commit to the table without waiting for the answers; each has its turn or waits for it before the next comes."""
    tasks = []
    for body in bodies:
        before = queues.mutations
        tasks.append(asyncio.create_task(client.post(ORDERS, json=body)))
        await until(lambda before=before: queues.mutations > before)  # type: ignore[misc]
    return tasks


async def test_commits_at_the_same_time_all_land_each_on_what_the_one_before_made(sales: Gateway) -> None:
    before = await location_of_orders(sales)
    bodies = [properties(**{f"p{number}": "x"}) for number in range(CLIENTS)]
    answers = await asyncio.gather(*(sales.http.post(ORDERS, json=body) for body in bodies))
    assert [answer.status_code for answer in answers] == [200] * CLIENTS
    told = (await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY))[2:]
    assert [one.words for one in told] == ["approved", "accepted"] * CLIENTS, "none lost a race in its own process"
    for decision, outcome in zip(told[::2], told[1::2], strict=True):
        assert decision.decided.base == before
        before = str(outcome.settled.metadata_location)
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert {f"p{number}" for number in range(CLIENTS)} <= found.keys()
    await check_agreement(sales.services, sales.acme.log_id)


async def test_commits_land_in_the_order_in_which_they_came(sales: Gateway) -> None:
    gate, queues = Gate(sales), TargetQueues()
    client = sales.through(append=gate.append, queues=queues)
    first = asyncio.create_task(client.post(ORDERS, json=properties(number="0")))
    await gate.reached.wait()
    rest = await arrive(client, queues, *(properties(number=str(number)) for number in range(1, CLIENTS)))
    await until(lambda: gate.groups == CLIENTS)  # none waits until the one before it is in the log
    gate.opened.set()
    answers = await asyncio.gather(first, *rest)
    numbers = [answer.json()["metadata"]["properties"]["number"] for answer in answers]
    assert numbers == [str(number) for number in range(CLIENTS)]
    told = (await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY))[3::2]
    in_log = [one.settled.metadata_location for one in told]
    assert in_log == [answer.json()["metadata-location"] for answer in answers]


async def test_a_requirement_that_fails_only_because_of_the_commit_before_is_a_conflict(sales: Gateway) -> None:
    gate, queues = Gate(sales), TargetQueues()
    client = sales.through(append=gate.append, queues=queues)
    tasks = await arrive(client, queues, CHANGE_THE_SCHEMA)
    await gate.reached.wait()
    tasks += await arrive(client, queues, properties([NEEDS_THE_FIRST_SCHEMA], a="b"), properties(c="d"))
    gate.opened.set()
    first, second, third = await asyncio.gather(*tasks)
    assert [first.status_code, second.status_code, third.status_code] == [200, 409, 200]
    assert error_of(second)["type"] == "CommitFailedException"
    assert error_of(second)["message"] == "Requirement failed: current schema changed: expected id 0 != 1"
    told = [one.words for one in await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)]
    assert told[2:] == ["approved", "accepted", "conflicted", "approved", "accepted"]
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_commit_behind_one_that_is_not_recorded_is_judged_on_the_table_as_it_is(sales: Gateway) -> None:
    gate, queues = Gate(sales, error=LogUnavailableError("no log")), TargetQueues()
    client = sales.through(append=gate.append, queues=queues)
    location = await location_of_orders(sales)
    tasks = await arrive(client, queues, properties(lost="yes"))
    await gate.reached.wait()
    tasks += await arrive(client, queues, properties(kept="yes"))
    gate.opened.set()
    lost, kept = await asyncio.gather(*tasks)
    assert (lost.status_code, kept.status_code) == (503, 200)
    found = kept.json()["metadata"]["properties"]
    assert "lost" not in found
    assert found["kept"] == "yes"
    decision = (await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY))[-2]
    assert decision.decided.base == location
    assert len(files_beside(location)) == 2, "the create and what was kept"


async def test_nothing_is_refused_for_what_a_commit_that_was_not_made_would_have_changed(sales: Gateway) -> None:
    gate, queues = Gate(sales, error=LogUnavailableError("no log")), TargetQueues()
    client = sales.through(append=gate.append, queues=queues)
    tasks = await arrive(client, queues, CHANGE_THE_SCHEMA)
    await gate.reached.wait()
    tasks += await arrive(client, queues, properties([NEEDS_THE_FIRST_SCHEMA], a="b"))
    gate.opened.set()
    assert [(await task).status_code for task in tasks] == [503, 200]
    told = [one.words for one in await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)]
    assert told[2:] == ["approved", "accepted"]


async def test_commits_behind_one_that_is_not_made_all_land(sales: Gateway) -> None:
    gate, queues = Gate(sales, error=LogUnavailableError("no log")), TargetQueues()
    client = sales.through(append=gate.append, queues=queues)
    tasks = await arrive(client, queues, *(properties(**{f"p{number}": "x"}) for number in range(CLIENTS)))
    await until(lambda: gate.groups == CLIENTS)
    gate.opened.set()
    assert [(await task).status_code for task in tasks] == [503] + [200] * (CLIENTS - 1)
    location = await location_of_orders(sales)
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert {name for name in found if name.startswith("p")} == {f"p{number}" for number in range(1, CLIENTS)}
    assert len(files_beside(location)) == CLIENTS, "of what was not made, nothing is left"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_commit_behind_one_whose_file_cannot_be_written_lands(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues, both_are_judged, real, synced = TargetQueues(), threading.Event(), os.fdatasync, list[int]()

    def fail_for_the_first(descriptor: int) -> None:
        synced.append(descriptor)
        written = Path(f"/proc/self/fd/{descriptor}").read_bytes()  # both files are synced at once, in any order
        if b"lost" in written and b"kept" not in written:
            assert both_are_judged.wait(30)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail_for_the_first)
    client = sales.through(queues=queues)
    tasks = await arrive(client, queues, properties(lost="yes"), properties(kept="yes"))
    await until(lambda: len(synced) > 1)
    both_are_judged.set()
    assert [(await task).status_code for task in tasks] == [503, 200]
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert (found.get("lost"), found["kept"]) == (None, "yes")
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_commit_whose_client_has_gone_leaves_the_queue(sales: Gateway) -> None:
    gate, queues = Gate(sales), TargetQueues()
    client = sales.through(append=gate.append, queues=queues)
    tasks = await arrive(client, queues, properties(a="1"))
    await gate.reached.wait()
    tasks += await arrive(client, queues, properties(b="1"), properties(c="1"))
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    gate.opened.set()
    assert [(await task).status_code for task in (tasks[0], tasks[2])] == [200, 200]
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert (found["a"], found.get("b"), found["c"]) == ("1", None, "1")
    assert (queues.waiting, len(queues)) == (0, 0)


@pytest.mark.parametrize("bounds", [{"waiting_max": 0}, {"waiting_s": 0.0}], ids=str)
async def test_a_queue_that_is_too_long_or_too_slow_is_answered_503(sales: Gateway, bounds: dict[str, float]) -> None:
    judge = sales.services.gateway.judge
    engine, queues = SlowEngine(judge.engine, slow="sales.orders"), TargetQueues(**bounds)  # type: ignore[arg-type]
    client = sales.through(judge=replace(judge, engine=engine), queues=queues)
    first = asyncio.create_task(client.post(ORDERS, json=properties(a="b")))
    await engine.reached.wait()
    told = await read_stored(sales.services, sales.acme.log_id)
    busy = await client.post(ORDERS, json=properties(c="d"))
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "1")
    assert "sales.orders" in error_of(busy)["message"]
    assert await read_stored(sales.services, sales.acme.log_id) == told
    engine.go_on.set()
    assert (await first).status_code == 200


async def test_who_may_not_commit_waits_for_nobody_and_delays_nobody(sales: Gateway) -> None:
    gate, queues = Gate(sales), TargetQueues()
    client = sales.through(append=gate.append, queues=queues)
    eve = sales.through(key=await another_key(sales), queues=queues)
    assert (await eve.post(ORDERS, json=properties(c="d"))).status_code == 403, "the first time, it is not known yet"
    first = await arrive(client, queues, properties(a="b"))
    await gate.reached.wait()
    for _ in range(3):
        refused = await eve.post(ORDERS, json=properties(c="d"))
        assert (refused.status_code, queues.waiting) == (403, 0)
    gate.opened.set()
    assert (await first[0]).status_code == 200
    told = [one.words for one in await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)]
    assert told[2:] == ["rejected"] * 4 + ["approved", "accepted"], "on the record, as any refusal"


async def test_a_slow_policy_delays_the_commits_of_its_own_table_alone(sales: Gateway) -> None:
    (await sales.http.post(TABLES, json={**CREATE, "name": "more"})).raise_for_status()
    judge = sales.services.gateway.judge
    engine, queues = SlowEngine(judge.engine, slow="sales.orders"), TargetQueues()
    client = sales.through(judge=replace(judge, engine=engine), queues=queues)
    slow = await arrive(client, queues, properties(a="1"))
    await engine.reached.wait()
    slow += await arrive(client, queues, properties(b="1"))
    for number in range(3):
        assert (await client.post(MORE, json=properties(c=str(number)))).status_code == 200
    assert not any(task.done() for task in slow)
    engine.go_on.set()
    assert [(await task).status_code for task in slow] == [200, 200]


async def test_processes_that_race_for_one_table_refuse_none_of_their_commits(sales: Gateway) -> None:
    processes = [sales.through() for _ in range(3)]

    async def client(number: int) -> list[int]:
        process, statuses = processes[number % len(processes)], []
        for count in range(4):
            answer = await process.post(ORDERS, json=properties(**{f"p{number}": str(count)}))
            statuses.append(answer.status_code)
        return statuses

    assert await asyncio.gather(*(client(number) for number in range(9))) == [[200] * 4] * 9
    told = [one.words for one in await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)]
    assert told[2:] == ["approved", "accepted"] * 36, "lost races leave nothing in the log"
    found = (await sales.http.get(ORDERS)).json()["metadata"]["properties"]
    assert all(found[f"p{number}"] == "3" for number in range(9))
    assert len(files_beside(await location_of_orders(sales))) == 37, "nor files"
    await check_agreement(sales.services, sales.acme.log_id)
