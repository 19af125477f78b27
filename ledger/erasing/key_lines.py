"""
The text of a file of subjects' keys: a line for each subject, in their order (see `subject_keys.py`). Pure.

A line is `<subject> <key id> <id of the key-encryption key> <wrapped key, base64>`, or `<subject> destroyed`.

Guarantee: what is parsed is exactly what is formatted, so that writing a file anew loses nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ledger.encoding import format_base64, parse_base64
from ledger.errors import FormatError

_DESTROYED: Final = "destroyed"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedKey:
    """A key as its file holds it."""

    id: UUID
    kek: str
    wrapped: bytes = field(repr=False)


KeyLines = dict[str, WrappedKey | None]
"""A file's keys by subject; None for one that was destroyed."""


def format_key_lines(lines: KeyLines) -> bytes:
    """
    Return the file that holds these keys.
    """
    return "".join(
        f"{subject} {_DESTROYED}\n"
        if known is None
        else f"{subject} {known.id} {known.kek} {format_base64(known.wrapped)}\n"
        for subject, known in sorted(lines.items())
    ).encode()


def parse_key_lines(data: bytes) -> KeyLines:
    """
    Return the keys of a file.

    Raises:
        FormatError: if it is not exactly what `format_key_lines` writes; nothing of it is in the message.
    """
    lines: KeyLines = {}
    try:
        for line in data.decode("ascii").splitlines():
            subject, *members = line.split(" ")
            if members == [_DESTROYED]:
                lines[subject] = None
            else:
                key_id, kek, wrapped = members
                lines[subject] = WrappedKey(id=UUID(key_id), kek=kek, wrapped=parse_base64(wrapped, what="wrapped key"))
    except (FormatError, ValueError):
        lines = {}
    if not lines or format_key_lines(lines) != data:  # a file that is there holds a key, or the trace of one
        raise FormatError("keys of subjects", expected="lines of subjects in their order", found="others")
    return lines
