# SPDX-License-Identifier: Apache-2.0
"""
Mutations that cannot be judged, recorded or written: nothing is changed, and the answer says no more than is known.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from gateway.files.local_files import LocalFiles
from gateway.files.writing import NewFile
from gateway.metadata.files import MetadataFiles
from gateway.policy.engine import Program, Verdict
from gateway.policy.pool import TOOK_LONGER, WorkerEngine
from ledger.errors import LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.canonical import Json
from ledger.format.sequence import Appended, Group, Stale
from testkit.gateway.log_contents import check_agreement, path_of, read_stored, words
from testkit.gateway.sales import (
    CREATE,
    NAMESPACES,
    ORDERS,
    ORDERS_KEY,
    TABLES,
    another_key,
    error_of,
    files_beside,
    location_of_orders,
    properties,
)
from testkit.servers.forked_workers import fork_worker
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


def policy(number: int, expression: str = "true") -> dict[str, Any]:
    text = PolicyText(expression=expression, message=f"policy {number} says no")
    return {"policy_id": f"p{number}", "text": text}


# Policies that cannot be judged


FAILS = "commit.requirements[7].type == 'x'"
SLOW = (
    "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, "
    "[1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, a+b+c+d+e+f+g > 0)))))))"
)


async def test_an_undecidable_commit_is_refused_and_recorded_once(sales: Gateway) -> None:
    await sales.services.gateway.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, FAILS))
    location = await location_of_orders(sales)
    for _ in range(3):
        answer = await sales.http.post(ORDERS, json=properties(a="b"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert error_of(answer)["type"] == "ServiceUnavailableException"
    told = await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    assert [one.words for one in told[2:]] == ["undecidable"]
    assert told[-1].parts["message"].startswith(b"policy p1 (version 1) could not be judged")
    assert await location_of_orders(sales) == location
    await sales.http.post(ORDERS, json=properties(another="request"))
    assert (await words(sales.services, sales.acme.log_id, key=ORDERS_KEY))[2:] == ["undecidable"] * 2
    for _ in range(2):
        create = await sales.http.post(TABLES, json={**CREATE, "name": "more"})
        assert create.status_code == 503, "each attempt would have another uuid"
    assert await words(sales.services, sales.acme.log_id, key="table:lake/sales/more") == ["undecidable"]


async def test_the_same_request_of_another_caller_is_recorded_too(sales: Gateway) -> None:
    parts = sales.services.gateway
    await parts.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, FAILS))
    await parts.admin.create_access_rule(
        sales.acme.log_id, OPERATOR, rule_id="eve", effect="permit", expression="'writer' in roles"
    )
    eve = sales.client(await another_key(sales, "eve", "writer"))
    for client in (sales.http, eve, sales.http, eve):
        assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 503
    told = (await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY))[2:]
    assert [one.words for one in told] == ["undecidable"] * 2
    assert len({one.entry.actor for one in told}) == 2


async def test_a_policy_engine_that_is_too_slow_lets_nothing_pass(sales: Gateway) -> None:
    await sales.services.gateway.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, SLOW))
    client = sales.through(judge=replace(sales.services.gateway.judge, timeout_s=0.2))
    for _ in range(4):
        assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 503
    told = (await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY))[2:]
    causes = [one.parts["message"] for one in told]
    assert {one.words for one in told} == {"undecidable"}
    limit = TOOK_LONGER.format(0.2)
    assert [cause.decode() for cause in causes] == [limit], (
        "it is named, not what was left of it: one entry for all four"
    )


class KilledEngine:
    """An engine whose worker is killed while it judges."""

    def __init__(self, engine: WorkerEngine) -> None:
        self._engine = engine

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = "policy") -> None:
        await self._engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        await self._engine.start()
        for pid in self._engine.pids:
            os.kill(pid, signal.SIGKILL)
        return await self._engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s)


async def test_a_policy_engine_that_dies_lets_nothing_pass(sales: Gateway) -> None:
    location = await location_of_orders(sales)
    async with WorkerEngine(spawn=fork_worker) as engine:
        judge = replace(sales.services.gateway.judge, engine=engine, timeout_s=10.0)
        client = sales.through(judge=replace(judge, engine=KilledEngine(engine)))
        assert (await client.post(ORDERS, json=properties(a="b"))).status_code == 503
        assert (await words(sales.services, sales.acme.log_id))[-1] == "undecidable"
        assert await location_of_orders(sales) == location
        answer = await sales.through(judge=judge).post(ORDERS, json=properties(a="b"))
        assert answer.status_code == 200, "a new worker judges the next one"


# A log that does not answer


async def test_a_commit_whose_record_may_be_there_is_unknown_and_keeps_its_file(sales: Gateway) -> None:
    parts = sales.services.gateway

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        await parts.append(log_id, group, **after)
        raise OutcomeUnknownError("the answer to COMMIT did not arrive")

    answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, error_of(answer)["type"]) == (504, "CommitStateUnknownException")
    assert "retry-after" not in answer.headers
    await check_agreement(sales.services, sales.acme.log_id)
    assert (await sales.http.get(ORDERS)).json()["metadata"]["properties"]["a"] == "b"


@pytest.mark.parametrize("error", [LogUnavailableError("no log"), QueueFullError("too many")])
async def test_a_commit_whose_record_is_not_there_leaves_no_file(sales: Gateway, error: Exception) -> None:
    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        raise error

    location, files = await location_of_orders(sales), files_beside(await location_of_orders(sales))
    answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert files_beside(location) == files
    assert await location_of_orders(sales) == location


@pytest.mark.parametrize("patience_s", [5.0, 0.01])
async def test_a_file_that_is_written_after_its_commit_failed_is_deleted(
    sales: Gateway, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    write, may_end, ended = MetadataFiles.write, asyncio.Event(), asyncio.Event()

    async def write_late(self: MetadataFiles, *args: Any, **within: Any) -> None:
        try:
            await may_end.wait()
            await write(self, *args, **within)
        finally:
            ended.set()

    async def append(log_id: int, group: Group, **after: Any) -> Appended | Stale:
        asyncio.get_running_loop().call_later(0.05, may_end.set)
        raise LogUnavailableError("no log")

    monkeypatch.setattr(MetadataFiles, "write", write_late)
    monkeypatch.setattr("gateway.commit.swapping.WRITTEN_S", patience_s)
    monkeypatch.setattr("gateway.metadata.files.QUICK_S", math.inf)  # however long the last file has taken
    files = files_beside(await location_of_orders(sales))
    answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"))
    assert answer.status_code == 503
    assert ended.is_set()
    assert files_beside(await location_of_orders(sales)) == files


async def test_a_refusal_that_cannot_be_recorded_is_503(sales: Gateway) -> None:
    await sales.services.gateway.admin.create_policy(sales.acme.log_id, OPERATOR, **policy(1, "false"))
    for error in (LogUnavailableError("no log"), QueueFullError("too many"), OutcomeUnknownError("who knows")):

        async def append(log_id: int, group: Group, error: Exception = error, **after: Any) -> Appended | Stale:
            raise error

        answer = await sales.through(append=append).post(ORDERS, json=properties(a="b"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


# Metadata files that do not answer


async def test_metadata_that_cannot_be_written_is_503_and_nothing_is_changed(shared_gateway: Gateway) -> None:
    await shared_gateway.http.post(NAMESPACES, json={"namespace": ["sales"]})
    parts = shared_gateway.services.gateway
    in_the_way = path_of(f"{parts.catalogs.warehouse}/{shared_gateway.acme.tenant.hex}")
    in_the_way.parent.mkdir(parents=True, exist_ok=True)
    in_the_way.write_bytes(b"not a folder")
    answer = await shared_gateway.http.post(TABLES, json=CREATE)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert await words(shared_gateway.services, shared_gateway.acme.log_id, key=ORDERS_KEY) == []


class HeldFiles(LocalFiles):
    """Files that are written once they are let go, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.came, self.may_go = asyncio.Event(), asyncio.Event()
        self.error: OSError | None = None

    async def write(self, file: NewFile) -> None:
        self.came.set()
        await self.may_go.wait()
        if self.error is not None:
            raise self.error
        await super().write(file)


