# SPDX-License-Identifier: Apache-2.0
"""
The columns of a table as restrictions see them: a schema of Iceberg, read from its JSON.

Guarantee: a schema that was read has at most `COLUMNS_MAX` fields on all levels, at most `DEPTH_MAX` deep, each with an
id of its own, and each of a type that the specification has ("Schemas and Data Types"). A field within a list or a map
has the name `element`, `key` or `value` there (Java's `Schema.findField`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import BadRequestError
from gateway.policy.nearest import nearest

if TYPE_CHECKING:
    from ledger.format.canonical import Json

COLUMNS_MAX: Final = 1_000
DEPTH_MAX: Final = 16
NAME_LENGTH_MAX: Final = 500
ID_MAX: Final = 2**31 - 1
PRECISION_MAX: Final = 38
FIXED_LENGTH_MAX: Final = 2**16

_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")
_FIXED: Final = re.compile(r"fixed\[\s*([0-9]{1,5})\s*\]")
_GEO: Final = re.compile(r"(geometry|geography)(\([^()]{0,200}\))?")


class Kind(StrEnum):
    """A type without its parameters."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP_NS = "timestamp_ns"
    TIMESTAMPTZ_NS = "timestamptz_ns"
    STRING = "string"
    UUID = "uuid"
    FIXED = "fixed"
    BINARY = "binary"
    VARIANT = "variant"
    GEOMETRY = "geometry"
    GEOGRAPHY = "geography"
    UNKNOWN = "unknown"
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"


