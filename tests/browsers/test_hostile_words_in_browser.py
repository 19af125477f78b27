# SPDX-License-Identifier: Apache-2.0
"""
A corpus of markup and script in every name, message and value, on every page of the console, in a real browser: all of
it is text. Nothing runs, nothing is loaded, and the content policy has nothing to stop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from urllib.parse import quote

import pytest
import pytest_asyncio
from fastapi import FastAPI
from playwright.async_api import Page

from lakeproof.services import Services
from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.console.furnished import Furnished, open_furnished
from testkit.gateway.console.visits import walk
from testkit.gateway.sales import CREATE, NAMESPACES, another_key, properties
from testkit.gateway.two_views import project

pytestmark = pytest.mark.asyncio(loop_scope="module")

CORPUS = (
    "<script>hit=1</script>",
    "<img src=x onerror=hit=1>",
    "'\"><svg/onload=hit=1>",
    "javascript:hit=1",
    "</textarea></title></pre><script>hit=1</script>",
    "{{7*7}}${7*7}",
    "<a href=javascript:hit=1>x</a><base href=//evil.example>",
    "<iframe srcdoc='<script>parent.hit=1</script>'>",
    "<details open ontoggle=hit=1>",
    "&lt;script&gt;hit=1&lt;/script&gt;",
    "<style>@import 'http://evil.example'</style><meta http-equiv=refresh content=0>",
    "<math><mtext></form><form><mglyph><style></math><img src onerror=hit=1>",
)
WORDS = " ".join(CORPUS)
FOREIGN = (
    "script:not([src]), img, iframe, base, style, math, [onload], [onerror], [ontoggle], a[href^=javascript], "
    "meta[http-equiv]"
)
NAMES = ("<img src=x onerror=hit=1>", "'\"><svg onload=hit=1>", "{{7*7}}${7*7}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostile(module_services: Services, module_app: FastAPI) -> AsyncIterator[tuple[Furnished, Page, list[str]]]:
    async with open_furnished(module_services, module_app, words=WORDS) as furnished, chromium_in_loop() as browser:
        gateway = furnished.gateway
        for name in NAMES:
            made = await gateway.http.post(f"{NAMESPACES}/sales/tables", json={**CREATE, "name": name})
            assert made.status_code == 200, made.text
        key = await another_key(gateway, "<b>eve</b>@acme.example", "data-eng")
        async with gateway.client(key) as eve:
            eve.headers["User-Agent"] = WORDS
            refused = await eve.post(f"{NAMESPACES}/sales/tables/orders", json=properties(owner="", note=WORDS))
            assert refused.status_code == 403
        await project(gateway)
        page = await furnished.log_in(browser)
        troubles: list[str] = []
        page.on("dialog", lambda dialog: troubles.append(dialog.message))
        page.on("console", lambda said: troubles.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("request", lambda asked: None if asked.url.startswith(furnished.url) else troubles.append(asked.url))
        yield furnished, page, troubles


async def look_at(page: Page) -> None:
    """Check that a page has no element and no handler that the console did not write."""
    assert await page.evaluate("window.hit") is None, page.url
    assert await page.locator(FOREIGN).count() == 0, page.url
    assert "49" not in (await page.locator("body").inner_text()).replace("7*7", "").split(), page.url


async def test_what_others_write_is_text_on_every_page(
    hostile: tuple[Furnished, Page, list[str]], module_app: FastAPI
) -> None:
    furnished, page, troubles = hostile
    shown = ""
    listed = (await furnished.gateway.http.get("/v1/log/entries?limit=500")).json()["entries"]
    paths = {
        *(await walk(page, module_app, furnished.url)).values(),
        *(f"/console/log/{entry['index']}" for entry in listed[:8]),
        *(f"/console/decisions/{entry['index']}" for entry in listed if entry["type"] == "commit.decided"),
        "/console/policies/owned",
        "/console/policies/proposed",
    }
    await page.goto(f"{furnished.url}/console/tables")
    tables = await page.eval_on_selector_all("tbody a", "all => all.map(each => each.href)")
    paths |= {link.removeprefix(furnished.url) for link in tables}
    for path in sorted(paths):
        await page.goto(furnished.url + path)
        await page.eval_on_selector_all("details", "all => all.forEach(each => { each.open = true; })")
        await look_at(page)
        shown += await page.locator("body").inner_text()
    for hostile_text in (*CORPUS, *NAMES, "<b>eve</b>"):
        assert hostile_text in shown, hostile_text
    assert troubles == []


async def test_what_comes_into_a_page_that_follows_the_log_is_text(hostile: tuple[Furnished, Page, list[str]]) -> None:
    furnished, page, troubles = hostile
    await page.goto(f"{furnished.url}/console/log")
    await page.click("#follow")
    await page.locator("#followed", has_text="Following").wait_for()
    name = "<img src=y onerror=window.hit=1>"
    made = await furnished.gateway.http.post(f"{NAMESPACES}/sales/tables", json={**CREATE, "name": name})
    assert made.status_code == 200
    await page.locator("#followed", has_text="new").wait_for()
    assert "onerror" in await page.locator("#entries tbody").inner_text()
    await look_at(page)
    assert troubles == []


async def test_what_a_link_asks_for_is_text(hostile: tuple[Furnished, Page, list[str]]) -> None:
    furnished, page, troubles = hostile
    asked = ("log?type=", "tables?name=", "findings?kind=", "login?to=", "log?cursor=", "policies/", "login/at/")
    for path, text in product(asked, (WORDS, " ".join(reversed(CORPUS)))):
        await page.goto(f"{furnished.url}/console/{path}{quote(text, safe='')}")
        await look_at(page)
    assert troubles == []
