# SPDX-License-Identifier: Apache-2.0
"""
Programs in Rust are built once, from their sources alone; what keeps one from being built is said.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from testkit.environment import missing
from testkit.servers import cargo_program as under_test
from testkit.servers.cargo_program import cargo_program

MANIFEST = '[package]\nname = "tiny"\nversion = "0.0.0"\nedition = "2024"\n'
LOCK = 'version = 4\n\n[[package]]\nname = "tiny"\nversion = "0.0.0"\n'
ANSWER = 'fn main() {\n    println!("42");\n}\n'


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program without dependencies, and a cache of the test's own."""
    monkeypatch.setenv("LAKEPROOF_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "tiny"
    (folder / "src").mkdir(parents=True)
    for name, text in {"Cargo.toml": MANIFEST, "Cargo.lock": LOCK, "src/main.rs": ANSWER}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_program_is_built_once_and_nothing_is_left_beside_its_sources(
    sources: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program = cargo_program(sources)
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "42\n"
    assert "building tiny with cargo, once on this machine" in capfd.readouterr().err
    assert cargo_program(sources) == program
    assert capfd.readouterr().err == ""
    assert {path.name for path in sources.iterdir()} == {"Cargo.toml", "Cargo.lock", "src"}


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("src/main.rs", "fn main() { nothing }\n", "cannot find value `nothing`"),
        ("Cargo.toml", MANIFEST.replace("0.0.0", "0.0.1"), "--locked was passed"),
        ("Cargo.toml", MANIFEST + 'rust-version = "1.9999"\n', "requires rustc 1.9999"),
    ],
    ids=["wrong source", "another lock file", "Rust too old"],
)
def test_what_cannot_be_built_fails_in_ci_with_the_reason_that_cargo_gives(
    sources: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, reason: str
) -> None:
    if shutil.which("cargo") is None:
        missing("cargo is not here")
    monkeypatch.setenv("CI", "true")
    (sources / file).write_text(text, encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match=reason):
        cargo_program(sources)


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_without_cargo_tests_fail_in_ci_and_skip_elsewhere(
    sources: Path, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(sources))
    with pytest.raises(outcome, match=r"without Rust \(cargo\)"):
        cargo_program(sources)


def test_a_build_that_takes_too_long_is_ended(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("cargo") is None:
        missing("cargo is not here")
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(under_test, "BUILD_TIMEOUT_S", 0.001)
    with pytest.raises(pytest.fail.Exception, match=r"cargo did not build tiny within 0\.001 seconds"):
        cargo_program(sources)
