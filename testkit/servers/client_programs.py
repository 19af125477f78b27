# SPDX-License-Identifier: Apache-2.0
"""Clients of ours in other languages: programs that take an API key from LAKEPROOF_KEY and print one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

TIMEOUT_S: Final = 300


def run_client(program: Path, *arguments: str, key: str) -> dict[str, Any]:
    """
    Return what the program prints.

    Raises:
        RuntimeError: if it failed, with what it said.
    """
    done = subprocess.run(
        [program, *arguments],
        env={**os.environ, "LAKEPROOF_KEY": key},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{program.name} ended with {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
