# SPDX-License-Identifier: Apache-2.0
"""
Pins: requirements added to a commit to a foreign catalog, so that it commits exactly what was judged.

Policies read a table's schema, spec, sort order, refs and identity as they were loaded; the upstream applies the commit
to its state when the commit arrives. If that state differs from what was judged, the pins fail the commit. The pinned
refs are those that the commit moves, and `main`, whose snapshot policies see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from gateway.catalogs.json_text import Member, first_member, members, replaced
from gateway.errors import BadRequestError
from gateway.metadata import Requirement, Update

MAIN: Final = "main"

_IDS: Final = (
    ("assert-current-schema-id", "current-schema-id"),
    ("assert-default-spec-id", "default-spec-id"),
    ("assert-default-sort-order-id", "default-sort-order-id"),
)
_NO_SNAPSHOT: Final = -1
_REQUIREMENTS: Final = "requirements"


def pins_of(
    metadata: Mapping[str, Any], updates: Sequence[Update], required: Sequence[Requirement]
) -> tuple[Requirement, ...]:
    """
    Return the requirements that pin `metadata`, of a table or a view, for a commit of `updates`.

    All that can be required of a view is its uuid. Those that are already among `required`, the commit's own, are left
    out.
    """
    known = {_subject(requirement) for requirement in required}
    return tuple(pin for pin in _pins(metadata, updates) if _subject(pin) not in known)


def _pins(metadata: Mapping[str, Any], updates: Sequence[Update]) -> Iterator[Requirement]:
    if isinstance(view_uuid := metadata.get("view-uuid"), str):
        yield {"type": "assert-view-uuid", "uuid": view_uuid}
        return
    table_uuid = metadata.get("table-uuid")
    if isinstance(table_uuid, str):
        yield {"type": "assert-table-uuid", "uuid": table_uuid}
    for kind, member in _IDS:
        # Metadata of format version 1 may lack them: what is not written cannot be required.
        if isinstance(value := metadata.get(member), int):
            yield {"type": kind, member: value}
    moved = {
        update["ref-name"] for update in updates if update["action"] in {"set-snapshot-ref", "remove-snapshot-ref"}
    }
    for ref in sorted(moved | {MAIN}):
        yield {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": snapshot_of(metadata, ref)}


def snapshot_of(metadata: Mapping[str, Any], ref: str) -> int | None:
    """
    Return the snapshot of a ref of a table; None if there is no such ref, which is a valid requirement.
    """
    refs = metadata.get("refs") or {}
    if ref in refs:
        found: int = refs[ref]["snapshot-id"]
        return found
    current = metadata.get("current-snapshot-id")
    return current if ref == MAIN and isinstance(current, int) and current != _NO_SNAPSHOT else None


def _subject(requirement: Requirement) -> tuple[str, Any]:
    """The subject of a requirement. Two with one subject are equal, or the commit's own did not hold."""
    return requirement["type"], requirement.get("ref")


def with_requirements(text: str, added: Sequence[Requirement], *, is_of_view: bool = False) -> str:
    """
    Return the body of a commit (CommitTableRequest, or CommitViewRequest) with `added` after its own requirements,
    otherwise unchanged.

    Raises:
        BadRequestError: if it is not the body of a commit.
    """
    pins = orjson.dumps(added).decode()[1:-1]
    found = _requirements_in(text)
    if not found and is_of_view and "updates" in text:  # it need not have any
        head, _, members_of_body = text.partition("{")
        return f'{head}{{"requirements":[{pins}],{members_of_body}'
    if len(found) != 1 or not isinstance(found[0].value, list):
        raise BadRequestError("expected one list", field="requirements")
    own = text[found[0].start : found[0].end]
    inside = own[1:-1].rstrip()
    together = ",".join(part for part in (inside, pins) if part.strip())
    return replaced(text, [(found[0], f"[{together}]")])


def _requirements_in(text: str) -> list[Member]:
    """Return the members `requirements` of a body; as a rule, what follows them need not be read again."""
    if text.count(f'"{_REQUIREMENTS}"') == 1 and "\\" not in text:  # there is no other, in whatever spelling
        first = first_member(text, _REQUIREMENTS)
        return [] if first is None else [first]
    return [member for member in members(text) if member.name == _REQUIREMENTS]
