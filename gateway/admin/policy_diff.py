# SPDX-License-Identifier: Apache-2.0
"""
What differs between two versions of a policy, or between the newest one and its draft.

The expression is compared line by line, as a unified diff; the other members side by side, in their canonical form.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.admin.policy_edits import PolicyStep
from gateway.admin.shown import contents_shown
from gateway.control.aggregates import PolicyDraft
from gateway.errors import BadRequestError, ConflictError, NotFoundError
from ledger.format.events import PolicyContents

DRAFT: Final = "draft"
"""In place of a version: the draft that waits for a review."""
NOTHING: Final = "nothing"
_MEMBERS: Final = ("message", "scope", "examples")
_CONTEXT_LINES: Final = 3
_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side: its `label`, and the contents; None where there is no policy (before the first version, or retired)."""

    label: str
    contents: PolicyContents | None


def policy_diff(before: Side, after: Side) -> dict[str, Any]:
    """
    Return what differs, as JSON: `expression` is a unified diff, empty if it is the same; `changed` has the others.
    """
    old, new = contents_shown(before.contents), contents_shown(after.contents)
    lines = difflib.unified_diff(
        (old["expression"] or "").splitlines(),
        (new["expression"] or "").splitlines(),
        before.label,
        after.label,
        n=_CONTEXT_LINES,
        lineterm="",
    )
    return {
        "from": before.label,
        "to": after.label,
        "expression": "\n".join(lines),
        "changed": {name: {"from": old[name], "to": new[name]} for name in _MEMBERS if old[name] != new[name]},
    }


def sides(
    steps: Sequence[PolicyStep], draft: PolicyDraft | None, *, older: str | None, newer: str | None
) -> tuple[Side, Side]:
    """
    Return the two sides that are asked for: versions by their number, or `DRAFT`.

    `newer` is the newest version if it is not named, and `older` the one before the newer one: the newest version for a
    draft, nothing for the first version.

    Raises:
        BadRequestError: if one is neither a number nor `DRAFT`.
        NotFoundError: if there is no such version, or no draft.
        ConflictError: if there is no version at all to compare.
    """
    if newer is None and not steps:
        raise ConflictError("expected a version to compare, found none: compare the draft", kind="NoVersionException")
    newer = str(steps[-1].version) if newer is None else newer
    if older is None:
        newest = steps[-1].version if steps else 0
        before = newest if newer == DRAFT else _number(newer, name="to") - 1
        older = str(before) if before > 0 else NOTHING
    return _side(steps, draft, older, name="from"), _side(steps, draft, newer, name="to")


def _side(steps: Sequence[PolicyStep], draft: PolicyDraft | None, named: str, *, name: str) -> Side:
    if named == NOTHING:
        return Side(label=NOTHING, contents=None)
    if named == DRAFT:
        if draft is None:
            raise NotFoundError(
                f"{name}: expected a draft that waits for a review, found none", kind="NotFoundException"
            )
        return Side(label=DRAFT, contents=draft.contents)
    number = _number(named, name=name)
    for step in steps:
        if step.version == number:
            return Side(label=f"version {number}", contents=None if step.policy is None else step.policy.contents())
    found = f"1 to {steps[-1].version}" if steps else "none"
    raise NotFoundError(f"{name}: expected a version of the policy ({found}), found {number}", kind="NotFoundException")


def _number(text: str, *, name: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS_MAX:
        raise BadRequestError(f"expected the number of a version, or {DRAFT}, found {text!r:.80}", field=name)
    return int(text)
