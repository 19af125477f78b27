# SPDX-License-Identifier: Apache-2.0
"""
Programs in JavaScript that tests need, each a folder next to this file whose packages are fetched once with npm.

A folder of the cache is named after the sources' bytes and appears whole, by a rename: two processes may fetch at once.
`package-lock.json` pins the packages by their hashes, and none of them runs a script; which registry they come from is
the machine's own npm configuration.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from lakeproof.errors import LakeproofError
from lakeproof.postgres.file_lock import exclusive
from lakeproof.settings import load_settings
from testkit.environment import PROJECT, missing

FETCH_TIMEOUT_S: Final = 600
SOURCES: Final = ("package.json", "package-lock.json", "server.mjs")


def node_program(sources: Path) -> tuple[str, Path]:
    """Return Node and the program of the folder `sources` with its packages beside it, fetching them the first time."""
    node = shutil.which("node")
    if node is None:
        missing(f"the program {sources.name} cannot run without Node")
    digest = hashlib.sha256(b"\0".join((sources / file).read_bytes() for file in SOURCES)).hexdigest()
    try:
        servers = load_settings(os.environ, directory=PROJECT).cache.absolute() / "servers"
    except LakeproofError as error:
        missing(str(error))
    target = servers / f"{sources.name}-{digest[:16]}"
    servers.mkdir(parents=True, exist_ok=True)
    with exclusive(servers / f"{sources.name}.lock", timeout_s=FETCH_TIMEOUT_S):
        if not target.is_dir():
            _fetch(sources, target)
    return node, target / "server.mjs"


def _fetch(sources: Path, target: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        missing(f"{target} is not here, and without npm it cannot be fetched")
    fresh = target.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file in SOURCES:
        shutil.copyfile(sources / file, fresh / file)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    done = subprocess.run(
        command, cwd=fresh, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_TIMEOUT_S, check=False
    )
    if done.returncode:
        missing(f"npm could not fetch {target.name}: {done.stdout.decode(errors='replace')[-1_000:]}")
    fresh.rename(target)
