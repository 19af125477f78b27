# SPDX-License-Identifier: Apache-2.0
"""
Lineage: what engines send as OpenLineage, and the edges that were omitted because they would close a cycle.

The raw event is a payload part; `data` holds the names, from which read models are built.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar


class LineageKind(StrEnum):
    """The three events of OpenLineage 2."""

    RUN = "run"
    JOB = "job"
    DATASET = "dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetName:
    """A dataset by its sender's name: OpenLineage's `namespace` and `name`."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageDataset:
    """
    A dataset: its name, its other names (facet `symlinks`), and its version (facet `version`).

    For an Iceberg table the version is the id of the snapshot that was read or written.
    """

    namespace: str
    name: str
    symlinks: tuple[DatasetName, ...]
    version: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageColumn:
    """
    Column `field` of dataset `output` was made from column `input_field` of dataset `input` (facet `columnLineage`).

    `output` and `input` are positions in `LineageReceived.datasets`.
    """

    output: int
    field: str
    input: int
    input_field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageReceivedV1:
    """
    An OpenLineage event, recorded when events that did not fit were still refused; otherwise as `LineageReceived`.
    """

    TYPE: ClassVar[str] = "lineage.received"
    VERSION: ClassVar[int] = 1

    columns: tuple[LineageColumn, ...]
    columns_omitted: int
    datasets: tuple[LineageDataset, ...]
    engine: str | None
    event_time: str
    event_type: str | None
    inputs: tuple[int, ...]
    job: DatasetName | None
    kind: LineageKind
    outputs: tuple[int, ...]
    payload_sha256: str
    producer: str
    run_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageReceived:
    """
    One OpenLineage event. `inputs` and `outputs` are positions in `datasets`, which names each dataset once.

    `event_type` (START, RUNNING, COMPLETE, ABORT, FAIL, OTHER) and `run_id` are of a run event alone, `event_time` is
    as it was sent, `engine` is name and version of facet `processing_engine`. `payload_sha256` is of the raw event, in
    hex. Parts: event (the raw event, whole).

    What does not fit is counted: `columns_omitted` column edges, `datasets_omitted` data sets that were read or
    written, and `names_omitted` other names: symlinks, and names and versions that are longer than a key may be.
    """

    TYPE: ClassVar[str] = "lineage.received"
    VERSION: ClassVar[int] = 2

    columns: tuple[LineageColumn, ...]
    columns_omitted: int
    datasets: tuple[LineageDataset, ...]
    datasets_omitted: int
    engine: str | None
    event_time: str
    event_type: str | None
    inputs: tuple[int, ...]
    job: DatasetName | None
    kind: LineageKind
    names_omitted: int
    outputs: tuple[int, ...]
    payload_sha256: str
    producer: str
    run_id: str | None

    @classmethod
    def of_v1(cls, event: LineageReceivedV1) -> LineageReceived:
        """Return the content of version 1, which could omit nothing but column edges."""
        members = {field.name: getattr(event, field.name) for field in fields(event)}
        return cls(**members, datasets_omitted=0, names_omitted=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageCycleFound:
    """
    An edge that was omitted: `target` made from `source` would close a cycle.

    `lineage` is the group id of the event with that edge; `path` the keys from `target` along existing edges to
    `source`, both included.
    """

    TYPE: ClassVar[str] = "lineage.cycle_found"
    VERSION: ClassVar[int] = 1

    lineage: str
    path: tuple[str, ...]
    source: str
    target: str
