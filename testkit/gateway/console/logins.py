# SPDX-License-Identifier: Apache-2.0
"""
A console at which people log in with an identity provider: served first, because the provider has to know where it is.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

import httpx
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from gateway.identity.login_clients import LoginClient
from lakeproof.services import now
from testkit.gateway.token_gateway import TokenGateway, issuer_for, token_gateway
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import IdentityProvider
from testkit.servers.loopback import serve_gateway
from testkit.servers.oidc_provider import CONSOLE

NAME = "acme"
ANSWER = f"/console/login/at/{NAME}/answer"


class LateApplication(Starlette):
    """An application that is served before it is there."""

    made: Starlette

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.made(scope, receive, send)


@dataclass(slots=True)
class MovedClock:
    """The time, and what a test has added to it."""

    ahead: timedelta = timedelta(0)

    def __call__(self) -> datetime:
        return now() + self.ahead


@asynccontextmanager
async def served_late() -> AsyncIterator[tuple[LateApplication, str]]:
    """Yield an application that has to be made yet, and its URL."""
    app = LateApplication()
    async with serve_gateway(app) as url:
        yield app, url


@asynccontextmanager
async def console_with(
    gateway: Gateway,
    provider: IdentityProvider,
    *,
    origin: str,
    clock: Callable[[], datetime] = now,
    resource: str | None = None,
    scope: str = "openid catalog",
    **changed: object,
) -> AsyncIterator[TokenGateway]:
    """Yield the gateway with a login at `provider`, to which browsers come at `origin`."""
    client = LoginClient(name=NAME, origin=origin, id=CONSOLE, secret_file=None, scope=scope, resource=resource)
    issuer = issuer_for(gateway, provider, login=client, **changed)
    async with token_gateway(gateway, issuer, clock=clock) as accepting:
        yield accepting


async def answer_to(http: httpx.AsyncClient, url: str, *, person: str) -> str:
    """Log a person in at the real provider without a browser, and return where it sends one to."""
    found = await http.get(url)
    while ANSWER not in found.headers.get("location", ""):
        if found.is_redirect:
            found = await http.get(httpx.URL(str(found.url)).join(found.headers["location"]))
            continue
        (action,) = re.findall(r'<form[^>]* action="([^"]*)"', found.text)
        (prompt,) = re.findall(r'name="prompt" value="([^"]*)"', found.text)
        found = await http.post(action, data={"prompt": prompt, "login": person, "password": "any"})
    return found.headers["location"]
