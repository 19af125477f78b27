# SPDX-License-Identifier: Apache-2.0
"""
Properties of every commit: nothing is lost, the input does not change, logs and versions are right.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from gateway.metadata import CorruptMetadataError, InvalidUpdateError, apply_updates

Commit = Callable[..., dict[str, Any]]
Versions = Callable[[int], dict[str, Any]]
NOW_MS = 1_795_200_000_000
BASE = "file:///warehouse/db/t/metadata/00001-a.metadata.json"
TOUCH = {"action": "set-properties", "updates": {"touched": "yes"}}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_unknown_members_survive(commit: Commit, table_of_version: Versions, version: int) -> None:
    table = table_of_version(version)
    unknown = {"x": [1, {"y": None}], "z": 1.5}
    table["x-top"] = unknown
    table["schemas"][0]["x-schema"] = unknown
    table["schemas"][0]["fields"][0]["x-field"] = unknown
    table["partition-specs"][0]["x-spec"] = unknown
    table["snapshots"][0]["x-snapshot"] = unknown
    table["refs"]["first"]["x-ref"] = unknown
    table["statistics"] = [{"snapshot-id": 11, "x-statistics": unknown}]
    table["snapshot-log"][0]["x-entry"] = unknown
    result = commit(table, TOUCH)
    assert result["x-top"] == unknown
    for name in ("schemas", "partition-specs", "snapshots", "refs", "statistics", "snapshot-log"):
        assert result[name] == table[name]


def test_nothing_but_the_change_changes(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, TOUCH)
    expected = table | {
        "properties": {"owner": "ada", "touched": "yes"},
        "last-updated-ms": NOW_MS,
        "metadata-log": [*table["metadata-log"], {"timestamp-ms": NOW_MS - 1_000, "metadata-file": BASE}],
    }
    assert result == expected


def test_updates_that_change_nothing_leave_nothing_to_commit(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(
        table,
        {"action": "assign-uuid", "uuid": table["table-uuid"].upper()},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "set-location", "location": table["location"] + "/"},
        {"action": "set-properties", "updates": {}},
        {"action": "remove-properties", "removals": []},
        {"action": "set-current-schema", "schema-id": 0},
        {"action": "remove-encryption-key", "key-id": "k"},
    )
    assert result == table
    assert commit(table) == table


def test_properties_are_set_and_removed(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(
        table,
        {"action": "set-properties", "updates": {"a": "1", "b": "2"}},
        {"action": "remove-properties", "removals": ["owner", "a", "gone"]},
    )
    assert result["properties"] == {"b": "2"}
    assert commit(table, {"action": "set-properties", "updates": {"owner": "ada"}}) != table


@pytest.mark.parametrize(
    ("given", "kept"),
    [("s3://b/t//", "s3://b/t"), ("file:///", "file://"), ("file:/a", "file:/a"), ("s3://", "s3://"), ("/a/", "/a")],
)
def test_locations_end_without_a_slash(commit: Commit, table: dict[str, Any], given: str, kept: str) -> None:
    assert commit(table, {"action": "set-location", "location": given})["location"] == kept


def test_encryption_keys_are_kept_by_id(commit: Commit, table_of_version: Versions) -> None:
    def add(metadata: str) -> dict[str, Any]:
        return {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": metadata}}

    table = commit(table_of_version(3), add("QQ=="), add("Qg=="))
    assert table["encryption-keys"] == [{"key-id": "k", "encrypted-key-metadata": "QQ=="}]
    result = commit(table, {"action": "remove-encryption-key", "key-id": "k"})
    assert "encryption-keys" not in result


def test_a_table_keeps_its_uuid(commit: Commit, table: dict[str, Any], table_of_version: Versions) -> None:
    other = {"action": "assign-uuid", "uuid": "11111111-2222-3333-4444-555555555555"}
    with pytest.raises(InvalidUpdateError, match="Cannot reassign uuid"):
        commit(table, other)
    nameless = table_of_version(1)
    del nameless["table-uuid"]
    assert "table-uuid" not in commit(nameless, TOUCH)
    assert commit(nameless, other)["table-uuid"] == other["uuid"]


def test_upgrades_give_each_version_its_members(commit: Commit, table_of_version: Versions) -> None:
    def upgrade(version: int) -> dict[str, Any]:
        return {"action": "upgrade-format-version", "format-version": version}

    second = commit(table_of_version(1), upgrade(2))
    assert (second["format-version"], second["last-sequence-number"]) == (2, 0)
    assert not {"schema", "partition-spec"} & second.keys()
    third = commit(second, upgrade(3), {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert (third["format-version"], third["next-row-id"], third["current-snapshot-id"]) == (3, 0, None)
    assert commit(table_of_version(1), upgrade(2), upgrade(3))["format-version"] == 3
    for version, text in (
        (1, "Cannot downgrade v2 table to v1"),
        (4, "Cannot upgrade table to unsupported format version: v4 (supported: v3)"),
    ):
        with pytest.raises(InvalidUpdateError) as caught:
            commit(second, upgrade(version))
        assert str(caught.value) == text


def test_a_v1_table_without_a_uuid_needs_one_to_be_upgraded(commit: Commit, table_of_version: Versions) -> None:
    table = table_of_version(1)
    del table["table-uuid"]
    with pytest.raises(InvalidUpdateError, match="UUID is required in format v2"):
        commit(table, {"action": "upgrade-format-version", "format-version": 2})


def test_a_v1_table_gets_the_lists_of_later_versions(commit: Commit, table_of_version: Versions) -> None:
    full = table_of_version(1)
    bare = json.loads(json.dumps(full))
    for name in ("schemas", "current-schema-id", "partition-specs", "default-spec-id", "last-partition-id"):
        del bare[name]
    for name in ("sort-orders", "default-sort-order-id", "statistics", "partition-statistics"):
        del bare[name]
    del bare["schema"]["schema-id"]
    del bare["partition-spec"][0]["field-id"]
    del full["refs"]["first"], bare["refs"]
    assert commit(bare, TOUCH) == commit(full, TOUCH)


def test_the_metadata_log_is_bounded_by_the_property(commit: Commit, table: dict[str, Any]) -> None:
    table["metadata-log"] = [
        {"timestamp-ms": NOW_MS - 9_000 + number, "metadata-file": f"file:/{number}"} for number in range(5)
    ]
    limit = "write.metadata.previous-versions-max"

    def files(value: str) -> list[str]:
        result = commit(table, {"action": "set-properties", "updates": {limit: value}})
        return [entry["metadata-file"] for entry in result["metadata-log"]]

    assert files("100") == [f"file:/{number}" for number in range(5)] + [BASE]
    assert files("3") == ["file:/3", "file:/4", BASE]
    for at_least_one in ("1", "0", "-7"):
        assert files(at_least_one) == [BASE]
    for no_integer in ("x", "", "3.5", "-+3", "9" * 5_000):
        with pytest.raises(InvalidUpdateError, match=f"Table property {limit} must have integer value"):
            files(no_integer)


def test_the_default_keeps_a_hundred_earlier_files(commit: Commit, table: dict[str, Any]) -> None:
    table["metadata-log"] = [{"timestamp-ms": NOW_MS - 9_000, "metadata-file": f"file:/{n}"} for n in range(130)]
    log = commit(table, TOUCH)["metadata-log"]
    assert (len(log), log[0]["metadata-file"], log[-1]["metadata-file"]) == (100, "file:/31", BASE)


def test_without_a_base_location_nothing_is_logged(table: dict[str, Any]) -> None:
    result = apply_updates(table, [TOUCH], now_ms=NOW_MS, base_location=None)
    assert result["metadata-log"] == table["metadata-log"]


def test_time_must_not_run_backwards_by_more_than_a_minute(commit: Commit, table: dict[str, Any]) -> None:
    last_ms = table["last-updated-ms"]
    assert commit(table, TOUCH, now_ms=last_ms - 60_000)["last-updated-ms"] == last_ms - 60_000
    with pytest.raises(InvalidUpdateError) as caught:
        commit(table, TOUCH, now_ms=last_ms - 60_001)
    assert str(caught.value) == (
        f"Invalid update timestamp {last_ms - 60_001}: before the latest metadata log entry timestamp {last_ms}"
    )


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [
        (NOW_MS + 60_001, f"Invalid update timestamp {NOW_MS}: before last snapshot log entry at {NOW_MS + 60_001}"),
        (NOW_MS - 62_001, "[BUG] Expected sorted snapshot log entries."),
    ],
)
def test_snapshots_from_another_time_cannot_become_current(
    commit: Commit, table: dict[str, Any], timestamp_ms: int, text: str
) -> None:
    snapshot = table["snapshots"][1] | {"snapshot-id": 13, "sequence-number": 3, "timestamp-ms": timestamp_ms}
    add = {"action": "add-snapshot", "snapshot": snapshot}
    commit(table, add)
    with pytest.raises(InvalidUpdateError) as caught:
        commit(table, add, {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 13, "type": "branch"})
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("format-version", 4),
        ("current-schema-id", 9),
        ("default-spec-id", 9),
        ("default-sort-order-id", 9),
        ("partition-specs", [{"spec-id": 0, "fields": [{}]}]),
        ("sort-orders", None),
        ("snapshots", [{}]),
        ("refs", {"main": {"snapshot-id": 1}}),
        ("properties", {"a": 1}),
        ("snapshot-log", [{"snapshot-id": 1}]),
        ("metadata-log", [{"timestamp-ms": 1}]),
        ("last-updated-ms", "now"),
    ],
)
def test_stored_metadata_that_cannot_be_read_is_called_corrupt(
    commit: Commit, table: dict[str, Any], member: str, value: Any
) -> None:
    with pytest.raises(CorruptMetadataError, match=f"cannot be read: metadata.{member}") as caught:
        commit(table | {member: value}, TOUCH)
    assert caught.value.status == 500


def test_stored_refs_must_agree_with_the_snapshots(commit: Commit, table: dict[str, Any]) -> None:
    for members, text in (
        ({"current-snapshot-id": 11}, r"Current snapshot ID does not match main branch \(11 != 12\)"),
        ({"current-snapshot-id": -1}, "Current snapshot is not set, but main branch exists: 12"),
        ({"refs": {"b": {"snapshot-id": 5, "type": "tag"}}}, "Snapshot for reference b does not exist"),
        ({"refs": {}, "current-snapshot-id": 5}, "Cannot find current version"),
    ):
        with pytest.raises(InvalidUpdateError, match=text):
            commit(table | members, TOUCH)


def test_metadata_that_is_not_used_any_more_is_freed_at_once(commit: Commit, table: dict[str, Any]) -> None:
    gc.collect()
    gc.disable()
    try:
        trace = _Traced()
        freed = weakref.ref(trace)
        result = commit({**table, "unknown": trace}, TOUCH)
        result = commit(result, TOUCH)
        assert result["unknown"] is trace
        del trace, result
        assert freed() is None
    finally:
        gc.enable()


class _Traced(str):  # noqa: SLOT000 - a slotted one could not be referred to weakly
    """A member that tells when its metadata is gone."""
