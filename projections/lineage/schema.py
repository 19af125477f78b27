# SPDX-License-Identifier: Apache-2.0
"""
The OpenLineage schemas, compiled once, and what an event must fit. Pure; the one place that knows jsonschema-rs.

The specification's own files are loaded unchanged; three things are checked less strictly than they do, as the REST
reference has it: `eventTime` and `schemaURL` may be missing, and so may a run's `job`. A facet is judged by the schema
of its name and place; one of an unknown name, or that only says that it is deleted, needs `_producer` and `_schemaURL`
and nothing else. What a format such as `uri` means is not checked: producers disagree about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

import jsonschema_rs

from ledger.format.events import LineageKind
from projections.errors import InvalidLineageError

PATH_LENGTH_MAX: Final = 300
REASON_LENGTH_MAX: Final = 300

_CORE: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json"
_OPTIONAL: Final[Mapping[str, frozenset[str]]] = {
    "BaseEvent": frozenset({"eventTime", "schemaURL"}),
    "RunEvent": frozenset({"job"}),
    "Job": frozenset({"namespace", "name"}),
}
"""Members that the specification wants and we do not."""

_EVENTS: Final = {LineageKind.RUN: "RunEvent", LineageKind.JOB: "JobEvent", LineageKind.DATASET: "DatasetEvent"}
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "RunFacet": ("run",),
    "JobFacet": ("job",),
    "BaseSubsetDatasetFacet": ("input", "output"),
    "InputDatasetFacet": ("input",),
    "OutputDatasetFacet": ("output",),
    "DatasetFacet": ("dataset",),
    "LineageFacet": ("dataset", "job"),
}
"""Where a facet stands, by the end of its schema's name; the first that fits."""


def check_event(kind: LineageKind, event: Mapping[str, Any]) -> None:
    """
    Check an event and every facet in it against the schemas.

    Raises:
        InvalidLineageError: at the first member that does not fit.
    """
    _check(_validators()["", kind.value], event, "")
    for place, path, facets in _facets(kind, event):
        for name, facet in facets.items():
            validator = _validators().get((place, name))
            if validator is None or facet.get("_deleted") is True:
                continue  # the event's own schema has checked what every facet has
            _check(validator, {name: facet}, path)


def _facets(kind: LineageKind, event: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield each object of facets with its place and path; the event has passed its own schema."""
    if kind is LineageKind.DATASET:
        yield "dataset", "dataset.facets", event["dataset"].get("facets", {})
        return
    for place in ("run", "job") if kind is LineageKind.RUN else ("job",):
        yield place, f"{place}.facets", event.get(place, {}).get("facets", {})
    for place in ("input", "output"):
        for position, dataset in enumerate(event.get(f"{place}s", ())):
            path = f"{place}s[{position}]"
            yield "dataset", f"{path}.facets", dataset.get("facets", {})
            yield place, f"{path}.{place}Facets", dataset.get(f"{place}Facets", {})


def _check(validator: jsonschema_rs.Draft202012Validator, instance: Mapping[str, Any], path: str) -> None:
    try:
        validator.validate(instance)
    except jsonschema_rs.ValidationError as error:
        raise InvalidLineageError(_path(path, error), _reason(error)) from error


def _path(path: str, error: jsonschema_rs.ValidationError) -> str:
    steps = list(error.instance_path)
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        steps.append(error.kind.property)
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path[:PATH_LENGTH_MAX] or "event"


def _reason(error: jsonschema_rs.ValidationError) -> str:
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return "expected it, found none"
    return error.message if len(error.message) <= REASON_LENGTH_MAX else f"{error.message[:REASON_LENGTH_MAX]}…"


@cache
def _validators() -> Mapping[tuple[str, str], jsonschema_rs.Draft202012Validator]:
    """The validators of events, by ("", kind), and of facets, by (place, name)."""
    core = _core()
    facets = dict(_facet_schemas())
    registry = jsonschema_rs.Registry([(_CORE, core), *((schema["$id"], schema) for schema in facets.values())])

    def compiled(schema: Mapping[str, Any]) -> jsonschema_rs.Draft202012Validator:
        return jsonschema_rs.Draft202012Validator(dict(schema), registry=registry, offline=True)

    validators = {("", kind.value): compiled({"$ref": f"{_CORE}#/$defs/{name}"}) for kind, name in _EVENTS.items()}
    for title, schema in facets.items():
        end = next(end for end in _PLACES if title.endswith(end))
        validator = compiled({"$ref": schema["$id"]})
        validators |= {(place, name): validator for place in _PLACES[end] for name in schema["properties"]}
    return validators


def _core() -> dict[str, Any]:
    core: dict[str, Any] = json.loads(files(__package__).joinpath("schemas", "OpenLineage.json").read_bytes())
    for name, optional in _OPTIONAL.items():
        for part in core["$defs"][name].get("allOf", [core["$defs"][name]]):
            if "required" in part:
                part["required"] = [member for member in part["required"] if member not in optional]
    del core["$defs"]["BaseEvent"]["properties"]["eventTime"]  # what is no time stands for now, whatever its type
    for definition in core["$defs"].values():
        for part in definition.get("allOf", [definition]):
            for member in part.get("properties", {}).values():
                if [*map(set, member.get("anyOf", []))] == [{"type", "additionalProperties"}]:
                    # A choice of one: without it, an error names the member that is wrong and not the whole object.
                    member |= member.pop("anyOf")[0]
    return core


def _facet_schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(files(__package__).joinpath("schemas", "facets").iterdir(), key=lambda file: file.name):
        yield file.name.removesuffix(".json"), json.loads(file.read_bytes())
