# SPDX-License-Identifier: Apache-2.0
"""Partition specs as JSON: their shape, what makes two of them the same, and whether they fit a schema."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from gateway.errors import BadRequestError
from gateway.metadata.columns import Columns, describe_type
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.shapes import (
    INT32_MAX,
    JsonObject,
    as_object,
    read_int,
    read_int_or_none,
    read_list,
    read_text,
    without_nulls,
)
from gateway.metadata.transforms import VOID, can_transform, canonical_transform, check_new_transform, check_transform

FIRST_FIELD_ID: Final = 1000  # ids of partition fields start here (table spec, partition evolution)
FIELDS_MAX: Final = 1_000

Origin: TypeAlias = tuple[int, str]  # the source column and the transform of a partition field


def parse_spec(value: object, at: str) -> JsonObject:
    """
    Return a copy of a partition spec whose shape has been checked.

    Raises:
        BadRequestError: where a member is missing or has another shape, or only some fields have an id.
    """
    spec = without_nulls(as_object(value, at))
    read_int_or_none(spec, "spec-id", at, most=INT32_MAX)
    items = read_list(spec, "fields", at, count_max=FIELDS_MAX)
    spec["fields"] = [_parse_field(item, f"{at}.fields[{index}]") for index, item in enumerate(items)]
    missing = sum("field-id" not in field for field in spec["fields"])
    if missing not in {0, len(items)}:
        text = f"Cannot parse spec with missing field IDs: {missing} missing of {len(items)} fields."
        raise BadRequestError(text, field=f"{at}.fields")
    return spec


def _parse_field(value: object, at: str) -> JsonObject:
    field = without_nulls(as_object(value, at))
    read_text(field, "name", at)
    read_int(field, "source-id", at, most=INT32_MAX)
    read_int_or_none(field, "field-id", at, most=INT32_MAX)
    check_transform(read_text(field, "transform", at), f"{at}.transform")
    return field


def spec_key(spec: Mapping[str, Any]) -> Hashable:
    """Return what two specs share exactly if they are the same one: sources, transforms and names, but no ids."""
    return tuple((f["source-id"], canonical_transform(f["transform"]), f["name"]) for f in spec["fields"])


def check_spec(spec: Mapping[str, Any], columns: Columns) -> None:
    """
    Check that a spec that is being added can part a table with these columns.

    Raises:
        InvalidUpdateError: at the first field that cannot.
    """
    check_readable(spec, columns)
    check_sources(spec, columns)


def check_readable(spec: Mapping[str, Any], columns: Columns) -> None:
    """
    Check that a spec, in force or not, can be read with these columns; its source columns may be gone.

    Readers of the reference refuse the whole table if one of its specs cannot.

    Raises:
        InvalidUpdateError: at the first field that cannot.
    """
    names: set[str] = set()
    ids: set[int] = set()
    for field in spec["fields"]:
        column = columns.by_id.get(field["source-id"])
        if column is not None:
            check_new_transform(field["transform"], column)
        _check_name(field, columns, names)
        field_id = field.get("field-id")
        if field_id in ids:
            raise InvalidUpdateError(f"Cannot use partition field ID more than once: {field_id}")
        if field_id is not None:
            ids.add(field_id)


def _check_name(field: Mapping[str, Any], columns: Columns, names: set[str]) -> None:
    name = field["name"]
    if not name:
        raise InvalidUpdateError("Invalid column name: (empty)")
    namesake = columns.by_path.get(name)
    if field["source-id"] in columns.by_id and namesake is not None and namesake.field_id != field["source-id"]:
        text = f"Cannot create identity partition sourced from different field in schema: {name}"
        raise InvalidUpdateError(text)
    if name in names:
        raise InvalidUpdateError(f"Cannot use partition name more than once: {name}")
    names.add(name)


def check_sources(spec: Mapping[str, Any], columns: Columns) -> None:
    """
    Check that the columns a spec parts by exist and have types its transforms take.

    A void field needs no source: v1 tables keep one in place of each field they drop.

    Raises:
        InvalidUpdateError: at the first field of which this is not so.
    """
    for field in spec["fields"]:
        transform = canonical_transform(field["transform"])
        if transform == VOID:
            continue
        column = columns.by_id.get(field["source-id"])
        if column is None:
            raise InvalidUpdateError(f"Cannot find source column for partition field: {describe_partition(field)}")
        if not column.is_primitive:
            raise InvalidUpdateError(f"Cannot partition by non-primitive source field: {describe_type(column.type)}")
        if not can_transform(transform, column):
            text = f"Invalid source type {describe_type(column.type)} for transform: {transform}"
            raise InvalidUpdateError(text)
        for parent in columns.around(column):
            if not parent.is_struct:
                raise InvalidUpdateError(f"Invalid partition field parent: {describe_type(parent.type)}")


def has_sequential_ids(spec: Mapping[str, Any]) -> bool:
    """Return whether the fields are numbered 1000, 1001, … as v1 readers take for granted."""
    return all(f["field-id"] == FIRST_FIELD_ID + index for index, f in enumerate(spec["fields"]))


def with_field_ids(spec: JsonObject, known: Mapping[Origin, int], *, last_id: int) -> JsonObject:
    """
    Give ids to the fields of a spec that came without.

    A source and transform in `known`, which some spec of the table has used before, keep their id; others follow
    `last_id` (table spec, partition evolution).
    """
    if all("field-id" in field for field in spec["fields"]):
        return spec
    fields: list[JsonObject] = []
    used: set[int] = set()
    for field in spec["fields"]:
        field_id = known.get(_origin(field))
        if field_id is None or field_id in used:
            last_id += 1
            field_id = last_id
        used.add(field_id)
        fields.append({**field, "field-id": field_id})
    return {**spec, "fields": fields}


def field_ids(specs: Iterable[Mapping[str, Any]]) -> dict[Origin, int]:
    """Return the id that each source and transform has in these specs."""
    return {_origin(field): field["field-id"] for spec in specs for field in spec["fields"]}


def _origin(field: Mapping[str, Any]) -> Origin:
    return field["source-id"], canonical_transform(field["transform"])


def highest_field_id(spec: Mapping[str, Any]) -> int:
    """Return the highest field id of a spec, 999 if it has no fields."""
    return max((field["field-id"] for field in spec["fields"]), default=FIRST_FIELD_ID - 1)


def describe_partition(field: Mapping[str, Any]) -> str:
    """Return a partition field as the reference prints it: `1000: day: day(3)`."""
    transform = canonical_transform(field["transform"])
    return f"{field.get('field-id')}: {field['name']}: {transform}({field['source-id']})"


def describe_spec(spec: Mapping[str, Any]) -> str:
    """Return a spec as the reference prints it, one field a line."""
    lines = "".join(f"\n  {describe_partition(field)}" for field in spec["fields"])
    return f"[{lines}\n]" if lines else "[]"
