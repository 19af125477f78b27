# SPDX-License-Identifier: Apache-2.0
"""
Five answers about a table: who wrote it, what it was made from, which policy allowed it, what was found in it, who else
reads it. Pure: the rows that `answering.py` reads in, the answers out.

Each answer is limited to the latest items (`WRITES`, `EACH_MAX`), so that a table with a thousand writes per day is
answered as fast as one with a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from projections.graph.labels import VertexLabel
from projections.graph.policy_scope import Governs
from projections.graph.scan_coverage import ScanCoverage
from projections.lineage.runs import Omitted
from projections.relational.finding_reviews import FindingState, state_of

WRITES: Final = 10
EACH_MAX: Final = 50
SNAPSHOTS_MAX: Final = 1_000
"""The last snapshots of a table, among which those are that no decision names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One version of a policy or access rule (`label`)."""

    label: VertexLabel
    id: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableWrite:
    """One decision on the table and its outcome (None until settled); `principal` is None where its part was erased."""

    index: int
    recorded_at: str
    actor: str
    principal: str | None
    operation: str
    decision: str
    outcome: str | None
    decided_by: tuple[PolicyVersion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSnapshot:
    """A snapshot; `governed` is False for one that no decision approves, `operation` is known of those alone."""

    index: int
    snapshot_id: str
    governed: bool
    operation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRef:
    """A table, view or data set, by its key."""

    label: VertexLabel
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A kind of run: its job (namespace, name), its engine, and who reported it; each None if unknown."""

    job: tuple[str, str] | None
    engine: str | None
    actor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoverningPolicy:
    """A version of a policy under which the table was judged, what it is about, and whether it is in force now."""

    id: str
    version: int
    governs: tuple[Governs, ...]
    is_in_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFound:
    """
    Personal data of one kind in one column: the highest confidence, in how many snapshots it was found, and whether
    somebody has said that it is real.
    """

    column: str
    kind: str
    confidence_percent: int
    snapshots: int
    state: FindingState = FindingState.OPEN

    @property
    def reviewed(self) -> str:
        """What a sentence about it ends with: what somebody has said of it, if anybody has."""
        return "" if self.state is FindingState.OPEN else f", {self.state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableAnswers:
    """
    The five answers. `writes`, `snapshots` and `ungoverned` are newest first; `read_into` are the tables made from it.

    `omitted` is what lineage events reported of the table and is not drawn; None if all is drawn.
    """

    table: str
    table_uuid: str | None
    writes: tuple[TableWrite, ...]
    snapshots: tuple[TableSnapshot, ...]
    ungoverned: tuple[TableSnapshot, ...]
    made_from: tuple[DataRef, ...]
    made_by: tuple[RunSummary, ...]
    allowed_by: tuple[GoverningPolicy, ...]
    found: tuple[ColumnFound, ...]
    evidence: ScanCoverage
    read_by: tuple[RunSummary, ...]
    read_into: tuple[DataRef, ...]
    omitted: Omitted | None


def versions_of(rows: Sequence[Sequence[Any]]) -> tuple[PolicyVersion, ...]:
    """
    Return the versions collected as [label, id, version]; a row of nulls, for nothing, is left out.
    """
    found = sorted((label, id_, version) for label, id_, version in rows if label)
    return tuple(PolicyVersion(label=VertexLabel(label), id=id_, version=version) for label, id_, version in found)


def answers_of(
    *,
    table: str,
    table_uuid: str | None,
    rows: Mapping[str, Sequence[Sequence[Any]]],
    evidence: ScanCoverage,
    omitted: Omitted | None,
) -> TableAnswers:
    """
    Return the answers that the rows of each part hold (`answering.py`); `evidence` is what `found` rests on.
    """
    snapshots = _snapshots(rows["snapshots"])
    return TableAnswers(
        table=table,
        table_uuid=table_uuid,
        writes=_writes(rows["writes"]),
        snapshots=snapshots[:WRITES],
        ungoverned=tuple(each for each in snapshots if not each.governed)[:EACH_MAX],
        made_from=_data(rows["sources"]),
        made_by=_work(rows["made_by"]),
        allowed_by=_governing(rows["schema_policies"], rows["write_policies"]),
        found=_found(rows["found"]),
        evidence=evidence,
        read_by=_work(rows["read_by"]),
        read_into=_data(rows["targets"]),
        omitted=omitted,
    )


