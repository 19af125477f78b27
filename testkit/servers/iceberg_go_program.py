# SPDX-License-Identifier: Apache-2.0
"""iceberg-go as a client of ours: a program that times it, and that does what an engine does (`iceberg_go/`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from testkit.environment import PROJECT
from testkit.servers.client_programs import run_client
from testkit.servers.go_program import go_program

SOURCES: Final = PROJECT / "testkit" / "servers" / "iceberg_go"
ENGINE: Final = "engine.go"


def iceberg_go() -> Path:
    """Return the program, building it the first time."""
    return go_program(SOURCES, others=(ENGINE,))


def run_iceberg_go(*arguments: str, key: str = "") -> dict[str, Any]:
    """Run the program as `run_client` does."""
    return run_client(iceberg_go(), *arguments, key=key)
