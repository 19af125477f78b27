# SPDX-License-Identifier: Apache-2.0
"""
The socket that the gateway listens on. It is made before a database is, and inherited by every gateway process.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from lakeproof.errors import ServerError
from lakeproof.messages import Say

BACKLOG: Final = 1024
"""Connections that the system accepts before we do."""
WITHOUT_TLS: Final = (
    "warning: the gateway listens on {host} without TLS, so whoever is on the way to it reads its clients' keys and "
    "can use them: set LAKEPROOF_TLS_CERTIFICATE and LAKEPROOF_TLS_KEY, or put a proxy with TLS in front of it and set "
    "LAKEPROOF_HOST to 127.0.0.1, or to an address that only the proxy reaches"
)


def listen(host: str, port: int) -> socket.socket:
    """
    Return a socket that listens on `host` and `port`.

    Raises:
        ServerError: if that address is in use or not this machine's.
    """
    with ExitStack() as stack:
        try:
            family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            # With TCP named: connections accepted from a socket of protocol 0 are not known to asyncio as TCP's, which
            # then leaves Nagle's algorithm on, and each answer over a kept connection waits for a delayed ACK (40 ms).
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ServerError(
                f"the gateway cannot listen on {host} port {port} ({error.strerror}): end what uses that port, "
                "or set LAKEPROOF_PORT"
            ) from error
        stack.pop_all()
        return listener


def url_of(listener: socket.socket, *, scheme: str) -> str:
    """Return the URL under which the gateway on `listener` is reached."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def loopback_url(url: str) -> str | None:
    """
    Return where a browser on this machine reaches the gateway at `url` over loopback; None if it does not listen there.
    """
    parts = urlsplit(url)
    address = ip_address(parts.hostname or "")
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "[::1]"
        return f"{parts.scheme}://{host}:{parts.port}"
    return url if address.is_loopback else None


def warn_without_tls(listener: socket.socket, host: str, say: Say) -> None:
    """Say so if others can reach `listener`, which was made for `host`, on which the gateway has no TLS."""
    if not ip_address(listener.getsockname()[0]).is_loopback:
        say(WITHOUT_TLS.format(host=host))
