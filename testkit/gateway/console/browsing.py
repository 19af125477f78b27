# SPDX-License-Identifier: Apache-2.0
"""Browsers without a window, pictures or script, which visit the console: clients that keep cookies."""

from __future__ import annotations

from html.parser import HTMLParser
from importlib.resources import files
from typing import Any, Final

import httpx

from testkit.servers.gateways import Gateway

OWN: Final = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says of a form that a page of the same site sends."""
EMBEDDING: Final = frozenset({"iframe", "img", "embed", "object", "math", "style", "base", "frame", "video", "audio"})
MODULES: Final = frozenset(
    f"/console/static/{each.name}"
    for each in (files("gateway.console") / "static").iterdir()
    if each.name.endswith(".mjs")
)
"""What pages may load as scripts."""


def browser_of(gateway: Gateway, app: Any = None, scheme: str = "http") -> httpx.AsyncClient:
    """A client without credentials that keeps cookies."""
    transport = httpx.ASGITransport(app=app or gateway.app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=f"{scheme}://gateway")


async def log_in(browser: httpx.AsyncClient, key: str, to: str = "/console") -> httpx.Response:
    """Send the form of the login."""
    return await browser.post("/console/login", data={"key": key, "to": to}, headers=OWN)


async def permit_all(gateway: Gateway, role: str) -> None:
    """Permit everything to a role of the tenant."""
    rule = {"id": role, "effect": "permit", "expression": f"'{role}' in roles"}
    assert (await gateway.http.post("/v1/access-rules", json=rule)).status_code == 201


class _Elements(HTMLParser):
    """Collects the elements of a page as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        self.found.append((tag, dict(attrs)))


def check_harmless(page: str) -> None:
    """Check that nothing of a page runs, but modules of the console's own, and that nothing is embedded in it."""
    elements = _Elements()
    elements.feed(page)
    elements.close()
    for tag, attributes in elements.found:
        assert tag not in EMBEDDING, tag
        assert not [name for name in attributes if name.startswith("on") or name in {"style", "srcdoc", "autofocus"}]
        if tag == "script":
            assert (attributes["type"], attributes["src"]) in {("module", path) for path in MODULES}
        for name in ("href", "src", "action", "formaction"):
            target = attributes.get(name)
            assert target is None or target == "data:," or target.startswith(("/console", "#")), target
