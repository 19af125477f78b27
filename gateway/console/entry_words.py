# SPDX-License-Identifier: Apache-2.0
"""
What lists say of an entry and of a commit, in some words; their pages have all of it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

SAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "commit.decided": ("operation", "decision"),
    "commit.settled": ("outcome",),
    "commit.observed": ("snapshot",),
    "access.refused": ("operation",),
    "lineage.received": ("event_type",),
    "trigger.received": ("source",),
    "scan.completed": ("findings",),
    "scan.failed": ("fault",),
    "detection.found": ("kind", "column"),
    "finding.reviewed": ("verdict", "kind", "column"),
    "alert.raised": ("kind", "column"),
    "alert.delivered": ("sink",),
    "policy.created": ("version",),
    "policy.changed": ("version",),
    "policy.retired": ("version",),
    "policy_draft.written": ("version",),
    "policy_draft.reviewed": ("verdict", "version"),
    "restriction.created": ("version",),
    "restriction.changed": ("version",),
    "restriction.retired": ("version",),
    "restriction_draft.written": ("version",),
    "restriction_draft.reviewed": ("verdict", "version"),
    "access_rule.created": ("effect", "version"),
    "catalog.created": ("kind",),
    "setting.changed": ("value",),
    "tenant.created": ("name",),
    "payload.erased": ("name",),
    "table.identified": ("source",),
    "metrics.reported": ("kind",),
    "proposal.replayed": ("decisions", "widened", "narrowed"),
    "projection.attested": ("projection",),
}
"""The members of an entry's data that lists show, by the entry's type."""


def actions_said(actions: Iterable[str]) -> str:
    """
    Return the actions of a commit (`META_ADD_SCHEMA`, say) as people read them; that it changed the table goes without.
    """
    words = [each.partition("_")[2].replace("_", " ").lower() for each in actions]
    return ", ".join([each for each in words if each != "update entity"] or words)


def said(data: Mapping[str, Any], entry_type: str) -> str:
    """
    Return what lists say of an entry of a type, given its data: numbers with what they count, and of a column what was
    found in it.
    """
    found = [(name, data.get(name)) for name in SAYS.get(entry_type, ())]
    words: list[str] = []
    for name, value in found:
        if name == "column" and value is not None and words:
            words[-1] += f" in column {value}"
        elif name == "version" and value is not None:
            words.append(f"version {value}")
        elif value is not None:
            words.append(f"{value} {name}" if isinstance(value, int) else str(value))
    return ", ".join(words)
