# SPDX-License-Identifier: Apache-2.0
"""
A refusal that is sent before the request's body has arrived reaches clients that send all of it before they read.

The client is Apache HttpClient 5, as Iceberg's Java library uses it, in a Java of its own; it retries nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
from itertools import product

import pytest

from testkit.environment import PROJECT, missing
from testkit.gateway.sales import NAMESPACES, ORDERS, another_key
from testkit.servers.gateways import Gateway
from testkit.servers.java import find_java
from testkit.servers.loopback import serve_gateway
from testkit.servers.maven import jars

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENT = PROJECT / "testkit" / "servers" / "java_clients" / "HttpClient5.java"
SIZES = (20_000, 65_536, 300_000, 1 << 20, 5_000_000, (16 << 20) - 1, 17 << 20)
FRAMINGS = ("length", "chunks", "continue")
TIMES = {size: 3 if size <= 1 << 20 else 1 for size in SIZES}
TIMEOUT_S = 120


def statuses(requests: list[tuple[str, str, int, str]]) -> list[str]:
    """Send the requests one after the other; return the status of each, or what the client threw."""
    java, libraries = find_java(), jars("httpclient")
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True)
    if "jdk.compiler" not in modules.stdout:
        missing(f"{java} has no compiler: a JDK is needed, not a JRE")
    done = subprocess.run(
        [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{libraries}/*", CLIENT],
        input="".join(" ".join(map(str, request)) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.splitlines()


async def test_a_java_client_sees_every_early_refusal(sales: Gateway) -> None:
    stranger, powerless = "nobody", await another_key(sales)
    async with serve_gateway(sales.app) as url:
        asked: list[tuple[tuple[str, str, int, str], str]] = []
        for size, framing in product(SIZES, FRAMINGS):
            ways = [(ORDERS, stranger, "401"), ("/v1/lineage", powerless, "403"), ("/nothing", stranger, "404")]
            if size > 512 * 1024:
                ways.append((NAMESPACES, sales.acme.key.secret, "413"))
            if size > 16 << 20:
                ways.append((ORDERS, sales.acme.key.secret, "413"))
            asked += [((url + path, key, size, framing), status) for path, key, status in ways] * TIMES[size]
        asked += [((f"{url}{ORDERS}", sales.acme.key.secret, size, "twice"), "400") for size in SIZES]
        found = await asyncio.to_thread(statuses, [request for request, _ in asked])
    wrong = [
        (*request[2:], expected, got) for (request, expected), got in zip(asked, found, strict=True) if got != expected
    ]
    assert wrong == []


async def test_a_java_client_may_send_its_bodies_compressed(sales: Gateway) -> None:
    async with serve_gateway(sales.app) as url:
        sizes = (20_000, 1 << 20, (16 << 20) - 1, 17 << 20)
        requests = [(f"{url}{ORDERS}", sales.acme.key.secret, size, "gzip") for size in sizes]
        found = await asyncio.to_thread(statuses, requests)
    assert found == ["400", "400", "400", "413"], "blanks are no JSON, and over the cap they are not even looked at"
