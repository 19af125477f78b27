# SPDX-License-Identifier: Apache-2.0
"""
Raw bytes on sockets: each probe gets one complete answer of the expected status, or the connection is closed.

Never a 500, nothing hangs, only what was requested is carried out, and the next request is answered as always.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import h11
import httpx
import pytest

from gateway.http.server.connections import Bounds, Connections
from testkit.gateway.log_contents import words
from testkit.gateway.probes import SMUGGLED, TABLES, Probe, RequestMaker
from testkit.gateway.raw_http import exchange
from testkit.gateway.sales import NAMESPACES
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT_ONCE = 24
PROBES_MIN = 400


def all_probes(maker: RequestMaker) -> list[Probe]:
    """The probes of every table."""
    return [probe for table in TABLES.values() for probe in table(maker)]


async def fault_of(url: str, probe: Probe, health: httpx.AsyncClient) -> str | None:
    """What is wrong with what came back, None if nothing is."""
    try:
        heard = await exchange(url, probe.pieces, method=probe.method, hangs_up=probe.hangs_up)
    except (TimeoutError, h11.RemoteProtocolError, AssertionError) as error:
        return f"{probe.name}: {type(error).__name__} {error}"
    found = [answer.status for answer in heard.answers]
    if len(found) != (1 if probe.statuses else 0) or not probe.statuses.issuperset(found):
        return f"{probe.name}: expected one of {sorted(probe.statuses)}, found {found} {heard.answers}"
    if probe.closes and not heard.answers[0].closes:
        return f"{probe.name}: expected the last answer on its connection"
    if (status := (await health.get("/health")).status_code) != 200:
        return f"{probe.name}: {status} to whoever came next"
    return None


async def test_there_are_enough_probes_and_no_two_are_the_same(sales: Gateway) -> None:
    probes = all_probes(RequestMaker(key=sales.acme.key.secret))
    twice = [sent for sent, times in Counter((probe.pieces, probe.hangs_up) for probe in probes).items() if times > 1]
    assert twice == []
    assert len(probes) >= PROBES_MIN


@pytest.mark.parametrize("table", TABLES)
async def test_every_probe_is_answered_or_closed_and_nothing_else_is_done(sales: Gateway, table: str) -> None:
    before = len(await words(sales.services, sales.acme.log_id))
    probes = list(TABLES[table](RequestMaker(key=sales.acme.key.secret)))
    turns = asyncio.Semaphore(AT_ONCE)
    connections = Connections(bounds=Bounds(drain_timeout_s=2.0))
    async with serve_gateway(sales.app, connections) as url, httpx.AsyncClient(base_url=url) as health:

        async def run(probe: Probe) -> str | None:
            async with turns:
                return await fault_of(url, probe, health)

        faults = [fault for fault in await asyncio.gather(*map(run, probes)) if fault is not None]
        assert faults == []
        listed = (await sales.http.get(f"{NAMESPACES}?pageSize=1000")).json()["namespaces"]
    created = sorted(probe.creates for probe in probes if probe.creates is not None)
    assert SMUGGLED not in {name for (name,) in listed}
    assert sorted(name for (name,) in listed if name != "sales") == created
    done = (await words(sales.services, sales.acme.log_id))[before:]
    assert done == ["approved", "accepted"] * len(created), "each was decided once, and nothing else was"
    assert connections.count == 0
