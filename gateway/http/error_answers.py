# SPDX-License-Identifier: Apache-2.0
"""
The one place where errors become answers, whichever way their request came: a page to a browser that asks the console
for one, and JSON to everybody else.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from gateway.commit.gateway import Gateway
from gateway.errors import (
    GatewayError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedEncodingError,
    UpstreamAnswerError,
)
from gateway.http.model_errors import first_of
from gateway.log_errors import answer_to
from ledger.errors import LedgerError, UnsafeServerError
from ledger.format.sealing import SubjectKeysError

FOR_OPERATORS: Final = (UnsafeServerError, SubjectKeysError)
"""Errors that only the operator can resolve. Their texts describe this machine, so clients do not receive them."""
FOR_CLIENTS: Final = "the log cannot be used at present; the gateway's own log says why"

_IN_NO_NAMESPACE: Final = re.compile(r"/v1/iceberg/[^/]+/namespaces//(table|view)s/[^/]+")
"""
A table or view of the empty namespace. Java's client asks for one if `sales.files` is not there: it could be the
metadata table `files` of a table `sales`. Only after NoSuchTableException does it create the table `sales.files`.
"""

PAGES: Final = "/console"
"""Where the pages for people are."""
ErrorPage = Callable[[Request, int, str], Awaitable[Response]]
"""Returns the page of an error, given its request, status and message."""

_log = logging.getLogger(__name__)


async def answered(
    request: Request, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    """
    Return an error as whoever sent the request reads it: as `error_answer` does, or as a page.
    """
    show: ErrorPage | None = getattr(request.app.state, "error_page", None)
    if show is None or not asks_for_page(request):
        return error_answer(status, kind, message, headers, to=request)
    page = await show(request, status, message)
    page.headers.update(headers or {})
    return page


def asks_for_page(request: Request) -> bool:
    """
    Return whether a request is for a page of the console, from a browser that shows one (RFC 9110, section 12.5.1).
    """
    path: str = request.scope["path"]
    is_of_pages = path == PAGES or path.startswith(f"{PAGES}/")
    return is_of_pages and request.method != "HEAD" and "text/html" in request.headers.get("accept", "").lower()


def error_answer(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None, *, to: Request | None = None
) -> Response:
    """
    Return an error in the form of the Iceberg REST specification (IcebergErrorResponse); for HEAD, only its status.
    """
    if to is not None and to.method == "HEAD":
        return Response(status_code=status, headers=headers)
    error = {"message": message, "type": kind, "code": status}
    return JSONResponse({"error": error}, status_code=status, headers=headers)


def upstream_answer(request: Request, error: UpstreamAnswerError) -> Response:
    """
    Return an upstream's own answer, which certainly refuses.
    """
    headers = {} if error.retry_after is None else {"Retry-After": error.retry_after}
    body = b"" if request.method == "HEAD" else error.body
    return Response(body, status_code=error.status, headers=headers, media_type=error.content_type)


async def gateway_error(request: Request, error: Exception) -> Response:
    """
    Return the answer to an error of the gateway's own.
    """
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
    return await answered(request, error.status, error.kind, text, headers)


async def ledger_error(request: Request, error: Exception) -> Response:
    """
    Return the answer to an error of the log that no handler has mapped.
    """
    if isinstance(error, LedgerError) and (answer := answer_to(error)) is not None:
        return await gateway_error(request, answer)
    _log.error("%s %s: %s", request.method, _route(request), error)
    return await answered(request, 500, "InternalServerError", "the log refused; the gateway's own log says why")


async def validation_error(request: Request, error: Exception) -> Response:
    """
    Return the answer to a body that is not of its model.
    """
    if not isinstance(error, RequestValidationError):
        raise error
    return await gateway_error(request, first_of(error.errors(), whole="body", skipped=("body", "query", "path")))


async def http_error(request: Request, error: Exception) -> Response:
    """
    Return the answer to a request that has no route.
    """
    if not isinstance(error, HTTPException):
        raise error
    kinds: dict[int, str] = {404: "NotFoundException", 405: "UnsupportedOperationException"}
    kind = kinds.get(error.status_code, "BadRequestException")
    if error.status_code == 404 and (named := _IN_NO_NAMESPACE.fullmatch(request.scope["path"])):
        kind = f"NoSuch{named[1].capitalize()}Exception"
    message = _said_of_address(request, error.status_code, error.headers or {}) or str(error.detail)
    return await answered(request, error.status_code, kind, message, error.headers)


async def unexpected_error(request: Request, error: Exception) -> Response:
    """
    Return the last resort: the client learns no internals, the operator gets the traceback.
    """
    _log.error("%s %s failed", request.method, _route(request), exc_info=error)
    return await answered(request, 500, "InternalServerError", "the gateway failed; its log says why")


def _said_of_address(request: Request, status: int, headers: Mapping[str, str]) -> str | None:
    """Return what is told of an address that nothing answers, or not by this method."""
    path = f"{request.scope['path']!r:.200}"
    match status:
        case 404 if asks_for_page(request):
            return f"expected the address of a page of the console, found {path}"
        case 404:
            return f"expected a path that this gateway answers, found {path}: /docs lists them"
        case 405:
            return f"expected {headers.get('Allow', 'another method')} at {path}, found {request.method:.20}"
    return None


def _route(request: Request) -> str:
    """The route's template: a bounded set, unlike paths."""
    route: Any = request.scope.get("route")
    return getattr(route, "path", "unrouted")
