"""
Lineage into the log: what arrived, as the groups to append. Pure; the gateway and streams call `receive`.

One event is one group with one entry. Its id is derived from the run, the type, the time and the payload's hash (a run
id alone would drop every COMPLETE after its START), so the same event adds nothing when it comes again. If it comes by
another caller, or had no time of its own, the log holds it in other words and the append raises `GroupMismatchError`:
that too means that it is there.

The raw event may hold personal data (SQL, owners, host names): it is a payload part and stands nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ledger import canonical
from ledger.errors import LimitExceededError
from ledger.event import EVENT_SIZE_BYTES_MAX, SALT_SIZE_BYTES, Event, Part, PreparedEvent, derived_group_id, prepare
from ledger.events import DatasetName, LineageColumn, LineageDataset, LineageReceived, to_data
from ledger.keys import format_key
from ledger.sequence import Group
from projections.lineage.errors import InvalidLineageError
from projections.lineage.openlineage import ColumnEdge, SentEvent, parse_events

DATASETS_MAX: Final = 1_000
"""Data sets that one event may read or write; usually the size of its entry is the limit before."""
EDGES_MAX: Final = 1_000
"""Inputs times outputs of one event: each pair may be an edge, and each edge is judged."""
PART: Final = "event"


def receive(body: bytes, *, actor: str, at: datetime, random: Callable[[int], bytes]) -> list[Group]:
    """
    Return the groups, one an event and in order, for one event or a batch that `actor` sent and that arrived `at`.

    `random` yields that many random bytes, for the salts of the parts.

    Raises:
        InvalidLineageError: if any event is not valid, or too large; then nothing of the batch is to be appended.
    """
    return [to_group(event, actor=actor, at=at, random=random) for event in parse_events(body)]


def to_group(event: SentEvent, *, actor: str, at: datetime, random: Callable[[int], bytes]) -> Group:
    """
    Return one event as a group of one `lineage.received`.

    Column edges are kept in order until the entry is full; the others are counted.

    Raises:
        InvalidLineageError: if it names more data sets than an entry can hold, or more pairs of them than are judged.
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
    named = _named(event)

    def prepared(columns: Sequence[LineageColumn], datasets: Sequence[LineageDataset]) -> PreparedEvent:
        data = LineageReceived(
            columns=tuple(columns),
            columns_omitted=len(event.columns) - len(columns),
            datasets=tuple(datasets),
            engine=event.engine,
            event_time=event.event_time or canonical.format_time(at),
            event_type=event.event_type,
            inputs=named.inputs,
            job=event.job,
            kind=event.kind,
            outputs=named.outputs,
            payload_sha256=payload_sha256,
            producer=event.producer,
            run_id=event.run_id,
        )
        return prepare(
            Event(
                type=LineageReceived.TYPE,
                version=LineageReceived.VERSION,
                key=_key(event),
                actor=actor,
                occurred_at=at,
                data=to_data(data),
                parts=(part,),
            )
        )

    try:
        bare = prepared((), named.datasets)
    except LimitExceededError as error:
        reason = f"expected data sets that fit an entry of {EVENT_SIZE_BYTES_MAX} bytes, found {len(named.datasets)}"
        raise InvalidLineageError("inputs and outputs", f"{reason}: name fewer") from error
    columns, datasets = _fitting(event.columns, named, EVENT_SIZE_BYTES_MAX - len(bare.event))
    return Group(id=group_id, then=(prepared(columns, datasets) if columns else bare,))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """The data sets of an event, each once, and which of them were read and written."""

    datasets: tuple[LineageDataset, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def _named(event: SentEvent) -> _Named:
    """
    A data set that was read in one version and written in another stands there twice: its versions are two things.
    """
    of_dataset_event = () if event.dataset is None else (event.dataset,)
    positions: dict[LineageDataset, int] = {}
    for dataset in (*event.inputs, *event.outputs, *of_dataset_event):
        positions.setdefault(dataset, len(positions))
    inputs = tuple(dict.fromkeys(positions[dataset] for dataset in event.inputs))
    outputs = tuple(dict.fromkeys(positions[dataset] for dataset in event.outputs))
    if len(positions) > DATASETS_MAX:
        reason = f"expected at most {DATASETS_MAX} data sets, found {len(positions)}: name fewer"
        raise InvalidLineageError("inputs and outputs", reason)
    if (pairs := len(inputs) * len(outputs)) > EDGES_MAX:
        reason = f"expected at most {EDGES_MAX} pairs of an input and an output, found {pairs}: name fewer"
        raise InvalidLineageError("inputs and outputs", reason)
    return _Named(datasets=tuple(positions), inputs=inputs, outputs=outputs)


def _fitting(
    edges: Sequence[ColumnEdge], named: _Named, room_bytes: int
) -> tuple[list[LineageColumn], list[LineageDataset]]:
    """
    Return the column edges that fit into so many bytes more, and the data sets with those that only they name.
    """
    datasets = list(named.datasets)
    # A name may stand there in two versions: columns are read from the first, and are written to the last of them.
    as_input: dict[DatasetName, int] = {}
    as_output: dict[DatasetName, int] = {}
    for position in (*named.inputs, *range(len(datasets))):
        as_input.setdefault(_name_of(datasets[position]), position)
    for position in (*range(len(datasets)), *named.outputs):
        as_output[_name_of(datasets[position])] = position
    columns: list[LineageColumn] = []
    for edge in edges:
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


def _key(event: SentEvent) -> str:
    """What the event is about: its run, its data set, or its job."""
    if event.run_id is not None:
        return format_key("run", (event.run_id,))
    if event.dataset is not None:
        return format_key("dataset", (event.dataset.namespace, event.dataset.name))
    if event.job is not None:
        return format_key("pipeline", (event.job.namespace, event.job.name))
    raise AssertionError("a job event without a job is refused by `openlineage`")
