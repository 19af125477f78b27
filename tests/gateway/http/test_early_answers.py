# SPDX-License-Identifier: Apache-2.0
"""
A refusal that is sent before the request's body has arrived reaches clients that send all of it before they read.

The client is Apache HttpClient 5, as Iceberg's Java library uses it, in a Java of its own; it retries nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass
from itertools import product

import pytest
import pytest_asyncio

from testkit.environment import PROJECT
from testkit.gateway.sales import NAMESPACES, ORDERS, another_key
from testkit.servers.gateways import Gateway
from testkit.servers.java import find_compiling_java
from testkit.servers.maven import jars

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIENT = PROJECT / "testkit" / "servers" / "java_clients" / "HttpClient5.java"
SIZES = (20_000, 65_536, 300_000, 1 << 20, 5_000_000, (16 << 20) - 1, 17 << 20)
FRAMINGS = ("length", "chunks", "continue")
TIMES = {size: 2 if size <= 1 << 20 else 1 for size in SIZES}
TIMEOUT_S = 120


def statuses(requests: list[tuple[str, str, int, str]]) -> list[str]:
    """Send the requests one after the other; return the status of each, or what the client threw."""
    java, libraries = find_compiling_java(), jars("httpclient")
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


Asked = tuple[str, str, int, str]
"""A request of the client: its URL, key, size and framing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Requests, each with the status that is expected and what the client heard."""

    refused_early: list[tuple[Asked, str, str]]
    compressed: list[tuple[Asked, str, str]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def heard(module_sales: Gateway, module_url: str) -> Heard:
    """What one client hears, one request after the other."""
    early = early_refusals(module_url, module_sales.acme.key.secret, powerless=await another_key(module_sales))
    compressed = [
        ((f"{module_url}{ORDERS}", module_sales.acme.key.secret, size, "gzip"), status)
        for size, status in ((20_000, "400"), (1 << 20, "400"), ((16 << 20) - 1, "400"), (17 << 20, "413"))
    ]
    asked = [*early, *compressed]
    found = await asyncio.to_thread(statuses, [request for request, _ in asked])
    told = [(request, expected, got) for (request, expected), got in zip(asked, found, strict=True)]
    return Heard(refused_early=told[: len(early)], compressed=told[len(early) :])


def early_refusals(url: str, key: str, *, powerless: str) -> list[tuple[Asked, str]]:
    stranger = "nobody"
    asked: list[tuple[Asked, str]] = []
    for size, framing in product(SIZES, FRAMINGS):
        ways = [(ORDERS, stranger, "401"), ("/v1/lineage", powerless, "403"), ("/nothing", stranger, "404")]
        if size > 512 * 1024:
            ways.append((NAMESPACES, key, "413"))
        if size > 16 << 20:
            ways.append((ORDERS, key, "413"))
        asked += [((url + path, whose, size, framing), status) for path, whose, status in ways] * TIMES[size]
    return asked + [((f"{url}{ORDERS}", key, size, "twice"), "400") for size in SIZES]


def wrong(told: list[tuple[Asked, str, str]]) -> list[tuple[int, str, str, str]]:
    """Those that were answered otherwise, without their URLs and keys."""
    return [(*request[2:], expected, got) for request, expected, got in told if got != expected]


async def test_a_java_client_sees_every_early_refusal(heard: Heard) -> None:
    assert heard.refused_early
    assert wrong(heard.refused_early) == []


async def test_a_java_client_may_send_its_bodies_compressed(heard: Heard) -> None:
    """Blanks are no JSON, and over the cap they are not even looked at."""
    assert heard.compressed
    assert wrong(heard.compressed) == []
