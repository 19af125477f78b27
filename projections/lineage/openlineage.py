# SPDX-License-Identifier: Apache-2.0
"""
Parses OpenLineage events: bytes in, checked events out. Pure.

Guarantee: a returned event fits the OpenLineage schemas (`schema.py`); anything else raises `InvalidLineageError` with
the path of the first wrong member, and never another error. A valid event is not refused for long names or many items:
what no key or entry can hold is counted as omitted.

Required members are those of the REST reference: a run event needs `eventType`, `run.runId` and `producer`. Its `job`
may be missing, and an `eventTime` that is missing or invalid is replaced by the time of receipt. A null member counts
as missing: serialisers write unknown values that way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ledger.format.event import KEY_LENGTH_MAX, format_key
from ledger.format.events import DatasetName, LineageDataset, LineageKind
from projections.errors import InvalidLineageError
from projections.lineage.json_text import RawJson, parse_body
from projections.lineage.schema import check_event

TEXT_LENGTH_MAX: Final = 2_000
"""Characters of a name, a version or a producer."""
SYMLINKS_MAX: Final = 20
"""Other names of a data set that are used to resolve it; more are omitted."""

WHOLE_DATASET: Final = ""
"""The output column of a dependency of all columns: what the rows were filtered, joined or grouped by."""

_EVENT_TYPES: Final = ("START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER")
_RUN_ID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnEdge:
    """Column `field` of `output` was made from `input_field` of `input`; `field` may be `WHOLE_DATASET`."""

    output: DatasetName
    field: str
    input: DatasetName
    input_field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEvent:
    """
    One event: the members that are used, and its own bytes.

    `event_time` is as it was sent, or None if it is no time. A data set may be both input and output, in different
    versions; `dataset` is that of a dataset event. Omitted items have a name that no key can hold.
    """

    raw: bytes
    kind: LineageKind
    event_time: str | None
    event_type: str | None
    run_id: str | None
    producer: str
    engine: str | None
    job: DatasetName | None
    inputs: tuple[LineageDataset, ...]
    outputs: tuple[LineageDataset, ...]
    dataset: LineageDataset | None
    columns: tuple[ColumnEdge, ...]
    columns_omitted: int
    datasets_omitted: int
    names_omitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEvents:
    """One event or a batch; an invalid event of a batch is replaced by its error, whose path has its position."""

    is_batch: bool
    events: tuple[ParsedEvent | InvalidLineageError, ...]


def parse_events(body: bytes) -> ParsedEvents:
    """
    Return the events of a JSON array, or the one event that `body` is.

    Raises:
        InvalidLineageError: if `body` is neither, or is one event that is not valid.
    """
    sent = parse_body(body)
    if not sent.is_batch:
        return ParsedEvents(is_batch=False, events=tuple(parse_event(value) for value in sent.values))
    return ParsedEvents(
        is_batch=True, events=tuple(_item(position, value) for position, value in enumerate(sent.values))
    )


def _item(position: int, value: RawJson | InvalidLineageError) -> ParsedEvent | InvalidLineageError:
    try:
        return parse_event(value)
    except InvalidLineageError as error:
        return InvalidLineageError(f"[{position}].{error.field}", error.reason)


def parse_event(value: RawJson | InvalidLineageError) -> ParsedEvent:
    """
    Return the event that a value is.

    Raises:
        InvalidLineageError: if it is none, or was refused as JSON already.
    """
    if isinstance(value, InvalidLineageError):
        raise value
    return _Reading().event(_without_nulls(value.value), value.raw)


def parse_time(text: object) -> datetime | None:
    """
    Return the aware time in UTC that an RFC 3339 text (section 5.6) names; None if it is none. Finer than microseconds
    is cut off.
    """
    if not isinstance(text, str) or len(text) > TEXT_LENGTH_MAX or (match := _TIME.fullmatch(text)) is None:
        return None
    date, clock, fraction, zone = match.groups()
    try:
        t = datetime.fromisoformat(f"{date}T{clock}.{(fraction or '').ljust(6, '0')}{zone.upper()}")
        return t.astimezone(UTC)
    except (ValueError, OverflowError):
        return None  # no such day, or hour, or a year before the first


def _kind(event: Mapping[str, Any]) -> LineageKind:
    """Return the kind of an event by the members that only one kind has; without any it is taken for a run event."""
    if "run" in event or "eventType" in event:
        return LineageKind.RUN
    if "job" in event:
        return LineageKind.JOB
    return LineageKind.DATASET if "dataset" in event else LineageKind.RUN


def _run_id(run: Mapping[str, Any]) -> str:
    run_id: str = run["runId"]
    if not _RUN_ID.fullmatch(run_id):
        raise InvalidLineageError("run.runId", f"expected a UUID, found {run_id!a:.60}")
    return run_id.lower()


def _without_nulls(value: Any) -> Any:
    """Return `value` without members that are null; it is at most 100 levels deep."""
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _fields(facets: Mapping[str, Any]) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = facets["columnLineage"]["fields"]
    return fields


def _is_in_force(facets: Mapping[str, Any], name: str) -> bool:
    return name in facets and facets[name].get("_deleted") is not True


@dataclass(slots=True, kw_only=True)
class _Reading:
    """Reads one event that fits the schemas, and counts what it omits."""

    columns_omitted: int = 0
    datasets_omitted: int = 0
    names_omitted: int = 0

    def event(self, event: Any, raw: bytes) -> ParsedEvent:
        if not isinstance(event, dict):
            raise InvalidLineageError("event", f"expected an object, found {type(event).__name__}")
        kind = _kind(event)
        if kind is LineageKind.RUN and "eventType" not in event:
            raise InvalidLineageError("eventType", f"expected one of {', '.join(_EVENT_TYPES)}, found none")
        check_event(kind, event)
        run, job = event.get("run", {}), event.get("job", {})
        is_dataset = kind is LineageKind.DATASET
        inputs, outputs = ([] if is_dataset else event.get(side, []) for side in ("inputs", "outputs"))
        made = [event["dataset"]] if is_dataset else outputs
        return ParsedEvent(
            raw=raw,
            kind=kind,
            event_time=event.get("eventTime") if parse_time(event.get("eventTime")) else None,
            event_type=event["eventType"] if kind is LineageKind.RUN else None,
            run_id=_run_id(run) if kind is LineageKind.RUN else None,
            producer=self._producer(event["producer"]),
            engine=self._engine(run.get("facets", {})) if kind is LineageKind.RUN else None,
            job=None if is_dataset else self._job(job, kind),
            inputs=self._datasets(inputs),
            outputs=self._datasets(outputs),
            dataset=next(iter(self._datasets([event["dataset"]])), None) if is_dataset else None,
            columns=tuple(dict.fromkeys(edge for dataset in made for edge in self._columns(dataset))),
            columns_omitted=self.columns_omitted,
            datasets_omitted=self.datasets_omitted,
            names_omitted=self.names_omitted,
        )

    def _producer(self, producer: str) -> str:
        return producer if self._fits(producer) else producer[:TEXT_LENGTH_MAX]

    def _engine(self, facets: Mapping[str, Any]) -> str | None:
        """Name and version of the engine; without a name there is none."""
        engine = facets.get("processing_engine", {})
        words = [word for word in (engine.get("name"), engine.get("version")) if isinstance(word, str) and word]
        if not engine.get("name") or not words:
            return None
        return text if self._fits(text := " ".join(words)) else None

    def _job(self, job: Mapping[str, Any], kind: LineageKind) -> DatasetName | None:
        """The job's name; a run may have none, a job event is about nothing else."""
        if missing := [member for member in ("namespace", "name") if member not in job]:
            if kind is LineageKind.RUN:
                return None
            raise InvalidLineageError(f"job.{missing[0]}", "expected a name, found none")
        if not job["namespace"] or not job["name"]:
            return None
        name = _named(job, kind="pipeline")
        self.names_omitted += name is None
        return name

    def _datasets(self, datasets: Iterable[Mapping[str, Any]]) -> tuple[LineageDataset, ...]:
        """The data sets that can be named; what has no name, or a longer one than a key can hold, is omitted."""
        read = []
        for dataset in datasets:
            if (name := _named(dataset, kind="dataset")) is None:
                self.datasets_omitted += 1
                continue
            facets = dataset.get("facets", {})
            version = facets["version"]["datasetVersion"] if _is_in_force(facets, "version") else None
            read.append(
                LineageDataset(
                    namespace=name.namespace,
                    name=name.name,
                    symlinks=self._symlinks(facets),
                    version=version if version is None or self._fits(version) else None,
                )
            )
        return tuple(read)

    def _symlinks(self, facets: Mapping[str, Any]) -> tuple[DatasetName, ...]:
        identifiers = facets.get("symlinks", {}).get("identifiers", []) if _is_in_force(facets, "symlinks") else []
        names = dict.fromkeys(DatasetName(namespace=each["namespace"], name=each["name"]) for each in identifiers)
        short = [each for each in names if max(len(each.namespace), len(each.name)) <= TEXT_LENGTH_MAX]
        self.names_omitted += len(names) - len(short[:SYMLINKS_MAX])
        return tuple(short[:SYMLINKS_MAX])

    def _columns(self, dataset: Mapping[str, Any]) -> Iterator[ColumnEdge]:
        """Yield the column edges of facet `columnLineage`: those of each field, then those of the whole data set."""
        facets = dataset.get("facets", {})
        if not _is_in_force(facets, "columnLineage"):
            return
        output = _named(dataset, kind="dataset")
        dependencies = [(field, of["inputFields"]) for field, of in _fields(facets).items()]
        dependencies.append((WHOLE_DATASET, facets["columnLineage"].get("dataset", [])))
        for field, inputs in dependencies:
            for each in inputs:
                source, input_field = _named(each, kind="dataset"), each["field"]
                if output is None or source is None or max(len(field), len(input_field)) > TEXT_LENGTH_MAX:
                    self.columns_omitted += 1
                else:
                    yield ColumnEdge(output=output, field=field, input=source, input_field=input_field)

    def _fits(self, text: str) -> bool:
        fits = len(text) <= TEXT_LENGTH_MAX
        self.names_omitted += not fits
        return fits


def _named(named: Mapping[str, Any], *, kind: str) -> DatasetName | None:
    """Return a data set's or a job's name; None if it is empty, or longer than a key of the log."""
    name = DatasetName(namespace=named["namespace"], name=named["name"])
    if not name.namespace or not name.name or len(name.namespace) + len(name.name) > KEY_LENGTH_MAX:
        return None
    return name if len(format_key(kind, (name.namespace, name.name))) <= KEY_LENGTH_MAX else None
