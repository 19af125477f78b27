# SPDX-License-Identifier: Apache-2.0
"""
Commands of the scene: each runs in a process of its own, and the scene shows what it prints.
"""

from __future__ import annotations

import asyncio
import importlib.util
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
    environment = {**os.environ, "LAKEPROOF_HOME": str(home), **(environment or {})}
    return await _run("-m", "lakeproof", *arguments, expect=expect, environment=environment)


async def run_verifier(*arguments: str, expect: int) -> Ran:
    """
    Run `verify_lakeproof.py`, the file that third parties are given, with a Python that cannot import our packages.

    Raises:
        AssertionError: if it does not end with exit code `expect`, or is not there.
    """
    found = importlib.util.find_spec("verify_lakeproof")
    if found is None or found.origin is None:
        raise AssertionError("verify_lakeproof.py: expected it next to the packages, found none")
    return await _run("-I", "-S", found.origin, *arguments, expect=expect, environment={})


async def _run(*arguments: str, expect: int, environment: Mapping[str, str]) -> Ran:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    printed, _ = await process.communicate()
    ran = Ran(code=process.returncode or 0, output=printed.decode(errors="replace"))
    if ran.code != expect:
        said = ran.output.strip() or "nothing"
        raise AssertionError(f"{' '.join(arguments[1:4])}: expected exit code {expect}, found {ran.code}: {said}")
    return ran
