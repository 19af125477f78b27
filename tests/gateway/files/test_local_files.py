# SPDX-License-Identifier: Apache-2.0
"""
Files on a local disk: durable with their folders once they are written, whatever fails in between.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Semaphore
from typing import Any

import pytest

from gateway.files import local_files
from gateway.files.durable_folders import DurableFolders, LinkLeadsOutError
from gateway.files.local_files import LocalFiles
from gateway.files.writing import LARGE_BYTES, NewFile

DATA = b'{"format-version":2}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that all files have to be in."""
    (tmp_path / "warehouse").mkdir()
    return tmp_path / "warehouse"


def new(path: Path, data: bytes = DATA, *, within: Path | None = None) -> NewFile:
    root = next(one for one in path.parents if one.name == "warehouse")
    return NewFile(folder=path.parent, name=path.name, data=data, within=within or root)


async def write(files: LocalFiles, *wanted: NewFile) -> list[BaseException | None]:
    """Write files that arrive at once; return for each the error, or None."""
    return await asyncio.gather(*(files.write(one) for one in wanted), return_exceptions=True)


def name_of(descriptor: int) -> str:
    return Path(f"/proc/self/fd/{descriptor}").readlink().name


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[str], object]) -> Iterator[None]:
    """Call `act` with the name of the file or folder before each call of `os.<name>`, which takes a descriptor."""
    real = getattr(os, name)

    def watching(descriptor: int, *arguments: Any) -> Any:
        act(name_of(descriptor))
        return real(descriptor, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, name, watching)
        yield


