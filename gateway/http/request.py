# SPDX-License-Identifier: Apache-2.0
"""
What all routes need of a request: its credential, its body, and the check of access.

The access rules judge access to a tenant's log, lineage and configuration like a request for a table, with the view
that the route gives of it; policies are not evaluated.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar
from urllib.parse import urlsplit

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from gateway.commit.gateway import Gateway
from gateway.commit.judgement import JudgedRequest
from gateway.commit.requests import parse_content_length, read_body
from gateway.errors import BadRequestError
from gateway.http.asked import credentials_of
from gateway.http.model_errors import not_of_model
from gateway.http.server.clients import OF_PROXIES, parse_address
from gateway.identity import Credentials, Principal
from gateway.policy.access import NOTHING, Grant
from gateway.policy.variables import CommitView, RequestView

M = TypeVar("M", bound=BaseModel)


def credentials(request: Request) -> Credentials:
    """
    Return the credentials as the client sent them: the Authorization header, or an X-Api-Key as if it were a bearer
    token, and the client certificate of the connection.

    Raises:
        BadRequestError: if there is more than one header: a proxy or another server might use another one than we do.
    """
    return credentials_of(request.scope)


async def authenticate(request: Request) -> tuple[Gateway, Principal]:
    """Authenticate the caller, once per request and before its body is read."""
    gateway: Gateway = request.app.state.gateway
    if not hasattr(request.state, "caller"):
        request.state.caller = await gateway.authenticator.authenticate(credentials(request))
    caller: Principal = request.state.caller
    return gateway, caller


async def body_of(request: Request, *, size_bytes_max: int) -> bytes:
    """
    Return the whole body of a request.

    Raises:
        TooLargeError: as soon as it is known to be over the cap; the rest is not read.
        BadRequestError: if the client hung up, or sent less than it declared.
    """
    content_length = parse_content_length(request.headers.get("content-length"))
    return await read_body(chunks(request), content_length=content_length, size_bytes_max=size_bytes_max)


def parse_model(model: type[M], body: bytes) -> M:
    """
    Return a body as `model` has it.

    Raises:
        BadRequestError: if it is not of that shape; names the field.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise not_of_model(error, whole="body", model=model) from error


def has_own_origin(request: Request) -> bool | None:
    """
    Return whether a page of this site has sent a request, by its Origin (RFC 6454); None if it has none.

    The site is what the browser has asked for: `Host`, which proxies pass on, over TLS if the request came so. Without
    TLS the scheme is not compared: a proxy that is not named (`LAKEPROOF_TRUSTED_PROXIES`) may have ended it.
    """
    origin = request.headers.get("origin")
    if origin is None:
        return None
    try:
        found = urlsplit(origin)
    except ValueError:
        return False  # what is no origin is not ours
    is_plain = found.scheme != "https" and request.url.scheme == "https"
    return found.netloc == request.headers.get("host", "") and not is_plain


def is_from_this_machine(request: Request) -> bool:
    """
    Return whether a request comes from loopback and through no proxy.

    Behind a proxy on this machine all requests come from loopback: only direct ones are the operator's.
    """
    address = parse_address(request.client.host) if request.client else None
    is_forwarded = any(name.decode() in request.headers for name in OF_PROXIES)
    return address is not None and address.is_loopback and not is_forwarded


async def chunks(request: Request) -> AsyncIterator[bytes]:
    """
    Yield the body as it arrives.

    Raises:
        BadRequestError: if the client hangs up before its end.
    """
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect as error:
        raise BadRequestError("the connection was closed before the end of the body", field="body") from error


async def check_access(
    gateway: Gateway,
    caller: Principal,
    request: Request,
    view: CommitView,
    *,
    grant: Grant = NOTHING,
    retired: str | None = None,
) -> int:
    """
    Check that access rules permit what `view` shows, and return the control index that it was judged by.

    `grant` is the key that the request would issue, `retired` the access rule that it would take out of force.

    Raises:
        ForbiddenError: if no rule permits it, or one forbids it.
        UnavailableError: if access could not be judged.
    """
    state = await gateway.rules_in_force(caller)
    judged = JudgedRequest(
        commit=view,
        principal=caller,
        request=RequestView(method=request.method, path=request.url.path),
        grant=grant,
        retired=retired,
    )
    judgement = await gateway.judge.access(state, judged)
    await gateway.check_permitted(caller, judgement, operation=view.operation, target=None)
    return state.as_of
