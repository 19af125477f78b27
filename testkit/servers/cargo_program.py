# SPDX-License-Identifier: Apache-2.0
"""
Programs in Rust that tests need, each built once from a folder next to this file.

A build takes minutes: on a terminal cargo shows how far it is. Which registry the crates come from is the machine's own
cargo configuration; `Cargo.lock` pins them by their hashes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Final

from testkit.environment import missing
from testkit.servers.cache import cached

BUILD_TIMEOUT_S: Final = 1_800
MAIN: Final = "src/main.rs"
SOURCES: Final = ("Cargo.toml", "Cargo.lock", MAIN)


def cargo_program(sources: Path) -> Path:
    """Return the program of the folder `sources`, which has that name, building it the first time."""
    content = [(sources / file).read_bytes() for file in SOURCES]
    return cached(sources.name, content, partial(_built, sources), timeout_s=BUILD_TIMEOUT_S)


def _built(sources: Path, fresh: Path) -> Path:
    name = sources.name
    cargo = shutil.which("cargo")
    if cargo is None:
        missing(f"the program {name} is not built, and cannot be without Rust (cargo)")
    is_seen = sys.stderr.isatty()
    command = [cargo, "build", "--locked", "--manifest-path", str(sources / "Cargo.toml"), "--target-dir", str(fresh)]
    sys.stderr.write(f"building {name} with cargo, once on this machine: 2 to 8 minutes\n")
    sys.stderr.flush()
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *([] if is_seen else ["--quiet"])],
            stderr=None if is_seen else subprocess.PIPE,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        missing(f"cargo did not build {name} within {BUILD_TIMEOUT_S} seconds")
    if done.returncode:
        missing(f"cargo could not build {name}: {(done.stderr or 'it says above why')[-1_000:]}")
    sys.stderr.write(f"built {name} in {time.monotonic() - began:.0f} s\n")
    return fresh / "debug" / name
