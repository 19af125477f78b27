# SPDX-License-Identifier: Apache-2.0
"""
Reads metadata files that tenants name, in child processes that can be killed (their side: `reader_process.py`).

A thread that waits for an object store cannot be ended: a server that sends one byte per minute holds it for ever. A
process can be killed. Guarantee: a read ends within its time limit, whatever the store does, and an interrupted process
never serves again; once `MetadataReaderPool` is closed, none of its processes is left. Whatever a file does to the
process that parses it, this process is not affected.

A child inherits none of our environment, which may hold this installation's credentials.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ledger.child_processes import kill_child, start_child
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from projections.errors import FileMissingError, FileUnreadableError
from projections.lake.storage import Storage
from streams.errors import PoisonError, TransientError, UnansweredError
from streams.metadata.parse import Snapshot, TableSnapshots

READ_TIMEOUT_S: Final = 15.0
"""From the request to the parsed answer: 64 MiB at 5 MB/s."""
START_TIMEOUT_S: Final = 30.0
ANSWER_SIZE_BYTES_MAX: Final = 32 * 2**20
"""The answer for a table with the most snapshots that are read."""
LENGTH: Final = struct.Struct(">I")

_SOURCES: Final = Path(__file__).resolve().parents[2]
"""Where the child finds our packages: from here, not from a working directory that others may write to (hence `-P`)."""
_INHERITED: Final = ("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What a Python that lives outside the system's folders needs to start at all, and where it finds certificates."""


class MetadataReaderPool:
    """
    A pool of reading processes, started on demand and kept for the next read; an async context manager.

    There are as many as concurrent reads, which the caller has to bound. `_free` and `_all` belong to the event loop:
    only coroutines on it touch them, and a process is in `_free` only while no read uses it.
    """

    def __init__(self, *, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._free: list[asyncio.subprocess.Process] = []
        self._all: set[asyncio.subprocess.Process] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the processes that run now."""
        return frozenset(process.pid for process in self._all)

    async def close(self) -> None:
        """Kill the processes: they hold nothing that could be lost."""
        for process in list(self._all):
            await self._end(process)

    async def read(self, storage: Storage, location: str) -> TableSnapshots:
        """
        Return what a metadata file says of its table.

        Raises:
            FileMissingError: if there is no such file.
            FileUnreadableError: if it may not be read, or lies where this catalog's files are not.
            PoisonError: if it is no metadata file, or too large.
            UnansweredError: if the storage does not answer, or not within the time limit.
        """
        process = await self._take()
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await _ask(process, pickle.dumps((storage, location)))
        except TimeoutError as error:
            await self._end(process)
            message = f"{location}: expected an answer of the storage within {self._timeout_s:g} s, found none"
            raise UnansweredError(message) from error
        except (ConnectionError, asyncio.IncompleteReadError, _NoAnswerError) as error:
            # Perhaps because of what it read: then every attempt ends like this.
            await self._end(process)
            raise UnansweredError(f"{location}: the process that read it has ended") from error
        except BaseException:
            await self._end(process)
            raise
        if answer.pop("leaves"):
            await self._end(process)
        else:
            self._free.append(process)
        return _table(answer)

    async def _take(self) -> asyncio.subprocess.Process:
        while self._free:
            process = self._free.pop()
            if process.returncode is None:
                return process
            await self._end(process)  # it ended while it was idle
        return await self._start()

    async def _start(self) -> asyncio.subprocess.Process:
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        try:
            process = await start_child(
                asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",
                    "-m",
                    "streams.metadata.reader_process",
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={**environment, "PYTHONPATH": str(_SOURCES), "AWS_EC2_METADATA_DISABLED": "true"},
                )
            )
        except OSError as error:
            raise TransientError(f"the process that reads metadata files cannot be started: {error}") from error
        self._all.add(process)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await _receive(process)
        except BaseException as error:
            await self._end(process)
            if isinstance(error, TimeoutError | asyncio.IncompleteReadError | _NoAnswerError):
                raise TransientError("the process that reads metadata files did not start") from error
            raise
        return process

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        try:
            await kill_child(process)
        finally:
            self._all.discard(process)


class _NoAnswerError(Exception):
    """The process says something other than an answer."""


async def _ask(process: asyncio.subprocess.Process, question: bytes) -> dict[str, Any]:
    if process.stdin is None or process.stdin.is_closing():
        raise ConnectionResetError("the pipe is closed")
    process.stdin.write(LENGTH.pack(len(question)) + question)
    await process.stdin.drain()
    return await _receive(process)


async def _receive(process: asyncio.subprocess.Process) -> dict[str, Any]:
    if process.stdout is None:
        raise ConnectionResetError("the pipe is closed")
    (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
    if length > ANSWER_SIZE_BYTES_MAX:
        raise _NoAnswerError
    try:
        answer = parse_object(await process.stdout.readexactly(length), what="answer")
    except FormatError as error:
        raise _NoAnswerError from error
    if not isinstance(answer.get("leaves"), bool):
        raise _NoAnswerError
    return answer


def _table(answer: dict[str, Any]) -> TableSnapshots:
    match answer:
        case {"table_uuid": str(table_uuid), "snapshots": list(snapshots)}:
            return TableSnapshots(
                table_uuid=table_uuid,
                snapshots=tuple(
                    Snapshot(id=id_, parent=parent, operation=operation) for id_, parent, operation in snapshots
                ),
            )
        case {"missing": str(reason)}:
            raise FileMissingError(reason)
        case {"unreadable": str(reason)}:
            raise FileUnreadableError(reason)
        case {"poison": str(reason)}:
            raise PoisonError(reason)
        case {"unanswered": str(reason)}:
            raise UnansweredError(reason)
        case _:
            raise UnansweredError("the process that reads metadata files gave an answer that does not fit the request")
