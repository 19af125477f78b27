"""
Commands that somebody types in the scene: each is a process of its own, and what it prints is what is shown.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has ended: its exit code and what it printed."""

    code: int
    output: str


async def run_command(
    home: Path, *arguments: str, expect: int = 0, environment: Mapping[str, str] | None = None
) -> Ran:
    """
    Run `lakeproof` with `arguments` on the installation in `home`.

    Raises:
        AssertionError: if it does not end with exit code `expect`.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lakeproof",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "LAKEPROOF_HOME": str(home), **(environment or {})},
    )
    printed, _ = await process.communicate()
    ran = Ran(code=process.returncode or 0, output=printed.decode(errors="replace"))
    if ran.code != expect:
        said = ran.output.strip() or "nothing"
        raise AssertionError(
            f"lakeproof {' '.join(arguments[:2])}: expected exit code {expect}, found {ran.code}: {said}"
        )
    return ran
