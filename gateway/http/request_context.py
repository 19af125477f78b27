# SPDX-License-Identifier: Apache-2.0
"""
Which request the running code works for: its id, which the answer carries as `X-Request-Id`, and its W3C trace context.

Set once for each request, in the context that tasks and threads of the request inherit. Nothing but the id is made
before something is logged: the headers are read, and texts formatted, only then.

A client's `traceparent` (W3C Trace Context, section 3.2) is taken if it is valid; otherwise the request begins a trace
of its own, whose id is the request's. An `X-Request-Id` of a client is not taken: what stands in logs is ours. Only
another process of this gateway hands its id on, with a commit that it passes on.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Final, NamedTuple, Protocol, Self

from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID: Final = b"x-request-id"
TRACEPARENT: Final = b"traceparent"
VERSION: Final = "00"
NOT_SAMPLED: Final = "00"
SAMPLED: Final = "01"

_TRACEPARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_ID: Final = re.compile(rb"[0-9a-f]{32}")
_INVALID_VERSION: Final = b"ff"


class TraceParent(NamedTuple):
    """What a valid `traceparent` says: the trace, the client's span in it, and its flags, all in hex."""

    trace_id: str
    parent_id: str
    flags: str


class Span(Protocol):
    """One request that is recorded. Event loop only."""

    def stage(self, stage: str) -> None:
        """Note that the request has come to the end of a step."""

    def end(self, *, route: str, status: int) -> None:
        """End it; `route` is a path with the names of its parameters, and so one of few."""


class _Ids:
    """
    Draws ids that differ from all others, also from those of other processes. They are no secrets: the system's own
    generator, which costs a hundredth of a load each time, only begins each process's series.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._random = random.Random(os.urandom(32))  # noqa: S311 - see above

    def draw(self) -> str:
        """Return 32 hex digits."""
        return f"{self._random.getrandbits(128):032x}"


_ids: Final = _Ids()


class RequestContext:
    """
    One request, which is the current one within `with`: `request_id` is 32 hex digits. `is_over` is true once it was
    answered, or has failed. `span` records it, if anything does.
    """

    __slots__ = ("_before", "_headers", "is_handed_on", "is_over", "request_id", "span")

    def __init__(self, scope: Scope) -> None:
        self._headers: list[tuple[bytes, bytes]] = scope["headers"]
        self._before: Token[RequestContext | None] | None = None
        self.is_over = False
        self.span: Span | None = None
        handed_on = _handed_on(scope) if scope.get("server") is None else None
        self.is_handed_on: Final = handed_on is not None
        self.request_id: Final = handed_on or _ids.draw()

    def __enter__(self) -> Self:
        self._before = _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        # A task that it has started may outlive it, and what that does later is not this request's any more.
        self.is_over = True
        if self._before is not None:
            _current.reset(self._before)

    @property
    def given(self) -> TraceParent | None:
        """Return the trace that the client sent; None if it sent none, or none that is valid."""
        return parse_traceparent([value for name, value in self._headers if name == TRACEPARENT])

    def fields(self) -> Mapping[str, str]:
        """Return what a log says of it: `request_id`, `trace_id`, `span_id`, and the client's span if it sent one."""
        given = self.given
        own = {"request_id": self.request_id, "span_id": self.span_id}
        if given is None:
            return {**own, "trace_id": self.request_id}
        return {**own, "trace_id": given.trace_id, "parent_span_id": given.parent_id}

    def traceparent(self) -> str:
        """Return the header with which this request goes on elsewhere: the same trace, and its own span."""
        given = self.given
        own = NOT_SAMPLED if self.span is None else SAMPLED
        trace_id, flags = (self.request_id, own) if given is None else (given.trace_id, given.flags)
        return f"{VERSION}-{trace_id}-{self.span_id}-{flags}"

    @property
    def span_id(self) -> str:
        """Return the id of its own span, 16 hex digits."""
        return self.request_id[:16]


_current: ContextVar[RequestContext | None] = ContextVar("request", default=None)


def current_request() -> RequestContext | None:
    """
    Return the request that the running code works for; None if it works for none, or that is over.
    """
    context = _current.get()
    return None if context is None or context.is_over else context


def id_header() -> Sequence[tuple[bytes, bytes]]:
    """
    Return the header that the answer to the current request has beside its own; none without a request.
    """
    context = _current.get()  # nothing is answered once it is over
    return () if context is None else ((REQUEST_ID, context.request_id.encode()),)


def identified(send: Send) -> Send:
    """
    Return a `send` that adds `id_header` to the answer.
    """

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *id_header()]
        await send(message)

    return sending


class IdentifiedAnswers:
    """An application whose answers have `id_header`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, identified(send))


def log_fields() -> Mapping[str, str]:
    """
    Return what a log says of the current request; nothing if there is none.
    """
    context = current_request()
    return {} if context is None else context.fields()


def parse_traceparent(values: list[bytes]) -> TraceParent | None:
    """
    Return what the header says; None if it is missing, repeated or not valid.
    """
    if len(values) != 1 or (match := _TRACEPARENT.fullmatch(values[0].strip())) is None:
        return None
    version, trace_id, parent_id, flags, more = match.groups()
    is_ours = version == VERSION.encode()
    if version == _INVALID_VERSION or (is_ours and more) or not trace_id.strip(b"0") or not parent_id.strip(b"0"):
        return None
    return TraceParent(trace_id=trace_id.decode(), parent_id=parent_id.decode(), flags=flags.decode())


def _handed_on(scope: Scope) -> str | None:
    """Return the id that another process of this gateway hands on: only they reach a socket without host and port."""
    ids = [value for name, value in scope["headers"] if name == REQUEST_ID]
    return ids[0].decode() if len(ids) == 1 and _ID.fullmatch(ids[0]) else None
