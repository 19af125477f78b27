"""
Checkpoints that are kept outside the installation: what a place for them offers.

Whoever can change the database and the home together can set both back, and everything in them agrees again. What lies
in a place that they cannot change contradicts it: a checkpoint of a larger log, or of another one.

A place is believed as far as whoever reads it controls it: a bucket under object lock, a git repository whose branch
nobody may rewrite, a file that others collect. What is read from one is a signed note like any other, and
verified so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from ledger.errors import LedgerError

NOTES_MAX: Final = 10_000
"""Notes that are read from one place, newest first: more than a year of one an hour."""
NOTE_SIZE_BYTES_MAX: Final = 65_536
ARCHIVE_FORMS: Final = "file:/path, git:<path or URL>[#branch] or s3://bucket[/prefix]"


class ArchiveError(LedgerError):
    """A place is not named as one, or cannot be read or written now; says which, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedNotes:
    """
    Signed notes of checkpoints as they lie in a place, newest first, unverified; `where` is how people call the place.

    `is_whole` is False if the place has more, older ones.
    """

    where: str
    notes: tuple[bytes, ...]
    is_whole: bool = True


class CheckpointArchive(Protocol):
    """Where checkpoints are kept. Methods block, within a bounded time, and raise ArchiveError."""

    @property
    def where(self) -> str:
        """How people call the place; holds no secret."""

    def add(self, origin: str, *, size: int, note: bytes) -> None:
        """Keep the note of a checkpoint of the log `origin` at that size; nothing that is there is changed."""

    def read(self, origin: str, *, notes_max: int = NOTES_MAX) -> ArchivedNotes:
        """Return the newest notes of the log `origin` that are there, perhaps none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAccess:
    """How buckets are reached; what is None is left to Amazon's own chain of settings and credentials."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None


def unread_notes(kept: Iterable[ArchivedNotes]) -> list[str]:
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
