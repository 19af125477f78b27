# SPDX-License-Identifier: Apache-2.0
"""
From OpenLineage events to groups for the log. Pure; the gateway and the streams call `to_groups`.

One event is one group with one entry, however much it contains: what does not fit the entry is counted there, and is in
the raw event alone. The group id derives from run, type, time and the payload's hash (a run id alone would drop every
COMPLETE after its START), so an event that is sent again adds nothing. If another caller sends it again, or it had no
time of its own, the entry would differ, and the append raises `GroupMismatchError`: that, too, means that the log has
the event.

The raw event may hold personal data (SQL, owners, host names): it is a payload part, and stored nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, zip_longest
from typing import Final

from ledger.format import canonical
from ledger.format.event import (
    EVENT_SIZE_BYTES_MAX,
    SALT_SIZE_BYTES,
    Part,
    PreparedEvent,
    derived_group_id,
    format_key,
)
from ledger.format.events import DatasetName, LineageColumn, LineageDataset, LineageReceived, prepare_event, to_data
from ledger.format.sequence import Group
from projections.errors import InvalidLineageError
from projections.lineage.json_text import BODY_SIZE_BYTES_MAX
from projections.lineage.openlineage import ColumnEdge, ParsedEvent, parse_events

DATASETS_MAX: Final = 1_000
"""Data sets that an entry names; usually the size of the entry is reached first."""
EVENT_ITEMS_MAX: Final = BODY_SIZE_BYTES_MAX
"""No event contains more items of any kind than this."""
PART: Final = "event"
_POSITION_SIZE_BYTES: Final = 2 * len("1000,")
"""The most bytes that a data set takes besides its own: its positions among inputs and outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGroup:
    """One event as a group of one `lineage.received`, and the data of that entry."""

    group: Group
    event: LineageReceived


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageGroups:
    """The groups of one event or a batch, in order; an invalid event of a batch is replaced by its error."""

    is_batch: bool
    events: tuple[LineageGroup | InvalidLineageError, ...]


def to_groups(body: bytes, *, actor: str, at: datetime, random: Callable[[int], bytes]) -> LineageGroups:
    """
    Return the groups, one an event and in order, for one event or a batch that `actor` sent and that arrived `at`.

    `random(n)` returns n random bytes, for the salts of the parts.

    Raises:
        InvalidLineageError: if `body` is neither, or is one event that is not valid.
    """
    sent = parse_events(body)
    return LineageGroups(
        is_batch=sent.is_batch,
        events=tuple(
            event if isinstance(event, InvalidLineageError) else to_group(event, actor=actor, at=at, random=random)
            for event in sent.events
        ),
    )


