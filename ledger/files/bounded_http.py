# SPDX-License-Identifier: Apache-2.0
"""
HTTP requests to servers that others run, with a limit on the response.

Guarantee: whatever the URL, the server and the response are, `post` holds no more than the limit and one network read
in memory, and returns a response or raises `NoResponseError`. The caller limits the time (`asyncio.timeout`).

The limit counts the bytes that arrive, so a response must not be compressed: a few kilobytes can expand to any number
of megabytes. Compression is neither requested nor accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from ledger.errors import FormatError, LedgerError

PORT_MAX: Final = 65_535
_PLAIN: Final = frozenset({"", "identity"})
_NO_ADDRESS: Final = (httpx.InvalidURL, ValueError, OverflowError)
"""What an unusable URL raises, when it is parsed or when its host or port is used."""


class NoResponseError(LedgerError):
    """A request cannot be sent, or has no response within the limits; says why, and nothing of the URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A server's response; `content_type` is lower-case and without parameters."""

    status: int
    content_type: str
    body: bytes


async def post(
    client: httpx.AsyncClient, url: str, content: bytes, *, headers: Mapping[str, str], size_bytes_max: int
) -> HttpResponse:
    """
    Return the response of the server at `url` to `content`. Redirects are not followed, and cookies are not kept.

    Raises:
        NoResponseError: if it cannot be reached, or its response is compressed or over `size_bytes_max`.
    """
    request_headers = {**headers, "Accept-Encoding": "identity"}
    body = bytearray()
    try:
        async with client.stream(
            "POST", url, content=content, headers=request_headers, follow_redirects=False
        ) as response:
            if (encoding := response.headers.get("Content-Encoding", "").strip().lower()) not in _PLAIN:
                raise NoResponseError(f"expected an answer that is not encoded, found {encoding!r:.100}")
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > size_bytes_max:
                    raise NoResponseError(f"expected an answer of at most {size_bytes_max} bytes, found one over that")
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            return HttpResponse(status=response.status_code, content_type=kind, body=bytes(body))
    except httpx.HTTPError as error:
        raise NoResponseError(f"{type(error).__name__}: {error}") from error
    except _NO_ADDRESS as error:
        raise NoResponseError(f"{type(error).__name__}: an unusable URL") from error
    except ExceptionGroup as group:  # one error for each address of the host
        failed, other = group.split((OSError, *_NO_ADDRESS))
        if failed is None or other is not None:
            raise
        raise NoResponseError("an unusable URL: none of its addresses can be used") from group
    finally:
        client.cookies.clear()  # a server could set any number of them over time


def check_url(url: str) -> None:
    """
    Check that `url` can be used for a request, as far as that is known without sending one.

    Raises:
        FormatError: if not; says nothing of the URL, which may hold credentials.
    """
    try:
        parsed = httpx.URL(url)
        # As the socket requires it, which has other rules than the URL: a label has 1 to 63 characters.
        parsed.raw_host.decode("ascii").encode("idna")
        scheme, host, port = parsed.scheme, parsed.host, parsed.port
    except _NO_ADDRESS as error:
        raise FormatError("URL", expected="a usable URL", found=type(error).__name__) from None
    if scheme not in {"http", "https"} or not host:
        raise FormatError("URL", expected="http:// or https:// and a host", found="another scheme, or no host")
    if port is not None and not 1 <= port <= PORT_MAX:
        raise FormatError("URL", expected=f"a port from 1 to {PORT_MAX}", found=port)
