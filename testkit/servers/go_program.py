# SPDX-License-Identifier: Apache-2.0
"""
Programs in Go that tests and benches need, each built once from a folder next to this file.

What is built is named after its sources' bytes and appears whole, by a rename, in the cache: two processes may build at
once. Which proxy its modules come from is the machine's own Go configuration; `go.sum` pins them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lakeproof.errors import LakeproofError
from lakeproof.postgres.file_lock import exclusive
from lakeproof.settings import load_settings
from testkit.environment import PROJECT, missing

BUILD_TIMEOUT_S: Final = 600
SOURCES: Final = ("go.mod", "go.sum", "main.go")

Prepare = Callable[[Path, Callable[..., bytes]], None]
"""Completes a copy of the sources in a folder; the second argument runs `go` there and returns what it prints."""


def go_program(sources: Path, *, others: Sequence[str] = (), prepare: Prepare = lambda _folder, _go: None) -> Path:
    """Return the program of the folder `sources`, building it the first time; `others` are further source files."""
    name = sources.name
    digest = hashlib.sha256(b"\0".join((sources / file).read_bytes() for file in (*SOURCES, *others))).hexdigest()
    try:
        servers = load_settings(os.environ, directory=PROJECT).cache.absolute() / "servers"
    except LakeproofError as error:
        missing(str(error))
    target = servers / f"{name}-{digest[:16]}"
    servers.mkdir(parents=True, exist_ok=True)
    with exclusive(servers / f"{name}.lock", timeout_s=BUILD_TIMEOUT_S):
        if not target.is_file():
            _build(sources, target, prepare)
    return target


def _build(sources: Path, target: Path, prepare: Prepare) -> None:
    go = shutil.which("go")
    if go is None:
        missing(f"{target} is not here, and without Go it cannot be built")
    fresh = target.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(sources, fresh)

    def run(*arguments: str, at: Path = fresh) -> bytes:
        done = subprocess.run([go, *arguments], cwd=at, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
        if done.returncode:
            said = (done.stdout + done.stderr).decode(errors="replace")[-1_000:]
            missing(f"Go could not build {sources.name}: {said}")
        return done.stdout

    prepare(fresh, run)
    run("build", "-o", "program", ".")
    (fresh / "program").rename(target)
    shutil.rmtree(fresh)
