# SPDX-License-Identifier: Apache-2.0
"""
Programs in JavaScript that tests need, each a folder next to this file whose packages are fetched once with npm.

`package-lock.json` pins the packages by their hashes, and none of them runs a script; which registry they come from is
the machine's own npm configuration.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from testkit.environment import missing
from testkit.servers.cache import cached

FETCH_TIMEOUT_S: Final = 600
PACKAGES: Final = ("package.json", "package-lock.json")
PROGRAM: Final = "server.mjs"


def node_program(sources: Path) -> tuple[str, Path]:
    """Return Node and the program of the folder `sources` with its packages beside it, fetching them the first time."""
    node = shutil.which("node")
    if node is None:
        missing(f"the program {sources.name} cannot run without Node")
    return node, node_packages(sources, *PACKAGES, PROGRAM) / PROGRAM


def node_packages(sources: Path, *files: str) -> Path:
    """Return a folder with these files of the folder `sources`, and their packages, fetched the first time."""
    content = [(sources / file).read_bytes() for file in files]
    return cached(sources.name, content, partial(_fetched, sources, files), timeout_s=FETCH_TIMEOUT_S)


def _fetched(sources: Path, files: Sequence[str], fresh: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        missing(f"the packages of {sources.name} are not here, and cannot be fetched without npm")
    for file in files:
        shutil.copyfile(sources / file, fresh / file)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    done = subprocess.run(
        command, cwd=fresh, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_TIMEOUT_S, check=False
    )
    if done.returncode:
        missing(f"npm could not fetch the packages of {sources.name}: {done.stdout.decode(errors='replace')[-1_000:]}")
    return fresh
