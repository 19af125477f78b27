# SPDX-License-Identifier: Apache-2.0
"""
Where the time of an append goes: in the process, by samples of its stack; in the server, by timing each exchange.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from bench.append_sides import Turn, new_groups
from ledger.append.batch import AppendTransaction
from ledger.append.statements import insert_entries
from ledger.format.event import PreparedEvent
from ledger.format.guards import GuardRegistry
from ledger.format.sealing import PLAIN
from ledger.format.sequence import Group, LogHead, SequencedEntry, sequence
from ledger.store.session import connect

INTERVAL_S = 0.001
BATCHES = 100

_PLACES = {
    "selectors": "waits for the server",
    "ledger/format/sequence": "sequencing and hashing",
    "ledger/format/entry": "sequencing and hashing",
    "ledger/format/merkle": "sequencing and hashing",
    "ledger/format/tiles": "sequencing and hashing",
    "ledger/append/pending_tiles": "sequencing and hashing",
    "ledger/append/statements": "building statements",
    "ledger/append/guard_statements": "building statements",
    "ledger/store/wire": "sending and receiving",
    "ledger/append/batch": "batches and answers",
    "ledger/append/at_once": "batches and answers",
    "ledger/append/known_heads": "batches and answers",
    "ledger/append/writer": "batches and answers",
    "ledger/append/queue": "batches and answers",
    "ledger/append/appender": "callers",
    "bench/append_sides": "callers",
}
"""Modules, and what is done in them; the innermost one that is listed counts. All else is the event loop's."""


def profile(turn: Turn, *, callers: int, seconds: float) -> dict[str, float]:
    """Return the percentage of the process's wall-clock time by what it was doing; waiting is one of these."""
    samples: Counter[str] = Counter()

    async def sampled() -> None:
        with _sampling(samples):
            await turn(callers, seconds)

    asyncio.run(sampled())
    total = sum(samples.values())
    return {place: round(100 * count / total, 1) for place, count in samples.most_common()}


@contextmanager
def _sampling(samples: Counter[str]) -> Iterator[None]:
    def sample(_: int, frame: FrameType | None) -> None:
        samples[_place(frame)] += 1

    before = signal.signal(signal.SIGALRM, sample)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _place(frame: FrameType | None) -> str:
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        name = path.stem if path.stem == "selectors" else f"{path.parent.name}/{path.stem}"
        if name in _PLACES:
            return _PLACES[name]
        frame = frame.f_back
    return "event loop"


async def time_of_steps(dsn: str, log_id: int, event: PreparedEvent, *, groups: int) -> dict[str, float]:
    """
    Return the median time of each step of a batch in milliseconds, one after the other, nothing overlapping.

    The first and the last step are the server's, with one round trip each; those between are this process's.
    """
    took: dict[str, list[float]] = {}
    connection = await connect(dsn)
    transaction = AppendTransaction(connection, GuardRegistry(()), PLAIN)
    await transaction.admit([log_id])
    for _ in range(BATCHES):
        batch = {log_id: new_groups(event, groups)}
        with _clock(took, "lock and lookup"):
            transaction.open(batch, wait=False)
            await transaction.begin()
        with _clock(took, "sequencing, and building statements"):
            await transaction.sequence(batch)
        with _clock(took, "insert, heads, COMMIT"):
            transaction.commit(lambda: True)
            assert await transaction.committed()
    transaction.close()
    await connection.close()
    steps = {step: round(1000 * statistics.median(times), 3) for step, times in took.items()}
    return steps | _pure_steps(event, groups)


def _pure_steps(event: PreparedEvent, count: int) -> dict[str, float]:
    """Return the times, in milliseconds, of what needs no server."""
    took: dict[str, list[float]] = {}
    origin = "lakeproof.invalid/01234567/" + 32 * "0"
    for _ in range(BATCHES):
        groups = new_groups(event, count)
        with _clock(took, "of which sequencing and hashing"):
            rows = _sequenced(groups, origin)
        with _clock(took, "of which building statements"):
            insert_entries({1: rows})
    return {step: round(1000 * statistics.median(times), 3) for step, times in took.items()}


def _sequenced(groups: list[Group], origin: str) -> list[SequencedEntry]:
    flow = sequence(LogHead.empty(), groups, log=origin, stored={}, clock=datetime.now(UTC))
    try:
        next(flow)
    except StopIteration as done:
        rows: list[SequencedEntry] = done.value.rows
        return rows
    message = "a group without a guard asked for one"
    raise AssertionError(message)


@contextmanager
def _clock(took: dict[str, list[float]], step: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    took.setdefault(step, []).append(time.perf_counter() - begin)
