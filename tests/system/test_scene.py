"""
The scene of `make run`, played by the command itself in a home of its own: begun on a fresh one, killed, played again.

That it passes on a fresh home is what `.ci/run` shows, with the command of the README.
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


@pytest.fixture(scope="module")
def home(age: Path, short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[Path]:
    """A home that no run has seen; a server that is still there at the end is stopped."""
    with short_directory() as directory:
        home = directory / "home"
        yield home
        if (pid := postmaster_of(home)) is not None:
            os.kill(pid, signal.SIGQUIT)


def test_after_everything_was_killed_in_the_middle_the_next_run_passes_and_leaves_no_process_behind(home: Path) -> None:
    kill_at_step(home, 7)
    printed = play(home)
    check_all_steps(printed)
    assert "NOT WITNESSED" in printed
    assert "tenant demo-2" in printed
    assert "logs of earlier runs, verified again: 1" in printed
    for log in ("system", "demo-1", "demo-2"):
        assert "objects of schema, roles, grants and settings against the record" in verify_deeply(home, log)
    assert postmaster_of(home) is None
    assert processes_of(home.parent) == []
    assert open_to_others(home) == []
    picture = (home / "graph.svg").read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "crm.customers" in picture
