# SPDX-License-Identifier: Apache-2.0
"""
Which of two metadata files of one table is the older one, by their names.

Each table has a folder of its own for its metadata files, and each commit counts up (`00041-<uuid>.metadata.json`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

REMEMBERED_MAX: Final = 1_024
"""Locations that are not searched again; a commit asks several times about the file it replaces and its own."""

_VERSION: Final = re.compile(r"/([0-9]{5,9})-[^/]*\.metadata\.json$")


@lru_cache(maxsize=REMEMBERED_MAX)
def version_of(location: str) -> int | None:
    """Return the version in the name of a metadata file; None if it has none."""
    match = _VERSION.search(location)
    return None if match is None else int(match[1])


@lru_cache(maxsize=REMEMBERED_MAX)
def series_of(location: str) -> str:
    """Return what the metadata files of one table have in common: their folder. One without a version is alone."""
    return location if version_of(location) is None else location.rpartition("/")[0]


def is_older(location: str, other: str) -> bool:
    """Return whether the first of two files of one series is older."""
    return (version_of(location) or 0) < (version_of(other) or 0)
