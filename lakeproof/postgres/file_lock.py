# SPDX-License-Identifier: Apache-2.0
"""
Locks between processes, held on files; the kernel releases them when their holder ends, however it ends.

`exclusive` is for a short section that only one process may be in. `Presence` marks something as used for as long as a
process lives; `is_alone` tells the last user that it may end it. Both are `flock(2)`: nothing is stale after a crash.
The files themselves mean nothing and are never deleted, since deleting a lock file makes two locks of it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":  # there is no embedded server on Windows, but a server of the user's can be checked there
    import fcntl

POLL_S = 0.02


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def exclusive(path: Path, *, timeout_s: float) -> Iterator[None]:
    """
    Hold the lock on `path` alone for the duration of a `with` block.

    Raises:
        TimeoutError: if another process still holds it after `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    descriptor = _open(path)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} is locked by another process") from None
                time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


class Presence:
    """A shared lock on a file, held until `leave` or until the process is gone."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _open(path)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def leave(self) -> None:
        os.close(self._descriptor)


def is_alone(path: Path) -> bool:
    """Return whether nobody holds a `Presence` on `path`; call it where no new one can be taken meanwhile."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
