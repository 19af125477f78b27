# SPDX-License-Identifier: Apache-2.0
"""
Evaluates many programs on many inputs, in worker processes of its own, many cases a frame.

Guarantee: each case has one outcome, and it is the one that the gateway's engine would give: the same code judges it,
in a process with the same limits. A case that takes longer than one commit may is an error, and so is one that ends its
process; the others of its frame are evaluated all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from gateway.policy.engine import EngineUnavailableError, Outcome
from gateway.policy.frames import FRAME_BYTES_MAX, End, FrameError, format_frame
from gateway.policy.inspected import Branch
from gateway.policy.pool import JUDGING_BYTES_MAX, START_TIMEOUT_S, STOP_GRACE_S
from gateway.policy.process import Ended, Spawn, WorkerProcess, spawn_worker
from gateway.replaying.comparing import Evaluated
from gateway.replaying.variables import Known

WORKERS: Final = 2
FRAME_CASES: Final = 1_000
FRAME_S: Final = 5.0
"""The time for a frame, on top of that for one case: usually a frame takes some ten milliseconds."""
TOO_SLOW: Final = "takes longer than a commit may wait for it"
ENDED: Final = "ends the process that judges it"
TOO_LARGE: Final = f"what it reads is over {FRAME_BYTES_MAX // 2**20} MiB"

_OUTCOMES: Final[Mapping[object, Outcome]] = {str(outcome): outcome for outcome in Outcome}


@dataclass(frozen=True, slots=True)
class Case:
    """A program (its number), and the variables that it reads, each with the fields (None: all)."""

    program: int
    reads: tuple[tuple[str, Known, frozenset[str] | None], ...]


class CaseWorkers:
    """
    Worker processes that know some programs, each a kind and an expression. Use as an async context manager.

    Judging may take `judging_bytes_max` of memory in each of them, and one case `timeout_s`. A process is started when
    it is needed. With `covers` each outcome has the branches that were taken, and `branches` says which there are.
    """

    def __init__(
        self,
        programs: Sequence[tuple[str, str]],
        *,
        timeout_s: float,
        workers: int = WORKERS,
        judging_bytes_max: int = JUDGING_BYTES_MAX,
        covers: bool = False,
        spawn: Spawn = spawn_worker,
    ) -> None:
        self.covers = covers
        self._programs = list(programs)
        self._timeout_s = timeout_s
        self._judging_bytes_max = judging_bytes_max
        self._spawn = spawn
        self._numbers = count()
        # A place for each process that may run: None where none does yet.
        self._idle: asyncio.Queue[WorkerProcess | None] = asyncio.Queue()
        for _ in range(workers):
            self._idle.put_nowait(None)
        self._running: set[WorkerProcess] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in list(self._running):
            await process.kill()

    async def evaluate(self, cases: Sequence[Case]) -> list[Evaluated]:
        """
        Return the outcome of each case.

        Raises:
            EngineUnavailableError: if a process cannot be started.
        """
        frames = [cases[first : first + FRAME_CASES] for first in range(0, len(cases), FRAME_CASES)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._frame(frame, self._timeout_s + FRAME_S)) for frame in frames]
        return [outcome for task in tasks for outcome in task.result()]

    async def branches(self) -> list[tuple[Branch, ...]]:
        """
        Return the branches of each program; none of one that does not compile.

        Raises:
            EngineUnavailableError: if a process cannot be started, or does not answer.
        """
        found = []
        for kind, expression in self._programs:
            number = next(self._numbers)
            asked = {"cover": {"expression": expression, "kind": kind, "activations": []}}
            frame = format_frame({**asked, "call": number, "timeout_s": FRAME_S})
            results, ended = await self._converse(number, frame, FRAME_S)
            if ended is None or len(results) != 1:
                raise EngineUnavailableError("the policy worker did not say which branches a policy has")
            found.append(tuple(Branch(**one) for one in results[0].get("branches", ())))
        return found

    async def _frame(self, cases: Sequence[Case], timeout_s: float) -> list[Evaluated]:
        number = next(self._numbers)
        try:
            frame = format_frame({"cases": self._request(cases), "call": number, "timeout_s": timeout_s})
        except FrameError:
            if len(cases) == 1:
                return [Evaluated(None, why=TOO_LARGE)]
            middle = len(cases) // 2
            return [*await self._frame(cases[:middle], timeout_s), *await self._frame(cases[middle:], timeout_s)]
        results, ended = await self._converse(number, frame, timeout_s)
        found = [_evaluated(one) for result in results for one in result.get("outcomes", ())][: len(cases)]
        # The case after those that are done was at work: it is tried alone, with the time of one commit.
        position = len(found)
        if position < len(cases):
            if len(cases) == 1:
                found.append(Evaluated(Outcome.ERROR, ENDED if ended is None else TOO_SLOW))
            else:
                found += await self._frame(cases[position : position + 1], self._timeout_s)
        if position + 1 < len(cases):
            found += await self._frame(cases[position + 1 :], timeout_s)
        return found

    def _request(self, cases: Sequence[Case]) -> dict[str, Any]:
        """Return the request for some cases: each value that several of them read is in it once."""
        values: list[object] = []
        places: dict[tuple[int, str], int] = {}

        def place_of(known: Known, name: str) -> int:
            key = id(known), name
            if key not in places:
                places[key] = len(values)
                values.append(known.members[name])
            return places[key]

        listed = [
            (
                case.program,
                {
                    variable: {name: place_of(known, name) for name in (known.members if fields is None else fields)}
                    for variable, known, fields in case.reads
                },
            )
            for case in cases
        ]
        return {"programs": self._programs, "values": values, "cases": listed, "log_id": 0, "covers": self.covers}

    async def _converse(self, number: int, frame: bytes, timeout_s: float) -> tuple[list[dict[str, Any]], Ended | None]:
        """Return the results that came, and how it ended; None if the process is gone."""
        process = await self._idle.get()
        results: list[dict[str, Any]] = []
        try:
            if process is None or not process.runs:
                process = await self._started(process)
            conversation = asyncio.create_task(process.converse(frame, results))
            try:
                await asyncio.wait([conversation], timeout=timeout_s)
                if not conversation.done():
                    process.stop(number)
                    await asyncio.wait([conversation], timeout=STOP_GRACE_S)
                ended = conversation.result() if conversation.done() else None
            except EngineUnavailableError:
                ended = None
            finally:
                conversation.cancel()
            if ended is None or ended.end is End.LEAVING:
                await self._end(process)
                process = None
            return results, ended
        finally:
            self._idle.put_nowait(process)

    async def _started(self, before: WorkerProcess | None) -> WorkerProcess:
        if before is not None:
            await self._end(before)
        process = await WorkerProcess.start(
            judging_bytes_max=self._judging_bytes_max, timeout_s=START_TIMEOUT_S, spawn=self._spawn
        )
        self._running.add(process)
        return process

    async def _end(self, process: WorkerProcess) -> None:
        await process.kill()
        self._running.discard(process)


def _evaluated(sent: Sequence[str]) -> Evaluated:
    outcome, detail, *taken = sent
    found = _OUTCOMES.get(outcome, Outcome.ERROR)
    return Evaluated(found, str(detail), taken=int(taken[0], 16)) if taken else Evaluated(found, str(detail))
