"""
A wire to a real PostgreSQL server that can be cut at one statement: before it arrives, or after it was carried out.

Speaks just enough of the protocol (version 3: after the first message, each is a type byte and a length that counts
itself) to forward message by message and to see the SQL text in Parse and Query messages. A statement is prepared once
and then named, so its text passes only the first five or six times on a connection: cut early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

SOCKET_NAME = ".s.PGSQL.5432"
PARSE, QUERY, EXECUTE, FLUSH = b"P", b"Q", b"E", b"H\x00\x00\x00\x04"


class Cut(StrEnum):
    """What happens at the statement."""

    BEFORE = "before it arrives"
    AFTER = "after it was carried out, its answer lost"
    LATE = "on our side only, and it arrives later"
    NOT = "nothing: it is only noticed"


@dataclass
class Plan:
    """Cut at the first statement that holds `text`; `then` is awaited at that moment."""

    text: bytes
    cut: Cut
    then: Callable[[], Awaitable[None]] | None = None
    hit: asyncio.Event = field(default_factory=asyncio.Event)
    deliver: asyncio.Event = field(default_factory=asyncio.Event)
    """With `Cut.LATE`: set it to let the statement arrive."""


class CuttingProxy:
    """Listens in `directory`, a DSN's host, for what is to go to the server whose socket is `target`."""

    def __init__(self, directory: Path, target: Path) -> None:
        self.directory = directory
        self.accepts = True
        """Whether connections are let through; while not, they are cut at once."""
        self.plan: Plan | None = None
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
        await asyncio.gather(*self._wires, return_exceptions=True)

    def cut_all(self) -> None:
        """Cut every wire."""
        for wire in self._wires:
            wire.cancel()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = asyncio.create_task(self._serve(reader, writer))
        self._wires.add(wire)
        wire.add_done_callback(self._wires.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.accepts:
                to_reader, to_writer = await asyncio.open_unix_connection(self._target)
                try:
                    await self._forward(reader, writer, to_reader, to_writer)
                finally:
                    to_writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # either side has gone; so does the other
        finally:
            writer.close()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        to_reader: asyncio.StreamReader,
        to_writer: asyncio.StreamWriter,
    ) -> None:
        answers = asyncio.create_task(_pump(to_reader, writer))
        try:
            to_writer.write(await _first_message(reader))
            while True:
                message = await _message(reader)
                plan = self.plan
                if plan is None or message[:1] not in (PARSE, QUERY) or plan.text not in message:
                    to_writer.write(message)
                    continue
                self.plan = None
                if plan.cut is Cut.NOT:
                    to_writer.write(message)
                    plan.hit.set()
                    continue
                if plan.cut is not Cut.BEFORE:
                    await _end(answers)
                    statement = await _whole_statement(message, reader)
                if plan.cut is Cut.LATE:
                    writer.close()
                    plan.hit.set()
                    await plan.deliver.wait()
                if plan.cut is not Cut.BEFORE:
                    to_writer.write(statement)
                    await to_reader.read(1)
                plan.hit.set()
                if plan.then is not None:
                    await plan.then()
                return
        finally:
            await _end(answers)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, OSError):
        await task


async def _first_message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(4)
    return head + await reader.readexactly(int.from_bytes(head, "big") - 4)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


async def _whole_statement(message: bytes, reader: asyncio.StreamReader) -> bytes:
    """Return the statement that begins with `message`, and a Flush, so that the server answers it."""
    whole = message
    while message[:1] not in (EXECUTE, QUERY):
        message = await _message(reader)
        whole += message
    return whole + FLUSH
