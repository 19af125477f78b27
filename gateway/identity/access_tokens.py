# SPDX-License-Identifier: Apache-2.0
"""
Access tokens of this installation: what a client gets for an API key, to be used for 15 minutes.

A token is a JSON Web Token (RFC 9068) signed with Ed25519. It names a key and carries no right of its own: each request
looks the key up as if it had been sent, so a token ends at once with its key. It contains nothing personal. A token can
be exchanged for a new one for a day after the key itself was last shown: then whoever holds only a token is locked out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.identity.key_macs import KeyMacs
from gateway.identity.principal import Principal, TokenRefusedError
from gateway.identity.signatures import check_signature, ed25519_key
from gateway.identity.tokens import (
    Token,
    check_audience,
    encode_part,
    issuer_of,
    required_text,
)

LIFETIME: Final = timedelta(minutes=15)
RENEWED_MAX: Final = timedelta(hours=24)
"""How long after the key was shown its tokens can be exchanged for new ones."""
TYPE: Final = "at+jwt"
ID_SIZE_BYTES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A verified access token: the key that it names, whose key that is, and when the key itself was shown."""

    tenant: UUID
    log_id: int
    actor: str
    key_id: str
    shown_at: datetime
    ends_at: datetime


class AccessTokens:
    """Signs and verifies the tokens of the installation `installation`; all its processes have the same `macs`."""

    def __init__(
        self, macs: KeyMacs, installation: str, *, clock: Callable[[], datetime], random: Callable[[int], bytes]
    ) -> None:
        self.issuer: Final = f"urn:lakeproof:{installation}"
        """Their issuer and their audience."""
        self._key = Ed25519PrivateKey.from_private_bytes(macs.signing_seed())
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._public = ed25519_key(macs.secret_id, public)
        self._clock = clock
        self._random = random

    def __repr__(self) -> str:
        return f"AccessTokens({self.issuer})"

    def sign(self, principal: Principal, *, shown_at: datetime | None = None) -> str:
        """
        Return a new token for the key of `principal`, which was shown at `shown_at` (None: now).

        Raises:
            TokenRefusedError: if the caller has no key.
        """
        if principal.key_id is None:
            raise TokenRefusedError("expected an API key, found a token of an identity provider: use that one itself")
        now = self._clock()
        header = {"alg": "EdDSA", "kid": self._public.id, "typ": TYPE}
        claims = {
            "iss": self.issuer,
            "aud": self.issuer,
            "sub": principal.key_id,
            "client_id": principal.key_id,
            "tenant": principal.tenant.hex,
            "log": principal.log_id,
            "actor": principal.actor,
            "iat": int(now.timestamp()),
            "exp": int((now + LIFETIME).timestamp()),
            "auth_time": int((shown_at or now).timestamp()),
            "jti": self._random(ID_SIZE_BYTES).hex(),
        }
        signed = f"{encode_part(orjson.dumps(header))}.{encode_part(orjson.dumps(claims))}"
        return f"{signed}.{encode_part(self._key.sign(signed.encode()))}"

    def is_own(self, token: Token) -> bool:
        """Return whether a token says that it is of this installation; `verify` finds out whether it is."""
        return issuer_of(token) == self.issuer

    def verify(self, token: Token) -> AccessToken:
        """
        Return what a token says, which must be one of this installation's and must not have expired.

        Raises:
            TokenRefusedError: otherwise.
        """
        opened = self._open(token)
        # Its beginning is not checked: another machine's clock may be ahead, and nobody else could have signed it.
        if opened.ends_at <= self._clock():
            raise TokenRefusedError("the token has expired: get a new one")
        return opened

    def verify_expired(self, token: Token) -> AccessToken:
        """
        Return what a token of this installation says, even if it has expired: for a caller who has also shown the key.

        Raises:
            TokenRefusedError: if it is none of this installation's.
        """
        return self._open(token)

    def _open(self, token: Token) -> AccessToken:
        if (token.algorithm, token.type, token.key_id) != ("EdDSA", TYPE, self._public.id) or not self.is_own(token):
            raise TokenRefusedError("expected a token that this installation has signed, found another: log in again")
        check_signature(token, self._public)
        check_audience(token, self.issuer)
        claims = token.claims
        return AccessToken(
            tenant=UUID(required_text(claims, "tenant")),
            log_id=_whole(claims.get("log")),
            actor=required_text(claims, "actor"),
            key_id=required_text(claims, "sub"),
            shown_at=datetime.fromtimestamp(_whole(claims.get("auth_time")), tz=UTC),
            ends_at=datetime.fromtimestamp(_whole(claims.get("exp")), tz=UTC),
        )


def _whole(claim: object) -> int:
    if not isinstance(claim, int):
        raise TokenRefusedError("expected whole numbers in a token of this installation, found others: log in again")
    return claim
