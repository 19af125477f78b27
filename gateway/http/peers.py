# SPDX-License-Identifier: Apache-2.0
"""
Commits that another process of this gateway makes.

Processes that change one table at once race each other, and each race that is lost is a commit judged in vain. So a
commit to a table where this process has lately lost a race is passed on to the one process that the table's path
chooses: there all of them queue (`gateway/commit/target_queues.py`). It is passed on whole, with its credentials, and
that process answers it like a request of its own clients, except that it never passes it on.

The processes reach each other through Unix sockets in a folder that nobody else may enter.

Guarantee: a commit is sent to another process at most once. This process makes it instead only if nothing was sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from gateway.catalogs.connection import Answer as PeersAnswer
from gateway.catalogs.connection import AnswerError, Connection, format_request
from gateway.commit.races import Races
from gateway.errors import CommitStateUnknownError
from gateway.http.asked import CLIENT_ADDRESS, Answer, Asked
from gateway.http.request_context import REQUEST_ID, TRACEPARENT, current_request

BODY_SIZE_BYTES_MAX: Final = 256 * 1024
"""Larger commits are made here: they would be held in two processes."""
ANSWER_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
ANSWER_S: Final = 60.0
"""How long another process may take: longer than a commit waits for its turn and for the log."""
IDLE_S: Final = 2.0
"""How long a connection may have been idle to be used again: the other end closes it after more."""
IDLE_MAX: Final = 128
"""Idle connections to one process."""

_LENGTH = re.compile(r"[0-9]{1,9}")
_FRAMING: Final = frozenset(
    {b"accept-encoding", b"connection", b"content-length", b"content-type", b"keep-alive", b"te", b"trailer"}
)
"""Headers that are about a connection, or that the other process must not read: it answers without compression."""
_SPECIAL: Final = frozenset({b"content-encoding", b"expect", b"transfer-encoding", b"upgrade"})
"""Headers of requests that are not passed on."""
_OF_SERVER: Final = frozenset({b"connection", b"content-length", b"date", b"server", b"transfer-encoding", REQUEST_ID})
"""Headers of an answer that this process gives itself."""


class Peers:
    """
    The gateway processes of one `lakeproof up`: `sockets` of all, of which this one is number `own`. Event loop only.

    `count` is told the outcome of each commit that is to be passed on: `answered`, `unanswered` or `not_sent`.
    """

    def __init__(
        self, sockets: Sequence[Path], own: int, *, races: Races, count: Callable[[str], None] = lambda _: None
    ) -> None:
        self._peers = [None if number == own else _Peer(path) for number, path in enumerate(sockets)]
        self._races = races
        self._count = count

    def close(self) -> None:
        """Close the connections that are idle."""
        for peer in self._peers:
            if peer is not None:
                peer.close()

    async def answer(self, asked: Asked) -> Answer | None:
        """
        Have another process make a commit, and return its answer; None if this process has to make it.

        Raises:
            BadRequestError: if the client hangs up before the end of the body.
            CommitStateUnknownError: if the other process did not answer: the commit may or may not be made.
        """
        if not self._races.was_lost(asked.path) or asked.is_of_peer:
            return None
        peer = self._peers[crc32(asked.path.encode()) % len(self._peers)]
        headers = None if peer is None else _headers(asked)
        if peer is None or headers is None:
            return None
        body = await asked.read_body()
        outcome = "not_sent"
        try:
            request = format_request(asked.method, asked.whole_path, headers, body)
            if (connection := await peer.connect()) is None:
                return None
            outcome = "unanswered"
            found = await peer.ask(connection, request)
            outcome = "answered"
            return _answer(found)
        except ValueError:  # a header that has no plain form
            return None
        except (AnswerError, TimeoutError) as error:
            raise CommitStateUnknownError(
                "the process of the gateway that was to make the commit did not answer: the commit may or may not have "
                "happened, do not delete its files"
            ) from error
        finally:
            self._count(outcome)


class _Peer:
    """Another process, and the connections to it that are idle: the one that was used last is the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[Connection] = []

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def connect(self) -> Connection | None:
        """Return a connection on which nothing is under way; None if the process accepts none."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_silent() and loop.time() - connection.free_since_s < IDLE_S:
                return connection
            connection.close()
        with suppress(OSError):
            _, connection = await loop.create_unix_connection(Connection, str(self._path))
            return connection
        return None

    async def ask(self, connection: Connection, request: bytes) -> PeersAnswer:
        """Send a request, and return its answer. Raises AnswerError or TimeoutError if there is none."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await connection.ask(request, size_bytes_max=ANSWER_SIZE_BYTES_MAX)
        finally:
            if connection.is_free and len(self._idle) < IDLE_MAX:
                connection.free_since_s = asyncio.get_running_loop().time()
                self._idle.append(connection)
            else:
                connection.close()


def _headers(asked: Asked) -> dict[str, str] | None:
    """
    Return what is passed on; None for a request that is not plain: large, encoded, with a header twice, or with a
    client certificate, which the other process could not verify.
    """
    if asked.has_certificate:
        return None
    length = asked.header(b"content-length")
    if length is None or not _LENGTH.fullmatch(length) or int(length) > BODY_SIZE_BYTES_MAX:
        return None
    names = [name for name, _ in asked.raw_headers]
    if len(set(names)) < len(names) or not _SPECIAL.isdisjoint(names):
        return None
    kept = {name.decode(): value.decode("latin-1") for name, value in asked.raw_headers if name not in _FRAMING}
    if (request := current_request()) is not None:
        kept |= {REQUEST_ID.decode(): request.request_id, TRACEPARENT.decode(): request.traceparent()}
    kept[CLIENT_ADDRESS.decode()] = asked.address
    return {**kept, "content-type": asked.header(b"content-type") or "application/json"}


def _answer(found: PeersAnswer) -> Answer:
    kept = tuple((name, value) for name, value in found.headers.items() if name not in _OF_SERVER)
    return Answer(found.status, ((b"content-length", b"%d" % len(found.body)), *kept), found.body)
