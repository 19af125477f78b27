# SPDX-License-Identifier: Apache-2.0
"""
Updates of what a table holds: snapshots, the branches and tags that point at them, and statistics about them.

Snapshot ids are 63-bit integers, as in all Iceberg JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import RequirementFailedError
from gateway.metadata.draft import MAIN_BRANCH, ROW_LINEAGE_SINCE_VERSION, Draft, Update
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.shapes import JsonObject

_REF_MEMBERS = ("snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")


def add_snapshot(draft: Draft, update: Update) -> None:
    """
    Add a snapshot that no branch or tag points at yet.

    Raises:
        InvalidUpdateError: if the table is not ready for one, or has it.
        RequirementFailedError: if it was made from an older state of the table; its writer can refresh and try again.
    """
    snapshot = update["snapshot"]
    for definitions, noun in ((draft.schemas, "schema"), (draft.specs, "partition spec"), (draft.orders, "sort order")):
        if not definitions.by_id:
            raise InvalidUpdateError(f"Attempting to add a snapshot before a {noun} is added")
    snapshot_id = snapshot["snapshot-id"]
    if snapshot_id in draft.snapshots:
        raise InvalidUpdateError(f"Snapshot already exists for id: {snapshot_id}")
    _advance_sequence_number(draft, snapshot)
    if draft.format_version >= ROW_LINEAGE_SINCE_VERSION:
        _advance_row_id(draft, snapshot)
    draft.snapshots[snapshot_id] = snapshot
    draft.added_snapshots.add(snapshot_id)
    draft.is_changed = True


def _advance_sequence_number(draft: Draft, snapshot: Mapping[str, Any]) -> None:
    """Sequence numbers order deletes against data, so they only grow; two first snapshots may share theirs."""
    number, last = snapshot.get("sequence-number", 0), draft.last_sequence_number
    if draft.format_version == 1:
        if number != 0:
            raise InvalidUpdateError(f"Sequence number must be 0 in v1: {number}")
        return
    shares_last = snapshot.get("parent-snapshot-id") is None and number == last
    if number <= last and not shares_last:
        text = f"Cannot add snapshot with sequence number {number} older than last sequence number {last}"
        raise RequirementFailedError(f"Validation failed, please retry: {text}")
    draft.last_sequence_number = number


def _advance_row_id(draft: Draft, snapshot: Mapping[str, Any]) -> None:
    """Row ids are given out once: the next snapshot starts after the rows of this one (table spec, row lineage)."""
    first_row_id = snapshot.get("first-row-id")
    if first_row_id is None:
        raise InvalidUpdateError("Cannot add a snapshot: first-row-id is null")
    if first_row_id < draft.next_row_id:
        text = f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first_row_id} < {draft.next_row_id}"
        raise RequirementFailedError(f"Validation failed, please retry: {text}")
    draft.next_row_id = first_row_id + snapshot["added-rows"]


def set_snapshot_ref(draft: Draft, update: Update) -> None:
    """Create or move a branch or tag; moving `main` makes its snapshot the current one and is logged."""
    name = update["ref-name"]
    ref: JsonObject = {member: update[member] for member in _REF_MEMBERS if member in update}
    if _same_ref(draft.refs.get(name), ref):
        return
    snapshot_id = ref["snapshot-id"]
    snapshot = draft.snapshots.get(snapshot_id)
    if snapshot is None:
        raise InvalidUpdateError(f"Cannot set {name} to unknown snapshot: {snapshot_id}")
    if name == MAIN_BRANCH:
        if ref["type"] != "branch":
            raise InvalidUpdateError(f"Cannot set {MAIN_BRANCH} to a tag, it must be a branch")
        is_added = snapshot_id in draft.added_snapshots
        # a snapshot that was there before becomes current now, not when it was written
        changed_at_ms = snapshot["timestamp-ms"] if is_added else draft.now_ms
        draft.snapshot_log.append({"timestamp-ms": changed_at_ms, "snapshot-id": snapshot_id})
        draft.current_snapshot_id = snapshot_id
        if is_added:
            draft.was_main.add(snapshot_id)
    draft.set_ref(name, ref)
    draft.is_changed = True


def _same_ref(known: Mapping[str, Any] | None, ref: Mapping[str, Any]) -> bool:
    return known is not None and all(known.get(member) == ref.get(member) for member in _REF_MEMBERS)


def remove_snapshot_ref(draft: Draft, update: Update) -> None:
    """Remove a branch or tag; without `main` a table has no current snapshot."""
    _remove_ref(draft, update["ref-name"])


def _remove_ref(draft: Draft, name: str) -> None:
    if name == MAIN_BRANCH:
        draft.current_snapshot_id = None
    if draft.drop_ref(name):
        draft.is_changed = True


def remove_snapshots(draft: Draft, update: Update) -> None:
    """Remove snapshots with the branches, tags and statistics of each; ids that are not there are passed over."""
    for snapshot_id in update["snapshot-ids"]:
        if draft.snapshots.pop(snapshot_id, None) is None:
            continue
        for name in draft.refs_to(snapshot_id):
            _remove_ref(draft, name)
        draft.statistics.pop(snapshot_id, None)
        draft.partition_statistics.pop(snapshot_id, None)
        draft.has_removed_snapshots = draft.is_changed = True


def set_statistics(draft: Draft, update: Update) -> None:
    """Put a statistics file in the place of those its snapshot has."""
    _set_file(draft, draft.statistics, update["statistics"])


def remove_statistics(draft: Draft, update: Update) -> None:
    """Remove the statistics files of a snapshot, if it has any."""
    if draft.statistics.pop(update["snapshot-id"], None) is not None:
        draft.is_changed = True


def set_partition_statistics(draft: Draft, update: Update) -> None:
    """Put a partition statistics file in the place of those its snapshot has."""
    _set_file(draft, draft.partition_statistics, update["partition-statistics"])


def remove_partition_statistics(draft: Draft, update: Update) -> None:
    """Remove the partition statistics files of a snapshot, if it has any."""
    if draft.partition_statistics.pop(update["snapshot-id"], None) is not None:
        draft.is_changed = True


def _set_file(draft: Draft, files: dict[int, list[JsonObject]], file: JsonObject) -> None:
    files.pop(file["snapshot-id"], None)
    files[file["snapshot-id"]] = [file]
    draft.is_changed = True


def settle_snapshot_log(draft: Draft) -> None:
    """
    Bring the snapshot log in line with the snapshots, once all updates are applied.

    Snapshots of this commit that were current only between two of its updates are no history. An entry whose snapshot
    is gone takes all entries before it along: else the log would say that an older snapshot was current in its time.

    Raises:
        InvalidUpdateError: if there is a log and it does not end with the current snapshot.
    """
    between = draft.was_main - {draft.current_snapshot_id}
    if not between and not draft.has_removed_snapshots:
        return
    log: list[JsonObject] = []
    for entry in draft.snapshot_log:
        snapshot_id = entry["snapshot-id"]
        if snapshot_id not in draft.snapshots:
            if draft.has_removed_snapshots:
                log = []
        elif snapshot_id not in between:
            log.append(entry)
    if log and draft.current_snapshot_id not in {None, log[-1]["snapshot-id"]}:
        raise InvalidUpdateError("Cannot set invalid snapshot log: latest entry is not the current snapshot")
    draft.snapshot_log = log
