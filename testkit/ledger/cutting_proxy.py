# SPDX-License-Identifier: Apache-2.0
"""
A wire to a real PostgreSQL server that fails at one statement: cut before it arrives, or after it was carried out; the
statement refused with an error; the session ended by the server.

Speaks just enough of the protocol (version 3: after the first message, each is a type byte and a length that counts
itself) to forward message by message, to know the SQL text of each statement, prepared or not, and to tell from the
answers when the server has carried it out.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

SOCKET_NAME = ".s.PGSQL.5432"
PARSE, BIND, QUERY, EXECUTE, SYNC, FLUSH = b"P", b"B", b"Q", b"E", b"S", b"H\x00\x00\x00\x04"
DONE, EMPTY, ERROR, KEY_DATA, READY = b"C"[0], b"I"[0], b"E"[0], b"K"[0], b"Z"[0]


class Cut(StrEnum):
    """What happens at the statement."""

    BEFORE = "before it arrives"
    AFTER = "after it was carried out, its answer lost"
    LATE = "on our side only, and it arrives later"
    REFUSED = "the server refuses it"
    ENDED_BEFORE = "the server ends the session before it"
    ENDED_AFTER = "the server ends the session after it was carried out, in place of its answer"
    NOT = "nothing: it is only noticed"


@dataclass
class Plan:
    """
    Fail at the first statement that holds `text`, `skip` of them let through; `then` is awaited at that moment.

    After that `following` is what the proxy plans.
    """

    text: bytes
    cut: Cut
    then: Callable[[], Awaitable[None]] | None = None
    skip: int = 0
    sqlstate: str = "40001"
    """With `Cut.REFUSED`: of which class the error is."""
    following: Plan | None = None
    hit: asyncio.Event = field(default_factory=asyncio.Event)
    deliver: asyncio.Event = field(default_factory=asyncio.Event)
    """With `Cut.LATE`: set it to let the statement arrive."""
    statement: bytes = b""
    """The text of the statement that was hit."""

    def meets(self, statement: bytes) -> bool:
        """Return whether this is the statement; counts those that are let through."""
        if self.text not in statement:
            return False
        self.skip -= 1
        return self.skip < 0


class CuttingProxy:
    """Listens in `directory`, a DSN's host, for what is to go to the server whose socket is `target`."""

    def __init__(self, directory: Path, target: Path) -> None:
        self.directory = directory
        self.accepts = True
        """Whether connections are let through; while not, they are cut at once."""
        self.plan: Plan | None = None
        self.trace: list[bytes] = []
        """The text of every statement that came."""
        self.exchanges = 0
        """How many exchanges came: statements up to a Sync, or a simple query."""
        self.answers_pass = asyncio.Event()
        """While it is not set, answers are held back."""
        self.answers_pass.set()
        self._target = target
        self._server: asyncio.Server | None = None
        self._wires: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._connected, self.directory / SOCKET_NAME)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_all()
        await self.quiet()

    def cut_all(self) -> None:
        """Cut every wire."""
        for wire in self._wires:
            wire.cancel()

    async def quiet(self) -> None:
        """Wait until no wire is left: nothing is on its way to the server any more."""
        await asyncio.gather(*self._wires, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = asyncio.create_task(self._serve(reader, writer))
        self._wires.add(wire)
        wire.add_done_callback(self._wires.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.accepts:
                to_reader, to_writer = await asyncio.open_unix_connection(self._target)
                try:
                    await _Wire(self, reader, writer, to_reader, to_writer).forward()
                finally:
                    to_writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # either side has gone; so does the other
        finally:
            writer.close()


class _Wire:
    """One connection, both ways."""

    def __init__(
        self,
        proxy: CuttingProxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_reader: asyncio.StreamReader,
        to_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._to_writer = to_writer
        self._answers = _Answers(to_reader, writer, proxy.answers_pass)
        self._prepared: dict[bytes, bytes] = {}
        self._executed = 0

    async def forward(self) -> None:
        """Forward until either side has gone, or until the statement that is planned for."""
        pump = asyncio.create_task(self._answers.pump())
        try:
            self._to_writer.write(await _first_message(self._reader))
            while True:
                message = await _message(self._reader)
                statement = self._begun_by(message)
                if statement is not None:
                    self._proxy.trace.append(statement)
                    plan = self._proxy.plan
                    if plan is not None and plan.meets(statement):
                        self._proxy.plan = plan.following
                        plan.statement = statement
                        if await self._fail(plan, message):
                            return
                        continue
                self._send(message)
                await self._to_writer.drain()
        finally:
            pump.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await pump

    def _begun_by(self, message: bytes) -> bytes | None:
        """Return the text of the statement that begins with `message`, if one does; notice what is prepared."""
        match message[:1]:
            case b"Q":
                return message[5:-1]
            case b"P":
                name, text, *_ = message[5:].split(b"\x00", 2)
                self._prepared[name] = text
                return None if name else text
            case b"B":
                name = message[5:].split(b"\x00", 2)[1]
                return self._prepared[name] if name else None
        return None

    def _send(self, message: bytes) -> None:
        self._executed += message[:1] in (QUERY, EXECUTE)
        if message[:1] in (QUERY, SYNC):
            self._proxy.exchanges += 1
            self._answers.syncs.append(self._executed)
        self._to_writer.write(message)

    async def _fail(self, plan: Plan, message: bytes) -> bool:
        """Do what is planned for the statement that begins with `message`; tells whether the wire is cut by that."""
        match plan.cut:
            case Cut.NOT:
                self._send(message)
            case Cut.REFUSED:
                self._refuse(plan.sqlstate, message)
            case Cut.AFTER:
                await self._carry_out(message)
            case Cut.LATE:
                self._answers.forward_upto = 0
                whole = await self._whole_statement(message)
                self._writer.close()
                plan.hit.set()
                await plan.deliver.wait()
                await self._carry_out(message, whole)
            case Cut.ENDED_BEFORE:
                await self._end_session()
            case Cut.ENDED_AFTER:
                await self._carry_out(message)
                self._answers.errors_pass = True
                await self._end_session()
        plan.hit.set()
        if plan.then is not None:
            await plan.then()
        return plan.cut not in {Cut.NOT, Cut.REFUSED}

    def _refuse(self, sqlstate: str, message: bytes) -> None:
        """Let the server raise an error in the place of the statement, and skip what stands behind it, as it does."""
        text = f"DO $$BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{sqlstate}'; END$$".encode() + b"\x00"
        if message[:1] == QUERY:
            self._send(_format(QUERY, text))
            return
        instead = (PARSE, b"\x00" + text + bytes(2)), (BIND, bytes(8)), (EXECUTE, bytes(5))
        self._to_writer.write(b"".join(_format(kind, body) for kind, body in instead))
        self._send(message)

    async def _carry_out(self, message: bytes, whole: bytes | None = None) -> None:
        """Let the server carry the statement out; its answer, and what comes behind it, goes nowhere."""
        if self._answers.forward_upto is None:
            self._answers.forward_upto = self._executed
        whole = whole or await self._whole_statement(message)
        self._executed += 1
        self._to_writer.write(whole)
        await self._answers.until(self._executed)

    async def _whole_statement(self, message: bytes) -> bytes:
        """Return the statement that begins with `message`, and a Flush, so that the server answers it."""
        whole = message
        while message[:1] not in (EXECUTE, QUERY):
            message = await _message(self._reader)
            whole += message
        return whole + FLUSH

    async def _end_session(self) -> None:
        """Do what pg_terminate_backend does, and forward the server's last words."""
        with suppress(ProcessLookupError):
            os.kill(self._answers.pid, signal.SIGTERM)
        await self._answers.until(None)


class _Answers:
    """What the server answers, forwarded as it comes, and how many statements it has carried out."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: asyncio.Event) -> None:
        self.pid = 0
        """The server's process for this session."""
        self.syncs: deque[int] = deque()
        """How many statements stand before each Sync that was sent and not answered yet."""
        self.forward_upto: int | None = None
        """Nothing is forwarded any more when so many statements are done."""
        self.errors_pass = False
        self._reader, self._writer, self._may_pass = reader, writer, may_pass
        self._done = 0
        self._failed = self._ended = False
        self._news = asyncio.Event()
        self._rest = b""

    async def pump(self) -> None:
        """Forward until the server has nothing more to say."""
        try:
            while data := await self._reader.read(65_536):
                await self._may_pass.wait()
                self._take(data)
                self._news.set()
                await self._writer.drain()
        finally:
            self._ended = True
            self._news.set()
            self._writer.close()

    async def until(self, done: int | None) -> None:
        """Wait until so many statements are done, or one has failed, or the session is over (None: only for that)."""
        while not self._ended and (done is None or (self._done < done and not self._failed)):
            self._news.clear()
            await self._news.wait()

    def _take(self, data: bytes) -> None:
        data = self._rest + data
        at = passed = 0
        out: list[bytes] = []
        while len(data) - at >= 5 and len(data) - at > (length := int.from_bytes(data[at + 1 : at + 5], "big")):
            kind, end = data[at], at + 1 + length
            lost = self.forward_upto is not None and self._done >= self.forward_upto
            if lost and not (self.errors_pass and kind == ERROR):
                out.append(data[passed:at])
                passed = end
            self._notice(kind, data[at + 5 : at + 9])
            at = end
        out.append(data[passed:at])
        self._rest = data[at:]
        self._writer.write(b"".join(out))

    def _notice(self, kind: int, body: bytes) -> None:
        match kind:
            case _ if kind in (DONE, EMPTY):
                self._done += 1
            case _ if kind == ERROR:
                self._failed = True
            case _ if kind == KEY_DATA:
                self.pid = int.from_bytes(body, "big")
            case _ if kind == READY and self.syncs:
                self._done, self._failed = self.syncs.popleft(), False


def _format(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


async def _first_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big") - 4)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
