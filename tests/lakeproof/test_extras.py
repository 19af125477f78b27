# SPDX-License-Identifier: Apache-2.0
"""
What is installed for whom: the extras, the lock files, and what a command says where a package is missing.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from lakeproof import cli, explaining, extras
from lakeproof.crash import CrashFile
from testkit.environment import PROJECT

LOCKS: Final = PROJECT / "requirements"
EXAMPLE: Final = PROJECT / "docs" / "example-log"
OURS: Final = ("ledger", "projections", "gateway", "streams", "spark_detect", "lakeproof", "verify_lakeproof")
TIMEOUT_S: Final = 60

ONLY: Final = """
import sys
from importlib.abc import MetaPathFinder

allowed, arguments = {*sys.argv[1].split(","), *sys.stdlib_module_names}, sys.argv[2:]

class NotInstalled(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        package = name.partition(".")[0]
        if package not in allowed and not package.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

sys.meta_path.insert(0, NotInstalled())

from lakeproof.cli import run

sys.exit(run(arguments))
"""
"""Runs the command as if nothing but the named packages were installed."""


def normal(name: str) -> str:
    """Return a distribution's name as lock files spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(name: str) -> set[str]:
    """Return the distributions of a lock file."""
    return set(re.findall(r"^([a-z0-9.-]+)==", (LOCKS / f"{name}.lock").read_text("utf-8"), re.MULTILINE))


def modules_of(distributions: set[str]) -> set[str]:
    """Return the top-level modules that distributions bring."""
    owners = packages_distributions()
    return {module for module, names in owners.items() if {normal(name) for name in names} & distributions}


def run_with(distributions: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command where only these distributions are installed."""
    allowed = ",".join([*modules_of(distributions), *OURS])
    command = [sys.executable, "-c", ONLY, allowed, *arguments]
    return subprocess.run(command, capture_output=True, check=False, cwd=PROJECT, text=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    return table


@pytest.fixture(scope="module")
def vulnerabilities() -> ModuleType:
    """The script behind `make vulnerabilities`."""
    spec = importlib.util.spec_from_file_location("vulnerabilities", PROJECT / ".ci" / "vulnerabilities.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_extras_is_that_of_the_project(project: dict[str, Any]) -> None:
    # What is not there on every platform (behind `;`) can be done without: nobody is told that it is missing.
    declared = {
        extra: {normal(re.split(r"[\[<>=]", one)[0]) for one in packages if not re.search("^lakeproof\\[|;", one)}
        for extra, packages in project["optional-dependencies"].items()
    }
    owners = packages_distributions()
    told = {
        extra: {normal(name) for module in modules for name in owners[module]}
        for extra, modules in extras.MODULES.items()
    }
    # Many distributions share the module `opentelemetry`.
    told["traces"] &= declared["traces"]

    assert told == declared


def test_an_auditor_installs_neither_spark_nor_llvm_nor_a_web_of_engines() -> None:
    heavy = {"pyspark", "py4j", "llvmlite", "numba", "numpy", "pandas", "pyarrow", "pyiceberg", "botocore", "moto"}

    assert not locked("audit") & heavy
    assert len(locked("audit")) < 40


def test_the_production_lock_holds_nothing_of_the_demo() -> None:
    assert locked("demo") - locked("production") >= {"moto", "werkzeug", "flask", "cfn-lint", "docker"}
    assert not locked("production") & {"moto", "werkzeug", "flask", "cfn-lint", "docker", "openapi-spec-validator"}
    assert locked("production") < locked("demo") < locked("dev")


def test_every_package_of_the_production_lock_is_pinned_alike_everywhere() -> None:
    def pins(name: str) -> set[tuple[str, str]]:
        text = (LOCKS / f"{name}.lock").read_text("utf-8")
        return set(re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", text, re.MULTILINE))

    assert pins("audit") <= pins("production") <= pins("demo") <= pins("dev")


def test_every_locked_package_has_hashes() -> None:
    for lock in LOCKS.glob("*.lock"):
        for entry in re.split(r"\n(?=[a-z])", lock.read_text("utf-8").strip()):
            assert "--hash=sha256:" in entry, f"{lock.name}: {entry[:60]}"


def test_an_auditor_verifies_without_any_extra() -> None:
    key = (EXAMPLE / "vkey").read_text("ascii").strip()

    done = run_with(locked("audit") - {"starlette", "uvicorn"}, "ledger", "verify", str(EXAMPLE), "--key", key)

    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "OK"), done.stderr


def test_a_witness_runs_with_the_packages_of_the_audit_lock_alone() -> None:
    done = run_with(locked("audit"), "ledger", "witness", "--help")

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", [["up"], ["policies", "list", "--tenant", "acme"], ["streams", "status"]])
def test_a_command_whose_packages_are_missing_says_what_to_install(arguments: list[str]) -> None:
    done = run_with(locked("audit"), *arguments)

    assert done.returncode == explaining.NOT_INSTALLED
    assert re.fullmatch(
        r"lakeproof: this needs the package \w+, which is not installed: pip install 'lakeproof\[gateway\]'\n",
        done.stderr,
    )


def test_a_missing_module_of_our_own_is_a_fault_and_no_missing_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crash_file = CrashFile(lambda: tmp_path, began=datetime.now(UTC), pid=1)

    code = cli.explain_error(ModuleNotFoundError("No module named 'ledger.nowhere'", name="ledger.nowhere"), crash_file)

    assert code == explaining.BROKEN_DOWN
    assert "pip install" not in capsys.readouterr().err


def test_a_package_of_an_extra_that_is_there_is_not_missed() -> None:
    assert extras.missing_of("gateway") is None


def test_a_known_vulnerability_fails_the_job(vulnerabilities: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    hole = {"id": "CVE-2024-0001", "fix_versions": ["2.0"], "description": ""}
    packages = [
        {"name": "holed", "version": "1.0", "vulns": [hole]},
        {"name": "whole", "version": "1.0", "vulns": []},
    ]

    assert vulnerabilities.report("pypi", packages, unknown=0) == 1
    assert "holed 1.0: CVE-2024-0001, fixed in 2.0" in capsys.readouterr().out
    assert vulnerabilities.report("pypi", packages[1:], unknown=0) == 0


@pytest.mark.parametrize(
    ("answered", "code"),
    [
        ([{"name": "a", "skip_reason": "not found"}], 0),
        ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}], 0),
        ([{"name": "a", "version": "1", "vulns": [{"id": "X", "fix_versions": []}]}], 1),
    ],
)
def test_a_database_that_knows_no_package_has_not_answered(
    vulnerabilities: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answered: list[dict[str, Any]],
    code: int,
) -> None:
    def run(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, json.dumps({"dependencies": answered}), "")

    monkeypatch.setattr(subprocess, "run", run)

    assert vulnerabilities.main([str(LOCKS / "audit.lock")]) == code
    said = capsys.readouterr().out
    assert ("could be reached" in said) == all("skip_reason" in package for package in answered)


def test_each_version_of_a_package_is_asked_for(vulnerabilities: ModuleType) -> None:
    pins = {("numpy", "2.4"), ("numpy", "2.5"), ("six", "1.17")}

    rounds = list(vulnerabilities.one_version_each(pins))

    assert sorted(pin for several in rounds for pin in several) == sorted(pins)
    assert all(len(dict(several)) == len(several) for several in rounds)
