# SPDX-License-Identifier: Apache-2.0
"""
What a flood of wrong API keys costs a valid one.

Claim: while 300 connections send wrong keys (malformed ones, unknown prefixes, wrong secrets of a key in force), each
again as soon as it is refused, no request with a valid key is refused, and the 99th percentile of its waits stays below
three times the one without the flood. A valid key that the process has never seen is not refused either.

A real `lakeproof up` runs in its own process, reached through a socket. The attackers are another process, the valid
key a third. Stretches with and without the flood take turns, so that other load on the machine affects both.

Run: `python -m bench.key_flood`; `--seconds 5 --rounds 1` for a quick run. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from bench.latencies import latencies
from bench.measuring import circumstances, options, publish
from bench.servers import directory_on_disk
from gateway.identity.api_keys import ApiKeyText, format_secret, mint_key, parse_key

CONNECTIONS: Final = 300
PATH: Final = "/v1/iceberg/lake/namespaces"
NEW_KEYS: Final = 20
START_TIMEOUT_S: Final = 120
STOP_TIMEOUT_S: Final = 60
LISTENS: Final = "the gateway listens on "
RATIO_MAX: Final = 3.0


class KeyFlood:
    """
    A process that presents wrong keys over many connections while the context is open.

    `right` is a key that is in force: a third of the wrong ones have its prefix. `answers` counts, once the context is
    closed, the answers by their status.
    """

    def __init__(self, url: str, *, right: str, connections: int = CONNECTIONS) -> None:
        self.answers: Counter[str] = Counter()
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._reader, writer = context.Pipe(duplex=False)
        prefix = parse_key(right).prefix
        self._process = context.Process(
            target=_attack, args=(url, prefix, connections, self._stop, writer), daemon=True
        )
        self._writer = writer

    def __enter__(self) -> Self:
        self._process.start()
        self._writer.close()
        assert self._reader.recv() == "attacking"
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        try:
            if self._reader.poll(STOP_TIMEOUT_S):
                self.answers.update(self._reader.recv())
        finally:
            self._process.join(STOP_TIMEOUT_S)
            self._process.kill()
            self._reader.close()


def _attack(url: str, prefix: str, connections: int, stop: Event, results: Connection) -> None:
    """The process of the attackers."""
    results.send(dict(asyncio.run(_flood(url, prefix, connections, stop, results))))


async def _flood(url: str, prefix: str, connections: int, stop: Event, results: Connection) -> Counter[str]:
    answers: Counter[str] = Counter()
    first = asyncio.Event()

    async def attack(number: int) -> None:
        while not stop.is_set():
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    status = await _refusals(url, prefix, number, answers, stop, first)
            except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
                status = type(error).__name__
                await asyncio.sleep(0.1)  # as any client that lost its connection would
            answers[status] += 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(connections):
            tasks.create_task(attack(number))
        await first.wait()
        results.send("attacking")
    return answers


async def _refusals(
    url: str, prefix: str, number: int, answers: Counter[str], stop: Event, first: asyncio.Event
) -> str:
    """Present wrong keys over one connection until it ends or `stop` is set; return how it ended."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        while not stop.is_set():
            key = _wrong_key(prefix, number)
            request = f"GET {PATH} HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n"
            writer.write(request.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            status, length, closes = _parse_head(head)
            await reader.readexactly(length)
            answers[status] += 1
            first.set()
            if closes:
                return "closed"
        return "ended"
    finally:
        writer.close()


def _wrong_key(prefix: str, number: int) -> str:
    match number % 3:
        case 0:
            return mint_key(secrets.token_bytes).format()
        case 1:
            return ApiKeyText(prefix=prefix, secret=format_secret(secrets.token_bytes(32))).format()
        case _:
            return secrets.token_urlsafe(40)


def _parse_head(head: bytes) -> tuple[str, int, bool]:
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return status.split()[1], int(headers.get("content-length", "0")), headers.get("connection") == "close"


@dataclass(slots=True, kw_only=True)
class Waits:
    """How long requests with a valid key took, and how they were answered."""

    took_ms: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, Any]:
        """Return them as the result has them."""
        return {**latencies(self.took_ms), "requests": len(self.took_ms), "answers": dict(self.answers)}


def send_requests(url: str, key: str, waits: Waits, *, seconds: float) -> None:
    """Ask with a valid key over one connection, one request after the other, for so long."""
    where = urlsplit(url)
    until_s = time.monotonic() + seconds
    with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=STOP_TIMEOUT_S)) as connection:
        while time.monotonic() < until_s:
            ask_once(connection, key, waits)


