# SPDX-License-Identifier: Apache-2.0
"""
Which Java Spark is started with, on machines that have another one as well, or none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_detect.driver.java import find_java, java_version
from spark_detect.errors import JavaError


def install(home: Path, version: str) -> Path:
    """Make a Java that says it is of that version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return home


def test_the_version_is_what_java_says(tmp_path: Path) -> None:
    assert java_version(install(tmp_path / "a", "17.0.15")) == 17
    assert java_version(install(tmp_path / "b", "1.8.0_402")) == 8
    assert java_version(install(tmp_path / "c", "25")) == 25
    assert java_version(tmp_path / "none") is None


def test_java_home_then_the_path_then_the_usual_folders(tmp_path: Path) -> None:
    named, on_path = install(tmp_path / "named", "17.0.1"), install(tmp_path / "path", "17.0.2")
    usual = install(tmp_path / "usr/lib/jvm/java-17", "17.0.3")
    both = {"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}
    assert find_java(None, both, root=tmp_path) == named
    assert find_java(None, {"PATH": str(on_path / "bin")}, root=tmp_path) == on_path
    assert find_java(None, {"PATH": "/nowhere"}, root=tmp_path) == usual


def test_another_version_is_passed_over(tmp_path: Path) -> None:
    newer = install(tmp_path / "newer", "25.0.1")
    usual = install(tmp_path / "usr/lib/jvm/java-17", "17.0.3")
    environment = {"JAVA_HOME": str(newer), "PATH": str(newer / "bin")}
    assert find_java(None, environment, root=tmp_path) == usual


def test_the_chosen_one_is_taken_or_refused_and_no_other(tmp_path: Path) -> None:
    chosen, newer = install(tmp_path / "chosen", "17.0.1"), install(tmp_path / "newer", "25.0.1")
    assert find_java(chosen, {"JAVA_HOME": str(newer)}, root=tmp_path) == chosen
    with pytest.raises(JavaError, match="expected the home of a Java 17, found Java 25"):
        find_java(newer, {"JAVA_HOME": str(chosen)}, root=tmp_path)
    with pytest.raises(JavaError, match="expected the home of a Java 17, found no Java"):
        find_java(tmp_path / "none", {"JAVA_HOME": str(chosen)}, root=tmp_path)


def test_without_a_java_17_one_sentence_says_what_was_found(tmp_path: Path) -> None:
    newer = install(tmp_path / "newer", "25.0.1")
    with pytest.raises(JavaError, match=r"^Spark needs a Java 17, found Java 25 in .*newer: install openjdk-17-jre"):
        find_java(None, {"JAVA_HOME": str(newer), "PATH": "/nowhere"}, root=tmp_path)
    with pytest.raises(JavaError, match=r"^Spark needs a Java 17, found none: install"):
        find_java(None, {"PATH": "/nowhere"}, root=tmp_path)
