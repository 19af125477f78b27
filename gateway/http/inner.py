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

from gateway.identifiers import NAMESPACE_SEPARATOR, Target

Headers = Sequence[tuple[bytes, bytes]]


def inner_request(request: Request, query: Mapping[str, object], *, headers: Headers) -> Request:
    """
    Return a request for a route, which came as `request` did, with these headers; parameters that are empty are left
    out.
    """
    sent = {name: value for name, value in query.items() if value not in (None, "")}
    scope = {**request.scope, "headers": list(headers), "query_string": urlencode(sent).encode("ascii")}
    return Request(scope, request.receive)


async def ask(
    request: Request,
    answer: Callable[..., Awaitable[Response]],
    *names: str,
    query: Mapping[str, object],
    headers: Headers,
) -> Any:
    """
    Return what a route answers, as JSON; `names` are those in its path.

    Raises as the route does.
    """
    return orjson.loads((await answer(inner_request(request, query, headers=headers), *names)).body)


def names_in_path(target: Target) -> tuple[str, str, str]:
    """
    Return alias, namespace and name of an object as a path has them: percent-encoded, levels separated by %1F.
    """
    levels = NAMESPACE_SEPARATOR.join(target.namespace)
    alias, namespace, name = (quote(part, safe="") for part in (target.alias, levels, target.name or ""))
    return alias, namespace, name
