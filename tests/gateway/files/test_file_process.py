# SPDX-License-Identifier: Apache-2.0
"""
Files that another process writes: the same files, the same errors, and a process that may end at any moment.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import pytest
import pytest_asyncio

from gateway.files import writing_process
from gateway.files.durable_folders import LinkLeadsOutError
from gateway.files.file_process import SENT_BYTES_MAX, FileProcess
from gateway.files.writing import NewFile
from gateway.files.writing_process import Frames, Writer, format_error, format_frame, parse_error

DATA = b'{"format-version":2}'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that all files have to be in."""
    (tmp_path / "warehouse").mkdir()
    return tmp_path / "warehouse"


@pytest_asyncio.fixture
async def files() -> AsyncIterator[FileProcess]:
    """What has files written; its process runs."""
    async with FileProcess() as files:
        await files.prepare()
        yield files


def new(path: Path, data: bytes = DATA) -> NewFile:
    root = next(one for one in path.parents if one.name == "warehouse")
    return NewFile(folder=path.parent, name=path.name, data=data, within=root)


async def write(files: FileProcess, *wanted: NewFile) -> list[BaseException | None]:
    """Write files that arrive at once. Return for each the error, or None."""
    return await asyncio.gather(*(files.write(one) for one in wanted), return_exceptions=True)


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def pid_of(files: FileProcess) -> int:
    assert files.pid is not None
    return files.pid


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - no event says that a file has gone
            await asyncio.sleep(0.005)


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# Files


async def test_files_that_come_together_are_written_as_they_are(files: FileProcess, root: Path) -> None:
    wanted = {root / f"t{number % 7}" / f"{number}.json": os.urandom(100 * number) for number in range(100)}
    assert await write(files, *(new(path, data) for path, data in wanted.items())) == [None] * 100
    assert contents(root) == wanted


async def test_a_large_file_needs_no_process(root: Path) -> None:
    async with FileProcess() as files:
        assert await write(files, *(new(root / name, bytes(SENT_BYTES_MAX + 1)) for name in ("a", "b"))) == [None, None]
        assert files.pid is None
    assert sorted(path.name for path in contents(root)) == ["a", "b"]


