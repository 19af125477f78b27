# SPDX-License-Identifier: Apache-2.0
"""
One policy engine for all gateways of a test process: starting one takes longer than most tests.

The engine is the real one, with processes of its own. It lives in a thread with an event loop, since each test has a
loop of its own. Tests of the engine, and those whose settings are about it, have engines of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cache
from itertools import count
from threading import Thread
from typing import Any, Final, Self, TypeVar

from gateway.policy.engine import POLICY, Program, Traced, Verdict
from gateway.policy.inspected import Branch, Inspection
from gateway.policy.pool import WorkerEngine
from gateway.policy.restrictions.written import Written
from gateway.policy.rule_formulas import Formula
from gateway.policy.started_engine import StartedEngine
from ledger.format.canonical import Json
from testkit.servers.forked_workers import close_origin, fork_worker

T = TypeVar("T")

LOGS_MAX: Final = 1_000_000
"""Of one database: what one test's tenants have used of the engine is not counted against another's."""

_numbers = count()


class _Thread:
    """The engine, and the loop that it lives in."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="policy engine", daemon=True)
        self._thread.start()
        # Waiting is not timed here, and the machine may be busy.
        self.engine = WorkerEngine(waiting_s=60, spawn=fork_worker)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` there, and wait for it here."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def close(self) -> None:
        """End the engine's processes, and the thread."""
        asyncio.run_coroutine_threadsafe(self.engine.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True, slots=True)
class SharedEngine(AbstractAsyncContextManager[StartedEngine]):
    """The shared engine for the gateways of one test."""

    shared: _Thread
    first_log: int

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Leave the engine to the next test."""

    async def start(self) -> None:
        """See `StartedEngine.start`."""
        await self.shared.run(self.shared.engine.start())

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = POLICY) -> None:
        """See `PolicyEngine.check`."""
        log_id += self.first_log
        await self.shared.run(self.shared.engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind))

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        """See `PolicyEngine.judge`."""
        log_id += self.first_log
        return await self.shared.run(self.shared.engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s))

    async def read_condition(self, expression: str, *, kind: str, log_id: int, timeout_s: float) -> Written:
        """See `ReadsConditions.read_condition`."""
        log_id += self.first_log
        reading = self.shared.engine.read_condition(expression, kind=kind, log_id=log_id, timeout_s=timeout_s)
        return await self.shared.run(reading)

    async def read_rule(self, expression: str, *, log_id: int, timeout_s: float) -> Formula:
        """See `ReadsRules.read_rule`."""
        log_id += self.first_log
        return await self.shared.run(self.shared.engine.read_rule(expression, log_id=log_id, timeout_s=timeout_s))

    async def judge_rows(
        self,
        programs: Sequence[Program],
        shared: Mapping[str, Json],
        rows: Sequence[Mapping[str, Json]],
        *,
        log_id: int,
        timeout_s: float,
    ) -> list[str]:
        """See `JudgesRows.judge_rows`."""
        log_id += self.first_log
        return await self.shared.run(
            self.shared.engine.judge_rows(programs, shared, rows, log_id=log_id, timeout_s=timeout_s)
        )

    async def trace(self, program: Program, activation: Mapping[str, Json], *, log_id: int, timeout_s: float) -> Traced:
        """See `Tracer.trace`."""
        log_id += self.first_log
        return await self.shared.run(self.shared.engine.trace(program, activation, log_id=log_id, timeout_s=timeout_s))

    async def inspect(
        self, expression: str, *, zero: Mapping[str, Json], timeout_s: float, kind: str = POLICY, log_id: int
    ) -> Inspection:
        """See `Inspector.inspect`."""
        log_id += self.first_log
        return await self.shared.run(
            self.shared.engine.inspect(expression, zero=zero, timeout_s=timeout_s, kind=kind, log_id=log_id)
        )

    async def cover(
        self,
        expression: str,
        activations: Sequence[Mapping[str, Json]],
        *,
        timeout_s: float,
        kind: str = POLICY,
        log_id: int,
    ) -> tuple[Branch, ...]:
        """See `Inspector.cover`."""
        log_id += self.first_log
        return await self.shared.run(
            self.shared.engine.cover(expression, activations, timeout_s=timeout_s, kind=kind, log_id=log_id)
        )


@cache
def _thread() -> _Thread:
    return _Thread()


def shared_engine() -> SharedEngine:
    """Return the engine, as if it were one test's own."""
    return SharedEngine(_thread(), next(_numbers) * LOGS_MAX)


def close_shared_engine() -> None:
    """End it, if there is one, and what its processes were forked from."""
    if _thread.cache_info().currsize:
        _thread().close()
        _thread.cache_clear()
    close_origin()
