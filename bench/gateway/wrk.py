# SPDX-License-Identifier: Apache-2.0
"""
The load of these benches: Debian's `wrk`, whose requests `requests.lua` makes.

Every figure of the gateway is measured through a socket by a client that is none of ours. A run ends by itself after
its seconds; requests that are under way then have no answer, and are counted nowhere.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from bench.gateway.target import MissingError, Target

SCRIPT: Final = Path(__file__).with_name("requests.lua")
ANSWER_TIMEOUT_S: Final = 30
"""After it wrk counts a request as timed out; it stays in the latencies as what it took."""
GRACE_S: Final = 90

Figures = dict[str, Any]


class Mode(StrEnum):
    """What is requested, as `requests.lua` describes it."""

    LOAD = "load"
    COMMIT = "commit"
    OWN = "own"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """
    What one run of wrk sends: over how many connections, to the first `tables` of `namespace`, for how long.

    `per_second` spaces the requests of all threads evenly; 0 sends each as soon as a connection is free.
    """

    mode: Mode
    namespace: str
    tables: int
    connections: int
    seconds: float
    threads: int = 1
    per_second: float = 0
    loads_per_commit: int = 0


@dataclass(frozen=True, slots=True)
class Wrk:
    """A wrk that has begun, with a script whose last line is JSON; it ends by itself."""

    process: subprocess.Popen[str]
    seconds: float

    def result(self) -> Figures:
        """
        Wait for its end, and return what its script has printed.

        Raises:
            RuntimeError: if wrk failed.
        """
        try:
            output, errors = self.process.communicate(timeout=self.seconds + GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            output, errors = self.process.communicate()
        last = output.rstrip().rpartition("\n")[2]
        if self.process.returncode or not last.startswith("{"):
            raise RuntimeError(f"wrk ended with {self.process.returncode}: {output[-1000:]}{errors[-1000:]}")
        found: Figures = json.loads(last)
        return found


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has begun; `figures` waits for its end."""

    load: Load
    wrk: Wrk

    def figures(self) -> Figures:
        """
        Return what wrk measured: rate, latencies in milliseconds, the count of each status, and failed connections.

        Raises:
            RuntimeError: if wrk failed.
        """
        return _figures(self.load, self.wrk.result())


def wrk_program() -> str:
    """
    Return the path of wrk.

    Raises:
        MissingError: if it is not installed.
    """
    found = shutil.which("wrk")
    if found is None:
        raise MissingError("wrk")
    return found


def start(target: Target, script: Path, *arguments: str, seconds: float, connections: int = 1, threads: int = 1) -> Wrk:
    """Run `script`, which is given `arguments`, against a target."""
    command = [
        wrk_program(),
        f"-t{threads}",
        f"-c{connections}",
        f"-d{max(1, round(seconds))}s",
        f"--timeout={ANSWER_TIMEOUT_S}s",
        *(part for name, value in target.headers.items() for part in ("-H", f"{name}: {value}")),
        *("-s", str(script), target.url, "--", *arguments),
    ]
    return Wrk(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), seconds)


def begin(target: Target, load: Load) -> Run:
    """Begin a run."""
    arguments = (
        *(load.mode.value, target.base, load.namespace, str(load.tables)),
        *(f"{load.per_second / load.threads:.6f}", str(load.loads_per_commit)),
    )
    wrk = start(target, SCRIPT, *arguments, seconds=load.seconds, connections=load.connections, threads=load.threads)
    return Run(load, wrk)


def run(target: Target, load: Load) -> Figures:
    """Return the figures of one run."""
    return begin(target, load).figures()


def _figures(load: Load, found: Mapping[str, Any]) -> Figures:
    seconds = found["duration_us"] / 1e6
    # Without a call for each answer, wrk tells only whether a status was below 400; loads ask for nothing that is
    # answered with less than 200 or with a redirection.
    plain = {"200": found["requests"] - found["failed"], "400 and above": found["failed"]}
    statuses = found["statuses"] or {status: count for status, count in plain.items() if count}
    broken = {name: found[name] for name in ("connect", "read", "write", "timeout") if found[name]}
    return {
        "connections": load.connections,
        "requests": found["requests"],
        "seconds": round(seconds, 2),
        "per_second": round(found["requests"] / seconds, 1),
        **{
            name.replace("_us", "_ms"): found[name] / 1e3 for name in ("min_us", "p50_us", "p95_us", "p99_us", "max_us")
        },
        "mib_per_second": round(found["bytes"] / seconds / 2**20, 2),
        "statuses": dict(sorted(statuses.items())),
        **({"broken_connections": broken} if broken else {}),
    }


def median_of(rounds: Sequence[Figures]) -> Figures:
    """Return the medians of several runs' figures; counts of statuses and of broken connections are summed."""
    found: Figures = {}
    for name, value in rounds[0].items():
        if not isinstance(value, Mapping):
            found[name] = round(statistics.median(one[name] for one in rounds), 3)
    for name in ("statuses", "broken_connections"):
        counts: Counter[str] = Counter()
        for one in rounds:
            counts.update(one.get(name, {}))
        if counts:
            found[name] = dict(sorted(counts.items()))
    return found


def faults_of(what: str, figures: Figures) -> list[str]:
    """Return a sentence for each answer other than 200, and for each connection that broke or had no answer."""
    others = {status: count for status, count in figures["statuses"].items() if status != "200"}
    found = [f"{what}: {count} answers with {status}" for status, count in others.items()]
    return found + [f"{what}: {count} times {name}" for name, count in figures.get("broken_connections", {}).items()]
