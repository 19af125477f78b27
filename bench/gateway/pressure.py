# SPDX-License-Identifier: Apache-2.0
"""
What clients that misbehave cost the others: a tenant that sends ten times its share, connections that are opened and
left alone, and clients that read large answers slowly.

Each time the others are measured in quiet first. Their 99th percentile must at most double, and none of their requests
may be refused.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any, Final
from urllib.parse import urlsplit

from bench.gateway.bench import Bench, Part, ratio
from bench.gateway.rates import NAMESPACE, TABLES, kind_of, load_of
from bench.gateway.sizes import make_large_table
from bench.gateway.target import Target
from bench.gateway.wrk import Figures, Mode, begin, faults_of, median_of, wrk_program

SHARE: Final = 10
"""How many times its share the greedy tenant sends."""
RATIO_MAX: Final = 2.0
ADDRESSES: Final = 4
"""Of loopback, from which idle connections come: a single one may not open so many."""
READ_BYTES: Final = 8 * 1024
READ_PAUSE_S: Final = 0.25
"""32 KiB a second: four times as fast as the slowest that is permitted."""
REOPEN_PAUSE_S: Final = 0.5
JOIN_TIMEOUT_S: Final = 30

Misbehave = Callable[[Target, int, Event, Counter[str]], Coroutine[Any, Any, None]]


def neighbours(bench: Bench) -> Part:
    """Measure tenants with one connection each, and then with one of them at ten."""
    part = Part()
    wrk_program()
    greedy, *others = [bench.up.new_tenant()[1] for _ in range(bench.scale.tenants)]
    for target in (greedy, *others):
        with target.connect() as catalog:
            catalog.make_tables(NAMESPACE, TABLES)
    for mode in (Mode.COMMIT, Mode.LOAD):
        quiet: list[Figures] = []
        pressed: list[Figures] = []
        for _ in range(bench.scale.rounds):
            quiet.append(_together(bench, part, mode, greedy, others, connections=1))
            pressed.append(_together(bench, part, mode, greedy, others, connections=SHARE))
        part.figures[mode.value] = _compared(quiet, pressed)
    return part


def idle(bench: Bench) -> Part:
    """Measure while very many connections are open over which nothing is sent."""
    return _beside(bench, bench.scale.idle_connections, stay_idle, "idle connections")


def slow(bench: Bench) -> Part:
    """Measure while clients ask for large answers and read them slowly."""
    return _beside(bench, bench.scale.slow_readers, read_slowly, "slow readers")


def _together(
    bench: Bench, part: Part, mode: Mode, greedy: Target, others: list[Target], *, connections: int
) -> Figures:
    """Return the medians of the others' figures, while the greedy tenant has so many connections."""
    bench.settle()
    pressing = begin(greedy, load_of(bench, mode, connections))
    running = [begin(target, load_of(bench, mode, 1)) for target in others]
    found = [each.figures() for each in running]
    pressed = pressing.figures()
    for one in (*found, pressed):
        part.faults += faults_of(f"tenants side by side, {mode.value}", one)
    return {**median_of(found), "greedy_per_second": pressed["per_second"]}


def _beside(bench: Bench, count: int, misbehave: Misbehave, what: str) -> Part:
    """Measure loads and commits of one tenant in quiet, and while so many clients of another misbehave."""
    part = Part()
    wrk_program()
    calm, other = (bench.up.new_tenant()[1] for _ in range(2))
    with calm.connect() as catalog:
        catalog.make_tables(NAMESPACE, TABLES)
    with other.connect() as catalog:
        make_large_table(catalog, NAMESPACE, bench.scale.metadata_bytes)
    answers: Counter[str] = Counter()
    for mode, connections in ((Mode.LOAD, 8), (Mode.COMMIT, 16)):
        quiet: list[Figures] = []
        pressed: list[Figures] = []
        for _ in range(bench.scale.rounds):
            bench.settle()
            quiet.append(part.measure(calm, load_of(bench, mode, connections), f"quiet {mode.value}"))
            with misbehaving(misbehave, other, count, answers):
                pressed.append(
                    part.measure(calm, load_of(bench, mode, connections), f"{mode.value} beside {count} {what}")
                )
                part.figures["memory_mib"] = bench.up.memory_mib()
        part.figures[kind_of(mode, connections)] = _compared(quiet, pressed)
    part.figures |= {what.replace(" ", "_"): count, "what_they_saw": dict(sorted(answers.items()))}
    return part


