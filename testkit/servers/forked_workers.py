# SPDX-License-Identifier: Apache-2.0
"""
Policy workers for tests, forked from one process that has loaded them: a start takes milliseconds.

The processes are real ones, with the code, the limits and the pipes of those that the gateway starts. Only their start
differs, so the tests of the start itself use the real command (`gateway.policy.process.spawn_worker`), which takes a
third of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from types import TracebackType
from typing import BinaryIO, Final, Self

from gateway.policy.process import Child
from gateway.policy.progress import Progress, new_file
from testkit.environment import PROJECT

END_S: Final = 60.0
"""How long a test waits for a worker to end."""


@dataclass(frozen=True, slots=True)
class _Fork:
    """A process that was forked, and our ends of its pipes."""

    pid: int
    requests: BinaryIO
    answers: BinaryIO
    status: FileIO


class _Origin:
    """The process that workers are forked from; `process` is None if another process has started it."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | None) -> None:
        self.control = control
        self._process = process

    @classmethod
    def started(cls) -> Self:
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "testkit.servers.worker_forks"]
        environment = {"PYTHONPATH": str(PROJECT), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
        with theirs:
            return cls(control, subprocess.Popen(command, stdin=theirs.fileno(), env=environment))

    def fork(self, judging_bytes_max: int, progress: int) -> _Fork:
        with ExitStack() as theirs, ExitStack() as ours:
            requests, answers, status = os.pipe(), os.pipe()[::-1], os.pipe()[::-1]
            for child_end, our_end in (requests, answers, status):
                theirs.callback(os.close, child_end)
                ours.callback(os.close, our_end)
            files = [requests[0], answers[0], status[0], progress]
            socket.send_fds(self.control, [b"%d" % judging_bytes_max], files)
            theirs.close()
            status_file = os.fdopen(status[1], "rb", buffering=0)
            pid = int(status_file.readline())
            ours.pop_all()
        return _Fork(pid, os.fdopen(requests[1], "wb"), os.fdopen(answers[1], "rb"), status_file)

    def close(self) -> None:
        self.control.close()
        if self._process is not None:
            self._process.wait()


_known: Final[list[_Origin]] = []
"""The one of this process, once it is needed."""


def _origin() -> _Origin:
    if not _known:
        _known.append(_Origin.started())
    return _known[0]


def origin_socket() -> socket.socket:
    """Return the socket to the process that workers are forked from; it is inherited by a process that uses it too."""
    return _origin().control


def use_origin(control: socket.socket) -> None:
    """Fork this process's workers from the origin of another: a message is one packet, with pipes of its own."""
    _known.append(_Origin(control, None))


def close_origin() -> None:
    """End the process that workers were forked from, if there is one."""
    while _known:
        _known.pop().close()


async def fork_worker(judging_bytes_max: int, progress: int) -> Child:
    """Start a worker, as `spawn_worker` does."""
    return await _Forked.of(_origin().fork(judging_bytes_max, progress))


class _Forked:
    """A forked worker for an event loop, in the form of an `asyncio.subprocess.Process`."""

    def __init__(
        self, fork: _Fork, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, answers: asyncio.ReadTransport
    ) -> None:
        self.pid = fork.pid
        self.stdin: asyncio.StreamWriter | None = stdin
        self.stdout: asyncio.StreamReader | None = stdout
        self._answers = answers
        self._status = fork.status
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(fork.status, self._notice)

    @classmethod
    async def of(cls, fork: _Fork) -> Self:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        answers, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), fork.answers)
        requests, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), fork.requests
        )
        return cls(fork, asyncio.StreamWriter(requests, protocol, None, loop), reader, answers)

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    def kill(self) -> None:
        self._answers.close()
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _notice(self) -> None:
        self._loop.remove_reader(self._status)
        self._ended.set_result(int(self._status.readline()))
        self._status.close()


class ForkedWorker:
    """A forked worker without an event loop, in the form of a `subprocess.Popen`; killed in the end."""

    def __init__(self, judging_bytes_max: int) -> None:
        file = new_file()
        try:
            self.progress = Progress.of(file)
            fork = _origin().fork(judging_bytes_max, file)
        finally:
            os.close(file)
        self.pid, self.stdin, self.stdout, self._status = fork.pid, fork.requests, fork.answers, fork.status
        self._returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self.wait()
        for pipe in (self.stdin, self.stdout, self._status):
            pipe.close()

    @property
    def runs(self) -> bool:
        """Whether the process has not ended."""
        return not select.select([self._status], [], [], 0)[0]

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            if self._returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless the process has ended."""
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the process has ended; return its exit status."""
        if self._returncode is None:
            ready, _, _ = select.select([self._status], [], [], END_S)
            assert ready, f"the worker did not end within {END_S} s"
            self._returncode = int(self._status.readline())
        return self._returncode
