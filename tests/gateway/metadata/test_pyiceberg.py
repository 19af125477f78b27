# SPDX-License-Identifier: Apache-2.0
"""
What PyIceberg makes of the same updates, for every update it applies and for random sequences of them.

PyIceberg takes ids as the client proposes them and fails where the reference passes over what is not there, so the
updates here propose the ids a careful client would. Where the two disagree about a result, the reference decides:

- the log of what was current loses, with a snapshot, all that came before it (PyIceberg removes that entry only);
- snapshots keep the id of a parent that was removed (PyIceberg clears it);
- version 1 repeats the schema and spec in force for older readers (PyIceberg leaves those of before).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import TableUpdate, update_table_metadata

from gateway.metadata import apply_updates, parse_updates

NOW_MS = 1_795_200_000_000
BASE = "file:///warehouse/db/t/metadata/00001-a.metadata.json"
_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])

Update = dict[str, Any]


def _compare(table: dict[str, Any], updates: list[Update]) -> dict[str, Any]:
    """Apply `updates` both ways, check that the results agree, and return ours."""
    result = apply_updates(table, parse_updates(updates), now_ms=NOW_MS, base_location=BASE)
    changed = update_table_metadata(
        TableMetadataUtil.parse_obj(table), _UPDATES.validate_python(updates), metadata_location=BASE
    )
    ours, theirs = _members(TableMetadataUtil.parse_obj(result)), _members(changed)
    removed = {one for update in updates for one in update.get("snapshot-ids", ())}
    if removed:
        assert ours["snapshot-log"] == theirs["snapshot-log"][len(theirs["snapshot-log"]) - len(ours["snapshot-log"]) :]
        theirs["snapshot-log"] = ours["snapshot-log"]
        for snapshot in (*ours["snapshots"], *theirs["snapshots"]):
            if snapshot.get("parent-snapshot-id") in removed:
                del snapshot["parent-snapshot-id"]
    assert ours == theirs
    return result


def _members(metadata: TableMetadata) -> dict[str, Any]:
    # PyIceberg's own method refuses to write version 3
    members = BaseModel.model_dump(metadata, mode="json", by_alias=True, exclude_none=True)
    del members["last-updated-ms"]  # PyIceberg takes it from its clock, or from a snapshot
    members.pop("schema", None)
    members.pop("partition-spec", None)
    members["snapshot-log"] = [entry["snapshot-id"] for entry in members["snapshot-log"]]
    return members


def _snapshot(table: dict[str, Any], snapshot_id: int, offset: int = 1, rows: int = 3) -> Update:
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": NOW_MS,
        "manifest-list": f"file:/{snapshot_id}.avro",
        "summary": {"operation": "append", "added-records": "3"},
        "schema-id": table["current-schema-id"],
        "sequence-number": table.get("last-sequence-number", -offset) + offset,
    }
    if table["current-snapshot-id"] not in {None, -1}:
        snapshot["parent-snapshot-id"] = table["current-snapshot-id"]
    if table["format-version"] == 3:
        snapshot |= {"first-row-id": table["next-row-id"] + (offset - 1) * rows, "added-rows": rows}
    return {"action": "add-snapshot", "snapshot": snapshot}


def _ref(name: str, snapshot_id: int, kind: str = "branch") -> Update:
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind}


def _next_schema(table: dict[str, Any]) -> Update:
    column_id = table["last-column-id"] + 1
    current = next(schema for schema in table["schemas"] if schema["schema-id"] == table["current-schema-id"])
    field = {"id": column_id, "name": f"c{column_id}", "required": False, "type": "decimal(9, 2)", "doc": "new"}
    schema_id = max(schema["schema-id"] for schema in table["schemas"]) + 1
    schema = {"type": "struct", "schema-id": schema_id, "identifier-field-ids": [1]}
    return {"action": "add-schema", "schema": schema | {"fields": [*current["fields"], field]}}


def _next_spec(table: dict[str, Any]) -> Update:
    spec_id = max(spec["spec-id"] for spec in table["partition-specs"]) + 1
    field_id = table["last-partition-id"] + 1
    fields = [{"source-id": 1, "field-id": field_id, "transform": f"bucket[{spec_id + 1}]", "name": f"p{field_id}"}]
    if table["format-version"] == 1:
        fields[0] |= {"field-id": 1000}
    return {"action": "add-spec", "spec": {"spec-id": spec_id, "fields": fields}}


def _next_order(table: dict[str, Any]) -> Update:
    order_id = max(order["order-id"] for order in table["sort-orders"]) + 1
    field = {"source-id": 1, "transform": f"truncate[{order_id}]", "direction": "desc", "null-order": "nulls-last"}
    return {"action": "add-sort-order", "sort-order": {"order-id": order_id, "fields": [field]}}


def _statistics(snapshot_id: int) -> Update:
    blob = {
        "type": "apache-datasketches-theta-v1",
        "snapshot-id": snapshot_id,
        "sequence-number": 1,
        "fields": [1],
        "properties": {"ndv": "3"},
    }
    file = {
        "snapshot-id": snapshot_id,
        "statistics-path": "file:/s.puffin",
        "file-size-in-bytes": 2,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [blob],
    }
    return {"action": "set-statistics", "snapshot-id": snapshot_id, "statistics": file}


def _partition_statistics(snapshot_id: int) -> Update:
    file = {"snapshot-id": snapshot_id, "statistics-path": "file:/p.parquet", "file-size-in-bytes": 2}
    return {"action": "set-partition-statistics", "partition-statistics": file}


SEQUENCES: dict[str, Callable[[dict[str, Any]], list[Update]]] = {
    "append": lambda t: [_snapshot(t, 13), _ref("main", 13)],
    "two appends": lambda t: [_snapshot(t, 13), _snapshot(t, 14, 2), _ref("main", 14)],
    "staged": lambda t: [_snapshot(t, 13)],
    "rollback": lambda _: [_ref("main", 11)],
    "branch and tag": lambda _: [_ref("b", 11) | {"min-snapshots-to-keep": 3}, _ref("t", 12, "tag")],
    "no main": lambda _: [{"action": "remove-snapshot-ref", "ref-name": "main"}],
    "remove ref": lambda _: [{"action": "remove-snapshot-ref", "ref-name": "first"}],
    "expire": lambda _: [{"action": "remove-snapshots", "snapshot-ids": [11]}],
    "expire all": lambda _: [{"action": "remove-snapshots", "snapshot-ids": [11, 12]}],
    "schema": lambda t: [_next_schema(t), {"action": "set-current-schema", "schema-id": -1}],
    "schema aside": lambda t: [_next_schema(t)],
    "spec": lambda t: [_next_spec(t), {"action": "set-default-spec", "spec-id": -1}],
    "spec by id": lambda t: [_next_spec(t), {"action": "set-default-spec", "spec-id": 1}],
    "remove spec": lambda t: [
        _next_spec(t),
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "remove-partition-specs", "spec-ids": [0]},
    ],
    "remove schema": lambda t: [
        _next_schema(t),
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "remove-schemas", "schema-ids": [0]},
    ],
    "order": lambda t: [_next_order(t), {"action": "set-default-sort-order", "sort-order-id": -1}],
    "properties": lambda _: [
        {"action": "set-properties", "updates": {"a": "b", "write.metadata.previous-versions-max": "1"}},
        {"action": "remove-properties", "removals": ["owner"]},
    ],
    "location": lambda _: [{"action": "set-location", "location": "file:///elsewhere"}],
    "same uuid": lambda t: [
        {"action": "assign-uuid", "uuid": t["table-uuid"]},
        {"action": "set-properties", "updates": {"a": "b"}},
    ],
    "statistics": lambda _: [_statistics(11), _statistics(12), _statistics(11)],
    "remove statistics": lambda _: [_statistics(11), {"action": "remove-statistics", "snapshot-id": 11}],
    "partition statistics": lambda _: [_partition_statistics(11), _partition_statistics(12)],
    "remove partition statistics": lambda _: [
        _partition_statistics(11),
        {"action": "remove-partition-statistics", "snapshot-id": 11},
    ],
}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("name", SEQUENCES)
def test_each_update_makes_what_pyiceberg_makes(
    table_of_version: Callable[[int], dict[str, Any]], version: int, name: str
) -> None:
    table = table_of_version(version)
    assert _compare(table, SEQUENCES[name](table)) != table


def test_an_upgrade_makes_what_pyiceberg_makes(table_of_version: Callable[[int], dict[str, Any]]) -> None:
    result = _compare(table_of_version(1), [{"action": "upgrade-format-version", "format-version": 2}])
    assert result["format-version"] == 2


def _draw_updates(data: st.DataObject, table: dict[str, Any], fresh_id: int) -> list[Update]:
    snapshots = [snapshot["snapshot-id"] for snapshot in table["snapshots"]]
    choices: list[list[Update]] = [
        [_snapshot(table, fresh_id), _ref("main", fresh_id)],
        [_snapshot(table, fresh_id), _ref("audit", fresh_id)],
        [_snapshot(table, fresh_id), _snapshot(table, fresh_id + 1, 2), _ref("main", fresh_id + 1)],
        [_next_schema(table), {"action": "set-current-schema", "schema-id": -1}],
        [{"action": "set-current-schema", "schema-id": table["schemas"][0]["schema-id"]}],
        [_next_spec(table), {"action": "set-default-spec", "spec-id": -1}],
        [_next_order(table), {"action": "set-default-sort-order", "sort-order-id": -1}],
        [{"action": "set-properties", "updates": {f"p{fresh_id}": "x"}}],
        [{"action": "set-location", "location": f"file:///l{fresh_id}"}],
        *([{"action": "remove-snapshot-ref", "ref-name": name}] for name in table["refs"]),
        *([_ref("main", one)] for one in snapshots),
        *([_ref("audit", one)] for one in snapshots),
        *([_ref("v1", one, "tag")] for one in snapshots),
        *([{"action": "remove-snapshots", "snapshot-ids": [one]}] for one in snapshots),
        *([_statistics(one)] for one in snapshots),
    ]
    return data.draw(st.sampled_from(choices))


@settings(max_examples=25, deadline=None)
@given(data=st.data(), version=st.sampled_from([2, 3]), commits=st.integers(1, 6))
def test_random_histories_make_what_pyiceberg_makes(data: st.DataObject, version: int, commits: int) -> None:
    table = _small_table(version)
    for number in range(commits):
        table = _compare(table, _draw_updates(data, table, 100 + 10 * number))


def _small_table(version: int) -> dict[str, Any]:
    table: dict[str, Any] = {
        "format-version": version,
        "table-uuid": "0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01",
        "location": "file:///warehouse/db/t",
        "last-sequence-number": 0,
        "last-updated-ms": NOW_MS,
        "last-column-id": 1,
        "current-schema-id": 0,
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "identifier-field-ids": [1],
                "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}],
            }
        ],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {},
        "current-snapshot-id": -1 if version < 3 else None,
        "refs": {},
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    return table | ({"next-row-id": 0} if version == 3 else {})
