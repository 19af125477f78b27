# SPDX-License-Identifier: Apache-2.0
"""
From a client certificate that was verified to who is calling: by TLS, or as `passed_certificates.py` says.

Guarantee: a certificate stands for a client that the operator has named, of that client's tenant, or for nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.identity.client_certificates import (
    ISSUER,
    PASSED_ISSUER,
    Client,
    ClientsFile,
    SanKind,
    Shown,
    read_certificate,
)
from gateway.identity.logins import Login, LoginActors
from gateway.identity.passed_certificates import PassedCertificates, PassedOn, Roots, not_named
from gateway.identity.principal import CertificateRefusedError, PrincipalSource

READ_MAX: Final = 10_000
"""Certificates in the cache of a process; about 20 MB."""


@dataclass(frozen=True, slots=True)
class Certified:
    """
    What a request with a client certificate shows: that of its connection in DER (None: it has none), the credential in
    its headers as the client sent it, if it sent one, and the certificate that a proxy passes on, if it has one.
    """

    certificate: bytes | None
    authorization: str | None
    passed_on: PassedOn | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """A certificate that was verified, in DER, and the pseudonym of who vouches for it."""

    certificate: bytes
    issuer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """
    Whom the operator lets in: the clients and proxies of `file`, and the log of every tenant of theirs. `roots` vouch
    for what the proxies pass on; None: there are no proxies.
    """

    file: ClientsFile
    log_ids: Mapping[UUID, int]
    roots: Roots | None


class CertificateLogins:
    """
    Knows accepted clients by their certificates. One per process.

    `_read` are certificates that were read before; it belongs to the event loop.
    """

    def __init__(self, actors: LoginActors, accepted: Accepted, *, clock: Callable[[], datetime]) -> None:
        self._actors = actors
        self._clients = accepted.file.clients
        self._log_ids = accepted.log_ids
        roots = accepted.roots
        self._passed = None if roots is None else PassedCertificates(accepted.file.proxies, roots, clock)
        self._read: OrderedDict[bytes, tuple[Shown, Client]] = OrderedDict()

    def counting(self, credentials: Certified) -> Verified | str | None:
        """
        Return what counts of the credentials of a request: a certificate, or the header.

        A certificate that stands for nobody is left aside if there is a header beside it.

        Raises:
            CertificateRefusedError: if a certificate is passed on by whoever may not, or cannot be verified.
        """
        if credentials.passed_on is not None:
            if self._passed is None:
                raise not_named()
            found = Verified(self._passed.open(credentials.passed_on, credentials.certificate), PASSED_ISSUER)
        elif credentials.certificate is not None:
            found = Verified(credentials.certificate, ISSUER)
        else:
            return credentials.authorization
        has_header = credentials.authorization is not None
        return credentials.authorization if has_header and not self._is_anybody(found.certificate) else found

    async def verify(self, verified: Verified) -> Login:
        """
        Return who is calling; the certificate may have ended since it was verified.

        Raises:
            CertificateRefusedError: if it names nobody whom the operator has named, or the caller cannot be known.
            UnavailableError: if that cannot be determined now.
        """
        shown, client = self._known(verified.certificate)
        log_id = self._log_ids[client.tenant]
        identity = shown.san.value
        actor = await self._actors.find(log_id, issuer=verified.issuer, identity=identity, issued_at=shown.begins_at)
        if actor is None:
            raise CertificateRefusedError(
                "the client certificate is older than an erasure in this tenant: get a new one"
            )
        return Login(
            source=PrincipalSource.MTLS,
            tenant=client.tenant,
            log_id=log_id,
            issuer=verified.issuer,
            identity=identity,
            actor=actor,
            roles=client.roles,
            email=None,
            ends_at=shown.ends_at,
        )

    def forget(self, login: Login) -> None:
        """Look the actor up again at the next login: the person behind it was erased."""
        self._actors.forget(login)

    def _is_anybody(self, certificate: bytes) -> bool:
        """Whether a certificate names a client whom the operator has named."""
        try:
            self._known(certificate)
        except CertificateRefusedError:
            return False
        return True

    def _known(self, certificate: bytes) -> tuple[Shown, Client]:
        if (found := self._read.get(certificate)) is not None:
            self._read.move_to_end(certificate)
            return found
        shown = read_certificate(certificate)
        client = self._clients.get(shown.san)
        if client is None:
            kind = "URI" if shown.san.kind is SanKind.URI else "DNS name"
            raise CertificateRefusedError(
                f"expected a client certificate whose {kind} the operator has named in LAKEPROOF_TLS_CLIENTS, found "
                "another: use an API key or a token, or let the operator name it"
            )
        self._read[certificate] = found = (shown, client)
        if len(self._read) > READ_MAX:
            self._read.popitem(last=False)
        return found
