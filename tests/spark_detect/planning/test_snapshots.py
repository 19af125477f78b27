# SPDX-License-Identifier: Apache-2.0
"""
The rules of planning, on tables that are described and not written.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_detect.files.iceberg_metadata import LiveFile, SnapshotState, TableState
from spark_detect.planning.snapshots import (
    TASK_SIZE_BYTES,
    WALK_MAX,
    Due,
    adds_nothing,
    due_snapshots,
    lost_adders,
    split,
)
from spark_detect.tasks import ScannedColumn

COLUMNS = tuple(ScannedColumn(field_id=number, path=f"c{number}") for number in range(1, 6))


def table(parents: dict[int, int | None], operation: str = "append") -> TableState:
    """Return a table with those snapshots, each with its parent."""
    snapshots = {
        snapshot_id: SnapshotState(
            snapshot_id=snapshot_id,
            parent=parent,
            operation=operation,
            manifest_list="",
            schema_id=0,
            added_bytes=0,
        )
        for snapshot_id, parent in parents.items()
    }
    return TableState(
        location="", table_uuid="", snapshots=snapshots, current=None, heads=(), schemas={}, current_schema_id=0
    )


def file(adder: int, *, size_bytes: int = 100, row_groups: int | None = 1, name: str = "f") -> LiveFile:
    return LiveFile(
        location=f"{name}{adder}",
        snapshot_id=adder,
        format="PARQUET",
        rows=1,
        size_bytes=size_bytes,
        row_groups=row_groups,
        is_encrypted=False,
    )


def ids(due: list[Due]) -> list[tuple[int, int | None]]:
    return [(each.snapshot_id, each.gap) for each in due]


@pytest.mark.parametrize(
    ("parents", "named", "marked", "expected"),
    [
        ({1: None}, [1], set(), [(1, None)]),
        ({1: None}, [1], {1}, []),
        ({1: None, 2: 1, 3: 2}, [3], set(), [(1, None), (2, None), (3, None)]),
        ({1: None, 2: 1, 3: 2}, [3], {1}, [(2, None), (3, None)]),
        ({1: None, 2: 1, 3: 2}, [1, 2, 3], set(), [(1, None), (2, None), (3, None)]),
        ({1: None, 2: 1, 3: 1}, [2, 3], set(), [(1, None), (2, None), (3, None)]),
        ({2: 1, 3: 2}, [3], set(), [(2, 1), (3, None)]),
        ({2: 1, 3: 2}, [3], {1}, [(2, None), (3, None)]),
        ({3: 2}, [3], {3}, []),
        ({3: 2}, [9], set(), []),
        ({1: 2, 2: 1}, [1], set(), [(2, None), (1, None)]),
    ],
)
def test_the_walk_goes_up_to_marks_and_gaps(
    parents: dict[int, int | None], named: list[int], marked: set[int], expected: list[tuple[int, int | None]]
) -> None:
    assert ids(due_snapshots(table(parents), named, marked)) == expected


def test_a_long_history_is_walked_so_far_and_the_rest_is_a_gap() -> None:
    history = table({1: None} | {number: number - 1 for number in range(2, WALK_MAX + 51)})
    due = due_snapshots(history, [WALK_MAX + 50], set())
    assert ids(due)[0] == (51, 50)
    assert len(due) == WALK_MAX
    assert all(each.gap is None for each in due[1:])
    assert lost_adders(history, due[0], [file(number) for number in range(1, 60)]) == set(range(1, 51))


def test_what_expired_snapshots_added_is_lost_and_what_others_add_is_not() -> None:
    state = table({2: 1, 3: 2, 4: 2})
    (first, *_) = due_snapshots(state, [3], set())
    assert lost_adders(state, first, [file(0), file(1), file(2), file(3), file(4)]) == {0, 1}


def test_compaction_adds_nothing_unless_what_it_compacted_is_lost() -> None:
    state = table({2: 1}, operation="replace")
    assert adds_nothing(state, Due(snapshot_id=2, gap=None))
    assert not adds_nothing(state, Due(snapshot_id=2, gap=1))
    assert not adds_nothing(table({2: 1}), Due(snapshot_id=2, gap=None))


FILES = st.lists(
    st.tuples(st.integers(1, 3 * TASK_SIZE_BYTES), st.one_of(st.none(), st.integers(1, 4))), min_size=1, max_size=12
)


@given(sizes=FILES, share=st.integers(1, 200))
def test_every_column_of_every_row_group_is_read_once_and_a_sample_fits(
    sizes: list[tuple[int, int | None]], share: int
) -> None:
    files = [file(n, size_bytes=size, row_groups=groups) for n, (size, groups) in enumerate(sizes)]
    total = sum(size for size, _ in sizes)
    tasks, is_sampled = split(files, COLUMNS, size_bytes_max=max(1, total * share // 100))
    read: dict[tuple[str, int | None], list[int]] = {}
    counting = 0
    for task in tasks:
        for each in task.slices:
            for group in each.row_groups if each.row_groups is not None else (None,):
                read.setdefault((each.location, group), []).extend(column.field_id for column in task.columns)
                counting += task.counts_rows
    assert all(sorted(columns) == [1, 2, 3, 4, 5] for columns in read.values())
    assert counting == len(read), "rows are counted once"
    units = {
        (each.location, n if (each.row_groups or 1) > 1 else None)
        for each in files
        for n in range(each.row_groups or 1)
    }
    if is_sampled:
        assert read.keys() < units or len(units) == 1
    else:
        assert read.keys() == units
    assert split(files, COLUMNS, size_bytes_max=max(1, total * share // 100)) == (tasks, is_sampled)


def test_row_groups_of_all_files_are_in_a_sample() -> None:
    files = [file(number, size_bytes=1_000_000, row_groups=10) for number in range(20)]
    tasks, is_sampled = split(files, COLUMNS, size_bytes_max=10_000_000)
    chosen = {(each.location, group) for task in tasks for each in task.slices for group in each.row_groups or ()}
    assert is_sampled
    assert len(chosen) == 100
    assert len({location for location, _ in chosen}) > 15
    assert len({group for _, group in chosen}) == 10


def test_small_files_share_a_task_and_large_row_groups_are_shared_out() -> None:
    tasks, _ = split([file(n) for n in range(100)], COLUMNS, size_bytes_max=2**40)
    assert len(tasks) == 1
    tasks, _ = split([file(1, size_bytes=3 * TASK_SIZE_BYTES)], COLUMNS, size_bytes_max=2**40)
    assert [len(task.columns) for task in tasks] == [2, 2, 1]
    assert [task.counts_rows for task in tasks] == [True, False, False]
    assert all(a != b for a, b in pairwise(task.columns for task in tasks))
