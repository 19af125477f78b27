# SPDX-License-Identifier: Apache-2.0
"""
The files that hold subjects' keys in a folder: read by any process at any time, replaced whole by one at a time.

Guarantees: a reader waits for nobody, because a file is complete when it gets its name, and is never changed while it
has it. A writer waits for other writers, for a bounded time. A replaced file is overwritten with zeros on the disk.
Until that is done it keeps a second name, `<file>.old`, so that after a crash in between it is overwritten before the
next change of that file.

A file has one line for each subject, in their order: `<subject> <key id> <id of the key-encryption key> <wrapped key,
base64>`, or `<subject> destroyed`. The parser accepts exactly what the formatter writes, so that rewriting a file loses
nothing.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Final
from uuid import UUID

from ledger.errors import FormatError
from ledger.files.atomic import replace_file
from ledger.files.private_files import destroy
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.sealing import SubjectKeysError

LOCK_FILE: Final = "lock"
LOCK_WAIT_S: Final = 5.0
"""How long a change waits for another process's, which takes milliseconds unless that process is stopped."""
LOCK_POLL_S: Final = 0.01
READS_MAX: Final = 100
"""How often a file may be replaced while it is read: each replacement takes another process several disk flushes."""
FileVersion = tuple[int, int, int]
"""Which file it is: its inode, when it was written (nanoseconds), its size (bytes)."""
NO_FILE: Final[FileVersion] = (0, 0, 0)

_DESTROYED: Final = "destroyed"


class KeyFiles:
    """
    The files of keys in the folder `path`, by name; `lock_wait_s` bounds how long a change waits for another's.
    Stateless: the lock is the kernel's.
    """

    def __init__(self, path: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self.path = path
        self._prefix = f"{path}{os.sep}"
        self._lock_wait_s = lock_wait_s

    def version(self, name: str) -> FileVersion:
        """
        Return which file has the name now; `NO_FILE` if none has.

        Raises:
            SubjectKeysError: if the folder cannot be read.
        """
        try:
            return _version(os.stat(self._prefix + name))  # noqa: PTH116  (for every part; a third as long as Path.stat)
        except FileNotFoundError:
            return NO_FILE
        except OSError as error:
            raise self._unusable(name, error) from error

    def read(self, name: str) -> tuple[FileVersion, KeyLines]:
        """
        Return which file has the name, and its keys.

        No lock is needed: a file is overwritten with zeros only after another one has taken its name. If that has
        happened during the read, it is read again.

        Raises:
            SubjectKeysError: if it cannot be read, or is damaged.
        """
        path = self.path / name
        for _ in range(READS_MAX):
            try:
                with path.open("rb") as file:
                    data = file.read()
                    version = _version(os.fstat(file.fileno()))
                    if self.version(name) != version:  # while it is open, no other file has its inode
                        continue
            except FileNotFoundError:
                return NO_FILE, {}
            except OSError as error:
                raise self._unusable(name, error) from error
            try:
                return version, parse_key_lines(data)
            except FormatError as error:
                raise _damaged(path) from error
        raise SubjectKeysError(
            f"{path} was replaced {READS_MAX} times while it was read: find the process that writes it"
        )

    @contextmanager
    def held(self, name: str) -> Iterator[KeyLines]:
        """
        Lock the folder against other processes, remove what a crash has left of a file, and yield its keys.

        The kernel releases the lock when this process ends, however it ends.

        Raises:
            SubjectKeysError: if another process keeps the lock, or the folder cannot be written.
        """
        try:
            descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(LOCK_FILE, error) from error
        try:
            self._lock(descriptor)
            self._clear(name)
            yield self.read(name)[1]
        finally:
            os.close(descriptor)

    def replace(self, name: str, lines: KeyLines) -> None:
        """
        Replace a file, which must be held, and overwrite the previous one.

        Raises:
            SubjectKeysError: if that fails; one of the two files is there then, and the rest is done when it is next
                held.
        """
        path, old = self.path / name, self.path / f"{name}.old"
        try:
            with suppress(FileNotFoundError):
                os.link(path, old)
            replace_file(path, format_key_lines(lines))
            destroy(old)
        except OSError as error:
            raise self._unusable(name, error) from error

    def _lock(self, descriptor: int) -> None:
        deadline_s = monotonic() + self._lock_wait_s
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if monotonic() >= deadline_s:
                    raise SubjectKeysError(
                        f"{self.path} was held by another process for {self._lock_wait_s:g} s: find the stopped "
                        f"process that has {self.path / LOCK_FILE} open, and continue or end it"
                    ) from error
                sleep(LOCK_POLL_S)
            except OSError as error:
                raise self._unusable(LOCK_FILE, error) from error

    def _clear(self, name: str) -> None:
        """Overwrite and remove what a crash has left of a file: its predecessor, or an unfinished successor."""
        path = self.path / name
        try:
            for left in self.path.glob(f"{name}.*"):
                if path.exists() and left.samefile(path):
                    left.unlink()  # the crash came before a new file took the name
                else:
                    destroy(left)
        except OSError as error:
            raise self._unusable(name, error) from error

    def _unusable(self, name: str, error: OSError) -> SubjectKeysError:
        return SubjectKeysError(
            f"{self.path / name} cannot be used ({error.strerror}): let this user read and write in {self.path}"
        )


def _version(stat: os.stat_result) -> FileVersion:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _damaged(path: Path) -> SubjectKeysError:
    return SubjectKeysError(f"{path} is damaged: restore the folder from its newest backup")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedKey:
    """A key as its file holds it."""

    id: UUID
    kek: str
    wrapped: bytes = field(repr=False)


KeyLines = dict[str, WrappedKey | None]
"""A file's keys by subject; None for one that was destroyed."""


def format_key_lines(lines: KeyLines) -> bytes:
    """
    Return the file that holds these keys.
    """
    return "".join(
        f"{subject} {_DESTROYED}\n"
        if known is None
        else f"{subject} {known.id} {known.kek} {format_base64(known.wrapped)}\n"
        for subject, known in sorted(lines.items())
    ).encode()


def parse_key_lines(data: bytes) -> KeyLines:
    """
    Return the keys of a file.

    Raises:
        FormatError: if it is not exactly what `format_key_lines` writes; nothing of it is in the message.
    """
    lines: KeyLines = {}
    try:
        for line in data.decode("ascii").splitlines():
            subject, *members = line.split(" ")
            if members == [_DESTROYED]:
                lines[subject] = None
            else:
                key_id, kek, wrapped = members
                lines[subject] = WrappedKey(id=UUID(key_id), kek=kek, wrapped=parse_base64(wrapped, what="wrapped key"))
    except (FormatError, ValueError):
        lines = {}
    if not lines or format_key_lines(lines) != data:  # a file that is there holds a key, or the trace of one
        raise FormatError("keys of subjects", expected="lines of subjects in their order", found="others")
    return lines
