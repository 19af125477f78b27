# SPDX-License-Identifier: Apache-2.0
"""
From a token to who it says is calling: a token of this installation, or one of an identity provider.

 1  the token is of its form, and says whose it is (`iss`): this installation, or an issuer that the operator configured
 2  its algorithm is one that the issuer may use, and the key that it names is the issuer's; the signature is valid
 3  audience, times and kind are right, and its claims name the caller
 4  the caller has an actor in the log of the issuer's tenant, made at the first login

The keys of one issuer verify that issuer's tokens alone (RFC 8725, section 3.8). A token that breaks a rule is refused
in words that repeat nothing of it; without any issuer, every token of a provider is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from gateway.identity.access_tokens import AccessToken, AccessTokens
from gateway.identity.bound_issuers import BoundIssuer
from gateway.identity.code_logins import CodeLogins
from gateway.identity.issuers import read_claims
from gateway.identity.logins import Login, LoginActors
from gateway.identity.principal import PrincipalSource, TokenRefusedError
from gateway.identity.tokens import issuer_of, parse_token


class TokenLogins:
    """Verifies tokens. One per process; `access_tokens` are the installation's own, `actors` a provider's callers'."""

    def __init__(
        self,
        actors: LoginActors,
        access_tokens: AccessTokens,
        issuers: Iterable[BoundIssuer],
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._actors = actors
        self.access_tokens: Final = access_tokens
        self._issuers = {bound.issuer.url: bound for bound in issuers}
        self.codes: Final = CodeLogins(self._issuers.values(), clock=clock)
        """How people log in to the console with them."""
        self._clock = clock

    async def close(self) -> None:
        """End reads of keys that run."""
        for bound in self._issuers.values():
            await bound.keys.close()

    async def verify(self, text: str) -> AccessToken | Login:
        """
        Return what a token says; it is in force now, but its key, or its caller, may not be.

        Raises:
            TokenRefusedError: if it is not valid.
            UnavailableError: if that cannot be determined now.
        """
        token = parse_token(text)
        if self.access_tokens.is_own(token):
            return self.access_tokens.verify(token)
        bound = self._issuers.get(issuer_of(token))
        if bound is None:
            raise TokenRefusedError(
                "expected a token of a configured issuer, found one of another: use an API key, or let the operator "
                "configure the issuer"
            )
        issuer = bound.issuer
        await bound.check_signed(token)
        claims = read_claims(issuer, token, now=self._clock())
        actor = await self._actors.find(
            bound.log_id, issuer=issuer.actor, identity=claims.subject, issued_at=claims.issued_at - issuer.skew
        )
        if actor is None:
            raise TokenRefusedError("the token is older than an erasure in this tenant: get a new one")
        return Login(
            source=PrincipalSource.JWT,
            tenant=issuer.tenant,
            log_id=bound.log_id,
            issuer=issuer.actor,
            identity=claims.subject,
            actor=actor,
            roles=claims.roles,
            email=claims.email,
            ends_at=claims.ends_at,
            groups=claims.groups,
            attributes=claims.attributes,
        )

    def forget(self, login: Login) -> None:
        """Look the actor up again at the next login: the person behind it was erased."""
        self._actors.forget(login)
