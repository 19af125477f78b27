# SPDX-License-Identifier: Apache-2.0
"""
A process that reads pages of decisions for this one, so that two processors are used: `python -m
gateway.replaying.page_process`.

Guarantee: what it reads is what this process would have read. It runs the same code, with the same role in the database
and the same keys. If it cannot read a page, for whatever reason, it ends, and who has asked reads that page: so each
fault is found and named by one process. It ends with its parent, and Ctrl-C is the parent's.

Messages on its pipes are an 8-byte length and that many bytes of Python's `marshal`, between two processes of the same
interpreter: first `Access` and `Wanted`, then `Bounds` for each page. The process answers once that it is ready, and
then with each page in order. Connection string and keys' places come through the pipe, not as arguments, which others
on the machine could see.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import marshal
import os
import signal
import struct
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, NamedTuple, Self

from gateway.catalogs.judged_metadata import DigestOf
from gateway.child_python import child_command, child_environment
from gateway.database import Database
from gateway.errors import GatewayError
from gateway.replaying.pages import STATEMENT_S, Bounds, Page, PageReader, Settled, Wanted
from gateway.replaying.recorded import Decision, File
from ledger.child_processes import kill_child, start_child
from ledger.erasing.subject_keys import open_key_encryption, open_key_folder
from ledger.errors import LedgerError
from ledger.format.events import CommitDecision
from ledger.format.sealing import KeyOpener

LENGTH: Final = struct.Struct(">Q")
READ_BYTES: Final = 2**20
ANSWER_TIMEOUT_S: Final = 2.0 * STATEMENT_S
"""How long the process may take to read a page: after that, it has stopped, and is ended."""
COLLECT_AFTER: Final = 200_000
"""New objects between two collections of garbage, where pages are read: they have none in cycles."""

_DECISIONS: Final[Mapping[str, CommitDecision]] = {one.value: one for one in CommitDecision}
_KINDS: Final[Mapping[str, DigestOf]] = {one.value: one for one in DigestOf}
_AS_THEY_ARE: Final = attrgetter(
    *(each.name for each in fields(Decision) if each.name not in {"decision", "base", "made"})
)

_log = logging.getLogger(__name__)


class Access(NamedTuple):
    """How the process reads: its connection string, its role, and the folder of keys with what has wrapped them."""

    dsn: str
    role: str
    key_folder: str
    key_encryption: str

    def __repr__(self) -> str:
        return f"Access(role={self.role!r})"


class PageProcess:
    """The process, as its parent has it. Use as an async context manager; event loop only."""

    def __init__(self, access: Access, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._access = access
        self._answer_timeout_s = answer_timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._is_lost = False
        self._receiving = asyncio.Lock()
        self._starting: asyncio.Task[None] | None = None
        self.is_ready = False
        """Whether it can be asked for pages."""

    @property
    def pid(self) -> int | None:
        """The process id, for tests; None if it could not be started."""
        return None if self._process is None else self._process.pid

    async def __aenter__(self) -> Self:
        try:
            self._process = await start_child(
                asyncio.create_subprocess_exec(
                    *child_command("gateway.replaying.page_process"),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={**os.environ, **child_environment()},  # the database driver reads some of it
                    limit=READ_BYTES,
                )
            )
        except OSError as error:
            _log.warning("pages are read by one process alone: another cannot be started: %s", error)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_ready = False
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        if self._process is not None:
            await kill_child(self._process)

    def want(self, wanted: Wanted) -> None:
        """Say what is read; it is ready some time later."""
        if self._process is not None and self._starting is None:
            self._starting = asyncio.create_task(self._start(wanted))

    async def read(self, bounds: Bounds) -> Page | None:
        """Return a page; None if it could not be read."""
        try:
            self._send(tuple(bounds))
            async with self._receiving, asyncio.timeout(self._answer_timeout_s):
                return _unpacked(await self._receive())
        except (OSError, EOFError) as error:
            if self.is_ready:
                self.is_ready = False
                self._lose("does not answer" if isinstance(error, TimeoutError) else "has ended")
            return None

    def _lose(self, reason: str) -> None:
        """Ask the process for nothing more, and take nothing more from it: a part of an answer may have come."""
        self._is_lost = True
        _log.warning("pages are read by one process alone from here on: the other one %s", reason)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _start(self, wanted: Wanted) -> None:
        try:
            self._send((tuple(self._access), tuple(wanted)))
            await self._receive()
            self.is_ready = True
        except (OSError, EOFError):
            _log.warning("pages are read by one process alone: the other one has ended")

    def _send(self, message: Any) -> None:
        if self._process is None or self._process.stdin is None or self._process.stdin.is_closing():
            raise EOFError
        self._process.stdin.write(_framed(message))

    async def _receive(self) -> Any:
        if self._is_lost or self._process is None or self._process.stdout is None:
            raise EOFError
        (length,) = LENGTH.unpack(await self._process.stdout.readexactly(LENGTH.size))
        return marshal.loads(await self._process.stdout.readexactly(length))  # noqa: S302 - of our own process


def main() -> None:
    """Serve until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a print must not reach the pipe
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    with contextlib.suppress(GatewayError, LedgerError, BrokenPipeError, EOFError):  # the parent finds it out itself
        asyncio.run(_serve(requests, answers))


