# SPDX-License-Identifier: Apache-2.0
"""
axe-core (MPL-2.0), which finds in a page what keeps people from using it; `axe/package-lock.json` pins it by its hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Page

from testkit.servers.node_program import PACKAGES, node_packages

RULES: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
"""WCAG 2.2 at level AA, which has what the versions before it have, and what axe itself recommends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What axe-core finds in a page as it is shown, a line for each element, and the ids of the rules that it ran."""

    faults: list[str]
    rules: frozenset[str]


async def look_at(page: Page) -> Looked:
    """Have axe-core look at a page."""
    await page.evaluate(_script())
    run = "rules => axe.run(document, {runOnly: {type: 'tag', values: rules}})"
    found: dict[str, Any] = await page.evaluate(run, list(RULES))
    assert len(found["passes"]) > 10, "axe-core did not look at the page"
    faults = [
        f"{rule['id']}: {node['target']}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
    # A rule about what is not on the page is listed as inapplicable: it had nothing to look at.
    ran = (rule["id"] for outcome in ("passes", "violations", "incomplete") for rule in found[outcome])
    return Looked(faults=faults, rules=frozenset(ran))


async def faults_of(page: Page) -> list[str]:
    """Return what axe-core finds in a page as it is shown, a line for each element."""
    return (await look_at(page)).faults


@cache
def _script() -> str:
    packages = node_packages(Path(__file__).parent / "axe", *PACKAGES)
    return (packages / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
