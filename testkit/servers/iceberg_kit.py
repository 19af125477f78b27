# SPDX-License-Identifier: Apache-2.0
"""
Apache Iceberg's tests for servers of its REST protocol (its REST Compatibility Kit), against a server of ours.
"""

from __future__ import annotations

import subprocess
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from testkit.servers.java import find_java
from testkit.servers.maven import jars

TABLES: Final = "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests"
VIEWS: Final = "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests"
RUNNER: Final = "org.junit.platform.console.ConsoleLauncher"
KEEP_FOLDERS: Final = "junit.jupiter.tempdir.cleanup.mode.default=never"
OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
TIMEOUT_S: Final = 300


def run_kit(of: str, *, url: str, warehouse: str, key: str, folder: Path | None = None) -> Mapping[str, str]:
    """
    Run one class of tests against a catalog, which must be empty; return the outcome of each test by its name.

    Some tests name locations in a temporary folder, which is in `folder`. The kit drops what is there only before its
    next test, so those folders stay until the end: what cannot be read any more is not dropped by a gateway.

    An outcome is "passed", "skipped", or the first line of what failed.
    """
    properties = {
        "rck.local": "false",
        "rck.requires-namespace-create": "true",
        "rck.supports-serverside-retry": "true",
        "rck.supports-names-with-dot": "true",
        "uri": url,
        "warehouse": warehouse,
        "token": key,
    }
    with tempfile.TemporaryDirectory(prefix="lp-kit-", dir=folder) as name:
        done = subprocess.run(
            [
                *(find_java(), *OPTIONS, f"-Djava.io.tmpdir={name}"),
                *(f"-D{property_}={value}" for property_, value in properties.items()),
                *("-cp", f"{jars('iceberg-kit')}/*", RUNNER, "execute", "--select-class", of),
                *("--include-classname", ".*", "--details=none", "--disable-banner", "--reports-dir", name),
                *("--config", KEEP_FOLDERS),
            ],
            cwd=name,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        reports = [ET.parse(path) for path in sorted(Path(name).glob("TEST-*.xml"))]  # noqa: S314 - JUnit's own
    outcomes = {str(case.get("name")): _outcome(case) for report in reports for case in report.iter("testcase")}
    assert outcomes, done.stdout[-2_000:] + done.stderr[-2_000:]
    return outcomes


def _outcome(case: ET.Element) -> str:
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            return (found.get("message") or found.text or kind).strip().partition("\n")[0]
    return "passed" if case.find("skipped") is None else "skipped"
