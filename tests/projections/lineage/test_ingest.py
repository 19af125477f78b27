# SPDX-License-Identifier: Apache-2.0
"""
Events as groups of the log: the raw event is a part, the same event is the same group, and an entry is never too large.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ledger.format import canonical
from ledger.format.event import EVENT_SIZE_BYTES_MAX
from ledger.format.events import LineageKind, LineageReceived, from_data
from ledger.format.sequence import Group
from projections.errors import InvalidLineageError
from projections.lineage.ingest import LineageGroup, to_groups
from testkit.projections.lineage_stories import ADA, FACET, NOON, NOON_TEXT, dataset, run_event, topic, topics_event

BOB = "b" * 32


def group_of(body: bytes, *, actor: str = ADA, random: Callable[[int], bytes] = os.urandom) -> Group:
    (received,) = to_groups(body, actor=actor, at=NOON, random=random).events
    assert isinstance(received, LineageGroup), received
    return received.group


def data_of(body: bytes) -> LineageReceived:
    return from_data(LineageReceived, canonical.decode(group_of(body).then[0].data))


def with_columns(count: int, *, of: str = "raw", width: int = 20) -> bytes:
    """An event with so many column edges, from as many data sets if `of` is formatted with their number."""
    fields = {
        f"column{number:0{width}}": {"inputFields": [{**topic(of.format(number)), "field": f"from{number}"}]}
        for number in range(count)
    }
    made = {**topic("clean"), "facets": {"columnLineage": {**FACET, "fields": fields}}}
    return run_event([topic("raw")], [made])


def test_the_raw_event_is_a_part_of_its_sender_and_in_no_other_place() -> None:
    secret = "social security number 123-45-6789"
    body = topics_event(
        (["raw"], ["clean"]), job={"namespace": "etl", "name": "j", "facets": {"sql": {**FACET, "query": secret}}}
    )
    (event,) = group_of(body).then
    (part,) = event.parts
    assert (part.name, part.payload, part.subject) == ("event", body, ADA)
    assert secret.encode() not in event.event
    data = data_of(body)
    assert data.payload_sha256 == hashlib.sha256(body).hexdigest()
    assert (data.kind, data.event_type, data.event_time) == (LineageKind.RUN, "COMPLETE", NOON_TEXT)
    assert (data.inputs, data.outputs) == ((0,), (1,))


def test_the_same_event_is_the_same_group_whatever_its_salt_and_sender() -> None:
    body = topics_event((["raw"], ["clean"]))
    first, again = group_of(body), group_of(body)
    assert first.id == again.id == group_of(body, actor=BOB).id
    assert first.then[0].data == again.then[0].data
    assert first.then[0].parts[0].salt != again.then[0].parts[0].salt
    assert first.id.version == 8


@pytest.mark.parametrize(
    "members",
    [
        {"eventType": "START"},
        {"eventTime": "2026-11-20T12:00:01Z"},
        {"run": {"runId": "01900a3b-c4d5-7e6f-89ab-cdef01234567"}},
        {"producer": "other"},
    ],
)
def test_another_run_type_time_or_payload_is_another_group(members: dict[str, Any]) -> None:
    body = topics_event((["raw"], ["clean"]))
    assert group_of(body).id != group_of(topics_event((["raw"], ["clean"]), **members)).id


@pytest.mark.parametrize("time", [None, "yesterday"])
def test_an_event_without_a_time_happened_when_it_arrived_and_is_one_group_all_the_same(time: str | None) -> None:
    body = topics_event((["raw"], ["clean"]), eventTime=time)
    assert data_of(body).event_time == NOON_TEXT
    (later,) = to_groups(body, actor=ADA, at=NOON + timedelta(hours=1), random=bytes).events
    assert isinstance(later, LineageGroup)
    assert later.group.id == group_of(body).id


def test_the_key_names_what_the_event_is_about() -> None:
    event = json.loads(topics_event((["raw"], ["clean"])))
    run_id = event["run"]["runId"].upper()
    assert group_of(json.dumps({**event, "run": {"runId": run_id}}).encode()).then[0].key == f"run:{run_id.lower()}"
    job = {"producer": "x", "job": {"namespace": "a b", "name": "c/d"}}
    assert group_of(json.dumps(job).encode()).then[0].key == "pipeline:a%20b/c%2Fd"
    about = {"producer": "x", "dataset": {"namespace": "s3://b", "name": "p"}}
    assert group_of(json.dumps(about).encode()).then[0].key == "dataset:s3%3A%2F%2Fb/p"


def test_a_batch_is_a_group_an_event(shared_data: Path) -> None:
    files = sorted((shared_data / "openlineage" / "spark").glob("*.json"))
    raw = [file.read_bytes() for file in files]
    arrived = to_groups(b"[" + b",".join([*raw, b"{}"]) + b"]", actor=ADA, at=NOON, random=os.urandom)
    groups = [event.group for event in arrived.events if isinstance(event, LineageGroup)]
    assert isinstance(arrived.events[-1], InvalidLineageError)
    assert [group.then[0].parts[0].payload for group in groups] == [each.strip() for each in raw]
    assert [group.id for group in groups] == [group_of(each.strip()).id for each in raw]


def test_what_is_read_in_one_version_and_written_in_another_is_named_in_both(shared_data: Path) -> None:
    body = (shared_data / "openlineage" / "spark" / "ctas_COMPLETE.json").read_bytes()
    data = data_of(body)
    assert [each.version for each in data.datasets] == ["8693914680646578706", "1450868855241318763"]
    assert {(column.output, column.input) for column in data.columns} == {(1, 0)}
    merged = data_of(run_event([dataset("s3://b", "t", version="1")], [dataset("s3://b", "t", version="2")]))
    assert [each.version for each in merged.datasets] == ["1", "2"]
    assert (merged.inputs, merged.outputs) == ((0,), (1,))
    same = data_of(run_event([dataset("s3://b", "t", version="1")], [dataset("s3://b", "t", version="1")]))
    assert (same.inputs, same.outputs) == ((0,), (0,))


def test_columns_are_kept_until_the_entry_is_full_and_the_rest_is_counted() -> None:
    body = with_columns(2_000)
    data = data_of(body)
    assert len(data.columns) + data.columns_omitted == 2_000
    assert data.columns_omitted > 0
    size = len(group_of(body).then[0].event)
    assert EVENT_SIZE_BYTES_MAX - 200 < size <= EVENT_SIZE_BYTES_MAX
    assert [column.input_field for column in data.columns] == [f"from{number}" for number in range(len(data.columns))]
    few = data_of(with_columns(100))
    assert (len(few.columns), few.columns_omitted) == (100, 0)


def test_a_data_set_that_only_columns_name_is_there_for_as_long_as_one_of_them_is() -> None:
    data = data_of(with_columns(1_000, of="table{}"))
    assert data.columns_omitted > 0
    assert {column.input for column in data.columns} == set(range(2, len(data.datasets)))
    assert max(data.inputs + data.outputs) == 1


@pytest.mark.parametrize("width", range(20, 60, 3))
def test_no_number_of_columns_makes_an_entry_too_large(width: int) -> None:
    assert len(group_of(with_columns(900, of="table{}", width=width)).then[0].event) <= EVENT_SIZE_BYTES_MAX


def test_more_data_sets_than_an_entry_can_hold_are_counted_and_the_raw_event_is_whole() -> None:
    names = [f"{number:0>600}" for number in range(120)]
    body = topics_event((names, ["clean", "neat"]))
    (event,) = group_of(body).then
    data = data_of(body)
    assert EVENT_SIZE_BYTES_MAX - 2_000 < len(event.event) <= EVENT_SIZE_BYTES_MAX
    assert event.parts[0].payload == body
    assert (len(data.inputs) + data.datasets_omitted, len(data.outputs)) == (120, 2)
    assert data.datasets_omitted > 0
    assert data_of(topics_event((names[:90], ["clean"]))).datasets_omitted == 0


def test_a_data_set_whose_other_names_do_not_fit_is_named_without_them() -> None:
    links = [{"namespace": "n" * 1_900, "name": f"{number:x>1900}", "type": "TABLE"} for number in range(20)]
    named = {"namespace": "kafka://prod", "name": "raw", "facets": {"symlinks": {**FACET, "identifiers": links}}}
    data = data_of(run_event([named], [{**named, "name": "clean"}]))
    assert [len(dataset.symlinks) for dataset in data.datasets] == [0, 0]
    assert (data.inputs, data.outputs, data.names_omitted) == ((0,), (1,), 40)


def test_an_event_about_what_no_key_can_name_is_about_itself() -> None:
    body = json.dumps({"producer": "x", "dataset": {"namespace": "a", "name": "b" * 3_000}}).encode()
    assert group_of(body).then[0].key == f"lineage:{hashlib.sha256(body).hexdigest()}"
    assert data_of(body).datasets_omitted == 1
