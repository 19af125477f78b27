# SPDX-License-Identifier: Apache-2.0
"""
OpenLineage as it is sent: what the specification's own files and real engines send is read, anything else is refused
with the path of what is wrong, and never with another error.
"""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.format.events import DatasetName, LineageKind
from projections.errors import InvalidLineageError
from projections.lineage.json_text import BODY_SIZE_BYTES_MAX, DEPTH_MAX, EVENTS_MAX
from projections.lineage.openlineage import (
    SYMLINKS_MAX,
    TEXT_LENGTH_MAX,
    WHOLE_DATASET,
    ParsedEvent,
    parse_events,
    parse_time,
)

RUN_ID = "01900a3b-c4d5-7e6f-89ab-cdef01234567"
FACET = {"_producer": "https://example.com/etl", "_schemaURL": "https://example.com/facet.json"}
EVENT: dict[str, Any] = {  # the example of the REST reference
    "eventType": "COMPLETE",
    "eventTime": "2026-05-15T10:00:00Z",
    "producer": "spark/3.5.0",
    "run": {"runId": RUN_ID},
    "job": {"namespace": "etl", "name": "load_orders"},
    "inputs": [{"namespace": "iceberg", "name": "raw.events"}],
    "outputs": [{"namespace": "iceberg", "name": "sales.orders"}],
}
PLACES = {"RunFacet": "run", "JobFacet": "job"}


def parse(event: object) -> Any:
    (parsed,) = parse_events(json.dumps(event).encode()).events
    return parsed


def refused(body: bytes) -> InvalidLineageError:
    with pytest.raises(InvalidLineageError) as caught:
        parse_events(body)
    return caught.value


def field_of(event: object) -> str:
    return refused(json.dumps(event).encode()).field


def with_facets(place: str, facets: object) -> dict[str, Any]:
    """The event with facets in one place."""
    event = copy.deepcopy(EVENT)
    if place in {"run", "job"}:
        event[place]["facets"] = facets
    else:
        event[f"{place.removesuffix('Facets')}s"][0][place if place.endswith("Facets") else "facets"] = facets
    return event


def places_of(folder: str) -> list[str]:
    """Where the example facets of a folder belong."""
    if folder == "LineageFacet":
        return ["output", "job"]
    if folder == "BaseSubsetDatasetFacet":
        return ["inputFacets", "outputFacets"]
    for end, place in {**PLACES, "InputDatasetFacet": "inputFacets", "OutputDatasetFacet": "outputFacets"}.items():
        if folder.endswith(end):
            return [place]
    assert folder.endswith("DatasetFacet")
    return ["input", "output"]


def test_the_example_of_the_reference_is_read() -> None:
    event = parse(EVENT)
    assert (event.kind, event.event_type, event.run_id) == (LineageKind.RUN, "COMPLETE", RUN_ID)
    assert event.job == DatasetName(namespace="etl", name="load_orders")
    assert [dataset.name for dataset in event.inputs] == ["raw.events"]
    assert [dataset.name for dataset in event.outputs] == ["sales.orders"]
    assert json.loads(event.raw) == EVENT


def test_every_example_of_the_specification_is_accepted_where_it_belongs(shared_data: Path) -> None:
    folder = shared_data / "openlineage" / "examples"
    parse_events((folder / "example_full_event.json").read_bytes())
    accepted = 0
    for file in sorted(folder.glob("*/*.json")):
        facets = json.loads(file.read_bytes())
        for place in places_of(file.parent.name):
            parse(with_facets(place, facets))
            accepted += 1
        if file.parent.name.endswith("DatasetFacet") and places_of(file.parent.name) == ["input", "output"]:
            parse({"producer": "x", "dataset": {"namespace": "a", "name": "b", "facets": facets}})
    assert accepted >= 60


