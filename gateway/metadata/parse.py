# SPDX-License-Identifier: Apache-2.0
"""
Parse the updates of a commit: shapes and bounds, nothing about a table yet.

What comes out is plain JSON that the rest of this package relies on: every member it reads is there with its right
shape, members that are null are gone, and the older names `updated` and `removed` are replaced by those of the
specification. Unknown members are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from gateway.errors import BadRequestError
from gateway.metadata.draft import Update
from gateway.metadata.partitions import parse_spec
from gateway.metadata.schemas import parse_schema
from gateway.metadata.shapes import (
    INT32_MAX,
    INT64_MAX,
    JsonObject,
    as_list,
    as_object,
    as_text,
    check_bounds,
    found,
    read_ids,
    read_int,
    read_int_or_none,
    read_list,
    read_object,
    read_text,
    read_text_or_none,
    read_texts,
    without_nulls,
)
from gateway.metadata.sorting import parse_order

UPDATES_MAX: Final = 25_000  # the reference expires each snapshot in an update of its own, statistics in two more
CHANGES_MAX: Final = 1_000  # updates that remove nothing: a schema change has a few, a replaced table a few dozens
DEFINITIONS_MAX: Final = 1_000  # schemas, specs and orders added by one commit: each is compared with those there are

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_OPERATIONS: Final = ("append", "replace", "overwrite", "delete")
_VIEW_UPDATES: Final = frozenset({"add-view-version", "set-current-view-version"})
_LAST_ADDED: Final = -1
# of branches and tags: the member, its highest value, what the reference calls it, for tags (None: they may have it)
# and for numbers that are too low
_RETENTION: Final = (
    ("min-snapshots-to-keep", INT32_MAX, "minSnapshotsToKeep", "Min snapshots to keep", ""),
    ("max-snapshot-age-ms", INT64_MAX, "maxSnapshotAgeMs", "Max snapshot age", " ms"),
    ("max-ref-age-ms", INT64_MAX, None, "Max reference age", ""),
)


def parse_updates(raw: object, at: str = "updates") -> list[Update]:
    """
    Return the updates of a commit to a table, checked and normalised.

    Raises:
        BadRequestError: naming the member that is wrong, as in `updates[3].snapshot-id`; also for an action that is not
            known or is for views only, and for too many updates.
    """
    items = as_list(raw, at, count_max=UPDATES_MAX)
    if len(items) > CHANGES_MAX:  # before anything is looked at more closely
        changes = (item for item in items if not _removes(item))
        if next(islice(changes, CHANGES_MAX, None), None) is not None:
            raise BadRequestError(f"expected at most {CHANGES_MAX} updates beside removals, found more", field=at)
    check_bounds(raw, at)
    updates: list[Update] = [_parse_update(item, f"{at}[{index}]") for index, item in enumerate(items)]
    if len(updates) > DEFINITIONS_MAX:
        added = sum(update["action"] in {"add-schema", "add-spec", "add-sort-order"} for update in updates)
        if added > DEFINITIONS_MAX:
            raise BadRequestError(
                f"expected at most {DEFINITIONS_MAX} schemas, specs and sort orders, found {added}", field=at
            )
    return updates


def _removes(item: object) -> bool:
    action = item.get("action") if isinstance(item, dict) else None
    return isinstance(action, str) and action[:7].lower() == "remove-"


def _parse_update(value: object, at: str) -> JsonObject:
    update = without_nulls(as_object(value, at))
    action = read_text(update, "action", at).lower()
    if action in _VIEW_UPDATES:
        raise BadRequestError(f"Cannot apply update {action} to a table", field=f"{at}.action")
    parse = UPDATES.get(action)
    if parse is None:
        raise BadRequestError(f"unknown update action {found(update['action'])}", field=f"{at}.action")
    update["action"] = action
    parse(update, at)
    return update


def _assign_uuid(update: JsonObject, at: str) -> None:
    if not _UUID.fullmatch(read_text(update, "uuid", at)):
        raise BadRequestError(f"expected a UUID, found {found(update['uuid'])}", field=f"{at}.uuid")


def _upgrade_format_version(update: JsonObject, at: str) -> None:
    read_int(update, "format-version", at, least=1, most=INT32_MAX)


def _add_schema(update: JsonObject, at: str) -> None:
    read_int_or_none(update, "last-column-id", at, most=INT32_MAX)
    update["schema"] = parse_schema(update.get("schema"), f"{at}.schema")


def _add_spec(update: JsonObject, at: str) -> None:
    update["spec"] = parse_spec(update.get("spec"), f"{at}.spec")


def _add_sort_order(update: JsonObject, at: str) -> None:
    update["sort-order"] = parse_order(update.get("sort-order"), f"{at}.sort-order")


def choose(member: str) -> Callable[[JsonObject, str], None]:
    """Return the parser of an update that chooses a definition by its id, or by -1 the one that was added last."""

    def parse(update: JsonObject, at: str) -> None:
        read_int(update, member, at, least=_LAST_ADDED, most=INT32_MAX)

    return parse


def _ids(member: str, most: int = INT32_MAX) -> Callable[[JsonObject, str], None]:
    def parse(update: JsonObject, at: str) -> None:
        read_ids(update, member, at, most=most)

    return parse


def _of_snapshot(update: JsonObject, at: str) -> None:
    read_int(update, "snapshot-id", at)


def _add_snapshot(update: JsonObject, at: str) -> None:
    at = f"{at}.snapshot"
    snapshot = update["snapshot"] = without_nulls(as_object(update.get("snapshot"), at))
    read_int(snapshot, "snapshot-id", at)
    read_int(snapshot, "timestamp-ms", at)
    read_text(snapshot, "manifest-list", at)
    for optional in ("parent-snapshot-id", "sequence-number", "first-row-id", "added-rows"):
        read_int_or_none(snapshot, optional, at)
    read_int_or_none(snapshot, "schema-id", at, most=INT32_MAX)
    read_text_or_none(snapshot, "key-id", at)
    if "first-row-id" in snapshot and "added-rows" not in snapshot:
        raise BadRequestError("Invalid added-rows (required when first-row-id is set): null", field=f"{at}.added-rows")
    if snapshot.get("first-row-id", 0) + snapshot.get("added-rows", 0) > INT64_MAX:
        raise BadRequestError("expected row ids of at most 63 bits", field=f"{at}.added-rows")
    operation = read_texts(snapshot, "summary", at).get("operation")
    if operation not in _OPERATIONS:
        # policies judge by the operation, so that a snapshot cannot go without
        expected = ", ".join(repr(one) for one in _OPERATIONS)
        raise BadRequestError(f"expected one of {expected}, found {found(operation)}", field=f"{at}.summary.operation")


def _set_snapshot_ref(update: JsonObject, at: str) -> None:
    _of_ref(update, at)
    _of_snapshot(update, at)
    kind = update["type"] = read_text(update, "type", at).lower()
    if kind not in {"branch", "tag"}:
        raise BadRequestError(f"expected 'branch' or 'tag', found {found(kind)}", field=f"{at}.type")
    for member, most, reference_name, noun, unit in _RETENTION:
        value = read_int_or_none(update, member, at, least=-most - 1, most=most)
        if value is not None and kind == "tag" and reference_name is not None:
            raise BadRequestError(f"Tags do not support setting {reference_name}", field=f"{at}.{member}")
        if value is not None and value <= 0:
            raise BadRequestError(f"{noun} must be greater than 0{unit}", field=f"{at}.{member}")


def _of_ref(update: JsonObject, at: str) -> None:
    if not read_text(update, "ref-name", at):
        raise BadRequestError("expected the name of a branch or tag, found an empty text", field=f"{at}.ref-name")


def _set_location(update: JsonObject, at: str) -> None:
    if not read_text(update, "location", at):
        raise BadRequestError("expected a location, found an empty text", field=f"{at}.location")


def _set_properties(update: JsonObject, at: str) -> None:
    _rename(update, "updated", "updates")
    read_texts(update, "updates", at)


def _remove_properties(update: JsonObject, at: str) -> None:
    _rename(update, "removed", "removals")
    for index, name in enumerate(read_list(update, "removals", at)):
        as_text(name, f"{at}.removals[{index}]")


def _rename(update: JsonObject, old: str, new: str) -> None:
    value = update.pop(old, None)
    if value is not None:
        update.setdefault(new, value)


def _set_statistics(update: JsonObject, at: str) -> None:
    file = update["statistics"] = without_nulls(read_object(update, "statistics", at))
    _check_file(file, f"{at}.statistics")
    read_int(file, "file-footer-size-in-bytes", f"{at}.statistics")
    for index, value in enumerate(read_list(file, "blob-metadata", f"{at}.statistics")):
        blob_at = f"{at}.statistics.blob-metadata[{index}]"
        blob = as_object(value, blob_at)
        read_text(blob, "type", blob_at)
        read_int(blob, "snapshot-id", blob_at)
        read_int(blob, "sequence-number", blob_at)
        read_ids(blob, "fields", blob_at)
    if read_int_or_none(update, "snapshot-id", at) not in {None, file["snapshot-id"]}:
        raise BadRequestError(
            f"expected the snapshot-id of statistics, {file['snapshot-id']}", field=f"{at}.snapshot-id"
        )


def _set_partition_statistics(update: JsonObject, at: str) -> None:
    file = update["partition-statistics"] = without_nulls(read_object(update, "partition-statistics", at))
    _check_file(file, f"{at}.partition-statistics")


def _check_file(file: JsonObject, at: str) -> None:
    read_int(file, "snapshot-id", at)
    read_text(file, "statistics-path", at)
    read_int(file, "file-size-in-bytes", at)


def _add_encryption_key(update: JsonObject, at: str) -> None:
    at = f"{at}.encryption-key"
    key = update["encryption-key"] = without_nulls(as_object(update.get("encryption-key"), at))
    read_text(key, "key-id", at)
    read_text(key, "encrypted-key-metadata", at)
    read_text_or_none(key, "encrypted-by-id", at)
    if "properties" in key:
        read_texts(key, "properties", at)


def _remove_encryption_key(update: JsonObject, at: str) -> None:
    read_text(update, "key-id", at)


UPDATES: Final[Mapping[str, Callable[[JsonObject, str], None]]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-encryption-key": _add_encryption_key,
    "remove-encryption-key": _remove_encryption_key,
    "add-schema": _add_schema,
    "set-current-schema": choose("schema-id"),
    "remove-schemas": _ids("schema-ids"),
    "add-spec": _add_spec,
    "set-default-spec": choose("spec-id"),
    "remove-partition-specs": _ids("spec-ids"),
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": choose("sort-order-id"),
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_snapshot_ref,
    "remove-snapshot-ref": _of_ref,
    "remove-snapshots": _ids("snapshot-ids", INT64_MAX),
    "set-statistics": _set_statistics,
    "remove-statistics": _of_snapshot,
    "set-partition-statistics": _set_partition_statistics,
    "remove-partition-statistics": _of_snapshot,
}
