# SPDX-License-Identifier: Apache-2.0
"""
Links that log a browser in once: on this machine, by a button, within ten minutes, and never again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from html import unescape
from re import findall
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from gateway.console.logins import COOKIE, LINK_USED
from gateway.console.one_time import LINK_LIFETIME, LINK_PATH, OneTime, one_time_of
from lakeproof.serving.listening import loopback_url
from testkit.environment import PATIENCE_S
from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.sales import another_key, revoke
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWN = {"Sec-Fetch-Site": "same-origin"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine of a gateway: where it listens, and who may see all."""

    gateway: Gateway
    url: str

    async def link(self, key: str | None = None) -> str:
        """Make a link; return what it carries."""
        link = await one_time_of(self.gateway.services.gateway).make_link(
            f"Bearer {key or self.gateway.acme.key.secret}"
        )
        assert link.path.startswith(f"{LINK_PATH}?once=")
        return parse_qs(urlsplit(link.path).query)["once"][0]

    def browser(self, **headers: str) -> httpx.AsyncClient:
        """A browser of its own, which sends these headers."""
        return httpx.AsyncClient(base_url=self.url, headers={**OWN, **headers}, timeout=PATIENCE_S)


async def use(browser: httpx.AsyncClient, once: str) -> httpx.Response:
    return await browser.post(LINK_PATH, data={"once": once})


def told(page: httpx.Response) -> str:
    assert not any(each.startswith(f"{COOKIE}=") for each in page.headers.get_list("set-cookie"))
    (words,) = findall(r'class="problem" role="alert">([^<]*)<', page.text)
    return unescape(words)


@pytest_asyncio.fixture(loop_scope="module")
async def machine(sales: Gateway) -> AsyncIterator[Machine]:
    async with serve_gateway(sales.app) as url:
        yield Machine(gateway=sales, url=url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with chromium_in_loop() as browser:
        yield browser


async def test_a_person_opens_a_link_presses_its_button_and_is_logged_in(machine: Machine, chromium: Browser) -> None:
    once = await machine.link()
    async with machine.browser() as preview:  # what previews a link spends nothing
        for _ in range(2):
            assert (await preview.get(LINK_PATH, params={"once": once})).status_code == 200
    page = await chromium.new_page()
    await page.goto(f"{machine.url}{LINK_PATH}?once={once}")
    await page.keyboard.press("Enter")  # the button has the focus
    await page.wait_for_url(f"{machine.url}/console")
    await page.goto(f"{machine.url}{LINK_PATH}?once={once}")
    await page.click("main button")
    assert await page.locator(".problem").text_content() == LINK_USED
    await page.context.close()


async def test_of_two_who_use_a_link_at_once_one_is_logged_in(machine: Machine) -> None:
    once = await machine.link()
    async with machine.browser() as one, machine.browser() as other:
        answers = await asyncio.gather(use(one, once), use(other, once))
    assert sorted(answer.status_code for answer in answers) == [303, 401]


@pytest.mark.parametrize("once", ["", "0" * 64, "x" * 64, "0" * 63, "../"])
async def test_a_link_that_is_none_logs_nobody_in(machine: Machine, once: str) -> None:
    async with machine.browser() as browser:
        assert told(await use(browser, once)) == LINK_USED


async def test_a_link_is_of_no_use_after_ten_minutes(machine: Machine) -> None:
    parts, once = machine.gateway.services.gateway, await machine.link()
    late = OneTime(
        parts.database, parts.roles.gateway, clock=lambda: parts.clock() + LINK_LIFETIME, random=parts.random
    )
    assert await late.take_link(once) is None
    assert await one_time_of(parts).take_link(once) is not None


async def test_a_link_whose_key_was_revoked_logs_nobody_in(machine: Machine) -> None:
    key = await another_key(machine.gateway, "grace@acme.example", "data-eng")
    once = await machine.link(key)
    await revoke(machine.gateway, key)
    async with machine.browser() as browser:
        assert told(await use(browser, once)) == "The key of this link is no longer in force. Make another link."


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.7"},
        {"Forwarded": "for=203.0.113.7"},
        {"Host": "lake.example.org"},
        {"Host": "rebound.example:8181"},
        {"Host": "203.0.113.7"},
    ],
)
async def test_a_link_is_opened_on_the_gateways_own_machine_alone(machine: Machine, headers: dict[str, str]) -> None:
    once = await machine.link()
    async with machine.browser(**headers) as elsewhere:
        for answer in (await elsewhere.get(LINK_PATH, params={"once": once}), await use(elsewhere, once)):
            assert answer.status_code == 403
            assert "on the gateway's own machine" in told(answer)
    async with machine.browser() as here:
        assert (await use(here, once)).status_code == 303


async def test_another_site_uses_no_link(machine: Machine) -> None:
    once = await machine.link()
    async with machine.browser(**{"Sec-Fetch-Site": "cross-site"}) as browser:
        assert (await use(browser, once)).status_code == 403


async def test_a_link_is_no_cookie_and_a_cookie_is_no_link(machine: Machine) -> None:
    once = await machine.link()
    async with machine.browser() as browser:
        browser.cookies.set(COOKIE, once)
        assert (await browser.get("/console")).status_code == 303
    async with machine.browser() as browser:
        assert (await use(browser, once)).status_code == 303
        cookie = browser.cookies[COOKIE]
    async with machine.browser() as browser:
        assert told(await use(browser, cookie)) == LINK_USED


async def test_the_database_has_neither_a_link_nor_its_key(machine: Machine) -> None:
    once, parts = await machine.link(), machine.gateway.services.gateway
    async with parts.database.as_role(parts.roles.gateway) as connection:
        rows = await (await connection.execute("SELECT session, sealed FROM gateway.console_sessions")).fetchall()
    stored = b"".join(bytes(value) for row in rows for value in row)
    assert len(stored) > 32
    assert bytes.fromhex(once) not in stored
    assert machine.gateway.acme.key.secret.encode() not in stored


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://127.0.0.1:8181", "http://127.0.0.1:8181"),
        ("http://[::1]:8181", "http://[::1]:8181"),
        ("https://0.0.0.0:443", "https://127.0.0.1:443"),
        ("http://[::]:8181", "http://[::1]:8181"),
        ("http://10.0.0.7:8181", None),
    ],
)
async def test_a_link_begins_with_where_the_gateway_is_reached_over_loopback(url: str, found: str | None) -> None:
    assert loopback_url(url) == found
