# SPDX-License-Identifier: Apache-2.0
"""
The program `c2sp` of the folder next to this file: other implementations of C2SP's formats, built once with Go.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from testkit.servers.go_program import go_program

SOURCES: Final = Path(__file__).parent / "c2sp"
MERKLE: Final = "github.com/transparency-dev/merkle@v0.0.2"
RUN_TIMEOUT_S: Final = 90


def c2sp_program() -> Path:
    """Return the program, building it the first time."""
    return go_program(SOURCES, others=("subtree.go.missing",), prepare=_with_subtrees)


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


def _with_subtrees(fresh: Path, go: Callable[..., bytes]) -> None:
    """Put a copy of the module `merkle`, with a file that it lacks, next to the sources."""
    merkle = Path(json.loads(go("mod", "download", "-json", MERKLE, at=fresh.parent))["Dir"])
    shutil.copytree(merkle, fresh / "merkle")  # the modules of Go's cache are read-only, and so is the copy
    for path in (fresh / "merkle", *(fresh / "merkle").rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (fresh / "subtree.go.missing").rename(fresh / "merkle" / "proof" / "subtree.go")
