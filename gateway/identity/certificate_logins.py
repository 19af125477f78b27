# SPDX-License-Identifier: Apache-2.0
"""
From a client certificate that TLS has verified to who is calling.

Guarantee: a certificate stands for a client that the operator has named, of that client's tenant, or for nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gateway.identity.client_certificates import (
    ISSUER,
    Client,
    San,
    SanKind,
    Shown,
    read_certificate,
)
from gateway.identity.logins import Login, LoginActors
from gateway.identity.principal import CertificateRefusedError, PrincipalSource

READ_MAX: Final = 10_000
"""Certificates in the cache of a process; about 20 MB."""


@dataclass(frozen=True, slots=True)
class Certified:
    """
    What a request over a connection with a client certificate shows: the certificate in DER, and the credential in its
    headers as the client sent it, if it sent one.
    """

    certificate: bytes
    authorization: str | None


class CertificateLogins:
    """
    Knows callers by their certificates. One per process; `log_ids` has the log of every tenant of `clients`.

    `_read` are certificates that were read before; it belongs to the event loop.
    """

    def __init__(self, actors: LoginActors, clients: Mapping[San, Client], log_ids: Mapping[UUID, int]) -> None:
        self._actors = actors
        self._clients = clients
        self._log_ids = log_ids
        self._read: OrderedDict[bytes, tuple[Shown, Client]] = OrderedDict()

    async def verify(self, certificate: bytes) -> Login:
        """
        Return who is calling; the certificate may have ended since TLS has verified it.

        Raises:
            CertificateRefusedError: if it names nobody whom the operator has named, or the caller cannot be known.
            UnavailableError: if that cannot be determined now.
        """
        shown, client = self._known(certificate)
        log_id = self._log_ids[client.tenant]
        identity = shown.san.value
        actor = await self._actors.find(log_id, issuer=ISSUER, identity=identity, issued_at=shown.begins_at)
        if actor is None:
            raise CertificateRefusedError(
                "the client certificate is older than an erasure in this tenant: get a new one"
            )
        return Login(
            source=PrincipalSource.MTLS,
            tenant=client.tenant,
            log_id=log_id,
            issuer=ISSUER,
            identity=identity,
            actor=actor,
            roles=client.roles,
            email=None,
            ends_at=shown.ends_at,
        )

    def is_anybody(self, certificate: bytes) -> bool:
        """Return whether a certificate names a client whom the operator has named."""
        try:
            self._known(certificate)
        except CertificateRefusedError:
            return False
        return True

    def forget(self, login: Login) -> None:
        """Look the actor up again at the next login: the person behind it was erased."""
        self._actors.forget(login)

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
