# SPDX-License-Identifier: Apache-2.0
"""
The pages for operators in a real browser: a rebuild is watched, a dead letter replayed, evidence downloaded and proven,
and a key created, used and revoked.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from lakeproof import evidence
from lakeproof.services import Services
from ledger.proving.evidence.check import check_evidence
from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.console.operated import give_up, open_operated
from testkit.gateway.two_views import TwoViews
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True, slots=True)
class Operator:
    """A browser that is logged in, at the page for operators; `troubles` is what its scripts failed of."""

    views: TwoViews
    url: str
    page: Page
    troubles: list[str]

    async def goto(self, path: str = "") -> None:
        """Load a page."""
        await self.page.goto(f"{self.url}/console/operate{path}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(module_services: Services) -> AsyncIterator[Operator]:
    async with (
        open_operated(module_services) as views,
        serve_gateway(views.gateway.app) as url,
        chromium_in_loop() as browser,
    ):
        page = await browser.new_page()
        troubles: list[str] = []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        await page.goto(f"{url}/console/operate")
        await page.fill("#key", views.gateway.acme.key.secret)
        await page.click("main button")
        await page.wait_for_url("**/console/operate")
        yield Operator(views, url, page, troubles)


async def test_a_rebuild_is_watched_until_it_ends(operator: Operator) -> None:
    page = operator.page
    await operator.goto()
    await page.click("text=findings >> nth=-1")
    await expect(page.locator("h1")).to_have_text("Read model findings")
    await page.click("text=Rebuild and compare")
    await expect(page.locator("#rebuild")).to_contain_text("done", timeout=30_000)
    await expect(page.locator("#watched")).to_have_attribute("data-watched", "no")
    await expect(page.locator("#watched")).to_contain_text("yes, digests equal")
    # What came while the page was open has its times in the reader's zone, too.
    await expect(page.locator("#rebuild time")).to_have_attribute("title", re.compile(" UTC$"))
    await page.click("text=Replace it without a comparison")
    await expect(page.locator("h1")).to_have_text("Replace findings?")
    await page.click("button.danger")
    await expect(page.locator("#watched")).to_contain_text("2 → 3", timeout=30_000)
    assert operator.troubles == []


async def test_a_dead_letter_is_replayed(operator: Operator) -> None:
    page = operator.page
    await give_up(operator.views.gateway, "handler:gone", "m-1", "m-2")
    await operator.goto()
    await expect(page.locator("tr", has_text="m-2")).to_contain_text("<script>alert(1)</script>")
    await page.click('[aria-label="Replay m-2"]')
    await page.wait_for_url("**/operate/replays")
    await expect(page.locator("#watched")).to_contain_text("handler:gone does not run here", timeout=30_000)
    await expect(page.locator("h2")).to_have_text("m-2")
    assert operator.troubles == []


async def test_a_key_is_created_used_and_revoked(operator: Operator) -> None:
    page = operator.page
    await operator.goto("/keys")
    await page.fill('[name="identity"]', "ada@acme.example")
    await page.fill('[name="roles"]', "data-eng")
    await page.click("text=Create >> nth=-1")
    secret = (await page.locator("#secret").text_content() or "").strip()
    name = (await page.locator("h1").text_content() or "").split()[1]
    async with operator.views.gateway.client(secret) as http:
        assert (await http.get("/v1/tenant")).status_code == 200
        await page.click("text=All keys")
        assert secret not in await page.content()
        await page.click(f"text={name}")
        await expect(page.locator("h1")).to_have_text(f"Key {name}")
        await page.click("button.danger")
        await page.wait_for_url("**/operate/keys")
        assert name not in await page.content()
        assert (await http.get("/v1/tenant")).status_code == 401


async def test_evidence_is_downloaded_at_once_or_when_it_is_made(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, installation = operator.page, operator.views.gateway.services.installation
    key = installation.verifier_key(operator.views.gateway.acme.origin)
    await operator.goto("/evidence")
    await page.fill('[name="table"]', "lake.sales.orders")
    async with page.expect_download() as downloading:
        await page.click("text=Make evidence")
    await (await downloading.value).save_as(tmp_path / "short")
    assert check_evidence((tmp_path / "short").read_bytes(), [key]).entries
    monkeypatch.setattr(evidence, "SHORT_ENTRIES_MAX", 0)
    await page.fill('[name="table"]', "")
    await page.fill('[name="from"]', "2020-01-01T00:00:00Z")
    await page.fill('[name="to"]', "2100-01-01T00:00:00Z")
    await page.click("text=Make evidence")
    link = page.get_by_role("link", name=re.compile("bytes"))
    await link.wait_for(timeout=30_000)
    async with page.expect_download() as downloading:
        await link.click()
    await (await downloading.value).save_as(tmp_path / "long")
    assert check_evidence((tmp_path / "long").read_bytes(), [key]).coverage.complete
    await page.click("text=Delete >> nth=-1")
    await expect(page.locator("#watched")).to_contain_text("Nothing: what is short was downloaded at once.")
    assert operator.troubles == []
