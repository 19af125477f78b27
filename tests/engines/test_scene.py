# SPDX-License-Identifier: Apache-2.0
"""
The scene of `make run`, played by the command itself in a home of its own: begun on a fresh one, killed, played again.

Both runs print what `docs/scene.md` says. That a fresh run passes to its end is what `.ci/run` shows.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from testkit.system.scene import (
    check_all_steps,
    kill_at_step,
    open_to_others,
    play,
    postmaster_of,
    processes_of,
    verify_deeply,
)
from testkit.system.scene_page import DETECTION_STARTS, PAGE, normal_form, printed_on, recorded_of, steps_of

KILLED_AT = 4
"""Clients are writing then; whatever a scene starts has been started, Spark as well."""
EARLIER = "   logs of earlier runs, verified again: 1"
"""What a second run prints besides: the log of the first is verified, too."""
LOGS = 3
"""The system log, and that of each run's tenant."""


@pytest.fixture(scope="module")
def home(age: Path, short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    """A home that no run has seen; a server that is still there at the end is stopped."""
    with short_directory() as directory:
        home = directory / "home"
        yield home
        if (pid := postmaster_of(home)) is not None:
            os.kill(pid, signal.SIGQUIT)


def test_after_everything_was_killed_in_the_middle_the_next_run_passes_and_leaves_no_process_behind(home: Path) -> None:
    page = printed_on(PAGE.read_text(encoding="utf-8"))
    on_page = steps_of(normal_form(page))
    killed = steps_of(normal_form(kill_at_step(home, KILLED_AT)))
    assert list(killed.items()) == list(on_page.items())[:KILLED_AT]
    printed = play(home)
    check_all_steps(printed)
    assert DETECTION_STARTS in printed
    assert "tenant demo-2" in printed
    assert EARLIER in printed
    played = steps_of(normal_form(printed.replace(f"{EARLIER}\n", "")))
    assert list(played.items())[1:] == list(on_page.items())[1:]
    for recorded, alone in zip(recorded_of(printed), recorded_of(page), strict=True):
        assert recorded >= alone, "what the killed run had committed is scanned, too"
    verified = verify_deeply(home)
    assert verified.count("objects of schema, roles, grants and settings against the record") == LOGS
    assert f"OK: {LOGS} logs, all that this installation has" in verified
    assert postmaster_of(home) is None
    assert processes_of(home.parent) == []
    assert open_to_others(home) == []
    picture = (home / "graph.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "crm.customers" in picture
