# SPDX-License-Identifier: Apache-2.0
"""The console's page says what its report says, and a report tells what passed and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from testkit.console_page import HEADING, PAGE, REPORT, page, parse_report
from testkit.gateway.console.browser_report import LOOKED, VISITED, Collected, Report

LOOKED_AT = Report(
    pages=3, colours=["light", "dark"], widths=[360], rules=["label"], violations=0, controls=7, first_page_ms=1.0
)
FULL = replace(LOOKED_AT, journeys={"Chromium": 2, "Firefox": 1}, first_page_bytes=12_345)
TEXT = "# Page\n\n## What protects it\n\n- This.\n"


def told(when: str, outcome: str, properties: dict[str, object], nodeid: str = "a") -> pytest.TestReport:
    pairs = list(properties.items())
    return pytest.TestReport(nodeid, ("a", 1, "a"), {}, outcome, None, when, user_properties=pairs)  # type: ignore[arg-type]


def test_the_page_says_what_the_report_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert (HEADING in text) == REPORT.is_file(), "run `python -m testkit.console_page`"
    if REPORT.is_file():
        assert text == page(text, parse_report(REPORT)), "run `python -m testkit.console_page`"


def test_a_page_has_the_report_at_its_end_or_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(json.dumps(asdict(FULL)), encoding="utf-8")
    assert parse_report(tmp_path / "report.json") == FULL
    made = page(TEXT, FULL)
    assert made.startswith(TEXT)
    assert "| pages looked at | 3, each in light and dark colours, and 360 pixels wide |\n" in made
    assert "| tests that walked through the console | 2 in Chromium, 1 in Firefox |\n" in made
    assert "| first page | 1 ms on the server, 12.3 kB |\n" in made
    followed = f"{made}\n## Next\n\nMore.\n"
    assert page(followed, FULL) == followed


@pytest.mark.parametrize("changed", [{"pages": 1}, {"violations": 5}, {"rules": []}, {"journeys": {"Chromium": 1}}])
def test_another_report_is_another_page(changed: dict[str, object]) -> None:
    made = page(TEXT, FULL)
    other = page(made, replace(FULL, **changed))  # type: ignore[arg-type]
    assert other != made
    assert page(other, FULL) == made


def test_a_report_tells_what_passed_and_in_which_browser() -> None:
    collected = Collected()
    properties: dict[str, object] = {LOOKED: asdict(LOOKED_AT), VISITED: {"Chromium": 9, "Firefox": 0}}
    collected.add(told("call", "passed", {LOOKED: asdict(LOOKED_AT)}))
    assert list(collected.report.lines()) == []
    collected.add(told("teardown", "passed", properties))
    collected.add(told("call", "passed", {}, "b"))
    collected.add(told("teardown", "passed", {VISITED: {"Chromium": 2, "Firefox": 1}}, "b"))
    assert collected.report == replace(LOOKED_AT, journeys={"Chromium": 2, "Firefox": 1})
    assert "axe-core: 1 rules run, 0 violations" in list(collected.report.lines())


def test_what_failed_is_not_told() -> None:
    collected = Collected()
    collected.add(told("call", "failed", {}))
    collected.add(told("teardown", "passed", {LOOKED: asdict(LOOKED_AT), VISITED: {"Chromium": 9}}))
    assert collected.report == Report()
    assert list(collected.report.lines()) == []
