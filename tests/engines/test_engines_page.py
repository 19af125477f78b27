# SPDX-License-Identifier: Apache-2.0
"""
docs/engines.md: it shows nothing that no test takes from it, and names the versions that run.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Final

from testkit.engines.page import PAGE, configuration
from testkit.engines.spark_program import AWS, RUNTIME
from testkit.servers.iceberg_go_program import SOURCES as GO
from testkit.servers.iceberg_rust_program import SOURCES as RUST
from testkit.servers.maven import POMS
from testkit.servers.python_packages import PACKAGES
from testkit.servers.trino import trino_version
from testkit.system.documents import path_of

SHOWN: Final = {
    "Spark": "properties",
    "PyIceberg": "yaml",
    "DuckDB": "sql",
    "iceberg-go": "go",
    "iceberg-rust": "rust",
    "Trino": "ini",
}
"""The one block of each engine, which its test takes."""
PROGRAMS: Final = ("iceberg-go", "iceberg-rust")
"""Engines whose programs get address and key as arguments."""


def test_the_page_shows_one_configuration_of_each_engine() -> None:
    text = path_of(PAGE).read_text(encoding="utf-8")
    languages = re.findall(r"^```(\w*)$", text, re.MULTILINE)[::2]
    assert languages == list(SHOWN.values())
    for engine, language in SHOWN.items():
        assert configuration(engine, language)


def test_a_configuration_is_for_another_catalog_with_its_name_address_and_key() -> None:
    for engine, language in SHOWN.items():
        if engine not in PROGRAMS:
            text = configuration(engine, language, url="https://gate.example", alias="far", key="secret")
            assert "https://gate.example" in text
            assert "secret" in text
            assert "far" in text
            assert not re.search(r"\blake\b|\bKEY\b|127\.0\.0\.1", text)


def test_the_versions_of_the_page_are_those_that_run() -> None:
    text = path_of(PAGE).read_text(encoding="utf-8")
    runtime = re.search(r"<artifactId>iceberg-spark-runtime-4.1_2.13</artifactId><version>([\d.]+)<", _pom(RUNTIME))
    aws = re.search(r"<artifactId>iceberg-aws-bundle</artifactId><version>([\d.]+)<", _pom(AWS))
    go = re.search(r"apache/iceberg-go v([\d.]+)", (GO / "go.mod").read_text(encoding="utf-8"))
    crates = re.findall(
        r'^name = "(iceberg|iceberg-catalog-rest)"\nversion = "([\d.]+)"$',
        (RUST / "Cargo.lock").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    pinned = set(re.findall("==([0-9.]+) ", (PACKAGES / "duckdb.txt").read_text(encoding="utf-8")))
    assert runtime is not None
    assert aws is not None
    assert aws[1] == runtime[1]
    assert go is not None
    assert len(pinned) == 1
    assert len(crates) == 2
    assert crates[0][1] == crates[1][1]
    assert f"| Spark | {version('pyspark')} with Iceberg's runtime {runtime[1]} |" in text
    assert f"| PyIceberg | {version('pyiceberg')} |" in text
    assert f"| DuckDB | {pinned.pop()} with" in text
    assert f"| iceberg-go | {go[1]} |" in text
    assert f"| iceberg-rust | {crates[0][1]} |" in text
    assert f"| Trino | {trino_version()} |" in text


def _pom(library: str) -> str:
    return (POMS / f"{library}.xml").read_text(encoding="utf-8")