async def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    access, wanted = await _next(requests)
    access, wanted = Access(*access), Wanted(*wanted)
    keys = open_key_folder(Path(access.key_folder), open_key_encryption(Path(access.key_encryption)))
    async with Database(access.dsn, connections_max=1) as database:
        lend = partial(database.as_role, access.role, statement_timeout_s=STATEMENT_S)
        reader = PageReader(lend, wanted, KeyOpener(keys))
        _answer(answers, "ready")
        while True:
            page = await reader.read(Bounds(*await _next(requests)))
            _answer(answers, _packed(page))


async def _next(requests: BinaryIO) -> Any:
    """Return the next message. Raises EOFError if the parent has closed the pipe."""

    def read() -> Any:
        header = requests.read(LENGTH.size)
        if len(header) < LENGTH.size:
            raise EOFError
        return marshal.loads(requests.read(*LENGTH.unpack(header)))  # noqa: S302 - of our own parent

    return await asyncio.to_thread(read)


def _answer(answers: BinaryIO, message: Any) -> None:
    answers.write(_framed(message))
    answers.flush()


def _framed(message: Any) -> bytes:
    payload = marshal.dumps(message)
    return LENGTH.pack(len(payload)) + payload


def _packed(page: Page) -> tuple[int, list[tuple[Any, ...]]]:
    """Return a page as `marshal` writes it, which knows no classes: without what nobody needs of checked decisions."""
    items: list[tuple[Any, ...]] = []
    for item in page.items:
        if isinstance(item, Settled):
            items.append((item.key, _file(item.file)))
        else:
            base, made = item.base, item.made
            item.commitments = {}
            files = None if base is None else _file(base), None if made is None else _file(made)
            items.append((item.decision.value, files, *_AS_THEY_ARE(item)))
    return page.end, items


def _unpacked(packed: tuple[int, list[tuple[Any, ...]]]) -> Page:
    end, listed = packed
    items: list[Decision | Settled] = []
    for one in listed:
        if len(one) == len(Settled._fields):
            key, file = one
            items.append(Settled(key, _file_of(file)))
        else:
            base, made = one[1]
            items.append(item := Decision(_DECISIONS[one[0]], *one[2:]))
            if base is not None:
                item.base = _file_of(base)
            if made is not None:
                item.made = _file_of(made)
    return Page(items, end)


def _file(file: File) -> tuple[str, str | None, str | None]:
    location, sha256, of = file
    return location, sha256, None if of is None else of.value


def _file_of(packed: tuple[str, str | None, str | None]) -> File:
    location, sha256, of = packed
    return File(location, sha256, None if of is None else _KINDS[of])


if __name__ == "__main__":
    main()
