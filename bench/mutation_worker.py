# SPDX-License-Identifier: Apache-2.0
"""
Runs tests against one mutant after another, in a copy of the tree that belongs to this process alone.

What tests import from other modules is loaded once. Each run of tests is a fork of this process, so that it starts at
once, and imports the mutated module afresh. One JSON object per line: jobs come on stdin, answers go to stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Final

import pytest

PRELOADED: Final = (
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "fastapi",
    "numba",
    "numpy",
    "orjson",
    "psycopg",
    "psycopg_pool",
    "pydantic",
    "typer.testing",
)
OPTIONS: Final = (
    "-x",
    "-q",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
"""What is loaded already cannot be rewritten; that is of no matter, since no test of ours is."""
SURVIVED: Final = "survived"
KILLED: Final = "killed"
TIMEOUT: Final = "timeout"


def run_tests(arguments: list[str], *, timeout_s: float, output: Path) -> tuple[str, float]:
    """Run pytest in a fork, and return how it ended, and after how many seconds."""
    began_s = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.setsid()  # so that everything that the tests start can be ended with them
        file = os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (file, 1), (file, 2)):
            os.dup2(descriptor, target)
        os._exit(int(pytest.main([*OPTIONS, *arguments])))
    process = os.pidfd_open(pid)
    ended, _, _ = select([process], [], [], timeout_s)
    os.close(process)
    elapsed_s = time.monotonic() - began_s
    if not ended:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not ended:
        return TIMEOUT, elapsed_s
    return (SURVIVED if os.waitstatus_to_exitcode(status) == 0 else KILLED), elapsed_s


def serve() -> None:
    """Do one job after another, until stdin ends."""
    for name in PRELOADED:
        importlib.import_module(name)
    output = Path("mutation.log").absolute()
    answers = os.dup(1)  # a number, not a file: the forks would warn that nobody closes it
    for line in sys.stdin:
        job = json.loads(line)
        path = Path(job["path"])
        original = path.read_text(encoding="utf-8")
        if job["text"] is not None:
            path.write_text(job["text"], encoding="utf-8")
        outcome, spent_s = SURVIVED, []
        try:
            for arguments, timeout_s in zip(job["stages"], job["timeouts_s"], strict=True):
                outcome, elapsed_s = run_tests(arguments, timeout_s=timeout_s, output=output)
                spent_s.append(round(elapsed_s, 2))
                if outcome != SURVIVED:
                    break
        finally:
            path.write_text(original, encoding="utf-8")
        printed = output.read_text(encoding="utf-8", errors="replace")[-2_000:]
        os.write(answers, json.dumps({"outcome": outcome, "spent_s": spent_s, "said": printed}).encode() + b"\n")


if __name__ == "__main__":
    serve()
