# SPDX-License-Identifier: Apache-2.0
"""
Issuers as a process has them: each with the log of its tenant, its keys, and where people log in.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.identity.issuers import Issuer
from gateway.identity.key_sets import KeySet
from gateway.identity.principal import TokenRefusedError
from gateway.identity.provider import Provider
from gateway.identity.signatures import check_signature
from gateway.identity.tokens import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundIssuer:
    """An issuer, the log of its tenant, and its keys; `provider` is where codes are exchanged (None: nowhere)."""

    issuer: Issuer
    log_id: int
    keys: KeySet
    provider: Provider | None = None

    async def check_signed(self, token: Token) -> None:
        """
        Check that a token was signed with a key and an algorithm of this issuer.

        Raises:
            TokenRefusedError: if it was not.
            UnavailableError: if the issuer's keys are not known.
        """
        if token.algorithm not in self.issuer.algorithms:
            allowed = ", ".join(sorted(self.issuer.algorithms))
            raise TokenRefusedError(f"expected a token signed with {allowed}, found another algorithm: get another one")
        check_signature(token, await self.keys.find(token))
