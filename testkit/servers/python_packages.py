# SPDX-License-Identifier: Apache-2.0
"""
Python packages that only some processes of tests import: those of a file in `packages/`, fetched once with pip.

They lie in a folder of the cache that a process gets in PYTHONPATH, not in the virtual environment: no lock file of the
project names them. Each file pins versions and hashes. A folder is named after the file's bytes and appears whole, by a
rename. Which registry the packages come from is the machine's own pip configuration.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from lakeproof.errors import LakeproofError
from lakeproof.postgres.file_lock import exclusive
from lakeproof.settings import load_settings
from testkit.environment import PROJECT, missing

PACKAGES: Final = Path(__file__).parent / "packages"
FETCH_TIMEOUT_S: Final = 300
PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
PINNED: Final = ("--no-deps", "--require-hashes", "--no-build-isolation")


def python_packages(name: str) -> Path:
    """Return the folder with the packages of `packages/<name>.txt`, fetching them the first time."""
    return _fetched(name, "install", "--target")


def python_source(name: str) -> Path:
    """Return the folder with the source of the one package of `packages/<name>.txt`, fetching it the first time."""
    return _fetched(name, "download", "--no-binary=:all:", "--dest")


def _fetched(name: str, *command: str) -> Path:
    file = PACKAGES / f"{name}.txt"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(file.read_bytes() + python.encode()).hexdigest()[:16]
    try:
        servers = load_settings(os.environ, directory=PROJECT).cache.absolute() / "servers"
    except LakeproofError as error:
        missing(str(error))
    target = servers / f"{name}-{digest}"
    servers.mkdir(parents=True, exist_ok=True)
    with exclusive(servers / f"{name}.lock", timeout_s=FETCH_TIMEOUT_S):
        if not target.is_dir():
            _fetch(file, target, command)
    return target


def _fetch(file: Path, target: Path, command: tuple[str, ...]) -> None:
    fresh = target.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    done = subprocess.run(
        [*PIP, command[0], *PINNED, *command[1:], fresh, "-r", file],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        missing(f"pip could not fetch the packages of {file.name}: {done.stdout.decode(errors='replace')[-1_000:]}")
    for archive in fresh.glob("*.tar.gz"):
        with tarfile.open(archive) as source:
            source.extractall(fresh, filter="data")
        archive.unlink()
    fresh.rename(target)
