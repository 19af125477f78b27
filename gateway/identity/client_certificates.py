# SPDX-License-Identifier: Apache-2.0
"""
Whom a client certificate names, and which of them the operator lets in, as one TOML file says. Pure.

The identity is a subject alternative name (RFC 5280, section 4.2.1.6): the URI, as SPIFFE has it, or without one the
first DNS name. The certificate's subject is never read. TLS has verified the certificate before (`lakeproof/
tls_settings.py`): chain, times and purpose. An authority may sign certificates for more than the gateway's clients, so
only identities that the file names are anybody here. The file also has the proxies that may pass on the certificates of
their clients (`passed_certificates.py`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from ipaddress import ip_network
from typing import Any, Final
from uuid import UUID

from cryptography import x509

from gateway.identity.principal import CertificateRefusedError
from gateway.identity.setting_tables import ROLES_MAX, parse_roles, parse_table, parse_tables, parse_tenant, parse_text
from ledger.errors import FormatError
from projections.egress.addresses import Address, Network

CLIENTS_MAX: Final = 10_000
NETWORKS_MAX: Final = 32
"""Networks of one proxy."""
ISSUER: Final = hashlib.sha256(b"lakeproof client certificates").hexdigest()[:32]
"""The pseudonym of who vouches for all of them: SHA-256("lakeproof client certificates"), its first 16 bytes in hex."""
PASSED_ISSUER: Final = hashlib.sha256(b"lakeproof passed client certificates").hexdigest()[:32]
"""The same of SHA-256("lakeproof passed client certificates"): proxies vouch, too, for those that they pass on."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]{1,2000}")
_DNS = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*")
_EXPECTED: Final = "expected a client certificate whose subject alternative name is"


class SanKind(StrEnum):
    """The kinds of alternative names that identify a client; the word that the file has for it."""

    URI = "uri"
    DNS = "dns"


@dataclass(frozen=True, slots=True)
class San:
    """A subject alternative name; a DNS name is in lower case."""

    kind: SanKind
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a certificate says: whom it names, from when and until when."""

    san: San
    begins_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client whom the operator lets in: whose certificates have `san`."""

    san: San
    tenant: UUID
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """
    A proxy that may pass on certificates: it connects from `networks`, and its own certificate has `san` (None: it
    connects without TLS).
    """

    networks: Sequence[Network]
    san: San | None

    def has(self, address: Address) -> bool:
        """Return whether it may connect from there."""
        return any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientsFile:
    """The clients whom the operator lets in, and the proxies that may pass on their certificates."""

    clients: Mapping[San, Client]
    proxies: Sequence[Proxy] = ()


def read_certificate(der: bytes) -> Shown:
    """
    Return what a certificate says that TLS has verified.

    Raises:
        CertificateRefusedError: if it has neither a URI nor a DNS name, several URIs, or one that is not plain.
    """
    try:
        certificate = x509.load_der_x509_certificate(der)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        hosts = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        uris, hosts = [], []
    except (ValueError, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise CertificateRefusedError(f"{_EXPECTED} well-formed, found one that is not: get another one") from error
    if len(uris) > 1:  # as SPIFFE forbids it (X509-SVID, section 2): which of them is meant, nobody has said
        raise CertificateRefusedError(f"{_EXPECTED} one URI, found {len(uris)}: get a certificate with one")
    found = [_san(SanKind.URI, value) for value in uris] or [_san(SanKind.DNS, value) for value in hosts[:1]]
    if not found:
        raise CertificateRefusedError(f"{_EXPECTED} a URI or a DNS name, found neither: get a certificate with one")
    if found[0] is None:
        raise CertificateRefusedError(
            f"{_EXPECTED} a plain URI or DNS name, found odd characters in it: get another one"
        )
    return Shown(san=found[0], begins_at=certificate.not_valid_before_utc, ends_at=certificate.not_valid_after_utc)


def parse_clients(text: str) -> ClientsFile:
    """
    Return what a TOML file says: a table `[[clients]]` for each client, and `[[proxies]]` for each proxy.

    Raises:
        FormatError: if it is not TOML, a member is missing, unknown or malformed, or a name stands for two of them.
    """
    clients: dict[San, Client] = {}
    of_clients, of_proxies = parse_tables(text, "clients", "proxies", most=CLIENTS_MAX)
    for number, table in enumerate(of_clients, start=1):
        client = _parse_client(table, f"client {number}")
        if client.san in clients:
            raise FormatError("file of clients", expected="each client once", found=client.san.value)
        clients[client.san] = client
    proxies = tuple(_parse_proxy(table, f"proxy {number}") for number, table in enumerate(of_proxies, start=1))
    for proxy in proxies:
        if proxy.san in clients:  # whoever sends a key through the proxy would be that client
            found = f"{proxy.san.value} as both"
            raise FormatError("file of clients", expected="names of clients and others of proxies", found=found)
    return ClientsFile(clients=clients, proxies=proxies)


def _parse_client(found: object, what: str) -> Client:
    table = parse_table(found, {*SanKind, "tenant", "roles"}, what)
    san = _parse_san(table, what)
    if san is None:
        raise FormatError(what, expected="either uri or dns", found="neither")
    roles = parse_roles(table.get("roles", []), f"{what}, roles")
    if len(set(roles)) > ROLES_MAX:
        raise FormatError(f"{what}, roles", expected=f"at most {ROLES_MAX} roles", found=len(set(roles)))
    return Client(san=san, tenant=parse_tenant(table, what), roles=tuple(sorted(set(roles))))


def _parse_proxy(found: object, what: str) -> Proxy:
    table = parse_table(found, {*SanKind, "address"}, what)
    given = table.get("address")
    texts = [given] if isinstance(given, str) else given
    expected = f"an address or network such as 10.0.0.0/8, or a list of 1 to {NETWORKS_MAX}"
    if not isinstance(texts, list) or not 1 <= len(texts) <= NETWORKS_MAX:
        raise FormatError(f"{what}, address", expected=expected, found=given)
    try:
        networks = tuple(ip_network(text if isinstance(text, str) else "") for text in texts)
    except ValueError as error:
        raise FormatError(f"{what}, address", expected=expected, found=given) from error
    return Proxy(networks=networks, san=_parse_san(table, what))


def _parse_san(table: Mapping[str, Any], what: str) -> San | None:
    """Return the name in a table; None if it has none."""
    kinds = [kind for kind in SanKind if kind in table]
    if len(kinds) > 1:
        raise FormatError(what, expected="either uri or dns", found=", ".join(kinds))
    if not kinds:
        return None
    (kind,) = kinds
    san = _san(kind, parse_text(table, kind, what))
    if san is None:
        expected = "a URI of printable ASCII" if kind is SanKind.URI else "a DNS name without wildcard"
        raise FormatError(f"{what}, {kind}", expected=expected, found=table[kind])
    return san


def _san(kind: SanKind, value: str) -> San | None:
    """Return a plain name; None for any other."""
    if kind is SanKind.URI:
        return San(kind, value) if _URI.fullmatch(value) else None
    return San(kind, value.lower()) if _DNS.fullmatch(value) else None
