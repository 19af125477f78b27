# SPDX-License-Identifier: Apache-2.0
"""Files that are written whole: whatever step fails or never happens, the old contents or the new ones are there."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import pytest

from ledger.files import atomic
from ledger.files.atomic import (
    PRIVATE,
    SHARED,
    Forced,
    Owner,
    RealDisk,
    create_file,
    own_temporary,
    replace_file,
    sync_directory,
)

OLD: Final = b"old contents"
NEW: Final = b"new contents, longer than the old ones"


class Killed(BaseException):
    """The process is gone: nothing after this runs, no clean-up either."""


class FailingDisk(RealDisk):
    """A disk on which one moment of a write never passes; `reached` are those that have."""

    def __init__(self, at: str, error: BaseException) -> None:
        self._at = at
        self._error = error
        self.reached: list[str] = []

    def _reach(self, moment: str) -> None:
        if moment == self._at:
            raise self._error
        self.reached.append(moment)

    def write(self, path: Path, data: bytes, *, mode: int, owner: Owner | None, forced: Forced) -> None:
        self._reach("before the write")
        if self._at == "within the write":
            super().write(path, data[: len(data) // 2], mode=mode, owner=owner, forced=Forced.NOTHING)
        self._reach("within the write")
        super().write(path, data, mode=mode, owner=owner, forced=forced)
        self._reach("after the write")

    def replace(self, path: Path, target: Path) -> None:
        self._reach("before the rename")
        super().replace(path, target)
        self._reach("after the rename")

    def sync_directory(self, path: Path) -> None:
        self._reach("before the directory is forced")
        super().sync_directory(path)
        self._reach("after the directory is forced")


MOMENTS: Final = (
    "before the write",
    "within the write",
    "after the write",
    "before the rename",
    "after the rename",
    "before the directory is forced",
    "after the directory is forced",
)


@pytest.mark.parametrize("old", [OLD, None])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("error", [Killed(), OSError(28, "No space left on device")])
def test_a_write_that_ends_at_any_moment_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, moment: str, error: BaseException, old: bytes | None
) -> None:
    file = tmp_path / "file"
    if old is not None:
        file.write_bytes(old)
    with pytest.raises(type(error)):
        replace_file(file, NEW, disk=FailingDisk(moment, error))
    is_renamed = MOMENTS.index(moment) >= MOMENTS.index("after the rename")
    assert (file.read_bytes() if file.exists() else None) == (NEW if is_renamed else old)
    if isinstance(error, OSError):
        assert {path.name for path in tmp_path.iterdir()} <= {"file"}, "no copy of a secret is left beside it"
    replace_file(file, NEW)
    assert file.read_bytes() == NEW
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "what a killed writer has left is replaced"


@pytest.mark.parametrize("forced", Forced)
def test_as_many_steps_are_forced_as_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forced: Forced
) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, Path.replace

    def forcing(descriptor: int) -> None:
        order.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "contents")
        fsync(descriptor)

    def renaming(path: Path, target: Path) -> Path:
        order.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", forcing)
    monkeypatch.setattr(Path, "replace", renaming)
    replace_file(tmp_path / "file", NEW, forced=forced)
    assert (
        order
        == {
            Forced.NOTHING: ["rename"],
            Forced.CONTENTS: ["contents", "rename"],
            Forced.NAME: ["contents", "rename", "directory"],
        }[forced]
    )


def test_a_file_is_private_unless_another_mode_is_named(tmp_path: Path) -> None:
    umask = os.umask(0o022)
    try:
        replace_file(tmp_path / "private", NEW)
        create_file(tmp_path / "created", NEW)
        replace_file(tmp_path / "shared", NEW, mode=SHARED)
    finally:
        os.umask(umask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"private": PRIVATE, "created": PRIVATE, "shared": 0o644}


def test_the_new_file_does_not_take_the_mode_of_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(OLD)
    file.chmod(0o644)
    replace_file(file, NEW)
    assert stat.S_IMODE(file.stat().st_mode) == PRIVATE


def test_writers_with_a_temporary_file_each_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    names = []
    for pid in (7, 8):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        names.append(own_temporary(file).name)
    assert names == ["file.7.new", "file.8.new"]


def test_a_file_that_is_there_is_never_created_again(tmp_path: Path) -> None:
    file = tmp_path / "file"
    create_file(file, OLD)
    with pytest.raises(FileExistsError):
        create_file(file, NEW)
    assert file.read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("step", ["link", "sync"])
def test_a_creation_that_fails_at_any_step_leaves_no_file_or_the_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    file = tmp_path / "file"
    with monkeypatch.context() as patched:
        patched.setattr(*((os, "link") if step == "link" else (atomic, "sync_directory")), fail)
        with pytest.raises(OSError, match="Input/output error"):
            create_file(file, NEW)
    assert (file.read_bytes() if file.exists() else None) == (None if step == "link" else NEW)
    assert {path.name for path in tmp_path.iterdir()} <= {"file"}


def test_a_directory_that_is_none_cannot_be_forced(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        sync_directory(tmp_path / "none")
