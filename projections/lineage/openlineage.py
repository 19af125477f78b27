"""
OpenLineage events as they are sent: bytes in, checked events out. Pure.

Guarantee: an event that is returned fits the OpenLineage schemas (`schema.py`) and our limits; whatever else is sent
raises `InvalidLineageError` with the path of the first member that is wrong, and never another error.

The members that are asked for are those of the REST reference: a run event needs `eventType`, `run.runId` and
`producer`. Its `job` may be missing, and an `eventTime` that is missing or no time stands for the time of receipt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from ledger.errors import FormatError
from ledger.event import KEY_LENGTH_MAX
from ledger.events import DatasetName, LineageDataset, LineageKind
from ledger.keys import format_key
from projections.lineage.errors import InvalidLineageError
from projections.lineage.json_text import parse_body
from projections.lineage.schema import check_event

TEXT_LENGTH_MAX: Final = 2_000
"""Characters of a name, a version or a producer."""
SYMLINKS_MAX: Final = 20
"""Other names of one data set."""

WHOLE_DATASET: Final = ""
"""The output column of a dependency that all columns share: what the rows were filtered, joined or grouped by."""

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
class SentEvent:
    """
    One event: what of it is read, and its own bytes.

    `event_time` is as it was sent, or None if that is no time. A data set may stand among inputs and outputs, with
    different versions; `dataset` is that of a dataset event.
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


def parse_events(body: bytes) -> list[SentEvent]:
    """
    Return the events of a JSON array, or the one event that `body` is.

    Raises:
        InvalidLineageError: if any of them is not valid; in a batch the path begins with its position.
    """
    values = parse_body(body)
    if len(values) == 1:
        return [_parse_event(*values[0])]
    events = []
    for position, (value, raw) in enumerate(values):
        try:
            events.append(_parse_event(value, raw))
        except InvalidLineageError as error:
            raise InvalidLineageError(f"[{position}].{error.field}", error.reason) from error
    return events


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


def _parse_event(event: Any, raw: bytes) -> SentEvent:
    if not isinstance(event, dict):
        raise InvalidLineageError("event", f"expected an object, found {type(event).__name__}")
    kind = _kind(event)
    if kind is LineageKind.RUN and "eventType" not in event:
        raise InvalidLineageError("eventType", f"expected one of {', '.join(_EVENT_TYPES)}, found none")
    check_event(kind, event)
    run, job = event.get("run", {}), event.get("job", {})
    sides = {side: event.get(side, []) if kind is not LineageKind.DATASET else [] for side in ("inputs", "outputs")}
    made = [(f"outputs[{position}]", dataset) for position, dataset in enumerate(sides["outputs"])]
    made += [("dataset", event["dataset"])] if kind is LineageKind.DATASET else []
    return SentEvent(
        raw=raw,
        kind=kind,
        event_time=event.get("eventTime") if parse_time(event.get("eventTime")) else None,
        event_type=event["eventType"] if kind is LineageKind.RUN else None,
        run_id=_run_id(run) if kind is LineageKind.RUN else None,
        producer=_text(event["producer"], "producer"),
        engine=_engine(run.get("facets", {})) if kind is LineageKind.RUN else None,
        job=None if kind is LineageKind.DATASET else _job(job, kind),
        inputs=tuple(_dataset(dataset, f"inputs[{position}]") for position, dataset in enumerate(sides["inputs"])),
        outputs=tuple(_dataset(dataset, f"outputs[{position}]") for position, dataset in enumerate(sides["outputs"])),
        dataset=_dataset(event["dataset"], "dataset") if kind is LineageKind.DATASET else None,
        columns=tuple(dict.fromkeys(edge for path, dataset in made for edge in _columns(dataset, path))),
    )


def _kind(event: Mapping[str, Any]) -> LineageKind:
    """Tell the three apart by what only one of them has; what has nothing is judged as a run event."""
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


