# SPDX-License-Identifier: Apache-2.0
"""
One of several processes that append to one log at the same time: `python -m bench.append_worker <settings>`.

It prints `ready`, waits for a line, appends for a number of seconds, and prints its figures as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.append_sides import drive, example_event, figures, new_groups
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.format.guards import GuardRegistry

RATE_MAX = 60_000


def together(dsn: str, log_id: int, *, processes: int, callers: int, seconds: float) -> dict[str, float]:
    """Let `processes` append to one log, with `callers` each; returns their rates added and the worst p99."""
    settings = json.dumps({"dsn": dsn, "log_id": log_id, "callers": callers, "seconds": seconds})
    with ExitStack() as stack:
        workers = [stack.enter_context(_worker(settings)) for _ in range(processes)]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        found = [json.loads(worker.communicate()[0]) for worker in _released(workers)]
    return {
        "processes": processes,
        "callers_each": callers,
        "per_second": sum(one["per_second"] for one in found),
        "slowest_per_second": min(one["per_second"] for one in found),
        "p50_ms": max(one["p50_ms"] for one in found),
        "p99_ms": max(one["p99_ms"] for one in found),
    }


def _released(workers: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Let all of them go at once."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return workers


@contextmanager
def _worker(settings: str) -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, "-m", "bench.append_worker", settings]
    with subprocess.Popen(
        program, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def work(settings: dict[str, Any]) -> dict[str, float]:
    """Append once a line arrives on stdin."""
    groups = iter(new_groups(example_event(), int(RATE_MAX * settings["seconds"])))
    async with Appender(settings["dsn"], GuardRegistry(CORE_GUARDS)) as appender:

        async def once(_: int) -> None:
            for group in groups:
                await appender.append(settings["log_id"], group, timeout_s=30)
                return
            raise StopAsyncIteration

        await once(0)  # connects
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        return figures(*await drive(settings["callers"], settings["seconds"], once))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(work(json.loads(sys.argv[1])))))
