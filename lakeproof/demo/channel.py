# SPDX-License-Identifier: Apache-2.0
"""
The channel that takes the alerts of the scene: a webhook on loopback that keeps the messages (Slack's JSON).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response

from lakeproof.serving.duties.gateway import Server
from lakeproof.serving.listening import listen


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """The address of the channel, and the messages it took, in order."""

    url: str
    messages: list[dict[str, Any]] = field(default_factory=list)


@asynccontextmanager
async def open_channel() -> AsyncIterator[Channel]:
    """
    Yield a channel that listens on a free port of loopback.
    """
    listener = listen("127.0.0.1", 0)
    channel = Channel(url=f"http://127.0.0.1:{listener.getsockname()[1]}/hook")
    app = FastAPI(openapi_url=None)

    @app.post("/hook")
    async def take(request: Request) -> Response:
        channel.messages.append(await request.json())
        return PlainTextResponse("ok")

    server = Server(uvicorn.Config(app, log_config=None, access_log=False, lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield channel
    finally:
        server.should_exit = True
        await serving
        listener.close()
