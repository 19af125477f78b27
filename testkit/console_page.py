# SPDX-License-Identifier: Apache-2.0
"""
Writes the table of `docs/console.md` about what browsers saw: of the report of all their tests that was kept last
(`docs/console-report.json`), so that nobody has to read JSON. A test compares both, so neither can change alone.
Without a report there is no table.

Run: `pytest -q tests/browsers --console-report=docs/console-report.json`, then `python -m testkit.console_page`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from testkit.environment import PROJECT
from testkit.gateway.console.browser_report import Report

REPORT: Final = PROJECT / "docs" / "console-report.json"
PAGE: Final = PROJECT / "docs" / "console.md"
HEADING: Final = "## What browsers saw"


def parse_report(path: Path) -> Report:
    """Return what a run of the tests has written."""
    return Report(**json.loads(path.read_text(encoding="utf-8")))


def section(report: Report) -> str:
    """Return the section about a report, with its heading."""
    browsers = ", ".join(f"{count} in {browser}" for browser, count in sorted(report.journeys.items()))
    colours = f"{', '.join(report.colours[:-1])} and {report.colours[-1]}"
    widths = " and ".join(f"{width:,}" for width in report.widths)
    return "\n".join(
        (
            HEADING,
            "",
            "The tests in browsers tell this at the end of each run (`make test PACKAGE=browsers`); the last one kept:",
            "",
            "| | |",
            "|---|---|",
            f"| pages looked at | {report.pages}, each in {colours} colours, and {widths} pixels wide |",
            f"| rules of axe-core that were run | {len(report.rules)} |",
            f"| violations found | {report.violations} |",
            f"| controls that the keyboard reached and showed | {report.controls:,} |",
            f"| tests that walked through the console | {browsers} |",
            f"| first page | {report.first_page_ms:.0f} ms on the server, {report.first_page_bytes / 1_000:.1f} kB |",
            "",
        )
    )


def page(text: str, report: Report) -> str:
    """Return the page with the section about a report: in place of the one that `text` has, or as the last one."""
    before, found, rest = text.partition(f"{HEADING}\n")
    if not found:
        return f"{text.rstrip()}\n\n{section(report)}"
    _, heading, after = rest.partition("\n## ")
    return f"{before}{section(report)}{heading}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), parse_report(REPORT)), encoding="utf-8")