@pytest.mark.parametrize(
    ("place", "facet", "path"),
    [
        ("run", "parent", "run.facets.parent.run"),
        ("run", "errorMessage", "run.facets.errorMessage.message"),
        ("job", "sql", "job.facets.sql.query"),
        ("output", "columnLineage", "outputs[0].facets.columnLineage.fields"),
        ("input", "version", "inputs[0].facets.version.datasetVersion"),
    ],
)
def test_a_known_facet_that_lacks_a_member_is_refused_unless_it_is_deleted(place: str, facet: str, path: str) -> None:
    assert field_of(with_facets(place, {facet: FACET})) == path
    parse(with_facets(place, {facet: {**FACET, "_deleted": True}}))
    assert field_of(with_facets(place, {facet: {"_deleted": True}})) == f"{path.rpartition('.')[0]}._producer"


def test_what_real_engines_sent_is_read(shared_data: Path) -> None:
    files = sorted((shared_data / "openlineage" / "spark").glob("*.json"))
    events = {file.stem: parse(json.loads(file.read_bytes())) for file in files}
    assert len(events) == 8
    assert {event.engine for event in events.values()} == {"spark 4.1.4"}
    ctas = events["ctas_COMPLETE"]
    (made,) = ctas.outputs
    assert (made.namespace, made.name, made.version) == ("file", "/warehouse/wh/ol/ctas", "1450868855241318763")
    assert made.symlinks == (DatasetName(namespace="http://127.0.0.1:18190", name="ol.ctas"),)
    assert {(edge.field, edge.input_field) for edge in ctas.columns} == {("nm", "name"), ("email", "email")}
    assert WHOLE_DATASET in {edge.field for edge in events["merge_COMPLETE"].columns}
    start, complete = events["join_insert_START"], events["join_insert_COMPLETE"]
    assert start.run_id == complete.run_id
    assert (start.event_type, complete.event_type) == ("START", "COMPLETE")


def test_job_and_dataset_events_are_read() -> None:
    job = parse({"producer": "x", "job": EVENT["job"], "inputs": EVENT["inputs"], "outputs": EVENT["outputs"]})
    assert (job.kind, job.run_id, job.event_type, len(job.inputs)) == (LineageKind.JOB, None, None, 1)
    dataset = parse({"producer": "x", "dataset": {"namespace": "a", "name": "b"}})
    assert (dataset.kind, dataset.dataset.name, dataset.inputs) == (LineageKind.DATASET, "b", ())


def test_a_batch_keeps_the_bytes_of_each_event() -> None:
    first, second = json.dumps(EVENT, indent=1), json.dumps({**EVENT, "eventType": "START"}, separators=(",", ":"))
    sent = parse_events(f" [ {first} ,\n{second}\t] ".encode())
    assert sent.is_batch
    assert [event.raw.decode() for event in sent.events if isinstance(event, ParsedEvent)] == [first, second]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (json.dumps({**EVENT, "producer": 3}), "[1].producer"),
        ("{}", "[1].eventType"),
        ("null", "[1].event"),
        ("NaN", "[1].body"),
        ('{"x": {"y": 1, "y": 2}}', "[1].y"),
        (r'{"x": "}\" ] \ud800"}', r'[1].}" ] \ud800'),
        ('{"x": ' + "9" * 5_000 + "}", "[1].body"),
        ("[" * 200_000 + "]" * 200_000, "[1].body"),
    ],
)
def test_an_event_that_is_wrong_takes_no_other_of_its_batch_with_it(wrong: str, field: str) -> None:
    good = json.dumps(EVENT)
    first, found, last = parse_events(f"[{good}, {wrong} ,{good}]".encode()).events
    assert isinstance(found, InvalidLineageError)
    assert found.field == field
    assert first == last == parse(EVENT)


