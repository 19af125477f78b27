# SPDX-License-Identifier: Apache-2.0
"""
The console as a client of an identity provider: the table `[issuers.login]` of an issuer. Pure.

Where a browser returns to is made of the configured `origin` alone, and of nothing that a request says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.identity.provider_urls import check_url
from gateway.identity.setting_tables import parse_table, parse_text
from ledger.errors import FormatError

SCOPE: Final = "openid email"
OFFLINE: Final = "offline_access"
"""The scope that asks for a refresh token (OpenID Connect Core 1.0, section 11)."""
_MEMBERS: Final = frozenset({"name", "origin", "client_id", "client_secret_file", "scope", "resource"})
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginClient:
    """
    How people log in at a provider. `origin` is that of the console as browsers reach it (`https://lake.example.org`).

    `secret` is read from `secret_file`; None: the client is a public one, and PKCE alone binds a code to it. `resource`
    is what the access token is asked for (RFC 8707); None: the provider knows from the client or the scope.
    """

    name: str
    origin: str
    id: str
    secret_file: str | None
    scope: str
    resource: str | None
    secret: str | None = field(default=None, repr=False)

    @property
    def asks_offline(self) -> bool:
        """Whether a refresh token is asked for; some providers give one without that."""
        return OFFLINE in self.scope.split(" ")

    @property
    def path(self) -> str:
        """Where a login begins, below the origin."""
        return f"/console/login/at/{self.name}"

    @property
    def redirect_uri(self) -> str:
        """Where the provider sends the browser back to; the provider has to know it, to the letter."""
        return f"{self.origin}{self.path}/answer"


def parse_login_client(found: object, what: str) -> LoginClient:
    """
    Return what a table `[issuers.login]` says.

    Raises:
        FormatError: if a member is missing, unknown or malformed.
    """
    table = parse_table(found, _MEMBERS, what)
    name = parse_text(table, "name", what)
    if not _NAME.fullmatch(name):
        expected = "1 to 40 lower-case letters, digits and -, the first no -"
        raise FormatError(f"{what}, name", expected=expected, found=name)
    scope = parse_text(table, "scope", what, SCOPE)
    if "openid" not in scope.split(" "):
        raise FormatError(f"{what}, scope", expected="openid among the scopes", found=scope)
    return LoginClient(
        name=name,
        origin=_parse_origin(table, what),
        id=parse_text(table, "client_id", what),
        secret_file=parse_text(table, "client_secret_file", what) if "client_secret_file" in table else None,
        scope=scope,
        resource=parse_text(table, "resource", what) if "resource" in table else None,
    )


def _parse_origin(table: Mapping[str, Any], what: str) -> str:
    origin = parse_text(table, "origin", what)
    check_url(origin, what=f"{what}, origin")
    parts = urlsplit(origin)
    if origin != f"{parts.scheme}://{parts.netloc}":
        raise FormatError(f"{what}, origin", expected="scheme, host and perhaps port, nothing behind", found=origin)
    return origin
