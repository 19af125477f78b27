"""
A file that others collect: the newest checkpoint, replaced as a whole. A backup, an agent, a colleague takes copies.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ledger.errors import BrokenError, Fault
from ledger.keeping.places import NOTE_SIZE_BYTES_MAX, NOTES_MAX, Kept, PlaceError
from ledger.regular_file import UnreadableError, opened, read_at_most


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePlace:
    """A file of one note (implements `Place`)."""

    path: Path

    @property
    def where(self) -> str:
        """The place as it was named."""
        return f"file:{self.path}"

    def add(self, origin: str, *, size: int, note: bytes) -> None:  # noqa: ARG002 - the note says both
        """
        Replace the file by one that holds `note`; a reader finds the old one or the new one, whole.

        Raises:
            PlaceError: if it cannot be written.
        """
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            with fresh.open("wb") as file:
                file.write(note)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise PlaceError(f"{self.where} cannot be written ({error.strerror}): look at its folder") from error

    def read(self, origin: str, *, notes_max: int = NOTES_MAX) -> Kept:  # noqa: ARG002 - there is one, of one log
        """
        Return the note that is there, or none if there is no such file.

        Raises:
            PlaceError: if it cannot be read, or is too large to be a note.
        """
        if not self.path.exists():
            return Kept(where=self.where, notes=())
        try:
            with opened(self.path.parent, self.path.name, Fault.CHECKPOINT, first=None) as file:
                note = read_at_most(file, NOTE_SIZE_BYTES_MAX + 1)
        except (BrokenError, UnreadableError, OSError) as error:
            raise PlaceError(f"{self.where} cannot be read: {error}") from error
        if len(note) > NOTE_SIZE_BYTES_MAX:
            raise PlaceError(
                f"{self.where}: expected a note of at most {NOTE_SIZE_BYTES_MAX} bytes, found a larger file"
            )
        return Kept(where=self.where, notes=(note,))
