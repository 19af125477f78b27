# SPDX-License-Identifier: Apache-2.0
"""
Python packages that only some processes of tests import: those of a file in `packages/`, fetched once with pip.

They lie in a folder of the cache that a process gets in PYTHONPATH, not in the virtual environment: no lock file of the
project names them. Each file pins versions and hashes. Which registry the packages come from is the machine's own pip
configuration.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path
from typing import Final

from testkit.environment import missing
from testkit.servers.cache import cached

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
    content = [file.read_bytes() + python.encode()]
    return cached(name, content, partial(_fetch, file, command), timeout_s=FETCH_TIMEOUT_S)


def _fetch(file: Path, command: tuple[str, ...], fresh: Path) -> Path:
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
    return fresh
