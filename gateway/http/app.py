# SPDX-License-Identifier: Apache-2.0
"""
The gateway as a FastAPI application.

Routes are thin: they parse a request, call `commit_flow.commit`, `reads` or `admin`, and build the answer. The most
frequent requests do not pass through FastAPI (`hot_paths.py`). Errors become answers in `error_answers.py`.
Paths with names of tables (`RAW`) are routed as they were sent, still percent-encoded: `%2F` in a name is no separator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Measures
from gateway.errors import GatewayError
from gateway.http import (
    access_routes,
    admin_routes,
    decision_routes,
    evidence_routes,
    finding_routes,
    graph_routes,
    graphql_routes,
    iceberg_routes,
    lineage_reading_routes,
    lineage_routes,
    log_entry_routes,
    log_routes,
    operating_routes,
    policy_file_routes,
    policy_replay_routes,
    policy_routes,
    restriction_routes,
    status_routes,
    table_routes,
    tenant_routes,
    timeline_routes,
    walk_routes,
    webhook_routes,
)
from gateway.http.decoding import DecodesBodies
from gateway.http.error_answers import (
    ErrorPage,
    answered,
    gateway_error,
    http_error,
    ledger_error,
    unexpected_error,
    validation_error,
)
from gateway.http.evidence_routes import MakesEvidence
from gateway.http.hot_paths import ICEBERG, PATH_LENGTH_MAX, HotPaths
from gateway.http.lineage_reading_routes import ReadsStatus
from gateway.http.log_entry_routes import ReadsAnchors
from gateway.http.looking.figures import Figures
from gateway.http.looking.following import Followers
from gateway.http.openapi import openapi
from gateway.http.operating_routes import ReadsProjections
from gateway.http.peers import Peers
from gateway.http.readiness import Readiness
from gateway.http.request_context import IdentifiedAnswers, RequestContext
from gateway.http.tenant_routes import ReadsDeadLetters
from gateway.jobs import Jobs
from ledger.errors import LedgerError

OWN: Final = (
    admin_routes.router,
    access_routes.router,
    policy_routes.router,
    policy_file_routes.router,
    policy_replay_routes.router,
    restriction_routes.router,
    tenant_routes.router,
    operating_routes.router,
    lineage_routes.router,
    log_routes.router,
    log_entry_routes.router,
    decision_routes.router,
    evidence_routes.router,
    finding_routes.router,
    table_routes.router,
    walk_routes.router,
    graph_routes.router,
    timeline_routes.router,
    lineage_reading_routes.router,
    graphql_routes.router,
    webhook_routes.router,
    status_routes.router,
)
"""The gateway's own routes: all except the catalog's."""
RAW: Final = (ICEBERG, b"/v1/tables/", b"/v1/impact/", b"/v1/traverse/", b"/v1/lineage/", b"/console/tables/")
"""How paths begin in which a name may contain a slash, as `%2F`."""
_RAW_DECODED: Final = tuple(each.decode() for each in RAW)
_SETTINGS: Final[Mapping[str, Any]] = {
    "title": "Lakeproof gateway",
    "docs_url": None,
    "redoc_url": None,
    "openapi_url": None,
    "redirect_slashes": False,
}
_INCLUDED: Final[dict[int, BaseRoute]] = {}
"""By the id of each router, which its value keeps."""


class Application(FastAPI):
    """A FastAPI application and what requests come to before it (`first`)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.first: ASGIApp = super().__call__

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if scope["type"] != "http":
            await self.first(scope, receive, send)
            return
        with RequestContext(scope):
            await self.first(scope, receive, send)


def create_app(
    gateway: Gateway,
    *,
    measures: Measures,
    metrics: Callable[[str], Awaitable[str]],
    metrics_token: str | None,
    dead_letters: ReadsDeadLetters,
    anchors: ReadsAnchors | None = None,
    status: ReadsStatus | None = None,
    projections: ReadsProjections | None = None,
    evidence: MakesEvidence | None = None,
    peers: Peers | None = None,
    pages: Sequence[APIRouter] = (),
    error_page: ErrorPage | None = None,
) -> Application:
    """
    Return the application over `gateway`.

    `metrics` is given this process's metrics in Prometheus' text format and returns all that are scraped;
    `metrics_token` is what a scraper must present (None: only loopback may scrape). `dead_letters` reads those of a
    tenant, `anchors` how far its log is anchored, `status` how far everything is that follows it, and `projections` how
    far read models are (None: that is not told). `evidence` makes evidence (None: there is none). `peers` are the other
    processes of the same gateway (None: there are none). `pages` are the routes of people and agents; `error_page`
    shows people an error that no page has answered (None: they are told as programs are).
    """
    app = Application(**_SETTINGS)
    app.state.gateway = gateway
    app.state.measures = measures
    app.state.metrics = metrics
    app.state.metrics_token = metrics_token
    app.state.dead_letters = dead_letters
    app.state.anchors = anchors
    app.state.status = status
    app.state.projections = projections
    app.state.evidence = evidence
    app.state.jobs = Jobs(gateway.database, gateway.roles.gateway, new_id=gateway.new_group_id)
    app.state.followers = Followers()
    app.state.figures = Figures()
    app.state.reading_drops = asyncio.Lock()
    app.state.linting_rules = asyncio.Lock()
    app.state.error_page = error_page
    app.state.openapi = _own_openapi()
    app.state.readiness = Readiness(gateway)
    app.router.routes.extend(map(_included, (iceberg_routes.router, *OWN, *pages)))
    app.add_exception_handler(GatewayError, gateway_error)
    app.add_exception_handler(LedgerError, ledger_error)
    app.add_exception_handler(RequestValidationError, validation_error)
    app.add_exception_handler(HTTPException, http_error)
    app.add_exception_handler(Exception, unexpected_error)
    app.add_middleware(RawPaths)
    app.add_middleware(DecodesBodies, size_bytes_max=gateway.intake.body_size_bytes_max)
    app.first = HotPaths(IdentifiedAnswers(app.first), gateway=gateway, measures=measures, peers=peers)
    return app


def _included(router: APIRouter) -> BaseRoute:
    """
    Return `router` as a route of any application.

    At the first request that comes to it, FastAPI prepares its routes, a third of a millisecond each: once a process.
    """
    if (known := _INCLUDED.get(id(router))) is None:
        app = FastAPI(**_SETTINGS)
        app.include_router(router)
        (known,) = app.router.routes
        _INCLUDED[id(router)] = known
    return known


@cache
def _own_openapi() -> dict[str, Any]:
    return openapi(OWN)


class RawPaths:
    """
    Routes paths with names by their raw bytes; handlers decode each segment separately.

    A client that percent-encodes the slash of the prefix (`iceberg%2Falias`) reaches the same route.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            if raw[: len(ICEBERG) + 2].lower().startswith(b"/v1/iceberg%2f"):
                raw = ICEBERG + raw[len(ICEBERG) + 2 :]
            if len(raw) > PATH_LENGTH_MAX:
                text = f"expected a path of at most {PATH_LENGTH_MAX} bytes"
                answer = await answered(Request(scope), 414, "BadRequestException", text)
                await answer(scope, receive, send)
                return
            if raw.startswith(RAW):
                scope = {**scope, "path": raw.decode("ascii", "replace"), "raw_path": raw}
            elif scope["path"].startswith(_RAW_DECODED):
                # With another spelling of the prefix, it would be routed after decoding `%2F`.
                answer = await http_error(Request(scope), HTTPException(404))
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
