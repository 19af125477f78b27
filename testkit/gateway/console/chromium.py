# SPDX-License-Identifier: Apache-2.0
"""
A real Chromium, the one that is installed, driven by Playwright; nothing is downloaded.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from testkit.environment import missing

PROGRAMS: Final = ("chromium", "google-chrome")
PLAIN_HOST: Final = "console.example"
"""A host of this machine that is not localhost: pages from it over http are in no secure context."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield a browser without a window."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing("Chromium is not here, in which pages are tested: install it (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        resolver = f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        browser = playwright.chromium.launch(
            executable_path=program, args=[resolver, "--disable-background-networking"]
        )
        try:
            yield browser
        finally:
            browser.close()
