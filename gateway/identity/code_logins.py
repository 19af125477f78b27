# SPDX-License-Identifier: Apache-2.0
"""
How a person logs in at an identity provider: OpenID Connect's authorization code flow, with PKCE (RFC 7636).

 1  `begin`: the browser is given an attempt to keep, and goes to the provider, which asks the person
 2  the provider sends the browser back with a code. `finish` checks that the answer belongs to the attempt that this
    browser keeps: its `state` (and `iss`, RFC 9207), and that it is not too late
 3  the code is exchanged for tokens; it counts for the attempt's verifier alone
 4  the ID token is the provider's, for this client, with the nonce of the attempt, and about whom the access token is
 5  `renew`: a refresh token, if the provider gave one, is exchanged for an access token of the same person

Who that person is, and what the access token permits, this module does not say: the access token is verified by whom it
is shown to, as that of an engine is.

An attempt is 32 random bytes, when it began and where the person wants to go. State, nonce and verifier are derived
from all three with HMAC-SHA-256, so nobody who sees one of them learns another, and none fits another attempt. Nothing
is kept here: who begins a thousand logins fills no table.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256, sha384, sha512
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from gateway.errors import NotFoundError
from gateway.identity.bound_issuers import BoundIssuer
from gateway.identity.principal import TokenRefusedError
from gateway.identity.provider import Endpoints, Provider, error_code
from gateway.identity.tokens import (
    SEPARATOR,
    Token,
    check_audience,
    check_times,
    encode_part,
    issuer_of,
    parse_token,
    required_text,
)

ATTEMPT_LIFETIME: Final = timedelta(minutes=10)
SECRET_SIZE_BYTES: Final = 32
SECONDS_DIGITS_MAX: Final = 10
CODE_LENGTH_MAX: Final = 4_096
AGAIN: Final = "log in again"
NOT_BEGUN: Final = (
    "this login was not begun in this browser, or was finished already: begin again on this page, and allow cookies"
)

_HASHES: Final[Mapping[str, Callable[[bytes], Any]]] = {"256": sha256, "384": sha384, "512": sha512, "DSA": sha512}
"""By the end of the algorithm's name: what `at_hash` is made with (OpenID Connect Core 1.0, section 3.1.3.6)."""


