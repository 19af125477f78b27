# SPDX-License-Identifier: Apache-2.0
"""
The one place where errors become answers, whichever way their request came.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from gateway.commit.gateway import Gateway
from gateway.errors import (
    BadRequestError,
    GatewayError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedEncodingError,
    UpstreamAnswerError,
)
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

_log = logging.getLogger(__name__)


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
    return error_answer(error.status, error.kind, text, headers, to=request)


async def ledger_error(request: Request, error: Exception) -> Response:
    """
    Return the answer to an error of the log that no handler has mapped.
    """
    if isinstance(error, LedgerError) and (answer := answer_to(error)) is not None:
        return await gateway_error(request, answer)
    _log.error("%s %s: %s", request.method, _route(request), error)
    return error_answer(500, "InternalServerError", "the log refused; the gateway's own log says why", to=request)


async def validation_error(request: Request, error: Exception) -> Response:
    """
    Return the answer to a body that is not of its model.
    """
    if not isinstance(error, RequestValidationError):
        raise error
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if part not in {"body", "query", "path"})
    return await gateway_error(request, BadRequestError(first["msg"], field=field or "body"))


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
    return error_answer(error.status_code, kind, str(error.detail), error.headers, to=request)


async def unexpected_error(request: Request, error: Exception) -> Response:
    """
    Return the last resort: the client learns no internals, the operator gets the traceback.
    """
    _log.error("%s %s failed", request.method, _route(request), exc_info=error)
    return error_answer(500, "InternalServerError", "the gateway failed; its log says why", to=request)


def _route(request: Request) -> str:
    """The route's template: a bounded set, unlike paths."""
    route: Any = request.scope.get("route")
    return getattr(route, "path", "unrouted")
