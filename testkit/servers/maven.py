# SPDX-License-Identifier: Apache-2.0
"""
The jars of real servers: those of a pom in `poms/`, fetched once with Maven into the cache, used offline afterwards.

Which registry they come from is the machine's own Maven configuration.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from testkit.environment import missing
from testkit.servers.cache import cached

POMS: Final = Path(__file__).parent / "poms"
COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
FETCH_TIMEOUT_S: Final = 600


def jars(name: str) -> Path:
    """Return the folder with the jars of `poms/<name>.xml`, fetching them the first time."""
    pom = (POMS / f"{name}.xml").read_bytes()
    return cached(name, [pom], partial(_fetched, name, pom), timeout_s=FETCH_TIMEOUT_S)


def _fetched(name: str, pom: bytes, fresh: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        missing(f"the jars of {name} are not here, and cannot be fetched without Maven (mvn)")
    work = fresh / "work"
    work.mkdir()
    (work / "pom.xml").write_bytes(pom)
    command = [maven, "-B", "-q", COPY, "-DincludeScope=runtime", f"-DoutputDirectory={fresh / 'jars'}"]
    done = subprocess.run(
        command, cwd=work, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=FETCH_TIMEOUT_S, check=False
    )
    if done.returncode:
        missing(f"Maven could not fetch the jars of {name}: {done.stdout.decode(errors='replace')[-1_000:]}")
    return fresh / "jars"
