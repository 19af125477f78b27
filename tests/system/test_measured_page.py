# SPDX-License-Identifier: Apache-2.0
"""The page of what was measured says what the results say, and every result of the log is on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from testkit.measured_page import PAGE, RESULTS, SECTIONS, page


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(RESULTS), "run `python -m testkit.measured_page`"


def test_another_result_is_another_page(tmp_path: Path) -> None:
    for file in RESULTS.glob("*.json"):
        shutil.copy(file, tmp_path)
    assert page(tmp_path) == page(RESULTS)
    tamper = tmp_path / "tamper.json"
    found = json.loads(tamper.read_text(encoding="utf-8"))
    tamper.write_text(json.dumps(found | {"found": found["found"] - 1}), encoding="utf-8")
    assert page(tmp_path) != page(RESULTS)


def test_a_result_that_is_not_there_is_left_out(tmp_path: Path) -> None:
    assert [line for line in page(tmp_path).splitlines() if line.startswith("##")] == []
    shutil.copy(RESULTS / "forks.json", tmp_path)
    assert [line for line in page(tmp_path).splitlines() if line.startswith("##")] == ["## Forks"]
    assert {tell.__name__ for _, tell in SECTIONS} >= {"append", "prove", "verify", "tamper", "fuzz", "round_trips"}
