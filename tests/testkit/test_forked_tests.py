# SPDX-License-Identifier: Apache-2.0
"""Tests that run in several processes have the outcomes that they have in one, and no process ends unnoticed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.console_page import parse_report
from testkit.environment import PROJECT

HOOKS = """
from testkit.forked_tests import add_processes, pytest_runtestloop
from testkit.gateway.console.browser_report import (
    add_console_report, pytest_runtest_logreport, pytest_terminal_summary
)

def pytest_addoption(parser):
    add_processes(parser)
    add_console_report(parser)
"""
EACH_OUTCOME = """
import pytest, warnings

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    yield tmp_path_factory.mktemp("shared")
    print("the module is torn down")

@pytest.fixture
def broken():
    raise OSError("no setup")

@pytest.fixture
def left_open():
    yield
    raise OSError("no teardown")

def test_passes(shared): (shared / "file").write_text("")
def test_fails(shared): assert not list(shared.iterdir()), "it was made once"
def test_is_not_set_up(broken): ...
def test_is_not_torn_down(left_open): print("its output")
def test_is_skipped(): pytest.skip("its reason")
@pytest.mark.xfail(reason="known")
def test_fails_as_expected(): assert 1 == 2
def test_warns(): warnings.warn("mind this")
"""
PASSES = "def test_passes(): ...\n"
TELLS = """
from testkit.gateway.console.browser_report import LOOKED, VISITED, Report
from dataclasses import asdict

def test_looks(record_property):
    record_property(LOOKED, asdict(Report(pages=3, colours=["dark"], widths=[360], rules=["label"], controls=7)))

def test_visits(record_property): record_property(VISITED, {"Firefox": 2})

def test_visits_and_fails(record_property):
    record_property(VISITED, {"Firefox": 2})
    assert False
"""
VISITS = """
def test_visits(record_property): record_property("console visited", {"Chromium": 4, "Firefox": 0})
"""
SUMMARY = re.compile(r"^=+ (.*) in [0-9.]+s", re.MULTILINE)


def run(folder: Path, *arguments: str, **files: str) -> tuple[int, str]:
    folder.mkdir()
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    unused = [f"-pno:{name}" for name in ("schemathesis", "hypothesispytest", "asyncio", "anyio")]
    command = [sys.executable, "-m", "pytest", *unused, "-ra", f"--rootdir={folder}", f"--basetemp={folder / 'base'}"]
    done = subprocess.run(
        [*command, *arguments, str(folder)], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def summary(output: str) -> str:
    found = SUMMARY.findall(output)
    assert found, output
    return str(found[-1])


def test_outcomes_are_those_of_one_process(tmp_path: Path) -> None:
    files = {"first": EACH_OUTCOME, "second": EACH_OUTCOME, "third": PASSES}
    alone, its_output = run(tmp_path / "alone", **files)
    status, output = run(tmp_path / "several", "--processes=3", **files)
    assert status == alone == 1
    assert summary(output) == summary(its_output)
    assert "2 failed, 7 passed, 2 skipped, 2 xfailed, 2 warnings, 4 errors" in output
    for text in ("it was made once", "no setup", "no teardown", "its output", "its reason", "known", "mind this"):
        assert text in output


def test_tests_that_pass_are_a_success(tmp_path: Path) -> None:
    status, output = run(tmp_path / "tests", "--processes=2", first=PASSES, second=PASSES, third=PASSES)
    assert (status, summary(output)) == (0, "3 passed")


def test_what_browsers_saw_is_in_the_report_of_a_run_in_several_processes(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    status, output = run(tmp_path / "tests", "--processes=2", f"--console-report={path}", first=TELLS, second=VISITS)
    assert (status, summary(output)) == (1, "1 failed, 3 passed")
    report = parse_report(path)
    assert (report.pages, report.controls) == (3, 7)
    assert report.journeys == {"Chromium": 1, "Firefox": 1}, "each test that passed counts once"


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)"])
def test_a_process_that_ends_in_a_test_fails_that_test_and_the_run(tmp_path: Path, end: str) -> None:
    ends = f"import os\ndef test_passes(): ...\ndef test_ends(): {end}\ndef test_is_behind(): ...\n"
    status, output = run(tmp_path / "tests", "--processes=2", first=ends, second=PASSES, third=PASSES)
    assert status != 0
    assert summary(output) == "1 failed, 3 passed"
    assert re.search("_ test_ends _+\ntest process .* did not end", output)
    assert "3 of 5 tests have an outcome" in output


def test_a_process_that_fails_after_its_tests_fails_the_run(tmp_path: Path) -> None:
    fails = "import atexit, os\ndef test_passes(): atexit.register(os._exit, 1)\n"
    status, output = run(tmp_path / "tests", "--processes=2", first=fails, second=PASSES)
    assert status != 0
    assert "ended with 1, expected 0" in output


def test_after_the_first_failure_no_test_is_begun_if_that_is_wanted(tmp_path: Path) -> None:
    fails = "def test_fails(): assert False\ndef test_is_behind(): assert False\n"
    waits = "import time\ndef test_waits(): time.sleep(1)\ndef test_is_behind(): assert False\n"
    status, output = run(tmp_path / "tests", "--processes=2", "-x", first=fails, second=waits)
    assert status == 1
    assert "1 failed" in summary(output)
