# SPDX-License-Identifier: Apache-2.0
"""
The file for stack traces: mode 0600, in the home's `log` directory, one per process, made when the first is written.

On a screen a stack trace helps nobody; a file can be sent to a developer.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final

SIZE_BYTES_MAX: Final = 10 * 2**20
"""A failure that repeats adds nothing after that."""


class CrashFile:
    """
    The stack traces of one process, which began at `began`.

    `find_home` is called when there is something to write; it may return None, or a path that is no directory.
    """

    def __init__(self, find_home: Callable[[], Path | None], *, began: datetime, pid: int) -> None:
        self._find_home = find_home
        self._name = f"crash-{began:%Y%m%dT%H%M%SZ}-{pid}.txt"
        self._path: Path | None = None

    def add(self, error: BaseException) -> str:
        """
        Write down `error` with its stack; return the file's path, or why there is none.
        """
        text = "".join(traceback.format_exception(error)) + "\n"
        try:
            self._path = self._path or self._directory() / self._name
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
                if file.tell() < SIZE_BYTES_MAX:
                    file.write(text)
        except OSError as failure:
            return f"no file, since none could be written ({failure.strerror})"
        return str(self._path)

    def _directory(self) -> Path:
        """Return the home's log directory; without a home, one in /tmp: a command that needs no home makes none."""
        home = self._find_home()
        if home is None or not home.is_dir():
            return Path(tempfile.mkdtemp(prefix="lakeproof-"))
        directory = home.absolute() / "log"
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory
