# SPDX-License-Identifier: Apache-2.0
"""Schemas, partition specs and sort orders: which id they get, which of them are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gateway.metadata import CorruptMetadataError, InvalidUpdateError

Commit = Callable[..., dict[str, Any]]

EMAIL = {"id": 4, "name": "email", "required": False, "type": "string"}
SET_SCHEMA = {"action": "set-current-schema", "schema-id": -1}
SET_SPEC = {"action": "set-default-spec", "spec-id": -1}
SET_ORDER = {"action": "set-default-sort-order", "sort-order-id": -1}


def _schema(table: dict[str, Any], *more: dict[str, Any], **members: Any) -> dict[str, Any]:
    fields = [*table["schemas"][0]["fields"], *more]
    return {"action": "add-schema", "schema": {"type": "struct", "schema-id": 77, "fields": fields} | members}


def _spec(*fields: tuple[str, str, int, int | None]) -> dict[str, Any]:
    parts = [
        {"name": name, "transform": transform, "source-id": source}
        | ({} if field_id is None else {"field-id": field_id})
        for name, transform, source, field_id in fields
    ]
    return {"action": "add-spec", "spec": {"spec-id": 77, "fields": parts}}


def _order(*fields: tuple[str, int, str], order_id: int = 77) -> dict[str, Any]:
    parts = [
        {"transform": transform, "source-id": source, "direction": direction, "null-order": "nulls-last"}
        for transform, source, direction in fields
    ]
    return {"action": "add-sort-order", "sort-order": {"order-id": order_id if parts else 0, "fields": parts}}


def test_a_new_schema_gets_the_next_id_and_raises_the_last_column_id(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _schema(table, EMAIL) | {"last-column-id": 400}, SET_SCHEMA)
    assert [schema["schema-id"] for schema in result["schemas"]] == [0, 1]
    assert (result["current-schema-id"], result["last-column-id"]) == (1, 4)


def test_the_same_schema_keeps_its_id_and_last_added_means_that_one(commit: Commit, table: dict[str, Any]) -> None:
    table = commit(table, _schema(table, EMAIL), SET_SCHEMA)
    again = _schema(table)
    again["schema"]["fields"] = [
        field | {"doc": None, "type": field["type"].upper()} for field in again["schema"]["fields"]
    ]
    result = commit(table, again, SET_SCHEMA)
    assert len(result["schemas"]) == 2
    assert result["current-schema-id"] == 0
    assert result["last-column-id"] == 4


@pytest.mark.parametrize(
    "difference",
    [
        {"fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]},
        {"identifier-field-ids": [1]},
        {"x-unknown": 1},
    ],
)
def test_any_difference_makes_another_schema(commit: Commit, table: dict[str, Any], difference: dict[str, Any]) -> None:
    result = commit(table, _schema(table, **difference))
    assert [schema["schema-id"] for schema in result["schemas"]] == [0, 1]
    assert result["current-schema-id"] == 0


def test_the_number_of_an_id_is_free_again_only_after_the_highest(commit: Commit, table: dict[str, Any]) -> None:
    table = commit(table, _schema(table, EMAIL), SET_SCHEMA)
    table = commit(table, {"action": "remove-schemas", "schema-ids": [0, 5]})
    result = commit(table, _schema({"schemas": [{"fields": table["schemas"][0]["fields"][:3]}]}))
    assert [schema["schema-id"] for schema in result["schemas"]] == [1, 2]


def test_specs_are_the_same_without_their_ids(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _spec(("day", "Identity", 3, 1234)), SET_SPEC)
    assert result == table, "nothing was new, so there is nothing to commit"


def test_a_new_spec_gets_the_next_id_and_raises_the_last_partition_id(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _spec(("day", "identity", 3, 1000), ("b", "bucket[4]", 1, 1007)), SET_SPEC)
    assert [spec["spec-id"] for spec in result["partition-specs"]] == [0, 1]
    assert (result["default-spec-id"], result["last-partition-id"]) == (1, 1007)


def test_fields_without_ids_keep_those_of_the_same_source_and_transform(commit: Commit, table: dict[str, Any]) -> None:
    result = commit(table, _spec(("b", "bucket[4]", 1, None), ("renamed", "identity", 3, None)), SET_SPEC)
    ids = {field["name"]: field["field-id"] for field in result["partition-specs"][1]["fields"]}
    assert ids == {"b": 1001, "renamed": 1000}
    assert result["last-partition-id"] == 1001


def test_v1_specs_are_numbered_in_order(commit: Commit, table_of_version: Callable[[int], dict[str, Any]]) -> None:
    table = table_of_version(1)
    result = commit(table, _spec(("day", "identity", 3, None), ("b", "bucket[4]", 1, None)), SET_SPEC)
    assert [field["field-id"] for field in result["partition-spec"]] == [1000, 1001]
    with pytest.raises(InvalidUpdateError) as caught:
        commit(table, _spec(("b", "bucket[4]", 1, 1001)))
    assert str(caught.value) == (
        "Spec does not use sequential IDs that are required in v1: [\n  1001: b: bucket[4](1)\n]"
    )


def test_a_new_sort_order_gets_the_next_id(commit: Commit, table: dict[str, Any]) -> None:
    table = commit(table, _order(("identity", 1, "asc")), SET_ORDER)
    assert (table["default-sort-order-id"], len(table["sort-orders"])) == (1, 2)
    table = commit(table, _order(("identity", 1, "DESC")), SET_ORDER)
    assert (table["default-sort-order-id"], len(table["sort-orders"])) == (2, 3)
    table = commit(table, _order(("Identity", 1, "asc"), order_id=9), SET_ORDER)
    assert (table["default-sort-order-id"], len(table["sort-orders"])) == (1, 3)
    table = commit(table, _order(), SET_ORDER)
    assert (table["default-sort-order-id"], len(table["sort-orders"])) == (0, 3)


def test_specs_and_schemas_that_are_not_in_force_can_be_removed(commit: Commit, table: dict[str, Any]) -> None:
    table = commit(table, _spec(), SET_SPEC, _schema(table, EMAIL), SET_SCHEMA)
    result = commit(
        table,
        {"action": "remove-partition-specs", "spec-ids": [0, 9]},
        {"action": "remove-schemas", "schema-ids": [0, 9]},
    )
    assert [spec["spec-id"] for spec in result["partition-specs"]] == [1]
    assert [schema["schema-id"] for schema in result["schemas"]] == [1]
    assert commit(result, {"action": "remove-partition-specs", "spec-ids": [0]}) == result


def test_what_was_removed_in_a_commit_can_be_added_again_in_it(commit: Commit, table: dict[str, Any]) -> None:
    table = commit(table, _schema(table, EMAIL), SET_SCHEMA)
    first = _schema(table)
    result = commit(table, first, {"action": "remove-schemas", "schema-ids": [0]}, first, SET_SCHEMA)
    assert [schema["schema-id"] for schema in result["schemas"]] == [1, 2]
    assert result["current-schema-id"] == 2


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (SET_SCHEMA, "Cannot set last added schema: no schema has been added"),
        (SET_SPEC, "Cannot set last added spec: no spec has been added"),
        (SET_ORDER, "Cannot set last added sort order: no sort order has been added"),
        ({"action": "set-current-schema", "schema-id": 5}, "Cannot set current schema to unknown schema: 5"),
        ({"action": "set-default-spec", "spec-id": 5}, "Cannot set default partition spec to unknown spec: 5"),
        (
            {"action": "set-default-sort-order", "sort-order-id": 5},
            "Cannot set default sort order to unknown sort order: 5",
        ),
        ({"action": "remove-schemas", "schema-ids": [0]}, "Cannot remove the current schema"),
        ({"action": "remove-partition-specs", "spec-ids": [0]}, "Cannot remove the default partition spec"),
        (_spec(("x", "identity", 9, 1001)), "Cannot find source column for partition field: 1001: x: identity(9)"),
        (_spec(("x", "day", 1, 1001)), "Unsupported type: long"),
        (_spec(("a", "bucket[2]", 1, 1), ("b", "bucket[3]", 1, 1)), "Cannot use partition field ID more than once: 1"),
        (_order(("identity", 9, "asc")), "Cannot find source column for sort field: identity(9) ASC NULLS LAST"),
        (_order(("hour", 3, "asc")), "Unsupported type: date"),
    ],
)
def test_definitions_that_cannot_be_are_refused_in_the_reference_words(
    commit: Commit, table: dict[str, Any], update: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidUpdateError) as caught:
        commit(table, {"action": "set-properties", "updates": {"a": "b"}}, update)
    assert str(caught.value) == text
    assert caught.value.field == "updates[1]"


def test_a_schema_must_leave_the_columns_that_spec_and_order_need(commit: Commit, table: dict[str, Any]) -> None:
    without_day = _schema(table)
    without_day["schema"]["fields"] = without_day["schema"]["fields"][:2]
    with pytest.raises(InvalidUpdateError, match=r"Cannot find source column for partition field: 1000: day"):
        commit(table, without_day, SET_SCHEMA)
    assert commit(table, _spec(), SET_SPEC, without_day, SET_SCHEMA)["current-schema-id"] == 1

    table = commit(table, _order(("identity", 2, "asc")), SET_ORDER)
    without_name = _schema(table)
    del without_name["schema"]["fields"][1]
    with pytest.raises(InvalidUpdateError, match=r"Cannot find source column for sort field: identity\(2\) ASC"):
        commit(table, without_name, SET_SCHEMA)


def test_a_schema_must_leave_every_spec_readable(commit: Commit, table: dict[str, Any]) -> None:
    table = commit(table, _spec(("b", "bucket[4]", 1, 1001)), SET_SPEC)
    with pytest.raises(InvalidUpdateError, match="partition sourced from different field in schema: b"):
        commit(table, _schema(table, EMAIL | {"name": "b"}), SET_SCHEMA)
    boolean = _schema(table)
    boolean["schema"]["fields"][0] = boolean["schema"]["fields"][0] | {"type": "boolean"}
    table = commit(table, _spec(), SET_SPEC)
    with pytest.raises(InvalidUpdateError, match="Cannot bucket by type: boolean"):
        commit(table, boolean, SET_SCHEMA)


def test_a_stored_schema_that_is_none_is_called_corrupt(commit: Commit, table: dict[str, Any]) -> None:
    table["schemas"].append({"schema-id": 5, "type": "struct", "fields": [{"id": 1, "name": "a"}]})
    with pytest.raises(CorruptMetadataError, match="The stored schema 5 cannot be read"):
        commit(table, {"action": "set-current-schema", "schema-id": 5})
