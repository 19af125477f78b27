"""
Asking somebody else's server over HTTP: a request, and an answer that is read up to a limit.

Guarantee: whatever URL, server and answer are, `post` takes up no more than the limit and one read of the network, and
ends in an answer or in `NoResponseError`. How long it may take is for the caller (`asyncio.timeout`).

The limit is on the bytes that arrive, so they must be what counts: a few kilobytes can be compressed from as many
megabytes as one likes. What is compressed is neither asked for nor read.
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
"""What a URL raises that nobody can be asked under, when it is parsed or when its host or port is used."""


class NoResponseError(LedgerError):
    """A server cannot be asked, or has not answered within the limits; says why, and nothing of the URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """What a server has answered; `content_type` is lower-case and without parameters."""

    status: int
    content_type: str
    body: bytes


async def post(
    client: httpx.AsyncClient, url: str, content: bytes, *, headers: Mapping[str, str], size_bytes_max: int
) -> HttpResponse:
    """
    Return what the server at `url` answers to `content`; redirections are not followed, and no cookie is kept.

    Raises:
        NoAnswerError: if it cannot be reached, or its answer is compressed or over `size_bytes_max`.
    """
    asked = {**headers, "Accept-Encoding": "identity"}
    body = bytearray()
    try:
        async with client.stream("POST", url, content=content, headers=asked, follow_redirects=False) as response:
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
        raise NoResponseError(f"{type(error).__name__}: a URL that cannot be asked") from error
    except ExceptionGroup as group:  # of the attempts on each address of a host
        failed, other = group.split((OSError, *_NO_ADDRESS))
        if failed is None or other is not None:
            raise
        raise NoResponseError("a URL that cannot be asked: none of its addresses can be used") from group
    finally:
        client.cookies.clear()  # of those a server may set any number over time


def check_url(url: str) -> None:
    """
    Check that a server can be asked at `url`, as far as that can be told without asking it.

    Raises:
        FormatError: if not; says nothing of the URL, which may hold credentials.
    """
    try:
        parsed = httpx.URL(url)
        # As the socket will have it, which knows other rules than the URL: a label has 1 to 63 characters.
        parsed.raw_host.decode("ascii").encode("idna")
        scheme, host, port = parsed.scheme, parsed.host, parsed.port
    except _NO_ADDRESS as error:
        raise FormatError("URL", expected="one that can be asked", found=type(error).__name__) from None
    if scheme not in {"http", "https"} or not host:
        raise FormatError("URL", expected="http:// or https:// and a host", found="another scheme, or no host")
    if port is not None and not 1 <= port <= PORT_MAX:
        raise FormatError("URL", expected=f"a port from 1 to {PORT_MAX}", found=port)
