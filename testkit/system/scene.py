# SPDX-License-Identifier: Apache-2.0
"""
Plays the scene of `make run` with the command itself, kills it at a step, and checks what it printed and left.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from lakeproof.postgres.directories import recorded_directory
from lakeproof.postgres.process import postmaster_pid
from testkit.spark_detect.class_archive import archive_variables

TITLES = (
    "1. Start",
    "2. An engine commits",
    "3. A policy refuses",
    "4. Two clients race",
    "5. A foreign catalog",
    "6. Lineage arrives",
    "7. Triggers arrive",
    "8. Detection finds",
    "9. Projections show it",
    "10. The graph answers",
    "11. A projection is rebuilt",
    "12. A proposal is replayed",
    "13. An auditor verifies offline",
)
TIMEOUT_S = 300
POLL_S = 0.05


def postmaster_of(home: Path) -> int | None:
    return postmaster_pid((recorded_directory(home) or home / "postgres") / "data")


def start_scene(home: Path) -> subprocess.Popen[str]:
    return start(home, "demo", "--once")


def verify_deeply(home: Path) -> str:
    """Verify every log with all that stands beside it; return what is printed."""
    verifying = start(home, "ledger", "verify", "--deep")
    printed, _ = verifying.communicate(timeout=TIMEOUT_S)
    assert verifying.returncode == 0, printed
    return printed


def start(home: Path, *command: str) -> subprocess.Popen[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LAKEPROOF_") or name.endswith("_CACHE")
    }
    temporary = home.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "lakeproof", *command],
        env={
            **environment,
            **archive_variables(),
            "LAKEPROOF_HOME": str(home),
            "LAKEPROOF_SERVER_FOLDER": str(home.parent / "servers"),
            "LAKEPROOF_PORT": "0",
            "TMPDIR": str(temporary),  # what is killed leaves its temporary files behind
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def play(home: Path) -> str:
    scene = start_scene(home)
    printed, _ = scene.communicate(timeout=TIMEOUT_S)
    assert scene.returncode == 0, printed
    return printed


def processes_of(directory: Path) -> list[str]:
    """The command lines of processes of a home in `directory`: their command line or environment names it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            if str(directory).encode() in line + environment and int(process.name) != os.getpid():
                found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def open_to_others(home: Path) -> list[str]:
    """What in a home another user of the machine may use: every folder there is 0700, and every file 0600."""
    found = []
    for path in (home, *home.rglob("*")):
        mode, usual = stat.S_IMODE(path.lstat().st_mode), 0o700 if path.is_dir() else 0o600
        if not path.is_symlink() and mode != usual:
            found.append(f"{path.relative_to(home)} {mode:04o}")
    return found


def check_all_steps(printed: str) -> None:
    places = [printed.find(title) for title in TITLES]
    assert -1 not in places, printed
    assert places == sorted(places), printed
    assert "FAILED" not in printed
    assert "Traceback" not in printed
    assert "All steps passed." in printed


def kill_at_step(home: Path, step: int) -> str:
    """Begin the scene, and kill all of it once that step has begun; return what it printed before."""
    scene = start_scene(home)
    assert scene.stdout is not None
    printed = ""
    for line in scene.stdout:
        if line.startswith(f"{step}. "):
            break
        printed += line
    _await_spark(home)
    # The scene, its policy worker and whatever it runs are one session; the server is a daemon of its own.
    os.killpg(scene.pid, signal.SIGKILL)
    postmaster = postmaster_of(home)
    assert postmaster is not None
    os.kill(postmaster, signal.SIGKILL)
    scene.stdout.close()
    assert scene.wait() == -signal.SIGKILL
    return printed


def _await_spark(home: Path) -> None:
    """Return when Spark's virtual machine runs: it is started while the first steps are played, all else before."""
    deadline = time.monotonic() + TIMEOUT_S
    while not any("/bin/java" in line and "SparkSubmit" in line for line in processes_of(home.parent)):
        assert time.monotonic() < deadline, processes_of(home.parent)
        time.sleep(POLL_S)
