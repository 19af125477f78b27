# SPDX-License-Identifier: Apache-2.0
"""
Has files written by a process of its own (`writing_process.py`), which is started when it is first needed.

Guarantee: `write` returns once the file is durable, and raises if it is not known to be. If the process ends, whoever
waits for it is told so, and the next write starts another: a file may be left behind that nothing names.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from itertools import count
from typing import Any, Final, Self, cast

from gateway.child_python import child_command, child_environment
from gateway.files.local_files import LocalFiles
from gateway.files.writing import NewFile, remove
from gateway.files.writing_process import Frames, format_frame, parse_error
from ledger.child_processes import kill_child, start_child

SENT_BYTES_MAX: Final = 256 * 1024
"""Larger files are not sent: all that wait are in memory twice."""
STOP_TIMEOUT_S: Final = 10.0
"""How long the process may take to end, which it does at once."""

_log = logging.getLogger(__name__)


class FileProcess:
    """
    A `FileWriter`. An async context manager, which ends the process. All of its state belongs to one event loop.

    A large file is written in a thread.
    """

    def __init__(self) -> None:
        self._threads = LocalFiles()
        self._numbers = count()
        self._line: _Line | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_closed = True
        async with self._starting:
            if self._line is not None:
                await self._line.close()

    @property
    def pid(self) -> int | None:
        """The process id, if one runs."""
        return None if self._line is None or self._line.is_lost else self._line.process.pid

    async def prepare(self) -> None:
        """
        Start the process.

        Raises:
            OSError: if it cannot be started.
        """
        await self._connected()

    async def write(self, file: NewFile) -> None:
        """See `FileWriter.write`."""
        if len(file.data) > SENT_BYTES_MAX:
            await self._threads.write(file)
            return
        line = self._line
        if line is None or line.is_lost:
            line = await self._connected()
        await line.write(next(self._numbers), file)

    async def _connected(self) -> _Line:
        async with self._starting:
            if self._is_closed:
                raise OSError("files are written no longer: the gateway stops")
            if self._line is None or self._line.is_lost:
                if self._line is not None:
                    await self._line.close()
                self._line = await _start()
            return self._line


async def _start() -> _Line:
    """Start a process that does not inherit our environment, nor any socket but its own."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await start_child(
                asyncio.create_subprocess_exec(
                    *child_command("gateway.files.writing_process"),
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C is for us; when we end, it ends
                    env=child_environment(),
                )
            )
        try:
            _, line = await asyncio.get_running_loop().create_unix_connection(lambda: _Line(process), sock=ours)
        except BaseException:
            await kill_child(process)
            raise
    except BaseException:
        ours.close()
        raise
    return line


class _Line(asyncio.Protocol):
    """The connection to one process, and who waits for its answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.is_lost = False
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, tuple[NewFile, asyncio.Future[None]]] = {}
        self._is_closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By its methods: the transports of uvloop are no subclasses of `asyncio.Transport`.
        self._transport = cast("asyncio.Transport", transport)

    async def write(self, number: int, file: NewFile) -> None:
        """Send a file, and wait for the answer."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[number] = file, written
        if self._transport is not None:
            frame = format_frame((number, str(file.folder), file.name, file.data, str(file.within)))
            self._transport.write(frame)
        await written

    def data_received(self, data: bytes) -> None:
        for answers in self._frames.feed(data):
            for number, sent in answers:
                self._answered(number, sent)

    def _answered(self, number: int, sent: Any) -> None:
        file, written = self._waiting.pop(number)
        error = parse_error(sent)
        if written.done():  # its caller has gone, and nobody else knows of the file
            if error is None:
                asyncio.get_running_loop().run_in_executor(None, remove, file.folder / file.name)
        elif error is None:
            written.set_result(None)
        else:
            written.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the process ended, whatever is said of it
        self.is_lost = True
        if not self._is_closing:
            _log.warning("the process that writes files has ended; the next file starts another")
        waiting, self._waiting = self._waiting, {}
        for _, written in waiting.values():
            if not written.done():
                written.set_exception(OSError("the process that writes files has ended: try again"))

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.process.wait()
        except TimeoutError:  # a disk that does not answer
            await kill_child(self.process)