def _engine(facets: Mapping[str, Any]) -> str | None:
    """Name and version of the engine; without a name there is none."""
    engine = facets.get("processing_engine", {})
    words = [word for word in (engine.get("name"), engine.get("version")) if isinstance(word, str) and word]
    if not engine.get("name") or not words:
        return None
    return _text(" ".join(words), "run.facets.processing_engine")


def _job(job: Mapping[str, Any], kind: LineageKind) -> DatasetName | None:
    """The job's name; a run may have none, a job event is about nothing else."""
    if not job.get("namespace") or not job.get("name"):
        if kind is LineageKind.RUN:
            return None
        missing = next(member for member in ("namespace", "name") if not job.get(member))
        raise InvalidLineageError(f"job.{missing}", "expected a name, found none")
    return _name(job, "job", kind="pipeline")


def _dataset(dataset: Mapping[str, Any], path: str) -> LineageDataset:
    name = _name(dataset, path, kind="dataset")
    facets = dataset.get("facets", {})
    where = f"{path}.facets.symlinks.identifiers"
    identifiers = facets.get("symlinks", {}).get("identifiers", []) if _is_in_force(facets, "symlinks") else []
    if len(identifiers) > SYMLINKS_MAX:
        raise InvalidLineageError(where, f"expected at most {SYMLINKS_MAX}, found {len(identifiers)}")
    symlinks = [
        DatasetName(
            namespace=_text(identifier["namespace"], f"{where}[{position}].namespace"),
            name=_text(identifier["name"], f"{where}[{position}].name"),
        )
        for position, identifier in enumerate(identifiers)
    ]
    version = facets["version"]["datasetVersion"] if _is_in_force(facets, "version") else None
    return LineageDataset(
        namespace=name.namespace,
        name=name.name,
        symlinks=tuple(dict.fromkeys(symlinks)),
        version=version and _text(version, f"{path}.facets.version.datasetVersion"),
    )


def _columns(dataset: Mapping[str, Any], path: str) -> Iterator[ColumnEdge]:
    """Yield the column edges of facet `columnLineage`: those of each field, then those of the whole data set."""
    facets = dataset.get("facets", {})
    if not _is_in_force(facets, "columnLineage"):
        return
    output = DatasetName(namespace=dataset["namespace"], name=dataset["name"])
    where = f"{path}.facets.columnLineage"
    told = [(field, f"{where}.fields.{field:.40}", of["inputFields"]) for field, of in _fields(facets).items()]
    told.append((WHOLE_DATASET, f"{where}.dataset", facets["columnLineage"].get("dataset", [])))
    for field, place, inputs in told:
        for position, source in enumerate(inputs):
            at = f"{place}[{position}]"
            yield ColumnEdge(
                output=output,
                field=_text(field, place),
                input=_name(source, at, kind="dataset"),
                input_field=_text(source["field"], f"{at}.field"),
            )


def _fields(facets: Mapping[str, Any]) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = facets["columnLineage"]["fields"]
    return fields


def _is_in_force(facets: Mapping[str, Any], name: str) -> bool:
    return name in facets and facets[name].get("_deleted") is not True


def _name(named: Mapping[str, Any], path: str, *, kind: str) -> DatasetName:
    """A data set's or a job's name, which must be short enough for a key of the log."""
    name = DatasetName(
        namespace=_text(named["namespace"], f"{path}.namespace"), name=_text(named["name"], f"{path}.name")
    )
    for member, text in (("namespace", name.namespace), ("name", name.name)):
        if not text:
            raise InvalidLineageError(f"{path}.{member}", "expected a name, found an empty text")
    try:
        key = format_key(kind, (name.namespace, name.name))
    except FormatError as error:
        raise InvalidLineageError(path, str(error)) from error
    if len(key) > KEY_LENGTH_MAX:
        reason = f"expected at most {KEY_LENGTH_MAX} bytes as a key, percent-encoded, found {len(key)}"
        raise InvalidLineageError(f"{path}.name", reason)
    return name


def _text(text: str, path: str) -> str:
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidLineageError(path, f"expected at most {TEXT_LENGTH_MAX} characters, found {len(text)}")
    return text
