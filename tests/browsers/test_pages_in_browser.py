# SPDX-License-Identifier: Apache-2.0
"""
The console in a real browser: a visitor logs in, follows the log, and has the browser check proofs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route

from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.sales import ORDERS, properties
from testkit.servers.gateways import Gateway, keep_signing
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLDS = "All of it holds."


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser of its own that is logged in, and what it was told."""

    gateway: Gateway
    url: str
    page: Page
    troubles: list[str]

    async def check(self, index: int) -> list[str]:
        """Check the proof of an entry on its page, and return what the page says, the verdict last."""
        await self.page.goto(f"{self.url}/console/log/{index}")
        await self.page.click("#check")
        await self.page.locator("#steps .verdict").wait_for()
        return await self.page.locator("#steps li").all_text_contents()

    async def append(self) -> int:
        """Commit once more, and return the index of the last entry: nothing that was signed before covers it."""
        (await self.gateway.http.post(ORDERS, json=properties(note="new"))).raise_for_status()
        listed = (await self.gateway.http.get("/v1/log/entries?limit=1")).json()["entries"]
        return int(listed[0]["index"])

    async def remembered(self) -> dict[str, Any]:
        kept = await self.page.evaluate(f"localStorage.getItem({json.dumps(self.memory)})")
        found: dict[str, Any] = json.loads(kept)
        return found

    async def remember(self, **members: Any) -> None:
        """Change what the browser remembers of the log."""
        kept = json.dumps({**await self.remembered(), **members})
        await self.page.evaluate(f"localStorage.setItem({json.dumps(self.memory)}, {json.dumps(kept)})")

    @property
    def memory(self) -> str:
        return f"lakeproof log {self.gateway.acme.origin}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium_in_loop() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(sales: Gateway, browser: Browser) -> AsyncIterator[Visitor]:
    async with keep_signing(sales), serve_gateway(sales.app) as url:
        context = await browser.new_context()
        page = await context.new_page()
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        await page.goto(f"{url}/console/log")
        await page.fill("#key", sales.acme.key.secret)
        await page.click("main button")
        await page.wait_for_url("**/console/log")
        yield Visitor(sales, url, page, troubles)
        await context.close()


async def test_a_browser_checks_an_entry_and_later_that_the_log_has_only_grown(visitor: Visitor) -> None:
    said = await visitor.check(0)
    assert said[-1] == HOLDS, said
    assert any("seen here for the first time" in each for each in said)
    said = await visitor.check(await visitor.append())
    assert said[-1] == HOLDS, said
    assert any(each.startswith("Grown: ") for each in said)
    assert visitor.troubles == []


async def test_an_entry_that_the_page_shows_otherwise_than_it_was_appended_is_red(visitor: Visitor) -> None:
    async def forge(route: Route) -> None:
        answer = await route.fetch()
        text = (await answer.text()).replace("&#34;index&#34;:1,", "&#34;index&#34;:1, ")
        await route.fulfill(response=answer, body=text)

    await visitor.page.route("**/console/log/1", forge)
    said = await visitor.check(1)
    assert said[-1].startswith("Broken: proof fault"), said


@pytest.mark.parametrize("place", ["proof", "growth"])
async def test_a_proof_that_is_not_whole_is_red(visitor: Visitor, place: str) -> None:
    async def forge(route: Route) -> None:
        answer = await route.fetch()
        given = await answer.json()
        await route.fulfill(response=answer, body=json.dumps({**given, place: given[place][:-1]}))

    assert (await visitor.check(0))[-1] == HOLDS
    last = await visitor.append()
    await visitor.page.route("**/check?seen=*", forge)
    said = await visitor.check(last)
    assert said[-1].startswith("Broken: "), said
    await visitor.page.unroute("**/check?seen=*")
    assert (await visitor.check(last))[-1] == HOLDS


@pytest.mark.parametrize(
    ("forgotten", "words"),
    [
        ({"root": "A" * 43 + "="}, "another root"),
        ({"size": "999999"}, "the log now has fewer"),
        ({"keys": ["other.example/log+0de0cbb0+AW+g1t5CSP0xUjr26pgK6rXCnk2sNF6sxEZ3gR7jM5YB"]}, "Broken: "),
        ({"keys": []}, "none of the keys that you trust"),
    ],
)
async def test_what_contradicts_what_the_browser_has_seen_is_red(
    visitor: Visitor, forgotten: dict[str, Any], words: str
) -> None:
    assert (await visitor.check(0))[-1] == HOLDS
    before = await visitor.remembered()
    last = await visitor.append()
    await visitor.remember(**forgotten)
    said = await visitor.check(last)
    assert said[-1].startswith("Broken: "), said
    assert words in said[-1]
    assert {**before, **forgotten} == await visitor.remembered()  # what is red is not taken for the new truth
    await visitor.page.click("#forget")
    assert (await visitor.check(last))[-1] == HOLDS


async def test_without_an_answer_nothing_is_green(visitor: Visitor) -> None:
    async def away(route: Route) -> None:
        await route.abort()

    await visitor.page.route("**/check?seen=*", away)
    said = await visitor.check(0)
    assert said == [
        "This cannot be checked here: the gateway gave no proof: you may be logged out, or nothing is signed yet"
    ]


async def test_new_entries_come_on_top_of_the_log(visitor: Visitor) -> None:
    page = visitor.page
    await page.goto(f"{visitor.url}/console/log?type=commit.decided")
    await page.click("#follow")
    await page.locator("#followed", has_text="Following").wait_for()
    rows = await page.locator("#entries tbody tr").count()
    await visitor.gateway.http.post(ORDERS, json=properties(note="<b>new</b>"))
    await page.locator("#followed", has_text="1 new").wait_for()
    assert await page.locator("#entries tbody tr").count() == rows + 1
    await page.click("#follow")
    assert await page.locator("#follow").text_content() == "Follow"
    assert visitor.troubles == []
