# SPDX-License-Identifier: Apache-2.0
"""
What differs between two versions of a policy or restriction, or between the newest one and its draft.

The expression of a policy and the filter of a restriction are compared line by line, as a unified diff; the other
members side by side, in their canonical form.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.errors import BadRequestError, ConflictError, NotFoundError

DRAFT: Final = "draft"
"""In place of a version: the draft that waits for a review."""
NOTHING: Final = "nothing"
OF_POLICY: Final = ("expression", "message", "scope", "examples")
"""The members that are compared, that which is compared line by line first."""
OF_RESTRICTION: Final = ("filter", "scope", "masks", "schemas", "examples")
_CONTEXT_LINES: Final = 3
_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side: its `label`, and the contents as they are shown; None before the first version, and once retired."""

    label: str
    contents: Mapping[str, Any] | None


def diff_shown(before: Side, after: Side, *, members: tuple[str, ...]) -> dict[str, Any]:
    """
    Return what differs in `members`, as JSON: the first of them is a unified diff, empty if it is the same; `changed`
    has the others.
    """
    lined, *others = members
    nothing = dict.fromkeys(members)
    old, new = before.contents or nothing, after.contents or nothing
    lines = difflib.unified_diff(
        (old[lined] or "").splitlines(),
        (new[lined] or "").splitlines(),
        before.label,
        after.label,
        n=_CONTEXT_LINES,
        lineterm="",
    )
    return {
        "from": before.label,
        "to": after.label,
        lined: "\n".join(lines),
        "changed": {name: {"from": old[name], "to": new[name]} for name in others if old[name] != new[name]},
    }


def sides(
    versions: Mapping[int, Mapping[str, Any] | None], draft: Side | None, *, older: str | None, newer: str | None
) -> tuple[Side, Side]:
    """
    Return the two sides that are asked for: versions by their number, or `DRAFT`.

    `versions` has the contents of each, by its number; None where it retires. `draft` is the one that waits, if any.

    `newer` is the newest version if it is not named, and `older` the one before the newer one: the newest version for a
    draft, nothing for the first version.

    Raises:
        BadRequestError: if one is neither a number nor `DRAFT`.
        NotFoundError: if there is no such version, or no draft.
        ConflictError: if there is no version at all to compare.
    """
    if newer is None and not versions:
        raise ConflictError("expected a version to compare, found none: compare the draft", kind="NoVersionException")
    newest = max(versions, default=0)
    newer = str(newest) if newer is None else newer
    if older is None:
        before = newest if newer == DRAFT else _number(newer, name="to") - 1
        older = str(before) if before > 0 else NOTHING
    return _side(versions, draft, older, name="from"), _side(versions, draft, newer, name="to")


def _side(versions: Mapping[int, Mapping[str, Any] | None], draft: Side | None, named: str, *, name: str) -> Side:
    if named == NOTHING:
        return Side(label=NOTHING, contents=None)
    if named == DRAFT:
        if draft is None:
            raise NotFoundError(
                f"{name}: expected a draft that waits for a review, found none", kind="NotFoundException"
            )
        return draft
    number = _number(named, name=name)
    if number in versions:
        return Side(label=f"version {number}", contents=versions[number])
    found = f"1 to {max(versions)}" if versions else "none"
    raise NotFoundError(f"{name}: expected a version in the log ({found}), found {number}", kind="NotFoundException")


def _number(text: str, *, name: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise BadRequestError(f"expected the number of a version, or {DRAFT}, found {text!r:.80}", field=name)
    return int(text)
