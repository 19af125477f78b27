# SPDX-License-Identifier: Apache-2.0
"""
A login with a real OpenID provider (node-oidc-provider, certified), in a real browser, through the whole flow.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Request

from gateway.console.logins import ATTEMPT_COOKIE, COOKIE, ENDED
from gateway.identity.principal import TokenRefusedError
from testkit.environment import PATIENCE_S
from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.console.logins import ANSWER, MovedClock, answer_to, console_with, served_late
from testkit.gateway.token_gateway import TokenGateway
from testkit.servers.gateways import Gateway
from testkit.servers.identity_provider import IdentityProvider
from testkit.servers.oidc_provider import OidcProvider, oidc_provider

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUDIENCE = "https://lake.example"
PERSON = "grace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A console that is served, and the provider at which people log in to it."""

    url: str
    accepting: TokenGateway
    provider: OidcProvider
    clock: MovedClock
    browser: Browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(module_sales: Gateway) -> AsyncIterator[Place]:
    rule = {"id": "engineers", "effect": "permit", "expression": "'data-eng' in roles"}
    (await module_sales.http.post("/v1/access-rules", json=rule)).raise_for_status()
    async with AsyncExitStack() as stack:
        app, url = await stack.enter_async_context(served_late())
        provider = stack.enter_context(oidc_provider(AUDIENCE, redirect_uri=url + ANSWER))
        clock = MovedClock()
        known = IdentityProvider(url=provider.url, audience=AUDIENCE)
        accepting = await stack.enter_async_context(
            console_with(module_sales, known, origin=url, clock=clock, resource=AUDIENCE)
        )
        app.made = accepting.app
        browser = await stack.enter_async_context(chromium_in_loop())
        yield Place(url=url, accepting=accepting, provider=provider, clock=clock, browser=browser)


@pytest_asyncio.fixture(loop_scope="module")
async def context(place: Place) -> AsyncIterator[BrowserContext]:
    context = await place.browser.new_context()
    yield context
    await context.close()
    place.clock.ahead = timedelta(0)


async def log_in(page: Page, place: Place, *, to: str = "/console/log") -> None:
    """Log in as a person does, from the page that sends there, until the console answers."""
    await page.goto(place.url + to)
    await page.click("text=Log in with acme")
    await page.fill("input[name=login]", PERSON)
    await page.fill("input[name=password]", "any")
    await page.click("button[type=submit]")
    await page.click("button[type=submit]")  # the provider asks what the client may know


async def test_a_person_logs_in_comes_to_the_page_that_was_asked_for_and_logs_out(
    place: Place, context: BrowserContext
) -> None:
    page, seen = await context.new_page(), list[Request]()
    page.on("request", lambda request: seen.append(request))
    await log_in(page, place, to="/console/log?type=commit.decided")
    await page.wait_for_url(f"{place.url}/console/log?type=commit.decided")
    assert await page.locator("header .who span").text_content() == PERSON
    assert await page.locator('#entries td a[href^="/console/log/"]').count() > 0
    cookies = {cookie["name"]: cookie for cookie in await context.cookies(place.url)}
    assert ATTEMPT_COOKIE not in cookies
    assert cookies[COOKIE]["httpOnly"]
    for request in seen:  # no token in a URL; what is in the answer's counts once
        assert not re.search(r"\beyJ|access_token|id_token", request.url), request.url
    await page.click("text=Log out")
    await page.goto(f"{place.url}/console/log")
    assert urlsplit(page.url).path == "/console/login"


async def test_a_session_ends_with_the_token_that_the_provider_gave(place: Place, context: BrowserContext) -> None:
    page = await context.new_page()
    await log_in(page, place)
    await page.wait_for_url(f"{place.url}/console/log")
    place.clock.ahead = timedelta(seconds=600 + 61)
    await page.goto(f"{place.url}/console/tables")
    assert ENDED in (await page.locator(".problem").text_content() or "")


async def test_an_answer_counts_once_and_only_in_the_browser_that_asked(place: Place, context: BrowserContext) -> None:
    page, answers = await context.new_page(), list[str]()
    page.on("request", lambda request: answers.append(request.url) if ANSWER in request.url else None)
    await log_in(page, place)
    await page.wait_for_url(f"{place.url}/console/log")
    (answer,) = answers
    other = await place.browser.new_context()
    for where in (context, other):
        again = await where.new_page()
        await again.goto(answer)
        assert "was not begun in this browser, or was finished already" in (
            await again.locator(".problem").text_content() or ""
        )
    assert not await other.cookies(place.url)
    await other.close()


async def test_a_code_counts_for_the_login_that_it_was_made_for_alone(place: Place) -> None:
    codes = place.accepting.tokens.codes
    _, provider = codes._find("acme")
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        begun = [await codes.begin("acme", to="/console", secret=bytes([number]) * 32) for number in range(3)]
        answers = [parse_qs(urlsplit(await answer_to(http, each.url, person=PERSON)).query) for each in begun]
    first, second, third = ({name: value for name, (value,) in each.items()} for each in answers)
    assert (await codes.finish("acme", first, kept=begun[0].kept)).attempt.to == "/console"
    with pytest.raises(TokenRefusedError, match="invalid_grant"):  # the provider gives nothing for a code twice
        await codes.finish("acme", first, kept=begun[0].kept)
    with pytest.raises(TokenRefusedError, match="invalid_grant"):  # nor for the code of another login
        await codes.finish("acme", {**second, "code": third["code"]}, kept=begun[1].kept)
    with pytest.raises(TokenRefusedError, match="invalid_grant"):
        await provider.exchange(second["code"], verifier="v" * 43)


async def test_who_says_no_at_the_provider_is_told_how_to_go_on(place: Place, context: BrowserContext) -> None:
    page = await context.new_page()
    await page.goto(f"{place.url}/console/login")
    await page.click("text=Log in with acme")
    await page.click("text=Cancel")
    assert await page.locator(".problem").text_content() == (
        "The identity provider did not log you in (access_denied): log in again."
    )
    assert await page.locator("text=Log in with acme").count() == 1


async def test_the_provider_sends_nobody_to_another_address(place: Place, context: BrowserContext) -> None:
    page = await context.new_page()
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        begun = await http.get(f"{place.url}/console/login/at/acme", headers={"X-Forwarded-Host": "evil.example"})
    location = begun.headers["location"]
    assert parse_qs(urlsplit(location).query)["redirect_uri"] == [place.url + ANSWER]
    await page.goto(location.replace(place.url.replace(":", "%3A").replace("/", "%2F"), "https%3A%2F%2Fevil.example"))
    assert "redirect_uri" in await page.content()
    assert urlsplit(page.url).netloc == urlsplit(place.provider.url).netloc