@contextmanager
def synced(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the names of what is synced, in the order in which that begins."""
    names: list[str] = []
    with watched(monkeypatch, "fsync", names.append), watched(monkeypatch, "fdatasync", names.append):
        yield names


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, name: str, of: str) -> Iterator[None]:
    """Let `os.<name>` fail for the file or folder of that name: the disk is full."""

    def fail(found: str) -> None:
        if found == of:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with watched(monkeypatch, name, fail):
        yield


# Durable


async def test_every_folder_that_is_new_is_made_durable_with_the_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, folder = LocalFiles(), root / "tenant" / "lake" / "t" / "metadata"
    with synced(monkeypatch) as names:
        assert await write(files, new(folder / "0.json")) == [None]
        assert set(names) == {"0.json", "metadata", "t", "lake", "tenant", "warehouse", root.parent.name}
        names.clear()
        assert await write(files, new(folder / "1.json")) == [None]
        assert set(names) == {"1.json", "metadata"}


async def test_folders_above_the_warehouse_that_are_new_are_made_durable_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "a" / "b" / "warehouse"
    with synced(monkeypatch) as names:
        assert await write(LocalFiles(), new(root / "0.json")) == [None]
    assert set(names) == {"0.json", "warehouse", "a", "b", tmp_path.name}


async def test_a_folder_that_another_process_made_is_not_taken_for_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, folder = LocalFiles(), root / "t" / "metadata"
    folder.mkdir(parents=True)
    with synced(monkeypatch) as names:
        await write(files, new(folder / "0.json"))
        assert set(names) == {"0.json", "metadata", "t", "warehouse", root.parent.name}
        (folder / "0.json").unlink()
        folder.rmdir()
        (root / "another").mkdir()  # so that the next one is not given the same number
        folder.mkdir()
        names.clear()
        await write(files, new(folder / "1.json"))
        assert {"metadata", "t"} < set(names), "another folder of the same name"


async def test_a_folder_whose_sync_failed_is_synced_with_the_next_file(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, folder = LocalFiles(), root / "t" / "metadata"
    with failing(monkeypatch, "fsync", of="t"):
        (error,) = await write(files, new(folder / "0.json"))
    assert isinstance(error, OSError)
    assert list(folder.iterdir()) == []
    with synced(monkeypatch) as names:
        assert await write(files, new(folder / "1.json")) == [None]
    assert {"metadata", "t", "warehouse"} <= set(names)


def test_a_folder_below_one_that_is_not_durable_yet_is_not_durable(tmp_path: Path) -> None:
    """Two threads make folders below the same new one, and the first has not synced yet."""
    durable, top = DurableFolders(), tmp_path / "tenant"
    inode = (1, 1)
    durable.make(top / "a")
    assert durable.unsure(top / "a", inode, root=top / "a") == [top / "a", top]
    durable.make(top / "b")
    unsure = durable.unsure(top / "b", inode, root=top / "b")
    assert unsure == [top / "b", top]
    durable.add(top / "b", inode, unsure=unsure)
    assert durable.unsure(top / "b", inode, root=top / "b") == []
    assert durable.unsure(top / "b", (1, 2), root=top / "b") == [top / "b"], "another one"
    assert durable.unsure(top / "a", inode, root=top / "a") == [top / "a"]


def test_no_more_folders_are_remembered_than_the_limit(tmp_path: Path) -> None:
    durable = DurableFolders(folders_max=2)
    for name in ("a", "b", "c"):
        durable.add(tmp_path / name, (1, 1), unsure=())
    found = [durable.unsure(tmp_path / name, (1, 1), root=tmp_path / name) for name in ("a", "b", "c")]
    assert found == [[tmp_path / "a"], [], []]


def test_no_more_folders_are_kept_open_than_the_limit(tmp_path: Path) -> None:
    durable = DurableFolders(open_max=2)
    descriptors = []
    for name in ("a", "b", "c"):
        folder = durable.open(str(tmp_path / name), within=tmp_path)
        durable.keep(folder, str(tmp_path / name), within=tmp_path)
        descriptors.append(folder.descriptor)
        del folder
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptors[0])
    again = [durable.open(str(tmp_path / name), within=tmp_path).descriptor for name in ("b", "c")]
    assert again == descriptors[1:]


async def test_a_folder_that_was_made_again_is_looked_at_anew(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, folder = LocalFiles(), root / "t" / "metadata"
    assert await write(files, new(folder / "0.json")) == [None]
    folder.rename(root / "t" / "before")
    with synced(monkeypatch) as names:
        assert await write(files, new(folder / "1.json")) == [None]
    assert {"1.json", "metadata", "t"} <= set(names)
    assert [one.name for one in folder.iterdir()] == ["1.json"]
    assert [one.name for one in (root / "t" / "before").iterdir()] == ["0.json"]


# Together


async def test_files_that_wait_are_synced_together_and_each_folder_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, held, done = LocalFiles(), Semaphore(0), Event()
    paths = [root / table / f"{number}.json" for table in ("t", "u") for number in range(20)]

    def hold(name: str) -> None:
        if name == "held":
            held.release()
            assert done.wait(30)

    with watched(monkeypatch, "fdatasync", hold):
        at_work = []
        for number in range(local_files.BATCHES_MAX):
            at_work.append(asyncio.create_task(write(files, new(root / str(number) / "held"))))
            await asyncio.to_thread(held.acquire)
        with synced(monkeypatch) as names:
            waiting = asyncio.create_task(write(files, *map(new, paths)))
            await asyncio.sleep(0)
            done.set()
            assert await waiting == [None] * len(paths)
        assert await asyncio.gather(*at_work) == [[None]] * len(at_work)
    wanted = [*(path.name for path in paths), "t", "u"]
    assert sorted(name for name in names if name in wanted) == sorted(wanted)


async def test_where_a_folder_takes_long_another_thread_joins(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "THREADS_FIRST", 1)
    monkeypatch.setattr(local_files, "SLOW_S", -1)
    both = Barrier(2)

    def meet(name: str) -> None:
        if name != "0.json":
            both.wait(30)

    with watched(monkeypatch, "fdatasync", meet):
        paths = [root / str(number) / f"{number}.json" for number in range(3)]
        assert await write(LocalFiles(), *map(new, paths)) == [None] * 3


async def test_a_large_file_does_not_hold_up_a_small_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, done = LocalFiles(), Event()

    def hold(name: str) -> None:
        if name.startswith("large"):
            assert done.wait(30)

    with watched(monkeypatch, "write", hold):
        large = asyncio.create_task(write(files, new(root / "large.json", bytes(LARGE_BYTES))))
        await asyncio.sleep(0)
        assert await write(files, new(root / "small.json")) == [None]
        assert not large.done()
        done.set()
        assert await large == [None]
    assert (root / "large.json").stat().st_size == LARGE_BYTES


# Faults


@pytest.mark.parametrize("step", ["write", "fdatasync"])
async def test_a_file_that_cannot_be_written_is_removed_and_the_others_are_durable(
    root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    folder = root / "t"
    with failing(monkeypatch, step, of="1.json"):
        errors = await write(LocalFiles(), *(new(folder / f"{number}.json") for number in range(3)))
    assert [isinstance(error, OSError) for error in errors] == [False, True, False]
    assert sorted(path.name for path in folder.iterdir()) == ["0.json", "2.json"]
    assert (folder / "2.json").read_bytes() == DATA


async def test_a_file_is_written_whole_by_a_system_that_takes_it_in_parts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    assert await write(LocalFiles(), new(root / "0.json")) == [None]
    assert (root / "0.json").read_bytes() == DATA


async def test_a_disk_that_fills_up_within_a_file_leaves_no_part_of_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, taken = os.write, list[int]()

    def write_some(descriptor: int, data: bytes) -> int:
        if taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken.append(real(descriptor, data[:7]))
        return taken[0]

    monkeypatch.setattr(os, "write", write_some)
    (error,) = await write(LocalFiles(), new(root / "0.json"))
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert not (root / "0.json").exists()


async def test_no_file_of_a_folder_whose_sync_fails_is_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing(monkeypatch, "fsync", of="t"):
        errors = await write(LocalFiles(), new(root / "t" / "0"), new(root / "t" / "1"), new(root / "u" / "2"))
    assert [isinstance(error, OSError) for error in errors] == [True, True, False]
    assert list((root / "t").iterdir()) == []
    assert (root / "u" / "2").read_bytes() == DATA


async def test_an_existing_file_is_not_written_into_and_not_removed(root: Path) -> None:
    (root / "0.json").write_bytes(b"as it was")
    errors = await write(LocalFiles(), new(root / "0.json"), new(root / "1.json"))
    assert [type(error) for error in errors] == [FileExistsError, type(None)]
    assert (root / "0.json").read_bytes() == b"as it was"
    (root / "dangling").symlink_to(root / "target")
    (error,) = await write(LocalFiles(), new(root / "dangling"))
    assert isinstance(error, FileExistsError)
    assert not (root / "target").exists()


async def test_of_two_files_of_one_name_one_is_written(root: Path) -> None:
    errors = await write(LocalFiles(), new(root / "0.json", b"a"), new(root / "0.json", b"b"))
    assert [type(error) for error in errors] == [type(None), FileExistsError]
    assert (root / "0.json").read_bytes() == b"a"


async def test_a_link_that_leads_out_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "out").symlink_to(tmp_path / "elsewhere")
    (root / "nowhere").symlink_to(tmp_path / "missing")
    paths = (root / "out" / "m", root / "out" / "deeper" / "m", root / "nowhere" / "m")
    errors = await write(LocalFiles(), *(new(path, within=root) for path in paths))
    assert [type(error) for error in errors] == [LinkLeadsOutError] * 3
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (tmp_path / "missing").exists()


async def test_a_link_in_the_place_of_a_folder_that_was_used_is_not_followed(root: Path, tmp_path: Path) -> None:
    files, folder = LocalFiles(), root / "t" / "metadata"
    assert await write(files, new(folder / "0.json")) == [None]
    elsewhere = tmp_path / "elsewhere"
    (root / "t").rename(elsewhere)
    (tmp_path / "another" / "metadata").mkdir(parents=True)
    for target in (elsewhere, tmp_path / "another"):
        (root / "t").symlink_to(target)
        (error,) = await write(files, new(folder / "1.json", within=root))
        assert isinstance(error, LinkLeadsOutError)
        (root / "t").unlink()
    assert [one.name for one in (elsewhere / "metadata").iterdir()] == ["0.json"]
    assert list((tmp_path / "another" / "metadata").iterdir()) == []


async def test_a_link_that_stays_within_is_followed(root: Path) -> None:
    files = LocalFiles()
    (root / "t").mkdir()
    (root / "link").symlink_to(root / "t")
    for number in range(2):
        assert await write(files, new(root / "link" / f"{number}.json")) == [None]
    assert sorted(one.name for one in (root / "t").iterdir()) == ["0.json", "1.json"]


async def test_a_file_in_the_way_of_a_folder_is_an_error(root: Path) -> None:
    (root / "t").write_bytes(b"")
    (error,) = await write(LocalFiles(), new(root / "t" / "metadata" / "0.json"))
    assert isinstance(error, NotADirectoryError)


async def test_a_file_whose_caller_has_gone_is_removed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, arrived, done, removed = LocalFiles(), Event(), Event(), Event()
    unlink = os.unlink

    def hold(_: str) -> None:
        arrived.set()
        assert done.wait(30)

    def watching(path: Path) -> None:
        unlink(path)
        removed.set()

    monkeypatch.setattr(os, "unlink", watching)
    with watched(monkeypatch, "fdatasync", hold):
        gone = asyncio.create_task(files.write(new(root / "gone.json")))
        await asyncio.to_thread(arrived.wait, 30)
        gone.cancel()
        done.set()
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert await asyncio.to_thread(removed.wait, 30)
    assert not (root / "gone.json").exists()


async def test_an_error_that_nobody_expects_reaches_its_callers_and_no_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles()

    def break_down(name: str) -> None:
        raise RuntimeError(name)

    with watched(monkeypatch, "write", break_down):
        assert [type(error) for error in await write(files, new(root / "0"), new(root / "1"))] == [RuntimeError] * 2
    assert await write(files, new(root / "2")) == [None]
