# SPDX-License-Identifier: Apache-2.0
"""
One login at an identity provider that gives what a test says, as the browser and the provider see it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from starlette.responses import JSONResponse, Response

from testkit.gateway.console.logins import ANSWER, NAME, MovedClock
from testkit.gateway.token_gateway import TokenGateway
from testkit.servers.identity_provider import IdentityProvider, assemble, signature
from testkit.servers.oidc_provider import CONSOLE

ORIGIN = "http://127.0.0.1:8181"
BEGIN = f"/console/login/at/{NAME}"
CODE = "of-a-login"


@dataclass(slots=True, kw_only=True)
class Login:
    """One login: the browser, what the provider was asked, and what it will give."""

    accepting: TokenGateway
    provider: IdentityProvider
    clock: MovedClock
    http: httpx.AsyncClient
    asked: dict[str, str] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    access: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    key: str = "p256-1"

    async def begin(self, to: str = "/console/tables") -> None:
        """Go as far as the provider."""
        begun = await self.http.get(BEGIN, params={"to": to})
        assert begun.status_code == 303, begun.text
        self.asked = {name: value for name, (value,) in parse_qs(urlsplit(begun.headers["location"]).query).items()}
        self.provider.exchange = self.tokens

    def tokens(self) -> Response:
        """What the provider gives for a code."""
        now_s = int(self.clock().timestamp())
        access = self.provider.token(now_s=now_s, **self.access)
        claims = self.provider.claims(now_s=now_s, aud=CONSOLE, nonce=self.asked["nonce"])
        claims = {name: value for name, value in {**claims, **self.identity}.items() if value is not None}
        header = {"alg": "ES256", "kid": self.key, "typ": "JWT", **self.header}
        identity = assemble(header, claims, lambda signed: signature(self.key, signed))
        given = {"access_token": access, "id_token": identity, "token_type": "Bearer"} | self.answers
        return JSONResponse({name: value for name, value in given.items() if value is not None})

    async def finish(self, **changed: str | None) -> httpx.Response:
        """Come back from the provider with its answer, some of it changed or left out (None)."""
        given = {"code": CODE, "state": self.asked["state"], **changed}
        return await self.http.get(ANSWER, params={name: value for name, value in given.items() if value is not None})


def browser_at(accepting: TokenGateway) -> httpx.AsyncClient:
    """A browser of its own."""
    transport = httpx.ASGITransport(app=accepting.app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=ORIGIN)
