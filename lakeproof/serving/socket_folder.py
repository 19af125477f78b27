# SPDX-License-Identifier: Apache-2.0
"""
The folder of one `lakeproof up`, `<home>/run/<pid>`: the gateway processes have sockets for each other in it, and the
file `url` says where they listen (`lakeproof status` reads it).

The home is a folder that nobody else may enter. What a supervisor that was killed has left is removed by the next one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeproof.errors import ServerError
from lakeproof.private_folders import PRIVATE

RUN = "run"
URL = "url"
"""The file with the URL of the gateway."""
URL_LENGTH_MAX = 1_000


@contextmanager
def socket_folder(home: Path) -> Iterator[Path]:
    """
    Yield a new folder below `home`, which goes afterwards.

    Raises:
        ServerError: if it cannot be made.
    """
    runs, own = home / RUN, home / RUN / str(os.getpid())
    try:
        runs.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        for left in runs.iterdir():
            if left == own or not _runs(left.name):
                shutil.rmtree(left, ignore_errors=True)
        own.mkdir(mode=PRIVATE)
    except OSError as error:
        raise ServerError(f"{own} cannot be made ({error}): repair that, or choose another LAKEPROOF_HOME") from error
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def write_url(folder: Path, url: str) -> None:
    """
    Write where the gateway of the `lakeproof up` with that folder listens.

    Raises:
        ServerError: if it cannot be written.
    """
    try:
        (folder / URL).write_text(f"{url}\n", encoding="utf-8")
    except OSError as error:
        raise ServerError(f"{folder / URL} cannot be written ({error}): repair that") from error


def read_url(folder: Path) -> str | None:
    """
    Return what `write_url` has written, None if there is nothing yet.
    """
    try:
        with (folder / URL).open(encoding="utf-8") as file:
            return file.read(URL_LENGTH_MAX).strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _runs(name: str) -> bool:
    """Return whether a process with the id `name` runs, or it cannot be told."""
    if not name.isascii() or not name.isdigit():
        return True
    try:
        os.kill(int(name), 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
