# SPDX-License-Identifier: Apache-2.0
"""
Programs in Go that tests and benches need, each built once from a folder next to this file.

Which proxy its modules come from is the machine's own Go configuration; `go.sum` pins them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from testkit.environment import missing
from testkit.servers.cache import cached

BUILD_TIMEOUT_S: Final = 600
SOURCES: Final = ("go.mod", "go.sum", "main.go")

Prepare = Callable[[Path, Callable[..., bytes]], None]
"""Completes a copy of the sources in a folder; the second argument runs `go` there and returns what it prints."""


def go_program(sources: Path, *, others: Sequence[str] = (), prepare: Prepare = lambda _folder, _go: None) -> Path:
    """Return the program of the folder `sources`, building it the first time; `others` are further source files."""
    content = [(sources / file).read_bytes() for file in (*SOURCES, *others)]
    return cached(sources.name, content, partial(_built, sources, prepare), timeout_s=BUILD_TIMEOUT_S)


def _built(sources: Path, prepare: Prepare, fresh: Path) -> Path:
    go = shutil.which("go")
    if go is None:
        missing(f"the program {sources.name} is not built, and cannot be without Go")
    shutil.copytree(sources, fresh, dirs_exist_ok=True)

    def run(*arguments: str, at: Path = fresh) -> bytes:
        done = subprocess.run([go, *arguments], cwd=at, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
        if done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace")[-1_000:]
            missing(f"Go could not build {sources.name}: {said}")
        return done.stdout

    prepare(fresh, run)
    run("build", "-o", "program", ".")
    return fresh / "program"
