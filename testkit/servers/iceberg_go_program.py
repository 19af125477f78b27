# SPDX-License-Identifier: Apache-2.0
"""iceberg-go as a client of ours: a program that times it, and that does what an engine does (`iceberg_go/`)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from testkit.environment import PROJECT
from testkit.servers.go_program import go_program

SOURCES: Final = PROJECT / "testkit" / "servers" / "iceberg_go"
ENGINE: Final = "engine.go"
TIMEOUT_S: Final = 300


def iceberg_go() -> Path:
    """Return the program, building it the first time."""
    return go_program(SOURCES, others=(ENGINE,))


def run_iceberg_go(*arguments: str, key: str = "") -> dict[str, Any]:
    """
    Return what the program prints.

    Raises:
        RuntimeError: if it failed, with what it said.
    """
    done = subprocess.run(
        [iceberg_go(), *arguments],
        env={**os.environ, "LAKEPROOF_KEY": key},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"iceberg-go ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
