"""
Secrets in files: 0600, in a directory of 0700, made once and read back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lakeproof.errors import SettingsError
from ledger.files.atomic import create_file
from ledger.files.private_files import mode_for_others


def read_or_make(path: Path, make: Callable[[], str]) -> str:
    """
    Return the secret in `path`; if there is none yet, the one that `make` returns, stored first.

    Raises:
        SettingsError: if the file can be read by others, or cannot be read or written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            create_file(path, f"{make()}\n".encode())
        mode = mode_for_others(path)
        if mode is not None:
            raise SettingsError(f"{path} has mode {mode:04o} and others can read it: run chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except FileExistsError:
        return read_or_make(path, make)
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be used ({error.strerror}): make it readable and writable for this user"
        ) from error
