# SPDX-License-Identifier: Apache-2.0
"""
The peer: rustberg, an Iceberg REST catalog in Rust, without authentication, its catalog and warehouse on the same disk.

Whoever wants the comparison installs it; it is looked for in $RUSTBERG and on the PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from bench.gateway.target import MissingError, Target
from bench.servers import directory_until_exit
from testkit.servers.java import free_ports

NAME: Final = "rustberg"
BASE: Final = "/v1"
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 20.0


def rustberg_program() -> Path:
    """
    Return the program.

    Raises:
        MissingError: if it is not there.
    """
    found = os.environ.get("RUSTBERG") or shutil.which("rustberg")
    if found is None or not Path(found).is_file():
        raise MissingError("rustberg (in $RUSTBERG or on the PATH)")
    return Path(found)


def version() -> str:
    """Return what it says of its version."""
    done = subprocess.run([rustberg_program(), "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def running_rustberg() -> Iterator[Target]:
    """
    Run it with an empty catalog that goes when the bench ends.

    Raises:
        MissingError: if it is not there.
        RuntimeError: if it does not start.
    """
    program = rustberg_program()
    folder = directory_until_exit()
    (folder / "warehouse").mkdir()
    warehouse = f"file://{folder}/warehouse"
    (port,) = free_ports(1)
    arguments = [str(program), "--dev", "--no-auth", "--insecure-http", "--host", "127.0.0.1", "-p", str(port)]
    arguments += ["-w", warehouse, "--catalog-url", f"file://{folder}/catalog"]
    with (folder / "rustberg.log").open("wb") as log:
        process = subprocess.Popen(arguments, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        target = Target(name=NAME, url=f"http://127.0.0.1:{port}", base=BASE, warehouse=warehouse)
        _wait_for_answer(process, target, folder / "rustberg.log")
        yield target
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_answer(process: subprocess.Popen[bytes], target: Target, log: Path) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline_s:
        try:
            if httpx.get(f"{target.url}{BASE}/config", trust_env=False).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.05)
    raise RuntimeError(f"rustberg did not start: {log.read_text(encoding='utf-8', errors='replace')[-2000:]}")
