# SPDX-License-Identifier: Apache-2.0
"""
Every page of the console, found from the routes of the application and the links of its own pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urldefrag, urlsplit

from fastapi import FastAPI
from fastapi.routing import APIRoute
from playwright.async_api import Page

NOT_PAGES: Final = frozenset(
    {
        "/console/static/{name}",
        "/console/log/follow",
        "/console/log/{index}/proof",
        "/console/log/{index}/check",
        "/console/operate/evidence/{job}/file",
        "/console/operate/verifier",
        "/console/policies/_replay/state",
        "/console/login/at/{name}",
        "/console/login/at/{name}/answer",
    }
)
"""What answers scripts, or with files, or only leads elsewhere. A list's twin ends in the name of its form."""
LINKS_MAX: Final = 10_000


def pages_of(app: FastAPI) -> Mapping[str, re.Pattern[str]]:
    """Return every route of the console that shows a page, with what its paths look like."""
    found: dict[str, re.Pattern[str]] = {}
    waiting: list[Any] = list(app.routes)
    for route in waiting:
        if isinstance(route, APIRoute):
            path = route.path_format
            is_page = path.startswith("/console") and "GET" in (route.methods or ()) and path not in NOT_PAGES
            if is_page and not path.endswith(".{form}"):
                found[path] = re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)))
        elif (router := getattr(route, "original_router", None)) is not None:
            waiting += router.routes
    return found


async def walk(page: Page, app: FastAPI, url: str) -> Mapping[str, str]:
    """
    Return a path for each page, found by following links from those that need no name.

    Raises:
        AssertionError: if a page is not reached: no page that the furnished tenant has links to it.
    """
    pages = pages_of(app)
    waiting = [path for path in pages if "{" not in path]
    reached, seen = {path: path for path in waiting}, set(waiting)
    for path in waiting:
        assert len(seen) < LINKS_MAX, "the console has more links than this looks at"
        if not _is_new(path, pages, reached):
            continue
        await page.goto(url + path)
        links = await page.eval_on_selector_all(
            "a[href]:not([download])",
            "links => links.map(link => new URL(link.getAttribute('href'), document.baseURI).href)",
        )
        for link in (urldefrag(link)[0] for link in links):
            target = link.removeprefix(url)
            if link.startswith(f"{url}/console") and target not in seen:
                seen.add(target)
                waiting.append(target)
    missing = set(pages) - set(reached)
    assert not missing, f"no page links to {sorted(missing)}: add what does to `furnished.py`, or name it in NOT_PAGES"
    return reached


def _is_new(path: str, pages: Mapping[str, re.Pattern[str]], reached: dict[str, str]) -> bool:
    """Return whether a path is to be looked at: the first of its route, or one without a name in it."""
    plain = urlsplit(path).path
    if plain in pages:
        return path == plain
    for route, pattern in pages.items():
        if "{" in route and pattern.fullmatch(plain):
            if route in reached:
                return False
            reached[route] = path
            return True
    return False
