# SPDX-License-Identifier: Apache-2.0
"""The supervisor restarts what dies and says so, stops in order, leaves nothing behind, and ends at corruption."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakeproof.serving.supervisor import PAUSE_S_MAX, Plan, Supervisor
from testkit.environment import PROJECT

TIMEOUT_S = 60


class Supervised:
    """A supervisor that runs, and the lines that it and its processes print."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, pattern: str) -> re.Match[str]:
        """Read lines until one matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if found := re.fullmatch(pattern, self.lines[-1]):
                return found
        raise AssertionError(f"expected {pattern!r}, found {self.lines}")

    def begun(self, *names: str) -> list[str]:
        """Read lines until all these processes have begun, in whatever order they do; return their pids."""
        pids: dict[str, str] = {}
        while set(pids) < set(names):
            found = self.until(r"(\w+) (\d+) begun")
            pids[found[1]] = found[2]
        return [pids[name] for name in names]

    def end(self) -> int:
        """Read all lines, and return the exit code."""
        assert self.process.stdout is not None
        self.lines += map(str.rstrip, self.process.stdout)  # to its end: no process that holds it is left
        return self.process.wait(TIMEOUT_S)


@contextmanager
def supervised(*plans: str, stop_timeout_s: float = TIMEOUT_S) -> Iterator[Supervised]:
    """Run a supervisor of these plans."""
    command = [sys.executable, "-m", "testkit.lakeproof.supervised", str(stop_timeout_s), *plans]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        limit = threading.Timer(TIMEOUT_S, process.kill)
        limit.start()
        try:
            yield Supervised(process)
        finally:
            limit.cancel()
            process.kill()


def is_alive(pid: str) -> bool:
    """Tell whether a process runs that is not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def test_a_process_that_is_killed_is_started_again_and_the_other_goes_on() -> None:
    with supervised("one:0:serve", "two:0:serve") as up:
        victim, other = up.begun("one", "two")
        for _ in range(3):
            os.kill(int(victim), signal.SIGKILL)
            up.until(r"one has ended \(SIGKILL\); it is started again in 0\.\d+ s")
            victim = up.until(r"one (\d+) begun")[1]
        assert is_alive(other)
        up.process.terminate()
        assert up.end() == 0
        assert not any(line.startswith("two has ended") for line in up.lines)
        assert {f"one {victim} stopped", f"two {other} stopped"} <= set(up.lines)
        assert up.lines[-1] == "ended"


def test_the_pause_before_a_restart_doubles() -> None:
    with supervised("one:0:serve", "bad:0:die") as up:
        pauses = [
            float(up.until(r"bad has ended \(exit code 3\); it is started again in (\S+) s")[1]) for _ in range(5)
        ]
        assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16]
        assert max(pauses) < PAUSE_S_MAX
        up.process.send_signal(signal.SIGINT)
        assert up.end() == 0


def test_a_process_that_breaks_down_does_not_end_the_others() -> None:
    with supervised("one:0:serve", "bad:0:break_down") as up:
        up.until(r"RuntimeError: it broke")
        up.until(r"bad has ended \(exit code 70\); .*")
        up.process.terminate()
        assert up.end() == 0


@pytest.mark.parametrize(
    ("work", "text"),
    [("find_corruption", "(bad|worse): entry fault at index 7"), ("be_refused", "the setting is wrong: correct it")],
)
def test_corruption_and_what_people_must_repair_end_all_and_are_said_once(work: str, text: str) -> None:
    with supervised("one:0:serve", f"bad:1:{work}", f"worse:1:{work}") as up:
        other = up.until(r"one (\d+) begun")[1]
        assert up.end() == 1
        assert f"one {other} stopped" in up.lines
        assert re.fullmatch(f"error: {text}", up.lines[-1])
        assert not any(re.search(text, line) for line in up.lines[:-1])


def test_a_process_that_has_served_is_started_again_whatever_refuses_it() -> None:
    with supervised("one:0:serve", "late:0:be_refused_later") as up:
        up.until(r"late has ended \(the setting is wrong: correct it\); .*")
        up.until(r"late has ended \(the setting is wrong: correct it\); .*")
        up.process.terminate()
        assert up.end() == 0


def test_a_stage_begins_when_the_one_before_is_ready_and_ends_before_it() -> None:
    with supervised("first:0:get_ready_late", "second:1:serve") as up:
        up.until(r"first \d+ begun")
        up.until(r"second \d+ begun")
        assert len(up.lines) == 2
        up.process.terminate()
        assert up.end() == 0
        told = ["stopping", "no more is accepted"]
        assert [re.sub(r"\d+ ", "", line) for line in up.lines[2:]] == [
            *told, "second stopped", "first stopped", "ended"
        ]  # fmt: skip


def test_a_start_can_be_interrupted_before_its_last_stage() -> None:
    with supervised("bad:0:die", "second:1:serve") as up:
        up.until(r"bad has ended .*")
        up.process.terminate()
        assert up.end() == 0
        assert not any(line.startswith("second") for line in up.lines)


def test_a_process_that_does_not_end_in_time_is_killed() -> None:
    with supervised("one:0:serve", "bad:1:refuse_to_end", stop_timeout_s=0.2) as up:
        stubborn = up.until(r"bad (\d+) begun")[1]
        up.process.terminate()
        assert up.end() == 0
        assert "bad has not ended, and is killed" in up.lines
        assert not is_alive(stubborn)
        assert up.lines[-1] == "ended"


def test_a_second_signal_kills_at_once() -> None:
    with supervised("bad:0:refuse_to_end") as up:
        stubborn = up.until(r"bad (\d+) begun")[1]
        up.process.terminate()
        up.until("no more is accepted")
        up.process.terminate()
        assert up.end() == 0
        assert "bad has not ended, and is killed" in up.lines
        assert not is_alive(stubborn)


def test_processes_whose_supervisor_is_killed_notice_it() -> None:
    with supervised("one:0:serve", "two:1:serve") as up:
        pids = up.begun("one", "two")
        up.process.kill()
        up.end()
        assert {f"one {pids[0]} alone", f"two {pids[1]} alone"} <= set(up.lines)


def test_a_process_with_several_threads_does_not_fork() -> None:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        with pytest.raises(AssertionError, match="must not fork"):
            Supervisor([Plan(name="one", stage=0, load=lambda: lambda _: 0)], print).run()
    finally:
        stop.set()
        other.join()
