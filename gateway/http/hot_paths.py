# SPDX-License-Identifier: Apache-2.0
"""
The way of the most frequent requests past FastAPI and its middlewares: to load a table, to look whether one exists, to
commit to one, and for the configuration of a catalog.

Their routes are FastAPI's too, and both ways call the same functions, also for errors: an answer does not tell which
way its request came. Here only what is usual is taken; anything else, however it is spelled or encoded, goes on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from fastapi import Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.commit.gateway import Gateway
from gateway.commit.metrics import Measures
from gateway.errors import GatewayError, UpstreamAnswerError
from gateway.http.asked import Answer, Asked
from gateway.http.catalog_requests import commit_table, config, load_table, table_exists
from gateway.http.error_answers import gateway_error, ledger_error, unexpected_error, upstream_answer
from gateway.http.iceberg_routes import router
from gateway.http.operations import BY_ID
from gateway.http.peers import Peers
from gateway.http.request_context import id_header, identified
from ledger.errors import LedgerError

ICEBERG: Final = b"/v1/iceberg/"
PATH_LENGTH_MAX: Final = 16 * 1024

_TABLE: Final = re.compile(ICEBERG + rb"([!-.0-~]+)/namespaces/([!-.0-~]+)/tables/([!-.0-~]+)")
"""A path of a table: its segments are not empty, and printable ASCII without a slash."""
_READS: Final[dict[str, Callable[..., Awaitable[Answer]]]] = {
    "GET": load_table,
    "HEAD": table_exists,
}
_ENCODING: Final = b"content-encoding"


class HotPaths:
    """Answers the most frequent requests itself, and passes all others on."""

    def __init__(self, app: ASGIApp, *, gateway: Gateway, measures: Measures, peers: Peers | None = None) -> None:
        self._app = app
        self._gateway = gateway
        self._measures = measures
        self._peers = peers
        self._of_tables = {**_READS, "POST": self._commit}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._find(scope)
        if found is None:
            await self._app(scope, receive, send)
            return
        answering, path, scope["route"] = found
        asked = Asked(scope, receive, path=path, gateway=self._gateway, measures=self._measures)
        try:
            answer = await answering(asked)
        except Exception as error:
            response = await _answer_to(Request({**scope, "path": path}, receive), error)
            await response(scope, receive, identified(send))
            if not isinstance(error, GatewayError | LedgerError):
                raise  # what serves us logs it, too
            return
        await send({"type": "http.response.start", "status": answer.status, "headers": (*answer.headers, *id_header())})
        await send({"type": "http.response.body", "body": answer.body})

    def _find(self, scope: Scope) -> tuple[Callable[[Asked], Awaitable[Answer]], str, Any] | None:
        """What answers a request, its path and its route; None if it is not one of the usual ones."""
        if scope["type"] != "http" or scope.get("root_path"):
            return None
        raw: bytes = scope.get("raw_path") or b""
        method: str = scope["method"]
        if len(raw) > PATH_LENGTH_MAX:
            return None
        if raw == b"/v1/config" and method == "GET":
            return config, scope["path"], _CONFIG_ROUTE
        if (of_table := self._of_tables.get(method)) is None or (match := _TABLE.fullmatch(raw)) is None:
            return None
        for name, _ in scope["headers"]:
            if name == _ENCODING:
                return None
        alias, namespace, table = match.groups()
        answering = partial(of_table, alias=alias.decode(), namespace=namespace.decode(), table=table.decode())
        return answering, raw.decode(), _TABLE_ROUTES[method]

    async def _commit(self, asked: Asked, alias: str, namespace: str, table: str) -> Answer:
        passed_on = None if self._peers is None else await self._peers.answer(asked)
        return passed_on or await commit_table(asked, alias, namespace, table)


async def _answer_to(request: Request, error: Exception) -> Response:
    match error:
        case UpstreamAnswerError():
            return upstream_answer(request, error)
        case GatewayError():
            return await gateway_error(request, error)
        case LedgerError():
            return await ledger_error(request, error)
    return await unexpected_error(request, error)


def _route(operation_id: str) -> Any:
    operation = BY_ID[operation_id]
    named = (operation.route, operation.method)
    return next(route for route in router.routes if (route.path, *route.methods) == named)  # type: ignore[attr-defined]


_CONFIG_ROUTE: Final = _route("getConfig")
_TABLE_ROUTES: Final = {
    "GET": _route("loadTable"),
    "HEAD": _route("tableExists"),
    "POST": _route("updateTable"),
}
