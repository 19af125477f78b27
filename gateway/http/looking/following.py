# SPDX-License-Identifier: Apache-2.0
"""
A log that is followed: what matches and may be seen, as server-sent events (WHATWG HTML, section 9.2), until its reader
leaves, its credentials are not in force any more, or the process ends.

The id of an event is the index of its entry: `Last-Event-ID` continues behind it. Without an entry for `HEARTBEAT_S`
there is a comment, so that proxies keep the connection. What may be seen is judged anew for every look at the log.

A process has a bounded number of followers, and each holds no connection of the database while it waits. One that looks
through a long log for what may not be there looks half of the time, and waits the other half. A reader that does not
read is cut off by the server, as in any answer (`gateway/http/server/connection.py`); what is sent next is read only
when it has taken what was sent before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager, suppress
from typing import Any, Final
from uuid import UUID

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.commit.gateway import Gateway
from gateway.errors import BadRequestError, GatewayError, UnavailableError
from gateway.http.looking.entries import AskedEntries, read_page
from gateway.http.looking.query import INDEX_MAX
from gateway.http.looking.reading import own_log, reading_as
from gateway.http.looking.sight import Sight
from gateway.identity import Principal
from ledger.errors import LedgerError
from ledger.format.entry import Entry
from ledger.proving.search import Order
from ledger.store.read import Log, read_head

FOLLOWERS_MAX: Final = 64
"""Of one process."""
FOLLOWERS_OF_TENANT_MAX: Final = 16
HEARTBEAT_S: Final = 15.0
POLL_S: Final = 1.0
"""How often a follower looks at the log; a notification wakes it earlier."""
PAGE_MAX: Final = 100
ENDING_S: Final = 1.0
"""How long the end of the stream may take, where the reader does not read."""
RETRY_MS: Final = 2_000
"""After how long a browser connects again."""


class Followers:
    """Counts those who follow a log in this process. Event loop only."""

    def __init__(self) -> None:
        self._count = 0
        self._of_tenant: dict[UUID, int] = {}

    @property
    def count(self) -> int:
        """How many follow now."""
        return self._count

    @contextmanager
    def admitted(self, tenant: UUID) -> Iterator[None]:
        """
        Count one more.

        Raises:
            UnavailableError: if there are as many as may be.
        """
        of_tenant = self._of_tenant.get(tenant, 0)
        if self._count >= FOLLOWERS_MAX or of_tenant >= FOLLOWERS_OF_TENANT_MAX:
            raise UnavailableError("as many follow logs here as may: try again, or read page by page")
        self._count += 1
        self._of_tenant[tenant] = of_tenant + 1
        try:
            yield
        finally:
            self._count -= 1
            self._of_tenant[tenant] -= 1
            if not self._of_tenant[tenant]:
                del self._of_tenant[tenant]


def resumed_at(last_event_id: str | None) -> int | None:
    """
    Return the index behind the event that a reader has had last; None if it had none.

    Raises:
        BadRequestError: if it is not the id of an event.
    """
    if not last_event_id:
        return None
    if not (last_event_id.isascii() and last_event_id.isdigit()) or len(last_event_id) > 16:
        raise BadRequestError(
            f"expected the index of an entry, found {last_event_id!r:.40}: leave it out to begin at the end of the log",
            field="Last-Event-ID",
        )
    return min(int(last_event_id), INDEX_MAX) + 1


async def follow(
    gateway: Gateway,
    caller: Principal,
    asked: AskedEntries,
    *,
    at: int | None,
    look: Callable[[], Awaitable[Sight]],
    show: Callable[[Entry], Mapping[str, Any]],
) -> AsyncGenerator[bytes, None]:
    """
    Yield the events of a log from the index `at` on (None: from its end), and comments in between, without an end.

    Once it has begun, nothing that comes into the log is left out: the first bytes are there when the end was read. An
    error ends it with an event `error`, whose data is that of an error's answer. `show` returns the data of an entry.
    """
    clock = asyncio.get_running_loop().time
    bell = gateway.notifier.subscribe()
    log: Log | None = None
    told_s = clock()
    first = b"retry: %d\n\n" % RETRY_MS
    try:
        while True:
            bell.clear()
            began_s = clock()
            sight = await look()
            async with reading_as(gateway, caller) as connection:
                log = log or await own_log(connection, caller)
                if at is None:
                    at = max(asked.from_index, (await read_head(connection, log.log_id)).size)
                page = await read_page(connection, log, sight, asked, order=Order.OLDEST, limit=PAGE_MAX, at=at)
            if first:
                yield first
                first = b""
            at = max(at, page.at)
            for entry in page.entries:
                yield b"id: %d\nevent: entry\ndata: %b\n\n" % (entry.index, orjson.dumps(show(entry)))
                told_s = clock()
            if clock() - told_s >= HEARTBEAT_S:
                told_s = clock()
                yield b": nothing new\n\n"
            if not page.is_last:
                if not page.entries:
                    # Nobody waits for it, and a long log may have nothing that matches: others look meanwhile.
                    await asyncio.sleep(clock() - began_s)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), POLL_S)
    except GatewayError as error:
        yield first + _error(error)
    except LedgerError:
        yield first + _error(UnavailableError("the log cannot be read: the gateway's own log says why"))
        raise
    finally:
        gateway.notifier.unsubscribe(bell)


def _error(error: GatewayError) -> bytes:
    body = {"error": {"message": str(error), "type": error.kind, "code": error.status}}
    return b"event: error\ndata: %b\n\n" % orjson.dumps(body)


class EventStream(Response):
    """
    An answer of server-sent events, which ends when its source does, its reader leaves or the process ends.

    It begins with the first event: a reader that sees it begin (`open` in a browser) misses nothing from then on.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], admitted: AbstractContextManager[None]) -> None:
        # Proxies must neither keep nor collect it (the last header is nginx's).
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._admitted = admitted
        self._is_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Send events until there is a reason to end."""
        with self._admitted:
            sending = asyncio.create_task(self._send(send))
            leaving = asyncio.create_task(_left(receive))
            try:
                await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, leaving):
                    task.cancel()
                await asyncio.gather(sending, leaving, return_exceptions=True)
        if not sending.cancelled() and (error := sending.exception()) is not None:
            raise error
        with suppress(TimeoutError):
            async with asyncio.timeout(ENDING_S):
                await self._begin(send)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self, send: Send) -> None:
        """Send the head of the answer, once."""
        if not self._is_begun:
            self._is_begun = True
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                await self._begin(send)
                await send({"type": "http.response.body", "body": event, "more_body": True})


async def _left(receive: Receive) -> None:
    """Return when the reader has left, or the process ends."""
    while (await receive())["type"] != "http.disconnect":
        pass
