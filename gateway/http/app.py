# SPDX-License-Identifier: Apache-2.0
"""
The gateway as a FastAPI application, and the one place where errors become answers.

Routes are thin: they parse a request, call `commit_flow.commit`, `reads` or `admin`, and build the answer.
Paths below `/v1/iceberg/` are routed as they were sent, still percent-encoded: `%2F` in a name is not a separator.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Measures
from gateway.errors import BadRequestError, GatewayError, UnauthorizedError, UnavailableError, UnsupportedEncodingError
from gateway.http import admin_routes, iceberg_routes, lineage_routes, log_routes, status_routes, webhook_routes
from gateway.http.decoding import DecodesBodies
from gateway.http.openapi import openapi
from gateway.log_errors import answer_to
from ledger.errors import LedgerError, UnsafeServerError
from ledger.format.sealing import SubjectKeysError

ICEBERG: Final = b"/v1/iceberg/"
PATH_LENGTH_MAX: Final = 16 * 1024
OWN: Final = (
    admin_routes.router,
    lineage_routes.router,
    log_routes.router,
    webhook_routes.router,
    status_routes.router,
)
"""The gateway's own routes: all except the catalog's."""
FOR_OPERATORS: Final = (UnsafeServerError, SubjectKeysError)
"""Errors that only the operator can resolve. Their texts describe this machine, so clients do not receive them."""
FOR_CLIENTS: Final = "the log cannot be used at present; the gateway's own log says why"

_log = logging.getLogger(__name__)


def create_app(
    gateway: Gateway, *, measures: Measures, metrics: Callable[[], Awaitable[str]], metrics_token: str | None
) -> FastAPI:
    """
    Return the application over `gateway`.

    `metrics` returns the projections' metrics in Prometheus' text format; `metrics_token` is what a scraper must
    present (None: only loopback may scrape).
    """
    app = FastAPI(title="Lakeproof gateway", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.gateway = gateway
    app.state.measures = measures
    app.state.metrics = metrics
    app.state.metrics_token = metrics_token
    app.state.openapi = _own_openapi()
    for router in (iceberg_routes.router, *OWN):
        app.include_router(router)
    app.add_exception_handler(GatewayError, _gateway_error)
    app.add_exception_handler(LedgerError, _ledger_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    app.add_middleware(RawIcebergPaths)
    app.add_middleware(DecodesBodies, size_bytes_max=gateway.intake.body_size_bytes_max)
    return app


@cache
def _own_openapi() -> dict[str, Any]:
    return openapi(OWN)


class RawIcebergPaths:
    """
    Routes Iceberg's paths by their raw bytes; handlers decode each segment separately.

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
                await _answer(414, "BadRequestException", text, to=Request(scope))(scope, receive, send)
                return
            if raw.startswith(ICEBERG):
                scope = {**scope, "path": raw.decode("ascii", "replace"), "raw_path": raw}
            elif scope["path"].startswith(ICEBERG.decode()):
                # With another spelling of the prefix, it would be routed after decoding `%2F`.
                await _answer(404, "NotFoundException", "Not Found", to=Request(scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _answer(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None, *, to: Request | None = None
) -> Response:
    """An error in the form of the Iceberg REST specification (IcebergErrorResponse); for HEAD, only its status."""
    if to is not None and to.method == "HEAD":
        return Response(status_code=status, headers=headers)
    error = {"message": message, "type": kind, "code": status}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


async def _gateway_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, GatewayError):
        raise error
    headers: dict[str, str] = {}
    text = str(error)
    if isinstance(error, UnavailableError):
        headers["Retry-After"] = str(error.retry_after_s)
        if isinstance(error.__cause__, FOR_OPERATORS):
            _log.error("%s %s: %s", request.method, _route(request), error.__cause__)
            text = text.replace(str(error.__cause__), FOR_CLIENTS)
    if isinstance(error, UnsupportedEncodingError):
        headers["Accept-Encoding"] = "gzip"  # RFC 9110, section 12.5.3
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
        gateway: Gateway = request.app.state.gateway
        await gateway.refusals.unauthenticated(f"{request.method} {_route(request)}")
    return _answer(error.status, error.kind, text, headers, to=request)


async def _ledger_error(request: Request, error: Exception) -> Response:
    """An error of the log that no handler has mapped."""
    if isinstance(error, LedgerError) and (answer := answer_to(error)) is not None:
        return await _gateway_error(request, answer)
    _log.error("%s %s: %s", request.method, _route(request), error)
    return _answer(500, "InternalServerError", "the log refused; the gateway's own log says why", to=request)


async def _validation_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path"})
    return await _gateway_error(request, BadRequestError(first["msg"], field=field or "body"))


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kinds: dict[int, str] = {404: "NotFoundException", 405: "UnsupportedOperationException"}
    kind = kinds.get(error.status_code, "BadRequestException")
    return _answer(error.status_code, kind, str(error.detail), error.headers, to=request)


async def _unexpected_error(request: Request, error: Exception) -> Response:
    """The last resort: the client learns no internals, the operator gets the traceback."""
    _log.error("%s %s failed", request.method, _route(request), exc_info=error)
    return _answer(500, "InternalServerError", "the gateway failed; its log says why", to=request)


def _route(request: Request) -> str:
    """The route's template: a bounded set, unlike paths."""
    route: Any = request.scope.get("route")
    return getattr(route, "path", "unrouted")
