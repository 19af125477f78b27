# SPDX-License-Identifier: Apache-2.0
"""
The process that writes the files of a gateway process: `python -m gateway.files.writing_process`; stdin is a socket.

A write waits for the disk, and each of its calls in a thread of the gateway would have to wait for the interpreter's
lock as well, which the event loop holds most of the time. Here nobody else holds it.

The socket carries frames (`format_frame`). The gateway sends each file with a number; the answer is the number and why
the file was not written, or None. What waits for one folder is written together. Few threads share the folders, because
a sync that takes less than a millisecond costs less than to wake another thread. Where it takes longer, more join.

Guarantee: the process ends when its gateway does, and an answer without an error is given once the file is durable.
"""

from __future__ import annotations

import marshal
import os
import socket
import struct
import sys
import traceback
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Any, Final

from gateway.files.durable_folders import DurableFolders, LinkLeadsOutError
from gateway.files.writing import NewFile, Place, Writing, fail, write_files

HELPERS_QUICK: Final = 1
HELPERS_SLOW: Final = 16
"""Threads besides the one that reads, while the disk is quick, and while it is slow."""
SLOW_S: Final = 0.003
"""The disk is slow if the folder that was written last took longer."""
TOGETHER_MAX: Final = 64
"""Files of one folder that are written together."""
READ_BYTES: Final = 1024 * 1024
_LENGTH: Final = struct.Struct("<I")


def format_frame(value: Any) -> bytes:
    """
    Return a frame: its length, and tuples, strings, bytes and numbers as `marshal` writes them. Both ends are ours.
    """
    content = marshal.dumps(value)
    return _LENGTH.pack(len(content)) + content


class Frames:
    """The frames in a stream of bytes."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Yield the values of the frames that are complete now."""
        self._unread += data
        start = 0
        while len(self._unread) >= (begin := start + _LENGTH.size):
            end = begin + _LENGTH.unpack_from(self._unread, start)[0]
            if len(self._unread) < end:
                break
            yield marshal.loads(memoryview(self._unread)[begin:end])  # noqa: S302 - from our parent, or our child
            start = end
        del self._unread[:start]


def format_error(error: Exception | None) -> tuple[str, int | None, str] | None:
    """
    Return an error as it is sent: its kind, its number and its text.
    """
    match error:
        case None:
            return None
        case LinkLeadsOutError():
            return "link", None, str(error)
        case OSError():
            return "os", error.errno, error.strerror or str(error)
    return "unexpected", None, "".join(traceback.format_exception(error))


def parse_error(sent: tuple[str, int | None, str] | None) -> Exception | None:
    """
    Return an error as it was sent.
    """
    match sent:
        case None:
            return None
        case "link", _, text:
            return LinkLeadsOutError(text)
        case "os", int(number), text:
            return OSError(number, text)  # of the class that belongs to the number
        case "os", None, text:
            return OSError(text)
    return RuntimeError(sent[2])


class Writer:
    """
    Writes what arrives on `stream`, and answers there.

    The thread that reads writes, too, while the disk is quick: to wake another one would take longer.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._frames = Frames()
        self._folders = DurableFolders()
        self._waiting: dict[Place, deque[tuple[int, Writing]]] = {}
        """By place, in the order in which the first of each came. `_arrived` is the lock of this and the next three."""
        self._helpers = 0
        self._idle = 0
        """Helpers that wait for files."""
        self._is_slow = False
        self._arrived = Condition()
        self._sending = Lock()

    def run(self) -> None:
        """Write files until the other end of the socket is closed."""
        while self._read():
            while not self._is_slow and (taken := self._take()):
                self._write(taken)
                if not self._read(flags=socket.MSG_DONTWAIT):
                    return

    def _read(self, *, flags: int = 0) -> bool:
        """Read what has arrived; without `MSG_DONTWAIT`, wait for it. Return False at the end of the stream."""
        try:
            data = self._stream.recv(READ_BYTES, flags)
        except BlockingIOError:
            return True
        if not data:
            return False
        with self._arrived:
            for number, folder, name, content, within in self._frames.feed(data):
                file = NewFile(folder=Path(folder), name=name, data=content, within=Path(within))
                self._waiting.setdefault(file.place, deque()).append((number, Writing(file)))
            self._call_helpers()
        return True

    def _call_helpers(self) -> None:
        """Have helpers take what the thread that reads will not write itself. Under the lock."""
        to_help = len(self._waiting) - (0 if self._is_slow else 1)
        self._arrived.notify(max(to_help, 0))
        for _ in range(min(to_help - self._idle, (HELPERS_SLOW if self._is_slow else HELPERS_QUICK) - self._helpers)):
            self._helpers += 1
            Thread(target=self._help, daemon=True).start()

    def _help(self) -> None:
        try:
            while True:
                with self._arrived:
                    self._idle += 1
                    while not self._waiting:
                        self._arrived.wait()
                    self._idle -= 1
                if taken := self._take():
                    self._write(taken)
        except BaseException:  # noqa: BLE001  (nobody would answer any more)
            traceback.print_exc()
            os._exit(1)

    def _take(self) -> list[tuple[int, Writing]]:
        """Take the files of the place that has waited longest, if any does."""
        with self._arrived:
            place = next(iter(self._waiting), None)
            if place is None:
                return []
            line = self._waiting[place]
            taken = [line.popleft() for _ in range(min(len(line), TOGETHER_MAX))]
            if not line:
                del self._waiting[place]
            return taken

    def _write(self, taken: list[tuple[int, Writing]]) -> None:
        jobs = [job for _, job in taken]
        began_s = monotonic()
        try:
            write_files(jobs, self._folders)
        except Exception as error:  # noqa: BLE001  (a bug: its callers learn of it, and other files are written)
            fail(jobs, error)
        with self._arrived:
            self._is_slow = monotonic() - began_s > SLOW_S
            self._call_helpers()
        answers = [(number, format_error(job.error)) for number, job in taken]
        with self._sending:
            self._stream.sendall(format_frame(answers))


def main() -> None:
    """Write files until the parent has gone."""
    try:
        Writer(socket.socket(fileno=os.dup(sys.stdin.fileno()))).run()
    except OSError:
        pass  # the other end was closed before it had read all answers
    except BaseException:  # noqa: BLE001  (nobody would read any more)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # nothing will name what is being written


if __name__ == "__main__":
    main()
