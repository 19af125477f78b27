# SPDX-License-Identifier: Apache-2.0
"""
The columns of a schema by id and by full name, nested ones too, and what an identifier field must be.

Full names join the names of the fields around a column with dots; a list's item is its `element`, a map's are `key` and
`value` (table spec, column projection).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.metadata.errors import InvalidUpdateError

_NESTING_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One field of a schema; `parent_id` is the field it is nested in, `type` is its type as JSON."""

    field_id: int
    name: str
    path: str
    type: str | Mapping[str, Any]
    is_required: bool
    parent_id: int | None
    doc: str | None = None
    initial_default: object = None

    @property
    def is_struct(self) -> bool:
        """Whether fields of this one may identify rows or part them, if all around them are structs too."""
        return not isinstance(self.type, str) and self.type["type"] == "struct"

    @property
    def is_primitive(self) -> bool:
        """Whether the column holds single values; variants are no such thing."""
        return isinstance(self.type, str) and self.type.lower() != "variant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """All columns of one schema."""

    by_id: Mapping[int, Column]
    by_path: Mapping[str, Column]

    @property
    def highest_id(self) -> int:
        """The highest field id in use, 0 if there is none."""
        return max(self.by_id, default=0)

    def around(self, column: Column) -> Iterator[Column]:
        """Yield the columns that `column` is nested in, the innermost first."""
        parent_id = column.parent_id
        while parent_id is not None:
            yield self.by_id[parent_id]
            parent_id = self.by_id[parent_id].parent_id


def index_columns(schema: Mapping[str, Any]) -> Columns:
    """
    Index a schema whose shape is known to be right, and check its ids, names and identifier fields.

    Raises:
        InvalidUpdateError: if an id or a full name occurs twice, or an identifier field cannot be one.
    """
    by_id: dict[int, Column] = {}
    by_path: dict[str, Column] = {}
    for column in _fields(schema, "", None, 0):
        same_name = by_path.setdefault(column.path, column)
        if same_name is not column:
            ids = f"{same_name.field_id} and {column.field_id}"
            raise InvalidUpdateError(f"Invalid schema: multiple fields for name {column.path}: {ids}")
        same_id = by_id.setdefault(column.field_id, column)
        if same_id is not column:
            names = f"{same_id.path} and {column.path}"
            raise InvalidUpdateError(f"Invalid schema: multiple fields for id {column.field_id}: {names}")
    columns = Columns(by_id=by_id, by_path=by_path)
    for field_id in schema.get("identifier-field-ids") or ():
        _check_identifier(field_id, columns)
    return columns


def _fields(struct: Mapping[str, Any], prefix: str, parent_id: int | None, depth: int) -> Iterator[Column]:
    for field in struct["fields"]:
        column = Column(
            field_id=field["id"],
            name=field["name"],
            path=prefix + field["name"],
            type=field["type"],
            is_required=field["required"],
            parent_id=parent_id,
            doc=field.get("doc"),
            initial_default=field.get("initial-default"),
        )
        yield column
        yield from _nested(column, depth)


def _nested(column: Column, depth: int) -> Iterator[Column]:
    """Yield the columns inside `column`, each before those inside it."""
    if isinstance(column.type, str):
        return
    if depth >= _NESTING_MAX:
        raise InvalidUpdateError(f"Invalid schema: types nested deeper than {_NESTING_MAX} levels in {column.path}")
    if column.is_struct:
        yield from _fields(column.type, f"{column.path}.", column.field_id, depth + 1)
        return
    parts = ("element",) if column.type["type"] == "list" else ("key", "value")
    for part in parts:
        inner = Column(
            field_id=column.type[f"{part}-id"],
            name=part,
            path=f"{column.path}.{part}",
            type=column.type[part],
            is_required=part == "key" or column.type[f"{part}-required"],
            parent_id=column.field_id,
        )
        yield inner
        yield from _nested(inner, depth + 1)


def _check_identifier(field_id: int, columns: Columns) -> None:
    column = columns.by_id.get(field_id)
    if column is None:
        raise InvalidUpdateError(f"Cannot add fieldId {field_id} as an identifier field: field does not exist")
    refusal = f"Cannot add field {column.name} as an identifier field: "
    if not column.is_primitive:
        raise InvalidUpdateError(refusal + "not a primitive type field")
    if not column.is_required:
        raise InvalidUpdateError(refusal + "not a required field")
    if str(column.type).lower() in {"float", "double"}:
        raise InvalidUpdateError(refusal + "must not be float or double field")
    for parent in reversed(list(columns.around(column))):
        if not parent.is_struct:
            raise InvalidUpdateError(f"{refusal}must not be nested in {describe_column(parent)}")
        if not parent.is_required:
            raise InvalidUpdateError(f"{refusal}must not be nested in an optional field {describe_column(parent)}")


def describe_column(column: Column) -> str:
    """Return a column as the reference prints it: `1: id: required long`."""
    field = {"id": column.field_id, "name": column.name, "type": column.type, "required": column.is_required}
    return _describe(field | {"doc": column.doc})


def describe_type(type_: str | Mapping[str, Any]) -> str:
    """Return a type as the reference prints it: `list<int>`, `struct<1: id: required long>`."""
    if isinstance(type_, str):
        return type_
    if type_["type"] == "list":
        return f"list<{describe_type(type_['element'])}>"
    if type_["type"] == "map":
        return f"map<{describe_type(type_['key'])}, {describe_type(type_['value'])}>"
    return f"struct<{', '.join(_describe(field) for field in type_['fields'])}>"


def _describe(field: Mapping[str, Any]) -> str:
    required = "required" if field["required"] else "optional"
    doc = "" if field.get("doc") is None else f" ({field['doc']})"
    return f"{field['id']}: {field['name']}: {required} {describe_type(field['type'])}{doc}"
