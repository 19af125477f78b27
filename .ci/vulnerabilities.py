# SPDX-License-Identifier: Apache-2.0
"""
Ask the vulnerability databases that pip-audit knows about every package of the lock files that are named.

Ends with 1 if a package is known to be vulnerable, or if an answer cannot be read. Where no database can be reached it
says so and ends with 0: a machine without the network can tell nothing about vulnerabilities, and should not seem to.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

DATABASES: Final = ("pypi", "osv")
TIMEOUT_S: Final = 300

_PIN: Final = re.compile(r"^([a-z0-9][a-z0-9._-]*)==([^\s;]+)", re.MULTILINE)


def main(lock_files: Sequence[str]) -> int:
    """Print what is known of the packages of `lock_files`; return the exit code."""
    pins = {pin for name in lock_files for pin in _PIN.findall(Path(name).read_text("utf-8"))}
    if not pins:
        print("expected lock files with packages, found none")
        return 1
    for database in DATABASES:
        packages = [package for several in one_version_each(pins) for package in ask(database, several)]
        known = [package for package in packages if "skip_reason" not in package]
        if known:
            return report(database, known, unknown=len(packages) - len(known))
    print(
        f"no vulnerability database could be reached ({', '.join(DATABASES)}): nothing is known of {len(pins)} packages"
    )
    return 0


def one_version_each(pins: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Yield lists of (name, version) in which each name stands once: lock files for several Pythons name some twice."""
    waiting = sorted(pins)
    while waiting:
        several = dict(waiting)
        yield sorted(several.items())
        waiting = [(name, version) for name, version in waiting if several[name] != version]


def ask(database: str, pins: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """
    Return what `database` says of each package, as pip-audit lists it; nothing if it cannot be reached.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as requirements:
        requirements.write("".join(f"{name}=={version}\n" for name, version in pins))
        requirements.flush()
        command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", database, "--format", "json"]
        command += ["--disable-pip", "--no-deps", "--progress-spinner", "off", "--requirement", requirements.name]
        try:
            done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return []
    if done.stdout.strip():
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
        return packages
    if re.search(r"connect|HTTPError|resol", done.stderr, re.IGNORECASE):
        return []
    raise SystemExit(f"pip-audit failed, and not for want of a connection:\n{done.stderr}")


def report(database: str, packages: Sequence[dict[str, Any]], *, unknown: int) -> int:
    """Print what was found; return the exit code."""
    found = [(package, vulnerability) for package in packages for vulnerability in package["vulns"]]
    for package, vulnerability in found:
        fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}")
    print(f"{database}: {len(packages)} packages looked up, {unknown} not known there, {len(found)} vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
