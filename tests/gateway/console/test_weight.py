# SPDX-License-Identifier: Apache-2.0
"""
How much a browser loads: at most 60 KB of script, compressed, on all pages together, and 300 KB for a page with all
that it names, whose list is as long as a page of it may be.
"""

from __future__ import annotations

import gzip
import re

import httpx
import pytest

from gateway.console import pages
from gateway.console.rendering import STATIC
from gateway.console.verifier_page import verifier_page
from gateway.version import installed_version
from testkit.gateway.console.browsing import browser_of, log_in
from testkit.gateway.sales import ORDERS, TABLES, properties
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT_BYTES_MAX = 60_000
PAGE_BYTES_MAX = 300_000
LOADED = re.compile(r'(?:href|src)="(/console/static/[^"]+)"')
IMPORTED = re.compile(r"""from ['"]\./([a-z]+\.mjs)['"]""")


async def test_all_scripts_of_the_console_are_small_once_compressed() -> None:
    scripts = [each.read_bytes() for each in STATIC.iterdir() if each.name.endswith(".mjs")]
    assert len(scripts) > 5
    assert sum(len(gzip.compress(script)) for script in scripts) <= SCRIPT_BYTES_MAX
    assert len(gzip.compress(verifier_page(installed_version()))) <= SCRIPT_BYTES_MAX


async def loaded_with(browser: httpx.AsyncClient, path: str) -> dict[str, int]:
    """The sizes of a page and of all that it loads, what modules import included, by path; not compressed."""
    page = await browser.get(path)
    assert page.status_code == 200, path
    sizes, waiting = {path: len(page.content)}, LOADED.findall(page.text)
    for name in waiting:
        if name not in sizes:
            file = await browser.get(name)
            assert file.status_code == 200, name
            sizes[name] = len(file.content)
            waiting += [f"/console/static/{each}" for each in IMPORTED.findall(file.text)]
    return sizes


async def test_a_page_with_all_that_it_loads_is_small(sales: Gateway) -> None:
    name = "a_table_with_a_long_name_" * 6
    created = {"name": name, "schema": {"type": "struct", "fields": []}}
    assert (await sales.http.post(TABLES, json=created)).status_code == 200
    for number in range(pages.ENTRIES_A_PAGE // 2 + 1):  # each is two entries
        assert (await sales.http.post(ORDERS, json=properties(note=str(number)))).status_code == 200
    await project(sales)
    async with browser_of(sales) as browser:
        await log_in(browser, sales.acme.key.secret)
        table = "/console/tables/lake/sales/orders?access=yes"
        for path in ("/console", "/console/log", "/console/log/0", "/console/tables", "/console/operate", table):
            sizes = await loaded_with(browser, path)
            assert {"/console/static/console.css", "/console/static/times.mjs"} <= sizes.keys()
            assert sum(sizes.values()) <= PAGE_BYTES_MAX, (path, sizes)
        checked = await loaded_with(browser, "/console/log/0")
        assert {"/console/static/checking.mjs", "/console/static/proof.mjs"} <= checked.keys(), "what is imported, too"
        rows = (await browser.get("/console/log")).text.count("<tr>")
        assert rows == 1 + pages.ENTRIES_A_PAGE, "the page is as long as it may be"
