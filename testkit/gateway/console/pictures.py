# SPDX-License-Identifier: Apache-2.0
"""
The pictures of the console in the README: `python -m testkit.gateway.console.pictures` plays the scene, opens the login
link that it ends with in Chromium, and writes `docs/console-*.png`. With a link as its argument it opens that one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import Page, ViewportSize

from testkit.environment import PROJECT
from testkit.gateway.console.chromium import chromium

SCREEN: Final[ViewportSize] = {"width": 900, "height": 600}
LINK: Final = re.compile(r"^https?://\S+/console/login/link\?once=[0-9a-f]{64}$")


def overview(page: Page, origin: str) -> None:
    """Show the first page."""
    page.goto(f"{origin}/console")


def refusal(page: Page, origin: str) -> None:
    """Show why a commit was refused, from the entry on."""
    page.goto(f"{origin}/console/log?type=commit.decided")
    decided = page.eval_on_selector_all("#entries tbody a[href^='/console/log/']", "all => all.map(each => each.href)")
    for entry in decided:
        page.goto(entry.replace("/console/log/", "/console/decisions/"))
        if page.locator("p.problem").count() and page.locator("details[open] tbody tr").count() > 2:
            page.evaluate("document.querySelector('details[open] table').scrollIntoView({block: 'end'})")
            return
    raise AssertionError("the scene has no refusal that a policy explains")


def table(page: Page, origin: str) -> None:
    """Show the table of the scene that was made from another, and that another was made from."""
    page.goto(f"{origin}/console/tables")
    page.click("tbody a[href$='/partner/crm/customers']")
    page.wait_for_url("**/partner/crm/customers")


def proof(page: Page, origin: str) -> None:
    """Show the proof of an entry, checked by the browser."""
    page.goto(f"{origin}/console/log?type=commit.settled")
    page.click("#entries tbody a")
    page.click("#check")
    page.locator("#steps .verdict.good").wait_for()
    page.locator("h2", has_text="Its place in the log").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#checking').scrollIntoView({block: 'end'})")


PICTURES: Final = {"overview": overview, "refusal": refusal, "table": table, "proof": proof}


@contextmanager
def played_scene() -> Iterator[str]:
    """Yield the login link that the scene ends with, while its gateway keeps serving."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "LAKEPROOF_HOME": home, "LAKEPROOF_PORT": "0"}
        command = [sys.executable, "-m", "lakeproof", "demo"]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as scene:
            assert scene.stdout is not None
            try:
                yield next(line.strip() for line in scene.stdout if LINK.match(line.strip()))
            finally:
                scene.send_signal(signal.SIGINT)


def take(link: str) -> None:
    """Open the link, and write all pictures."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
    with chromium() as browser:
        page = browser.new_page(viewport=SCREEN, timezone_id="UTC")
        page.goto(link)
        page.click("main button")
        page.wait_for_url(f"{origin}/console")
        for name, show in PICTURES.items():
            show(page, origin)
            page.screenshot(path=PROJECT / "docs" / f"console-{name}.png")


if __name__ == "__main__":
    if sys.argv[1:]:
        take(sys.argv[1])
    else:
        with played_scene() as found:
            take(found)
