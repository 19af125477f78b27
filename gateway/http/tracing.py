# SPDX-License-Identifier: Apache-2.0
"""
Spans of requests: what begins and ends one, and what it is told of a commit's steps.

Nothing here knows a library of spans: whoever starts the gateway gives a `Tracer`, or none. A span has the ids of its
request (`request_context.py`), so that the log lines of a request are found from its span, and the other way round.
"""

from __future__ import annotations

from typing import Final, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.commit.metrics import Done, MutationStage
from gateway.http.request_context import RequestContext, Span, current_request

NOT_ANSWERED: Final = 500
"""The status of a request that ended without an answer."""
UNKNOWN_ROUTE: Final = "unknown"


class Tracer(Protocol):
    """What records spans."""

    def begin(self, request: RequestContext, *, method: str) -> Span | None:
        """Begin the span of a request; None if this one is not recorded."""


class TracedRequests:
    """An application whose requests are recorded as spans."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = current_request()
        span = None if request is None else self._tracer.begin(request, method=scope["method"])
        if request is None or span is None:
            await self._app(scope, receive, send)
            return
        status = NOT_ANSWERED

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        request.span = span
        try:
            await self._app(scope, receive, sending)
        finally:
            request.span = None
            span.end(route=getattr(scope.get("route"), "path", UNKNOWN_ROUTE), status=status)


def traced(done: Done) -> Done:
    """
    Return a `done` that also tells the span of the current request, if that has one.
    """
    request = current_request()
    span = None if request is None else request.span
    if span is None:
        return done

    def both(stage: MutationStage) -> None:
        span.stage(stage.value)
        done(stage)

    return both