async def test_an_error_reaches_the_caller_of_its_file_alone_and_in_its_own_class(
    files: FileProcess, root: Path, tmp_path: Path
) -> None:
    (root / "there").write_bytes(b"as it was")
    (root / "file").write_bytes(b"")
    (tmp_path / "elsewhere").mkdir()
    (root / "out").symlink_to(tmp_path / "elsewhere")
    names = ("first", "there", "file/m", "out/m", "other")
    errors = await write(files, *(new(root / name) for name in names))
    expected = [type(None), FileExistsError, NotADirectoryError, LinkLeadsOutError, type(None)]
    assert [type(error) for error in errors] == expected
    assert (root / "there").read_bytes() == b"as it was"
    assert (root / "other").read_bytes() == DATA
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
        FileExistsError(errno.EEXIST, "File exists"),
        OSError("no number"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_the_system_is_the_same_on_both_sides(error: OSError) -> None:
    received = parse_error(format_error(error))
    assert isinstance(received, OSError)
    assert (type(received), received.errno, str(received)) == (type(error), error.errno, str(error))


def test_a_bug_is_told_with_its_traceback() -> None:
    received = parse_error(format_error(ZeroDivisionError("of the writer")))
    assert isinstance(received, RuntimeError)
    assert "ZeroDivisionError: of the writer" in str(received)


def test_frames_are_read_however_they_are_cut() -> None:
    values = [(1, "a", b""), (2, "ü", bytes(1000)), (3, "", None)]
    stream = b"".join(map(format_frame, values))
    for step in (1, 7, 100, len(stream)):
        frames = Frames()
        read = [value for at in range(0, len(stream), step) for value in frames.feed(stream[at : at + step])]
        assert read == values


# The process


async def test_a_process_that_is_killed_fails_what_waits_and_the_next_file_starts_another(
    files: FileProcess, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    killed = pid_of(files)
    os.kill(killed, signal.SIGSTOP)
    waiting = [asyncio.create_task(files.write(new(root / str(number)))) for number in range(3)]
    await asyncio.sleep(0)  # all are sent
    os.kill(killed, signal.SIGKILL)
    for one in waiting:
        with pytest.raises(OSError, match="the process that writes files has ended: try again"):
            await one
    assert "the process that writes files has ended; the next file starts another" in caplog.text
    assert await write(files, new(root / "a"), new(root / "b")) == [None, None]
    assert pid_of(files) != killed


async def test_a_file_whose_caller_has_gone_is_removed(files: FileProcess, root: Path) -> None:
    os.kill(pid_of(files), signal.SIGSTOP)
    gone, stays = (asyncio.create_task(files.write(new(root / name))) for name in ("gone", "stays"))
    await asyncio.sleep(0)  # both are sent
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    os.kill(pid_of(files), signal.SIGCONT)
    await stays
    await until(lambda: not (root / "gone").exists())
    assert (root / "stays").read_bytes() == DATA


async def test_the_process_ends_with_its_gateway_and_not_with_ctrl_c(files: FileProcess, root: Path) -> None:
    pid = pid_of(files)
    assert os.getsid(pid) == pid, "Ctrl-C reaches the processes of a terminal's session"
    assert await write(files, new(root / "a"), new(root / "b")) == [None, None]
    await files.__aexit__()
    assert has_ended(pid)
    with pytest.raises(OSError, match="the gateway stops"):
        await files.write(new(root / "c"))


async def test_the_process_knows_nothing_of_our_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEPROOF_SECRET", "of the gateway")
    async with FileProcess() as files:
        await files.prepare()
        environment = await asyncio.to_thread(Path(f"/proc/{pid_of(files)}/environ").read_bytes)
        assert b"LAKEPROOF" not in environment


# Its threads, here


@contextmanager
def running_writer() -> Iterator[socket.socket]:
    """Run the loop of the process in a thread; yield the gateway's end of the socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(30)
        thread = Thread(target=Writer(theirs).run)
        thread.start()
        yield ours
        ours.shutdown(socket.SHUT_WR)
        thread.join(30)
        assert not thread.is_alive()


def send(stream: socket.socket, number: int, path: Path) -> None:
    file = new(path)
    stream.sendall(format_frame((number, str(file.folder), file.name, file.data, str(file.within))))


def receive(stream: socket.socket, count: int) -> dict[int, Any]:
    frames, answers = Frames(), dict[int, Any]()
    while len(answers) < count:
        for some in frames.feed(stream.recv(65536)):
            answers.update(some)
    return answers


def test_no_file_is_called_written_before_it_is_synced(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, may_go_on, real = Event(), Event(), os.fdatasync

    def hold(descriptor: int) -> None:
        syncing.set()
        assert may_go_on.wait(30)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", hold)
    with running_writer() as stream:
        send(stream, 1, root / "t" / "1")
        assert syncing.wait(30)
        stream.setblocking(False)
        with pytest.raises(BlockingIOError):
            stream.recv(1)
        stream.settimeout(30)
        may_go_on.set()
        assert receive(stream, 1) == {1: None}


def test_a_sync_that_fails_is_told_and_leaves_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with running_writer() as stream:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            send(stream, 1, root / "t" / "1")
            ((number, kind, _),) = [(number, sent[1], sent) for number, sent in receive(stream, 1).items()]
            assert (number, kind) == (1, errno.EIO)
        assert list((root / "t").iterdir()) == []
        send(stream, 2, root / "t" / "1")
        assert receive(stream, 1) == {2: None}


def test_where_the_disk_is_slow_more_threads_join(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file waits until four are being synced at once: fewer threads would wait for ever."""
    monkeypatch.setattr(writing_process, "SLOW_S", -1)
    together, real = Barrier(4), os.fdatasync

    def meet(descriptor: int) -> None:
        together.wait(30)
        real(descriptor)

    with running_writer() as stream:
        send(stream, 0, root / "warm" / "0")  # from here on the disk is known to be slow
        assert receive(stream, 1) == {0: None}
        monkeypatch.setattr(os, "fdatasync", meet)
        for number in range(1, 5):
            send(stream, number, root / str(number) / "m")
        assert receive(stream, 4) == dict.fromkeys(range(1, 5))
