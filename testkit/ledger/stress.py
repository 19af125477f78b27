# SPDX-License-Identifier: Apache-2.0
"""
Processes that append to a few logs while they are killed, stopped, rolled back and cut off; and whether what they were
told was true.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from psycopg import AsyncConnection

from ledger.format.entry import Branch, Entry
from testkit.environment import PROJECT
from testkit.ledger.appending import SESSIONS
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan

ROLLED_BACK = (b"INSERT INTO ledger.entries", b"UPDATE ledger.heads", b"COMMIT")
"""Statements that the server refuses now and then, so that a transaction is rolled back."""
CHAOS_EVERY_S = 0.25
HIT_S_MAX = 60
"""A busy machine may take long until the next worker says what is waited for, or the last session has ended."""
FROZEN_S = 0.4
AWAY_S = 1.0
"""Longer than the callers' deadlines."""
CALLERS = 12
TIMEOUT_S = 0.5


@dataclass
class Workers:
    """The processes, each with a place of its own; one that was killed is replaced."""

    dsn: str
    logs: list[int]
    directory: Path
    random: random.Random
    callers: int = CALLERS
    timeout_s: float = TIMEOUT_S
    running: list[asyncio.subprocess.Process] = field(default_factory=list)
    started: int = 0

    async def start(self) -> None:
        """Start one more."""
        self.started += 1
        settings = {
            "dsn": self.dsn,
            "logs": self.logs,
            "seed": self.random.randrange(2**32),
            "callers": self.callers,
            "timeout_s": self.timeout_s,
            "report": str(self.directory / f"{self.started}.jsonl"),
        }
        program = (sys.executable, "-m", "testkit.ledger.stress_worker", json.dumps(settings))
        self.running.append(await asyncio.create_subprocess_exec(*program, cwd=PROJECT))

    async def kill_one(self) -> None:
        """Kill one without warning, and start another."""
        process = self.running.pop(self.random.randrange(len(self.running)))
        process.kill()
        await process.wait()
        await self.start()

    async def freeze_one(self) -> None:
        """Stop one, perhaps while it holds locks on heads, and let it continue."""
        process = self.random.choice(self.running)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(FROZEN_S)
        process.send_signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End all of them in good order."""
        for process in self.running:
            process.terminate()
        # One that had hardly started ends by the signal itself.
        assert {await process.wait() for process in self.running} <= {0, -signal.SIGTERM}

    async def kill_all(self) -> None:
        """Leave none behind, whatever happened."""
        for process in self.running:
            with suppress(ProcessLookupError):
                process.kill()
                await process.wait()


async def make_trouble(
    workers: Workers,
    proxy: CuttingProxy,
    database: str,
    seconds: float,
    more: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
    *,
    is_enough: Callable[[Counter[str]], bool] = lambda _: True,
) -> Counter[str]:
    """
    Do something bad every quarter of a second, `more` by name besides; returns how often what was done.

    It goes on for `seconds`, and after that until what was done `is_enough`.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    kinds = ("kill", "freeze", "terminate", "cut", "away", "cut at COMMIT", "roll back")
    also = dict(more or {})
    done = Counter(dict.fromkeys((*kinds, *also), 0))
    deck: list[str] = []
    while loop.time() < end or not is_enough(done):
        await asyncio.sleep(CHAOS_EVERY_S)
        if not deck:
            deck = workers.random.sample([*done, "cut at COMMIT"], len(done) + 1)
        what = deck.pop()
        match what:
            case _ if what in also:
                await also[what]()
            case "kill":
                await workers.kill_one()
            case "freeze":
                await workers.freeze_one()
            case "terminate":
                async with await AsyncConnection.connect(database, autocommit=True) as owner:
                    await owner.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name = 'lakeproof appender' AND datname = current_database() "
                        "ORDER BY random() LIMIT 1"
                    )
            case "cut":
                proxy.cut_all()
            case "away":
                proxy.accepts = False
                proxy.cut_all()
                await asyncio.sleep(AWAY_S)
                proxy.accepts = True
            case "roll back":
                text = workers.random.choice(ROLLED_BACK)
                plan = proxy.plan = Plan(text, Cut.REFUSED, sqlstate=workers.random.choice(("40001", "53100")))
                await asyncio.wait_for(plan.hit.wait(), HIT_S_MAX)
            case _:
                cut = workers.random.choice([Cut.BEFORE, Cut.AFTER, Cut.LATE])
                plan = proxy.plan = Plan(b"COMMIT", cut)
                await asyncio.wait_for(plan.hit.wait(), HIT_S_MAX)
                loop.call_later(0.3, plan.deliver.set)
        done[what] += 1
    return done


async def until_nothing_is_under_way(database: str) -> None:
    """Return when the server has no session of an appender: a COMMIT may arrive after whoever sent it is gone."""
    async with await AsyncConnection.connect(database, autocommit=True) as owner, asyncio.timeout(HIT_S_MAX):
        while await (await owner.execute(SESSIONS)).fetchone() is not None:  # noqa: ASYNC110 - no event reports sessions
            await asyncio.sleep(0.02)


def count_answers(reports: Path) -> Counter[str]:
    """Return how often the workers were given each answer until now; a line that is being written does not count."""
    lines = (line for report in reports.glob("*.jsonl") for line in report.read_text().splitlines(keepends=True))
    return Counter(json.loads(line)[3] for line in lines if line.endswith("\n"))


def check_answers(entries: list[list[Entry]], logs: list[int], reports: Path) -> Counter[str]:
    """Compare every line of every report with the logs; return the count of each answer."""
    found: dict[tuple[int, UUID], list[Entry]] = {}
    for log_id, held in zip(logs, entries, strict=True):
        for entry in held:
            found.setdefault((log_id, entry.group_id), []).append(entry)
    answers: Counter[str] = Counter()
    for report in reports.glob("*.jsonl"):
        for line in report.read_text().splitlines():
            log_id, group_id, kind, answer, *details = json.loads(line)
            check_answer(found.get((log_id, UUID(group_id)), []), kind, answer, details)
            answers[answer] += 1
    return answers


def check_answer(entries: list[Entry], kind: str, answer: str, details: list[object]) -> None:
    """Check that an answer is true, given what the log holds under that id."""
    match answer, details:
        case "in", [branch, int(start), int(stop)]:
            assert [entry.index for entry in entries] == list(range(start, stop))
            assert {entry.branch for entry in entries} <= {Branch(str(branch))}
        case "not in", []:
            # A group that several processes submit may be there because of another one.
            assert kind == "shared" or entries == []
        case _:
            assert answer in {"asked", "unknown"}
