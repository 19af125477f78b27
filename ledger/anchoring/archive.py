# SPDX-License-Identifier: Apache-2.0
"""
Archives: where checkpoints are kept outside the installation.

Whoever can change both the database and the home can set both back to an earlier state in which everything agrees. A
checkpoint in an archive that they cannot change contradicts it: it is of a larger log, or of another one.

An archive is worth as much as its protection: a bucket under object lock, a git branch that nobody may rewrite, a file
that others collect. What is read from one is a signed note like any other, and is verified like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from ledger.errors import LedgerError

NOTES_MAX: Final = 10_000
"""Notes that are read from one archive, newest first: one per hour for more than a year."""
NOTE_SIZE_BYTES_MAX: Final = 65_536
ARCHIVE_FORMS: Final = "file:/path, git:<path or URL>[#branch] or s3://bucket[/prefix]"


class ArchiveError(LedgerError):
    """An archive is not named properly, or cannot be read or written now; says which, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedNotes:
    """
    Signed notes of checkpoints as an archive has them, newest first, unverified; `where` is how users name the archive.

    `is_whole` is False if the archive has more, older ones.
    """

    where: str
    notes: tuple[bytes, ...]
    is_whole: bool = True


class CheckpointArchive(Protocol):
    """Where checkpoints are kept. Methods block for a bounded time, and raise ArchiveError."""

    @property
    def where(self) -> str:
        """How users name the archive; contains no secret."""

    def add(self, origin: str, *, size: int, note: bytes) -> None:
        """Add the note of a checkpoint of the log `origin` at that size."""

    def read(self, origin: str, *, notes_max: int = NOTES_MAX) -> ArchivedNotes:
        """Return the newest notes of the log `origin`, perhaps none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketAccess:
    """How buckets are reached; for None, boto3 uses its own chain of settings and credentials."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None


def unread_notes(kept: Iterable[ArchivedNotes]) -> list[str]:
    """
    Return in words what was not read of archives with more than `NOTES_MAX` notes.
    """
    return [f"checkpoints in {one.where} older than {len(one.notes):,} others" for one in kept if not one.is_whole]


def claimed_origin(note: bytes) -> str:
    """
    Return the origin that a note claims, unverified; if it is no note, something else.
    """
    return note.decode(errors="replace").partition("\n")[0]


def name_of(origin: str) -> str:
    """
    Return the name of a log's file or folder in an archive: its origin, percent-encoded to one segment.
    """
    return quote(origin, safe="")
