# SPDX-License-Identifier: Apache-2.0
"""
A createTable request as updates, so that creating a table takes the same path as changing one.

As in the reference, ids in the request are only names for its own parts: columns are numbered from 1 in the order of
the schema, those of one level before those inside them, and spec and order are put on the new numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Final

from gateway.metadata.columns import index_columns
from gateway.metadata.draft import FORMAT_VERSION_DEFAULT, FORMAT_VERSION_MAX, Update
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.partitions import FIRST_FIELD_ID, check_spec, describe_partition, parse_spec
from gateway.metadata.properties import FORMAT_VERSION, check_new_properties, integer_property, stored_properties
from gateway.metadata.schemas import parse_schema
from gateway.metadata.shapes import JsonObject, as_object, check_bounds, read_text_or_none, read_texts
from gateway.metadata.sorting import UNSORTED_ID, check_new_order, parse_order, unsorted

_PARTS: Final = ("location", "schema", "partition-spec", "write-order", "properties")
_LAST_ADDED: Final = -1


def create_updates(request: Mapping[str, Any], *, table_uuid: str, location: str) -> list[Update]:
    """
    Return the updates that create the table of a CreateTableRequest; commit them with `ASSERT_CREATE`.

    `location` is where the table goes, whether the request named it or not; the request's name is not looked at. The
    property `format-version` picks the version (2 unless given); reserved properties are not stored.

    Raises:
        BadRequestError: where the request is malformed, with the member's path, as in `schema.fields[0].id`.
        InvalidUpdateError: if the parts do not fit each other.
    """
    for name in _PARTS:
        check_bounds(request.get(name), name)
    read_text_or_none(request, "location", "")
    given = read_texts(request, "properties", "") if request.get("properties") is not None else {}
    schema = parse_schema(request.get("schema"), "schema")
    spec = parse_spec(_part(request, "partition-spec", {"fields": []}), "partition-spec")
    order = parse_order(_part(request, "write-order", unsorted()), "write-order")
    columns = index_columns(schema)
    check_spec(spec, columns)
    check_new_order(order, columns)
    version = _format_version(given)
    properties = stored_properties(given)
    check_new_properties(properties, columns, version)

    fresh_ids: dict[int, int] = {}
    fresh_schema = _with_fresh_ids(schema, fresh_ids, count(1))
    return [
        {"action": "assign-uuid", "uuid": table_uuid},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": fresh_schema, "last-column-id": len(fresh_ids)},
        {"action": "set-current-schema", "schema-id": _LAST_ADDED},
        {"action": "add-spec", "spec": _fresh_spec(spec, fresh_ids)},
        {"action": "set-default-spec", "spec-id": _LAST_ADDED},
        {"action": "add-sort-order", "sort-order": _fresh_order(order, fresh_ids)},
        {"action": "set-default-sort-order", "sort-order-id": _LAST_ADDED},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": properties},
    ]


def _part(request: Mapping[str, Any], name: str, default: JsonObject) -> JsonObject:
    value = request.get(name)
    return default if value is None else as_object(value, name)


def _format_version(properties: Mapping[str, str]) -> int:
    version = integer_property(properties, FORMAT_VERSION, FORMAT_VERSION_DEFAULT)
    if not 1 <= version <= FORMAT_VERSION_MAX:
        raise InvalidUpdateError(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})")
    return version


def _with_fresh_ids(schema: JsonObject, fresh_ids: dict[int, int], ids: Iterator[int]) -> JsonObject:
    fresh = {**_fresh_type(schema, fresh_ids, ids), "schema-id": 0}
    if "identifier-field-ids" in schema:
        fresh["identifier-field-ids"] = [fresh_ids[one] for one in schema["identifier-field-ids"]]
    return fresh


def _fresh_type(type_: Any, fresh_ids: dict[int, int], ids: Iterator[int]) -> Any:
    """Number the fields of a type, first its own, then those inside them; note in `fresh_ids` what became what."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "struct":
        for field in type_["fields"]:
            fresh_ids[field["id"]] = next(ids)
        fields = [
            {**field, "id": fresh_ids[field["id"]], "type": _fresh_type(field["type"], fresh_ids, ids)}
            for field in type_["fields"]
        ]
        return {**type_, "fields": fields}
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    fresh = dict(type_)
    for part in parts:
        fresh_ids[type_[f"{part}-id"]] = fresh[f"{part}-id"] = next(ids)
    for part in parts:
        fresh[part] = _fresh_type(type_[part], fresh_ids, ids)
    return fresh


def _fresh_spec(spec: JsonObject, fresh_ids: Mapping[int, int]) -> JsonObject:
    fields: list[JsonObject] = []
    for index, field in enumerate(spec["fields"]):
        if field["source-id"] not in fresh_ids:
            # otherwise a void field needs no source, but a new table has no dropped column that it could stand for
            raise InvalidUpdateError(f"Cannot find source column for partition field: {describe_partition(field)}")
        fields.append({**field, "source-id": fresh_ids[field["source-id"]], "field-id": FIRST_FIELD_ID + index})
    return {**spec, "spec-id": 0, "fields": fields}


def _fresh_order(order: JsonObject, fresh_ids: Mapping[int, int]) -> JsonObject:
    fields = [{**field, "source-id": fresh_ids[field["source-id"]]} for field in order["fields"]]
    return {**order, "order-id": UNSORTED_ID + 1 if fields else UNSORTED_ID, "fields": fields}
