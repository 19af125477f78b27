# SPDX-License-Identifier: Apache-2.0
"""A createTable request as updates: fresh ids, remapped spec and order, properties."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import BadRequestError
from gateway.metadata import InvalidUpdateError, apply_updates, create_updates, parse_updates

UUID = "0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01"
LOCATION = "file:///warehouse/db/t"

# ids as a client may number them: sparse, out of order, from 0
SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 7,
    "identifier-field-ids": [20],
    "fields": [
        {"id": 20, "name": "id", "required": True, "type": "long", "doc": "the key", "x-origin": "kept"},
        {
            "id": 0,
            "name": "where",
            "required": True,
            "type": {
                "type": "struct",
                "fields": [
                    {"id": 9, "name": "lat", "required": True, "type": "double"},
                    {"id": 3, "name": "day", "required": False, "type": "date"},
                ],
            },
        },
        {
            "id": 4,
            "name": "tags",
            "required": False,
            "type": {
                "type": "map",
                "key-id": 30,
                "key": "string",
                "value-id": 31,
                "value": {"type": "list", "element-id": 8, "element": "int", "element-required": False},
                "value-required": True,
            },
        },
    ],
}
REQUEST: dict[str, Any] = {
    "name": "t",
    "location": None,
    "schema": SCHEMA,
    "partition-spec": {"spec-id": 5, "fields": [{"name": "d", "transform": "month", "source-id": 3, "field-id": 77}]},
    "write-order": {
        "order-id": 9,
        "fields": [{"transform": "identity", "source-id": 20, "direction": "desc", "null-order": "nulls-last"}],
    },
    "properties": {"owner": "ada", "format-version": "2", "uuid": "nobody", "current-schema": "{}"},
    "stage-create": False,
}


def _create(**members: Any) -> dict[str, Any]:
    request = REQUEST | {name.replace("_", "-"): value for name, value in members.items()}
    updates = create_updates(request, table_uuid=UUID, location=LOCATION)
    assert parse_updates(updates) == updates, "a create is a well-formed commit"
    return apply_updates(None, updates, now_ms=1, base_location=None)


def test_ids_are_assigned_level_by_level() -> None:
    created = _create()
    assert created["last-column-id"] == 8
    (schema,) = created["schemas"]
    assert (schema["schema-id"], schema["identifier-field-ids"]) == (0, [1])
    key, where, tags = schema["fields"]
    assert (key["id"], where["id"], tags["id"]) == (1, 2, 3)
    assert (key["doc"], key["x-origin"]) == ("the key", "kept")
    assert [field["id"] for field in where["type"]["fields"]] == [4, 5]
    assert (tags["type"]["key-id"], tags["type"]["value-id"], tags["type"]["value"]["element-id"]) == (6, 7, 8)
    assert created["partition-specs"] == [
        {"spec-id": 0, "fields": [{"name": "d", "transform": "month", "source-id": 5, "field-id": 1000}]}
    ]
    assert created["last-partition-id"] == 1000
    assert created["default-sort-order-id"] == 1
    assert created["sort-orders"] == [
        {
            "order-id": 1,
            "fields": [{"transform": "identity", "source-id": 1, "direction": "desc", "null-order": "nulls-last"}],
        }
    ]


def test_reserved_properties_steer_and_are_not_stored() -> None:
    created = _create()
    assert created["properties"] == {"owner": "ada", "write.parquet.compression-codec": "zstd"}
    assert (created["format-version"], created["table-uuid"], created["location"]) == (2, UUID, LOCATION)
    assert _create(properties={"write.parquet.compression-codec": "gzip"})["properties"] == {
        "write.parquet.compression-codec": "gzip"
    }


def test_a_table_needs_no_more_than_a_schema() -> None:
    created = _create(partition_spec=None, write_order=None, properties=None)
    assert created["format-version"] == 2
    assert created["partition-specs"] == [{"fields": [], "spec-id": 0}]
    assert created["sort-orders"] == [{"order-id": 0, "fields": []}]
    assert (created["last-partition-id"], created["default-spec-id"], created["default-sort-order-id"]) == (999, 0, 0)
    assert (created["current-snapshot-id"], created["refs"], created["snapshots"]) == (-1, {}, [])


@pytest.mark.parametrize(("version", "current"), [(1, -1), (2, -1), (3, None)])
def test_each_format_version_has_its_members(version: int, current: int | None) -> None:
    created = _create(properties={"format-version": str(version)})
    assert created["current-snapshot-id"] == current
    assert ("last-sequence-number" in created) == (version > 1)
    assert ("next-row-id" in created) == (version == 3)
    assert created.get("schema") == (created["schemas"][0] if version == 1 else None)
    assert created.get("partition-spec") == (created["partition-specs"][0]["fields"] if version == 1 else None)


def test_the_request_is_not_changed() -> None:
    before = repr(REQUEST)
    _create()
    assert repr(REQUEST) == before


FIELD: dict[str, Any] = {"id": 1, "name": "a", "required": False, "type": "int"}
NESTED_KEY = (
    "Cannot add field key as an identifier field: must not be nested in 4: tags: optional map<string, list<int>>"
)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"schema": None}, "schema: expected an object, found nothing"),
        ({"schema": {"fields": [{}]}}, "schema.fields[0].id: expected an integer, found nothing"),
        ({"schema": {"fields": [{**FIELD, "id": "1"}]}}, "schema.fields[0].id: expected an integer, found '1'"),
        ({"partition-spec": []}, "partition-spec: expected an object, found a list"),
        ({"write-order": {"fields": 1}}, "write-order.fields: expected a list, found 1"),
        ({"properties": {"a": None}}, "properties.a: expected a text, found nothing"),
        ({"properties": []}, "properties: expected an object, found a list"),
        ({"location": 5}, "location: expected a text, found 5"),
    ],
)
def test_a_malformed_request_is_refused_with_its_place(members: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        create_updates(REQUEST | members, table_uuid=UUID, location=LOCATION)
    assert str(caught.value) == text


def _spec(**members: Any) -> dict[str, Any]:
    field = {"name": "d", "transform": "month", "source-id": 3} | {k.replace("_", "-"): v for k, v in members.items()}
    return {"partition-spec": {"fields": [field]}}


@pytest.mark.parametrize(
    ("members", "text"),
    [
        (
            {"schema": {"fields": [FIELD, {**FIELD, "id": 2}]}},
            "Invalid schema: multiple fields for name a: 1 and 2",
        ),
        ({"schema": {"fields": [FIELD, {**FIELD, "name": "b"}]}}, "Invalid schema: multiple fields for id 1: a and b"),
        (
            {"schema": {"fields": [FIELD], "identifier-field-ids": [2]}},
            "Cannot add fieldId 2 as an identifier field: field does not exist",
        ),
        (
            {"schema": {"fields": [FIELD], "identifier-field-ids": [1]}},
            "Cannot add field a as an identifier field: not a required field",
        ),
        (
            {"schema": {"fields": [{**FIELD, "type": "float", "required": True}], "identifier-field-ids": [1]}},
            "Cannot add field a as an identifier field: must not be float or double field",
        ),
        (
            {"schema": SCHEMA | {"identifier-field-ids": [0]}},
            "Cannot add field where as an identifier field: not a primitive type field",
        ),
        (
            {"schema": SCHEMA | {"identifier-field-ids": [30]}},
            NESTED_KEY,
        ),
        (_spec(source_id=99), "Cannot find source column for partition field: None: d: month(99)"),
        (_spec(source_id=99, transform="void"), "Cannot find source column for partition field: None: d: void(99)"),
        (_spec(source_id=20), "Unsupported type: long"),
        (_spec(source_id=0), "Unsupported type: struct<9: lat: required double, 3: day: optional date>"),
        (_spec(source_id=9, transform="bucket[4]"), "Cannot bucket by type: double"),
        (_spec(source_id=9, transform="truncate[4]"), "Cannot truncate type: double"),
        (
            _spec(source_id=0, transform="identity"),
            "Cannot partition by non-primitive source field: struct<9: lat: required double, 3: day: optional date>",
        ),
        (
            _spec(source_id=30, transform="identity"),
            "Invalid partition field parent: map<string, list<int>>",
        ),
        (_spec(name=""), "Invalid column name: (empty)"),
        (_spec(name="id"), "Cannot create identity partition sourced from different field in schema: id"),
        (
            {"partition-spec": {"fields": [*_spec()["partition-spec"]["fields"] * 2]}},
            "Cannot use partition name more than once: d",
        ),
        ({"properties": {"format-version": "4"}}, "Unsupported format version: v4 (supported: v3)"),
        ({"properties": {"format-version": "two"}}, "Table property format-version must have integer value"),
        (
            {"properties": {"commit.retry.num-retries": "many"}},
            "Table property commit.retry.num-retries must have integer value",
        ),
        (
            {"properties": {"commit.retry.num-retries": "-1"}},
            "Table property commit.retry.num-retries must have non negative integer value",
        ),
        ({"properties": {"encryption.key-id": "k"}}, "Invalid properties for v2: [encryption.key-id]"),
    ],
)
def test_parts_that_do_not_fit_are_refused_in_the_reference_words(members: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        create_updates(REQUEST | members, table_uuid=UUID, location=LOCATION)
    assert str(caught.value) == text
    assert (caught.value.status, caught.value.kind) == (400, "ValidationException")


def test_metrics_of_a_column_that_is_not_there_are_refused() -> None:
    properties = {"write.metadata.metrics.column.nothing": "full"}
    with pytest.raises(InvalidUpdateError, match="Invalid metrics config, could not find column nothing from table"):
        create_updates(REQUEST | {"properties": properties}, table_uuid=UUID, location=LOCATION)
    create_updates(
        REQUEST | {"properties": {"write.metadata.metrics.column.where.lat": "full"}},
        table_uuid=UUID,
        location=LOCATION,
    )


def test_types_of_later_versions_are_refused_by_earlier_ones() -> None:
    schema = {"fields": [{**FIELD, "type": "variant"}, {**FIELD, "id": 2, "name": "b", "initial-default": 5}]}
    with pytest.raises(InvalidUpdateError) as caught:
        _create(schema=schema, partition_spec=None, write_order=None)
    assert str(caught.value) == (
        "Invalid schema for v2:\n- Invalid type for a: variant is not supported until v3"
        "\n- Invalid initial default for b: non-null default (5) is not supported until v3"
    )
    _create(schema=schema, partition_spec=None, write_order=None, properties={"format-version": "3"})


def test_updates_that_do_not_define_a_whole_table_are_refused() -> None:
    whole = create_updates(REQUEST, table_uuid=UUID, location=LOCATION)
    texts = {
        "assign-uuid": "UUID is required in format v2",
        "add-spec": "Cannot set last added spec: no spec has been added",
        "set-location": "Table location is required in format v2",
        "add-schema": "Cannot set last added schema: no schema has been added",
        "add-sort-order": "Cannot set last added sort order: no sort order has been added",
        "set-default-sort-order": "Cannot find a default sort order: set-default-sort-order is missing",
    }
    for action, text in texts.items():
        rest = [update for update in whole if update["action"] != action]
        with pytest.raises(InvalidUpdateError) as caught:
            apply_updates(None, rest, now_ms=1, base_location=None)
        assert str(caught.value) == text
    for prefix, text in (
        (whole[:2], "Cannot find a current schema: add-schema and set-current-schema must come first"),
        (whole[:4], "Partition specs cannot be null or empty"),
        (whole[:6], "Sort orders cannot be null or empty"),
    ):
        with pytest.raises(InvalidUpdateError) as caught:
            apply_updates(None, prefix, now_ms=1, base_location=None)
        assert str(caught.value) == text
