# SPDX-License-Identifier: Apache-2.0
"""
A policy in a real browser: an author mends an error, tries the text and drafts it, another person approves it, and a
replay is watched, with script and without. And who may do what is asked of the access rules.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from gateway.policy.process import Child
from testkit.gateway.console.browsing import permit_all
from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.console.hostile_texts import HOSTILE_TEXTS
from testkit.gateway.jobs import replaying
from testkit.gateway.sales import ORDERS, another_key, properties
from testkit.gateway.two_views import project
from testkit.servers.forked_workers import fork_worker
from testkit.servers.gateways import Gateway
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Site:
    """The gateway as browsers reach it, and what any of their pages complained of."""

    gateway: Gateway
    url: str
    browser: Browser
    troubles: list[str]
    may_replay: asyncio.Event

    @asynccontextmanager
    async def visitor(self, key: str, *, script: bool = True) -> AsyncIterator[Page]:
        """A browser of its own that is logged in."""
        context = await self.browser.new_context(java_script_enabled=script)
        page = await context.new_page()
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("console", lambda said: self.troubles.append(said.text) if "Policy" in said.text else None)
        page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        await page.goto(f"{self.url}/console/policies")
        await page.fill("#key", key)
        await page.click("main button")
        await page.wait_for_url("**/console/policies")
        yield page
        await context.close()

    @asynccontextmanager
    async def holding_replays(self) -> AsyncIterator[None]:
        """Replays begin, and do not end until this does."""
        self.may_replay.clear()
        try:
            yield
        finally:
            self.may_replay.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium_in_loop() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def site(sales: Gateway, browser: Browser) -> AsyncIterator[Site]:
    """Somebody has committed without a note, and so twice."""
    for text in ("1", "2"):
        assert (await sales.http.post(ORDERS, json=properties(a=text))).status_code == 200
    await project(sales)
    may_replay = asyncio.Event()
    may_replay.set()

    async def spawn(judging_bytes_max: int, progress: int) -> Child:
        await may_replay.wait()
        return await fork_worker(judging_bytes_max, progress)

    async with serve_gateway(sales.app) as url, replaying(sales.services, spawn=spawn):
        yield Site(sales, url, browser, [], may_replay)


async def test_who_may_do_something_is_asked_without_script_and_leads_to_the_rules_that_decide(site: Site) -> None:
    await another_key(site.gateway, "rita@acme.example", "reader")
    reads = "op == 'READ_ENTITY_VALUE' && 'reader' in roles"
    for rule_id, expression in (("readers", reads), ("narrow", f"{reads} && path == 'sales.orders'")):
        rule = {"id": rule_id, "effect": "permit", "expression": expression}
        assert (await site.gateway.http.post("/v1/access-rules", json=rule)).status_code == 201
    async with site.visitor(site.gateway.acme.key.secret, script=False) as page:
        await page.click("nav >> text=Access rules")
        await page.click("text=Look for rules that do nothing")
        await expect(page.locator("tr", has=page.locator("text=shadowed"))).to_contain_text("narrow")
        await page.click("text=Who may do something")
        await page.click("main button")
        await expect(page.locator("[role=alert]")).to_have_text("Choose an operation, such as table.load.")
        await page.select_option("[name=operation]", "table.load")
        await page.fill("[name=target]", "lake.sales.orders")
        await page.click("main button")
        rita = page.locator("tbody tr", has_text="rita@acme.example")
        await expect(rita).to_contain_text("yes")
        await rita.locator("a").click()
        await page.wait_for_url("**/console/access-rules/readers")
        await expect(page.locator("pre")).to_have_text(reads)
        await page.click("text=What somebody may do")
        key = page.locator("option", has_text="rita@acme.example")
        await page.select_option("[name=key]", await key.get_attribute("value"))
        await page.fill("[name=target]", "lake.sales.orders")
        await page.click("main button")
        await expect(page.locator("h2")).to_contain_text("What rita@acme.example, with the roles reader,")
        await expect(page.locator("tbody tr").first).to_contain_text("table.load")
        await expect(page.locator("tbody tr", has_text="table.drop")).to_contain_text("no rule permits it")
    assert site.troubles == []


async def test_a_policy_is_mended_tried_drafted_and_approved_by_another_person(site: Site) -> None:
    await permit_all(site.gateway, "reviewer")
    assert (await site.gateway.http.put("/v1/settings/policy-review", json={"value": "required"})).is_success
    async with site.visitor(site.gateway.acme.key.secret) as page:
        await page.click("text=New policy")
        await page.fill("#id", "noted")
        await page.fill("#expression", "commit.kind != 'table' ||\n  'note' in result.propertis")
        await page.fill("#message", "Write a note")
        await page.fill("#examples", "- expect: deny\n  given: {commit: {kind: table}}")
        await page.click("text=Save as draft")
        await expect(page.locator("[role=alert]")).to_contain_text("line 2, column 20")
        await expect(page.locator("[role=alert] mark")).to_have_text("p")
        await expect(page.locator("#expression")).to_have_value(
            "commit.kind != 'table' ||\n  'note' in result.propertis"
        )
        await page.fill("#expression", "commit.kind != 'table' ||\n  'note' in result.properties")
        await page.fill("#of", "lake.sales.orders")
        await page.click("button[value=try]")
        changed = page.locator("summary", has_text="passed, would be refused")
        await expect(changed).to_have_count(3)
        await changed.first.click()
        await expect(page.locator("details[open] .steps").first).to_contain_text("'note' in result.properties")
        await page.click("text=Save as draft")
        await page.wait_for_url("**/console/policies/noted")
        await expect(page.locator("#draft")).to_contain_text("another person has to approve it")
        await expect(page.locator("button[value=approve]")).to_have_count(0)
    async with site.visitor(await another_key(site.gateway, "grace@acme.example", "reviewer")) as page:
        await page.click("text=noted")
        await expect(page.locator(".diff ins").first).to_contain_text("added")
        await expect(page.locator("#draft")).to_contain_text("By ada@acme.example")
        await page.fill("#review-reason", "agreed")
        await page.click("button[value=approve]")
        await expect(page.locator("main")).to_contain_text("Version 1 is in force.")
        await expect(page.locator("main")).to_contain_text("reviewed by grace@acme.example")
    assert (await site.gateway.http.post(ORDERS, json=properties(a="3"))).status_code == 403
    assert site.troubles == []


@pytest.mark.parametrize("script", [True, False])
async def test_a_replay_is_watched_until_its_result_is_there(site: Site, script: bool) -> None:
    async with site.visitor(site.gateway.acme.key.secret, script=script) as page:
        await page.click("text=New policy")
        await page.fill("#id", "noted")
        await page.fill("#expression", "'note' in result.properties || commit.operation != 'table.commit'")
        await page.fill("#message", "Write a note")
        async with site.holding_replays():
            await page.click("button[value=replay]")
            await page.wait_for_url("**/console/policies/_replay")
            await expect(page.locator("#far")).to_have_text(re.compile(r"(of \d+ entries|it begins), [1-9][0-9]* s"))
        await expect(page.locator("main")).to_contain_text("By principal", timeout=20_000)
        await expect(page.locator("main")).to_contain_text("ada@acme.example")
        await expect(page.locator(".kinds .narrowed dd")).to_have_text("2")
        await page.click("text=Attest it")
        await expect(page.locator("main")).to_contain_text("proposal.replayed")
    assert site.troubles == []


async def test_nothing_that_somebody_writes_runs(site: Site) -> None:
    async with site.visitor(site.gateway.acme.key.secret) as page:
        await page.click("text=New policy")
        await page.fill("#id", "hostile")
        everything = "\n".join(HOSTILE_TEXTS)
        for name in ("expression", "message", "examples", "reason", "names", "properties"):
            await page.fill(f"#{name}", everything)
        await page.fill("#of", HOSTILE_TEXTS[3])
        await page.click("button[value=try]")
        await expect(page.locator("[role=alert]")).to_contain_text("expression")
        await expect(page.locator("#message")).to_have_value(everything)
        assert await page.locator("main img, main svg, main iframe, main script, main b").count() == 0
    assert site.troubles == []


async def test_a_restriction_is_mended_and_drafted_on_a_small_screen_without_script(site: Site) -> None:
    async with site.visitor(site.gateway.acme.key.secret, script=False) as page:
        await page.set_viewport_size({"width": 360, "height": 740})
        await page.click("text=Row filters and column masks")
        await page.click("text=New restriction")
        begun = await page.locator("#text").input_value()
        await page.fill("#text", begun.replace("row.region", "row.regoin"))
        await page.click("text=Save as draft")
        await expect(page.locator("[role=alert]")).to_contain_text("line 4, column 9")
        await expect(page.locator("[role=alert] mark")).to_have_text("r")
        await expect(page.locator("#text")).to_have_value(begun.replace("row.region", "row.regoin"))
        await page.fill("#text", begun)
        await page.click("text=Save as draft")
        await expect(page.locator("#draft")).to_contain_text("Draft 1 waits for a review")
        await expect(page.locator("#draft")).to_contain_text("You wrote it")
