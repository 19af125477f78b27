# SPDX-License-Identifier: Apache-2.0
"""
Routes for operators: health (`/health`, `/health/live`, `/health/ready`), metrics (`/metrics`), and the description of
the API (`/openapi.json`, also `/v1/openapi.json`, and `/docs` for people).
"""

from __future__ import annotations

import hmac

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Measures
from gateway.errors import ForbiddenError, UnauthorizedError, UnavailableError
from gateway.http.api_page import CONTENT_POLICY, api_page
from gateway.http.readiness import Readiness
from gateway.http.request import is_from_this_machine

router = APIRouter()


@router.get("/health")
async def health(request: Request) -> Response:
    """Answer 200 if the database answers, 503 otherwise."""
    gateway: Gateway = request.app.state.gateway
    async with gateway.database.as_role(gateway.roles.gateway) as connection:
        await connection.execute("SELECT 1")
    return JSONResponse({"status": "ok"})


@router.get("/health/live")
async def live(_: Request) -> Response:
    """Answer 200: this process answers requests, whatever the state of what it needs."""
    return JSONResponse({"status": "live"})


@router.get("/health/ready")
async def ready(request: Request) -> Response:
    """Answer 200 if commits can be taken now; 503 with the reasons otherwise."""
    readiness: Readiness = request.app.state.readiness
    if reasons := await readiness.reasons():
        raise UnavailableError(f"not ready: {'; '.join(reasons)}")
    return JSONResponse({"status": "ready"})


@router.get("/openapi.json")
async def describe(request: Request) -> Response:
    """Answer with the description of the gateway's own routes."""
    return JSONResponse(request.app.state.openapi)


@router.get("/v1/openapi.json")
async def describe_at_first_place(request: Request) -> Response:
    """Answer with the same: it was at this place first."""
    return await describe(request)


@router.get("/docs")
async def show_description(request: Request) -> Response:
    """Answer with the same as a page for people, which loads nothing."""
    headers = {"Content-Security-Policy": CONTENT_POLICY}
    return HTMLResponse(api_page(request.app.state.openapi), headers=headers)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Answer with the metrics of the gateway and the projections, to loopback or to clients with the token."""
    _check_scraper(request)
    measures: Measures = request.app.state.measures
    gateway: Gateway = request.app.state.gateway
    own = measures.text() + gateway.judge.failed_programs.text()
    return PlainTextResponse(
        await request.app.state.metrics(own), media_type="text/plain; version=0.0.4; charset=utf-8"
    )


def _check_scraper(request: Request) -> None:
    token: str | None = request.app.state.metrics_token
    if token is not None:
        presented = request.headers.get("authorization", "")
        if not hmac.compare_digest(presented.encode("latin-1"), f"Bearer {token}".encode()):
            raise UnauthorizedError("expected the token of LAKEPROOF_METRICS_TOKEN as a bearer token")
        return
    if not is_from_this_machine(request):
        raise ForbiddenError(
            "metrics are for loopback alone, and not through a proxy; set LAKEPROOF_METRICS_TOKEN to scrape otherwise"
        )
