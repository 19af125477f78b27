# SPDX-License-Identifier: Apache-2.0
"""
A table or a view as policies see it: a few names with fixed fields, made from the catalog's raw metadata.

Guarantee: `table_of` always returns all fields, with a zero value ("", 0, [], {}) for what the Iceberg specification
calls optional. Metadata that contradicts the specification (a current schema that is not among the schemas, a number
instead of a map) is refused: otherwise a policy on all columns would allow a table whose columns it cannot see.

Snapshot ids are random 63-bit integers and become strings; see `plain_json` for other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.errors import UnavailableError

if TYPE_CHECKING:
    from gateway.metadata import Metadata
    from ledger.format.canonical import Json

INTEGER_MAX: Final = 2**53 - 1
"""The largest integer on which all JSON readers agree; the log stores none beyond it."""

DEPTH_MAX: Final = 200
"""Levels of arrays and objects; the encoder that carries them to the worker stops at 254."""

_SNAPSHOT_IDS: Final = frozenset({"snapshot-id", "parent-snapshot-id", "snapshot-ids"})
_NO_SNAPSHOT: Final = -1
_UNSORTED: Final = 0
_FIELDS: Final = "policy.table"
"""The name under which metadata remembers its fields."""


class UnreadableMetadataError(UnavailableError):
    """The metadata is not what the Iceberg specification says, so that policies cannot be judged on it."""


def table_of(metadata: Metadata | None, *, before: Metadata | None = None) -> Mapping[str, Json]:
    """
    Return the fields of a table or a view; all of them zero, and `exists` false, if `metadata` is None. Read-only.

    What it shares with the table `before`, whose fields are known, is not made again.

    Raises:
        UnreadableMetadataError: if the metadata contradicts the specification; names the field.
    """
    derived = _derived(metadata)
    fields = derived.get(_FIELDS)
    if fields is None:
        fields = derived[_FIELDS] = _fields_of(metadata, _derived(before).get(_FIELDS))
    return fields.members


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """The fields of a table, with the parts of the metadata that some of them were made of."""

    members: Mapping[str, Json]
    schema: Metadata
    names: Mapping[int, str]


def _derived(metadata: Metadata | None) -> dict[str, _Fields]:
    """Return where metadata that does not change remembers its fields (`gateway.metadata.draft.TableMetadata`)."""
    known: dict[str, _Fields] = getattr(metadata, "derived", {})
    return known


def _fields_of(metadata: Metadata | None, before: _Fields | None) -> _Fields:
    known = metadata if metadata is not None else {}
    schema = _current_schema(known)
    if before is not None and before.schema is schema:
        columns, names = before.members["columns"], before.names
    else:
        columns, names = [_column(column) for column in _maps(schema, "fields")], dict(_names_of(schema))
    members: dict[str, Json] = {
        "exists": metadata is not None,
        "uuid": _text(known, "table-uuid") or _text(known, "view-uuid"),
        "location": _text(known, "location"),
        "format_version": _integer(known, "format-version"),
        "columns": columns,
        "partition_fields": [_partition_field(one, names) for one in _current_partition_fields(known)],
        "sort_fields": [_sort_field(one, names) for one in _current_sort_fields(known)],
        "properties": _texts(known, "properties"),
        "refs": _refs(known),
        "snapshot": snapshot_of(_current_snapshot(known)),
        "queries": _queries(known),
    }
    return _Fields(members=members, schema=schema, names=names)


def snapshot_of(snapshot: Metadata | None) -> dict[str, Json]:
    """
    Return id, operation and summary of a snapshot, or empty ones for None.

    Raises:
        UnreadableMetadataError: if the snapshot contradicts the specification.
    """
    known = snapshot if snapshot is not None else {}
    summary = _texts(known, "summary")
    return {"id": _snapshot_id(known), "operation": summary.get("operation", ""), "summary": dict(summary)}


def plain_json(value: Any, *, depth: int = 0) -> Json:
    """
    Return a JSON value in which every number is an integer that the log can hold.

    Snapshot ids become decimal strings whatever their size, so that they always compare with `snapshot.id`; so do other
    integers beyond `INTEGER_MAX`, and fractions, in their shortest form.

    Raises:
        UnreadableMetadataError: if it is nested deeper than `DEPTH_MAX`, or is not JSON.
    """
    if depth > DEPTH_MAX:
        raise UnreadableMetadataError(f"expected at most {DEPTH_MAX} levels of JSON, found more")
    if isinstance(value, Mapping):
        return {name: _plain_member(name, item, depth=depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item, depth=depth + 1) for item in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -INTEGER_MAX <= value <= INTEGER_MAX else str(value)
    if isinstance(value, float):
        return repr(value)
    raise UnreadableMetadataError(f"expected JSON, found {type(value).__name__}")


def _plain_member(name: str, value: Any, *, depth: int) -> Json:
    if name in _SNAPSHOT_IDS:
        if isinstance(value, list):
            return [_plain_member(name, item, depth=depth + 1) for item in value]
        if isinstance(value, int):
            return str(value)
    return plain_json(value, depth=depth)


def _current_schema(metadata: Metadata) -> Metadata:
    """Return the schema in force; views have that of their current version, metadata of version 1 may have only one."""
    schemas = _by_id(metadata, "schemas", "schema-id")
    current = _id(metadata, "current-schema-id")
    if _is_view(metadata):
        current = _id(_current_version(metadata), "schema-id")
    if schemas and current is not None:
        return _one_of(schemas, current, "current-schema-id")
    if schemas and "schema" not in metadata:
        raise UnreadableMetadataError("current-schema-id: expected one of the schemas, found none")
    return _map(metadata, "schema")


def _is_view(metadata: Metadata) -> bool:
    """Return whether this is a view: a table may have members that are named like a view's, and mean nothing there."""
    is_view = metadata.get("view-uuid") is not None
    if is_view and metadata.get("table-uuid") is not None:
        raise UnreadableMetadataError("view-uuid: expected a table or a view, found what could be both")
    return is_view


