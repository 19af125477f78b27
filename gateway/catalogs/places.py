# SPDX-License-Identifier: Apache-2.0
"""
Storage places: locations and paths in one normal form, to decide whether one contains another. Pure.

`file:/x`, `file:///x`, `file://localhost/x` and `/x` are one place; `s3:`, `s3a:` and `s3n:` are one scheme. Where
readers of a location disagree (percent signs, doubled slashes, case on some file systems), places count as equal: to
refuse a place too often is safe, to let two tables overlap is not.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

import orjson

from gateway.errors import BadRequestError

PLACE_LENGTH_MAX: Final = 4_096
FOLDERS_MAX: Final = 64
"""Folders in one place; each of them is a lookup in an index."""
DIGEST_SIZE_BYTES: Final = 16
SEGMENT_SIZE_BYTES_MAX: Final = 255
"""The longest name of a file or folder on the usual file systems."""
REMEMBERED_MAX: Final = 1_024
"""Places whose digests are not computed again; 5 MB at most."""

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]*")
"""A bucket or its equivalent, such as Azure's `container@account`."""
_S3: Final = frozenset({"s3", "s3a", "s3n"})
_LOCAL_HOSTS: Final = frozenset({"", "localhost"})
_UNPLAIN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff?#\\]")
_AMBIGUOUS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff%?#\\]")
_MISLEADING: Final = re.compile(r"[\x00-\x1f\x7f/\\%]")
"""Characters that must not be percent-encoded: readers would see different folders."""


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """A folder or file in a storage: its scheme, its bucket (empty for a local disk), and its path."""

    scheme: str
    authority: str
    segments: tuple[str, ...]

    def holds(self, other: StoragePlace) -> bool:
        """Return whether this place contains `other`, or is equal to it."""
        return self._folded()[: len(self.segments) + 2] == other._folded()[: len(self.segments) + 2]

    def overlaps(self, other: StoragePlace) -> bool:
        """Return whether one of the two contains the other, or both are equal."""
        return self.holds(other) or other.holds(self)

    def format(self) -> str:
        """Return the place as a URI, without a trailing slash unless it is the root of a disk."""
        return f"{self.scheme}://{'/'.join((self.authority, *self.segments)) or '/'}"

    def digest(self) -> bytes:
        """Return the place's key in an index: the first 16 bytes of the SHA-256 of the JSON list of its parts."""
        return self.folder_digests()[-1]

    def folder_digests(self) -> list[bytes]:
        """Return the digests of every place that contains this one, outermost first, and of this one last."""
        return list(_folder_digests(self._folded()))

    def _folded(self) -> tuple[str, ...]:
        """Its parts in the form in which they are compared: some file systems ignore case and Unicode's forms."""
        if self.scheme != "file":
            return (self.scheme, self.authority, *self.segments)
        return ("file", "", *(unicodedata.normalize("NFC", segment.casefold()) for segment in self.segments))


@lru_cache(maxsize=REMEMBERED_MAX)
def _folder_digests(folded: tuple[str, ...]) -> tuple[bytes, ...]:
    return tuple(
        hashlib.sha256(orjson.dumps(folded[:length])).digest()[:DIGEST_SIZE_BYTES]
        for length in range(2, len(folded) + 1)
    )


def parse_place(text: str, *, field: str) -> StoragePlace:
    """
    Return the place that a location, a path property or a file's path names.

    Raises:
        BadRequestError: if it is not an absolute path or URI, contains `..`, or is ambiguous.
    """
    if not text or len(text) > PLACE_LENGTH_MAX:
        raise BadRequestError(f"expected a location of 1 to {PLACE_LENGTH_MAX} characters", field=field)
    if found := _UNPLAIN.search(text):
        raise BadRequestError(f"expected a location without {found[0]!r}, found {text!r:.200}", field=field)
    scheme, authority, path = _split(text, field=field)
    segments = tuple(_segment(part, text, field=field) for part in path.split("/") if part not in {"", "."})
    if len(segments) > FOLDERS_MAX:
        raise BadRequestError(f"expected at most {FOLDERS_MAX} folders, found {len(segments)}", field=field)
    return StoragePlace(scheme, authority, segments)


def location_path(text: str, *, field: str) -> str:
    """
    Return the path of a location after its bucket, as it is spelled.

    Raises as `parse_place`.
    """
    return _split(text, field=field)[2]


def is_plain(path: str) -> bool:
    """
    Return whether each segment of a path names one folder or file, and the same one for every reader.
    """
    return all(map(_is_plain_segment, path.split("/")))


def _is_plain_segment(segment: str) -> bool:
    if segment in {"", ".", ".."} or _AMBIGUOUS.search(segment):
        return False
    return len(segment.encode()) <= SEGMENT_SIZE_BYTES_MAX


def _split(text: str, *, field: str) -> tuple[str, str, str]:
    """Return scheme, authority and path."""
    uri = _URI.fullmatch(text)
    scheme, rest = (uri[1].lower(), uri[2]) if uri else ("file", text)
    if uri and rest.startswith("//"):
        authority, separator, path = rest[2:].partition("/")
        path = separator + path
    else:
        authority, path = "", rest
    if scheme == "file":
        if authority.lower() in _LOCAL_HOSTS and path.startswith("/"):
            return "file", "", path
    elif _AUTHORITY.fullmatch(authority):
        return "s3" if scheme in _S3 else scheme, authority.lower(), path
    raise BadRequestError(f"expected an absolute path or a URI such as s3://bucket/…, found {text!r:.200}", field=field)


def _segment(part: str, text: str, *, field: str) -> str:
    """One folder, percent-decoded: some readers decode, and some do not."""
    try:
        decoded = unquote(part, errors="strict")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"expected percent-encoded UTF-8, found {text!r:.200}", field=field) from error
    if decoded != part and _MISLEADING.search(decoded):
        raise BadRequestError(f"expected a location that all readers read alike, found {text!r:.200}", field=field)
    if decoded in {".", ".."}:
        raise BadRequestError(f"expected a location without '..', found {text!r:.200}", field=field)
    return decoded
