# SPDX-License-Identifier: Apache-2.0
"""
The console over plain HTTP behind a proxy that ends TLS: only what a proxy says that the operator has named counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from ipaddress import ip_network
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio

from gateway.console.logins import ATTEMPT_COOKIE, COOKIE, OVER_TLS_ALONE
from gateway.http.server.clients import Proxies
from gateway.http.server.connections import Connections
from testkit.environment import PATIENCE_S
from testkit.gateway.console.code_login import BEGIN
from testkit.gateway.console.logins import ANSWER, console_with
from testkit.gateway.token_gateway import TokenGateway, unhurried
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import identity_provider
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "lake.example.org"
ORIGIN = f"https://{HOST}"
NAMED = Connections(proxies=Proxies(networks=[ip_network("127.0.0.1")]))
SAID = (
    {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.7"},
    {"Forwarded": f"for=192.0.2.7;proto=https;host={HOST}"},
)
"""How a proxy says that a browser came over TLS."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def accepting(module_sales: Gateway) -> AsyncIterator[TokenGateway]:
    """A console with a login at a provider, whose browsers come to `ORIGIN`."""
    async with identity_provider() as provider, console_with(module_sales, provider, origin=ORIGIN) as accepting:
        yield accepting


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def named(accepting: TokenGateway) -> AsyncIterator[str]:
    """The URL at which it listens for a proxy that the operator has named."""
    async with serve_gateway(accepting.app, Connections(proxies=NAMED.proxies)) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unnamed(accepting: TokenGateway) -> AsyncIterator[str]:
    """The URL at which it listens for others."""
    async with serve_gateway(accepting.app) as url:
        yield url


def through(url: str, said: dict[str, str]) -> httpx.AsyncClient:
    """A browser behind a proxy that passes on the host and says something of the connection."""
    return httpx.AsyncClient(base_url=url, headers={"Host": HOST, **said}, trust_env=False, timeout=PATIENCE_S)


async def log_in(browser: httpx.AsyncClient, key: str, *, origin: str = ORIGIN) -> httpx.Response:
    return await browser.post("/console/login", data={"key": key, "to": ""}, headers={"Origin": origin})


def cookie_of(answer: httpx.Response) -> tuple[str, str, set[str]]:
    """Return name, value and attributes of the one cookie that an answer sets."""
    (cookie,) = answer.headers.get_list("set-cookie")
    pair, *attributes = cookie.split("; ")
    name, _, value = pair.partition("=")
    return name, value.strip('"'), {each.lower() for each in attributes}


@pytest.mark.parametrize("said", SAID)
async def test_a_named_proxy_that_ends_tls_makes_the_cookie_one_for_tls_alone(
    accepting: TokenGateway, named: str, said: dict[str, str]
) -> None:
    async with through(named, said) as browser:
        form = await browser.get("/console/login")
        assert form.headers["strict-transport-security"] == OVER_TLS_ALONE
        name, value, attributes = cookie_of(await log_in(browser, accepting.gateway.acme.key.secret))
        assert name == f"__Host-{COOKIE}"
        assert {"secure", "httponly", "samesite=lax", "path=/"} <= attributes
        assert not any(each.startswith("domain") for each in attributes)
        sent = {"Cookie": f"{name}={value}"}
        assert (await browser.get("/console/log", headers=sent)).status_code == 200
        assert (await browser.get("/console/log", headers={"Cookie": f"{COOKIE}={value}"})).status_code == 303
        form_sent = {**sent, "Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
        name, value, attributes = cookie_of(await browser.post("/console/logout", headers=form_sent))
        assert (name, value) == (f"__Host-{COOKIE}", "")
        assert "secure" in attributes  # a browser lets no other answer change it, not even to remove it


@pytest.mark.parametrize("said", SAID)
async def test_what_others_say_of_tls_counts_for_nothing(
    accepting: TokenGateway, unnamed: str, said: dict[str, str]
) -> None:
    async with through(unnamed, said) as browser:
        form = await browser.get("/console/login")
        assert "strict-transport-security" not in form.headers
        name, _, attributes = cookie_of(await log_in(browser, accepting.gateway.acme.key.secret))
        assert name == COOKIE
        assert "secure" not in attributes


@pytest.mark.parametrize(
    "said", [{}, {"X-Forwarded-Proto": "http"}, {"X-Forwarded-Proto": "https", "Forwarded": "for=192.0.2.7;proto=http"}]
)
async def test_a_named_proxy_that_does_not_say_that_tls_was_used_makes_no_such_cookie(
    accepting: TokenGateway, named: str, said: dict[str, str]
) -> None:
    async with through(named, said) as browser:
        assert cookie_of(await log_in(browser, accepting.gateway.acme.key.secret))[0] == COOKIE


@pytest.mark.parametrize("origin", [f"http://{HOST}", "https://evil.example", f"https://{HOST}:8181", "null"])
async def test_a_form_of_another_origin_than_the_public_one_is_refused(
    accepting: TokenGateway, named: str, monkeypatch: pytest.MonkeyPatch, origin: str
) -> None:
    unhurried(monkeypatch)
    async with through(named, SAID[0]) as browser:
        refused = await log_in(browser, accepting.gateway.acme.key.secret, origin=origin)
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
        asked = {**accepting.gateway.http.headers, "Host": HOST, "Origin": origin}
        assert (await browser.post("/v1/graphql", json={"query": "{__typename}"}, headers=asked)).status_code == 403
        asked["Origin"] = ORIGIN
        assert (await browser.post("/v1/graphql", json={"query": "{__typename}"}, headers=asked)).status_code == 200


async def test_a_login_at_a_provider_returns_over_tls_and_keeps_a_cookie_for_tls_alone(named: str) -> None:
    async with through(named, SAID[0]) as browser:
        begun = await browser.get(BEGIN)
        (returns_to,) = parse_qs(urlsplit(begun.headers["location"]).query)["redirect_uri"]
        assert returns_to == ORIGIN + ANSWER
        name, _, attributes = cookie_of(begun)
        assert name == f"__Host-{ATTEMPT_COOKIE}"
        assert "secure" in attributes


@pytest.mark.parametrize("host", ["127.0.0.1:8181", "[::1]:8181", "localhost"])
async def test_a_name_of_this_machine_is_not_bound_to_tls(named: str, host: str) -> None:
    async with through(named, SAID[0]) as browser:
        assert "strict-transport-security" not in (await browser.get("/console/login", headers={"Host": host})).headers


@pytest.mark.parametrize("said", [{"X-Forwarded-Proto": "https"}, {"X-Forwarded-Host": "127.0.0.1"}])
async def test_a_login_link_is_opened_through_no_proxy_whatever_header_shows_it(
    unnamed: str, said: dict[str, str]
) -> None:
    async with httpx.AsyncClient(base_url=unnamed, trust_env=False, timeout=PATIENCE_S) as browser:
        path = "/console/login/link?once=" + "0" * 64
        assert (await browser.get(path)).status_code == 200
        assert (await browser.get(path, headers=said)).status_code == 403
