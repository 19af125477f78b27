"""
The policy engine of the gateway: expressions are judged in child processes that can be killed.

Guarantee: a call ends at its deadline, whatever its expressions do; a process that was interrupted never serves again;
and once a `WorkerEngine` is closed, none of its processes is left. A call without an answer raises.

Each of the few workers has a task, its *seat*, which keeps one process running and takes the waiting calls one by one.
The seat, not the caller, owns the process: a caller that gives up leaves its deadline behind, and a process that is
starting is not thrown away with the call that was the first to need it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from gateway.policy.engine import (
    POLICY,
    DeadlineExceededError,
    EngineUnavailableError,
    Outcome,
    PolicyEngineError,
    PolicyNotCompiledError,
    Program,
    Verdict,
)
from gateway.policy.frames import FrameError, format_frame
from gateway.policy.process import WorkerProcess
from gateway.policy.text import check_text

if TYPE_CHECKING:
    from ledger.canonical import Json

WORKERS: Final = 1
WAITING_MAX: Final = 256
JUDGING_BYTES_MAX: Final = 256 * 2**20
START_TIMEOUT_S: Final = 10.0

_OUTCOMES: Final[Mapping[object, Outcome]] = {str(outcome): outcome for outcome in Outcome}


@dataclass(slots=True, eq=False)
class _Call:
    """One request on its way. `results` grows as they arrive, so that a call cut short shows how far it came."""

    timeout_s: float
    deadline: float  # on the loop's clock
    finished: asyncio.Future[None]
    frame: bytes = b""
    running: bool = False
    results: list[dict[str, Any]] = field(default_factory=list)

    def overdue(self) -> DeadlineExceededError:
        """Return the error for a deadline that has passed."""
        state = "was done" if self.running else "could begin: the policy engine is busy"
        return DeadlineExceededError(f"{self.timeout_s} s passed before it {state}")

    def finish(self, error: PolicyEngineError | None = None) -> None:
        """Tell the caller, unless it has left."""
        if self.finished.done():
            return
        if error is None:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(error)


class WorkerEngine:
    """
    A `PolicyEngine` over child processes; an async context manager.

    The processes start with the first call, or with `start`; one that dies or is killed is replaced at once. Calls wait
    in one queue, and their waiting counts against their deadlines: with one worker, an expression that runs until its
    deadline holds up the calls behind it.
    """

    def __init__(
        self,
        *,
        workers: int = WORKERS,
        waiting_max: int = WAITING_MAX,
        judging_bytes_max: int = JUDGING_BYTES_MAX,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._workers = workers
        self._judging_bytes_max = judging_bytes_max
        self._start_timeout_s = start_timeout_s
        self._waiting: asyncio.Queue[_Call] = asyncio.Queue(waiting_max)
        self._seats: list[asyncio.Task[None]] = []
        self._first_starts: list[asyncio.Future[EngineUnavailableError | None]] = []
        self._processes: set[WorkerProcess] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the processes that run now."""
        return frozenset(process.pid for process in self._processes)

    async def start(self) -> None:
        """
        Start all workers and wait until they can serve. Without it the first call waits for that.

        Raises:
            EngineUnavailableError: if one of them cannot.
        """
        self._take_seats()
        for error in await asyncio.gather(*self._first_starts):
            if error is not None:
                raise error

    async def close(self) -> None:
        """Kill all workers (they hold nothing that could be lost) and fail the calls that still wait."""
        self._closed = True
        for seat in self._seats:
            seat.cancel()
        await asyncio.gather(*self._seats, return_exceptions=True)
        for process in list(self._processes):
            await self._end(process)
        while not self._waiting.empty():
            self._waiting.get_nowait().finish(_shut_down())

    async def check(self, expression: str, *, timeout_s: float, kind: str = POLICY) -> None:
        """See `PolicyEngine.check`."""
        check_text(expression)
        call = self._call(timeout_s)
        await self._ask(call, {"check": {"expression": expression, "kind": kind}})
        match call.results:
            case [{"compiled": True}]:
                return
            case [{"reason": str(reason), "line": int(line), "column": int(column)}]:
                raise PolicyNotCompiledError(reason, line=line, column=column)
            case _:
                raise EngineUnavailableError("the policy worker answered something other than it was asked")

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, timeout_s: float
    ) -> tuple[Verdict, ...]:
        """See `PolicyEngine.judge`."""
        if not programs:
            return ()
        asked = [(program.kind, program.expression) for program in programs]
        call = self._call(timeout_s)
        try:
            await self._ask(call, {"judge": {"programs": asked, "activation": activation}})
        except PolicyEngineError as error:
            error.verdicts = _verdicts(programs, call, missing=str(error))
            raise
        return _verdicts(programs, call, missing="the policy worker gave no verdict")

    def _call(self, timeout_s: float) -> _Call:
        loop = asyncio.get_running_loop()
        return _Call(timeout_s=timeout_s, deadline=loop.time() + timeout_s, finished=loop.create_future())

    async def _ask(self, call: _Call, request: dict[str, Any]) -> None:
        """
        Have a seat carry out `call` with this `request`.

        Raises:
            PolicyEngineError: if there is no answer.
        """
        if self._closed:
            raise _shut_down()
        self._take_seats()
        try:
            call.frame = format_frame({**request, "timeout_s": call.timeout_s})
            self._waiting.put_nowait(call)
        except FrameError as error:
            raise EngineUnavailableError(f"nothing was judged: {error}") from error
        except asyncio.QueueFull as error:
            raise EngineUnavailableError(f"{self._waiting.maxsize} calls already wait for the policy engine") from error
        try:
            async with asyncio.timeout_at(call.deadline):
                await call.finished
        except TimeoutError as error:
            raise call.overdue() from error

    def _take_seats(self) -> None:
        if not self._seats:
            loop = asyncio.get_running_loop()
            self._first_starts = [loop.create_future() for _ in range(self._workers)]
            self._seats = [asyncio.create_task(self._seat(first_start)) for first_start in self._first_starts]

    async def _seat(self, first_start: asyncio.Future[EngineUnavailableError | None]) -> None:
        """Keep one process running, and have it answer the waiting calls, until cancelled."""
        call: _Call | None = None
        try:
            process = await self._start_for(first_start)
            while True:
                call = await self._waiting.get()
                if not call.finished.done():  # else its caller has left: the deadline is over
                    process = await self._carry_out(call, process)
        finally:
            if call is not None:
                call.finish(_shut_down())  # does nothing to one that is answered

    async def _start_for(self, first_start: asyncio.Future[EngineUnavailableError | None]) -> WorkerProcess | None:
        """Start the first process of a seat, and say so; one that cannot start is tried again by the next call."""
        try:
            process = await self._start()
        except EngineUnavailableError as error:
            first_start.set_result(error)
            return None
        first_start.set_result(None)
        return process

    async def _carry_out(self, call: _Call, process: WorkerProcess | None) -> WorkerProcess | None:
        """Have `call` answered by `process`, or by a new one; return the process for the next call, if one runs."""
        serves = False
        try:
            if process is not None and not process.runs:  # something else has ended it while it had nothing to do
                await self._end(process)
                process = None
            process = process or await self._start()
            call.running = True
            async with asyncio.timeout_at(call.deadline):
                serves = await process.converse(call.frame, call.results)
            call.finish()
        except TimeoutError:
            call.finish(call.overdue())
        except EngineUnavailableError as error:
            call.finish(error)
        if serves:
            return process
        await self._end(process)
        try:
            return await self._start()
        except EngineUnavailableError:
            return None  # the next call tries again, and is told if that fails too

    async def _start(self) -> WorkerProcess:
        process = await WorkerProcess.start(judging_bytes_max=self._judging_bytes_max, timeout_s=self._start_timeout_s)
        self._processes.add(process)
        return process

    async def _end(self, process: WorkerProcess | None) -> None:
        if process is not None:
            await process.kill()
            self._processes.discard(process)


def _shut_down() -> EngineUnavailableError:
    return EngineUnavailableError("the policy engine has been shut down")


def _verdicts(programs: Sequence[Program], call: _Call, *, missing: str) -> tuple[Verdict, ...]:
    """Return a verdict for each of `programs`; where there is no result, an error that says what is `missing`."""
    verdicts = []
    for position, program in enumerate(programs):
        if position < len(call.results):
            result = call.results[position]
            outcome, detail = _OUTCOMES.get(result.get("outcome"), Outcome.ERROR), str(result.get("detail", ""))
        else:
            at_work = call.running and position == len(call.results)
            outcome, detail = Outcome.ERROR, f"{'was running' if at_work else 'was not judged'}: {missing}"
        verdicts.append(
            Verdict(kind=program.kind, id=program.id, version=program.version, outcome=outcome, detail=detail)
        )
    return tuple(verdicts)
