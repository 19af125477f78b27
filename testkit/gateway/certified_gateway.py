# SPDX-License-Identifier: Apache-2.0
"""
A gateway that accepts client certificates, on a port with TLS, and the certificates of its clients.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from cryptography import x509
from fastapi import FastAPI

from gateway.commit.target_queues import TargetQueues
from gateway.identity import Authenticator
from gateway.identity.certificate_logins import Accepted, CertificateLogins
from gateway.identity.client_certificates import parse_clients
from gateway.identity.key_macs import open_key_macs
from gateway.identity.logins import LoginActors
from gateway.identity.passed_certificates import Roots
from lakeproof.services import KEY_SECRET, now
from lakeproof.tls_settings import TlsFiles, load_certificate
from testkit.environment import PATIENCE_S
from testkit.servers.certificates import Certificate, make_certificate
from testkit.servers.gateways import QUICK_HASHES, Gateway, app_of
from testkit.servers.loopback import serve_gateway

HOST = "127.0.0.1"
ETL = "spiffe://acme.example/etl"
"""The URI of a client with the role `data-eng`."""
REPORTS = "reports.acme.example"
"""The DNS name of a client without a role."""


class Authority:
    """Signs certificates, into files of `folder`."""

    def __init__(self, folder: Path, name: str = "root") -> None:
        self._folder = folder
        self.root = make_certificate(folder / f"{name}.pem", f"{name}.example")

    def client(self, name: str, *, uri: str | None = ETL, issuer: Certificate | None = None, **options: Any) -> Path:
        """Sign a certificate with a URI, or with whatever `options` say; return its file, which has its key, too."""
        if uri is not None:
            options = {"names": [x509.UniformResourceIdentifier(uri)], **options}
        file = self._folder / f"{name}.pem"
        return make_certificate(file, name, issuer=issuer or self.root, may_sign=False, **options).file


def clients_file(tenant: UUID) -> str:
    """Return a file of clients of that tenant."""
    return f"""
        [[clients]]
        uri = "{ETL}"
        tenant = "{tenant}"
        roles = ["data-eng"]

        [[clients]]
        dns = "{REPORTS}"
        tenant = "{tenant}"
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedGateway:
    """A gateway at `url` whose clients may show certificates; `served` is its own."""

    gateway: Gateway
    authenticator: Authenticator
    url: str
    served: Certificate

    def context(self, certificate: Path | None) -> ssl.SSLContext:
        """Return the side of a client that has this certificate."""
        return client_side(self.served, certificate)

    def client(self, certificate: Path | None, *, key: str | None = None) -> httpx.AsyncClient:
        """Return a client with a certificate, and perhaps with a key or a token."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        return httpx.AsyncClient(
            base_url=self.url, verify=self.context(certificate), headers=headers, timeout=PATIENCE_S
        )


def client_side(served: Certificate, certificate: Path | None) -> ssl.SSLContext:
    """Return the side of a client that trusts `served` and has this certificate."""
    context = ssl.create_default_context(cafile=str(served.file))
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


@asynccontextmanager
async def certified_gateway(
    gateway: Gateway, folder: Path, *, roots: str, text: str | None = None, clock: Callable[[], datetime] = now
) -> AsyncIterator[CertifiedGateway]:
    """Yield the gateway with the clients of a file `text`, whom `roots` (PEM) vouch for, as another process of it."""
    text = clients_file(gateway.acme.tenant) if text is None else text
    authenticator = _authenticator(gateway, text=text, roots=roots, clock=clock)
    served = served_certificate(folder, "served")
    authorities = folder / "authorities.pem"
    authorities.write_text(roots)
    files = TlsFiles(certificate=served.file, key=served.file, client_ca=authorities)
    context = load_certificate(files, now=datetime.now(UTC)).context
    async with serve_gateway(_app(gateway, authenticator, clock), tls=lambda: context) as url:
        yield CertifiedGateway(gateway=gateway, authenticator=authenticator, url=url, served=served)


@asynccontextmanager
async def gateway_without_tls(
    gateway: Gateway, *, roots: str, text: str, clock: Callable[[], datetime] = now
) -> AsyncIterator[str]:
    """Yield the URL of the gateway without TLS, with the clients and proxies of a file `text`."""
    authenticator = _authenticator(gateway, text=text, roots=roots, clock=clock)
    async with serve_gateway(_app(gateway, authenticator, clock)) as url:
        yield url


def served_certificate(folder: Path, name: str) -> Certificate:
    """Make the certificate of a server on this machine."""
    return make_certificate(folder / f"{name}.pem", "gateway.example", names=[x509.IPAddress(ip_address(HOST))])


def _authenticator(gateway: Gateway, *, text: str, roots: str, clock: Callable[[], datetime]) -> Authenticator:
    parts, installation = gateway.services.gateway, gateway.services.installation
    actors = LoginActors(partial(parts.database.as_role, parts.roles.appender), random=parts.random)
    file = parse_clients(text)
    trusted = Roots(x509.load_pem_x509_certificates(roots.encode())) if file.proxies else None
    accepted = Accepted(file=file, log_ids={gateway.acme.tenant: gateway.acme.log_id}, roots=trusted)
    return Authenticator(
        partial(parts.database.as_role, parts.roles.gateway),
        parts.control,
        macs=open_key_macs(installation.keys / KEY_SECRET),
        certificates=CertificateLogins(actors, accepted, clock=clock),
        hasher=QUICK_HASHES,
        clock=clock,
    )


def _app(gateway: Gateway, authenticator: Authenticator, clock: Callable[[], datetime]) -> FastAPI:
    parts = gateway.services.gateway
    return app_of(replace(parts, authenticator=authenticator, clock=clock, queues=TargetQueues()))


EXPIRED: Mapping[str, Any] = {"ends_in": timedelta(hours=-1)}
NOT_YET: Mapping[str, Any] = {"begins_in": timedelta(hours=1)}
