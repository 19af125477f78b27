"""
What contributors are told is true: commands run, names lead somewhere, versions agree, and types are shipped.
"""

from __future__ import annotations

import importlib
import re
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
    "gateway.catalogs": ("KINDS",),
    "gateway.catalogs.catalog": ("Catalog", "SwapsPointer", "Forwards"),
    "projections.processing.projection": ("Projection",),
    "lakeproof.projecting": ("PROJECTIONS",),
    "lakeproof.provision": ("PACKAGES",),
    "lakeproof.cli": ("GROUPS", "FOR_PEOPLE"),
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
    from lakeproof.cli import GROUPS

    told = {word for page in PAGES for word in re.findall(r"`lakeproof ([a-z-]+)", text_of(page))}
    assert told - {"up", "demo"} <= set(GROUPS)


def test_the_changelog_speaks_of_the_version_that_is_made() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    changelog = text_of("CHANGELOG.md")
    headings = re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)
    assert headings[0] == "Unreleased"
    newest = changelog.partition("## [Unreleased]")[2]
    assert f"version {version}" in newest or f"## [{version}]" in newest


def test_each_package_that_is_shipped_says_that_it_has_types(tmp_path: Path) -> None:
    packages = tomllib.loads(text_of("pyproject.toml"))["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    (wheel,) = WheelBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"])
    with ZipFile(wheel) as files:
        names = set(files.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        told = Parser().parsestr(files.read(metadata).decode())
    assert {f"{package}/py.typed" for package in packages} <= names
    assert "ledger/store/sql/migrations/0001_log.sql" in names
    assert told["Name"] == "lakeproof"
    assert not any(name.startswith(("tests/", "testkit/", "bench/")) for name in names)
