# SPDX-License-Identifier: Apache-2.0
"""
Whether a tenant that overloads the policy engine slows down another tenant's commits.

Claim: while one tenant attacks, each commit of another is answered, and the 99th percentile of these commits stays
below three times the one without the attack.

`lakeproof up` runs as users start it: a process with its own home and the embedded PostgreSQL (detection, a separate
process, is off). One client of tenant `calm` commits a property to a table again and again, over HTTP, with its own
policy in force. Tenant `noisy` has clients in another process that send the same request as soon as the last one was
answered. Before each attack the server is measured without it, because a table with a history takes longer than one
without.

Attacks: a policy of four nested `.all` over 60 elements, and commits that it judges; saved policies whose text is a
string of 3,000 backslashes, or brackets, or an unclosed string of escapes; a harmless policy, and commits of 20,000
updates, refused for their number, or of 20,000 removals, which are accepted.

Run: `python -m bench.noisy_neighbour`. The last line is JSON with all figures; the exit code is 1 if the claim fails.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from bench.latencies import latencies
from bench.measuring import circumstances, options, publish
from bench.servers import directory_on_disk
from testkit.environment import PROJECT

RATIO_MAX: Final = 3.0
PAUSE_S: Final = 0.02
"""Between two commits of the calm tenant, so that its own last one is not what it waits for."""
WARM_UP: Final = 120
"""Commits before anything is measured: a table's history of metadata has its full length then."""
CLIENTS: Final = 4
"""Of the noisy tenant, at once."""
START_TIMEOUT_S: Final = 120.0
ANSWER_TIMEOUT_S: Final = 60.0
LAKEPROOF: Final = [sys.executable, "-m", "lakeproof"]

SIXTY: Final = str(list(range(60)))
NESTED: Final = "".join(f"{SIXTY}.all({name}, " for name in "abcd") + "a + b + c + d >= 0" + ")" * 4
TABLE: Final = "/v1/iceberg/lake/namespaces/shop/tables/orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent: the same each time."""

    method: str
    path: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What the noisy tenant does: the policies it has in force meanwhile, and what it sends, one after another."""

    name: str
    policies: tuple[str, ...]
    requests: tuple[Request, ...]


def post(path: str, content: Any) -> Request:
    return Request(method="POST", path=path, body=json.dumps(content).encode())


def commit(*updates: dict[str, Any]) -> Request:
    return post(TABLE, {"requirements": [], "updates": list(updates)})


def property_update(number: int) -> dict[str, Any]:
    return {"action": "set-properties", "updates": {f"owner-{number % 10}": f"value {number}"}}


def saved(expression: str) -> Request:
    return post("/v1/policies", {"id": "never-saved", "expression": expression, "message": "no"})


def attacks() -> tuple[Attack, ...]:
    harmless = ("commit.updates.size() >= 0",)
    return (
        Attack(name="nested loops", policies=(NESTED,), requests=(commit(property_update(1)),)),
        Attack(
            name="expressions to compile",
            policies=(),
            requests=tuple(
                saved(text)
                for text in (
                    "commit.name == '" + "\\" * 3000,
                    "commit.name == '" + "\\" * 3000 + "'",
                    "'" + r"\a" * 500,
                    "[" * 3000 + "]" * 3000 + " == []",
                    "(" * 99 + "true" + ")" * 99 + " && [" + ",".join(["1"] * 900) + "].size() > nobody",
                )
            ),
        ),
        Attack(
            name="20,000 updates",
            policies=harmless,
            requests=(commit(*(property_update(number) for number in range(20_000))),),
        ),
        Attack(
            name="20,000 removals",
            policies=harmless,
            requests=(commit(*({"action": "remove-snapshots", "snapshot-ids": [n]} for n in range(20_000))),),
        ),
    )


class Client:
    """One connection of a tenant, over which requests go one after another."""

    def __init__(self, url: str, key: str) -> None:
        self._address = urlsplit(url)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection: http.client.HTTPConnection | None = None

    def send(self, request: Request) -> tuple[int, bytes]:
        """Send `request`; return status and body of its answer."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection(str(self._address.netloc), timeout=ANSWER_TIMEOUT_S)
        try:
            self._connection.request(request.method, request.path, request.body, self._headers)
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            raise
        return answer.status, body

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def must(self, request: Request) -> None:
        """
        Send `request`, which must be done.

        Raises:
            RuntimeError: if it was refused.
        """
        self.close()  # the server has closed it, if the last request was long ago
        status, body = self.send(request)
        if status >= 300:
            raise RuntimeError(f"{request.method} {request.path}: {status} {body[:300]!r}")


@contextmanager
def lakeproof_up(directory: Path) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Run `lakeproof up`; yields its address, and a function that runs another command meanwhile."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")},
        "LAKEPROOF_HOME": str(directory / "home"),
        "LAKEPROOF_PORT": "0",
        "LAKEPROOF_DETECT": "0",
        "PYTHONPATH": str(PROJECT),
    }

    def run(*arguments: str) -> Any:
        done = subprocess.run([*LAKEPROOF, *arguments], env=environment, cwd=directory, check=True, capture_output=True)
        return json.loads(done.stdout)

    log = (directory / "up.log").open("w+", encoding="utf-8")
    server = subprocess.Popen([*LAKEPROOF, "up"], env=environment, cwd=directory, stdout=log, stderr=log)
    try:
        yield _address(server, directory / "up.log"), run
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(ANSWER_TIMEOUT_S)
        log.close()


