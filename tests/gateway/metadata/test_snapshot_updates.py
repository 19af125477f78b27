# SPDX-License-Identifier: Apache-2.0
"""Snapshots, branches, tags and statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.errors import RequirementFailedError
from gateway.metadata import InvalidUpdateError

Commit = Callable[..., dict[str, Any]]
NOW_MS = 1_795_200_000_000


def _add(snapshot_id: int, number: int | None, parent: int | None = 12, **members: Any) -> dict[str, Any]:
    snapshot = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": NOW_MS - 500,
        "manifest-list": "file:/m.avro",
        "summary": {"operation": "append"},
    } | {name.replace("_", "-"): value for name, value in members.items()}
    if number is not None:
        snapshot["sequence-number"] = number
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent
    return {"action": "add-snapshot", "snapshot": snapshot}


def _ref(name: str, snapshot_id: int, kind: str = "branch", **members: int) -> dict[str, Any]:
    retention = {member.replace("_", "-"): value for member, value in members.items()}
    return {"action": "set-snapshot-ref", "ref-name": name, "snapshot-id": snapshot_id, "type": kind} | retention


def _remove(*snapshot_ids: int) -> dict[str, Any]:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


def _log(metadata: dict[str, Any]) -> list[tuple[int, int]]:
    return [(entry["snapshot-id"], entry["timestamp-ms"] - NOW_MS) for entry in metadata["snapshot-log"]]


def test_an_append_moves_main_and_is_logged_at_its_own_time(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _add(13, 3, x_unknown={"kept": True}), _ref("main", 13))
    assert (result["current-snapshot-id"], result["last-sequence-number"]) == (13, 3)
    assert result["refs"]["main"] == {"snapshot-id": 13, "type": "branch"}
    assert result["snapshots"][-1]["x-unknown"] == {"kept": True}
    assert _log(result) == [(11, -3_000), (12, -2_000), (13, -500)]
    assert result["last-updated-ms"] == NOW_MS


def test_a_snapshot_on_no_branch_is_not_current(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _add(13, 3))
    assert (result["current-snapshot-id"], len(result["snapshots"])) == (12, 3)
    assert _log(result) == _log(table)


def test_a_rollback_is_logged_at_the_time_of_the_commit(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _ref("main", 11))
    assert result["current-snapshot-id"] == 11
    assert _log(result) == [(11, -3_000), (12, -2_000), (11, 0)]


def test_a_ref_that_is_where_it_should_be_changes_nothing(commit: Commit, table: dict[str, Any]) -> None:
    assert commit(table, _ref("main", 12), _ref("first", 11, "tag")) == table
    assert commit(table, {"action": "remove-snapshot-ref", "ref-name": "gone"}) == table


def test_retention_is_kept_with_the_branch(commit: Commit, table: dict[str, Any]) -> None:
    branch = _ref("b", 11, min_snapshots_to_keep=2, max_snapshot_age_ms=3, max_ref_age_ms=4)
    result = commit(table, branch, _ref("t", 11, "tag", max_ref_age_ms=5))
    assert result["refs"]["b"] == {
        "snapshot-id": 11,
        "type": "branch",
        "min-snapshots-to-keep": 2,
        "max-snapshot-age-ms": 3,
        "max-ref-age-ms": 4,
    }
    assert result["refs"]["t"] == {"snapshot-id": 11, "type": "tag", "max-ref-age-ms": 5}
    assert commit(result, branch) == result
    assert commit(result, _ref("b", 11))["refs"]["b"] == {"snapshot-id": 11, "type": "branch"}


def test_snapshots_between_two_updates_are_no_history(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _add(13, 3), _ref("main", 13), _add(14, 4, 13), _ref("main", 14))
    assert [snapshot_id for snapshot_id, _ in _log(result)] == [11, 12, 14]
    assert [snapshot["snapshot-id"] for snapshot in result["snapshots"]] == [11, 12, 13, 14]
    back = commit(table, _add(13, 3), _ref("main", 13), _ref("main", 12))
    assert [snapshot_id for snapshot_id, _ in _log(back)] == [11, 12, 12]


def test_without_main_there_is_no_current_snapshot(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert (result["current-snapshot-id"], list(result["refs"])) == (-1, ["first"])
    assert _log(result) == _log(table)


def test_removing_a_snapshot_takes_its_refs_and_statistics_along(commit: Commit, table: dict[str, Any]) -> None:
    table["statistics"] = [{"snapshot-id": 11}, {"snapshot-id": 12}]
    table["partition-statistics"] = [{"snapshot-id": 11}, {"snapshot-id": 12}]
    result = commit(table, _remove(11, 99))
    assert [snapshot["snapshot-id"] for snapshot in result["snapshots"]] == [12]
    assert result["snapshots"][0]["parent-snapshot-id"] == 11
    assert list(result["refs"]) == ["main"]
    assert (result["statistics"], result["partition-statistics"]) == ([{"snapshot-id": 12}], [{"snapshot-id": 12}])
    assert _log(result) == [(12, -2_000)]
    assert commit(table, _remove(98, 99)) == table


def test_a_removed_snapshot_takes_the_history_before_it_along(commit: Commit, table: dict[str, Any]) -> None:
    table = commit(table, _add(13, 3), _ref("main", 13), now_ms=NOW_MS + 1)
    table = commit(table, _ref("main", 11), now_ms=NOW_MS + 2)
    assert [snapshot_id for snapshot_id, _ in _log(table)] == [11, 12, 13, 11]
    result = commit(table, _remove(12), now_ms=NOW_MS + 3)
    assert [snapshot_id for snapshot_id, _ in _log(result)] == [13, 11]
    assert result["snapshot-log"][-1]["snapshot-id"] == result["current-snapshot-id"]


def test_removing_the_current_snapshot_leaves_none(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _remove(12))
    assert (result["current-snapshot-id"], list(result["refs"]), _log(result)) == (-1, ["first"], [])


def test_a_ref_moved_off_a_removed_snapshot_stays(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _ref("first", 12, "tag"), _remove(11), _ref("second", 12, "tag"), _remove(11))
    assert set(result["refs"]) == {"main", "first", "second"}


def test_expiring_thousands_of_snapshots_is_quick(commit: Commit, table: dict[str, Any]) -> None:
    first, last = table["snapshots"]
    table["snapshots"] = [*(first | {"snapshot-id": number} for number in range(100, 20_100)), first, last]
    table["refs"] |= {f"t{number}": {"snapshot-id": number, "type": "tag"} for number in range(100, 1_100)}
    result = commit(table, *(_remove(number) for number in range(100, 20_100)))
    assert (len(result["snapshots"]), set(result["refs"])) == (2, {"main", "first"})


def test_a_statistics_file_takes_the_place_of_the_one_before(commit: Commit, table: dict[str, Any]) -> None:
    def update(snapshot_id: int, path: str) -> dict[str, Any]:
        file = {
            "snapshot-id": snapshot_id,
            "statistics-path": path,
            "file-size-in-bytes": 2,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
        return {"action": "set-statistics", "snapshot-id": snapshot_id, "statistics": file}

    result = commit(table, update(11, "a"), update(12, "b"), update(11, "c"))
    assert [(file["snapshot-id"], file["statistics-path"]) for file in result["statistics"]] == [(12, "b"), (11, "c")]
    result = commit(result, {"action": "remove-statistics", "snapshot-id": 12})
    assert [file["snapshot-id"] for file in result["statistics"]] == [11]
    assert commit(result, {"action": "remove-statistics", "snapshot-id": 12}) == result


def test_a_partition_statistics_file_takes_the_place_of_the_one_before(commit: Commit, table: dict[str, Any]) -> None:
    def update(path: str) -> dict[str, Any]:
        file = {"snapshot-id": 11, "statistics-path": path, "file-size-in-bytes": 2}
        return {"action": "set-partition-statistics", "partition-statistics": file}

    result = commit(table, update("a"), update("b"))
    assert [file["statistics-path"] for file in result["partition-statistics"]] == ["b"]
    assert commit(result, {"action": "remove-partition-statistics", "snapshot-id": 11})["partition-statistics"] == []
    assert commit(result, {"action": "remove-partition-statistics", "snapshot-id": 12}) == result


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (_add(12, 3), "Snapshot already exists for id: 12"),
        (_ref("main", 99), "Cannot set main to unknown snapshot: 99"),
        (_ref("b", 99), "Cannot set b to unknown snapshot: 99"),
        (_ref("main", 11, "tag"), "Cannot set main to a tag, it must be a branch"),
    ],
)
def test_snapshots_and_refs_that_cannot_be_are_refused(
    commit: Commit, table: dict[str, Any], update: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        commit(table, update)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("number", "parent", "is_accepted"),
    [
        (3, 12, True),
        (9, 12, True),
        (2, 12, False),
        (1, 12, False),
        (None, 12, False),
        (3, None, True),
        (2, None, True),
        (1, None, False),
    ],
)
def test_sequence_numbers_only_grow(
    commit: Commit, table: dict[str, Any], number: int | None, parent: int | None, *, is_accepted: bool
) -> None:
    update = _add(13, number, parent)
    if is_accepted:
        assert commit(table, update)["last-sequence-number"] == number
        return
    with pytest.raises(RequirementFailedError) as caught:
        commit(table, update)
    assert str(caught.value) == (
        "Validation failed, please retry: Cannot add snapshot with sequence number "
        f"{number or 0} older than last sequence number 2"
    )


def test_v1_tables_have_no_sequence_numbers(commit: Commit, table_of_version: Callable[[int], dict[str, Any]]) -> None:
    table = table_of_version(1)
    result = commit(table, _add(13, None), _ref("main", 13))
    assert result["current-snapshot-id"] == 13
    assert "last-sequence-number" not in result
    with pytest.raises(InvalidUpdateError, match="Sequence number must be 0 in v1: 3"):
        commit(table, _add(13, 3))


@pytest.mark.parametrize(("first", "rows", "following"), [(20, 5, 25), (20, 0, 20), (30, 5, 35)])
def test_row_ids_are_given_out_once(
    commit: Commit, table_of_version: Callable[[int], dict[str, Any]], first: int, rows: int, following: int
) -> None:
    result = commit(table_of_version(3), _add(13, 3, first_row_id=first, added_rows=rows))
    assert result["next-row-id"] == following


def test_row_ids_of_a_stale_or_older_writer_are_refused(
    commit: Commit, table_of_version: Callable[[int], dict[str, Any]]
) -> None:
    with pytest.raises(RequirementFailedError) as stale:
        commit(table_of_version(3), _add(13, 3, first_row_id=19, added_rows=1))
    assert str(stale.value) == (
        "Validation failed, please retry: Cannot add a snapshot, first-row-id is behind table next-row-id: 19 < 20"
    )
    with pytest.raises(InvalidUpdateError, match="Cannot add a snapshot: first-row-id is null"):
        commit(table_of_version(3), _add(13, 3))
