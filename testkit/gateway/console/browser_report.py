# SPDX-License-Identifier: Apache-2.0
"""
What browsers saw of the console, told at the end of a run of its tests, and written as JSON if `--console-report` names
a file. `python -m testkit.console_page` makes a table of such a file.

All of it is what the tests have done: they record it as properties of their reports, which come from forked processes,
too. Of a test that failed nothing counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.servers.loopback import VISITS

LOOKED: Final = "console looked at"
"""The property of the test for which axe-core has looked at the pages: members of `Report`."""
VISITED: Final = "console visited"
"""The property of each test in browsers: how many requests each browser has sent to the console."""
OPTION: Final = "--console-report"


@dataclass(slots=True, kw_only=True)
class Report:
    """
    `pages` that were looked at in each of `colours` and `widths` (pixels), with the ids of the axe `rules` that were
    run and the number of `violations`; `controls` that the keyboard has reached; by browser, the `journeys`: tests that
    passed and had it visit the console; `first_page_ms` until the first byte of the overview, median, and its bytes.
    """

    pages: int = 0
    colours: list[str] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    rules: list[str] = field(default_factory=list)
    violations: int = 0
    controls: int = 0
    journeys: dict[str, int] = field(default_factory=dict)
    first_page_ms: float = 0.0
    first_page_bytes: int = 0

    def lines(self) -> Iterator[str]:
        """Yield what is told at the end of a run."""
        if self.pages:
            colours, widths = ", ".join(self.colours), " and ".join(map(str, self.widths))
            yield f"pages looked at: {self.pages}, in {colours} colours, at widths of {widths} pixels"
            yield f"axe-core: {len(self.rules)} rules run, {self.violations} violations"
            yield f"keyboard: {self.controls:,} controls, each reached and shown"
            yield f"first page: {self.first_page_ms:.0f} ms on the server, {self.first_page_bytes:,} bytes"
        if self.journeys:
            counts = ", ".join(f"{count} in {browser}" for browser, count in sorted(self.journeys.items()))
            yield f"journeys: {counts}"


class Collected:
    """What the reports of one run have told."""

    def __init__(self) -> None:
        self.report = Report()
        self._passed: set[str] = set()
        self._journeys: Counter[str] = Counter()

    def add(self, report: pytest.TestReport) -> None:
        """Take what a report tells."""
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
        if report.when != "teardown" or report.nodeid not in self._passed:
            return
        properties = dict(report.user_properties)
        if isinstance(looked := properties.get(LOOKED), dict):
            self.report = Report(**looked)
        if isinstance(visited := properties.get(VISITED), dict):
            self._journeys.update(browser for browser, requests in visited.items() if requests)
        self.report.journeys = dict(self._journeys)


_collected: Final = Collected()


def add_console_report(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption(OPTION, metavar="FILE", help="write what browsers saw of the console to a file, as JSON")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take what each test tells."""
    _collected.add(report)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Tell what browsers saw, if they saw anything, and write it to the file."""
    if lines := list(_collected.report.lines()):
        terminalreporter.section("the console, as browsers saw it")
        for line in lines:
            terminalreporter.write_line(line)
    if path := config.getoption(OPTION):
        text = json.dumps(asdict(_collected.report), indent=2, sort_keys=True)
        Path(path).write_text(f"{text}\n", encoding="utf-8")


@pytest.fixture
def visits(record_property: Any) -> Iterator[None]:
    """Record which browsers visit the console during a test."""
    before = VISITS.copy()
    yield
    record_property(VISITED, dict(VISITS - before))
