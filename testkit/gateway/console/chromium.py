# SPDX-License-Identifier: Apache-2.0
"""
A real Chromium, the one that is installed, driven by Playwright; nothing is downloaded.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from playwright import async_api
from playwright.sync_api import Browser, sync_playwright

from testkit.environment import missing

PROGRAMS: Final = ("chromium", "google-chrome")
PLAIN_HOST: Final = "console.example"
"""A host of this machine that is not localhost: pages from it over http are in no secure context."""


_ARGUMENTS: Final = (
    f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser without a window."""
    program = _program()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@asynccontextmanager
async def chromium_in_loop() -> AsyncIterator[async_api.Browser]:
    """Yield one for tests that run in an event loop, as the gateway that they look at."""
    program = _program()
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=_ARGUMENTS)
        try:
            yield browser
        finally:
            await browser.close()


def _program() -> str:
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing("Chromium is not here, in which pages are tested: install it (Debian: apt-get install chromium)")
    return program
