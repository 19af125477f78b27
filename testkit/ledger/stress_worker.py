# SPDX-License-Identifier: Apache-2.0
"""
One process of the stress test: appends without end, and records its requests and their answers.

Each line of its report is one JSON array, written in one piece before the next thing happens, so that it is there
though the process is killed: [log, group id, kind, "asked"] for a request, then the same with the answer instead of
"asked". Run as a program with a JSON object of settings as its argument; SIGTERM ends it in good order.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from typing import Any
from uuid import UUID

from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import GuardError, LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.event import derived_group_id
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group
from testkit.ledger.appending import aggregate, event, group

SHARED_IDS = 400
"""Groups whose ids several processes derive alike, as those who see one event twice do."""


class Report:
    """The file that outlives this process."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *line: object) -> None:
        """Append one line."""
        os.write(self._file, json.dumps(line).encode() + b"\n")


def next_group(random_: random.Random, versions: dict[tuple[int, str], int], log_id: int) -> tuple[Group, str]:
    """Return something to append, and what kind of group it is."""
    match random_.randrange(10):
        case 0 | 1:
            number = random_.randrange(SHARED_IDS)
            return group(event({"shared": number}), group_id=shared_id(number)), "shared"
        case 2 | 3:
            key = f"policy:p{random_.randrange(4)}"
            version = versions.get((log_id, key), 0) + 1
            lost = (event({"lost": version}),) if random_.random() < 0.5 else ()
            return aggregate(key, version, otherwise=lost), "guarded"
        case 4 if random_.random() < 0.3:
            return aggregate(f"policy:p{random_.randrange(4)}", 2**40), "failing"  # no version is that large: an error
        case 4:
            return group(*[event({"n": n}) for n in range(random_.randrange(1, 60))]), "own"
        case 5:
            payload = random_.randbytes(random_.randrange(1, 50_000))
            return group(event(payloads={"inputs": payload, "message": b"m"})), "own"
        case _:
            return group(), "own"


def shared_id(number: int) -> UUID:
    return derived_group_id("stress", number)


async def call(appender: Appender, report: Report, random_: random.Random, logs: list[int], timeout_s: float) -> None:
    """Append one group after the other, for ever."""
    versions: dict[tuple[int, str], int] = {}
    while True:
        log_id = random_.choice(logs)
        submitted, kind = next_group(random_, versions, log_id)
        request = (log_id, str(submitted.id), kind)
        report.write(*request, "asked")
        try:
            outcome = await appender.append(log_id, submitted, timeout_s=timeout_s)
        except OutcomeUnknownError:
            report.write(*request, "unknown")
        except (LogUnavailableError, QueueFullError, GuardError):
            report.write(*request, "not in")
        else:
            assert isinstance(outcome, Appended)
            places = outcome.indices
            report.write(*request, "in", outcome.branch, places.start, places.stop)
            if kind == "guarded":
                # Held: this version is the aggregate's. Not held: another process has changed it; try the next.
                key = submitted.then[0].key
                versions[log_id, key] = versions.get((log_id, key), 0) + 1


async def main(settings: dict[str, Any]) -> None:
    """Run until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    random_ = random.Random(settings["seed"])  # noqa: S311 - a run is to be repeatable, as far as it can be
    report = Report(settings["report"])
    async with Appender(settings["dsn"], GuardRegistry(CORE_GUARDS)) as appender:
        callers = [
            asyncio.create_task(call(appender, report, random_, settings["logs"], settings["timeout_s"]))
            for _ in range(settings["callers"])
        ]
        await asyncio.wait([*callers, asyncio.create_task(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
        for caller in callers:
            caller.cancel()
        ended = await asyncio.gather(*callers, return_exceptions=True)
    failed = [error for error in ended if isinstance(error, Exception)]
    if failed:
        raise failed[0]


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
