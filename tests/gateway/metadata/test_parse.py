# SPDX-License-Identifier: Apache-2.0
"""Well-formed updates pass as they are, malformed ones are refused with the place of the fault."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BadRequestError
from gateway.metadata import parse_updates
from gateway.metadata.actions import META_ACTIONS
from gateway.metadata.apply import APPLY
from gateway.metadata.parse import CHANGES_MAX, DEFINITIONS_MAX, UPDATES, UPDATES_MAX

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}
SNAPSHOT = {
    "snapshot-id": 2**62,
    "timestamp-ms": 1,
    "manifest-list": "file:/m.avro",
    "summary": {"operation": "append"},
}
STATISTICS = {
    "snapshot-id": 1,
    "statistics-path": "file:/s.puffin",
    "file-size-in-bytes": 2,
    "file-footer-size-in-bytes": 1,
    "blob-metadata": [{"type": "t", "snapshot-id": 1, "sequence-number": 1, "fields": [1]}],
}
OPERATIONS = "'append', 'replace', 'overwrite', 'delete'"
WELL_FORMED: list[dict[str, Any]] = [
    {"action": "assign-uuid", "uuid": "0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01"},
    {"action": "upgrade-format-version", "format-version": 2},
    {"action": "set-location", "location": "file:/t"},
    {"action": "set-properties", "updates": {"a": "b"}},
    {"action": "remove-properties", "removals": ["a"]},
    {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "QQ=="}},
    {"action": "remove-encryption-key", "key-id": "k"},
    {"action": "add-schema", "schema": SCHEMA, "last-column-id": 1},
    {"action": "set-current-schema", "schema-id": -1},
    {"action": "remove-schemas", "schema-ids": [0]},
    {
        "action": "add-spec",
        "spec": {"fields": [{"name": "a", "transform": "identity", "source-id": 1, "field-id": 1000}]},
    },
    {"action": "set-default-spec", "spec-id": 0},
    {"action": "remove-partition-specs", "spec-ids": []},
    {
        "action": "add-sort-order",
        "sort-order": {
            "order-id": 1,
            "fields": [{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}],
        },
    },
    {"action": "set-default-sort-order", "sort-order-id": 0},
    {"action": "add-snapshot", "snapshot": SNAPSHOT},
    {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1, "type": "branch", "max-ref-age-ms": 1},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "remove-snapshots", "snapshot-ids": [1, 2**63 - 1]},
    {"action": "set-statistics", "statistics": STATISTICS},
    {"action": "remove-statistics", "snapshot-id": 1},
    {
        "action": "set-partition-statistics",
        "partition-statistics": {"snapshot-id": 1, "statistics-path": "file:/p", "file-size-in-bytes": 1},
    },
    {"action": "remove-partition-statistics", "snapshot-id": 1},
]


def test_every_update_of_a_table_is_parsed_applied_and_named() -> None:
    known = {update["action"] for update in WELL_FORMED}
    assert set(UPDATES) == set(APPLY) == known
    assert set(META_ACTIONS) == known | {"add-view-version", "set-current-view-version"}
    assert len(known) == 23  # the TableUpdate of the Iceberg REST specification


def test_well_formed_updates_pass_as_they_are() -> None:
    assert parse_updates(json.loads(json.dumps(WELL_FORMED))) == WELL_FORMED


def test_older_names_and_nulls_are_replaced() -> None:
    parsed = parse_updates(
        [
            {"action": "set-properties", "updated": {"a": "b"}, "updates": None},
            {"action": "remove-properties", "removed": ["a"]},
            {"action": "Set-Snapshot-Ref", "ref-name": "b", "snapshot-id": 1, "type": "BRANCH", "max-ref-age-ms": None},
            {"action": "add-snapshot", "snapshot": SNAPSHOT | {"parent-snapshot-id": None}},
        ]
    )
    assert parsed == [
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-properties", "removals": ["a"]},
        {"action": "set-snapshot-ref", "ref-name": "b", "snapshot-id": 1, "type": "branch"},
        {"action": "add-snapshot", "snapshot": SNAPSHOT},
    ]


@pytest.mark.parametrize("update", WELL_FORMED, ids=lambda update: str(update["action"]))
def test_a_missing_member_is_named(update: dict[str, Any]) -> None:
    optional = {"last-column-id", "max-ref-age-ms", "action"}
    for member in update.keys() - optional:
        broken_members: list[dict[str, Any]] = [{}, {member: None}, {member: True}, {member: 1.5}, {member: [[]]}]
        for broken_member in broken_members:
            broken = {name: kept for name, kept in update.items() if name != member} | broken_member
            with pytest.raises(BadRequestError) as caught:
                parse_updates([WELL_FORMED[0], broken])
            assert (caught.value.field or "").startswith(f"updates[1].{member}"), (broken, str(caught.value))


def _with(part: dict[str, Any], **members: Any) -> dict[str, Any]:
    return part | {name.replace("_", "-"): value for name, value in members.items()}


def _schema(type_: Any, **members: Any) -> list[dict[str, Any]]:
    field = {"id": 1, "name": "a", "required": False, "type": type_} | members
    return [{"action": "add-schema", "schema": {"type": "struct", "fields": [field]}}]


def _snapshot(**members: Any) -> list[dict[str, Any]]:
    return [{"action": "add-snapshot", "snapshot": _with(SNAPSHOT, **members)}]


def _order(order_id: int, **members: Any) -> list[dict[str, Any]]:
    field = {"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-first"}
    fields = [_with(field, **members)] if members else []
    return [{"action": "add-sort-order", "sort-order": {"order-id": order_id, "fields": fields}}]


def _partition(*fields: dict[str, Any]) -> list[dict[str, Any]]:
    field = {"name": "p", "transform": "identity", "source-id": 1}
    return [{"action": "add-spec", "spec": {"fields": [field | one for one in fields]}}]


def _ref(**members: Any) -> list[dict[str, Any]]:
    update = {"action": "set-snapshot-ref", "ref-name": "r", "snapshot-id": 1, "type": "tag"}
    return [_with(update, **members)]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("x", "updates: expected a list, found 'x'"),
        ([[]], "updates[0]: expected an object, found a list"),
        ([{}], "updates[0].action: expected a text, found nothing"),
        ([{"action": "drop-everything"}], "updates[0].action: unknown update action 'drop-everything'"),
        ([{"action": "x" * 70}], "updates[0].action: unknown update action a text of 70 characters"),
        (
            [{"action": "set-current-view-version", "view-version-id": 1}],
            "updates[0].action: Cannot apply update set-current-view-version to a table",
        ),
        ([{"action": "assign-uuid", "uuid": "x"}], "updates[0].uuid: expected a UUID, found 'x'"),
        ([{"action": "set-location", "location": ""}], "updates[0].location: expected a location, found an empty text"),
        (
            [{"action": "set-properties", "updates": {"a": 1}}],
            "updates[0].updates.a: expected a text, found 1",
        ),
        (
            [{"action": "remove-snapshots", "snapshot-ids": [1, -1]}],
            "updates[0].snapshot-ids[1]: expected an integer from 0 to 9223372036854775807, found -1",
        ),
        (
            [{"action": "set-default-spec", "spec-id": -2}],
            "updates[0].spec-id: expected an integer from -1 to 2147483647, found -2",
        ),
        (
            [{"action": "set-statistics", "snapshot-id": 2, "statistics": STATISTICS}],
            "updates[0].snapshot-id: expected the snapshot-id of statistics, 1",
        ),
        (_ref(type="head"), "updates[0].type: expected 'branch' or 'tag', found 'head'"),
        (_ref(ref_name=""), "updates[0].ref-name: expected the name of a branch or tag, found an empty text"),
        (
            _ref(min_snapshots_to_keep=1),
            "updates[0].min-snapshots-to-keep: Tags do not support setting minSnapshotsToKeep",
        ),
        (_ref(max_snapshot_age_ms=1), "updates[0].max-snapshot-age-ms: Tags do not support setting maxSnapshotAgeMs"),
        (_ref(max_ref_age_ms=0), "updates[0].max-ref-age-ms: Max reference age must be greater than 0"),
        (
            _ref(type="branch", max_snapshot_age_ms=0),
            "updates[0].max-snapshot-age-ms: Max snapshot age must be greater than 0 ms",
        ),
        (
            _snapshot(summary={}),
            f"updates[0].snapshot.summary.operation: expected one of {OPERATIONS}, found nothing",
        ),
        (
            _snapshot(first_row_id=0),
            "updates[0].snapshot.added-rows: Invalid added-rows (required when first-row-id is set): null",
        ),
        (
            _snapshot(first_row_id=2**63 - 1, added_rows=1),
            "updates[0].snapshot.added-rows: expected row ids of at most 63 bits",
        ),
        (_order(1), "updates[0].sort-order.order-id: Unsorted order ID must be 0"),
        (
            _order(0, direction="asc"),
            "updates[0].sort-order.order-id: Sort order ID 0 is reserved for unsorted order",
        ),
        (
            _order(1, direction="up"),
            "updates[0].sort-order.fields[0].direction: expected 'asc' or 'desc', found 'up'",
        ),
        (
            _partition({"field-id": 1000}, {}),
            "updates[0].spec.fields: Cannot parse spec with missing field IDs: 1 missing of 2 fields.",
        ),
        (
            _partition({"transform": "bucket[0]"}),
            "updates[0].spec.fields[0].transform: Invalid number of buckets: 0 (must be > 0)",
        ),
        (
            _partition({"transform": "Truncate[99999999999]"}),
            "updates[0].spec.fields[0].transform: Invalid truncate width: 99999999999 (must be > 0)",
        ),
        (
            _schema("number"),
            "updates[0].schema.fields[0].type: Cannot parse type string to primitive: number",
        ),
        (
            _schema("decimal(39, 2)"),
            "updates[0].schema.fields[0].type: Decimals with precision larger than 38 are not supported: 39",
        ),
        (
            _schema({"type": "set"}),
            "updates[0].schema.fields[0].type.type: expected 'struct', 'list' or 'map', found 'set'",
        ),
        (
            _schema({"type": "list", "element-id": 2, "element-required": True, "element": "unknown"}),
            "updates[0].schema.fields[0].type: Cannot create required field with unknown type: element",
        ),
        (
            _schema("int", **{"initial-default": True}),
            "updates[0].schema.fields[0].initial-default: Cannot parse default as a int value: true",
        ),
        ([{"action": "add-schema", "schema": SCHEMA}] * (DEFINITIONS_MAX + 1), "found more"),
        ([{"action": "remove-encryption-key", "key-id": "k"}] * (UPDATES_MAX + 1), "found 25001"),
        ([{"action": "set-properties", "updates": {}}] * (CHANGES_MAX + 1), "found more"),
        (["remove-snapshots"] * (CHANGES_MAX + 1), "found more"),
    ],
)
def test_malformed_updates_are_refused_with_their_place(raw: object, text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_updates(raw)
    assert str(caught.value) == text or (text.startswith("found") and str(caught.value).endswith(text))


def test_as_many_removals_are_taken_as_the_reference_sends_to_expire_snapshots() -> None:
    removals = [{"action": "Remove-snapshots", "snapshot-ids": [number]} for number in range(UPDATES_MAX)]
    assert len(parse_updates(removals)) == UPDATES_MAX


def _nested(levels: int) -> Any:
    value: Any = "int"
    for level in range(levels):
        value = {"type": "list", "element-id": level + 2, "element-required": False, "element": value}
    return value


def _deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("unknown", "text"),
    [
        (2**64, "updates[0].snapshot.x: expected an integer of at most 64 bits"),
        (float("nan"), "updates[0].snapshot.x: expected a JSON value, found nan"),
        ("\ud800", "updates[0].snapshot.x: expected text, found half of a surrogate pair"),
        ({"\ud800": 1}, "updates[0].snapshot.x: expected text, found half of a surrogate pair"),
        ({1: 1}, "updates[0].snapshot.x: expected member names that are text, found 1"),
        (b"", "updates[0].snapshot.x: expected a JSON value, found b''"),
        (_deep(200), "nested deeper than 160 levels"),
        (_deep(100_000), "nested deeper than 160 levels"),
    ],
)
def test_values_that_could_not_be_written_again_are_refused_even_in_unknown_members(unknown: Any, text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_updates(_snapshot(x=unknown))
    assert text in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_types_may_nest_only_so_deep() -> None:
    parse_updates(_schema(_nested(40)))
    with pytest.raises(BadRequestError, match="types nested deeper than 48 levels"):
        parse_updates(_schema(_nested(49)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = sorted({name for update in WELL_FORMED for name in update} | {"type", "fields", "summary"})


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.sampled_from(WELL_FORMED) | st.fixed_dictionaries({"action": st.sampled_from(sorted(UPDATES))}), max_size=2
    ),
    st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=3),
)
def test_parsing_anything_gives_updates_or_our_error(updates: list[dict[str, Any]], noise: dict[str, Any]) -> None:
    with suppress(BadRequestError):
        orjson.dumps(parse_updates([update | noise for update in updates]))
