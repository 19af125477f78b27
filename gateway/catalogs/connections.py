# SPDX-License-Identifier: Apache-2.0
"""
The connections to all upstreams of a process: made where the operator's rules allow, kept for a moment, used again.

A connection goes to the very address that was checked (`projections/egress`), and is used again only for the same
scheme, host and port, and over TLS only by calls with the same client certificate: it speaks for whoever opened it. The
name of the host is verified against the certificate. Proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias
from urllib.parse import quote, urlsplit

from gateway.catalogs.connection import Answer, Connection, format_request
from gateway.catalogs.urls import is_plain_url, place_of
from ledger.values import value_class
from projections.egress.connecting import share_of
from projections.egress.names import CheckedNames
from projections.egress.rules import EgressRules

CONNECTIONS_MAX: Final = 512
IDLE_CONNECTIONS_MAX: Final = 64
IDLE_S: Final = 2.0
"""
How long a connection is kept for the next request. Short, since an upstream that closes it just when it is used leaves
the outcome unknown.
"""
USER_AGENT: Final = "lakeproof"
JSON: Final = "application/json"

_PATH: Final = "/-._~!$&'()*+,;=:@%?"
"""What a path and a query may hold besides letters and digits (RFC 3986, appendix A)."""
_TARGET: Final = re.compile(rf"[A-Za-z0-9{re.escape(_PATH)}]*")
"""What is sent as it is."""


class NotConnectedError(OSError):
    """No address of a host accepts a connection."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A server: `authority` is what the header Host says."""

    is_tls: bool
    host: str
    port: int
    authority: str


Way: TypeAlias = tuple[Origin, ssl.SSLContext | None]
"""What a connection is for: a server, and what TLS to it trusts and shows."""


@value_class
class Call:
    """
    One request to an upstream: `url` is absolute, `body` is sent unchanged.

    `tls` is what the connection trusts and which certificate it shows; None is what the process trusts, and none.
    Headers and body may hold credentials, so they have no part in its text.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)
    content_type: str = JSON
    tls: ssl.SSLContext | None = None


class Connections:
    """Sends requests, each on a connection of its own while it is under way. Belongs to one event loop."""

    def __init__(self, names: CheckedNames, certificates: ssl.SSLContext) -> None:
        self._names = names
        self._certificates = certificates
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)
        self._idle: OrderedDict[Connection, Way] = OrderedDict()
        """Those that may be used again; the one that has been idle for longest is the first."""
        self._sweep: asyncio.TimerHandle | None = None

    async def ask(
        self, call: Call, *, timeout_s: float, answer_size_bytes_max: int, on_send: Callable[[], None]
    ) -> Answer:
        """
        Send `call` once and return the answer; `on_send` is called before a byte of it is handed to the network.

        `timeout_s` bounds the attempts to connect; the caller bounds the whole.

        Raises:
            ValueError: if a part of the request has no form on the wire.
            AddressRefusedError: if one of the host's addresses is not allowed, or it has none.
            OSError: if there is no connection.
            AnswerError: if there is no whole answer.
        """
        origin, target = split_url(call.url)
        way = (origin, call.tls if origin.is_tls else None)
        headers = {"Host": origin.authority, "User-Agent": USER_AGENT, "Accept": JSON}
        headers |= {"Accept-Encoding": "identity", **call.headers}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        request = format_request(call.method, target, headers, call.body)
        async with self._room:
            connection = self._take(way) or await self._connect(way, timeout_s=timeout_s)
            on_send()
            try:
                return await connection.ask(request, size_bytes_max=answer_size_bytes_max)
            finally:
                self._keep(connection, way)

    @property
    def egress(self) -> EgressRules:
        """Return the rules by which connections are made."""
        return self._names.rules

    def close(self) -> None:
        """Close every connection that is idle, and resolve no more names."""
        self._names.close()
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        if self._sweep is not None:
            self._sweep.cancel()

    def _take(self, way: Way) -> Connection | None:
        """Return the connection of `way` that was used last, if the upstream has left it open."""
        while (found := next((one for one in reversed(self._idle) if self._idle[one] == way), None)) is not None:
            del self._idle[found]
            if found.is_silent() and not self._is_old(found):
                return found
            found.close()
        return None

    def _keep(self, connection: Connection, way: Way) -> None:
        if not connection.is_free:
            return
        loop = asyncio.get_running_loop()
        connection.free_since_s = loop.time()
        self._idle[connection] = way
        if len(self._idle) > IDLE_CONNECTIONS_MAX:
            self._idle.popitem(last=False)[0].close()
        if self._sweep is None:
            self._sweep = loop.call_later(IDLE_S, self._close_old)

    def _close_old(self) -> None:
        self._sweep = None
        while self._idle and self._is_old(connection := next(iter(self._idle))):
            del self._idle[connection]
            connection.close()
        if self._idle:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_at(next(iter(self._idle)).free_since_s + IDLE_S, self._close_old)

    @staticmethod
    def _is_old(connection: Connection) -> bool:
        return asyncio.get_running_loop().time() >= connection.free_since_s + IDLE_S

    async def _connect(self, way: Way, *, timeout_s: float) -> Connection:
        origin, tls = way
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        addresses = await self._names.addresses(origin.host, origin.port)
        for position, address in enumerate(addresses):
            share_s = share_of(deadline_s - loop.time(), len(addresses) - position)
            try:
                async with asyncio.timeout(share_s):
                    _, connection = await loop.create_connection(
                        Connection,
                        address,
                        origin.port,
                        ssl=(tls or self._certificates) if origin.is_tls else None,
                        server_hostname=origin.host if origin.is_tls else None,
                    )
            except ssl.SSLError:
                raise  # it was reached, and is not whom the URL names
            except (OSError, TimeoutError):
                continue
            return connection
        raise NotConnectedError("all connection attempts failed")


def split_url(url: str) -> tuple[Origin, str]:
    """
    Return the server of an absolute URL, and its path and query as they are sent.

    Raises:
        ValueError: if it is not a plain http or https URL.
    """
    if not url.isascii() or not url.isprintable():
        message = "expected a URL in printable ASCII"
        raise ValueError(message)
    scheme, slashes, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    target = slash + path if path else "/"
    return _origin(f"{scheme}{slashes}{authority}"), target if _TARGET.fullmatch(target) else quote(target, safe=_PATH)


@lru_cache(maxsize=1_000)
def _origin(url: str) -> Origin:
    if not is_plain_url(url):
        message = f"expected a plain http or https URL, found {url!r:.80}"
        raise ValueError(message)
    host, port = place_of(url)
    parts = urlsplit(url)
    return Origin(is_tls=parts.scheme == "https", host=host, port=port, authority=parts.netloc)
