# SPDX-License-Identifier: Apache-2.0
"""
The verified caller of a request. Values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from gateway.control.plane import ControlState
from gateway.errors import UnauthorizedError
from ledger.format import canonical
from ledger.format.canonical import Json


class NotInForceError(UnauthorizedError):
    """The credentials are unknown, wrong, revoked or expired; the answer does not say which."""

    def __init__(self) -> None:
        super().__init__("the API key is unknown or no longer in force")


class TokenRefusedError(UnauthorizedError):
    """A token was refused; the message says which rule it breaks and what to do, and repeats nothing of the token."""


class CertificateRefusedError(UnauthorizedError):
    """The client certificate of the connection names nobody here; the message says why and what to do."""


class PrincipalSource(StrEnum):
    """What kind of credentials were verified."""

    API_KEY = "api_key"
    """An API key, or an access token that this installation issued for it."""

    JWT = "jwt"
    """A JSON Web Token of an identity provider."""

    MTLS = "mtls"
    """A client certificate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """
    A verified caller of one tenant.

    `actor` (32 hex digits) is the pseudonym of the identity `sub` in the log; `key_id` is the key of the request, None
    for a token of an identity provider and for a client certificate. `issuer` is the actor who issues this actor's keys
    to that identity, or the pseudonym of who vouches for it otherwise; None for the identity's own actor. `email`,
    `groups` and `attributes` (names with values) are what the provider says; `ends_at` is when the token or the
    certificate ends (None: the request has a key).
    """

    tenant: UUID
    log_id: int
    actor: str
    issuer: str | None
    sub: str
    roles: tuple[str, ...]
    source: PrincipalSource
    key_id: str | None
    email: str | None = None
    ends_at: datetime | None = None
    groups: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    _part: bytes | None = field(default=None, init=False, compare=False, repr=False)

    def check_in_force(self, state: ControlState, *, now: datetime) -> None:
        """
        Check that the credentials are in force in `state`, by which the request will be judged, and not expired `now`.

        Raises:
            NotInForceError: if the key was revoked, or has expired.
            TokenRefusedError: if the token has expired.
            CertificateRefusedError: if the client certificate has.
        """
        if self.ends_at is not None and self.ends_at <= now:
            if self.source is PrincipalSource.MTLS:
                raise CertificateRefusedError("the client certificate has expired: get a new one, and connect again")
            raise TokenRefusedError("the token has expired: get a new one")
        if self.key_id is None:
            return  # what others vouch for is in force until its end: there is nothing to look up
        key = state.keys.get(self.key_id)
        if key is None or key.is_expired(now):
            raise NotInForceError

    def payload(self) -> Mapping[str, Json]:
        """Return the caller's description for the record of a decision, which is an erasable part."""
        return {
            "actor": self.actor,
            "email": self.email,
            "issuer": self.issuer,
            "key": self.key_id,
            "roles": list(self.roles),
            "source": self.source.value,
            "sub": self.sub,
        }

    def part(self) -> bytes:
        """Return `payload` as the bytes of that part, made once for all requests of one caller."""
        part = self._part
        if part is None:
            part = canonical.encode(self.payload())
            object.__setattr__(self, "_part", part)
        return part
