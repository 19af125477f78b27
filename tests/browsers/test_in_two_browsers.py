# SPDX-License-Identifier: Apache-2.0
"""
The console in Chromium and Firefox. Behind a proxy that changes one byte, of the entry, the proof or the key, every
proof is red. Two tenants see nothing of each other. And what a browser says that cannot check.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from gateway.console.logins import ENDED
from lakeproof.services import Services
from testkit.gateway.console.altering_proxy import (
    Alter,
    AlteringProxy,
    altering_proxy,
    in_entry,
    in_growth,
    in_key,
    in_proof,
    unchanged,
)
from testkit.gateway.console.chromium import PLAIN_HOST, chromium_in_loop
from testkit.gateway.console.firefox_browser import Firefox, firefox
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, another_key, properties, revoke
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway, app_of, keep_signing, open_gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLDS = "All of it holds."
INDEX = 2
PATHS = ("", "/log", "/log/1", "/tables", "/findings", "/policies", "/log.json", "/log.csv", "/tables.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A gateway, the proxy in front of it, and two browsers that are logged in through the proxy."""

    gateway: Gateway
    url: str
    proxy: AlteringProxy
    page: Page
    firefox: Firefox

    async def check(self, alter: Alter | None = None, *, index: int = INDEX) -> str:
        """Check the proof of an entry in Chromium, and return the verdict."""
        self.proxy.alter = alter or unchanged
        altered = self.proxy.altered
        await self.page.goto(f"{self.proxy.url}/console/log/{index}")
        await self.page.click("#check")
        await self.page.locator("#steps .verdict").wait_for()
        assert (self.proxy.altered > altered) == (alter is not None)
        return await self.page.locator("#steps .verdict").text_content() or ""

    async def check_in_firefox(self, alter: Alter | None = None, *, index: int = INDEX) -> str:
        """The same in Firefox."""
        self.proxy.alter = alter or unchanged
        altered = self.proxy.altered
        await self.firefox.do("goto", url=f"{self.proxy.url}/console/log/{index}")
        await self.firefox.do("click", selector="#check")
        await self.firefox.do("wait", selector="#steps .verdict")
        assert (self.proxy.altered > altered) == (alter is not None)
        (verdict,) = await self.firefox.do("texts", selector="#steps .verdict")
        return str(verdict)

    async def enter_firefox(self, key: str) -> None:
        """Log Firefox in, as a browser that has never been here."""
        self.proxy.alter = unchanged
        await self.firefox.do("fresh")
        await self.firefox.do("goto", url=f"{self.proxy.url}/console/log")
        await self.firefox.do("type", selector="#key", text=key)
        await self.firefox.do("follow", selector="form.login button")
        assert await self.firefox.do("url") == f"{self.proxy.url}/console/log"

    async def forget(self) -> None:
        """Let both browsers forget what they trust."""
        await self.page.evaluate("localStorage.clear()")
        await self.firefox.do("evaluate", script="localStorage.clear()")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def way(module_services: Services) -> AsyncIterator[Way]:
    app = app_of(module_services.gateway, installation=module_services.installation)
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(open_gateway(module_services, app=app))
        for path, body in ((NAMESPACES, {"namespace": ["sales"]}), (TABLES, CREATE), (ORDERS, properties(note="é"))):
            (await gateway.http.post(path, json=body)).raise_for_status()
        await stack.enter_async_context(keep_signing(gateway))
        url = await stack.enter_async_context(serve_gateway(app))
        proxy = await stack.enter_async_context(altering_proxy(url))
        browser: Browser = await stack.enter_async_context(chromium_in_loop())
        page = await (await browser.new_context()).new_page()
        key = gateway.acme.key.secret
        await page.goto(f"{proxy.url}/console/log")
        await page.fill("#key", key)
        await page.click("form.login button")
        await page.wait_for_url(f"{proxy.url}/console/log")
        other = await stack.enter_async_context(firefox())
        way = Way(gateway=gateway, url=url, proxy=proxy, page=page, firefox=other)
        await way.enter_firefox(key)
        yield way


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def forgotten(way: Way) -> None:
    await way.forget()


async def test_both_browsers_check_a_proof_through_a_proxy_that_changes_nothing(way: Way) -> None:
    for check in (way.check, way.check_in_firefox):
        assert [await check(), await check()] == [HOLDS, HOLDS]
    assert way.firefox.version.startswith("firefox/")


