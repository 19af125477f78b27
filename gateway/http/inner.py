# SPDX-License-Identifier: Apache-2.0
"""
Routes of the gateway asked from within: what pages and agents show is what the routes answer to the same credentials.

So nobody sees there what is not answered over HTTP, and a right is judged in one place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from fastapi import Request
from fastapi.responses import Response
from starlette.types import Message

from gateway.identifiers import NAMESPACE_SEPARATOR, Target

Headers = Sequence[tuple[bytes, bytes]]


def inner_request(
    request: Request, query: Mapping[str, object], *, headers: Headers, body: bytes | None = None
) -> Request:
    """
    Return a request for a route, which came as `request` did, with these headers; parameters that are empty are left
    out, a list is one parameter for each item. `body` is sent in place of that of `request`, which may have been read.
    """
    sent = {name: value for name, value in query.items() if value not in (None, "")}
    scope = {**request.scope, "headers": list(headers), "query_string": urlencode(sent, doseq=True).encode("ascii")}
    if body is None:
        return Request(scope, request.receive)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


async def ask(
    request: Request,
    answer: Callable[..., Awaitable[Response]],
    *names: str,
    query: Mapping[str, object],
    headers: Headers,
    body: object = None,
) -> Any:
    """
    Return what a route answers, as JSON, None for an answer without content; `names` are those in its path, `body` is
    what is sent to it as JSON.

    Raises as the route does.
    """
    sent = None if body is None else orjson.dumps(body)
    answered = (await answer(inner_request(request, query, headers=headers, body=sent), *names)).body
    return orjson.loads(answered) if answered else None


def names_in_path(target: Target) -> tuple[str, str, str]:
    """
    Return alias, namespace and name of an object as a path has them: percent-encoded, levels separated by %1F.
    """
    levels = NAMESPACE_SEPARATOR.join(target.namespace)
    alias, namespace, name = (quote(part, safe="") for part in (target.alias, levels, target.name or ""))
    return alias, namespace, name
