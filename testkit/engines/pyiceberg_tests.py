# SPDX-License-Identifier: Apache-2.0
"""
PyIceberg's own integration tests, from its source distribution, against a catalog of ours.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from testkit.engines.served_catalogs import ServedCatalog
from testkit.environment import PROJECT
from testkit.servers.python_packages import python_packages, python_source

TIMEOUT_S: Final = 300
PLUGINS: Final = ("pytest_lazy_fixtures.plugin", "pytest_mock", "testkit.engines.rest_only", "no:cacheprovider")
EXCHANGED: Final = """

@pytest.fixture(scope="session")
def session_catalog() -> Catalog:
    return load_catalog(os.environ["PYICEBERG_TEST_CATALOG"])


@pytest.fixture(autouse=True, scope="session")
def _isolate_pyiceberg_config() -> None:
    pass
"""
"""Takes the place of two fixtures: one names PyIceberg's own image, one hides the file of configuration."""
INSTALLING: Final = """
import sys
import duckdb
for extension in sys.argv[1:]:
    duckdb.execute(f"INSTALL '{extension}'")
"""


def run_pyiceberg_tests(catalog: ServedCatalog, files: Sequence[str]) -> Mapping[str, str]:
    """
    Run tests of these files of `tests/integration`; return the outcome of each by its name.

    An outcome is "passed", "skipped", or the first line of what failed.
    """
    (source,) = python_source("pyiceberg-source").glob("pyiceberg-*")
    with tempfile.TemporaryDirectory(prefix="lp-pyiceberg-") as name:
        folder = Path(name)
        shutil.copytree(source / "tests", folder / "tests")
        with (folder / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
            conftest.write(EXCHANGED)
        (folder / ".pyiceberg.yaml").write_text(catalog.configuration("PyIceberg", "yaml"), encoding="utf-8")
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        packages = [python_packages("pyiceberg-tests"), python_packages("duckdb")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI"))} | {
            "HOME": name,
            "PYICEBERG_HOME": name,
            "PYICEBERG_TEST_CATALOG": catalog.alias,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (folder, *packages, PROJECT))),
        }
        # Some of the tests load DuckDB's extensions, which it would fetch from a host of its own.
        extensions = map(str, python_packages("duckdb").glob("duckdb_extension_*/extensions/*/*.duckdb_extension"))
        subprocess.run([sys.executable, "-c", INSTALLING, *extensions], env=environment, timeout=TIMEOUT_S, check=True)
        plugins = [argument for plugin in PLUGINS for argument in ("-p", plugin)]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-W", "ignore", "--tb=line", "--assert=plain", *plugins),
                *(f"--basetemp={folder / 'temporary'}", f"--junit-xml={folder / 'report.xml'}"),
                *(f"tests/integration/{file}" for file in files),
            ],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode in {0, 1}, done.stdout[-3_000:] + done.stderr[-3_000:]
        report = ET.parse(folder / "report.xml")  # noqa: S314 - pytest's own
    return {_name(case): _outcome(case) for case in report.iter("testcase")}


def _name(case: ET.Element) -> str:
    """Return `test_writes.test_append[1]`: a name without the fixture that stands among the parameters."""
    module = str(case.get("classname")).rpartition(".")[2]
    name = re.sub(r"-?(session|rest_test)_catalog-?", "", str(case.get("name"))).removesuffix("[]")
    return f"{module}.{name}"


def _outcome(case: ET.Element) -> str:
    for kind in ("failure", "error"):
        if (found := case.find(kind)) is not None:
            return (found.get("message") or found.text or kind).strip().partition("\n")[0]
    return "passed" if case.find("skipped") is None else "skipped"
