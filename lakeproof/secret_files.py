"""
Secrets in files: 0600, in a directory of 0700, made once and read back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from lakeproof.errors import SettingsError


def read_or_make(path: Path, make: Callable[[], str]) -> str:
    """
    Return the secret in `path`; if there is none yet, the one that `make` returns, stored first.

    Raises:
        SettingsError: if the file can be read by others, or cannot be read or written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_new(path, make())
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise SettingsError(f"{path} has mode {mode:04o} and others can read it: run chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except FileExistsError:
        return read_or_make(path, make)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be used ({error.strerror}): make it readable and writable for this user"
        ) from error


def write_new(path: Path, text: str) -> None:
    """
    Store `text` in a new file of mode 0600, whole or not at all.

    Raises:
        FileExistsError: if there is a file of that name.
        OSError: if it cannot be written.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        # A link fails where a rename would replace: two processes must not hold two different secrets.
        os.link(fresh, path)
    finally:
        fresh.unlink()
