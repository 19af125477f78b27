# SPDX-License-Identifier: Apache-2.0
"""
What contributors are told is true: commands run, names lead somewhere, versions agree, and types are shipped.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import tomllib
from email.parser import Parser
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

from testkit.environment import PROJECT
from testkit.system.documents import Reader, blocks_of

PAGE: Final = "docs/contributing.md"
PAGES: Final = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", PAGE, "README.md")
NAMED: Final = {
    "ledger.format.events": ("EVENTS",),
    "ledger.format.event": ("CONTROL_FAMILIES", "derived_group_id"),
    "ledger.store.queries": ("load_queries",),
    "gateway.control.plane": ("fold",),
    "gateway.catalogs.registry": ("KINDS",),
    "gateway.catalogs.catalog": ("Catalog", "SwapsPointer", "Forwards"),
    "projections.processing.projection": ("Projection",),
    "lakeproof.projecting": ("PROJECTIONS",),
    "lakeproof.provision": ("PACKAGES",),
    "lakeproof.cli": ("GROUPS",),
    "lakeproof.commands.twins": ("TWINS", "format_twins"),
    "lakeproof.explaining": ("FOR_PEOPLE",),
    "lakeproof.settings": ("Settings",),
}
"""What `docs/contributing.md` names, by the module that it names it in."""


def text_of(page: str) -> str:
    return (PROJECT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [line for _, text in blocks_of(PAGE, "sh") for line in text.splitlines()])
def test_every_command_of_the_page_works(command: str) -> None:
    Reader(folder=PROJECT).call(command)


def test_every_target_that_is_named_is_one_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of("Makefile"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z]+)", text_of(page))}
    assert {"test", "checks", "locks"} <= named <= targets


def test_what_the_page_names_is_in_the_modules_that_it_names() -> None:
    page = text_of(PAGE)
    for module, names in NAMED.items():
        loaded = importlib.import_module(module)
        assert loaded.__file__ is not None
        path = str(Path(loaded.__file__).relative_to(PROJECT))
        assert f"`{path}`" in page or f"`{Path(path).parent}/`" in page, path
        for name in names:
            assert f"`{name}`" in page, name
            assert hasattr(loaded, name), f"{module}.{name}"


def test_every_group_of_commands_that_is_named_exists() -> None:
    from lakeproof.cli import GROUPS, SINGLE

    told = {word for page in PAGES for word in re.findall(r"`lakeproof ([a-z][a-z-]*)", text_of(page))}
    assert told - {"up", "demo"} <= {*GROUPS, *SINGLE}


def test_the_version_is_that_of_the_changelog_and_of_a_tag() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    sections = re.findall(r"^## \[(.+?)\]", text_of("CHANGELOG.md"), re.MULTILINE)
    released = [name for name in sections if name != "Unreleased"]
    assert released[0] == version
    tagged = tags_of_head()
    assert set(tagged) <= {f"v{version}"}
    assert not tagged or sections[0] == version  # a release leaves nothing unreleased


def tags_of_head() -> list[str]:
    """Return the version tags of HEAD; none outside a git repository."""
    command = ["git", "tag", "--list", "v*", "--points-at", "HEAD"]
    try:
        listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return []
    return listed.stdout.split()


APART = ("browsers", "engines", "installations", "upstreams")
"""Packages of tests that are asked for by name."""


def dry_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return what make would run."""
    command = ["make", "--dry-run", "--no-print-directory", *arguments]
    # Without these, which a make that runs the tests hands on, this one is on its own.
    environment = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "PACKAGE"}}
    return subprocess.run(
        command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_one_package_is_checked_and_tested_alone() -> None:
    told = dry_run("test", "PACKAGE=gateway").stdout
    folders = "gateway testkit/gateway tests/gateway"
    for command in ("ruff check", "ruff format --check", "mypy"):
        assert re.search(rf"^\S+{command} {folders}$", told, re.MULTILINE)
    assert re.search("^\\S+lint-imports$", told, re.MULTILINE)
    assert re.search("^\\S+pytest .* tests/gateway$", told, re.MULTILINE)
    assert "compiled_code" not in told
    assert all("compiled_code" in dry_run("test", f"PACKAGE={name}").stdout for name in ("ledger", "spark_detect"))


def test_without_a_package_everything_is_checked_and_tested_but_what_is_asked_for_by_name() -> None:
    told = dry_run("test").stdout
    ignored = " ".join(f"--ignore=tests/{name}" for name in APART)
    tests = f"pytest --processes=[0-9]+ {ignored}"
    for command in ("ruff check [.]", "ruff format --check [.]", "mypy ?", "lint-imports", tests):
        assert re.search(rf"^\S+{command}$", told, re.MULTILINE), command
    assert "compiled_code" in told


def test_what_decides_whether_a_change_lands_runs_what_is_asked_for_by_name_too() -> None:
    apart = {f"make test PACKAGE={name}" for name in APART}
    assert {"make test"} | apart <= set(text_of(".ci/run").splitlines())


def test_a_package_without_tests_is_refused_by_name() -> None:
    refused = dry_run("test", "PACKAGE=gatway")
    assert refused.returncode != 0
    assert "PACKAGE is 'gatway', expected one of:" in refused.stderr
    assert "gateway" in refused.stderr


def test_each_package_that_is_shipped_says_that_it_has_types(tmp_path: Path) -> None:
    packages = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    (wheel,) = WheelBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"])
    with ZipFile(wheel) as files:
        names = set(files.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(files.read(metadata).decode())
    assert {f"{package}/py.typed" for package in packages} <= names
    assert {"ledger/store/sql/migrations/0001_log.sql", "gateway/policy/library/tenant-column.yaml"} <= names
    assert told["Name"] == "lakeproof"
    assert not any(name.startswith(("tests/", "testkit/", "bench/")) for name in names)
