# SPDX-License-Identifier: Apache-2.0
"""
The program `c2sp` of the folder next to this file: other implementations of C2SP's formats, built once with Go.

What is built is named after its sources' bytes and appears whole, by a rename, in the cache: two processes may build at
once. Which proxy its modules come from is the machine's own Go configuration; `go.sum` pins them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lakeproof.errors import LakeproofError
from lakeproof.postgres.file_lock import exclusive
from lakeproof.settings import load_settings
from testkit.environment import PROJECT, missing

SOURCES: Final = Path(__file__).parent / "c2sp"
MERKLE: Final = "github.com/transparency-dev/merkle@v0.0.2"
BUILD_TIMEOUT_S: Final = 600
RUN_TIMEOUT_S: Final = 90


def c2sp_program() -> Path:
    """Return the program, building it the first time."""
    names = ("go.mod", "go.sum", "main.go", "subtree.go.missing")
    digest = hashlib.sha256(b"\0".join((SOURCES / name).read_bytes() for name in names)).hexdigest()
    try:
        servers = load_settings(os.environ, directory=PROJECT).cache.absolute() / "servers"
    except LakeproofError as error:
        missing(str(error))
    target = servers / f"c2sp-{digest[:16]}"
    servers.mkdir(parents=True, exist_ok=True)
    with exclusive(servers / "c2sp.lock", timeout_s=BUILD_TIMEOUT_S):
        if not target.is_file():
            _build(target)
    return target


def run_c2sp(*arguments: str | Path, given: bytes = b"") -> bytes:
    """
    Run the program and return what it printed.

    Raises:
        subprocess.CalledProcessError: if it refuses what it was given; `stderr` says why.
    """
    done = subprocess.run(
        [c2sp_program(), *arguments], input=given, capture_output=True, timeout=RUN_TIMEOUT_S, check=True
    )
    return done.stdout


@contextmanager
def foreign_witness(skey: str, vkey: str) -> Iterator[str]:
    """Serve a foreign witness with the private key `skey` for the log of `vkey`; yields its URL."""
    command = [str(c2sp_program()), "witness", skey, vkey]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as serving:
        assert serving.stdout is not None
        try:
            yield serving.stdout.readline().decode().strip()
        finally:
            serving.kill()


def _build(target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        missing(f"{target} is not here, and without Go it cannot be built")
    fresh = target.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(SOURCES, fresh)
    merkle = Path(json.loads(_go(go, "mod", "download", "-json", MERKLE, at=fresh.parent))["Dir"])
    shutil.copytree(merkle, fresh / "merkle")  # the modules of Go's cache are read-only, and so is the copy
    for path in (fresh / "merkle", *(fresh / "merkle").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (fresh / "subtree.go.missing").rename(fresh / "merkle" / "proof" / "subtree.go")
    _go(go, "build", "-o", "program", ".", at=fresh)
    (fresh / "program").rename(target)
    shutil.rmtree(fresh)


def _go(go: str, *arguments: str, at: Path) -> bytes:
    done = subprocess.run([go, *arguments], cwd=at, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
    if done.returncode:
        missing(f"Go could not build c2sp: {(done.stdout + done.stderr).decode(errors='replace')[-1_000:]}")
    return done.stdout
