# SPDX-License-Identifier: Apache-2.0
"""
Whether the gateway's requests are recorded as spans. What records them is an extra of its own (`open_telemetry.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.http.app import Application
from gateway.http.tracing import TracedRequests
from lakeproof.errors import LakeproofError
from lakeproof.extras import missing_of
from lakeproof.settings import Settings


class TracesError(LakeproofError):
    """Spans were asked for, and what records them is not installed."""


@asynccontextmanager
async def recording(app: Application, settings: Settings) -> AsyncIterator[None]:
    """
    Record the requests of `app` within the context, if the settings say so.

    Raises:
        TracesError: if the library is not installed.
    """
    if not settings.traces:
        yield
        return
    if (advice := missing_of("traces")) is not None:
        raise TracesError(f"LAKEPROOF_TRACES is 1: {advice}")
    from lakeproof.open_telemetry import OpenTelemetry

    tracer = OpenTelemetry()
    app.first = TracedRequests(app.first, tracer)
    try:
        yield
    finally:
        await asyncio.to_thread(tracer.close)
