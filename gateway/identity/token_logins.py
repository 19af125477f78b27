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

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.database import outage_as_unavailable
from gateway.errors import UnavailableError
from gateway.identity.access_tokens import AccessToken, AccessTokens
from gateway.identity.issuers import Claims, Issuer, read_claims
from gateway.identity.key_rows import actor_for, find_actor, last_erasure
from gateway.identity.key_sets import KeySet
from gateway.identity.principal import TokenRefusedError
from gateway.identity.signatures import check_signature
from gateway.identity.tokens import issuer_of, parse_token
from ledger.errors import FormatError
from ledger.store.log_store import LendConnection

ACTORS_MAX: Final = 10_000
"""Actors in the cache of a process; about 5 MB."""

_UNREACHABLE: Final = "the database cannot be reached: credentials cannot be checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundIssuer:
    """An issuer, the log of its tenant, and the keys of the issuer."""

    issuer: Issuer
    log_id: int
    keys: KeySet


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A verified token of a provider: its caller, and the actor that the caller has in the log."""

    bound: BoundIssuer
    claims: Claims
    actor: str

    @property
    def tenant(self) -> UUID:
        """The tenant of the issuer."""
        return self.bound.issuer.tenant

    @property
    def log_id(self) -> int:
        """The log of that tenant."""
        return self.bound.log_id


class TokenLogins:
    """
    Verifies tokens. One per process; `access_tokens` are the installation's own.

    `lend` lends connections of the appender's role, the only one that may write actors. `_actors` are those made or
    found before, by log, issuer and identity; it belongs to the event loop.
    """

    def __init__(
        self,
        lend: LendConnection,
        access_tokens: AccessTokens,
        issuers: Iterable[BoundIssuer],
        *,
        clock: Callable[[], datetime],
        random: Callable[[int], bytes],
    ) -> None:
        self._lend = lend
        self.access_tokens: Final = access_tokens
        self._issuers = {bound.issuer.url: bound for bound in issuers}
        self._clock = clock
        self._random = random
        self._actors: OrderedDict[tuple[int, str, str], str] = OrderedDict()

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
        if token.algorithm not in issuer.algorithms:
            allowed = ", ".join(sorted(issuer.algorithms))
            raise TokenRefusedError(f"expected a token signed with {allowed}, found another algorithm: get another one")
        check_signature(token, await bound.keys.find(token))
        claims = read_claims(issuer, token, now=self._clock())
        return Login(bound=bound, claims=claims, actor=await self._actor(bound, claims))

    def forget(self, login: Login) -> None:
        """Look the actor up again at the next login: the person behind it was erased."""
        self._actors.pop((login.log_id, login.bound.issuer.actor, login.claims.subject), None)

    async def _actor(self, bound: BoundIssuer, claims: Claims) -> str:
        name = (bound.log_id, bound.issuer.actor, claims.subject)
        if (known := self._actors.get(name)) is not None:
            self._actors.move_to_end(name)
            return known
        self._actors[name] = actor = await self._found_or_made(bound, claims)
        if len(self._actors) > ACTORS_MAX:
            self._actors.popitem(last=False)
        return actor

    async def _found_or_made(self, bound: BoundIssuer, claims: Claims) -> str:
        """
        Return the actor of an identity, made now if it has none.

        A token that was issued before a person was erased makes none: an erasure forgets who that was, so the token
        could be theirs, and would bring them back.
        """
        issuer = bound.issuer
        with outage_as_unavailable(_UNREACHABLE):
            async with self._lend() as connection:
                found = await find_actor(connection, bound.log_id, claims.subject, issuer=issuer.actor)
                if found is not None:
                    return found
                erased_at = await last_erasure(connection, bound.log_id)
                if erased_at is not None and claims.issued_at <= erased_at + issuer.skew:
                    raise TokenRefusedError("the token is older than an erasure in this tenant: get a new one")
                try:
                    made = await actor_for(
                        connection, bound.log_id, claims.subject, issuer=issuer.actor, random=self._random
                    )
                except FormatError as error:
                    raise UnavailableError("the caller was erased at this moment: try again") from error
                return made.actor
