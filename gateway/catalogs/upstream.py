# SPDX-License-Identifier: Apache-2.0
"""
Requests to an upstream over HTTP: each is sent once, and the reply says how far it got. The one module that uses httpx.

Connections go only where the operator's rules allow, to the very address that was checked (`projections/egress`).

Guarantee: `NeverSent` only if no byte of the request was handed to the network. That is not guessed from the type of an
error: the transport reports when it begins to send. Redirects are not followed, proxies of the environment are not
used, and an answer is read up to a cap and a deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from gateway.catalogs.replies import Answered, NeverSent, Refused, Reply, Unanswered
from projections.egress.client import open_client as open_checked
from projections.egress.connecting import Resolve, resolve_host
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError

ANSWER_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
CONNECTIONS_MAX: Final = 512
IDLE_CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 2.0
"""
How long a connection is kept for the next request. Short, since an upstream that closes it just when it is used leaves
the outcome unknown.
"""
NOT_ALLOWED: Final = (
    "expected a host with an address that LAKEPROOF_UPSTREAMS_ALLOWED permits, found none: check the catalog's uri, or "
    "have the operator add its host to that setting"
)
_CAUSE_LENGTH_MAX: Final = 200


@asynccontextmanager
async def open_client(egress: EgressRules, *, resolve: Resolve = resolve_host) -> AsyncIterator[httpx.AsyncClient]:
    """
    Yield the client that all upstreams of a process share; its connections are closed afterwards.
    """
    limits = httpx.Limits(
        max_connections=CONNECTIONS_MAX, max_keepalive_connections=IDLE_CONNECTIONS_MAX, keepalive_expiry=IDLE_S
    )
    async with open_checked(egress, limits=limits, resolve=resolve) as client:
        yield client


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to an upstream: `url` is absolute, `body` is JSON and sent unchanged."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


@dataclass(slots=True)
class _Wire:
    """Whether any byte of one request was handed to the network."""

    is_used: bool = False

    async def trace(self, event: str, _info: Mapping[str, Any]) -> None:
        """Record an event of the transport (httpx, extension `trace`)."""
        if event.endswith("send_request_headers.started"):
            self.is_used = True


async def exchange(client: httpx.AsyncClient, call: Call, *, timeout_s: float) -> Reply:
    """
    Send `call` once and return the reply within `timeout_s`.
    """
    wire = _Wire()
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchange(client, call, wire, timeout_s=timeout_s)
    except TimeoutError:
        cause = f"no whole answer within {timeout_s:g} s"
    except AddressRefusedError:
        # Its own text names the host, and engines receive this text.
        return Refused(cause=NOT_ALLOWED)
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
        # ValueError: a header or URL that has no form on the wire; found before anything is sent.
        cause = _cause_of(error)
    return Unanswered(cause=cause) if wire.is_used else NeverSent(cause=cause)


async def _exchange(client: httpx.AsyncClient, call: Call, wire: _Wire, *, timeout_s: float) -> Reply:
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", **call.headers}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    request = client.build_request(
        call.method,
        call.url,
        headers=headers,
        content=call.body,
        timeout=timeout_s,
        extensions={"trace": wire.trace},
    )
    response = await client.send(request, stream=True)
    try:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > ANSWER_SIZE_BYTES_MAX:
                return Unanswered(cause=f"the upstream's answer is over {ANSWER_SIZE_BYTES_MAX} bytes")
    finally:
        await response.aclose()
    return Answered(
        status=response.status_code,
        body=bytes(body),
        content_type=response.headers.get("content-type", "application/json"),
        retry_after=response.headers.get("retry-after"),
    )


def _cause_of(error: Exception) -> str:
    """A short cause; never contains the URL's query or a header."""
    return f"{type(error).__name__}: {error}"[:_CAUSE_LENGTH_MAX] if str(error) else type(error).__name__
