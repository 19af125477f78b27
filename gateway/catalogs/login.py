# SPDX-License-Identifier: Apache-2.0
"""
How the gateway logs in at one upstream: each request gets what shows who sends it.

Secrets are read for each request: one that was replaced is used at once, and one that was removed ends the access.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from gateway.catalogs.client_credentials import ClientCredentials
from gateway.catalogs.client_tls import ClientTlsError, client_context
from gateway.catalogs.connections import Call, Connections
from gateway.catalogs.login_options import (
    ACCESS_KEY_ID,
    AUDIENCE,
    CERTIFICATE_AUTHORITY,
    CLIENT_CERTIFICATE,
    CREDENTIAL,
    OF_TLS,
    RESOURCE,
    SCOPE,
    SECRET_ACCESS_KEY,
    SECRETS,
    SESSION_TOKEN,
    SIGNING_NAME,
    SIGNING_NAME_DEFAULT,
    SIGNING_REGION,
    SIGV4,
    TOKEN,
)
from gateway.catalogs.sigv4 import Signer, signed
from gateway.errors import UpstreamCredentialsError
from projections.errors import SecretMissingError

SECRET: Final = "secret:"  # noqa: S105 - the word before a secret's name, not one
AUTHORIZATION: Final = "Authorization"
BEARER: Final = "Bearer "


class Secrets(Protocol):
    """The secrets that catalogs' options name as `secret:<id>` (see `projections.lake.secrets.SecretDirectory`)."""

    def read(self, tenant: UUID, secret: str) -> str:
        """Return the secret of that id; raises SecretMissingError. Blocks."""


@dataclass(slots=True, eq=False, kw_only=True)
class Login:
    """
    The login of one alias of one tenant: `options` are its catalog's.

    `now` is the time of signatures, `clock_s` the age of tokens, in seconds from any moment. The event loop owns it,
    except for `_tls`: the context that was made last and the PEM it was made of, set as one by whichever thread.
    """

    tenant: UUID
    alias: str
    options: Mapping[str, str]
    client: Connections
    secrets: Secrets
    timeout_s: float
    now: Callable[[], datetime]
    clock_s: Callable[[], float]
    tokens: ClientCredentials = field(init=False)
    has_secrets: bool = field(init=False)
    _tls: tuple[Mapping[str, str], ssl.SSLContext] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.has_secrets = not SECRETS.isdisjoint(self.options)
        self.tokens = ClientCredentials(
            self.alias, self.options, self.client, timeout_s=self.timeout_s, clock_s=self.clock_s
        )

    @property
    def signs(self) -> bool:
        """Return whether requests are signed, so that a wrong clock or region can be why they are refused."""
        return SIGV4 in self.options

    @property
    def advice(self) -> str:
        """Return what to do if the upstream refuses the gateway's credentials."""
        if self.signs:
            return "check the keys, the region and this machine's clock"
        if CREDENTIAL in self.options:
            return f"the token server has given a token, so check the options {SCOPE}, {AUDIENCE} and {RESOURCE}"
        if TOKEN in self.options:
            return f"replace the secret of the option {TOKEN}"
        return f"register it under another alias, with the option {TOKEN} or {CREDENTIAL}"

    async def authenticated(self, call: Call) -> Call:
        """
        Return `call` with the gateway's credentials.

        Raises:
            UpstreamCredentialsError: if there are none, or the token server refuses them.
            UnavailableError: if the token server gives no token; UpstreamNotAllowedError if it must not be asked.
        """
        if not self.has_secrets:
            return call
        found, tls = await asyncio.to_thread(self._read)
        call = replace(call, tls=tls)
        if TOKEN in found:
            return _with_bearer(call, found[TOKEN])
        if CREDENTIAL in found:
            return _with_bearer(call, await self.tokens.token(found[CREDENTIAL], tls=tls))
        if self.signs:
            signer = Signer(
                access_key_id=self.options[ACCESS_KEY_ID],
                secret_access_key=found[SECRET_ACCESS_KEY],
                session_token=found.get(SESSION_TOKEN),
                region=self.options[SIGNING_REGION],
                service=self.options.get(SIGNING_NAME, SIGNING_NAME_DEFAULT),
            )
            return signed(call, signer, now=self.now())
        return call

    def forget(self, refused: Call) -> bool:
        """Forget what the upstream refused in `refused`; return whether others can be had for another attempt."""
        if CREDENTIAL not in self.options:
            return False
        self.tokens.drop(refused.headers[AUTHORIZATION].removeprefix(BEARER))
        return True

    def _read(self) -> tuple[Mapping[str, str], ssl.SSLContext | None]:
        """Return the secrets, by the option that names each, and TLS with those that are for it. Blocks."""
        found = {}
        for name in sorted(SECRETS & self.options.keys()):
            reference = self.options[name]
            try:
                found[name] = self.secrets.read(self.tenant, reference.removeprefix(SECRET))
            except SecretMissingError as error:
                raise UpstreamCredentialsError(
                    f"the gateway has no credentials for the upstream of catalog {self.alias}: {reference} is not there"
                ) from error
        return found, self._context({name: found[name] for name in OF_TLS & found.keys()})

    def _context(self, pem: Mapping[str, str]) -> ssl.SSLContext | None:
        if not pem:
            return None
        if self._tls is None or self._tls[0] != pem:
            try:
                made = client_context(certificate=pem.get(CLIENT_CERTIFICATE), authority=pem.get(CERTIFICATE_AUTHORITY))
            except ClientTlsError as error:
                raise UpstreamCredentialsError(
                    f"the certificates for the upstream of catalog {self.alias} cannot be used: {error}, found "
                    f"otherwise: check the secrets of {' and '.join(sorted(pem))}"
                ) from error
            self._tls = (pem, made)
        return self._tls[1]


def _with_bearer(call: Call, token: str) -> Call:
    """Return `call` with a bearer token (RFC 6750, section 2.1)."""
    return replace(call, headers={**call.headers, AUTHORIZATION: f"{BEARER}{token}"})
