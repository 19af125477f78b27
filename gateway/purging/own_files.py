# SPDX-License-Identifier: Apache-2.0
"""
Which files a purge may delete, and whether two locations may name one file. Pure but for looks at links.

Guarantee: a file is a table's own only if its location, taken literally, is inside one of the table's places and below
a folder of its catalog. Whether two locations name one file is answered with yes where readers disagree: to keep a file
too often is safe.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from gateway.catalogs.places import StoragePlace, location_path, parse_place
from gateway.errors import BadRequestError

FOLDERS_REMEMBERED: Final = 16_384
"""Folders that are not looked at again; some MB."""
KEY_SIZE_BYTES: Final = 16

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_S3: Final = frozenset({"s3", "s3a", "s3n"})
_UNPLAIN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff?#\\]")
"""Readers disagree on what follows these; a library would delete another file."""
_UNQUOTED_MAX: Final = 8
_UPWARDS: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class OwnFile:
    """
    A file that a purge may delete: its `location`, and for a file of this machine the folder of the catalog that it is
    below, and its names from there (None: it is in an object store).
    """

    location: str
    root: Path | None
    segments: tuple[str, ...]


class OwnFolders:
    """The places of a dropped table, as far as they are below the folders (URIs) of its catalog."""

    def __init__(self, places: Sequence[StoragePlace], roots: Iterable[str]) -> None:
        self._places = places
        self._roots = [
            (parse_place(root, field="root"), location_path(root, field="root").rstrip("/")) for root in roots
        ]
        self._root_of = lru_cache(maxsize=FOLDERS_REMEMBERED)(self._find_root)

    def find(self, location: str) -> OwnFile | None:
        """
        Return the file, if it is the table's own; None if it is elsewhere, or readers would disagree on where.

        Percent signs stand for themselves below a place: engines encode the values of partitions so.
        """
        folder = location.partition("%")[0].rpartition("/")[0]
        if _UNPLAIN.search(location) or (found := self._root_of(folder)) is None:
            return None
        scheme, root = found
        path = location_path(location, field="location")
        if not path.startswith(f"{root}/"):
            return None
        segments = path.removeprefix(f"{root}/").split("/")
        if not segments[-1] or any(part in _UPWARDS for segment in segments for part in _decoded(segment).split("/")):
            return None
        names = tuple(segment for segment in segments if segment)
        return OwnFile(location, Path(root) if scheme == "file" else None, names)

    def _find_root(self, folder: str) -> tuple[str, str] | None:
        """Return scheme and path of the catalog's folder, if `folder` is inside a place below it."""
        try:
            place, path = parse_place(folder, field="folder"), location_path(folder, field="folder")
        except BadRequestError:
            return None
        if not any(one.holds(place) for one in self._places):
            return None
        for root, root_path in self._roots:
            if (root.scheme, root.authority) == (place.scheme, place.authority) and path.startswith(f"{root_path}/"):
                return root.scheme, root_path
        return None


class FileKeys:
    """Digests of files in some places: what two locations of one file have in common."""

    def __init__(self, places: Iterable[StoragePlace]) -> None:
        self._places = [_folder(place.format()) for place in places]
        self._folders = lru_cache(maxsize=FOLDERS_REMEMBERED)(self._look_at)

    def key(self, location: str) -> bytes | None:
        """
        Return the digest of a file; None if it is in none of the places.
        """
        folder, _, name = location.rpartition("/")
        parts, is_inside = self._folders(folder)
        whole = _joined(parts, name)
        if not (self._is_inside(whole) if "%" in name else is_inside):
            return None
        return sha256("\0".join(whole).encode("utf-8", "surrogatepass")).digest()[:KEY_SIZE_BYTES]

    def _look_at(self, folder: str) -> tuple[tuple[str, ...], bool]:
        parts = _folder(folder)
        return parts, self._is_inside(parts)

    def _is_inside(self, parts: tuple[str, ...]) -> bool:
        return any(parts[: len(place)] == place for place in self._places)


def _folder(location: str) -> tuple[str, ...]:
    """Return the parts of a folder as they are compared: links are followed, whatever reads alike is alike."""
    uri = _URI.fullmatch(location)
    scheme, authority, path = (uri[1].lower(), uri[2] or "", uri[3]) if uri else ("file", "", location)
    if scheme == "file":
        # What was written through a link is behind it, and another table may name it by that.
        return _joined(("file", ""), os.path.realpath(path) if "\0" not in path else path)
    return _joined(("s3" if scheme in _S3 else scheme, authority.lower()), path)


def _joined(parts: tuple[str, ...], path: str) -> tuple[str, ...]:
    joined = list(parts)
    for segment in _decoded(path).split("/"):
        if segment == "..":
            del joined[max(len(joined) - 1, 2) :]
        elif segment not in {"", "."}:
            joined.append(unicodedata.normalize("NFC", segment.casefold()))
    return tuple(joined)


def _decoded(text: str) -> str:
    """Percent-decode as often as that changes anything."""
    for _ in range(_UNQUOTED_MAX):
        if "%" not in text or (decoded := unquote(text)) == text:
            break
        text = decoded
    return text