def _compared(quiet: list[Figures], pressed: list[Figures]) -> Figures:
    found, goal = {"quiet": median_of(quiet), "pressed": median_of(pressed)}, {"p99_ratio_max": RATIO_MAX}
    return {**found, "p99_ratio": ratio(found["pressed"]["p99_ms"], found["quiet"]["p99_ms"]), "goals": goal}


@contextmanager
def misbehaving(misbehave: Misbehave, target: Target, count: int, answers: Counter[str]) -> Iterator[None]:
    """Let so many clients in a process of their own misbehave while the context is open; count what they saw."""
    context = multiprocessing.get_context("spawn")
    stop, (reader, writer) = context.Event(), context.Pipe(duplex=False)
    process = context.Process(target=_clients, args=(misbehave, target, count, stop, writer), daemon=True)
    process.start()
    writer.close()
    try:
        assert reader.recv() == "begun"
        yield
    finally:
        stop.set()
        if reader.poll(JOIN_TIMEOUT_S):
            answers.update(reader.recv())
        process.join(JOIN_TIMEOUT_S)
        process.kill()
        reader.close()


def _clients(misbehave: Misbehave, target: Target, count: int, stop: Event, results: Connection) -> None:
    results.send(dict(asyncio.run(_all(misbehave, target, count, stop, results))))


async def _all(misbehave: Misbehave, target: Target, count: int, stop: Event, results: Connection) -> Counter[str]:
    seen: Counter[str] = Counter()
    clients = [asyncio.create_task(misbehave(target, number, stop, seen)) for number in range(count)]
    await asyncio.sleep(1)  # most have connected then
    results.send("begun")
    await asyncio.to_thread(stop.wait)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    return seen


async def stay_idle(target: Target, number: int, _stop: Event, seen: Counter[str]) -> None:
    """Keep a connection open without a request, until the server closes it."""
    where = urlsplit(target.url)
    address = (f"127.0.0.{2 + number % ADDRESSES}", 0)
    try:
        reader, writer = await asyncio.open_connection(where.hostname, where.port, local_addr=address)
        seen["opened"] += 1
        data = await reader.read(65_536)
        seen[f"answered {data.split()[1].decode()}" if data.startswith(b"HTTP/") else "closed"] += 1
        writer.close()
    except OSError as error:
        seen[type(error).__name__] += 1


async def read_slowly(target: Target, _number: int, stop: Event, seen: Counter[str]) -> None:
    """Ask for the large table again and again, and read each answer slowly."""
    where = urlsplit(target.url)
    loop = asyncio.get_running_loop()
    head = "".join(f"{name}: {value}\r\n" for name, value in target.headers.items())
    request = f"GET {target.path(NAMESPACE, 't0')} HTTP/1.1\r\nHost: {where.netloc}\r\n{head}Connection: close\r\n\r\n"
    while not stop.is_set():
        with socket.socket() as client:
            client.setblocking(False)  # noqa: FBT003 - its only argument
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
            try:
                await loop.sock_connect(client, (where.hostname, where.port))
                await loop.sock_sendall(client, request.encode())
                seen["asked"] += 1
                while data := await loop.sock_recv(client, READ_BYTES):
                    if data.startswith(b"HTTP/1.1 "):
                        seen[f"answered {data[9:12].decode()}"] += 1
                    await asyncio.sleep(READ_PAUSE_S)
            except OSError as error:
                seen[type(error).__name__] += 1
        await asyncio.sleep(REOPEN_PAUSE_S)
