# SPDX-License-Identifier: Apache-2.0
"""
The cache of what tests fetch or build: each thing is made once, by one process, and is there as a whole or not at all.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from testkit.servers.cache import cached


class Maker:
    """Makes a file in a folder, and counts how often."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self, fresh: Path) -> Path:
        self.made += 1
        (fresh / "program").write_bytes(b"made")
        (fresh / "rest").write_bytes(b"not kept")
        return fresh / "program"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of one test."""
    monkeypatch.setenv("LAKEPROOF_CACHE", str(tmp_path))
    return tmp_path / "servers"


def test_what_is_made_once_is_found_again_and_only_what_is_kept_stays(folder: Path) -> None:
    maker = Maker()
    first, second = (cached("one", [b"source"], maker, timeout_s=1) for _ in range(2))
    assert first == second
    assert first.read_bytes() == b"made"
    assert maker.made == 1
    assert {path.name for path in folder.iterdir()} == {first.name, "one.lock"}


def test_a_whole_folder_is_kept() -> None:
    def make(fresh: Path) -> Path:
        (fresh / "packages").mkdir()
        return fresh

    assert (cached("whole", [b"source"], make, timeout_s=1) / "packages").is_dir()


def test_other_sources_make_another() -> None:
    maker = Maker()
    made = {cached("one", content, maker, timeout_s=1) for content in ([b"a", b"b"], [b"ab"], [b"a", b"c"])}
    assert len(made) == maker.made == 3


def test_what_could_not_be_made_is_not_there_and_is_made_the_next_time(folder: Path) -> None:
    def fail(fresh: Path) -> Path:
        (fresh / "half").write_bytes(b"half")
        pytest.fail("no compiler")

    with pytest.raises(pytest.fail.Exception, match="no compiler"):
        cached("one", [b"source"], fail, timeout_s=1)
    made = cached("one", [b"source"], Maker(), timeout_s=1)
    assert made.read_bytes() == b"made"
    assert {path.name for path in folder.iterdir()} == {made.name, "one.lock"}


def test_one_makes_it_while_others_wait() -> None:
    maker, both = Maker(), threading.Barrier(2)

    def ask() -> Path:
        both.wait()
        return cached("one", [b"source"], maker, timeout_s=10)

    with ThreadPoolExecutor(2) as threads:
        first, second = (future.result() for future in [threads.submit(ask) for _ in range(2)])
    assert first == second
    assert maker.made == 1
