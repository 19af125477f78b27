# SPDX-License-Identifier: Apache-2.0
"""
The folder in which the gateway processes of one `lakeproof up` have sockets for each other: `<home>/run/<pid>`.

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
