"""
The README's first steps and the pages that go on from them work as they stand: every block is run, in order.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from testkit.environment import PROJECT

PORT = "8181"
TIMEOUT_S = 120


def first_steps() -> list[tuple[str, str]]:
    """Return the fenced blocks (language, text) of the section "First steps"."""
    section = (PROJECT / "README.md").read_text(encoding="utf-8").partition("## First steps")[2].partition("\n## ")[0]
    return re.findall(r"```(\w+)\n(.*?)```", section, flags=re.DOTALL)


def blocks_of(name: str) -> list[tuple[str, str]]:
    """Return the fenced blocks (language, text) of a page, in order."""
    page = (PROJECT / "docs" / name).read_text(encoding="utf-8")
    return re.findall(r"```(\w+)\n(.*?)```", page, flags=re.DOTALL)


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


@contextmanager
def terminal(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """`lakeproof up` in a terminal of its own, ended as Ctrl-C ends it."""
    process = subprocess.Popen(
        ["lakeproof", "up"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "listens on" in line:
                break
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=TIMEOUT_S)
        assert "Traceback" not in printed


def test_the_first_steps_of_the_readme_work_in_order(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]]
) -> None:
    port = free_port()
    scripts = f"{Path(sys.executable).parent}{os.pathsep}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")}
    environment |= {"PATH": scripts + os.environ["PATH"], "LAKEPROOF_PORT": port, "LAKEPROOF_CACHE": str(age.parent)}
    environment["LAKEPROOF_DETECT"] = "0"  # no step waits for a virtual machine that scans
    blocks = first_steps()
    assert {language for language, _ in blocks} == {"sh", "python"}
    serving = blocks.index(("sh", "lakeproof up\n"))
    with short_directory() as folder:
        run(blocks[:serving], folder, environment, port)
        with terminal(folder, environment) as up:
            printed = run(blocks[serving + 1 :], folder, environment, port)
            shutil.copy(PROJECT / "verify_lakeproof.py", folder)
            audited = run(blocks_of("auditing.md"), folder, environment, port)
            recorded = run(blocks_of("event-store.md"), folder, environment, port)
            followed = run(blocks_of("first-hours.md"), folder, environment, port)
        assert up.returncode == 0
    assert "finance-writers" in printed
    assert "NOT WITNESSED" in printed
    assert "OK" in printed
    assert "PREFIX NOT RE-READ" in audited
    assert len(re.findall("^OK", audited, flags=re.MULTILINE)) >= 7
    assert re.search(r"^OK.*^BROKEN", followed, flags=re.MULTILINE | re.DOTALL)
    assert "scan.requested" in followed
    assert re.search(r"^Buy oat milk\n.*Note\.Written.*Note\.Amended", recorded, flags=re.MULTILINE)
    assert re.search("recorded events.*^OK", recorded, flags=re.MULTILINE | re.DOTALL)


def run(blocks: list[tuple[str, str]], folder: Path, environment: dict[str, str], port: str) -> str:
    printed = ""
    for language, text in blocks:
        program = ["bash", "-e", "-c"] if language == "sh" else [sys.executable, "-W", "ignore", "-c"]
        done = subprocess.run(
            [*program, text.replace(PORT, port)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        printed += done.stdout
    return printed
