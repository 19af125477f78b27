"""
Which of a tenant's catalogs a location belongs to: the one whose folder is the longest that holds it. Pure.

The folders of catalogs may lie in one another. Whoever tells of a file, the most specific folder decides, so that a
table is in the same catalog whether S3, a callback or an observation has told of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from projections.errors import FileUnreadableError
from projections.lake.storage import split_location


def nearest_catalog(folders: Mapping[str, str], location: str) -> str | None:
    """
    Return the alias whose folder is the longest that holds `location`, at the boundary of a path; None if none does.

    Of several with the same folder it is the first by alias.
    """
    kind, path = _split(location) or ("", "")
    found: tuple[int, str] | None = None
    for alias in sorted(folders):
        folder = _split(folders[alias])
        if folder is None or folder[0] != kind or not path.startswith(f"{folder[1].rstrip('/')}/"):
            continue
        length = len(folder[1].rstrip("/"))
        if found is None or length > found[0]:
            found = length, alias
    return None if found is None else found[1]


def _split(location: str) -> tuple[str, str] | None:
    try:
        return split_location(location)
    except FileUnreadableError:
        return None
