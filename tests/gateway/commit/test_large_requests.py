# SPDX-License-Identifier: Apache-2.0
"""
Large bodies: parsed one at a time per tenant, in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise

import pytest

from gateway.commit.large_requests import REST, SMALL_BYTES_MAX, LargeRequests
from gateway.errors import BadRequestError
from testkit.servers.gateways import Gateway

CALM, NOISY = 1, 2
SMALL, LARGE = b"x" * SMALL_BYTES_MAX, b"x" * (SMALL_BYTES_MAX + 1)


async def test_a_small_body_is_parsed_at_once_and_where_it_is() -> None:
    asking = LargeRequests().parse(CALM, SMALL, threading.get_ident)
    with pytest.raises(StopIteration) as done:
        asking.send(None)
    assert done.value.value == threading.get_ident()


async def test_a_large_body_is_parsed_in_a_thread_while_the_event_loop_runs() -> None:
    requests, may_end = LargeRequests(), threading.Event()
    parsing = asyncio.create_task(requests.parse(NOISY, LARGE, lambda: may_end.wait(60.0)))
    assert await requests.parse(CALM, SMALL, lambda: "small") == "small"
    assert await requests.parse(CALM, LARGE, lambda: "large") == "large", "of another tenant, so it does not wait"
    assert not parsing.done()
    may_end.set()
    assert await parsing


async def test_of_one_tenant_one_large_body_is_parsed_at_a_time_and_then_none_for_a_while() -> None:
    requests, at_once, most, loop = LargeRequests(), 0, 0, asyncio.get_running_loop()
    spans: list[tuple[float, float]] = []

    def parse() -> None:
        nonlocal at_once, most
        began_s = loop.time()
        at_once += 1
        most = max(most, at_once)
        threading.Event().wait(0.01)
        at_once -= 1
        spans.append((began_s, loop.time()))

    await asyncio.gather(*(requests.parse(NOISY, LARGE, parse) for _ in range(5)))
    assert most == 1
    rests = [after[0] - before[1] for before, after in pairwise(spans)]
    assert all(rest >= (REST - 1) * 0.01 for rest in rests), rests


async def test_errors_are_the_callers_and_tenants_that_are_done_are_forgotten() -> None:
    requests = LargeRequests()

    def refuse() -> None:
        raise BadRequestError("no")

    with pytest.raises(BadRequestError):
        await requests.parse(NOISY, LARGE, refuse)
    assert requests._turns.keys() == {NOISY}
    requests._forget(asyncio.get_running_loop().time() + 60.0)
    assert not requests._turns


@pytest.mark.asyncio(loop_scope="module")
async def test_a_commit_of_20_000_updates_is_refused_and_one_of_20_000_removals_is_not(
    shared_gateway: Gateway,
) -> None:
    http = shared_gateway.http
    await http.post("/v1/iceberg/lake/namespaces", json={"namespace": ["shop"]})
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    tables = "/v1/iceberg/lake/namespaces/shop/tables"
    assert (await http.post(tables, json={"name": "orders", "schema": schema})).status_code == 200
    changes = [{"action": "set-properties", "updates": {"owner": f"{number}"}} for number in range(20_000)]
    refused = await http.post(f"{tables}/orders", json={"requirements": [], "updates": changes})
    assert refused.status_code == 400
    assert "at most 1000 updates beside removals, found more" in refused.json()["error"]["message"]
    removals = [{"action": "remove-snapshots", "snapshot-ids": [number]} for number in range(20_000)]
    taken = await http.post(f"{tables}/orders", json={"requirements": [], "updates": removals})
    assert taken.status_code == 200, taken.text
