# SPDX-License-Identifier: Apache-2.0
"""
Which snapshots are to be scanned, which files for each, and in which tasks. Pure: marks and manifests are handed in.

A snapshot is scanned once: the files that it added, by the manifests it wrote. From the snapshots that an entry names
the walk goes up through their parents, as far as no mark stands, so that one whose own entry never came (the first of
the two that an overwrite makes) is scanned as well. A mark of any ruleset ends the walk: history under a new ruleset is
scanned only on request. Where the parent has expired, the live files that expired snapshots added are scanned with the
child, and the parents are named as gaps.

What compaction (`replace`) writes is not new, so nothing of it is read. Delete files are not applied: rows that were
deleted by one may be counted still, for they can be read by whoever reads the file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_detect.files.iceberg_metadata import LiveFile, TableState
from spark_detect.tasks import FileSlice, ScannedColumn

WALK_MAX: Final = 256
"""Ancestors that one entry may lead to; what older ones added is scanned with the last, as if they had expired."""
TASK_SIZE_BYTES: Final = 32 * 1024 * 1024
"""About a second of one core: small enough to share out, large enough that starting a task costs little."""
BINS_MAX: Final = 8
REPLACE: Final = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A snapshot to be scanned; `gap` is its parent if that has expired and bears no mark."""

    snapshot_id: int
    gap: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """What one task reads: slices of files, and leaves of the schema (those of all slices are the same)."""

    slices: tuple[FileSlice, ...]
    columns: tuple[ScannedColumn, ...]
    counts_rows: bool


def due_snapshots(state: TableState, named: Iterable[int], marked: Collection[int]) -> list[Due]:
    """
    Return the snapshots to be scanned, the oldest first; `marked` bear a mark, of any ruleset.
    """
    due: dict[int, Due] = {}
    for snapshot_id in named:
        walk: dict[int, Due] = {}
        at: int | None = snapshot_id
        while at is not None and at in state.snapshots and not (at in marked or at in due or at in walk):
            parent = state.snapshots[at].parent
            is_lost = parent is not None and parent not in state.snapshots and parent not in marked
            is_last = len(due) + len(walk) + 1 >= WALK_MAX and not (parent in marked or parent in due)
            walk[at] = Due(snapshot_id=at, gap=parent if is_lost or is_last else None)
            at = None if is_last else parent
        due |= dict(reversed(walk.items()))
    return list(due.values())


def adds_nothing(state: TableState, due: Due) -> bool:
    """
    Return whether the files of a snapshot hold nothing that was not in those before it.
    """
    return state.snapshots[due.snapshot_id].operation == REPLACE and due.gap is None


def lost_adders(state: TableState, due: Due, files: Iterable[LiveFile]) -> set[int]:
    """
    Return who added those of `files` that no other scan reads, if they bear no mark: the expired, and those that are
    beyond the walk.
    """
    before = _ancestors(state, due.snapshot_id)
    adders = {file.snapshot_id for file in files}
    return {adder for adder in adders if adder != due.snapshot_id and (adder not in state.snapshots or adder in before)}


def _ancestors(state: TableState, snapshot_id: int) -> set[int]:
    found: set[int] = set()
    at = state.snapshots[snapshot_id].parent
    while at is not None and at in state.snapshots and at not in found:
        found.add(at)
        at = state.snapshots[at].parent
    return found


def split(
    files: Sequence[LiveFile], columns: Sequence[ScannedColumn], *, size_bytes_max: int
) -> tuple[list[Slices], bool]:
    """
    Return tasks that read `files`, and whether they read a part of them only, since all are over `size_bytes_max`.

    The part is whole row groups of all files, in an order that depends on nothing but their names: a replay reads the
    same ones, and no file's head is preferred.
    """
    units = [_Unit.of(file, group) for file in files for group in range(file.row_groups or 1)]
    is_sampled = sum(unit.size_bytes for unit in units) > size_bytes_max
    if is_sampled:
        units = _sample(units, size_bytes_max)
    tasks: list[Slices] = []
    small: list[_Unit] = []
    size_bytes = 0
    for unit in units:
        if unit.size_bytes > TASK_SIZE_BYTES and len(columns) > 1:
            tasks += _binned(unit, columns)
            continue
        if small and size_bytes + unit.size_bytes > TASK_SIZE_BYTES:
            tasks.append(_packed(small, columns))
            small, size_bytes = [], 0
        small.append(unit)
        size_bytes += unit.size_bytes
    if small:
        tasks.append(_packed(small, columns))
    return tasks, is_sampled


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    location: str
    row_group: int | None
    size_bytes: int

    @classmethod
    def of(cls, file: LiveFile, row_group: int) -> _Unit:
        count = file.row_groups or 1
        return cls(
            location=file.location,
            row_group=None if count == 1 else row_group,
            size_bytes=max(1, file.size_bytes // count),
        )


def _sample(units: Sequence[_Unit], size_bytes_max: int) -> list[_Unit]:
    chosen: list[_Unit] = []
    size_bytes = 0
    for unit in sorted(units, key=_shuffled):
        if chosen and size_bytes + unit.size_bytes > size_bytes_max:
            break
        chosen.append(unit)
        size_bytes += unit.size_bytes
    return sorted(chosen, key=lambda unit: (unit.location, unit.row_group or 0))


def _shuffled(unit: _Unit) -> bytes:
    return hashlib.sha256(f"{unit.row_group} {unit.location}".encode("utf-8", "surrogatepass")).digest()


def _packed(units: Sequence[_Unit], columns: Sequence[ScannedColumn]) -> Slices:
    slices: dict[str, list[int] | None] = {}
    for unit in units:
        if unit.row_group is None:
            slices[unit.location] = None
        elif (groups := slices.setdefault(unit.location, [])) is not None:
            groups.append(unit.row_group)
    return Slices(
        slices=tuple(
            FileSlice(location=location, row_groups=None if groups is None else tuple(groups))
            for location, groups in slices.items()
        ),
        columns=tuple(columns),
        counts_rows=True,
    )


def _binned(unit: _Unit, columns: Sequence[ScannedColumn]) -> list[Slices]:
    """Return tasks that read different columns of one large row group."""
    bins = min(BINS_MAX, len(columns), math.ceil(unit.size_bytes / TASK_SIZE_BYTES))
    groups = None if unit.row_group is None else (unit.row_group,)
    return [
        Slices(
            slices=(FileSlice(location=unit.location, row_groups=groups),),
            columns=tuple(columns[number::bins]),
            counts_rows=number == 0,
        )
        for number in range(bins)
    ]
