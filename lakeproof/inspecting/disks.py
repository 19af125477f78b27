# SPDX-License-Identifier: Apache-2.0
"""
The space that is free where an installation keeps files: the home, the embedded server, the tables' metadata.

A full disk is what an installation survives worst: PostgreSQL stops, and nothing is signed or recorded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakeproof.errors import ServerError
from lakeproof.installation import LOCAL
from lakeproof.postgres.directories import find_server_files
from lakeproof.settings import Settings

FREE_BYTES_MIN: Final = 1024**3
"""With less, an installation is not well: the write-ahead log alone may take as much."""
FREE_BYTES_WARNED: Final = 5 * 1024**3
GIB: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """The file system that holds `path`, which need not exist yet; `use` is what lies there."""

    use: str
    path: Path
    free_bytes: int
    total_bytes: int

    @property
    def free_text(self) -> str:
        """The free space for people."""
        return f"{self.free_bytes / GIB:.1f} of {self.total_bytes / GIB:.1f} GiB are free at {self.path} ({self.use})"


def find_disks(settings: Settings) -> list[Disk]:
    """
    Return the file systems of an installation, each once, with all that lies there.

    Raises:
        OSError: if one cannot be examined.
    """
    used: dict[int, tuple[Path, list[str]]] = {}
    for use, path in _places(settings).items():
        there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
        used.setdefault(there.stat().st_dev, (there, []))[1].append(use)
    disks = []
    for path, uses in used.values():
        found = shutil.disk_usage(path)
        disks.append(Disk(use=", ".join(uses), path=path, free_bytes=found.free, total_bytes=found.total))
    return disks


def _places(settings: Settings) -> Mapping[str, Path]:
    places = {"home": settings.home}
    if settings.dsn is None:
        try:
            files = find_server_files(settings.home)
        except (ServerError, OSError):
            files = None  # what the home says is for the checks of the database
        places["embedded server"] = (
            settings.server_folder
            if files is None and os.geteuid() == 0
            else (settings.home if files is None else files.directory)
        )
    if settings.warehouse.startswith(LOCAL):
        places["metadata and tables"] = Path(settings.warehouse.removeprefix(LOCAL))
    return places
