"""
Places where checkpoints are kept outside the installation: what they offer, and how people name them.

Whoever can change the database and the home together can set both back, and everything in them agrees again. What lies
in a place that they cannot change contradicts it: a checkpoint of a larger log, or of another one.

A place is believed as far as whoever reads it controls it: a bucket under object lock, a git repository whose branch
nobody may rewrite, a file that others collect. What is read from one is a signed note like any other, and verified so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, urlsplit

from ledger.errors import LedgerError

NOTES_MAX: Final = 10_000
"""Notes that are read from one place, newest first: more than a year of one an hour."""
NOTE_SIZE_BYTES_MAX: Final = 65_536
PLACES: Final = "file:/path, git:<path or URL>[#branch] or s3://bucket[/prefix]"


class PlaceError(LedgerError):
    """A place is not named as one, or cannot be read or written now; says which, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """
    Signed notes of checkpoints as they lie in a place, newest first, unverified; `where` is how people call the place.

    `is_whole` is False if the place has more, older ones.
    """

    where: str
    notes: tuple[bytes, ...]
    is_whole: bool = True


class Place(Protocol):
    """Where checkpoints are kept. Methods block, within a bounded time, and raise PlaceError."""

    @property
    def where(self) -> str:
        """How people call the place; holds no secret."""

    def add(self, origin: str, *, size: int, note: bytes) -> None:
        """Keep the note of a checkpoint of the log `origin` at that size; nothing that is there is changed."""

    def read(self, origin: str, *, notes_max: int = NOTES_MAX) -> Kept:
        """Return the newest notes of the log `origin` that are there, perhaps none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAccess:
    """How buckets are reached; what is None is left to Amazon's own chain of settings and credentials."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None


def is_place(text: str) -> bool:
    """
    Tell whether `text` names a place, rather than a file by its path alone.
    """
    return text.startswith(("file:", "git:", "s3:"))


def parse_place(text: str, access: BucketAccess) -> Place:
    """
    Return the place that `text` names: one of `PLACES`.

    Raises:
        PlaceError: if it names none; what is there is not looked at yet.
    """
    from ledger.keeping.bucket_place import BucketPlace  # here, since these know what a place is
    from ledger.keeping.file_place import FilePlace
    from ledger.keeping.git_place import GitPlace

    scheme, _, rest = text.partition(":")
    if not text.isprintable() or len(text) > 2_000:
        raise PlaceError(f"expected {PLACES}, found {_shown(text)}")
    if scheme == "file" and rest.startswith("/"):
        return FilePlace(path=Path(f"/{rest.lstrip('/')}"))
    if scheme == "git" and rest:
        return GitPlace.parse(text)
    if scheme == "s3" and rest.startswith("//"):
        named = urlsplit(text)
        if named.netloc and not (named.query or named.fragment or "@" in named.netloc):
            return BucketPlace(bucket=named.netloc, prefix=named.path.strip("/"), access=access)
    raise PlaceError(f"expected {PLACES}, found {_shown(text)}")


def _shown(text: str) -> str:
    """Return the beginning of `text`, without what may be a password."""
    return repr(re.sub(r"//[^/]*@", "//…@", text[:100]))


def read_places(places: Iterable[Place], origin: str) -> list[Kept]:
    """
    Return what places have of the log `origin`. Raises PlaceError if one cannot be read.
    """
    return [place.read(origin) for place in places]


def not_whole(kept: Iterable[Kept]) -> list[str]:
    """
    Return in words what was not read of places that hold more than `NOTES_MAX`.
    """
    return [f"checkpoints in {one.where} older than {len(one.notes):,} others" for one in kept if not one.is_whole]


def claimed_origin(note: bytes) -> str:
    """
    Return the origin of the log that a note says it is of, unverified; something else, of what is no note.
    """
    return note.decode(errors="replace").partition("\n")[0]


def name_of(origin: str) -> str:
    """
    Return the name under which a log's checkpoints lie in a place: its origin, percent-encoded to one segment.
    """
    return quote(origin, safe="")
