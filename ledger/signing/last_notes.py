"""
The last note of each log as a file: canonical JSON that is checked, signatures and all, before anything of it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from ledger import canonical
from ledger.canonical import Json
from ledger.checkpoint import Checkpoint
from ledger.errors import FormatError


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedNote:
    """A signed checkpoint as it left, or is about to leave."""

    checkpoint: Checkpoint
    note: bytes


def format_notes(notes: Mapping[str, SignedNote]) -> bytes:
    """
    Return the file of these notes, by origin.
    """
    members: list[Json] = [
        {
            "note": notes[origin].note.decode(),
            "origin": origin,
            "root": notes[origin].checkpoint.root.hex(),
            "size": notes[origin].checkpoint.size,
        }
        for origin in sorted(notes)
    ]
    return canonical.encode({"notes": members, "version": 1})


def parse_notes(data: bytes, open_note: Callable[[bytes, str], Checkpoint]) -> dict[str, SignedNote]:
    """
    Return the notes of a file, by origin; `open_note` returns the checkpoint of a note of that log if it is signed.

    Raises:
        FormatError: if `data` is no such file.
        BrokenError: what `open_note` raises of a note that is not signed.
    """
    return {note.checkpoint.origin: note for note in (_parse(member, open_note) for member in _list(data))}


def find_note(data: bytes, origin: str, open_note: Callable[[bytes, str], Checkpoint]) -> SignedNote | None:
    """
    Return the note of one log in a file, or None; the signatures of the others are not looked at.

    Raises:
        FormatError, BrokenError: as `parse_notes`.
    """
    for member in _list(data):
        if isinstance(member, dict) and member.get("origin") == origin:
            return _parse(member, open_note)
    return None


def _list(data: bytes) -> Sequence[Json]:
    file = _members(canonical.decode(data), {"notes", "version"})
    members = file["notes"]
    if file["version"] != 1 or not isinstance(members, list):
        raise FormatError("last notes", expected="version 1 and a list of notes", found=data)
    return members


def _parse(member: Json, open_note: Callable[[bytes, str], Checkpoint]) -> SignedNote:
    note = _members(member, {"note", "origin", "root", "size"})
    text = note["note"]
    if not isinstance(text, str):
        raise FormatError("last note", expected="a text", found=text)
    checkpoint = open_note(text.encode(), str(note["origin"]))
    if (checkpoint.size, checkpoint.root.hex()) != (note["size"], note["root"]):
        raise FormatError("last note", expected="size and root as in its text", found=note)
    return SignedNote(checkpoint=checkpoint, note=text.encode())


def _members(value: Json, names: set[str]) -> dict[str, Json]:
    if not isinstance(value, dict) or value.keys() != names:
        raise FormatError("last notes", expected=f"an object of {sorted(names)}", found=value)
    return cast("dict[str, Json]", value)