def ask_once(connection: http.client.HTTPConnection, key: str, waits: Waits) -> None:
    """Ask once, and note how long that took and what the answer was."""
    began_s = time.perf_counter()
    connection.request("GET", PATH, headers={"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    answer.read()
    waits.took_ms.append((time.perf_counter() - began_s) * 1_000)
    waits.answers[str(answer.status)] += 1


def ask_first(url: str, keys: list[str], waits: Waits) -> None:
    """Ask once with each of some keys that the gateway has not seen yet."""
    where = urlsplit(url)
    for key in keys:
        with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=STOP_TIMEOUT_S)) as one:
            ask_once(one, key, waits)


@contextmanager
def running(directory: Path) -> Iterator[tuple[str, str]]:
    """Run `lakeproof up` with a tenant; yields the gateway's URL and the tenant's key."""
    environment = {
        **os.environ,
        "LAKEPROOF_HOME": str(directory / "home"),
        "LAKEPROOF_PORT": "0",
        "LAKEPROOF_DETECT": "0",
        "LAKEPROOF_STREAMS": "0",
    }
    command = (sys.executable, "-m", "lakeproof")
    log = directory / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen((*command, "up"), env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            url = _url_of(process, log)
            arguments = ("tenants", "create", "bench", "--identity", "bench@example.com", "--catalog", "lake", "--json")
            added = subprocess.run((*command, *arguments), env=environment, capture_output=True, check=True)
            yield url, json.loads(added.stdout)["key"]["secret"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_TIMEOUT_S)


def _url_of(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if line.startswith(LISTENS):
                return line.removeprefix(LISTENS).partition(";")[0]
        time.sleep(0.1)
    raise RuntimeError(f"lakeproof up did not start:\n{log.read_text(encoding='utf-8')}")


def new_keys(url: str, key: str, count: int) -> list[str]:
    """Issue keys that no process has checked yet."""
    where = urlsplit(url)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    found = []
    with closing(http.client.HTTPConnection(where.hostname or "", where.port, timeout=STOP_TIMEOUT_S)) as connection:
        for number in range(count):
            # One each: the keys of a holder are limited.
            body = json.dumps({"identity": f"bench-{number}@example.com", "roles": []})
            connection.request("POST", "/v1/keys", body=body, headers=headers)
            answer = connection.getresponse()
            found.append(str(json.loads(answer.read())["secret"]))
    return found


def run(directory: Path, *, connections: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Ask in quiet and under attack by turns; return the figures of both."""
    quiet, attacked, first = Waits(), Waits(), Waits()
    wrong: Counter[str] = Counter()
    with running(directory) as (url, key):
        unseen = new_keys(url, key, NEW_KEYS * rounds)
        send_requests(url, key, Waits(), seconds=seconds / 2)  # warm up
        for number in range(rounds):
            send_requests(url, key, quiet, seconds=seconds)
            with KeyFlood(url, right=key, connections=connections) as flood:
                send_requests(url, key, attacked, seconds=seconds)
                ask_first(url, unseen[number * NEW_KEYS :][:NEW_KEYS], first)
            wrong += flood.answers
    return {
        "quiet": quiet.figures(),
        "attacked": attacked.figures(),
        "first_request_of_a_key_attacked": first.figures(),
        "wrong_keys": dict(wrong),
        **_compared(quiet.figures(), attacked.figures()),
    }


def _compared(quiet: Mapping[str, Any], attacked: Mapping[str, Any]) -> dict[str, float]:
    return {f"ratio_{name}": round(attacked[f"{name}_ms"] / quiet[f"{name}_ms"], 2) for name in ("p50", "p99")}


def main() -> None:
    """Measure, check the claim, and write what was found."""
    parser = options("key_flood", __doc__)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--seconds", type=float, default=15, help="how long each stretch takes")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    with directory_on_disk() as directory:
        measured = run(
            directory,
            connections=arguments.connections,
            seconds=arguments.seconds,
            rounds=arguments.rounds,
        )
    found = {
        "bench": "key_flood",
        "connections": arguments.connections,
        "seconds": arguments.seconds,
        "rounds": arguments.rounds,
        **measured,
        "goal": {"refused": 0, "ratio_p99": RATIO_MAX},
        **circumstances(),
    }
    publish(found, arguments.results)


if __name__ == "__main__":
    main()