def test_a_batch_is_bounded() -> None:
    assert len(parse_events(b"[" + b"{}," * (EVENTS_MAX - 1) + b"{}]").events) == EVENTS_MAX
    assert refused(b"[" + b"{}," * EVENTS_MAX + b"{}]").field == "body"
    for body in (b"[]", b"[", b"[1,]", b"[{}", b"[{}]x", b'[{"x": NaN, ]'):
        refused(body)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"eventType": None}, "eventType"),
        ({"eventType": "DONE"}, "eventType"),
        ({"producer": None}, "producer"),
        ({"run": {}}, "run.runId"),
        ({"run": {"runId": "42"}}, "run.runId"),
        ({"run": {"runId": RUN_ID.replace("-", "")}}, "run.runId"),
        ({"run": 3}, "run"),
        ({"inputs": {}}, "inputs"),
        ({"inputs": [{"namespace": "a"}]}, "inputs[0].name"),
        ({"inputs": [None]}, "inputs[0]"),
        ({"inputs": [{"namespace": None, "name": "b"}]}, "inputs[0].namespace"),
        ({"job": {"namespace": "a", "name": 4}}, "job.name"),
        ({"run": {"runId": RUN_ID, "facets": {"mine": {}}}}, "run.facets.mine._producer"),
        ({"run": {"runId": RUN_ID, "facets": {"mine": 7}}}, "run.facets.mine"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(change: dict[str, Any], field: str) -> None:
    event = {name: value for name, value in {**EVENT, **change}.items() if value is not None}
    assert field_of(event) == field


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"3", b'"x"', b"\xff", b"\xef\xbb\xbf{}"])
def test_what_is_no_event_is_refused(body: bytes) -> None:
    refused(body)


@pytest.mark.parametrize("missing", ["eventTime", "schemaURL", "job", "inputs", "outputs"])
def test_what_the_reference_does_not_ask_for_may_be_missing(missing: str) -> None:
    parse({name: value for name, value in EVENT.items() if name != missing})


def test_a_member_that_is_null_is_one_that_is_missing() -> None:
    nulls = {"eventTime": None, "schemaURL": None, "job": None, "inputs": None, "more": None}
    assert parse({**EVENT, **nulls}).inputs == ()
    facets = with_facets("output", {"schema": None, "version": {**FACET, "datasetVersion": "7", "_deleted": None}})
    facets["run"]["facets"] = {"nominalTime": {**FACET, "nominalStartTime": "2026-05-15T10:00:00Z", "more": None}}
    assert parse(facets).outputs[0].version == "7"
    assert field_of({**EVENT, "producer": None}) == "producer"


def test_what_no_key_can_hold_is_omitted_and_counted() -> None:
    long = "b" * (TEXT_LENGTH_MAX + 1)
    links = [{"namespace": "a", "name": f"b{number}", "type": "TABLE"} for number in range(SYMLINKS_MAX + 1)]
    facets = {"symlinks": {**FACET, "identifiers": links}, "version": {**FACET, "datasetVersion": long}}
    columns = {"inputFields": [{"namespace": "a", "name": name, "field": "c"} for name in ("b", long)]}
    event = parse(
        {
            **EVENT,
            "producer": long,
            "job": {"namespace": "etl", "name": long},
            "inputs": [{"namespace": "a", "name": "b", "facets": facets}, {"namespace": "", "name": "b"}],
            "outputs": [
                {"namespace": "a", "name": "é" * 400},
                {"namespace": "a", "name": long},
                {"namespace": "a", "name": "c", "facets": {"columnLineage": {**FACET, "fields": {"x": columns}}}},
            ],
        }
    )
    assert [dataset.name for dataset in (*event.inputs, *event.outputs)] == ["b", "c"]
    assert (event.job, event.producer, event.inputs[0].version) == (None, long[:-1], None)
    assert len(event.inputs[0].symlinks) == SYMLINKS_MAX
    assert (len(event.columns), event.columns_omitted, event.datasets_omitted, event.names_omitted) == (1, 1, 3, 4)


