# SPDX-License-Identifier: Apache-2.0
"""
The actions of a commit in Nessie's vocabulary.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.metadata import added_snapshot_ids, commit_actions, create_updates, parse_updates


def _append(**summary: str) -> list[dict[str, Any]]:
    counts = {name.replace("_", "-"): value for name, value in summary.items()}
    snapshot = {
        "snapshot-id": 2**62 + 1,
        "timestamp-ms": 1,
        "manifest-list": "file:/m",
        "summary": {"operation": "append"} | counts,
    }
    return [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 2**62 + 1, "type": "branch"},
    ]


def test_an_append_names_what_it_counts() -> None:
    updates = parse_updates(_append(added_data_files="2", added_records="3", deleted_records="0", total_records="9"))
    assert commit_actions(updates) == (
        "META_ADD_SNAPSHOT",
        "META_SET_SNAPSHOT_REF",
        "SNAP_ADDED_RECORDS",
        "SNAP_ADD_DATA_FILES",
        "SNAP_OP_APPEND",
    )
    assert added_snapshot_ids(updates) == ("4611686018427387905",)


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("deleted-data-files", "SNAP_DELETE_DATA_FILES"),
        ("added-delete-files", "SNAP_ADD_DELETE_FILES"),
        ("added-equality-delete-files", "SNAP_ADD_EQUALITY_DELETE_FILES"),
        ("added-position-delete-files", "SNAP_ADD_POSITION_DELETE_FILES"),
        ("removed-delete-files", "SNAP_REMOVE_DELETE_FILES"),
        ("removed-equality-delete-files", "SNAP_REMOVE_EQUALITY_DELETE_FILES"),
        ("removed-position-delete-files", "SNAP_REMOVE_POSITION_DELETE_FILES"),
        ("deleted-records", "SNAP_DELETED_RECORDS"),
        ("added-position-deletes", "SNAP_ADDED_POSITION_DELETES"),
        ("removed-position-deletes", "SNAP_DELETED_POSITION_DELETES"),
        ("added-equality-deletes", "SNAP_ADDED_EQUALITY_DELETES"),
        ("removed-equality-deletes", "SNAP_DELETED_EQUALITY_DELETES"),
    ],
)
def test_each_count_has_its_action_when_it_is_not_zero(name: str, action: str) -> None:
    for value, is_named in (("1", True), ("0", False), ("00", False), ("", False), ("-1", True), ("9" * 5_000, True)):
        assert (action in commit_actions(parse_updates(_append(**{name: value})))) is is_named, value


@pytest.mark.parametrize("operation", ["append", "replace", "overwrite", "delete"])
def test_each_operation_has_its_action(operation: str) -> None:
    assert f"SNAP_OP_{operation.upper()}" in commit_actions(parse_updates(_append(operation=operation)))


def test_replaced_partitions_are_named() -> None:
    assert "SNAP_REPLACE_PARTITIONS" in commit_actions(parse_updates(_append(replace_partitions="true")))
    assert "SNAP_REPLACE_PARTITIONS" not in commit_actions(parse_updates(_append(replace_partitions="false")))


def test_the_location_among_properties_is_named() -> None:
    assert commit_actions([{"action": "remove-properties", "removals": ["location"]}]) == (
        "META_REMOVE_LOCATION_PROPERTY",
        "META_REMOVE_PROPERTIES",
    )
    assert commit_actions([{"action": "set-properties", "updates": {"location": "x"}}]) == (
        "META_SET_LOCATION",
        "META_SET_PROPERTIES",
    )


def test_a_create_names_all_that_it_sets() -> None:
    request = {"schema": {"fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}}
    updates = create_updates(request, table_uuid="0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01", location="file:/t")
    assert commit_actions(updates) == (
        "META_ADD_PARTITION_SPEC",
        "META_ADD_SCHEMA",
        "META_ADD_SORT_ORDER",
        "META_ASSIGN_UUID",
        "META_SET_CURRENT_SCHEMA",
        "META_SET_DEFAULT_PARTITION_SPEC",
        "META_SET_DEFAULT_SORT_ORDER",
        "META_SET_LOCATION",
        "META_SET_PROPERTIES",
        "META_UPGRADE_FORMAT_VERSION",
    )
    assert added_snapshot_ids(updates) == ()


def test_doing_nothing_has_no_name() -> None:
    assert commit_actions([]) == ()
