# SPDX-License-Identifier: Apache-2.0
"""
iceberg-rust as a client of ours: a program that does what an engine does (`iceberg_rust/`).

`python -m testkit.servers.iceberg_rust_program` builds it where people see how far the build is; `make tests` does so.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from testkit.environment import PROJECT
from testkit.servers.cargo_program import cargo_program
from testkit.servers.client_programs import run_client

SOURCES: Final = PROJECT / "testkit" / "servers" / "iceberg_rust"


def iceberg_rust() -> Path:
    """Return the program, building it the first time."""
    return cargo_program(SOURCES)


def run_iceberg_rust(*arguments: str, key: str) -> dict[str, Any]:
    """Run the program as `run_client` does."""
    return run_client(iceberg_rust(), *arguments, key=key)


if __name__ == "__main__":
    try:
        iceberg_rust()
    except (pytest.skip.Exception, pytest.fail.Exception) as outcome:  # the tests end in the same way
        sys.stderr.write(f"{outcome}\n")
