# SPDX-License-Identifier: Apache-2.0
"""
axe-core (MPL-2.0), which finds in a page what keeps people from using it; `axe/package-lock.json` pins it by its hash.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Page

from testkit.servers.node_program import PACKAGES, node_packages

RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
"""WCAG 2.2 at level AA, which has what the versions before it have, and what axe itself recommends."""


async def faults_of(page: Page) -> list[str]:
    """Return what axe-core finds in a page as it is shown, a line for each element."""
    await page.evaluate(_script())
    run = "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})"
    found: dict[str, Any] = await page.evaluate(run, list(RULES))
    assert len(found["passes"]) > 10, "axe-core did not look at the page"
    return [
        f"{rule['id']}: {node['target']}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


@cache
def _script() -> str:
    packages = node_packages(Path(__file__).parent / "axe", *PACKAGES)
    return (packages / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
