# SPDX-License-Identifier: Apache-2.0
"""
The child processes of the policy engine as the gateway sees them: started, called, stopped, killed, replaced.

Guarantee: any fault of a process is raised as `EngineUnavailableError`, and a process whose start failed or was
cancelled is killed. A process does not inherit our environment, which may contain the gateway's secrets.

`WorkerProcesses` always keeps one spare process ready: a start takes half a second, and the calls after one whose
process had to be killed should not wait for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self, TypeAlias

from gateway.child_python import child_command, child_environment
from gateway.policy.engine import EngineUnavailableError
from gateway.policy.frames import LENGTH, End, FrameError, format_frame, parse_length, parse_payload
from gateway.policy.kept_values import KnownValues
from gateway.policy.progress import Judged, Progress, new_file
from ledger.child_processes import Child as KilledChild
from ledger.child_processes import kill_child, start_child

LOWER_BY: Final = 5
"""The niceness of a process for long calls: it gets a quarter of a contended processor."""

READ_BYTES: Final = 65_536
"""How much is read from a pipe at a time, which has no more on Linux."""

NICENESS_MAX: Final = 19
"""The lowest priority there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the process ended a request, and its processor time for it; `answer` is the frame that says so."""

    end: End
    used_s: float
    answer: Mapping[str, Any] = field(default_factory=dict)


class Child(KilledChild, Protocol):
    """What is used of an `asyncio.subprocess.Process`."""

    stdout: asyncio.StreamReader | None
    pid: int

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs, as far as the event loop knows."""


Spawn: TypeAlias = Callable[[int, int], Awaitable[Child]]
"""
Starts a process of `worker.main` with pipes to it, given the bytes of memory that judging may take, and the descriptor
of the file of its progress.
"""