@pytest.mark.parametrize(
    ("make", "positions"),
    [
        (partial(in_entry, INDEX), (1, 17, 60, 101, 143, 190, 260, -2)),
        (in_proof, (0, 13, 25, 40, 50, 400, -20, -60, -3)),
        (in_key, (0, 1, 16, 32)),
    ],
    ids=["entry", "proof", "key"],
)
async def test_one_byte_that_was_changed_on_the_way_is_red(
    way: Way, make: Callable[[int], Alter], positions: tuple[int, ...]
) -> None:
    for at in positions:
        assert (await way.check(make(at))).startswith("Broken: "), at
    for at in positions[2:4]:
        assert (await way.check_in_firefox(make(at))).startswith("Broken: "), at
    assert [await way.check(), await way.check_in_firefox()] == [HOLDS, HOLDS]


async def test_a_proof_of_growth_that_was_changed_on_the_way_is_red(way: Way) -> None:
    assert [await way.check(), await way.check_in_firefox()] == [HOLDS, HOLDS]
    (await way.gateway.http.post(ORDERS, json=properties(note="more"))).raise_for_status()
    newest = (await way.gateway.http.get("/v1/log/entries?limit=1")).json()["entries"][0]["index"]
    for check in (way.check, way.check_in_firefox):
        for at in (0, 15, 31):
            assert (await check(in_growth(at), index=newest)).startswith("Broken: ")
        assert await check(index=newest) == HOLDS


async def test_over_plain_http_the_page_says_why_it_cannot_check_and_what_to_do(way: Way) -> None:
    plain = way.url.replace("127.0.0.1", PLAIN_HOST)
    assert way.page.context.browser is not None
    context = await way.page.context.browser.new_context()
    page = await context.new_page()
    await page.goto(f"{plain}/console/log/{INDEX}")
    await page.fill("#key", way.gateway.acme.key.secret)
    await page.click("form.login button")
    await page.click("#check")
    told = await page.locator("#steps .verdict").text_content() or ""
    assert told.startswith("This cannot be checked here: ")
    assert "https" in told
    await context.close()


async def test_a_browser_without_ed25519_says_so_and_turns_nothing_green(way: Way) -> None:
    await way.page.add_init_script(
        "SubtleCrypto.prototype.importKey = () => Promise.reject(new DOMException('no', 'NotSupportedError'))"
    )
    told = await way.check()
    assert told.startswith("This cannot be checked here: ")
    assert "Ed25519" in told


async def test_two_tenants_in_two_browsers_see_nothing_of_each_other(way: Way) -> None:
    async with open_gateway(way.gateway.services, app=way.gateway.app) as zeta:
        for gateway, name in ((way.gateway, "receivables"), (zeta, "plans")):
            (await gateway.http.post(NAMESPACES, json={"namespace": [name]})).raise_for_status()
            (await gateway.http.post(f"{NAMESPACES}/{name}/tables", json={**CREATE, "name": name})).raise_for_status()
        for gateway in (way.gateway, zeta):
            await project(gateway)
        await way.enter_firefox(zeta.acme.key.secret)
        for path in PATHS:
            # What belongs to one is never on a page of the other, and the pages are not empty.
            texts = await _both(way, f"/console{path}")
            assert [len(text) > 10 for text in texts] == [True, True]
            for text, others in zip(texts, (zeta, way.gateway), strict=True):
                assert others.acme.origin not in text
                own, other = ("receivables", "plans") if others is zeta else ("plans", "receivables")
                assert other not in text, path
                assert own in text or path not in {"/tables", "/tables.json", "/log.csv"}
        theirs = (await way.gateway.http.get("/v1/log/entries?limit=1")).json()
        for path, words in (
            (f"/console/log/{theirs['entries'][0]['index'] + 50}", "expected an entry of the log that you may see"),
            (f"/console/log?cursor={theirs['cursor']}", "cursor"),
        ):
            await way.firefox.do("goto", url=way.proxy.url + path)
            (told,) = await way.firefox.do("texts", selector=".problem")
            assert words in told
            assert way.gateway.acme.origin not in told
        await way.firefox.do("goto", url=f"{way.proxy.url}/console/tables/lake/receivables/receivables")
        assert "None is known." in await way.firefox.do("texts", selector="#commits .note")
    await way.enter_firefox(way.gateway.acme.key.secret)


async def _both(way: Way, path: str) -> list[str]:
    """Return what both browsers show at a path."""
    answer = await way.page.context.request.get(way.proxy.url + path)
    script = f"fetch({way.proxy.url + path!r}).then((answer) => answer.text())"
    return [await answer.text(), await way.firefox.do("evaluate", script=script)]


async def test_who_is_shown_that_the_session_has_ended_is_told_what_to_do(way: Way) -> None:
    key = await another_key(way.gateway, "grace@acme.example", "data-eng")
    await way.enter_firefox(key)
    await revoke(way.gateway, key)
    await way.firefox.do("goto", url=f"{way.proxy.url}/console/tables")
    assert await way.firefox.do("texts", selector=".problem") == [ENDED]
    await way.enter_firefox(way.gateway.acme.key.secret)
    assert str(await way.firefox.do("url")).endswith("/console/log")
