# SPDX-License-Identifier: Apache-2.0
"""
The policy engine of the gateway: expressions are evaluated in child processes that can be stopped and killed.

Guarantee: a call ends, whatever its expressions do: `waiting_s` bounds its waiting, and its deadline, which starts with
the work, bounds the work. Once a `WorkerEngine` is closed, none of its processes is left. A call without an answer
raises.

One tenant's calls must not delay another's commits, however long, many or large they are. The duration of a call is not
known beforehand, so there are three *lanes* with processes of their own:

- **short** (`workers` processes): every call starts here, and is stopped after `SLICE_S`.
- **long** (one process, at low priority): calls that were stopped there start again (judging has no effects), now up to
  their deadline. Calls too large to be quick, and all calls of a tenant without credit, start here.
- **checks** (one process, at low priority): expressions are compiled here when they are saved, apart from commits.

In each lane every tenant has its own queue, and they take turns by what they have used (`lines.py`). So a call of a
tenant with quick policies waits for at most what is at work: one call of another tenant, or a few quick ones that the
short lane judges together (`calls.py`), and for at most a slice. Slices of one tenant cannot follow each other: a call
that was stopped costs its tenant all its *credit*, so its next calls start in the long lane, until some seconds later
one of them is tried in the short lane again.

Each process belongs to a task, its *seat*, which takes the waiting calls one by one, or in bundles. The seat owns the
process, not the caller: a caller that is cancelled leaves its call behind, which ends at its slice or deadline.

Shared state (`Lane`, `Call`, `Lines`, `Credit`) belongs to the event loop; no locks are needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from gateway.errors import TooLargeError
from gateway.policy.calls import SHORT_BYTES_MAX, Call, Lane, frame_of
from gateway.policy.engine import (
    POLICY,
    DeadlineExceededError,
    EngineUnavailableError,
    Outcome,
    PolicyEngineError,
    PolicyNotCompiledError,
    Program,
    SecondsLeft,
    Step,
    Traced,
    Verdict,
    limit_of,
)
from gateway.policy.frames import End, FrameError, FrameTooLargeError, format_frame
from gateway.policy.inputs import inputs_of
from gateway.policy.inspected import Branch, Inspection, parse_inspection
from gateway.policy.judge_requests import JudgeRequest, parse_answers, verdicts_of
from gateway.policy.kept_values import KnownValues
from gateway.policy.lines import LINE_CALLS_MAX, QUICK_S, Credit, Lines
from gateway.policy.process import Ended, Spawn, WorkerProcess, WorkerProcesses, spawn_worker
from gateway.policy.progress import NOTHING_JUDGED
from gateway.policy.restrictions.written import Written, parse_written
from gateway.policy.rule_formulas import Formula, parse_formula
from gateway.policy.text import check_new_text

if TYPE_CHECKING:
    from ledger.format.canonical import Json

WORKERS: Final = 1
WAITING_S: Final = 5.0
JUDGING_BYTES_MAX: Final = 256 * 2**20
START_TIMEOUT_S: Final = 120.0
"""Time limit for a process to become ready. No call waits that long: see `waiting_s`."""

SLICE_S: Final = 0.1
"""The longest time of one call in the short lane: ten times that of many usual policies."""
STOPPED_COST_S: Final = 0.5
"""The cost in credit of a call that was stopped in the short lane: 25 seconds of its tenant's share."""
KILLED_COST_S: Final = 1.0
"""The cost of a call that ended its process: another is started, and all tenants' programs are compiled again."""
STOP_GRACE_S: Final = 0.25
"""How long a process may take to obey a stop. Judging stops within a millisecond, a parser does not."""

TOOK_LONGER: Final = (
    "the policy engine took longer than its time limit of {:g} s and was stopped: make the expressions simpler, or try "
    "again when the gateway is less busy"
)
AUTHOR: Final = -1
"""In place of a log: an author's own engine serves no tenant."""

QUICK_EVALUATIONS: Final = 500
"""Evaluations of rows in the first call: usually less than the time that any call may take (`lines.QUICK_S`)."""
ROWS_MAX: Final = 2_000
"""Rows in one call: fewer bytes than are tried in the short lane."""
_LARGER: Final = 4
"""Times as many rows in the next call, where one took less than a quarter of that time, and by as much less."""

_OUTCOMES: Final[Mapping[object, Outcome]] = {str(outcome): outcome for outcome in Outcome}