NESTED: Final = frozenset({Kind.STRUCT, Kind.LIST, Kind.MAP})
_PLAIN: Final[Mapping[str, Kind]] = {
    kind.value: kind for kind in Kind if kind not in NESTED | {Kind.DECIMAL, Kind.FIXED, Kind.GEOMETRY, Kind.GEOGRAPHY}
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnType:
    """
    A type: `precision` and `scale` of a decimal, `length` (bytes) of a fixed, `fields` of a nested one.

    The fields of a list are its element, those of a map its key and its value.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    length: int = 0
    fields: tuple[Column, ...] = ()

    def __str__(self) -> str:
        """Return the name of the type as the specification writes it; of a nested one, what it is."""
        match self.kind:
            case Kind.DECIMAL:
                return f"decimal({self.precision},{self.scale})"
            case Kind.FIXED:
                return f"fixed[{self.length}]"
            case kind:
                return kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """
    A field of a schema on any level: `path` has the names from the outermost field to this one.

    `parents` are the ids of the fields around it, outermost first. `is_repeated` says that it is within a list or a
    map, so that a row may have several values of it; `is_of_key` that it is the key of a map, or within one.
    """

    id: int
    path: tuple[str, ...]
    type: ColumnType
    required: bool
    parents: tuple[int, ...] = ()
    is_repeated: bool = False
    is_of_key: bool = False

    @property
    def name(self) -> str:
        """The names of the path joined by dots, as Iceberg writes a nested field."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """The top-level `fields` of a table; `columns` are all fields on all levels, each before those within it."""

    fields: tuple[Column, ...]
    columns: tuple[Column, ...]

    def at(self, path: tuple[str, ...]) -> Column | None:
        """Return the column at a path; None if there is none."""
        return next((column for column in self.columns if column.path == path), None)

    def named(self, name: str) -> tuple[Column, ...]:
        """Return the columns of that name, several if dots within names make it ambiguous."""
        return tuple(column for column in self.columns if column.name == name)

    def nearest_to(self, name: str) -> str:
        """Return the name of a column that is most like `name`."""
        return nearest(name[:100], [column.name for column in self.columns])


def parse_schema(value: Json, *, where: str = "schema") -> TableSchema:
    """
    Return the schema that Iceberg's JSON describes (specification, "Schema JSON"); other members are not looked at.

    Raises:
        BadRequestError: if it is none; names the place.
    """
    if not isinstance(value, Mapping):
        raise BadRequestError(
            f"expected a schema of Iceberg as an object with fields, found {value!r:.80}", field=where
        )
    if value.get("type", "struct") != "struct":
        raise BadRequestError(f"expected struct, found {value['type']!r:.80}", field=f"{where}.type")
    reader = _Reader()
    fields = reader.fields(value.get("fields"), where=f"{where}.fields", inside=_TOP)
    if not fields:
        raise BadRequestError("expected at least one field, found none", field=f"{where}.fields")
    return TableSchema(fields=fields, columns=tuple(_flat(fields)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inside:
    """What is around a field."""

    path: tuple[str, ...] = ()
    parents: tuple[int, ...] = ()
    is_repeated: bool = False
    is_of_key: bool = False


_TOP: Final = _Inside()


class _Reader:
    """Reads one schema; counts its fields, and remembers their ids."""

    def __init__(self) -> None:
        self._ids: set[int] = set()

    def fields(self, value: Json, *, where: str, inside: _Inside) -> tuple[Column, ...]:
        if not isinstance(value, list | tuple):
            raise BadRequestError(f"expected a list of fields, found {value!r:.80}", field=where)
        found: dict[str, Column] = {}
        for position, one in enumerate(value):
            place = f"{where}[{position}]"
            if not isinstance(one, Mapping):
                raise BadRequestError(
                    f"expected a field with id, name, required and type, found {one!r:.80}", field=place
                )
            name = one.get("name")
            if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
                raise BadRequestError(
                    f"expected 1 to {NAME_LENGTH_MAX} printable characters, found {name!r:.80}", field=f"{place}.name"
                )
            if name in found:
                raise BadRequestError(f"expected each name once, found {name!r:.80} again", field=f"{place}.name")
            found[name] = self._column(
                name, one.get("id"), one.get("type"), one.get("required"), where=place, inside=inside
            )
        return tuple(found.values())

    def _column(
        self, name: str, id_: Json, type_: Json, required: Json, *, where: str, inside: _Inside, prefix: str = ""
    ) -> Column:
        if not isinstance(id_, int) or isinstance(id_, bool) or not 0 <= id_ <= ID_MAX or id_ in self._ids:
            raise BadRequestError(
                f"expected a number from 0 to {ID_MAX:,} that no other field has, found {id_!r:.80}",
                field=f"{where}.{prefix}id",
            )
        if not isinstance(required, bool):
            raise BadRequestError(f"expected true or false, found {required!r:.80}", field=f"{where}.{prefix}required")
        self._ids.add(id_)
        if len(self._ids) > COLUMNS_MAX:
            raise BadRequestError(f"expected at most {COLUMNS_MAX:,} fields on all levels, found more", field=where)
        path = (*inside.path, name)
        if len(path) > DEPTH_MAX:
            raise BadRequestError(f"expected at most {DEPTH_MAX} levels, found more", field=where)
        within = _Inside(
            path=path,
            parents=(*inside.parents, id_),
            is_repeated=inside.is_repeated,
            is_of_key=inside.is_of_key,
        )
        return Column(
            id=id_,
            path=path,
            type=self._type(type_, where=f"{where}.{prefix.rstrip('-') or 'type'}", inside=within),
            required=required,
            parents=inside.parents,
            is_repeated=inside.is_repeated,
            is_of_key=inside.is_of_key,
        )

    def _type(self, value: Json, *, where: str, inside: _Inside) -> ColumnType:
        if isinstance(value, str):
            return _primitive(value, where=where)
        if not isinstance(value, Mapping):
            raise BadRequestError(f"expected a type, found {value!r:.80}", field=where)
        match value.get("type"):
            case "struct":
                fields = self.fields(value.get("fields"), where=f"{where}.fields", inside=inside)
                return ColumnType(kind=Kind.STRUCT, fields=fields)
            case "list":
                return ColumnType(kind=Kind.LIST, fields=(self._part("element", value, where=where, inside=inside),))
            case "map":
                parts = tuple(self._part(part, value, where=where, inside=inside) for part in ("key", "value"))
                return ColumnType(kind=Kind.MAP, fields=parts)
            case found:
                raise BadRequestError(f"expected struct, list or map, found {found!r:.80}", field=f"{where}.type")

    def _part(self, part: str, value: Mapping[str, Any], *, where: str, inside: _Inside) -> Column:
        """Return the element of a list, or the key or value of a map; a key is required."""
        is_key = part == "key"
        within = _Inside(
            path=inside.path,
            parents=inside.parents,
            is_repeated=True,
            is_of_key=inside.is_of_key or is_key,
        )
        required = True if is_key else value.get(f"{part}-required")
        return self._column(
            part, value.get(f"{part}-id"), value.get(part), required, where=where, inside=within, prefix=f"{part}-"
        )


def _primitive(text: str, *, where: str) -> ColumnType:
    if (kind := _PLAIN.get(text)) is not None:
        return ColumnType(kind=kind)
    if found := _DECIMAL.fullmatch(text):
        precision, scale = int(found[1]), int(found[2])
        if 1 <= precision <= PRECISION_MAX and scale <= precision:
            return ColumnType(kind=Kind.DECIMAL, precision=precision, scale=scale)
    if (found := _FIXED.fullmatch(text)) and 1 <= int(found[1]) <= FIXED_LENGTH_MAX:
        return ColumnType(kind=Kind.FIXED, length=int(found[1]))
    if found := _GEO.fullmatch(text):
        return ColumnType(kind=Kind(found[1]))
    raise BadRequestError(
        f"expected a type of Iceberg: {', '.join(sorted(_PLAIN))}, decimal(10,2) or fixed[16], found {text!r:.80}",
        field=where,
    )


def _flat(fields: tuple[Column, ...]) -> Iterator[Column]:
    for field in fields:
        yield field
        yield from _flat(field.type.fields)


def format_schema(schema: TableSchema) -> dict[str, Json]:
    """
    Return a schema as Iceberg's JSON: what `parse_schema` reads.
    """
    return {"type": "struct", "fields": [_format_field(field) for field in schema.fields]}


def _format_field(field: Column) -> Json:
    return {"id": field.id, "name": field.path[-1], "required": field.required, "type": _format_type(field.type)}


def _format_type(type_: ColumnType) -> Json:
    match type_.kind:
        case Kind.STRUCT:
            return {"type": "struct", "fields": [_format_field(field) for field in type_.fields]}
        case Kind.LIST | Kind.MAP:
            parts: dict[str, Json] = {"type": type_.kind.value}
            for part in type_.fields:
                name = part.path[-1]
                parts |= {f"{name}-id": part.id, name: _format_type(part.type)}
                if name != "key":
                    parts[f"{name}-required"] = part.required
            return parts
        case _:
            return str(type_)
