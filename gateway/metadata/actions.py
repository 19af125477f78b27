# SPDX-License-Identifier: Apache-2.0
"""
What a commit does, in words that access rules can name: the vocabulary of Project Nessie, and the snapshots it adds.

An action is about what the request asks for, whether or not it changes anything. Kinds of updates that Nessie has no
word for get one made like the others, so that no update goes unnamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gateway.metadata.draft import Update

META_ACTIONS: Final[Mapping[str, str]] = {
    "assign-uuid": "META_ASSIGN_UUID",
    "upgrade-format-version": "META_UPGRADE_FORMAT_VERSION",
    "set-location": "META_SET_LOCATION",
    "set-properties": "META_SET_PROPERTIES",
    "remove-properties": "META_REMOVE_PROPERTIES",
    "add-encryption-key": "META_ADD_ENCRYPTION_KEY",
    "remove-encryption-key": "META_REMOVE_ENCRYPTION_KEY",
    "add-schema": "META_ADD_SCHEMA",
    "set-current-schema": "META_SET_CURRENT_SCHEMA",
    "remove-schemas": "META_REMOVE_SCHEMAS",
    "add-spec": "META_ADD_PARTITION_SPEC",
    "set-default-spec": "META_SET_DEFAULT_PARTITION_SPEC",
    "remove-partition-specs": "META_REMOVE_PARTITION_SPECS",
    "add-sort-order": "META_ADD_SORT_ORDER",
    "set-default-sort-order": "META_SET_DEFAULT_SORT_ORDER",
    "add-snapshot": "META_ADD_SNAPSHOT",
    "set-snapshot-ref": "META_SET_SNAPSHOT_REF",
    "remove-snapshot-ref": "META_REMOVE_SNAPSHOT_REF",
    "remove-snapshots": "META_REMOVE_SNAPSHOTS",
    "set-statistics": "META_SET_STATISTICS",
    "remove-statistics": "META_REMOVE_STATISTICS",
    "set-partition-statistics": "META_SET_PARTITION_STATISTICS",
    "remove-partition-statistics": "META_REMOVE_PARTITION_STATISTICS",
    "add-view-version": "META_ADD_VIEW_VERSION",
    "set-current-view-version": "META_SET_CURRENT_VIEW_VERSION",
}
# counts in a snapshot's summary (table spec, appendix F) that name an action when they are above zero
SNAPSHOT_COUNTS: Final[Mapping[str, str]] = {
    "added-data-files": "SNAP_ADD_DATA_FILES",
    "deleted-data-files": "SNAP_DELETE_DATA_FILES",
    "added-delete-files": "SNAP_ADD_DELETE_FILES",
    "added-equality-delete-files": "SNAP_ADD_EQUALITY_DELETE_FILES",
    "added-position-delete-files": "SNAP_ADD_POSITION_DELETE_FILES",
    "removed-delete-files": "SNAP_REMOVE_DELETE_FILES",
    "removed-equality-delete-files": "SNAP_REMOVE_EQUALITY_DELETE_FILES",
    "removed-position-delete-files": "SNAP_REMOVE_POSITION_DELETE_FILES",
    "added-records": "SNAP_ADDED_RECORDS",
    "deleted-records": "SNAP_DELETED_RECORDS",
    "added-position-deletes": "SNAP_ADDED_POSITION_DELETES",
    # the specification's name is removed-…; Nessie reads deleted-…
    "removed-position-deletes": "SNAP_DELETED_POSITION_DELETES",
    "deleted-position-deletes": "SNAP_DELETED_POSITION_DELETES",
    "added-equality-deletes": "SNAP_ADDED_EQUALITY_DELETES",
    "removed-equality-deletes": "SNAP_DELETED_EQUALITY_DELETES",
    "deleted-equality-deletes": "SNAP_DELETED_EQUALITY_DELETES",
}
SNAPSHOT_OPERATIONS: Final[Mapping[str, str]] = {
    "append": "SNAP_OP_APPEND",
    "replace": "SNAP_OP_REPLACE",
    "overwrite": "SNAP_OP_OVERWRITE",
    "delete": "SNAP_OP_DELETE",
}


def commit_actions(updates: Sequence[Update]) -> tuple[str, ...]:
    """
    Return the actions of a commit, sorted, each once.

    `updates` are as `parse_updates` or `create_updates` returned them. Counts in summaries are what the writer claims:
    the operation and the `META_…` actions are always there, the other `SNAP_…` actions only if the writer counted.
    """
    return tuple(sorted(set(_actions(updates))))


def _actions(updates: Iterable[Update]) -> Iterator[str]:
    for update in updates:
        yield META_ACTIONS[update["action"]]
        if update["action"] == "add-snapshot":
            yield from _snapshot_actions(update["snapshot"]["summary"])
        elif update["action"] == "remove-properties" and "location" in update["removals"]:
            yield "META_REMOVE_LOCATION_PROPERTY"
        elif update["action"] == "set-properties" and "location" in update["updates"]:
            yield "META_SET_LOCATION"


def _snapshot_actions(summary: Mapping[str, Any]) -> Iterator[str]:
    yield SNAPSHOT_OPERATIONS[summary["operation"]]
    for name, action in SNAPSHOT_COUNTS.items():
        # a count that is no number is not zero either: better an action too many than one that a rule does not see
        if summary.get(name, "0").strip("0") != "":
            yield action
    if summary.get("replace-partitions", "").lower() == "true":
        yield "SNAP_REPLACE_PARTITIONS"


def added_snapshot_ids(updates: Sequence[Update]) -> tuple[str, ...]:
    """Return the ids of the snapshots a commit adds, in its order, as decimal text: they exceed 53 bits."""
    return tuple(str(update["snapshot"]["snapshot-id"]) for update in updates if update["action"] == "add-snapshot")
