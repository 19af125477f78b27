# SPDX-License-Identifier: Apache-2.0
"""
Apply updates to table metadata: pure, one function an update, the rules of the Java reference implementation.

Read `APPLY` first: it names the function of every update a table can have. Input is never changed; the result shares
its unchanged parts, so treat both as read-only. What readers of the reference would refuse to load is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from gateway.metadata import definition_updates, snapshot_updates, table_updates
from gateway.metadata.draft import (
    FORMAT_VERSION_DEFAULT,
    FORMAT_VERSION_MAX,
    MAIN_BRANCH,
    Draft,
    Metadata,
    Update,
    empty_draft,
)
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.partitions import check_readable, check_sources
from gateway.metadata.properties import PREVIOUS_VERSIONS_MAX, PREVIOUS_VERSIONS_MAX_DEFAULT, integer_property
from gateway.metadata.shapes import JsonObject
from gateway.metadata.sorting import check_order
from gateway.metadata.stored import open_draft, write_draft

APPLY: Final[Mapping[str, Callable[[Draft, Update], None]]] = {
    "assign-uuid": table_updates.assign_uuid,
    "upgrade-format-version": table_updates.upgrade_format_version,
    "set-location": table_updates.set_location,
    "set-properties": table_updates.set_properties,
    "remove-properties": table_updates.remove_properties,
    "add-encryption-key": table_updates.add_encryption_key,
    "remove-encryption-key": table_updates.remove_encryption_key,
    "add-schema": definition_updates.add_schema,
    "set-current-schema": definition_updates.set_current_schema,
    "remove-schemas": definition_updates.remove_schemas,
    "add-spec": definition_updates.add_spec,
    "set-default-spec": definition_updates.set_default_spec,
    "remove-partition-specs": definition_updates.remove_partition_specs,
    "add-sort-order": definition_updates.add_sort_order,
    "set-default-sort-order": definition_updates.set_default_sort_order,
    "add-snapshot": snapshot_updates.add_snapshot,
    "set-snapshot-ref": snapshot_updates.set_snapshot_ref,
    "remove-snapshot-ref": snapshot_updates.remove_snapshot_ref,
    "remove-snapshots": snapshot_updates.remove_snapshots,
    "set-statistics": snapshot_updates.set_statistics,
    "remove-statistics": snapshot_updates.remove_statistics,
    "set-partition-statistics": snapshot_updates.set_partition_statistics,
    "remove-partition-statistics": snapshot_updates.remove_partition_statistics,
}

_CLOCK_SKEW_MS: Final = 60_000  # how far behind its predecessor the reference lets an entry of a log be


def apply_updates(
    metadata: Metadata | None, updates: Sequence[Update], *, now_ms: int, base_location: str | None
) -> dict[str, Any]:
    """
    Return the metadata that results from applying `updates`, as `parse_updates` or `create_updates` returned them.

    `metadata` None creates a table: the updates must define all of it. `now_ms` is the time of the change in
    milliseconds since 1970; `base_location` is the file that holds `metadata`, for the metadata log. If the updates
    change nothing, the result equals `metadata`, and there is nothing to commit.

    Raises:
        InvalidUpdateError: if an update does not fit the table; its `field` names it.
        RequirementFailedError: if a snapshot was made from an older state; its writer may refresh and try again.
        CorruptMetadataError: if `metadata` is not table metadata.
    """
    draft = _empty_draft(updates) if metadata is None else open_draft(metadata)
    draft.now_ms = now_ms
    for position, update in enumerate(updates):
        try:
            APPLY[update["action"]](draft, update)
        except InvalidUpdateError as error:
            error.field = f"updates[{position}]"
            raise
    if metadata is not None and not draft.is_changed:
        return dict(metadata)
    _check_definitions(draft)
    snapshot_updates.settle_snapshot_log(draft)
    if metadata is not None and base_location is not None:
        _log_previous(draft, base_location)
    draft.last_updated_ms = now_ms
    _check_snapshots(draft)
    _check_times(draft)
    return write_draft(draft)


def _empty_draft(updates: Sequence[Update]) -> Draft:
    """A create may name any version, wherever in its updates; only tables that exist can no longer be downgraded."""
    versions = [update["format-version"] for update in updates if update["action"] == "upgrade-format-version"]
    version = versions[0] if versions else FORMAT_VERSION_DEFAULT
    if version > FORMAT_VERSION_MAX:
        raise InvalidUpdateError(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})")
    return empty_draft(version)


def _check_definitions(draft: Draft) -> None:
    """Check that a table has all it needs, and that its specs and its order fit the schema in force."""
    columns = draft.columns()
    spec, order = draft.specs.current, draft.orders.current
    if not draft.specs.by_id:
        raise InvalidUpdateError("Partition specs cannot be null or empty")
    if not draft.orders.by_id:
        raise InvalidUpdateError("Sort orders cannot be null or empty")
    if spec is None:
        raise InvalidUpdateError("Cannot find a default partition spec: set-default-spec is missing")
    if order is None:
        raise InvalidUpdateError("Cannot find a default sort order: set-default-sort-order is missing")
    check_sources(spec, columns)
    check_order(order, columns)
    if draft.schemas.current_id != draft.members.get("current-schema-id"):
        for past_spec in draft.specs.by_id.values():
            check_readable(past_spec, columns)
    if draft.format_version > 1 and draft.table_uuid is None:
        raise InvalidUpdateError(f"UUID is required in format v{draft.format_version}")
    if draft.location is None:
        raise InvalidUpdateError(f"Table location is required in format v{draft.format_version}")


def _check_snapshots(draft: Draft) -> None:
    for name, ref in draft.refs.items():
        if ref["snapshot-id"] not in draft.snapshots:
            text = f"Snapshot for reference {name} does not exist in the existing snapshots list"
            raise InvalidUpdateError(text)
    current, main = draft.current_snapshot_id, draft.refs.get(MAIN_BRANCH, {}).get("snapshot-id")
    if current is not None and current not in draft.snapshots:
        raise InvalidUpdateError("Invalid table metadata: Cannot find current version")
    if current is not None and main not in {None, current}:
        raise InvalidUpdateError(f"Current snapshot ID does not match main branch ({current} != {main})")
    if current is None and main is not None:
        raise InvalidUpdateError(f"Current snapshot is not set, but main branch exists: {main}")


def _log_previous(draft: Draft, base_location: str) -> None:
    """Append the metadata file that this commit replaces, and forget the oldest ones beyond the table's limit."""
    count_max = max(1, integer_property(draft.properties, PREVIOUS_VERSIONS_MAX, PREVIOUS_VERSIONS_MAX_DEFAULT))
    entry: JsonObject = {"timestamp-ms": draft.last_updated_ms, "metadata-file": base_location}
    draft.metadata_log = [*draft.metadata_log, entry][-count_max:]


def _check_times(draft: Draft) -> None:
    """Check what every reader of the reference checks: logs run forward, give or take a minute of clock skew."""
    # Of a metadata log that a commit here has written, its times were checked then: the last one is new.
    files = draft.metadata_log[-2:] if draft.is_metadata_log_checked else draft.metadata_log
    for log, noun in ((draft.snapshot_log, "snapshot log"), (files, "previous metadata log")):
        times = [entry["timestamp-ms"] for entry in log]
        if times != sorted(times) and any(after < before - _CLOCK_SKEW_MS for before, after in pairwise(times)):
            raise InvalidUpdateError(f"[BUG] Expected sorted {noun} entries.")
    draft.is_metadata_log_checked = True
    for log, noun in (
        (draft.snapshot_log, "last snapshot log entry at"),
        (draft.metadata_log, "the latest metadata log entry timestamp"),
    ):
        if log and draft.last_updated_ms < log[-1]["timestamp-ms"] - _CLOCK_SKEW_MS:
            text = f"Invalid update timestamp {draft.last_updated_ms}: before {noun} {log[-1]['timestamp-ms']}"
            raise InvalidUpdateError(text)
