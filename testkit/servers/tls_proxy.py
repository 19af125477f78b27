# SPDX-License-Identifier: Apache-2.0
"""
A proxy that takes its clients' TLS and passes their certificates on in `Client-Cert`, as nginx, Envoy and HAProxy do.

It verifies certificates in the handshake, lets clients without one in, removes what they send in the two headers of
RFC 9440, and makes a connection of its own for each request.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from testkit.servers.certificates import Certificate

PIECE_BYTES: Final = 65_536
_PASSED_ON: Final = re.compile(rb"^client-cert(-chain)?:", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"^content-length: *([0-9]+)\r\n", re.IGNORECASE | re.MULTILINE)


def byte_sequence(der: bytes) -> str:
    """Return a certificate as RFC 9440 has it, which HAProxy can write."""
    return f":{b64encode(der).decode()}:"


def escaped_pem(der: bytes) -> str:
    """Return a certificate as nginx's `$ssl_client_escaped_cert` has it: PEM, all but unreserved characters escaped."""
    return quote(ssl.DER_cert_to_PEM_cert(der), safe="")


def escaped_as_by_envoy(der: bytes) -> str:
    """Return a certificate as Envoy's `%DOWNSTREAM_PEER_CERT%` has it: PEM, five characters of it escaped."""
    return re.sub(r"[\n +/=]", lambda found: quote(found[0], safe=""), ssl.DER_cert_to_PEM_cert(der))


@asynccontextmanager
async def tls_proxy(
    upstream: str,
    *,
    served: Certificate,
    roots: Path,
    own: ssl.SSLContext | None = None,
    write: Callable[[bytes], str] = byte_sequence,
) -> AsyncIterator[str]:
    """
    Yield the URL of a proxy in front of `upstream`, to which it connects with TLS by `own`, or without.

    `served` is its certificate, `roots` vouch for its clients' certificates, which `write` writes.
    """
    context = served.context([])
    context.load_verify_locations(roots)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = await asyncio.start_server(partial(_serve, upstream, own, write), "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def _serve(
    upstream: str,
    own: ssl.SSLContext | None,
    write: Callable[[bytes], str],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Pass one request on, and its answer back."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = b"" if length is None else await reader.readexactly(int(length[1]))
        first, *lines = head[:-4].split(b"\r\n")
        kept = [line for line in lines if not _PASSED_ON.match(line) and not line.lower().startswith(b"connection:")]
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if certificate is not None:
            kept.append(f"Client-Cert: {write(certificate)}".encode())
        to = urlsplit(upstream)
        back, on = await asyncio.open_connection(to.hostname, to.port, ssl=own)
        on.write(b"\r\n".join([first, *kept, b"Connection: close", b"", b""]) + body)
        while piece := await back.read(PIECE_BYTES):
            writer.write(piece)
        on.close()
        await writer.drain()
    writer.close()
