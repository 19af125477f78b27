# SPDX-License-Identifier: Apache-2.0
"""
`POST /mcp`: the Model Context Protocol, with an API key or token as every other route takes it.
"""

from __future__ import annotations

import asyncio
from importlib import import_module

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from gateway.agents.messages import BODY_SIZE_BYTES_MAX, refusal_of
from gateway.errors import ForbiddenError
from gateway.http.request import authenticate, body_of, has_own_origin

router = APIRouter(include_in_schema=False)


@router.post("/mcp")
async def speak(request: Request) -> Response:
    """Answer one message of an agent; a browser's must come from a page of this site (the protocol's own advice)."""
    if has_own_origin(request) is False:
        raise ForbiddenError("expected a message of no page, or of a page of this site")
    await authenticate(request)
    body = await body_of(request, size_bytes_max=BODY_SIZE_BYTES_MAX)
    if (refused := refusal_of(body)) is not None:
        return JSONResponse(refused, status_code=400)
    # The SDK takes most of a second to import, and memory: a gateway that no agent asks has neither. It is imported in
    # a thread, so that others are answered meanwhile.
    server = await asyncio.to_thread(import_module, "gateway.agents.server")
    answer: Response = server.AgentAnswer(body)
    return answer
