# SPDX-License-Identifier: Apache-2.0
"""
A client that sends exactly the bytes it is given, and takes nothing for an answer that is not one, byte for byte.

What judges the answers is h11, which the server does not use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import h11
import httpx

ANSWER_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer: what it says, and whether the connection ends behind it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        """Whether it says that it is the last one."""
        return self.headers.get("connection", "").lower() == "close"


@dataclass(slots=True, kw_only=True)
class ReceivedAnswers:
    """Everything that came back on one connection until its end, or until nothing more was due."""

    answers: list[Answer] = field(default_factory=list)
    has_continue: bool = False


def parse_answers(data: bytes, *, method: bytes, is_over: bool) -> ReceivedAnswers | None:
    """
    Return the answers that `data` holds to requests with `method`; None if the last one is not whole yet.

    Raises:
        h11.RemoteProtocolError: if something is no answer of HTTP/1.1, or a closed connection leaves one unfinished.
    """
    heard = ReceivedAnswers()
    while data:
        client = h11.Connection(our_role=h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(data)
        if is_over:
            client.receive_data(b"")
        head: h11.Response | None = None
        body = b""
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                return None
            if isinstance(event, h11.InformationalResponse):
                heard.has_continue = True
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            else:
                raise h11.RemoteProtocolError(f"expected an answer, found {event!r}")
        assert head is not None
        headers = {name.decode(): value.decode() for name, value in head.headers}
        assert "content-length" in headers or head.status_code == 204 or method == b"HEAD", headers
        heard.answers.append(Answer(status=head.status_code, headers=headers, body=body))
        data = client.trailing_data[0]
        if heard.answers[-1].closes:
            assert not data, f"{data!r} came behind the last answer"
    return heard


async def exchange(
    url: str, pieces: Sequence[bytes], *, method: bytes = b"GET", hangs_up: bool = False, answers: int = 1
) -> ReceivedAnswers:
    """
    Send `pieces` one by one; return what came back once there are `answers`, or the connection is closed.

    With `hangs_up` the end of the last piece is the end of what we send.
    """
    target = httpx.URL(url)
    reader, writer = await asyncio.open_connection(target.host, target.port)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            with suppress(ConnectionError):  # it is closed while we still send: what came back counts
                for piece in pieces:
                    if writer.is_closing():
                        break
                    writer.write(piece)
                    await writer.drain()
                    if len(pieces) > 1:
                        await asyncio.sleep(0)
                if hangs_up and not writer.is_closing():
                    writer.write_eof()
            return await _hear(reader, method=method, answers=answers)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _hear(reader: asyncio.StreamReader, *, method: bytes, answers: int) -> ReceivedAnswers:
    data = b""
    while True:
        more = b""
        with suppress(ConnectionError):
            more = await reader.read(65_536)
        data += more
        heard = parse_answers(data, method=method, is_over=not more)
        is_enough = heard is not None and len(heard.answers) >= answers and not heard.answers[-1].closes
        if not more or is_enough:
            return heard or ReceivedAnswers()