def _address(server: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s and server.poll() is None:
        if found := re.search(r"the gateway listens on (\S+);", log.read_text(encoding="utf-8")):
            return found[1]
        time.sleep(0.1)
    raise RuntimeError(f"lakeproof up did not start: {log.read_text(encoding='utf-8')}")


def prepare(url: str, key: str) -> Client:
    """Make a tenant's table; return a client of it."""
    client = Client(url, key)
    client.must(post("/v1/iceberg/lake/namespaces", {"namespace": ["shop"]}))
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    client.must(post(TABLE.rpartition("/")[0], {"name": "orders", "schema": schema}))
    return client


def timed_commits(client: Client, seconds: float) -> tuple[list[float], Counter[int]]:
    """Commit for so long; return what each took in milliseconds, and how often there was which status."""
    took_ms: list[float] = []
    statuses: Counter[int] = Counter()
    end_s = time.monotonic() + seconds
    number = 0
    while time.monotonic() < end_s:
        request = commit(property_update(number))
        number += 1
        began_s = time.perf_counter()
        status, _ = client.send(request)
        took_ms.append((time.perf_counter() - began_s) * 1000)
        statuses[status] += 1
        time.sleep(PAUSE_S)
    return took_ms, statuses


def keep_sending(
    url: str, key: str, requests: tuple[Request, ...], stop: Event, results: multiprocessing.Queue[dict[str, int]]
) -> None:
    """Send again and again until `stop` is set; then put the counts of the answers into `results`."""
    client, statuses = Client(url, key), Counter[str]()
    while not stop.is_set():
        for request in requests:
            try:
                statuses[str(client.send(request)[0])] += 1
            except (OSError, http.client.HTTPException) as error:
                statuses[type(error).__name__] += 1
            if stop.is_set():
                break
    results.put(dict(statuses))


@contextmanager
def attacking(url: str, key: str, attack: Attack, answers: Counter[str]) -> Iterator[None]:
    """Attack while the context is open; `answers` counts the answers to the noisy tenant."""
    spawning = multiprocessing.get_context("spawn")
    stop, results = spawning.Event(), spawning.Queue()
    arguments = (url, key, attack.requests, stop, results)
    clients = [spawning.Process(target=keep_sending, args=arguments) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield
    finally:
        stop.set()
        for _ in clients:
            answers.update(results.get(timeout=ANSWER_TIMEOUT_S))
        for client in clients:
            client.join()


def measure(seconds: float, only: str | None, directory: Path) -> dict[str, Any]:
    """Measure quiet and attacked, for each attack; return the figures."""
    with lakeproof_up(directory) as (url, run):
        keys = {
            name: run("tenants", "create", name, "--identity", f"x@{name}.example", "--catalog", "lake", "--json")[
                "key"
            ]
            for name in ("calm", "noisy")
        }
        calm, noisy = (prepare(url, key["secret"]) for key in keys.values())
        policy = "!('owner-99' in result.properties) && result.columns.all(c, c.name != 'secret')"
        calm.must(post("/v1/policies", {"id": "calm", "expression": policy, "message": "no"}))
        for number in range(WARM_UP):
            calm.must(commit(property_update(number)))
        found: list[dict[str, Any]] = []
        for attack in attacks():
            if only is not None and only not in attack.name:
                continue
            names = {f"p-{len(found)}-{number}": text for number, text in enumerate(attack.policies)}
            for name, text in names.items():
                noisy.must(post("/v1/policies", {"id": name, "expression": text, "message": "no"}))
            quiet, quiet_statuses = timed_commits(calm, seconds)
            answers: Counter[str] = Counter()
            with attacking(url, keys["noisy"]["secret"], attack, answers):
                timed_commits(calm, min(3.0, seconds))  # until the attack has begun
                attacked, statuses = timed_commits(calm, seconds)
            for name in names:
                noisy.must(Request(method="DELETE", path=f"/v1/policies/{name}", body=b""))
            of_quiet, of_attacked = latencies(quiet), latencies(attacked)
            results = quiet_statuses + statuses
            one = {
                "attack": attack.name,
                "quiet": {"commits": len(quiet), **of_quiet},
                "attacked": {"commits": len(attacked), **of_attacked},
                "p99_ratio": round(of_attacked["p99_ms"] / of_quiet["p99_ms"], 2),
                "refused": results.total() - results[200],
                "answers_to_the_attacker": dict(sorted(answers.items())),
            }
            print(json.dumps(one), file=sys.stderr)
            found.append(one)
        holds = all(one["p99_ratio"] < RATIO_MAX and one["refused"] == 0 for one in found)
        log_text = (directory / "up.log").read_text(encoding="utf-8")
    return {
        "bench": "noisy_neighbour",
        **circumstances(),
        "seconds": seconds,
        "attacking_clients": CLIENTS,
        "attacks": found,
        "claim": holds,
        "complaints_of_the_server": log_text.count("Traceback"),
    }


def main() -> None:
    """Measure, print, exit 1 if the claim fails."""
    parser = options("noisy_neighbour", __doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement (default: 30)")
    parser.add_argument("--only", help="attacks whose name contains this")
    arguments = parser.parse_args()
    with directory_on_disk() as directory:
        found = measure(arguments.seconds, arguments.only, directory)
    publish(found, arguments.results)
    if not found["claim"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
