# SPDX-License-Identifier: Apache-2.0
"""
Spans of requests, sent over OTLP by OpenTelemetry's own library (extra `traces`).

Where they go, how many are kept and what the service is called say OpenTelemetry's own variables
(OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME and others). Names of attributes are those of its
semantic conventions for HTTP. A collector that does not answer costs spans, never requests.
"""

from __future__ import annotations

import os
from threading import Timer
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from gateway.http.request_context import RequestContext

SERVICE: Final = "lakeproof-gateway"
UNNAMED: Final = "unknown_service"
"""How the name begins that the library gives a service without one."""
FAILED_FROM: Final = 500
END_TIMEOUT_S: Final = 2.0
"""How long the last spans may take at the end of a process."""


class RequestIds(IdGenerator):
    """The ids of the next span."""

    def __init__(self) -> None:
        self.trace_id = 0
        self.span_id = 0

    def generate_trace_id(self) -> int:
        """Return the id of the trace that a request begins."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Return the id of the request's span."""
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """Say that ids are drawn at random."""
        return True


class OpenTelemetry:
    """Records requests as spans of kind SERVER. One per process; event loop only, but for `close`."""

    def __init__(self) -> None:
        self._ids = RequestIds()
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME)).startswith(UNNAMED):
            resource = resource.merge(Resource({SERVICE_NAME: SERVICE}))
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter()
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("lakeproof")

    def begin(self, request: RequestContext, *, method: str) -> RequestSpan | None:
        """Begin the span of a request, below its client's; None if the sampler does not keep it."""
        self._ids.trace_id, self._ids.span_id = int(request.request_id, 16), int(request.span_id, 16)
        if request.is_handed_on:
            # The process that has passed it on has that span; this one's is below it.
            self._ids.span_id = int.from_bytes(os.urandom(8))
        span = self._tracer.start_span(
            method,
            context=_context_of(request),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "lakeproof.request_id": request.request_id},
        )
        return RequestSpan(span, method) if span.is_recording() else None

    def close(self) -> None:
        """Send what is left, within a bound. Blocking."""
        # The library tries on for many seconds, and takes no bound of ours: without its exporter it ends.
        bound = Timer(END_TIMEOUT_S, self._exporter.shutdown)
        bound.start()
        self._provider.shutdown()
        bound.cancel()


class RequestSpan:
    """A request that is recorded."""

    def __init__(self, span: Span, method: str) -> None:
        self._span = span
        self._method = method

    def stage(self, stage: str) -> None:
        """Note the end of a step, as an event."""
        self._span.add_event(stage)

    def end(self, *, route: str, status: int) -> None:
        """End it with its route and the status of the answer; from 500 on it has failed."""
        self._span.update_name(f"{self._method} {route}")
        self._span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= FAILED_FROM:
            self._span.set_status(StatusCode.ERROR)
        self._span.end()


def _context_of(request: RequestContext) -> Context:
    """The context of the client's span; an empty one if it sent none."""
    given = request.given
    if given is None:
        return Context()
    parent = SpanContext(
        int(given.trace_id, 16), int(given.parent_id, 16), is_remote=True, trace_flags=TraceFlags(int(given.flags, 16))
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())
