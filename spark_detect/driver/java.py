# SPDX-License-Identifier: Apache-2.0
"""
Finds the Java that Spark 4.1 runs on: version 17, which need not be the one that `java` means on this machine.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from spark_detect.errors import JavaError

VERSION: Final = 17
VERSION_TIMEOUT_S: Final = 30.0
FOLDERS: Final = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/opt/homebrew/opt/openjdk@17",
    "/usr/local/opt/openjdk@17",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)
"""Where distributions put Java."""

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def find_java(chosen: Path | None, environment: Mapping[str, str], *, root: Path = Path("/")) -> Path:
    """
    Return the home of a Java 17: `chosen`, else JAVA_HOME, else the one on the path, else one in the usual folders.

    `chosen` is the setting: if it is given, no other is looked for.

    Raises:
        JavaError: if there is none; the message says which were found.
    """
    if chosen is not None:
        version = java_version(chosen)
        if version == VERSION:
            return chosen
        found = "no Java" if version is None else f"Java {version}"
        raise JavaError(f"LAKEPROOF_JAVA_HOME is {chosen}: expected the home of a Java {VERSION}, found {found}")
    others: dict[str, int] = {}
    for home in dict.fromkeys(java_homes(environment, root)):
        version = java_version(home)
        if version == VERSION:
            return home
        if version is not None:
            others[str(home)] = version
    found = ", ".join(f"Java {version} in {home}" for home, version in others.items()) or "none"
    raise JavaError(
        f"Spark needs a Java {VERSION}, found {found}: install openjdk-{VERSION}-jre-headless, or set "
        "LAKEPROOF_JAVA_HOME to where one is"
    )


def java_version(home: Path) -> int | None:
    """
    Return the version of the Java in `home`; None if there is none that runs.
    """
    try:
        done = subprocess.run(  # noqa: S603 - what the user named, or what a distribution has installed
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if match and done.returncode == 0 else None


def java_homes(environment: Mapping[str, str], root: Path = Path("/")) -> Iterator[Path]:
    """
    Yield where a Java may be: JAVA_HOME, the one on the path, the usual folders.
    """
    if home := environment.get("JAVA_HOME"):
        yield Path(home)
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield Path(program).resolve().parent.parent
    for pattern in FOLDERS:
        yield from sorted(home.resolve() for home in root.glob(pattern.lstrip("/")))


def main() -> int:
    """Say in which home there is a Java 17; return the exit code, 1 if there is none."""
    chosen = os.environ.get("LAKEPROOF_JAVA_HOME")
    try:
        home = find_java(Path(chosen) if chosen else None, os.environ)
    except JavaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Java {VERSION} in {home}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