class WorkerEngine:
    """
    A `PolicyEngine` over child processes; an async context manager.

    The processes of the short lane start with the first call, or with `start`; the others when they are needed, using
    the spare process that is always ready (`process.WorkerProcesses`).
    """

    def __init__(
        self,
        *,
        workers: int = WORKERS,
        waiting_s: float = WAITING_S,
        line_calls_max: int = LINE_CALLS_MAX,
        judging_bytes_max: int = JUDGING_BYTES_MAX,
        start_timeout_s: float = START_TIMEOUT_S,
        spawn: Spawn = spawn_worker,
    ) -> None:
        self._waiting_s = waiting_s
        self._processes = WorkerProcesses(
            judging_bytes_max=judging_bytes_max, start_timeout_s=start_timeout_s, spawn=spawn
        )
        self._short = Lane(seats=workers, slice_s=SLICE_S, bundles=True, lines=Lines(line_calls_max=line_calls_max))
        self._long = Lane(gives_way=True, lines=Lines(line_calls_max=line_calls_max))
        self._checks = Lane(gives_way=True, lines=Lines(line_calls_max=line_calls_max))
        self._credit = Credit()
        self._numbers = count()
        self._seats: list[asyncio.Task[None]] = []
        self._first_starts: list[asyncio.Future[EngineUnavailableError | None]] = []
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the processes that run now, the spare one among them."""
        return frozenset(process.pid for process in self._processes.running)

    async def start(self) -> None:
        """
        Start the workers of the short lane and wait until they can serve. Without it the first call waits for that.

        Raises:
            EngineUnavailableError: if one of them cannot.
        """
        self._take_seats()
        for error in await asyncio.gather(*self._first_starts):
            if error is not None:
                raise error

    async def close(self) -> None:
        """Kill all workers (they have no state to lose) and fail the calls that still wait."""
        self._closed = True
        for seat in self._seats:
            seat.cancel()
        await asyncio.gather(*self._seats, return_exceptions=True)
        await self._processes.close()
        for lane in (self._short, self._long, self._checks):
            while len(lane.lines):
                lane.lines.take().finish(_shut_down())

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = POLICY) -> None:
        """See `PolicyEngine.check`."""
        check_new_text(expression)
        request = {"check": {"expression": expression, "kind": kind}}
        await self._ask_about(request, "compiled", log_id=log_id, timeout_s=timeout_s)

    async def read_condition(self, expression: str, *, kind: str, log_id: int, timeout_s: float) -> Written:
        """See `ReadsConditions.read_condition`."""
        check_new_text(expression)
        request = {"read": {"expression": expression, "kind": kind}}
        sent = await self._ask_about(request, "written", log_id=log_id, timeout_s=timeout_s)
        try:
            written: Written = parse_written(sent)
        except FrameError as error:
            raise EngineUnavailableError(f"the policy worker cannot be understood: {error}") from error
        return written

    async def read_rule(self, expression: str, *, log_id: int, timeout_s: float) -> Formula:
        """See `ReadsRules.read_rule`."""
        sent = await self._ask_about(
            {"formula": {"expression": expression}}, "formula", log_id=log_id, timeout_s=timeout_s
        )
        try:
            formula: Formula = parse_formula(sent)
        except FrameError as error:
            raise EngineUnavailableError(f"the policy worker cannot be understood: {error}") from error
        return formula

    async def inspect(
        self,
        expression: str,
        *,
        zero: Mapping[str, Json],
        timeout_s: float,
        kind: str = POLICY,
        log_id: int = AUTHOR,
    ) -> Inspection:
        """See `Inspector.inspect`."""
        check_new_text(expression)
        request = {"inspect": {"expression": expression, "kind": kind, "zero": zero}}
        return parse_inspection(await self._ask_about(request, "inspection", log_id=log_id, timeout_s=timeout_s))

    async def cover(
        self,
        expression: str,
        activations: Sequence[Mapping[str, Json]],
        *,
        timeout_s: float,
        kind: str = POLICY,
        log_id: int = AUTHOR,
    ) -> tuple[Branch, ...]:
        """See `Inspector.cover`."""
        check_new_text(expression)
        request = {"cover": {"expression": expression, "kind": kind, "activations": activations}}
        branches = await self._ask_about(request, "branches", log_id=log_id, timeout_s=timeout_s)
        return tuple(Branch(**branch) for branch in branches)

    async def _ask_about(self, request: dict[str, Any], answer: str, *, log_id: int, timeout_s: float) -> Any:
        """Return the member `answer` of what the worker says about one expression."""
        call = await self._ask(request, self._checks, log_id=log_id, timeout_s=timeout_s)
        match call.results:
            case [{"reason": str(reason), "line": int(line), "column": int(column)}]:
                raise PolicyNotCompiledError(reason, line=line, column=column)
            case [result] if answer in result:
                return result[answer]
            case _:
                raise EngineUnavailableError("the policy worker gave another answer than expected")

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        """See `PolicyEngine.judge`."""
        if not programs:
            return ()
        try:
            with _in_words():
                request = JudgeRequest(programs, inputs_of(activation), log_id=log_id)
        except PolicyEngineError as error:
            error.verdicts = verdicts_of(programs, NOTHING_JUDGED, missing=f"was not judged: {error}")
            raise
        call = self._call(request, log_id, timeout_s)
        try:
            await self._carried_out(call, self._short)
        except PolicyEngineError as error:
            error.verdicts = _interrupted(programs, call, missing=str(error))
            raise
        return verdicts_of(programs, call.judged)

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
        if not programs:
            return ["" for _ in rows]
        pairs = [(program.judged_as, program.expression) for program in programs]
        size, outcomes = max(1, QUICK_EVALUATIONS // len(programs)), list[str]()
        clock = asyncio.get_running_loop().time
        ends_s = clock() + timeout_s
        while len(outcomes) < len(rows):
            part = rows[len(outcomes) : len(outcomes) + size]
            left_s = SecondsLeft(max(ends_s - clock(), 0.001), of_s=timeout_s)
            request = {"programs": pairs, "shared": shared, "rows": part, "log_id": log_id}
            call = await self._ask({"rows": request}, self._short, log_id=log_id, timeout_s=left_s)
            found = [text for result in call.results for text in result.get("rows", ())]
            if [len(text) for text in found] != [len(programs)] * len(part):
                raise EngineUnavailableError("the policy worker gave another answer than expected")
            outcomes += map(str, found)
            # The next piece is as large as it may be, by what this one took: names are often compared in no time.
            size = next_size(size, call.used_s)
        return outcomes

    async def trace(self, program: Program, activation: Mapping[str, Json], *, log_id: int, timeout_s: float) -> Traced:
        """See `Tracer.trace`."""
        request = {"kind": program.judged_as, "expression": program.expression, "activation": activation}
        call = await self._ask({"trace": request}, self._checks, log_id=log_id, timeout_s=timeout_s)
        result = call.results[0] if call.results else {}
        verdict = Verdict(
            kind=program.kind,
            id=program.id,
            version=program.version,
            outcome=_OUTCOMES.get(result.get("outcome"), Outcome.ERROR),
            detail=str(result.get("detail", "the policy worker gave no verdict")),
        )
        return Traced(verdict=verdict, steps=tuple(_step(step) for step in result.get("steps", ())))

    def _call(self, request: JudgeRequest | bytes, log_id: int, timeout_s: float, *, number: int | None = None) -> Call:
        return Call(
            number=next(self._numbers) if number is None else number,
            log_id=log_id,
            timeout_s=timeout_s,
            waiting_s=self._waiting_s,
            request=request,
            finished=asyncio.get_running_loop().create_future(),
        )

    async def _ask(self, asked: Mapping[str, Any], lane: Lane, *, log_id: int, timeout_s: float) -> Call:
        """
        Return the call that asks a worker this, once it is answered.

        Raises:
            TooLargeError: if it is larger than any that is carried out.
            PolicyEngineError: if there is no answer.
        """
        number = next(self._numbers)
        with _in_words():
            frame = format_frame({**asked, "call": number, "timeout_s": float(timeout_s)})
        call = self._call(frame, log_id, timeout_s, number=number)
        await self._carried_out(call, lane)
        return call

    async def _carried_out(self, call: Call, lane: Lane) -> None:
        """
        Wait until a seat of `lane` has carried out `call`.

        Raises:
            PolicyEngineError: if there is no answer.
        """
        if self._closed:
            raise _shut_down()
        self._take_seats()
        if lane is self._short and not self._is_short(call):
            lane = self._long
        call.wait()
        try:
            lane.put(call)
            await call.finished
        except BaseException:
            call.abandon()
            for one in (self._short, self._long, self._checks):
                one.lines.remove(call)  # where it still waits
            raise

    def _is_short(self, call: Call) -> bool:
        """Return whether `call` is tried in the short lane; after one in the long lane, the tenant's next may be."""
        now_s = asyncio.get_running_loop().time()
        return call.size_bytes <= SHORT_BYTES_MAX and self._credit.left_s(call.log_id, now_s=now_s) > 0

    def _take_seats(self) -> None:
        if not self._seats:
            loop = asyncio.get_running_loop()
            self._first_starts = [loop.create_future() for _ in range(self._short.seats)]
            short = [self._seat(self._short, first_start) for first_start in self._first_starts]
            seats = [*short, self._seat(self._long), self._seat(self._checks)]
            self._seats = [asyncio.create_task(seat) for seat in seats]

    async def _seat(self, lane: Lane, first_start: asyncio.Future[EngineUnavailableError | None] | None = None) -> None:
        """Answer the calls of `lane` one by one, until cancelled."""
        bundle: list[Call] = []
        process: WorkerProcess | None = None
        try:
            if first_start is not None:
                process = await self._start_for(first_start)
            while True:
                bundle = [call for call in await lane.take() if not call.finished.done()]
                if bundle:  # else its caller has gone
                    process = await self._carry_out(bundle, lane, process)
        finally:
            for call in bundle:
                call.finish(_shut_down())  # has no effect on one that is answered

    async def _start_for(self, first_start: asyncio.Future[EngineUnavailableError | None]) -> WorkerProcess | None:
        """Start the first process of a seat, and report it; if it cannot start, the next call tries again."""
        try:
            process = await self._processes.take()
        except EngineUnavailableError as error:
            first_start.set_result(error)
            return None
        first_start.set_result(None)
        return process

    async def _carry_out(
        self, bundle: Sequence[Call], lane: Lane, process: WorkerProcess | None
    ) -> WorkerProcess | None:
        """Answer a bundle with `process`, or another one; return the process for the next, if one runs."""
        try:
            process = await self._ready(lane, process)
        except EngineUnavailableError as error:
            for call in bundle:
                call.finish(error)
            return None
        bundle = [call for call in bundle if not call.finished.done()]  # else its caller has gone meanwhile
        if not bundle:
            return process
        for call in bundle:
            call.begin()
        try:
            ended = await self._converse(bundle, lane, process)
        except EngineUnavailableError as error:  # the process has ended, or cannot be understood
            if not self._put_apart(bundle, lane):
                (call,) = bundle
                call.judged = process.judged(call.number)
                self._charge(call, lane, KILLED_COST_S)
                call.finish(error)
            return await self._replaced(lane, process)
        if ended is None:  # it did not stop
            if not self._put_apart(bundle, lane):
                (call,) = bundle
                call.judged = process.judged(call.number)
                self._charge(call, lane, KILLED_COST_S)
                self._overrun(call, lane)
            return await self._replaced(lane, process)
        self._pass_on(bundle, lane, ended)
        return await self._replaced(lane, process) if ended.end is End.LEAVING else process

    def _pass_on(self, bundle: Sequence[Call], lane: Lane, ended: Ended) -> None:
        """Finish the calls of a bundle that are answered; the others wait again."""
        rest = []
        for call in bundle:
            if not call.is_answered:
                rest.append(call)
                continue
            self._charge(call, lane, call.used_s)
            lane.expected.note(call.log_id, call.used_s)
            call.finish()
        if not rest or len(bundle) > 1:
            self._put_apart(rest, lane, at_least=1)
            return
        (call,) = rest
        self._charge(call, lane, max(ended.used_s, STOPPED_COST_S))
        self._overrun(call, lane)

    def _put_apart(self, calls: Sequence[Call], lane: Lane, *, at_least: int = 2) -> bool:
        """Let the calls of a bundle wait again, each to be judged alone; return False if there are too few."""
        if len(calls) < at_least:
            return False
        for call in calls:
            if call.finished.done():
                continue
            call.is_alone = True
            call.wait()
            try:
                lane.put(call)
            except EngineUnavailableError as error:
                call.finish(error)
        return True

    async def _converse(self, bundle: Sequence[Call], lane: Lane, process: WorkerProcess) -> Ended | None:
        """
        Have `process` answer a bundle and return how it ended; None if it neither ended in time nor obeyed a stop.

        Raises:
            EngineUnavailableError: if the process ends before it has answered.
        """
        first = bundle[0]
        limit = _Limit(process, first.number, min(first.timeout_s, lane.slice_s))
        try:
            ended = await process.converse(_written(bundle, process.known), first.results)
            if ended.end is End.UNKNOWN:  # it keeps other values than it was taken to
                process.known.clear()
                ended = await process.converse(_written(bundle, None), first.results)
        except EngineUnavailableError:
            if limit.has_killed:
                return None
            raise
        finally:
            limit.cancel()
        try:
            _note_answers(bundle, ended)
        except FrameError as error:
            raise EngineUnavailableError(f"the policy worker cannot be understood: {error}") from error
        return ended

    def _overrun(self, call: Call, lane: Lane) -> None:
        """Queue a call that was stopped in the short lane for the long one; in another lane its time is over."""
        if call.finished.done():
            return
        if call.timeout_s <= lane.slice_s:
            call.finish(DeadlineExceededError(TOOK_LONGER.format(limit_of(call.timeout_s))))
            return
        call.wait()
        try:
            self._long.put(call)
        except EngineUnavailableError as error:
            call.finish(error)

    def _charge(self, call: Call, lane: Lane, used_s: float) -> None:
        lane.lines.charge(call.log_id, max(used_s - call.charged_s, 0.0))
        if lane is not self._checks:
            self._credit.charge(call.log_id, used_s, now_s=asyncio.get_running_loop().time())

    async def _ready(self, lane: Lane, process: WorkerProcess | None) -> WorkerProcess:
        """Return `process` if it runs, else another one."""
        if process is not None and process.runs:
            return process
        if process is not None:
            await self._processes.end(process)
        process = await self._processes.take()
        if lane.gives_way:
            process.give_way()
        return process

    async def _replaced(self, lane: Lane, process: WorkerProcess) -> WorkerProcess | None:
        """Kill `process` and return another, if one can be started; else the next call tries again."""
        await self._processes.end(process)
        try:
            return await self._ready(lane, None)
        except EngineUnavailableError:
            return None