def _current_version(metadata: Metadata) -> Metadata:
    return _one_of(_by_id(metadata, "versions", "version-id"), _id(metadata, "current-version-id"), "versions")


def _queries(metadata: Metadata) -> dict[str, Json]:
    """Return what a view queries: its SQL by dialect, in lower case; a table has none."""
    if not _is_view(metadata):
        return {}
    representations = _maps(_current_version(metadata), "representations")
    return {_text(each, "dialect").lower(): _text(each, "sql") for each in representations}


def _current_partition_fields(metadata: Metadata) -> Sequence[Metadata]:
    specs = _by_id(metadata, "partition-specs", "spec-id")
    if specs:
        return _maps(_one_of(specs, _id(metadata, "default-spec-id"), "default-spec-id"), "fields")
    return _maps(metadata, "partition-spec")  # version 1, without a history of specs


def _current_sort_fields(metadata: Metadata) -> Sequence[Metadata]:
    orders = _by_id(metadata, "sort-orders", "order-id")
    current = _id(metadata, "default-sort-order-id") or _UNSORTED
    if current == _UNSORTED and current not in orders:
        return ()
    return _maps(_one_of(orders, current, "default-sort-order-id"), "fields")


def _current_snapshot(metadata: Metadata) -> Metadata | None:
    current = _id(metadata, "current-snapshot-id")
    if current is None or current == _NO_SNAPSHOT:
        return None
    return _one_of(_by_id(metadata, "snapshots", "snapshot-id"), current, "current-snapshot-id")


def _refs(metadata: Metadata) -> dict[str, Json]:
    """Return branches and tags; `main` is always there once there is a snapshot (specification, "Table Metadata")."""
    refs = _map(metadata, "refs")
    current = _current_snapshot(metadata)
    if not refs and current is not None:
        refs = {"main": {"snapshot-id": current["snapshot-id"], "type": "branch"}}
    found: dict[str, Json] = {}
    for name in refs:
        ref = _map(refs, name)
        found[str(name)] = {"type": _text(ref, "type"), "snapshot_id": _snapshot_id(ref)}
    return found


def _column(column: Metadata) -> dict[str, Json]:
    return {
        "id": _integer(column, "id"),
        "name": _text(column, "name"),
        "type": _type_text(column.get("type", "")),
        "required": column.get("required") is True,
        "doc": _text(column, "doc"),
    }