def to_group(event: ParsedEvent, *, actor: str, at: datetime, random: Callable[[int], bytes]) -> LineageGroup:
    """
    Return one event as a group of one `lineage.received`.

    Data sets, then column edges, are kept in order until the entry is full; the others are counted.
    """
    payload_sha256 = hashlib.sha256(event.raw).hexdigest()
    group_id = derived_group_id(
        LineageReceived.TYPE,
        {
            "event_time": event.event_time,
            "event_type": event.event_type,
            "payload_sha256": payload_sha256,
            "run_id": event.run_id,
        },
    )
    part = Part(name=PART, payload=event.raw, salt=random(SALT_SIZE_BYTES), subject=actor)
    empty = LineageReceived(
        columns=(),
        # Counts at their largest: no other number takes more space.
        columns_omitted=EVENT_ITEMS_MAX,
        datasets=(),
        datasets_omitted=EVENT_ITEMS_MAX,
        engine=event.engine,
        event_time=event.event_time or canonical.format_time(at),
        event_type=event.event_type,
        inputs=(),
        job=event.job,
        kind=event.kind,
        names_omitted=EVENT_ITEMS_MAX,
        outputs=(),
        payload_sha256=payload_sha256,
        producer=event.producer,
        run_id=event.run_id,
    )

    def prepared(data: LineageReceived) -> PreparedEvent:
        return prepare_event(data, key=_key(event, payload_sha256), actor=actor, occurred_at=at, parts=(part,))

    room_bytes = EVENT_SIZE_BYTES_MAX - len(prepared(empty).event)
    named, room_bytes = _named(event, room_bytes)
    columns, datasets = _fitting(event.columns, named, room_bytes)
    data = replace(
        empty,
        columns=tuple(columns),
        columns_omitted=event.columns_omitted + len(event.columns) - len(columns),
        datasets=tuple(datasets),
        datasets_omitted=event.datasets_omitted + named.datasets_omitted,
        inputs=named.inputs,
        names_omitted=event.names_omitted + named.names_omitted,
        outputs=named.outputs,
    )
    return LineageGroup(group=Group(id=group_id, then=(prepared(data),)), event=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """
    The data sets of an event that fit, each once; positions of inputs and outputs among them; counts of the others.
    """

    datasets: tuple[LineageDataset, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    datasets_omitted: int
    names_omitted: int


def _named(event: ParsedEvent, room_bytes: int) -> tuple[_Named, int]:
    """
    Return the data sets that fit into `room_bytes`, and how many bytes are left.

    A data set that was read in one version and written in another is listed twice. Inputs and outputs are taken
    alternately, so that neither side is left out for the other.
    """
    positions: dict[LineageDataset, int] = {}
    datasets: list[LineageDataset] = []
    datasets_omitted = names_omitted = 0
    for dataset in dict.fromkeys(_in_turns(event)):
        kept = dataset
        if _size_bytes(kept) + _POSITION_SIZE_BYTES > room_bytes:
            kept = replace(dataset, symlinks=())
        size_bytes = _size_bytes(kept) + _POSITION_SIZE_BYTES
        if size_bytes > room_bytes or len(datasets) == DATASETS_MAX:
            datasets_omitted += 1
            continue
        names_omitted += len(dataset.symlinks) - len(kept.symlinks)
        room_bytes -= size_bytes
        positions[dataset] = len(datasets)
        datasets.append(kept)

    def places(named: Sequence[LineageDataset]) -> tuple[int, ...]:
        return tuple(dict.fromkeys(positions[dataset] for dataset in named if dataset in positions))

    named = _Named(
        datasets=tuple(datasets),
        inputs=places(event.inputs),
        outputs=places(event.outputs),
        datasets_omitted=datasets_omitted,
        names_omitted=names_omitted,
    )
    return named, room_bytes


def _in_turns(event: ParsedEvent) -> Iterator[LineageDataset]:
    of_dataset_event = () if event.dataset is None else (event.dataset,)
    turns = chain.from_iterable(zip_longest(event.inputs, event.outputs))
    return (dataset for dataset in chain(of_dataset_event, turns) if dataset is not None)


def _fitting(
    edges: Sequence[ColumnEdge], named: _Named, room_bytes: int
) -> tuple[list[LineageColumn], list[LineageDataset]]:
    """
    Return the column edges that fit into `room_bytes`, and the data sets, including those that only they name.
    """
    datasets = list(named.datasets)
    # A name may be listed in two versions: columns are read from the first and written to the last.
    as_input: dict[DatasetName, int] = {}
    as_output: dict[DatasetName, int] = {}
    for position in (*named.inputs, *range(len(datasets))):
        as_input.setdefault(_name_of(datasets[position]), position)
    for position in (*range(len(datasets)), *named.outputs):
        as_output[_name_of(datasets[position])] = position
    columns: list[LineageColumn] = []
    for edge in edges:
        if edge.output not in as_output:
            continue  # a data set that did not fit itself
        source = as_input.get(edge.input, len(datasets))
        column = LineageColumn(
            output=as_output[edge.output], field=edge.field, input=source, input_field=edge.input_field
        )
        room_bytes -= _size_bytes(column)
        if source == len(datasets):
            other = LineageDataset(namespace=edge.input.namespace, name=edge.input.name, symlinks=(), version=None)
            room_bytes -= _size_bytes(other)
        if room_bytes < 0:
            break
        if source == len(datasets):
            as_input[edge.input] = source
            datasets.append(other)
        columns.append(column)
    return columns, datasets


def _size_bytes(item: LineageColumn | LineageDataset) -> int:
    """The bytes that `item` takes in a list, with its comma."""
    return len(canonical.encode(to_data(item))) + 1


def _name_of(dataset: LineageDataset) -> DatasetName:
    return DatasetName(namespace=dataset.namespace, name=dataset.name)


def _key(event: ParsedEvent, payload_sha256: str) -> str:
    """The event key: of its run, its data set, or its job; of the event itself, if that name is too long for a key."""
    if event.run_id is not None:
        return format_key("run", (event.run_id,))
    if event.dataset is not None:
        return format_key("dataset", (event.dataset.namespace, event.dataset.name))
    if event.job is not None:
        return format_key("pipeline", (event.job.namespace, event.job.name))
    return format_key("lineage", (payload_sha256,))