class _Limit:
    """The time limit of one conversation: once it is over, the process is told to stop, and then killed."""

    def __init__(self, process: WorkerProcess, call: int, limit_s: float) -> None:
        self.has_killed = False
        self._process = process
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_later(limit_s, self._stop)

    def cancel(self) -> None:
        """The conversation is over."""
        self._next.cancel()

    def _stop(self) -> None:
        self._process.stop(self._call)
        self._next = self._loop.call_later(STOP_GRACE_S, self._kill)

    def _kill(self) -> None:
        self.has_killed = True
        self._process.begin_kill()


def _written(bundle: Sequence[Call], known: KnownValues | None) -> bytes:
    """Return the frame of a bundle. Raises EngineUnavailableError if it cannot be written."""
    try:
        return frame_of(bundle, known)
    except FrameError as error:
        raise EngineUnavailableError(f"nothing was judged: {error}") from error


def _note_answers(bundle: Sequence[Call], ended: Ended) -> None:
    """Note which calls are answered, and how. Raises FrameError if the answer is none to this bundle."""
    requests = [call.request for call in bundle if isinstance(call.request, JudgeRequest)]
    if ended.end is End.UNKNOWN:
        raise FrameError("it was sent all values, and does not know one of them")
    if not requests:
        (call,) = bundle
        call.is_answered, call.used_s = ended.end is not End.STOPPED, ended.used_s
        return
    programs = [request.programs for request in requests]
    answers = parse_answers(ended.answer, programs=programs, is_whole=ended.end is End.READY)
    for call, answer, number in zip(bundle, answers, programs, strict=False):
        call.judged, call.used_s = answer.judged, answer.used_s
        call.is_answered = len(answer.judged.letters) == number


