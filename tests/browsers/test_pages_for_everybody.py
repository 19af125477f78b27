# SPDX-License-Identifier: Apache-2.0
"""
Every page of the console, as it is found from the routes, for everybody: by keyboard, in any colours, on a small
screen, in any zone, without script.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from fastapi import FastAPI
from playwright.async_api import Browser, Page

from lakeproof.services import Services
from testkit.gateway.console.axe_core import faults_of, look_at
from testkit.gateway.console.browser_report import LOOKED, Report
from testkit.gateway.console.chromium import chromium_in_loop
from testkit.gateway.console.furnished import Furnished, open_furnished
from testkit.gateway.console.visits import walk
from testkit.gateway.sales import NAMESPACES, properties
from testkit.gateway.two_views import project

pytestmark = pytest.mark.asyncio(loop_scope="module")

COLOURS: Mapping[str, Mapping[str, Any]] = {
    "light": {"color_scheme": "light", "forced_colors": "none"},
    "dark": {"color_scheme": "dark", "forced_colors": "none"},
    "forced": {"color_scheme": "light", "forced_colors": "active"},
}
FIRST_PAGES = 5
"""Times that the first page is opened, to tell how long the server takes for it."""
RecordProperty = Callable[[str, object], None]
SCREENS = {360: 740, 1_280: 800}
PAPER = 673
"""Pixels between the margins of a page in A4."""
NAME = "a_name_that_is_as_long_as_they_come_" * 5 + "مبيعات 📦"
COLUMN = "a_column_with_a_name_that_is_as_long_as_they_come_" * 6
CLICKED = "all => all.filter(each => each.checkVisibility()).map(each => each.outerHTML.slice(0, 80))"
OUTSIDE = """width => [...document.querySelectorAll("main *, header *")]
  .filter(each => !each.closest(".wide > *, svg") && each.getBoundingClientRect().right > width + 0.5)
  .map(each => each.outerHTML.slice(0, 80))"""
TIMES = "all => all.map(each => [each.textContent, each.title])"
BARE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
WITHOUT_TIMES = """main => {
  const copy = main.cloneNode(true);
  copy.querySelectorAll("time, pre, code, textarea, [id$=-hint]").forEach(each => each.remove());
  return copy.textContent;
}"""
"""What a page says outside its times, what is shown as it is stored, and hints at fields that are in UTC."""
CONTROLS = """() => {
  const found = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
    .filter(each => each.type !== "hidden" && each.checkVisibility() && !each.disabled);
  window.reached = found.map(each => each.outerHTML.slice(0, 80));
  window.unseen = [];
  document.addEventListener("focusin", ({target}) => {
    const style = getComputedStyle(target);
    if (style.outlineStyle === "none" || parseFloat(style.outlineWidth) < 2) unseen.push(target.outerHTML.slice(0, 80));
    const number = found.indexOf(target);
    if (number >= 0) delete reached[number];
  });
  document.activeElement.blur();
  document.body.tabIndex = -1;
  document.body.focus();
  return found.length;
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """A tenant with something on every page, a browser, and a path for each page."""

    furnished: Furnished
    browser: Browser
    paths: Mapping[str, str]

    async def page(self, **kind: Any) -> Page:
        return await self.furnished.log_in(self.browser, **kind)

    def url(self, path: str) -> str:
        return self.furnished.url + path


@dataclass(slots=True)
class Seen:
    """What is wrong with the pages: what axe-core finds, what does not fit the screen, what the keyboard misses."""

    faults: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    too_wide: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    on_paper: dict[str, list[str]] = field(default_factory=dict)
    unreached: dict[str, list[str]] = field(default_factory=dict)
    without_focus: dict[str, list[str]] = field(default_factory=dict)
    pages: int = 0
    rules: set[str] = field(default_factory=set)
    controls: int = 0
    first_page_ms: list[float] = field(default_factory=list)
    first_page_bytes: int = 0

    def report(self) -> Report:
        """What of it is told at the end of the run."""
        return Report(
            pages=self.pages,
            colours=list(COLOURS),
            widths=list(SCREENS),
            rules=sorted(self.rules),
            violations=sum(map(len, self.faults.values())),
            controls=self.controls - sum(map(len, self.unreached.values())),
            first_page_ms=median(self.first_page_ms),
            first_page_bytes=self.first_page_bytes,
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def console(module_services: Services, module_app: FastAPI) -> AsyncIterator[Console]:
    async with open_furnished(module_services, module_app) as furnished, chromium_in_loop() as browser:
        fields = [{"id": 1, "name": COLUMN, "type": "string", "required": False}]
        created = {"name": NAME, "schema": {"type": "struct", "fields": fields}}
        gateway = furnished.gateway
        assert (await gateway.http.post(f"{NAMESPACES}/sales/tables", json=created)).status_code == 200
        refused = await gateway.http.post(f"{NAMESPACES}/sales/tables/{quote(NAME)}", json=properties(owner=""))
        assert refused.status_code == 403, refused.text
        await project(gateway)
        page = await furnished.log_in(browser)
        paths = await walk(page, module_app, furnished.url)
        await page.context.close()
        long = f"/console/tables/lake/sales/{quote(NAME)}?access=yes"
        rules = "/console/access-rules"
        more = {
            "of long names": long,
            "rules that do nothing": f"{rules}?findings=yes",
            "who may": f"{rules}/_who?operation=table.load&target=lake.sales.{quote(NAME)}",
            "what may": f"{rules}/_what?key=&roles=reader&target=lake.sales.orders",
            "a question about nothing": f"{rules}/_who?operation=&target=",
        }
        yield Console(furnished=furnished, browser=browser, paths={**paths, **more})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen(console: Console) -> Seen:
    """Every page, opened once, and looked at in all ways."""
    page, seen = await console.page(), Seen()
    for _ in range(FIRST_PAGES):
        answer = await page.goto(console.url("/console"))
        assert answer is not None
        timing = answer.request.timing
        seen.first_page_ms.append(timing["responseStart"] - timing["requestStart"])
        seen.first_page_bytes = len(await answer.body())
    for path in console.paths.values():
        await page.goto(console.url(path))
        seen.pages += 1
        # What is folded away is a part of the page, too.
        await page.eval_on_selector_all("details", "all => all.forEach(each => { each.open = true; })")
        for colours, media in COLOURS.items():
            await page.emulate_media(**media)
            looked = await look_at(page)
            seen.rules |= looked.rules
            if looked.faults:
                seen.faults[path, colours] = looked.faults
        for width, height in SCREENS.items():
            await page.set_viewport_size({"width": width, "height": height})
            outside = await page.evaluate(OUTSIDE, width)
            if await page.evaluate("document.documentElement.scrollWidth") > width or outside:
                seen.too_wide[path, width] = outside
        await page.emulate_media(media="print", color_scheme="dark", forced_colors="none")
        await page.set_viewport_size({"width": PAPER, "height": 1_000})
        left = await page.eval_on_selector_all("button, nav a, input:not([type=hidden])", CLICKED)
        if await page.evaluate("document.documentElement.scrollWidth") > PAPER or left:
            seen.on_paper[path] = left
        await page.emulate_media(media="screen")
        controls = await page.evaluate(CONTROLS)
        seen.controls += controls
        for _ in range(controls + 20):  # parts of the page that move by themselves are reached, too
            await page.keyboard.press("Tab")
        if unreached := await page.evaluate("reached.filter(each => each !== null)"):
            seen.unreached[path] = unreached
        if unseen := await page.evaluate("unseen"):
            seen.without_focus[path] = unseen
    await page.context.close()
    return seen


async def test_axe_finds_nothing_on_any_page_in_any_colours(seen: Seen, record_property: RecordProperty) -> None:
    record_property(LOOKED, asdict(seen.report()))
    assert seen.faults == {}


async def test_no_page_is_wider_than_the_screen(seen: Seen) -> None:
    assert seen.too_wide == {}


async def test_a_printed_page_fits_the_paper_and_has_nothing_to_click(seen: Seen) -> None:
    assert seen.on_paper == {}


async def test_every_control_is_reached_with_the_keyboard_and_shows_it(seen: Seen) -> None:
    assert seen.unreached == {}
    assert seen.without_focus == {}


async def test_what_is_wrong_is_found(console: Console) -> None:
    page = await console.page()
    await page.evaluate(
        """() => document.querySelector("main").insertAdjacentHTML("beforeend",
             "<button></button><input><p>" + "<code>a</code> ".repeat(3) + "</p>")"""
    )
    assert {fault.partition(":")[0] for fault in await faults_of(page)} >= {"button-name", "label"}
    await page.evaluate("document.querySelector('main p').style.minWidth = '2000px'")
    assert await page.evaluate(OUTSIDE, 1_280)
    await page.evaluate("document.querySelector('main button').tabIndex = -1")
    controls = await page.evaluate(CONTROLS)
    for _ in range(controls + 5):
        await page.keyboard.press("Tab")
    assert await page.evaluate("reached.filter(each => each !== null)") == ['<button tabindex="-1"></button>']
    await page.context.close()


async def test_a_person_logs_in_reads_a_refusal_and_logs_out_with_the_keyboard_alone(console: Console) -> None:
    context = await console.browser.new_context()
    page = await context.new_page()
    await page.goto(console.url("/console/log"))
    await page.locator("input:focus").wait_for()  # the field has the focus
    await page.keyboard.type(console.furnished.gateway.acme.key.secret)
    await page.keyboard.press("Enter")
    await page.wait_for_url(console.url("/console/log"))
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
    await page.keyboard.press("Enter")
    assert await page.evaluate("location.hash") == "#main"
    await _tab_to(page, "document.activeElement.name === 'type'")
    await page.keyboard.type("commit.decided")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/console/log?type=commit.decided**")
    await _tab_to(page, "document.activeElement.matches('tbody a')")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile(r"/console/log/\d+$"))
    await _tab_to(page, "document.activeElement.textContent.startsWith('Why was this decided so')")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/console/decisions/*")
    assert "rejected" in (await page.locator("h1").text_content() or "")
    await _tab_to(page, "document.activeElement.textContent === 'Log out'")
    await page.keyboard.press("Enter")
    await page.wait_for_url(console.url("/console/login"))
    await context.close()


async def _tab_to(page: Page, condition: str) -> None:
    for _ in range(100):
        await page.keyboard.press("Tab")
        if await page.evaluate(f"Boolean({condition})"):
            return
    raise AssertionError(f"the keyboard does not reach: {condition}")


async def test_times_are_in_the_zone_of_the_reader_and_in_utc_where_the_pointer_rests(console: Console) -> None:
    page = await console.page(timezone_id="Asia/Kolkata")
    await page.goto(console.url("/console/log"))
    time = page.locator("#entries time").first
    utc, shown = await time.get_attribute("title") or "", await time.text_content() or ""
    assert utc.endswith(" UTC")
    assert shown.endswith(" GMT+5:30")
    assert await page.evaluate(
        "([utc, shown]) => Date.parse(utc.replace(' UTC', 'Z')) === Date.parse(shown.replace(' GMT+5:30', '+05:30'))",
        [utc, shown],
    )
    assert "UTC UTC" not in (await page.locator("main").text_content() or "")
    await page.goto(console.url("/console"))
    picture = page.locator("figure", has=page.locator("[data-hour]"))
    assert "(GMT+5:30)" in await picture.locator("figcaption").inner_text()
    hours = await picture.locator("[data-hour]").all_text_contents()
    assert hours
    assert {hour.partition(":")[2] for hour in hours} == {"30"}
    await page.context.close()


async def test_every_page_is_whole_without_script_and_has_its_times_in_utc_and_else_in_the_zone_of_the_reader(
    console: Console,
) -> None:
    with_script = await console.page(timezone_id="Asia/Kolkata")
    without, times = await console.page(java_script_enabled=False), 0
    for path in console.paths.values():
        await without.goto(console.url(path))
        await with_script.goto(console.url(path))
        texts = [await page.locator("main").inner_text() for page in (without, with_script)]
        assert [len(text) > 20 for text in texts] == [True, True]
        for time in await without.locator("time").all_text_contents():
            assert time.endswith(" UTC")
        for shown, title in await with_script.locator("time").evaluate_all(TIMES):
            assert shown.endswith(" GMT+5:30"), path
            assert title.endswith(" UTC"), path
            times += 1
        bare = await with_script.locator("main").evaluate(WITHOUT_TIMES)
        assert BARE_TIME.findall(bare) == [], f"{path}: a time that is no <time> stays in UTC for every reader"
        for page in (with_script, without):  # a button that needs script, or something to forget, is not shown before
            assert await page.locator("[hidden]").evaluate_all(CLICKED) == []
        assert "UTC UTC" not in texts[0], path
    assert times > len(console.paths), "each page says when it was made"
    for page in (with_script, without):
        await page.context.close()
