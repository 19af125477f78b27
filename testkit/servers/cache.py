# SPDX-License-Identifier: Apache-2.0
"""
What tests fetch or build once a machine: files and folders of the cache, named after the bytes that they are made of.

Each appears whole, by a rename, and one process makes it while others that need it wait.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from lakeproof.errors import LakeproofError
from lakeproof.postgres.file_lock import exclusive
from lakeproof.settings import load_settings
from testkit.environment import PROJECT, missing


def cached(name: str, content: Iterable[bytes], make: Callable[[Path], Path], *, timeout_s: float) -> Path:
    """
    Return the file or folder `name` that is made of `content`, making it the first time.

    `make` gets an empty folder and returns what is to be kept: the folder, or something in it. It ends the test with
    `missing` if it cannot make it.

    Raises:
        TimeoutError: if another process still makes it after `timeout_s` seconds.
    """
    digest = hashlib.sha256(b"\0".join(content)).hexdigest()
    try:
        servers = load_settings(os.environ, directory=PROJECT).cache.absolute() / "servers"
    except LakeproofError as error:
        missing(str(error))
    target = servers / f"{name}-{digest[:16]}"
    servers.mkdir(parents=True, exist_ok=True)
    with exclusive(servers / f"{name}.lock", timeout_s=timeout_s):
        if not target.exists():
            fresh = target.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            make(fresh).rename(target)
            shutil.rmtree(fresh, ignore_errors=True)  # gone already if it was kept as a whole
    return target
