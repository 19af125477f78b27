# SPDX-License-Identifier: Apache-2.0
"""
A gateway that accepts tokens: the parts of a gateway whose tenant exists already, with identity providers for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import httpx
import pytest
from fastapi import FastAPI

from gateway.commit.target_queues import TargetQueues
from gateway.identity import Authenticator, refusal_pace
from gateway.identity.access_tokens import AccessTokens
from gateway.identity.issuers import Issuer
from gateway.identity.key_macs import open_key_macs
from gateway.identity.logins import LoginActors
from gateway.identity.token_logins import TokenLogins
from lakeproof.services import KEY_SECRET, now, token_logins
from testkit.servers.gateways import QUICK_HASHES, Gateway, app_of
from testkit.servers.identity_provider import IdentityProvider
from testkit.servers.loopback import LOOPBACK

ROLES: Mapping[str, tuple[str, ...]] = {"lake-writers": ("data-eng",), "lake-readers": ("reader", "guest")}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGateway:
    """A gateway with its own authenticator; `gateway` has the tenant, `tokens` what verifies its tokens."""

    gateway: Gateway
    authenticator: Authenticator
    tokens: TokenLogins
    app: FastAPI

    def client(self, credential: str | None = None) -> httpx.AsyncClient:
        """Return a client that sends a bearer token."""
        headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)


def issuer_for(gateway: Gateway, provider: IdentityProvider, **changed: object) -> Issuer:
    """Return a provider as the operator would configure it for the gateway's tenant."""
    described: dict[str, object] = {
        "url": provider.url,
        "tenant": gateway.acme.tenant,
        "audience": provider.audience,
        "algorithms": frozenset({"RS256", "ES256", "EdDSA"}),
        "jwks_url": None,
        "skew": timedelta(seconds=60),
        "subject_claim": "sub",
        "email_claim": "email",
        "groups_claim": "groups",
        "roles": ROLES,
    } | changed
    return Issuer(**described)  # type: ignore[arg-type]


@asynccontextmanager
async def token_gateway(
    gateway: Gateway, *issuers: Issuer, clock: Callable[[], datetime] = now
) -> AsyncIterator[TokenGateway]:
    """Yield the gateway with these issuers, as another process of the same installation would be."""
    parts, installation = gateway.services.gateway, gateway.services.installation
    macs = open_key_macs(installation.keys / KEY_SECRET)
    access_tokens = AccessTokens(macs, installation.id, clock=clock, random=parts.random)
    actors = LoginActors(partial(parts.database.as_role, parts.roles.appender), random=parts.random)
    bound = [(issuer, gateway.acme.log_id) for issuer in issuers]
    async with token_logins(actors, access_tokens, bound, LOOPBACK, clock=clock) as tokens:
        lend = partial(parts.database.as_role, parts.roles.gateway)
        authenticator = Authenticator(lend, parts.control, macs=macs, tokens=tokens, hasher=QUICK_HASHES, clock=clock)
        app = app_of(replace(parts, authenticator=authenticator, clock=clock, queues=TargetQueues()))
        yield TokenGateway(gateway=gateway, authenticator=authenticator, tokens=tokens, app=app)


def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no refusal wait for its turn: the pace has tests of its own."""
    monkeypatch.setattr(refusal_pace, "HELD_MAX", 0)