@contextmanager
def _in_words() -> Iterator[None]:
    """Raise what is wrong with a request as the caller's error (`TooLargeError`), or the engine's."""
    try:
        yield
    except FrameTooLargeError as error:
        raise TooLargeError(str(error)) from error
    except FrameError as error:
        raise EngineUnavailableError(f"nothing was judged: {error}") from error


def next_size(size: int, used_s: float) -> int:
    """Return how many rows the next call may have, after one with `size` that took `used_s`."""
    if used_s > QUICK_S:
        return max(1, size // _LARGER)
    return min(ROWS_MAX, size * _LARGER) if used_s < QUICK_S / _LARGER else size


def _step(step: Mapping[str, Any]) -> Step:
    return Step(
        text=str(step["text"]),
        line=int(step["line"]),
        column=int(step["column"]),
        depth=int(step["depth"]),
        times=int(step["times"]),
        value=step.get("value"),
        error=str(step.get("error", "")),
    )


def _shut_down() -> EngineUnavailableError:
    return EngineUnavailableError("the policy engine has been shut down")


def _interrupted(programs: Sequence[Program], call: Call, *, missing: str) -> tuple[Verdict, ...]:
    """Return the verdicts of a call without an answer; where there is none, an error that says what is `missing`."""
    verdicts = list(verdicts_of(programs, call.judged, missing=f"was not judged: {missing}"))
    running = len(call.judged.letters)
    if call.running and running < len(verdicts):
        verdicts[running] = replace(verdicts[running], detail=f"was running: {missing}")
    return tuple(verdicts)
