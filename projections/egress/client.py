# SPDX-License-Identifier: Apache-2.0
"""
An httpx client for URLs that tenants name: every connection goes to a checked address.

TLS is unchanged: the name in the URL is verified against the certificate and sent as SNI. Redirects are not followed,
and proxies of the environment are not used, since they would connect unchecked. The environment's certificates
(SSL_CERT_FILE) are used.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable
from functools import cache

import httpcore
import httpx

from projections.egress.connecting import Resolve, resolve_host, share_of
from projections.egress.names import CheckedNames
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError


def open_client(
    rules: EgressRules, *, limits: httpx.Limits | None = None, resolve: Resolve = resolve_host
) -> httpx.AsyncClient:
    """
    Return a client that connects where `rules` allow; elsewhere it raises AddressRefusedError, before anything is sent.
    """
    transport = _Transport(rules, limits or httpx.Limits(), resolve)
    return httpx.AsyncClient(transport=transport, follow_redirects=False, trust_env=False)


class _Transport(httpx.AsyncHTTPTransport):
    """httpx's own, over connections of ours: it has no argument for that, its pool has."""

    def __init__(self, rules: EgressRules, limits: httpx.Limits, resolve: Resolve) -> None:
        certificates = trusted_certificates()
        super().__init__(verify=certificates, limits=limits)
        self._backend = CheckedBackend(rules, resolve)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=certificates,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=self._backend,
        )

    async def aclose(self) -> None:
        """Close every connection, and wait for no name server."""
        await super().aclose()
        self._backend.close()


def trusted_certificates() -> ssl.SSLContext:
    """
    Return the TLS context of connections to upstreams: what httpx trusts, or what the environment names instead of it.
    """
    return _certificates(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


def own_trusted_certificates() -> ssl.SSLContext:
    """
    Return a context that trusts the same, and is nobody else's: it may be given a client certificate. Blocks.
    """
    return httpx.create_ssl_context()


@cache
def _certificates(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """Return what httpx trusts, in an environment that names these: to read it takes longer than most requests do."""
    return httpx.create_ssl_context()


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Connects for httpcore: resolves a name, checks all its addresses, connects to those in turn."""

    def __init__(self, rules: EgressRules, resolve: Resolve = resolve_host) -> None:
        self._names = CheckedNames(rules, resolve)
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """
        Return a connection to `host`.

        Raises:
            AddressRefusedError: if one of its addresses is not allowed, or it has none.
            httpcore.ConnectError, httpcore.ConnectTimeout: if none of them answers.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                addresses = await self._names.addresses(host, port)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout("the name server does not answer") from error
        failed: httpcore.ConnectError | httpcore.ConnectTimeout = httpcore.ConnectError("no address")
        for position, address in enumerate(addresses):
            share_s = None if deadline is None else share_of(deadline - loop.time(), len(addresses) - position)
            try:
                return await self._network.connect_tcp(
                    address, port, timeout=share_s, local_address=local_address, socket_options=socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed

    async def connect_unix_socket(self, path: str, *_: object, **__: object) -> httpcore.AsyncNetworkStream:
        """Refuse: no URL leads there."""
        raise AddressRefusedError(f"expected a host and a port, found the socket {path}")

    async def sleep(self, seconds: float) -> None:
        """Wait (httpcore, between attempts)."""
        await self._network.sleep(seconds)

    def close(self) -> None:
        """Resolve nothing more."""
        self._names.close()
