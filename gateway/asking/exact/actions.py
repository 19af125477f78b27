# SPDX-License-Identifier: Apache-2.0
"""
The actions that a create, a commit or a replacement can have together, and updates of a request that has them.

Guarantee: `updates_of` makes a request of which `access_actions` returns exactly these actions, for every set that
`WithActions.find` returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gateway.metadata.actions import META_ACTIONS, SNAPSHOT_COUNTS, SNAPSHOT_OPERATIONS

ADD_SNAPSHOT: Final = "META_ADD_SNAPSHOT"
SET_REF: Final = "META_SET_SNAPSHOT_REF"
REMOVE_REF: Final = "META_REMOVE_SNAPSHOT_REF"
SET_LOCATION: Final = "META_SET_LOCATION"
SET_PROPERTIES: Final = "META_SET_PROPERTIES"
REMOVE_PROPERTIES: Final = "META_REMOVE_PROPERTIES"
REMOVE_LOCATION: Final = "META_REMOVE_LOCATION_PROPERTY"
REPLACE_PARTITIONS: Final = "SNAP_REPLACE_PARTITIONS"
_OPERATIONS: Final = {action: operation for operation, action in SNAPSHOT_OPERATIONS.items()}
_COUNTS: Final = {action: name for name, action in SNAPSHOT_COUNTS.items()}
_OF_SNAPSHOTS: Final = frozenset({*_OPERATIONS, *_COUNTS, REPLACE_PARTITIONS})
_OF_VIEWS: Final = frozenset({"META_ADD_VIEW_VERSION", "META_SET_CURRENT_VIEW_VERSION"})
_OF_BOTH: Final = frozenset(
    {
        *("META_ASSIGN_UUID", "META_UPGRADE_FORMAT_VERSION", SET_LOCATION, SET_PROPERTIES, REMOVE_PROPERTIES),
        *(REMOVE_LOCATION, "META_ADD_SCHEMA"),
    }
)
WITHIN_REFS: Final = frozenset({ADD_SNAPSHOT, SET_REF, REMOVE_REF}) | _OF_SNAPSHOTS
"""Actions that concern single branches: none of them changes the table on all."""
OF_TABLES: Final = (frozenset(META_ACTIONS.values()) - _OF_VIEWS) | _OF_SNAPSHOTS | {REMOVE_LOCATION}
OF_VIEWS: Final = _OF_BOTH | _OF_VIEWS
_UPDATES: Final = {action: update for update, action in META_ACTIONS.items()}
ADDED: Final = 1
"""The id of the first snapshot that the updates add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WithActions:
    """
    The sets of actions that a request can have: those that are `fixed`, some of `possible`, and one of `one_of` (if
    there is any). With `beside` an action that sets a branch is not alone: one of these is there, too.
    """

    fixed: frozenset[str]
    possible: frozenset[str]
    one_of: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    def find(self, wanted: Iterable[str], unwanted: Iterable[str]) -> frozenset[str] | None:
        """Return a set with all of `wanted` and none of `unwanted`, None if there is none."""
        found, never = {*self.fixed, *wanted}, frozenset(unwanted)
        if not found <= self.fixed | self.possible:
            return None
        for one_of in (self.one_of, self.beside if SET_REF in found else ()):
            if one_of and found.isdisjoint(one_of):
                # Those of snapshots and removed locations need others.
                allowed = [one for one in one_of if one not in never and one not in {ADD_SNAPSHOT, REMOVE_LOCATION}]
                if not allowed and ADD_SNAPSHOT in one_of:
                    allowed = [ADD_SNAPSHOT]
                if not allowed:
                    return None
                found.add(allowed[0])
        if not found.isdisjoint(_OF_SNAPSHOTS):
            found.add(ADD_SNAPSHOT)
        if ADD_SNAPSHOT in found and found.isdisjoint(_OPERATIONS):
            operations = [one for one in _OPERATIONS if one not in never]
            if not operations:
                return None
            found.add(operations[0])
        if REMOVE_LOCATION in found:
            found.add(REMOVE_PROPERTIES)
        return frozenset(found) if found.isdisjoint(never) and found <= self.fixed | self.possible else None


def updates_of(actions: frozenset[str]) -> list[dict[str, Any]]:
    """Return updates with these actions, but for those of refs, and but for those that the operation has by itself."""
    updates: list[dict[str, Any]] = []
    for number, operation in enumerate(one for one in _OPERATIONS if one in actions):
        summary = {"operation": _OPERATIONS[operation]}
        if not number:
            summary |= {_COUNTS[action]: "1" for action in _COUNTS if action in actions}
            summary |= {"replace-partitions": "true"} if REPLACE_PARTITIONS in actions else {}
        updates.append({"action": "add-snapshot", "snapshot": {"snapshot-id": ADDED + number, "summary": summary}})
    for action in sorted(actions - WITHIN_REFS - {REMOVE_LOCATION}):
        match action:
            case _ if action not in _UPDATES:
                pass  # the catalog's own
            case "META_SET_PROPERTIES":
                updates.append({"action": "set-properties", "updates": {}})
            case "META_REMOVE_PROPERTIES":
                removals = ["location"] if REMOVE_LOCATION in actions else []
                updates.append({"action": "remove-properties", "removals": removals})
            case _:
                updates.append({"action": _UPDATES[action]})
    return updates
