# SPDX-License-Identifier: Apache-2.0
"""
The jars of real servers: those of a pom in `poms/`, fetched once with Maven into the cache, used offline afterwards.

A folder of the cache is named after the pom's bytes and appears whole, by a rename: two processes may fetch at once.
Which registry they come from is the machine's own Maven configuration.
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

POMS: Final = Path(__file__).parent / "poms"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
FETCH_TIMEOUT_S: Final = 600


def jars(name: str) -> Path:
    """Return the folder with the jars of `poms/<name>.xml`, fetching them the first time."""
    pom = (POMS / f"{name}.xml").read_bytes()
    try:
        servers = load_settings(os.environ, directory=PROJECT).cache.absolute() / "servers"
    except LakeproofError as error:
        missing(str(error))
    target = servers / f"{name}-{hashlib.sha256(pom).hexdigest()[:16]}"
    servers.mkdir(parents=True, exist_ok=True)
    with exclusive(servers / f"{name}.lock", timeout_s=FETCH_TIMEOUT_S):
        if not target.is_dir():
            _fetch(pom, target)
    return target


def _fetch(pom: bytes, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        missing(f"{target} is not here, and without Maven (mvn) it cannot be fetched")
    fresh = target.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    work = fresh / "work"
    work.mkdir(parents=True)
    (work / "pom.xml").write_bytes(pom)
    command = [maven, "-B", "-q", COPY, "-DincludeScope=runtime", f"-DoutputDirectory={fresh / 'jars'}"]
    done = subprocess.run(
        command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_TIMEOUT_S, check=False
    )
    if done.returncode:
        missing(f"Maven could not fetch {target.name}: {done.stdout.decode(errors='replace')[-1_000:]}")
    (fresh / "jars").rename(target)
    shutil.rmtree(fresh)
