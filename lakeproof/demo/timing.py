# SPDX-License-Identifier: Apache-2.0
"""
How long requests take in the scene: loads and commits of one table, one after another, as a client waits for them.

They are no measurement: the scene's other parts share the machine, and all of the gateway's duties run in one process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final

import httpx

from lakeproof.demo.api import TIMEOUT_S
from lakeproof.demo.engine import ALIAS, ORDERS, Client

LOADS: Final = 20
COMMITS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The medians in milliseconds."""

    load_ms: float
    commit_ms: float


async def time_requests(client: Client) -> Waits:
    """
    Load a table `LOADS` times and set a property of it `COMMITS` times, over one connection.

    Raises:
        httpx.HTTPStatusError: if one is refused.
    """
    namespace, table = ORDERS
    path = f"/v1/iceberg/{ALIAS}/namespaces/{namespace}/tables/{table}"
    headers = {"Authorization": f"Bearer {client.key}"}
    async with httpx.AsyncClient(base_url=client.url, headers=headers, timeout=TIMEOUT_S) as http:

        async def load(_: int) -> httpx.Response:
            return await http.get(path)

        async def commit(number: int) -> httpx.Response:
            update = {"action": "set-properties", "updates": {"scene.commit": str(number)}}
            return await http.post(path, json={"requirements": [], "updates": [update]})

        return Waits(load_ms=await _median_ms(load, LOADS), commit_ms=await _median_ms(commit, COMMITS))


async def _median_ms(send: Callable[[int], Awaitable[httpx.Response]], times: int) -> float:
    waits_ms = []
    for number in range(times):
        began = perf_counter()
        (await send(number)).raise_for_status()
        waits_ms.append(1000 * (perf_counter() - began))
    return median(waits_ms)
