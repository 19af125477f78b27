# SPDX-License-Identifier: Apache-2.0
"""
The commits that Spark sent, replayed in the order in which they were made.

Where the capture holds the answer it is compared as it is. Everywhere else each commit must find its requirements met
by what the commits before it made, and PyIceberg must make the same of it. What was not captured (the creation of three
tables, a few of their commits) is filled in with the least that the next request takes for granted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import pytest
from pydantic import BaseModel, TypeAdapter
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

from gateway.errors import BadRequestError, RequirementFailedError
from gateway.metadata import (
    added_snapshot_ids,
    apply_updates,
    check_requirements,
    create_updates,
    parse_requirements,
    parse_updates,
)

Captured = Callable[[str], dict[str, Any]]
_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])

# table t of namespace db, in the order of sequence numbers, ids and refs; None: a snapshot that was not captured
T_ON_V2 = (
    "append",
    None,
    "update_cow",
    "delete_cow",
    "delete_metadata",
    "merge_cow",
    "insert_overwrite_static",
    "overwrite_partitions_dynamic",
    "overwrite_filter",
    "set_properties",
    "set_properties_2",
    "delete_mor_v2",
    "update_mor_v2",
    "merge_mor_v2",
    "truncate",
    "truncate_2",
    "alter_add_column",
    "alter_rename_column",
    "alter_drop_column",
    "alter_set_identifier_fields",
    "alter_add_partition_field",
    "alter_write_ordered_by",
    "create_branch",
    "create_tag",
)
T_ON_V3 = (
    "upgrade_format_version",
    "append_branch",
    "delete_mor_v3_dv",
    "fast_forward",
    "drop_branch",
    "append_wap_staged",
    "publish_changes",
    "rollback_to_snapshot",
    None,
    "rewrite_data_files",
    "rewrite_manifests",
    "compute_table_stats",
    "expire_snapshots",
)
V3 = (
    "delete_v3_dv",
    "update_v3_dv",
    "delete_no_match",
    "merge_no_match",
    "append_snapshot_property",
    "append_conf_snapshot_property",
)


class Replay(Protocol):
    def __call__(self, base: dict[str, Any], name: str) -> dict[str, Any]: ...


@pytest.fixture
def replay(captured: Captured) -> Replay:
    """Commit one captured request to `base`, its requirements checked, and compare with what PyIceberg makes of it."""

    def run(base: dict[str, Any], name: str) -> dict[str, Any]:
        request = captured(f"commit_{name}")["req"]
        updates = parse_updates(request["updates"])
        check_requirements(base, parse_requirements(request["requirements"]))
        result = apply_updates(base, updates, now_ms=_time_of(base, request), base_location=f"file:/metadata/{name}")
        assert result != base, f"{name} changed nothing"
        if name != "upgrade_format_version":  # PyIceberg does not upgrade to version 3
            _compare_with_pyiceberg(base, request["updates"], result, f"file:/metadata/{name}")
        return result

    return run


def _time_of(base: dict[str, Any], request: dict[str, Any]) -> int:
    snapshots = [update["snapshot"] for update in request["updates"] if update["action"] == "add-snapshot"]
    return int(snapshots[-1]["timestamp-ms"]) if snapshots else int(base["last-updated-ms"]) + 1


def _compare_with_pyiceberg(
    base: dict[str, Any], updates: list[dict[str, Any]], result: dict[str, Any], location: str
) -> None:
    changed = update_table_metadata(
        TableMetadataUtil.parse_obj(base), _UPDATES.validate_python(updates), metadata_location=location
    )
    theirs = _members(changed)
    ours = _members(TableMetadataUtil.parse_obj(result))
    for metadata in (theirs, ours):
        metadata.pop("last-updated-ms")
        # PyIceberg takes the time of a rollback from its clock
        metadata["snapshot-log"] = [entry["snapshot-id"] for entry in metadata["snapshot-log"]]
        for schema in metadata["schemas"]:
            schema.setdefault("identifier-field-ids", [])
    if any(update["action"] == "remove-snapshots" for update in updates):
        # PyIceberg also cuts the parents off and keeps the log of what was current before
        for metadata in (theirs, ours):
            for snapshot in metadata["snapshots"]:
                snapshot.pop("parent-snapshot-id", None)
        assert ours["snapshot-log"] == theirs["snapshot-log"][-len(ours["snapshot-log"]) :]
        theirs["snapshot-log"] = ours["snapshot-log"]
    assert ours == theirs


def _members(metadata: TableMetadata) -> dict[str, Any]:
    # PyIceberg's own method refuses to write version 3
    return BaseModel.model_dump(metadata, mode="json", by_alias=True, exclude_none=True)


def _fill_in(base: dict[str, Any], snapshot_id: int, parent_id: int | None, **members: Any) -> dict[str, Any]:
    snapshot = {
        "snapshot-id": snapshot_id,
        "sequence-number": base["last-sequence-number"] + 1,
        "timestamp-ms": base["last-updated-ms"] + 1,
        "manifest-list": "file:/not/captured.avro",
        "summary": {"operation": "append"},
        "parent-snapshot-id": parent_id,
        **members,
    }
    updates = parse_updates(
        [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": snapshot_id, "type": "branch"},
        ]
    )
    return apply_updates(base, updates, now_ms=base["last-updated-ms"] + 1, base_location=None)


def _uuid_in(request: dict[str, Any]) -> str:
    return str(next(one["uuid"] for one in request["req"]["requirements"] if one["type"] == "assert-table-uuid"))


def _created(captured: Captured, uuid: str, version: int, *columns: str) -> dict[str, Any]:
    """A table that was made before the capture began, with columns of the type of its first one."""
    fields = [{"id": n, "name": name, "required": False, "type": "int"} for n, name in enumerate(columns)]
    request = {"schema": {"type": "struct", "fields": fields}, "properties": {"format-version": str(version)}}
    updates = create_updates(request, table_uuid=uuid, location="file:/warehouse/wh/not/captured")
    now_ms = captured("request_create_table")["resp"]["metadata"]["last-updated-ms"]
    return apply_updates(None, updates, now_ms=now_ms, base_location=None)


def test_the_table_spark_created_is_the_one_the_server_answered_with(captured: Captured) -> None:
    capture = captured("request_create_table")
    expected = capture["resp"]["metadata"]
    updates = create_updates(capture["req"], table_uuid=expected["table-uuid"], location=expected["location"])
    assert apply_updates(None, updates, now_ms=expected["last-updated-ms"], base_location=None) == expected


def test_the_first_append_results_in_what_the_server_answered(captured: Captured) -> None:
    created = captured("request_create_table")["resp"]
    capture = captured("commit_append")
    expected = capture["resp"]["metadata"]
    check_requirements(created["metadata"], parse_requirements(capture["req"]["requirements"]))
    result = apply_updates(
        created["metadata"],
        parse_updates(capture["req"]["updates"]),
        now_ms=expected["last-updated-ms"],
        base_location=created["metadata-location"],
    )
    assert result == expected


def test_all_commits_to_one_table_follow_each_other(captured: Captured, replay: Replay) -> None:
    metadata = captured("request_create_table")["resp"]["metadata"]
    for name in T_ON_V2:
        if name is None:
            metadata = _fill_in(metadata, 5992046607084609981, metadata["current-snapshot-id"])
        else:
            metadata = replay(metadata, name)
    assert metadata["last-sequence-number"] == 15
    assert [schema["schema-id"] for schema in metadata["schemas"]] == [0, 1, 2, 3]
    assert metadata["current-schema-id"] == 3
    assert (metadata["last-column-id"], metadata["last-partition-id"]) == (4, 1001)
    assert (metadata["default-spec-id"], metadata["default-sort-order-id"]) == (1, 1)
    assert set(metadata["refs"]) == {"main", "audit", "v1"}
    assert len(metadata["snapshot-log"]) == 15

    for name in T_ON_V3:
        if name is None:
            back = [
                {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1776224806253496113, "type": "branch"}
            ]
            metadata = apply_updates(
                metadata, parse_updates(back), now_ms=metadata["last-updated-ms"] + 1, base_location=None
            )
        else:
            metadata = replay(metadata, name)
    assert (metadata["format-version"], metadata["next-row-id"], metadata["last-sequence-number"]) == (3, 10, 20)
    assert [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]] == [3989193525929402197]
    assert list(metadata["refs"]) == ["main"], "the tag on an expired snapshot is gone with it"
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [3989193525929402197]
    assert [file["snapshot-id"] for file in metadata["statistics"]] == [3989193525929402197]


def test_row_ids_of_a_v3_table_are_given_out_once(captured: Captured, replay: Replay) -> None:
    first = captured(f"commit_{V3[0]}")
    parent_id = first["req"]["updates"][0]["snapshot"]["parent-snapshot-id"]
    metadata = _created(captured, _uuid_in(first), 3, "id")
    metadata = _fill_in(metadata, parent_id, None, **{"first-row-id": 0, "added-rows": 100})
    for name in V3:
        metadata = replay(metadata, name)
    assert metadata["next-row-id"] == 103


def test_streaming_appends_follow_each_other(captured: Captured, replay: Replay) -> None:
    names = ("streaming_append", "streaming_append_2", "streaming_append_3")
    metadata = _created(captured, _uuid_in(captured(f"commit_{names[0]}")), 2, "id")
    for name in names:
        metadata = replay(metadata, name)
    assert [entry["snapshot-id"] for entry in metadata["snapshot-log"]] == [
        2145388953838085933,
        4794861433255620752,
        7623693417046993881,
    ]


def test_a_staged_create_makes_its_table(captured: Captured) -> None:
    request = captured("commit_ctas")["req"]
    check_requirements(None, parse_requirements(request["requirements"]))
    metadata = apply_updates(None, parse_updates(request["updates"]), now_ms=1795173720200, base_location=None)
    assert metadata["table-uuid"] == "b9f9afd4-9b6b-4041-bd60-0c09f82ef377"
    assert (metadata["last-column-id"], metadata["last-partition-id"]) == (3, 999)
    assert (metadata["current-schema-id"], metadata["default-spec-id"], metadata["default-sort-order-id"]) == (0, 0, 0)
    assert metadata["current-snapshot-id"] == 4470257548822994920
    assert metadata["metadata-log"] == []
    TableMetadataUtil.parse_obj(metadata)


def test_replacing_a_table_keeps_its_history(captured: Captured, replay: Replay) -> None:
    metadata = _created(captured, _uuid_in(captured("commit_create_or_replace_existing")), 2, "a")
    metadata = _fill_in(metadata, 1, None)
    metadata = replay(metadata, "create_or_replace_existing")
    assert metadata["current-schema-id"] == 1
    assert [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]] == [1, 2995263325972111372]
    metadata = _fill_in(metadata, 4562304933801674949, 2995263325972111372)
    metadata = replay(metadata, "join_insert_select")
    assert metadata["last-sequence-number"] == 4


def test_a_commit_out_of_order_is_refused(captured: Captured) -> None:
    metadata = captured("commit_append")["resp"]["metadata"]
    request = captured("commit_delete_cow")["req"]
    with pytest.raises(RequirementFailedError, match="branch main has changed: expected id 7528652506582753012"):
        check_requirements(metadata, parse_requirements(request["requirements"]))


def test_a_commit_to_a_view_is_refused_by_name(captured: Captured) -> None:
    request = captured("commit_replace_view")["req"]
    with pytest.raises(BadRequestError, match=r"updates\[2\].action: Cannot apply update add-view-version to a table"):
        parse_updates(request["updates"])
    with pytest.raises(BadRequestError, match="Cannot validate AssertViewUUID against a table: assert-view-uuid"):
        check_requirements(None, parse_requirements(request["requirements"]))


def test_every_captured_snapshot_is_named(captured: Captured) -> None:
    updates = parse_updates(captured("commit_merge_mor_v2")["req"]["updates"])
    assert added_snapshot_ids(updates) == ("1485286262454410589",)