async def spawn_worker(judging_bytes_max: int, progress: int) -> Child:
    """Start a worker as a Python of its own."""
    return await asyncio.create_subprocess_exec(
        *child_command("gateway.policy.worker", str(judging_bytes_max), str(progress)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=child_environment(),
        pass_fds=[progress],
    )


class WorkerProcess:
    """
    A running child process. It belongs to one task: it answers one request at a time.

    `known` are the values that it keeps.
    """

    def __init__(self, process: Child, progress: Progress) -> None:
        self.known = KnownValues()
        self._process = process
        self._progress = progress
        self._received = bytearray()

    @property
    def pid(self) -> int:
        """The process id, for the records of operators and tests."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process has not ended, as far as the event loop knows."""
        return self._process.returncode is None

    @classmethod
    async def start(cls, *, judging_bytes_max: int, timeout_s: float, spawn: Spawn = spawn_worker) -> Self:
        """
        Start a process with `spawn` and wait until it can serve.

        Raises:
            EngineUnavailableError: if it ends, sends something else, or takes longer than `timeout_s`.
        """
        try:
            process, progress = await _spawned(spawn, judging_bytes_max)
        except OSError as error:
            raise EngineUnavailableError(f"the policy worker cannot be started: {error}") from error
        worker = cls(process, progress)
        try:
            async with asyncio.timeout(timeout_s):
                hello = await worker._receive()
        except TimeoutError as error:
            await worker.kill()
            raise EngineUnavailableError(f"the policy worker was not ready within {timeout_s} s") from error
        except (EngineUnavailableError, asyncio.CancelledError):
            await worker.kill()
            raise
        if hello != {"ready": True}:
            await worker.kill()
            raise EngineUnavailableError("the policy worker did not say that it is ready")
        return worker

    def give_way(self) -> None:
        """Give the process the lowest priority, for good."""
        with contextlib.suppress(OSError):  # it has ended; the next request finds that out
            priority = os.getpriority(os.PRIO_PROCESS, self.pid) + LOWER_BY
            os.setpriority(os.PRIO_PROCESS, self.pid, min(priority, NICENESS_MAX))

    async def converse(self, frame: bytes, results: list[dict[str, Any]]) -> Ended:
        """
        Send a request and append its results to `results` as they come; return how it ended.

        Raises:
            EngineUnavailableError: if the process ends before it has answered.
        """
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise await self._lost()
        try:
            stdin.write(frame)
            await stdin.drain()
        except ConnectionError as error:
            raise await self._lost() from error
        while "end" not in (result := await self._receive()):
            results.append(result)
        try:
            return Ended(end=End(result["end"]), used_s=float(result["used_s"]), answer=result)
        except (ValueError, KeyError, TypeError) as error:
            raise EngineUnavailableError("the policy worker ended a request in a way that is not known") from error

    def stop(self, call: int) -> None:
        """Ask the process to stop judging `call`; how it ends the request shows whether it did."""
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(format_frame({"stop": call}))

    def judged(self, call: int) -> Judged:
        """Return what the process has judged of `call`, if that was its last one: also after it has ended."""
        return self._progress.judged(call)

    def begin_kill(self) -> None:
        """Kill the process, so that it closes its pipe; `kill` waits for the rest."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            self._process.kill()

    async def kill(self) -> None:
        """Kill the process, and wait until the system has reaped it, even if cancelled meanwhile."""
        await kill_child(self._process)

    async def _receive(self) -> dict[str, Any]:
        try:
            end = LENGTH.size + parse_length(await self._first(LENGTH.size))
            payload = (await self._first(end))[LENGTH.size :]
            del self._received[:end]
            return parse_payload(payload)
        except FrameError as error:
            raise EngineUnavailableError(f"the policy worker cannot be understood: {error}") from error

    async def _first(self, size: int) -> bytes:
        """Return the first `size` bytes that were received. Frames that came together are read together."""
        while len(self._received) < size:
            stdout = self._process.stdout
            chunk = await stdout.read(READ_BYTES) if stdout is not None else b""
            if not chunk:
                raise await self._lost()
            self._received += chunk
        return bytes(self._received[:size])

    async def _lost(self) -> EngineUnavailableError:
        """Return the error for a process that has closed its pipe, which is the last thing it does."""
        status = await self._process.wait()
        return EngineUnavailableError(f"the policy worker ended (status {status}); another has taken its place")


async def _spawned(spawn: Spawn, judging_bytes_max: int) -> tuple[Child, Progress]:
    """
    Return a new process. Raises OSError if there can be none.
    """
    file = new_file()
    try:
        progress = Progress.of(file)
        return await start_child(spawn(judging_bytes_max, file)), progress
    finally:
        os.close(file)


class WorkerProcesses:
    """The processes of one engine: those in use, and a spare one. Event loop only."""

    def __init__(self, *, judging_bytes_max: int, start_timeout_s: float, spawn: Spawn = spawn_worker) -> None:
        self._judging_bytes_max = judging_bytes_max
        self._start_timeout_s = start_timeout_s
        self._spawn = spawn
        self._taken: set[WorkerProcess] = set()
        self._spare: asyncio.Task[WorkerProcess] | None = None

    @property
    def running(self) -> frozenset[WorkerProcess]:
        """Those that run now, the spare one too once it is ready."""
        spare = self._ready_spare()
        return frozenset(self._taken) | (frozenset() if spare is None else {spare})

    async def take(self) -> WorkerProcess:
        """
        Return a process that is ready: the spare one, at once, if there is one; and start the next spare one.

        Raises:
            EngineUnavailableError: if none can be started.
        """
        while (starting := self._spare) is not None:
            try:
                process = await asyncio.shield(starting)
            except EngineUnavailableError:
                self._give_up(starting)
                break  # if it happens again, the start below raises it
            if self._spare is starting:  # no other task has replaced it
                self._spare = None
                if process.runs:
                    return self._took(process)
                await process.kill()
        return self._took(await self._start())

    async def end(self, process: WorkerProcess) -> None:
        """Kill a process that is in use."""
        try:
            await process.kill()
        finally:
            self._taken.discard(process)

    async def close(self) -> None:
        """Kill all of them."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.cancel()  # does nothing to one that has started
            await asyncio.wait([spare])
            if not spare.cancelled() and spare.exception() is None:
                await spare.result().kill()
        for process in list(self._taken):
            await self.end(process)

    def _took(self, process: WorkerProcess) -> WorkerProcess:
        self._taken.add(process)
        if self._spare is None:
            self._spare = asyncio.create_task(self._start(), name="spare policy worker")
        return process

    def _give_up(self, starting: asyncio.Task[WorkerProcess]) -> None:
        if self._spare is starting:
            self._spare = None

    def _ready_spare(self) -> WorkerProcess | None:
        spare = self._spare
        if spare is None or not spare.done() or spare.cancelled() or spare.exception() is not None:
            return None
        return spare.result()

    async def _start(self) -> WorkerProcess:
        return await WorkerProcess.start(
            judging_bytes_max=self._judging_bytes_max, timeout_s=self._start_timeout_s, spawn=self._spawn
        )