@pytest.mark.parametrize(
    "text",
    [
        *("yesterday", "2026-02-30T00:00:00Z", "2026-05-15T10:00:00", "", 5, None),
        "0001-01-01T00:00:00+23:00",  # before the first year
    ],
)
def test_a_time_that_is_none_is_no_error(text: object) -> None:
    assert parse_time(text) is None
    assert parse({**EVENT, "eventTime": text}).event_time is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-05-15T10:00:00Z", "2026-05-15T10:00:00+00:00"),
        ("2026-05-15t12:00:00.5+02:00", "2026-05-15T10:00:00.500000+00:00"),
        ("2026-05-15T10:00:00.123456789Z", "2026-05-15T10:00:00.123456+00:00"),
    ],
)
def test_a_time_of_rfc_3339_is_read_to_the_microsecond(text: str, shown: str) -> None:
    t = parse_time(text)
    assert t is not None
    assert t.isoformat() == shown
    assert parse({**EVENT, "eventTime": text}).event_time == text


def test_unknown_facets_and_members_are_accepted() -> None:
    event = with_facets("run", {"mine": {**FACET, "anything": [1.5, {"x": None}]}})
    parse({**event, "more": True})


@pytest.mark.parametrize(
    "text",
    [
        '"x": NaN',
        '"x": Infinity',
        '"x": -Infinity',
        '"x": 1e999',
        '"x": 1, "x": 2',
        '"x": {"y": 1, "y": 1}',
        '"x": {' + "".join(f'"{number}": 1, ' for number in range(50_000)) + '"49999": 1}',
        r'"x": "\ud800"',
        r'"\udfff": 1',
        '"x": ' + "9" * 5_000,
        '"x": ' + "[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1),
        '"x": ' + "[" * 200_000,
    ],
)
def test_what_two_readers_could_read_in_two_ways_is_refused(text: str) -> None:
    body = json.dumps(EVENT)[:-1] + ", " + text + "}"
    refused(body.encode())
    parse_events((json.dumps(EVENT)[:-1] + ', "x": 1}').encode())


def test_limits_are_exact() -> None:
    def padded(size: int) -> bytes:
        body = json.dumps({**EVENT, "pad": ""})
        return (body[:-2] + "x" * (size - len(body)) + body[-2:]).encode()

    parse_events(padded(BODY_SIZE_BYTES_MAX))
    assert refused(padded(BODY_SIZE_BYTES_MAX + 1)).field == "body"


TEXTS = st.text(max_size=8) | st.sampled_from([RUN_ID, "START"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
NAMES = st.sampled_from(
    [
        *("eventType", "eventTime", "producer", "run", "runId", "job", "namespace", "name", "inputs", "outputs"),
        *("dataset", "facets", "version", "datasetVersion", "symlinks", "identifiers", "type", "columnLineage"),
        *("fields", "inputFields", "field", "processing_engine", "_producer", "_schemaURL", "_deleted"),
    ]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=25
)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_any_json_is_read_or_refused(value: object) -> None:
    with suppress(InvalidLineageError):
        parse_events(json.dumps(value).encode())


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ud8001eE.-+ \n', max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(InvalidLineageError):
        parse_events(body)


@st.composite
def damaged(draw: st.DrawFn) -> Any:
    """A real event with one value in it replaced."""
    event = with_facets(
        "output",
        {
            "version": {**FACET, "datasetVersion": "7"},
            "symlinks": {**FACET, "identifiers": [{"namespace": "a", "name": "b", "type": "TABLE"}]},
            "columnLineage": {
                **FACET,
                "fields": {"x": {"inputFields": [{"namespace": "a", "name": "b", "field": "c"}]}},
                "dataset": [{"namespace": "a", "name": "b", "field": "d"}],
            },
        },
    )
    event["run"]["facets"] = {"processing_engine": {**FACET, "name": "spark", "version": "4"}}
    at: Any = event
    while True:
        step = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[step], dict | list) or not at[step] or draw(st.integers(0, 3)) == 0:
            at[step] = draw(VALUES)
            return event
        at = at[step]


@settings(max_examples=50, deadline=None)
@given(damaged())
def test_an_event_with_any_value_replaced_is_read_or_refused(event: Any) -> None:
    with suppress(InvalidLineageError):
        parse(event)