def _writes(rows: Iterable[Sequence[Any]]) -> tuple[TableWrite, ...]:
    """Return the writes of rows of one of each, and of one version that decided it, or none."""
    writes: dict[int, Sequence[Any]] = {}
    decided_by: dict[int, list[Sequence[Any]]] = {}
    for index, *write, label, id_, version in rows:
        writes[index] = write
        decided_by.setdefault(index, []).append((label, id_, version))
    return tuple(
        TableWrite(
            index=index,
            recorded_at=recorded_at,
            actor=actor,
            principal=principal,
            operation=operation,
            decision=decision,
            outcome=outcome,
            decided_by=versions_of(decided_by[index]),
        )
        for index, (recorded_at, actor, principal, operation, decision, outcome) in sorted(writes.items(), reverse=True)
    )


def _snapshots(rows: Iterable[Sequence[Any]]) -> tuple[TableSnapshot, ...]:
    """Return snapshots, newest first; what only lineage has named is none of these."""
    found = [
        TableSnapshot(index=index, snapshot_id=snapshot_id, governed=governed, operation=operation)
        for index, snapshot_id, governed, operation in rows
        if governed is not None
    ]
    return tuple(sorted(found, key=lambda snapshot: (-snapshot.index, snapshot.snapshot_id)))


def _data(rows: Iterable[Sequence[Any]]) -> tuple[DataRef, ...]:
    return tuple(
        DataRef(label=VertexLabel(label), key=key) for label, key in sorted((row[0], row[1]) for row in rows if row[1])
    )


def _work(rows: Iterable[Sequence[Any]]) -> tuple[RunSummary, ...]:
    found = {
        RunSummary(job=None if name is None else (namespace, name), engine=engine, actor=actor)
        for run_id, namespace, name, engine, actor in rows
        if run_id is not None
    }
    return tuple(sorted(found, key=lambda work: (work.job or ("", ""), work.engine or "", work.actor or "")))


def _governing(schema: Iterable[Sequence[Any]], write: Iterable[Sequence[Any]]) -> tuple[GoverningPolicy, ...]:
    governs: dict[tuple[str, int], list[Governs]] = {}
    ended: dict[tuple[str, int], bool] = {}
    for kind, rows in ((Governs.SCHEMA, schema), (Governs.WRITE, write)):
        for id_, version, to_index in rows:
            if id_ is not None:
                governs.setdefault((id_, version), []).append(kind)
                ended[id_, version] = to_index is not None
    return tuple(
        GoverningPolicy(id=id_, version=version, governs=tuple(kinds), is_in_force=not ended[id_, version])
        for (id_, version), kinds in sorted(governs.items(), key=lambda item: (ended[item[0]], item[0]))
    )


def _found(rows: Iterable[Sequence[Any]]) -> tuple[ColumnFound, ...]:
    found = [
        column_found(column, kind, percent, snapshots, reviews)
        for column, kind, percent, snapshots, reviews in rows
        if column is not None
    ]
    return tuple(sorted(found, key=lambda one: (-one.confidence_percent, one.column, one.kind)))


def column_found(column: str, kind: str, percent: int, snapshots: int, reviews: Iterable[Sequence[Any]]) -> ColumnFound:
    """
    Return what was found in a column; `reviews` are collected as [index, verdict, confidence of what was reviewed].
    """
    _, verdict, reviewed_percent = max(
        (review for review in reviews if review[0] is not None), key=lambda review: review[0], default=(0, None, 0)
    )
    state = state_of(verdict, reviewed_percent=reviewed_percent, confidence_percent=percent)
    return ColumnFound(column=column, kind=kind, confidence_percent=percent, snapshots=snapshots, state=state)
