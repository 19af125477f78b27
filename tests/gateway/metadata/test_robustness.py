# SPDX-License-Identifier: Apache-2.0
"""
For any request on any stored metadata, the result is metadata or one of our errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from gateway.errors import GatewayError
from gateway.metadata import apply_updates, check_requirements, create_updates, parse_updates
from gateway.metadata.columns import index_columns
from gateway.metadata.draft import TableMetadata
from gateway.metadata.schemas import parse_schema
from gateway.metadata.stored import view_draft

Versions = Callable[[int], dict[str, Any]]
NOW_MS = 1_795_200_000_000

SNAPSHOT_IDS = st.sampled_from([11, 12, 13, 14])
DEFINITION_IDS = st.sampled_from([-1, 0, 1, 2])
TYPES = st.sampled_from(["int", "long", "float", "string", "date", "timestamp", "decimal(9,2)"])
TRANSFORMS = st.sampled_from(["identity", "void", "bucket[4]", "truncate[2]", "day", "hour", "zorder"])
COLUMN_IDS = st.integers(1, 5)


def _update(action: str, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    parts = {name.replace("_", "-"): member for name, member in members.items()}
    return st.fixed_dictionaries({"action": st.just(action), **parts})


FIELDS = st.lists(
    st.fixed_dictionaries(
        {"id": COLUMN_IDS, "name": st.sampled_from("abcd"), "required": st.booleans(), "type": TYPES},
        optional={"initial-default": st.just("x")},
    ),
    max_size=4,
)
SCHEMAS = st.fixed_dictionaries(
    {"type": st.just("struct"), "fields": FIELDS}, optional={"identifier-field-ids": st.lists(COLUMN_IDS, max_size=2)}
)
SPECS = st.fixed_dictionaries(
    {
        "fields": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from("abpq"), "transform": TRANSFORMS, "source-id": COLUMN_IDS}),
            max_size=3,
        )
    }
)
ORDERS = st.fixed_dictionaries(
    {
        "fields": st.lists(
            st.fixed_dictionaries(
                {
                    "transform": TRANSFORMS,
                    "source-id": COLUMN_IDS,
                    "direction": st.sampled_from(["asc", "desc"]),
                    "null-order": st.sampled_from(["nulls-first", "nulls-last"]),
                }
            ),
            max_size=2,
        )
    }
)
SNAPSHOTS = st.fixed_dictionaries(
    {
        "snapshot-id": SNAPSHOT_IDS,
        "timestamp-ms": st.sampled_from([NOW_MS, NOW_MS - 90_000, NOW_MS + 90_000]),
        "manifest-list": st.just("file:/m"),
        "summary": st.just({"operation": "append"}),
    },
    optional={
        "sequence-number": st.integers(0, 5),
        "parent-snapshot-id": SNAPSHOT_IDS,
        "first-row-id": st.just(20),
        "added-rows": st.just(2),
    },
)
UPDATES = st.one_of(
    _update("upgrade-format-version", format_version=st.integers(1, 4)),
    _update("add-schema", schema=SCHEMAS),
    _update("set-current-schema", schema_id=DEFINITION_IDS),
    _update("remove-schemas", schema_ids=st.lists(st.integers(0, 2), max_size=2)),
    _update("add-spec", spec=SPECS),
    _update("set-default-spec", spec_id=DEFINITION_IDS),
    _update("remove-partition-specs", spec_ids=st.lists(st.integers(0, 2), max_size=2)),
    _update("add-sort-order", sort_order=ORDERS),
    _update("set-default-sort-order", sort_order_id=DEFINITION_IDS),
    _update("add-snapshot", snapshot=SNAPSHOTS),
    _update(
        "set-snapshot-ref",
        ref_name=st.sampled_from(["main", "first", "b"]),
        snapshot_id=SNAPSHOT_IDS,
        type=st.sampled_from(["branch", "tag"]),
    ),
    _update("remove-snapshot-ref", ref_name=st.sampled_from(["main", "first", "b"])),
    _update("remove-snapshots", snapshot_ids=st.lists(SNAPSHOT_IDS, max_size=2)),
    _update("remove-statistics", snapshot_id=SNAPSHOT_IDS),
    _update("set-location", location=st.sampled_from(["/", "s3://b/t/", "file:///t"])),
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(version=st.sampled_from([1, 2, 3]), commits=st.lists(st.lists(UPDATES, max_size=4), max_size=3))
def test_any_commits_leave_a_table_that_can_be_read(
    table_of_version: Versions, version: int, commits: list[list[dict[str, Any]]]
) -> None:
    table = table_of_version(version)
    for updates in commits:
        with suppress(GatewayError):
            table = apply_updates(table, parse_updates(updates), now_ms=NOW_MS, base_location="file:/m")
    written = orjson.dumps(table)
    assert orjson.loads(written) == table
    TableMetadataUtil.parse_obj(orjson.loads(written))
    check_requirements(table, [])


REFUSED_AFTER_A_SNAPSHOT = [
    {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": 13,
            "timestamp-ms": NOW_MS,
            "manifest-list": "file:/m",
            "summary": {"operation": "append"},
            "sequence-number": 5,
        },
    },
    {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 13, "type": "branch"},
    {"action": "upgrade-format-version", "format-version": 1},
]
"""A commit that is refused by its last update: nothing of the others may be left to the next one."""


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(version=st.sampled_from([1, 2, 3]), commits=st.lists(st.lists(UPDATES, max_size=4), max_size=4))
@example(version=2, commits=[REFUSED_AFTER_A_SNAPSHOT, []])
def test_a_table_that_was_just_written_is_changed_as_if_it_were_read_again(
    table_of_version: Versions, version: int, commits: list[list[dict[str, Any]]]
) -> None:
    kept: dict[str, Any] = TableMetadata(table_of_version(version))
    for updates in commits:
        read = orjson.loads(orjson.dumps(kept))
        assert replace(view_draft(kept), columns_by_schema={}) == replace(view_draft(read), columns_by_schema={})
        for schema_id, columns in view_draft(kept).columns_by_schema.items():
            assert columns == index_columns(parse_schema(view_draft(read).schemas.by_id[schema_id], ""))
        before = orjson.dumps(kept)
        results = [_applied(table, updates) for table in (kept, read)]
        assert results[0] == results[1]
        assert orjson.dumps(kept) == before, "nothing was changed in place"
        if isinstance(results[0], dict):
            kept = results[0]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=st.lists(st.integers(NOW_MS - 150_000, NOW_MS + 150_000), max_size=6), most=st.sampled_from("12345"))
@example(times=[NOW_MS + 120_000, NOW_MS + 30_000], most="5")
def test_times_of_a_table_that_was_just_written_are_checked_as_if_it_were_read_again(
    table_of_version: Versions, times: list[int], most: str
) -> None:
    kept: dict[str, Any] = TableMetadata(table_of_version(2))
    for now_ms in times:
        updates = [
            {"action": "set-properties", "updates": {"n": str(now_ms), "write.metadata.previous-versions-max": most}}
        ]
        read = orjson.loads(orjson.dumps(kept))
        results = [_applied(table, updates, now_ms=now_ms) for table in (kept, read)]
        assert results[0] == results[1]
        if isinstance(results[0], dict):
            kept = results[0]


def _applied(table: dict[str, Any], updates: list[dict[str, Any]], *, now_ms: int = NOW_MS) -> dict[str, Any] | str:
    """The result of a commit, or the words that refuse it."""
    try:
        return apply_updates(table, parse_updates(updates), now_ms=now_ms, base_location="file:/m")
    except GatewayError as error:
        return f"{type(error).__name__}: {error}"


@settings(max_examples=40, deadline=None)
@given(schema=SCHEMAS, spec=SPECS, order=ORDERS, version=st.sampled_from(["1", "2", "3"]))
def test_any_create_makes_a_table_that_can_be_read(
    schema: dict[str, Any], spec: dict[str, Any], order: dict[str, Any], version: str
) -> None:
    request = {
        "schema": schema,
        "partition-spec": spec,
        "write-order": order,
        "properties": {"format-version": version},
    }
    uuid = "0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01"
    with suppress(GatewayError):
        updates = create_updates(request, table_uuid=uuid, location="file:///t")
        created = apply_updates(None, updates, now_ms=NOW_MS, base_location=None)
        TableMetadataUtil.parse_obj(json.loads(json.dumps(created)))


NOISE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 2**70, 1.5, "", "\ud800", [], {}, [1], [None], {"a": 1}, [{}], [{"fields": []}]]
)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), version=st.sampled_from([1, 2, 3]), updates=st.lists(UPDATES, min_size=1, max_size=3))
def test_damaged_metadata_is_read_or_called_corrupt(
    table_of_version: Versions, data: st.DataObject, version: int, updates: list[dict[str, Any]]
) -> None:
    table = table_of_version(version)
    place: Any = table
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(NOISE)
        break
    with suppress(GatewayError):
        apply_updates(table, parse_updates(updates), now_ms=NOW_MS, base_location="file:/m")
