# SPDX-License-Identifier: Apache-2.0
"""
Schemas as JSON: their shape, what makes two of them the same, and which format versions may hold them.

A schema is kept as its writer sent it, unknown members included, less the members that are null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeAlias

from gateway.errors import BadRequestError
from gateway.metadata.columns import Columns, describe_type
from gateway.metadata.defaults import check_default
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.shapes import (
    INT32_MAX,
    JsonObject,
    as_object,
    found,
    read_bool,
    read_ids,
    read_int,
    read_list,
    read_text,
    read_text_or_none,
    without_nulls,
)

JsonType: TypeAlias = "str | JsonObject"

NESTING_MAX = 48  # three levels of JSON each; engines stop far earlier
_DECIMAL_PRECISION_MAX = 38
_DEFAULTS_SINCE_VERSION = 3

_SINCE_VERSION: Final = {
    "timestamp_ns": 3,
    "timestamptz_ns": 3,
    "unknown": 3,
    "variant": 3,
    "geometry": 3,
    "geography": 3,
}
_PRIMITIVES: Final = _SINCE_VERSION.keys() | {
    *("boolean", "int", "long", "float", "double", "string", "uuid", "binary"),
    *("date", "time", "timestamp", "timestamptz"),
}
_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,9})\s*,\s*([0-9]{1,9})\s*\)")
_FIXED: Final = re.compile(r"fixed\[\s*([0-9]{1,9})\s*\]")
_WITH_REFERENCE_SYSTEM: Final = re.compile(r"geo(metry|graphy)\s*\([^)]*\)", re.IGNORECASE)


def parse_schema(value: object, at: str) -> JsonObject:
    """
    Return a copy of a schema whose shape has been checked down to its last nested type.

    Ids and names are not compared here: `index_columns` does that, with the reference's texts.

    Raises:
        BadRequestError: where a member is missing or has another shape, or a type has no such name.
    """
    schema = without_nulls(as_object(value, at))
    if "schema-id" in schema:
        read_int(schema, "schema-id", at, most=INT32_MAX)
    if "identifier-field-ids" in schema:
        read_ids(schema, "identifier-field-ids", at)
    if schema.get("type", "struct") != "struct":
        raise BadRequestError(f"expected 'struct', found {found(schema['type'])}", field=f"{at}.type")
    schema["type"] = "struct"
    schema["fields"] = _parse_fields(schema, at, 0)
    return schema


def _parse_fields(struct: JsonObject, at: str, depth: int) -> list[JsonObject]:
    items = read_list(struct, "fields", at)
    return [_parse_field(item, f"{at}.fields[{index}]", depth) for index, item in enumerate(items)]


def _parse_field(value: object, at: str, depth: int) -> JsonObject:
    field = without_nulls(as_object(value, at))
    read_int(field, "id", at, most=INT32_MAX)
    name = read_text(field, "name", at)
    is_required = read_bool(field, "required", at)
    read_text_or_none(field, "doc", at)
    field["type"] = _parse_type(field.get("type"), f"{at}.type", depth)
    _check_unknown(field["type"], name, at, is_required=is_required)
    for default in ("initial-default", "write-default"):
        if default in field:
            check_default(field["type"], field[default], f"{at}.{default}")
    return field


def _parse_type(value: object, at: str, depth: int) -> JsonType:
    if isinstance(value, str):
        _check_primitive(value, at)
        return value
    if depth >= NESTING_MAX:
        raise BadRequestError(f"types nested deeper than {NESTING_MAX} levels", field=at)
    nested = without_nulls(as_object(value, at))
    match nested.get("type"):
        case "struct":
            nested["fields"] = _parse_fields(nested, at, depth + 1)
        case "list":
            read_int(nested, "element-id", at, most=INT32_MAX)
            is_required = read_bool(nested, "element-required", at)
            nested["element"] = _parse_type(nested.get("element"), f"{at}.element", depth + 1)
            _check_unknown(nested["element"], "element", at, is_required=is_required)
        case "map":
            read_int(nested, "key-id", at, most=INT32_MAX)
            read_int(nested, "value-id", at, most=INT32_MAX)
            is_required = read_bool(nested, "value-required", at)
            nested["key"] = _parse_type(nested.get("key"), f"{at}.key", depth + 1)
            nested["value"] = _parse_type(nested.get("value"), f"{at}.value", depth + 1)
            _check_unknown(nested["key"], "key", at, is_required=True)
            _check_unknown(nested["value"], "value", at, is_required=is_required)
        case other:
            raise BadRequestError(f"expected 'struct', 'list' or 'map', found {found(other)}", field=f"{at}.type")
    return nested


def _check_unknown(type_: JsonType, name: str, at: str, *, is_required: bool) -> None:
    """Columns of type unknown hold nothing but null."""
    if is_required and str(type_).lower() == "unknown":
        raise BadRequestError(f"Cannot create required field with unknown type: {name[:64]}", field=at)


def _check_primitive(name: str, at: str) -> None:
    lower = name.lower()
    if lower in _PRIMITIVES or _FIXED.fullmatch(lower) or _WITH_REFERENCE_SYSTEM.fullmatch(name):
        return
    decimal = _DECIMAL.fullmatch(lower)
    if decimal is None:
        raise BadRequestError(f"Cannot parse type string to primitive: {name[:64]}", field=at)
    if int(decimal[1]) > _DECIMAL_PRECISION_MAX:
        text = f"Decimals with precision larger than {_DECIMAL_PRECISION_MAX} are not supported: {int(decimal[1])}"
        raise BadRequestError(text, field=at)


def schema_key(schema: Mapping[str, Any]) -> Hashable:
    """
    Return what two schemas share exactly if they are the same one: all members but the id.

    Identifier fields are a set, members that are null are absent, and type names may be written in more than one way.
    """
    content = {name: _normalised(member) for name, member in schema.items() if name != "schema-id"}
    identifiers = content.pop("identifier-field-ids", None)
    if identifiers:
        content["identifier-field-ids"] = sorted(set(identifiers))
    return json.dumps(content, sort_keys=True)


def _normalised(value: Any) -> Any:
    if isinstance(value, list):
        return [_normalised(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = {name: _normalised(member) for name, member in value.items() if member is not None}
    for name in ("type", "element", "key", "value"):
        if isinstance(members.get(name), str):
            members[name] = canonical_type(members[name])
    return members


def canonical_type(name: str) -> str:
    """Return the one spelling of a primitive type's name: lower case, no spaces; reference systems stay as they are."""
    return name if "(" in name and not name.lower().startswith("decimal") else "".join(name.lower().split())


def check_compatibility(columns: Columns, format_version: int) -> None:
    """
    Check that tables of `format_version` may have these columns.

    Raises:
        InvalidUpdateError: naming every column whose type or default came with a later version.
    """
    problems: dict[int, str] = {}
    for field_id, column in sorted(columns.by_id.items()):
        name = column.type.lower().split("(")[0].strip() if isinstance(column.type, str) else ""
        since = _SINCE_VERSION.get(name, 1)
        if format_version < since:
            described = describe_type(column.type)
            problems[field_id] = f"Invalid type for {column.path}: {described} is not supported until v{since}"
        if column.initial_default is not None and format_version < _DEFAULTS_SINCE_VERSION:
            problems[field_id] = (
                f"Invalid initial default for {column.path}: non-null default ({column.initial_default}) "
                f"is not supported until v{_DEFAULTS_SINCE_VERSION}"
            )
    if problems:
        lines = "".join(f"\n- {problem}" for problem in problems.values())
        raise InvalidUpdateError(f"Invalid schema for v{format_version}:{lines}")
