# SPDX-License-Identifier: Apache-2.0
"""
Restrictions as files: one YAML document a restriction, in one file or in a folder and below it.

They are read as files of policies are (`policy_files.py`), and refused with file, line and column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.errors import BadRequestError
from gateway.policy.nearest import nearest
from gateway.policy.policy_files import (
    Begin,
    Place,
    PolicyFileError,
    content_of,
    files_in,
    nearest_place,
    open_document,
)
from gateway.policy.restrictions import contents as written
from gateway.policy.restrictions.compiled import RestrictionRefusedError
from ledger.format.events import RestrictionContents

if TYPE_CHECKING:
    from ledger.format.canonical import Json

MEMBERS: Final = ("id", "reason", *written.MEMBERS)
REQUIRED: Final = ("id", "schemas")
_EXPRESSIONS: Final = ("filter", "unless")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictionFile:
    """A restriction as its file says it: `members` are its contents, and `contents` the same as events hold them."""

    name: str
    id: str
    reason: str
    members: Mapping[str, Json]
    contents: RestrictionContents
    places: Mapping[str, Place]
    begins: Mapping[str, Begin]

    def refused(self, error: RestrictionRefusedError) -> PolicyFileError:
        """Return `error`, about a member of this restriction, with its place in the file."""
        place = nearest_place(self.places, error.member)
        if error.line is not None and error.column is not None and error.member in self.begins:
            place = self.begins[error.member].place(error.line, error.column)
        return PolicyFileError(self.name, f"{error.member}: {error.reason}", place=place)


def read_restrictions(path: Path) -> tuple[RestrictionFile, ...]:
    """
    Return the restrictions in a file, or in all files `*.yaml` and `*.yml` of a folder and below it.

    Raises:
        PolicyFileError: if one cannot be read or is no restriction, if two have one id, or if there is none.
    """
    found: dict[str, RestrictionFile] = {}
    for file in files_in(path):
        restriction = parse_restriction(content_of(file), name=str(file))
        other = found.setdefault(restriction.id, restriction)
        if other is not restriction:
            reason = f"expected an id that no other file has, found {restriction.id!r}, the id of {other.name}, too"
            raise PolicyFileError(restriction.name, reason, place=nearest_place(restriction.places, "id"))
    return tuple(found.values())


def parse_restriction(content: bytes, *, name: str) -> RestrictionFile:
    """
    Return the restriction that the content of a file says; `name` is that of the file.

    Raises:
        PolicyFileError: if it is none; says where.
    """
    document = open_document(content, name=name, what="restriction", required=REQUIRED, expressions=_EXPRESSIONS)
    members = document.read()
    for member in members:
        if member not in MEMBERS:
            reason = f"expected some of {', '.join(MEMBERS)}, found {member!r:.80}; the nearest is "
            raise PolicyFileError(name, reason + nearest(member[:80], MEMBERS), place=document.places[member])
    texts: dict[str, str] = {}
    for member in ("id", "reason"):
        value = members.get(member, "" if member == "reason" else None)
        if not isinstance(value, str) or (member == "id" and not value):
            place = nearest_place(document.places, member)
            raise PolicyFileError(name, f"{member}: expected a text, found {value!r:.80}", place=place)
        texts[member] = value.strip()
    contents = {member: value for member, value in members.items() if member in written.MEMBERS}
    try:
        parsed = written.parse_contents(contents)
    except BadRequestError as error:
        place = nearest_place(document.places, error.field or "")
        raise PolicyFileError(name, str(error), place=place) from error
    return RestrictionFile(
        name=name,
        id=texts["id"],
        reason=texts["reason"],
        members=contents,
        contents=parsed,
        places=document.places,
        begins=document.begins,
    )