def _partition_field(field: Metadata, names: Mapping[int, str]) -> dict[str, Json]:
    return {
        "name": _text(field, "name"),
        "transform": _text(field, "transform"),
        **_source(field, names),
    }


def _sort_field(field: Metadata, names: Mapping[int, str]) -> dict[str, Json]:
    return {
        "transform": _text(field, "transform"),
        "direction": _text(field, "direction"),
        "null_order": _text(field, "null-order"),
        **_source(field, names),
    }


def _source(field: Metadata, names: Mapping[int, str]) -> dict[str, Json]:
    """Return the first source column of a field; `source` is empty for one that the current schema has dropped."""
    several = field.get("source-ids")
    source = several[0] if isinstance(several, list) and several else field.get("source-id")
    source_id = _integer({"source-id": source}, "source-id")
    return {"source_id": source_id, "source": names.get(source_id, "")}


def _type_text(kind: Any) -> str:
    """Return a primitive type's name, or the compact JSON of a nested one with its members sorted."""
    if isinstance(kind, str):
        return kind
    return orjson.dumps(plain_json(kind), option=orjson.OPT_SORT_KEYS).decode()


def _names_of(schema: Metadata) -> Iterator[tuple[int, str]]:
    """Yield id and full name of every column, nested ones too (`a.b`, `list.element`, `map.key`, `map.value`)."""
    waiting = [("", schema)]
    while waiting:
        prefix, kind = waiting.pop()
        for field in _maps(kind, "fields"):
            name = prefix + _text(field, "name")
            yield _integer(field, "id"), name
            if isinstance(field.get("type"), Mapping):
                waiting.append((f"{name}.", field["type"]))
        for part in ("element", "key", "value"):
            if f"{part}-id" in kind:
                yield _integer(kind, f"{part}-id"), prefix + part
                if isinstance(kind.get(part), Mapping):
                    waiting.append((f"{prefix}{part}.", kind[part]))


def _by_id(metadata: Metadata, name: str, id_name: str) -> dict[int | None, Metadata]:
    return {_id(one, id_name): one for one in _maps(metadata, name)}


def _one_of(known: Mapping[int | None, Metadata], key: int | None, name: str) -> Metadata:
    if key is not None and key in known:
        return known[key]
    raise UnreadableMetadataError(f"{name}: expected one of {list(known)!r:.80}, found {key}")


def _map(metadata: Metadata, name: str) -> Metadata:
    value = metadata.get(name)
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise UnreadableMetadataError(f"{name}: expected an object, found {value!r:.40}")


def _maps(metadata: Metadata, name: str) -> Sequence[Metadata]:
    value = metadata.get(name)
    if value is None:
        return ()
    if isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value):
        return value
    raise UnreadableMetadataError(f"{name}: expected a list of objects, found {value!r:.40}")


def _text(metadata: Metadata, name: str) -> str:
    value = metadata.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise UnreadableMetadataError(f"{name}: expected a string, found {value!r:.40}")


def _texts(metadata: Metadata, name: str) -> dict[str, str]:
    """Return a map of strings; some catalogs write numbers and booleans bare, as JSON spells them."""
    texts: dict[str, str] = {}
    for key, value in _map(metadata, name).items():
        match value:
            case str():
                texts[str(key)] = value
            case None:
                texts[str(key)] = ""
            case bool() | int() | float():
                texts[str(key)] = orjson.dumps(value).decode() if abs(value) <= INTEGER_MAX else str(value)
            case _:
                raise UnreadableMetadataError(f"{name}: expected strings, found {value!r:.40}")
    return texts


def _integer(metadata: Metadata, name: str) -> int:
    value = metadata.get(name)
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= INTEGER_MAX:
        return value
    raise UnreadableMetadataError(f"{name}: expected an integer within 53 bits, found {value!r:.40}")


def _id(metadata: Metadata, name: str) -> int | None:
    value = metadata.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise UnreadableMetadataError(f"{name}: expected an integer, found {value!r:.40}")


def _snapshot_id(metadata: Metadata) -> str:
    value = _id(metadata, "snapshot-id")
    return "" if value is None else str(value)
