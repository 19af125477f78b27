# SPDX-License-Identifier: Apache-2.0
"""
An identity provider as people log in there: where it asks them who they are, and what it gives for a code, or later for
a refresh token.

Its discovery document is read again once it is five minutes old, and at most once in ten seconds: nobody who is not
logged in can have a provider flooded. Few codes are exchanged at a time, each within ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus

import httpx

from gateway.errors import UnavailableError
from gateway.identity.issuers import Issuer
from gateway.identity.key_sets import PAUSE_S, REFRESH_S, TIMEOUT_S, UnreadableError, read_over, send_over
from gateway.identity.login_clients import LoginClient
from gateway.identity.principal import TokenRefusedError
from gateway.identity.provider_urls import parse_discovery, url_in
from gateway.identity.tokens import LENGTH_MAX, parse_unambiguous
from ledger.errors import FormatError

EXCHANGES_MAX: Final = 4
"""Codes and refresh tokens that a process exchanges at a time."""
EXCHANGE_TIMEOUT_S: Final = 10.0
REFRESH_TOKEN_LENGTH_MAX: Final = 4_096
"""A longer one is not kept: the login then ends with its access token."""
UNREACHABLE: Final = "the identity provider does not answer as it should: try again in a minute, or use an API key"

_REFRESH_TOKEN: Final = re.compile(rf"[\x20-\x7e]{{1,{REFRESH_TOKEN_LENGTH_MAX}}}")  # RFC 6749, appendix A.17
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """
    What a discovery document says of logins; `names_issuer`: answers carry `iss` (RFC 9207). `revocation` is where a
    token is given back (RFC 7009); None: nowhere.
    """

    authorization: str
    token: str
    revocation: str | None
    names_issuer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """
    What a provider gives for a code or a refresh token, as it is written. Its printed form shows none of it.

    `id` is None only if it was given for a refresh token; `refresh` if there is none.
    """

    access: str = field(repr=False)
    id: str | None = field(repr=False)
    refresh: str | None = field(repr=False)


class Provider:
    """
    The provider of `issuer`, at which the console is `client`; `http` makes checked connections.

    Event loop only. `_known` are the last endpoints that were read, at `_read_at_s`; `_failed_at_s` is when a read
    failed last.
    """

    def __init__(
        self,
        issuer: Issuer,
        client: LoginClient,
        http: httpx.AsyncClient,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.client: Final = client
        self._issuer = issuer
        self._http = http
        self._monotonic_s = monotonic_s
        self._reading = asyncio.Lock()
        self._exchanging = asyncio.Semaphore(EXCHANGES_MAX)
        self._known: Endpoints | None = None
        self._read_at_s = self._failed_at_s = float("-inf")

    async def endpoints(self) -> Endpoints:
        """
        Return where people log in, and where codes are exchanged.

        Raises:
            UnavailableError: if the provider does not say so.
        """
        async with self._reading:
            now_s = self._monotonic_s()
            if self._known is None or now_s - self._read_at_s > REFRESH_S:
                if now_s - self._failed_at_s < PAUSE_S:
                    raise UnavailableError(UNREACHABLE)
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        document = await read_over(self._http)(self._issuer.discovery_url)
                    self._known = _endpoints(document, self._issuer.url)
                except (UnreadableError, FormatError, TimeoutError) as error:
                    self._failed_at_s = self._monotonic_s()
                    raise self._failed(error) from error
                self._read_at_s = now_s
            return self._known

    async def exchange(self, code: str, *, verifier: str) -> Tokens:
        """
        Return what the provider gives for a code, which counts for `verifier` alone (RFC 7636, section 4.5).

        Raises:
            TokenRefusedError: if it gives nothing for it, or not what a login needs.
            UnavailableError: if it does not answer.
        """
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.client.redirect_uri,
            "code_verifier": verifier,
        }
        tokens = await self._ask_for_tokens(form)
        if tokens.id is None:
            raise _others()
        return tokens

    async def refresh(self, refresh_token: str) -> Tokens:
        """
        Return what the provider gives for a refresh token (RFC 6749, section 6). Raises as `exchange`.
        """
        return await self._ask_for_tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def revoke(self, refresh_token: str) -> None:
        """
        Give a refresh token back, if the provider takes it (RFC 7009): it, and what was made from it, counts no more.

        Raises:
            UnavailableError: if the provider does not answer, or not that it did.
        """
        if (url := (await self.endpoints()).revocation) is None:
            return
        status, _ = await self._post(url, {"token": refresh_token, "token_type_hint": "refresh_token"})
        if status != httpx.codes.OK:
            raise UnavailableError(f"the identity provider did not revoke a refresh token: it answered {status}")

    async def _ask_for_tokens(self, form: dict[str, str]) -> Tokens:
        """Return what the provider gives for a grant. Raises as `exchange`."""
        token_url = (await self.endpoints()).token
        if self.client.resource is not None:
            form["resource"] = self.client.resource
        return _tokens(*await self._post(token_url, form))

    async def _post(self, url: str, form: dict[str, str]) -> tuple[int, bytes]:
        """Send a form as this client; return status and body of the answer. Raises UnavailableError if none comes."""
        auth = None
        if self.client.secret is None:
            form["client_id"] = self.client.id
        else:  # RFC 6749, section 2.3.1: both are encoded as in a form first
            auth = (quote_plus(self.client.id), quote_plus(self.client.secret))
        try:
            async with asyncio.timeout(EXCHANGE_TIMEOUT_S), self._exchanging:
                return await send_over(self._http, "POST", url, form=form, auth=auth)
        except (UnreadableError, TimeoutError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> UnavailableError:
        _log.warning("nobody can log in at issuer %s: %s", self._issuer.url, str(error) or "it does not answer")
        return UnavailableError(UNREACHABLE)


def _endpoints(document: bytes, issuer: str) -> Endpoints:
    members = parse_discovery(document, issuer=issuer)
    return Endpoints(
        authorization=url_in(members, "authorization_endpoint"),
        token=url_in(members, "token_endpoint"),
        revocation=url_in(members, "revocation_endpoint") if "revocation_endpoint" in members else None,
        names_issuer=members.get("authorization_response_iss_parameter_supported") is True,
    )


def _tokens(status: int, body: bytes) -> Tokens:
    """Return the tokens of an answer (RFC 6749, sections 5.1 and 5.2; OpenID Connect Core 1.0, section 3.1.3.3)."""
    try:
        members: Mapping[str, object] = parse_unambiguous(body)
    except ValueError:
        members = {}
    if status >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise UnavailableError(UNREACHABLE)
    if status != httpx.codes.OK:
        raise TokenRefusedError(f"the identity provider refused the login ({error_code(members)}): log in again")
    access, identity, refresh = (members.get(name) for name in ("access_token", "id_token", "refresh_token"))
    if not isinstance(access, str) or not isinstance(identity, str | None) or len(access) > LENGTH_MAX:
        raise _others()
    is_kept = isinstance(refresh, str) and _REFRESH_TOKEN.fullmatch(refresh)
    return Tokens(access=access, id=identity, refresh=str(refresh) if is_kept else None)


def _others() -> TokenRefusedError:
    return TokenRefusedError(
        "expected an access token and an ID token of the identity provider, found others: let the operator check the "
        "client's scopes there"
    )


def error_code(members: Mapping[str, object]) -> str:
    """Return the code of an error of OAuth (RFC 6749), and nothing else that a provider, or anybody, wrote there."""
    found = members.get("error")
    return found if isinstance(found, str) and _ERROR_CODE.fullmatch(found) else "it does not say why"