@pytest.mark.parametrize("error", [None, OSError(errno.ENOSPC, "No space left on device")])
async def test_a_commit_is_in_the_log_only_once_its_file_is_durable(sales: Gateway, error: OSError | None) -> None:
    log_id, location, held = sales.acme.log_id, await location_of_orders(sales), HeldFiles()
    decisions = await words(sales.services, log_id)
    catalogs = replace(sales.services.gateway.catalogs, files=MetadataFiles(local=held))
    committing = asyncio.create_task(sales.through(catalogs=catalogs).post(ORDERS, json=properties(a="b")))
    await held.came.wait()
    for _ in range(5):  # others are not held up meanwhile
        assert (await sales.http.post("/v1/policies", json={})).status_code == 400
        assert (await words(sales.services, log_id), await location_of_orders(sales)) == (decisions, location)
    held.error = error
    held.may_go.set()
    answer = await committing
    if error is None:
        assert answer.status_code == 200
        assert await words(sales.services, log_id) == [*decisions, "approved", "accepted"]
        await check_agreement(sales.services, log_id)
    else:
        assert (answer.status_code, "No space left on device" in error_of(answer)["message"]) == (503, True)
        assert (await words(sales.services, log_id), await location_of_orders(sales)) == (decisions, location)
        assert (await sales.http.post(ORDERS, json=properties(a="b"))).status_code == 200, "the next one is made"


async def test_metadata_that_was_changed_behind_our_back_is_noticed(sales: Gateway) -> None:
    file = path_of(await location_of_orders(sales))
    file.write_bytes(file.read_bytes().replace(b"zstd", b"none"))
    restarted_catalogs = replace(sales.services.gateway.catalogs, files=MetadataFiles())
    restarted = sales.through(catalogs=restarted_catalogs)
    eve = sales.through(key=await another_key(sales), catalogs=restarted_catalogs)
    assert (await eve.post(ORDERS, json=properties(a="b"))).status_code == 403, "not even that it is broken"
    for answer in (await restarted.get(ORDERS), await restarted.post(ORDERS, json=properties(a="b"))):
        assert (answer.status_code, error_of(answer)["type"]) == (500, "RuntimeIOException")
    file.unlink()
    assert (await restarted.get(ORDERS)).status_code == 500
