# SPDX-License-Identifier: Apache-2.0
"""
Opens files that others have made: only regular ones, and all failures are raised as our errors.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ledger.errors import BrokenError, Fault, LedgerError

_NO_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR})


class UnreadableError(LedgerError):
    """A file or directory cannot be read at all, so nothing can be said about the log."""


@contextmanager
def opened(root: Path, path: str, fault: Fault, *, first: int | None) -> Iterator[int]:
    """
    Yield the descriptor of the file at `path` below `root`; `first` is the index of the first entry in it, if any.

    Raises:
        BrokenError: (`fault`) if there is no regular file.
        UnreadableError: if it cannot be opened, or the caller cannot read from it.
    """
    try:
        # Without waiting, because opening a pipe could block for ever.
        file = os.open(f"{root}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise BrokenError(fault, where=path, expected="a file", found="none", index=first)
            yield file
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in _NO_FILE:
            raise BrokenError(fault, where=path, expected="a file", found="none", index=first) from error
        raise unreadable(root / path, error) from error


def read_at_most(file: int, size_bytes: int) -> bytes:
    """
    Return the content of a file, at most `size_bytes`; the end of a shorter file need not be reached.
    """
    data = os.read(file, size_bytes)
    while data and len(data) < size_bytes - 1 and (more := os.read(file, size_bytes - len(data))):
        data += more
    return data


def unreadable(path: Path, error: OSError) -> UnreadableError:
    """Return the error for a file or folder that the system refuses to read."""
    return UnreadableError(f"{path} cannot be read: {error.strerror or error}")