class NotBegunError(TokenRefusedError):
    """The answer belongs to no login of this browser; one that is under way goes on."""

    def __init__(self) -> None:
        super().__init__(NOT_BEGUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A login at `issuer` that began at `began_s` (seconds since 1970) and leads to the path `to`."""

    secret: bytes = field(repr=False)
    began_s: int
    issuer: str
    to: str

    @property
    def state(self) -> str:
        """What the provider sends back with its answer."""
        return self._derived(b"state")

    @property
    def nonce(self) -> str:
        """What the provider writes into the ID token."""
        return self._derived(b"nonce")

    @property
    def verifier(self) -> str:
        """What only who began the login can show with the code: 43 characters."""
        return self._derived(b"verifier")

    @property
    def challenge(self) -> str:
        """The hash of the verifier (`S256`), which the provider is told first."""
        return encode_part(sha256(self.verifier.encode()).digest())

    def format(self) -> str:
        """Return what the browser keeps; the issuer is not in it, since the path of the answer names it."""
        return f"{self.secret.hex()}.{self.began_s}.{urlsafe_b64encode(self.to.encode()).decode()}"

    def _derived(self, purpose: bytes) -> str:
        about = b"\x00".join((purpose, str(self.began_s).encode(), self.issuer.encode(), self.to.encode()))
        return encode_part(hmac.digest(self.secret, about, sha256))


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A login that has begun: where the browser goes, and what it keeps for `ATTEMPT_LIFETIME`."""

    url: str
    kept: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """
    A login that has ended well: the access token, to be verified, and the attempt, which counts once. With
    `refresh_token` the login can be renewed (None: it cannot).
    """

    attempt: Attempt
    access_token: str = field(repr=False)
    refresh_token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """A login that was renewed: the access token, to be verified, and what renews it next time."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)


class CodeLogins:
    """Logins at those of `issuers` at which the console is a client."""

    def __init__(self, issuers: Iterable[BoundIssuer], *, clock: Callable[[], datetime]) -> None:
        self._by_name = {bound.provider.client.name: bound for bound in issuers if bound.provider is not None}
        self._clock = clock

    @property
    def places(self) -> Mapping[str, str]:
        """Where each login begins, by its name."""
        clients = (bound.provider.client for bound in self._by_name.values() if bound.provider is not None)
        return {client.name: f"{client.origin}{client.path}" for client in clients}

    async def begin(self, name: str, *, to: str, secret: bytes) -> Begun:
        """
        Return where the browser goes to log in; `secret` are 32 random bytes, `to` is where it goes afterwards.

        Raises:
            NotFoundError: if there is no login of that name.
            UnavailableError: if the provider does not say where.
        """
        bound, provider = self._find(name)
        began_s = int(self._clock().timestamp())
        attempt = Attempt(secret=secret, began_s=began_s, issuer=bound.issuer.url, to=to)
        endpoint = (await provider.endpoints()).authorization
        client = provider.client
        asked = {
            "response_type": "code",
            "client_id": client.id,
            "redirect_uri": client.redirect_uri,
            "scope": client.scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
        }
        if client.resource is not None:
            asked["resource"] = client.resource
        if client.asks_offline:
            asked["prompt"] = "consent"  # without it the scope is to be ignored (OpenID Connect Core 1.0, section 11)
        mark = "&" if urlsplit(endpoint).query else "?"
        return Begun(url=f"{endpoint}{mark}{urlencode(asked)}", kept=attempt.format())

    async def finish(self, name: str, answer: Mapping[str, str], *, kept: str) -> Finished:
        """
        Return the access token of who has logged in; `answer` are the parameters with which the provider sent the
        browser back, `kept` is what that browser keeps.

        Raises:
            NotFoundError: if there is no login of that name.
            TokenRefusedError: if the answer is not one to that attempt, or no login; says what to do.
            UnavailableError: if the provider does not answer.
        """
        bound, provider = self._find(name)
        attempt = _parse_attempt(kept, bound.issuer.url)
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise NotBegunError
        if self._clock() >= datetime.fromtimestamp(attempt.began_s, tz=UTC) + ATTEMPT_LIFETIME:
            raise TokenRefusedError(f"this login took longer than ten minutes: {AGAIN}")
        check_answer(answer, await provider.endpoints(), issuer=bound.issuer.url)
        tokens = await provider.exchange(answer["code"], verifier=attempt.verifier)
        access = _parse_access(tokens.access)
        identity = parse_token(tokens.id or "")
        await bound.check_signed(identity)
        check_id_token(identity, bound, client=provider.client.id, nonce=attempt.nonce, now=self._clock())
        _check_given_with(identity, access, written=tokens.access)
        return Finished(attempt=attempt, access_token=tokens.access, refresh_token=tokens.refresh)

    async def renew(self, access_token: str, *, refresh_token: str) -> Renewed:
        """
        Return another access token of the person of `access_token`, which was verified once and may have ended.

        A refresh token for which the provider gives another one counts no more.

        Raises:
            TokenRefusedError: if the provider gives none, or one of somebody else; says what to do.
            UnavailableError: if the provider does not answer.
        """
        before = parse_token(access_token)
        bound, provider = self._find_by_issuer(issuer_of(before))
        tokens = await provider.refresh(refresh_token)
        access = _parse_access(tokens.access)
        if tokens.id is not None:  # OpenID Connect Core 1.0, section 12.2: it may be left out
            identity = parse_token(tokens.id)
            await bound.check_signed(identity)
            check_id_token(identity, bound, client=provider.client.id, nonce=None, now=self._clock())
            _check_given_with(identity, access, written=tokens.access)
        _check_same_person(before, access)
        return Renewed(access_token=tokens.access, refresh_token=tokens.refresh or refresh_token)

    async def revoke(self, access_token: str, *, refresh_token: str) -> None:
        """Give back what renews a login. Raises as `Provider.revoke`, and TokenRefusedError if there is no provider."""
        _, provider = self._find_by_issuer(issuer_of(parse_token(access_token)))
        await provider.revoke(refresh_token)

    def _find(self, name: str) -> tuple[BoundIssuer, Provider]:
        bound = self._by_name.get(name)
        if bound is None or bound.provider is None:
            raise NotFoundError(
                "expected a login that the operator has configured, found none of that name", kind="NotFoundException"
            )
        return bound, bound.provider

    def _find_by_issuer(self, url: str) -> tuple[BoundIssuer, Provider]:
        for bound in self._by_name.values():
            if bound.issuer.url == url and bound.provider is not None:
                return bound, bound.provider
        raise TokenRefusedError(f"nobody logs in with this identity provider any more: {AGAIN}")


def check_answer(answer: Mapping[str, str], endpoints: Endpoints, *, issuer: str) -> None:
    """
    Check that an answer, whose state is right, has a code and is of `issuer` (RFC 9207, section 2.4).

    Raises:
        TokenRefusedError: otherwise.
    """
    named = answer.get("iss")
    if named != issuer and (named is not None or endpoints.names_issuer):
        raise TokenRefusedError(f"the answer is of another identity provider than the one that was asked: {AGAIN}")
    if "error" in answer:
        raise TokenRefusedError(f"the identity provider did not log you in ({error_code(answer)}): {AGAIN}")
    if not 0 < len(answer.get("code", "")) <= CODE_LENGTH_MAX:
        raise TokenRefusedError(f"expected a code of the identity provider, found none: {AGAIN}")


def check_id_token(token: Token, bound: BoundIssuer, *, client: str, nonce: str | None, now: datetime) -> None:
    """
    Check the claims of an ID token whose signature is valid (OpenID Connect Core 1.0, section 3.1.3.7). `nonce` is that
    of the login; None: the token comes with a renewal, and needs none (section 12.2).

    Raises:
        TokenRefusedError: if it is an access token, of another issuer, for another client, not valid now, or not the
            answer to this login.
    """
    if token.type not in {None, "jwt"}:
        raise TokenRefusedError(f"expected an ID token, found a token of another kind: {AGAIN}")
    if issuer_of(token) != bound.issuer.url:
        raise TokenRefusedError(f"the ID token is of another identity provider: {AGAIN}")
    check_audience(token, client)
    several = isinstance(token.claims["aud"], list) and len(token.claims["aud"]) > 1
    if (several or "azp" in token.claims) and token.claims.get("azp") != client:
        raise TokenRefusedError(f"the ID token was made for another client: {AGAIN}")
    check_times(token, now=now, skew=bound.issuer.skew)
    if nonce is not None and not hmac.compare_digest(required_text(token.claims, "nonce").encode(), nonce.encode()):
        raise TokenRefusedError(f"the ID token is not the answer to this login: {AGAIN}")


def _parse_access(written: str) -> Token:
    """Return an access token that says for whom it is. Raises TokenRefusedError if it is no JSON Web Token."""
    if written.count(SEPARATOR) != 2:
        raise TokenRefusedError(
            "expected an access token that says for whom it is (a JSON Web Token), found another: let the operator set "
            "the resource or the scope of this login"
        )
    return parse_token(written)


def _check_given_with(identity: Token, access: Token, *, written: str) -> None:
    """Check that both tokens are of one person, and the hash of the access token if the ID token has one."""
    _check_same_person(identity, access)
    if "at_hash" in identity.claims:
        digest = _HASHES[identity.algorithm[-3:]](written.encode("ascii")).digest()
        if identity.claims["at_hash"] != encode_part(digest[: len(digest) // 2]):
            raise TokenRefusedError(f"the ID token was given with another access token: {AGAIN}")


def _check_same_person(first: Token, second: Token) -> None:
    """Check that two tokens are of one issuer, about one person."""
    if issuer_of(first) != issuer_of(second) or required_text(first.claims, "sub") != required_text(
        second.claims, "sub"
    ):
        raise TokenRefusedError(f"the two tokens of this login are not of the same person: {AGAIN}")


def _parse_attempt(kept: str, issuer: str) -> Attempt:
    """Return the attempt that a browser keeps, at the issuer that the path of the answer names."""
    secret, _, rest = kept.partition(".")
    began, _, to = rest.partition(".")
    if len(began) > SECONDS_DIGITS_MAX:
        raise NotBegunError
    try:
        attempt = Attempt(
            secret=bytes.fromhex(secret), began_s=int(began), issuer=issuer, to=urlsafe_b64decode(to).decode()
        )
    except ValueError as error:
        raise NotBegunError from error
    if len(attempt.secret) != SECRET_SIZE_BYTES or attempt.format() != kept:
        raise NotBegunError
    return attempt
