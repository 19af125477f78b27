# SPDX-License-Identifier: Apache-2.0
"""
`lakeproof up` as users start it, for tests: its lines, its processes by name, and which of them holds a connection.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from lakeproof.settings import load_settings
from testkit.environment import PROJECT

TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.02
NAME: Final = "lp-"
LISTENS: Final = r"the gateway listens on (\S+); Ctrl-C stops it"


class Up:
    """A running `lakeproof up`, and what it has printed."""

    def __init__(self, process: subprocess.Popen[str], environment: dict[str, str]) -> None:
        self.process = process
        self.environment = environment
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def url(self) -> str:
        """The URL of the gateway, once it is announced."""
        found: list[str] = []

        def announced() -> bool:
            found.extend(match[1] for line in self.lines if (match := re.fullmatch(LISTENS, line)))
            return bool(found) or self.process.poll() is not None

        self.until(announced)
        assert found, self.lines
        return found[0]

    @property
    def port(self) -> int:
        """The port of the gateway."""
        return int(self.url.rpartition(":")[2])

    def processes(self) -> dict[str, int]:
        """Return the processes that run, by name."""
        found = {}
        for pid in children_of(self.process.pid):
            with suppress(OSError):  # it has ended
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name.startswith(NAME):
                    found[name.removeprefix(NAME)] = pid
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds."""
        end_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < end_s, self.lines[-20:]
            time.sleep(POLL_S)

    def until_line(self, pattern: str, *, after: int = 0) -> None:
        """Wait for a line that matches, among those behind the first `after`."""
        self.until(lambda: any(re.fullmatch(pattern, line) for line in self.lines[after:]))

    def kill(self, name: str) -> None:
        """Kill a process by SIGKILL, and wait until another runs in its place."""
        victim, before = self.processes()[name], len(self.lines)
        os.kill(victim, signal.SIGKILL)
        self.until_line(rf"{name} has ended \(SIGKILL\); it is started again in \S+ s", after=before)
        self.until(lambda: self.processes().get(name, victim) != victim)

    def workers(self) -> list[int]:
        """Return the policy workers of all gateway processes."""
        gateways = [pid for name, pid in self.processes().items() if name.startswith("gateway")]
        return [pid for gateway in gateways for pid in children_of(gateway) if "policy.worker" in command_of(pid)]

    def end(self) -> int:
        """Wait until it has ended; return the exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reading.join(TIMEOUT_S)
        return code

    def command(self, *arguments: str, timeout_s: float = TIMEOUT_S) -> subprocess.CompletedProcess[str]:
        """Run another command on the same installation; it has `timeout_s` for all that it does."""
        command = [sys.executable, "-m", "lakeproof", *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=PROJECT, check=False, capture_output=True, text=True, timeout=timeout_s
        )

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip())


@contextmanager
def running_up(home: Path, **settings: str) -> Iterator[Up]:
    """Run `lakeproof up` in a home; `settings` are variables without their prefix, in lower case."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")}
    chosen = {
        "home": str(home),
        "cache": str(load_settings(os.environ, directory=PROJECT).cache),
        "port": "0",
        "detect": "0",
        "checkpoint_interval_s": "0.05",
        "policy_timeout_s": "30",
        "policy_waiting_s": "30",
        **settings,
    }
    environment = {**kept, **{f"LAKEPROOF_{name.upper()}": value for name, value in chosen.items()}}
    process = subprocess.Popen(
        [sys.executable, "-m", "lakeproof", "up"],
        cwd=PROJECT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    up = Up(process, environment)
    try:
        yield up
    finally:
        process.kill()
        up.end()


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started and that have not ended."""
    found: list[int] = []
    threads: list[Path] = []
    with suppress(OSError):  # it has ended
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    for thread in threads:
        with suppress(OSError):  # it has ended
            found += [child for child in map(int, (thread / "children").read_text().split()) if _runs(child)]
    return found


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    return False


def command_of(pid: int) -> str:
    """Return the command line of a process; nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def holds_connection(pid: int, *, port: int, client_port: int) -> bool:
    """Tell whether a process holds the end at `port` of a TCP connection over loopback with a client."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ends = [(row[1].rpartition(":")[2], row[2].rpartition(":")[2]) for row in rows]
    inodes = {row[9] for row, end in zip(rows, ends, strict=True) if end == (f"{port:04X}", f"{client_port:04X}")}
    links = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            links.add(str(descriptor.readlink()))
    return any(f"socket:[{inode}]" in links for inode in inodes)
