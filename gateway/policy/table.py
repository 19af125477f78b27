# SPDX-License-Identifier: Apache-2.0
"""
A table or a view as policies see it: a few names with fixed fields, made from the catalog's raw metadata.

Guarantee: `table_of` always returns all fields, with a zero value ("", 0, [], {}) for what the Iceberg specification
calls optional. Metadata that contradicts the specification (a current schema that is not among the schemas, a number
instead of a map) is refused: otherwise a policy on all columns would allow a table whose columns it cannot see.

Snapshot ids are random 63-bit integers and become strings; see `plain_json` for other numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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

PATHS_CHARACTERS_MAX: Final = 8 * 2**20
"""Of the paths of all fields: the name of a column is a part of each path below it."""

_SNAPSHOT_IDS: Final = frozenset({"snapshot-id", "parent-snapshot-id", "snapshot-ids"})
_NO_SNAPSHOT: Final = -1
_UNSORTED: Final = 0
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = "policy.table"
"""The name under which metadata remembers its fields."""


class UnreadableMetadataError(UnavailableError):
    """The metadata is not what the Iceberg specification says, so that policies cannot be judged on it."""


def table_of(
    metadata: Metadata | None, *, before: Metadata | None = None, demanded: frozenset[str] = frozenset()
) -> Mapping[str, Json]:
    """
    Return the fields of a table or a view; all of them zero, and `exists` false, if `metadata` is None. Read-only.

    Those of `vocabulary.ON_DEMAND` are there only if they are `demanded`. What it shares with the table `before`, whose
    fields are known, is not made again.

    Raises:
        UnreadableMetadataError: if the metadata contradicts the specification; names the field.
    """
    derived, of_before = _derived(metadata), _derived(before).get(_FIELDS)
    fields = derived.get(_FIELDS)
    if fields is None:
        fields = derived[_FIELDS] = _fields_of(metadata, of_before)
    if not demanded:
        return fields.members
    known = metadata if metadata is not None else {}
    for name in demanded:
        if name not in fields.made:
            fields.made[name] = _made(name, known, fields, of_before)
    return {**fields.members, **{name: fields.made[name] for name in demanded}}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fields:
    """
    The fields of a table, with the parts of the metadata that some of them were made of, and those `made` on demand.
    """

    members: Mapping[str, Json]
    schema: Metadata
    names: Mapping[int, str]
    made: dict[str, Json] = field(default_factory=dict)


_OF_NONE: Final[dict[str, _Fields]] = {}


def _derived(metadata: Metadata | None) -> dict[str, _Fields]:
    """
    Return where metadata that does not change remembers its fields (`gateway.metadata.draft.TableMetadata`), and where
    the fields of no metadata are.
    """
    known: dict[str, _Fields] = _OF_NONE if metadata is None else getattr(metadata, "derived", {})
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


def _made(name: str, metadata: Metadata, fields: _Fields, before: _Fields | None) -> Json:
    """Return a field that is made on demand; a schema that is the same as before has the same `fields`."""
    if name == "fields" and before is not None and before.schema is fields.schema and name in before.made:
        return before.made[name]
    return _ON_DEMAND[name](metadata)


def _all_fields(metadata: Metadata) -> list[Json]:
    """
    Return the columns at every level, each before those within it, with their paths.

    The parts of a list and a map have paths like `tags.element`, `prices.key` and `prices.value`.
    """
    found: list[Json] = []
    waiting, characters = [("", each) for each in reversed(_nested_in(_current_schema(metadata)))], 0
    while waiting:
        prefix, one = waiting.pop()
        shown = _column(one)
        path = prefix + str(shown["name"])
        characters += len(path)
        if characters > PATHS_CHARACTERS_MAX:
            raise UnreadableMetadataError(
                f"schemas: expected paths of at most {PATHS_CHARACTERS_MAX} characters in all"
            )
        kind = one.get("type")
        if isinstance(kind, Mapping):
            shown["type"] = _text(kind, "type")
            waiting += [(f"{path}.", each) for each in reversed(_nested_in(kind))]
        found.append({"path": path, **shown})
    return found


def _nested_in(kind: Metadata) -> Sequence[Metadata]:
    """Return the fields right within a struct, a list or a map, in the form of those of a struct."""
    return [
        *_maps(kind, "fields"),
        *(
            {
                "id": kind[f"{part}-id"],
                "name": part,
                "type": kind.get(part, ""),
                "required": part == "key" or kind.get(f"{part}-required") is True,
            }
            for part in ("element", "key", "value")
            if f"{part}-id" in kind
        ),
    ]


def column_changes(before: Mapping[str, Json], after: Mapping[str, Json]) -> tuple[list[Json], list[Json], list[Json]]:
    """
    Return the columns that are added, removed and changed from one table to another, both with their `fields`.

    Columns are the same if their ids are. Added and removed ones are as in `fields`, changed ones as they are after,
    with `old_path`, `old_type`, `old_required` and `old_doc`.
    """
    old: Any = before["fields"]
    new: Any = after["fields"]
    if old is new:
        return [], [], []
    was, now = {each["id"]: each for each in old}, {each["id"]: each for each in new}
    changed: list[Json] = [
        {**each, **{f"old_{name}": was[each["id"]][name] for name in _COMPARED}}
        for each in new
        if each["id"] in was and any(each[name] != was[each["id"]][name] for name in _COMPARED)
    ]
    return [each for each in new if each["id"] not in was], [each for each in old if each["id"] not in now], changed


_COMPARED: Final = ("path", "type", "required", "doc")


def removed_snapshots(table: Metadata | None, result: Metadata | None, *, purged: bool) -> list[Json]:
    """
    Return the snapshots that a change takes away, as `snapshots` has them before it, each with `kept`.

    These are the ones that no branch or tag leads to any more while one did before, or that the metadata does not have
    any more. `kept` says that the metadata still has it. A table that is dropped loses its snapshots only if its files
    are `purged`, too: else it can be registered again.

    Raises:
        UnreadableMetadataError: if the metadata contradicts the specification.
    """
    if table is None or (result is None and not purged):
        return []
    after = result if result is not None else {}
    if table.get("snapshots") is after.get("snapshots") and table.get("refs") is after.get("refs"):
        return []
    left = {_snapshot_id(each) for each in _maps(after, "snapshots")}
    led_to = _reachable(after)
    found: list[Json] = []
    for each in _snapshots(table):
        shown: Any = each
        if shown["id"] not in left or (shown["referenced"] and shown["id"] not in led_to):
            found.append({**shown, "kept": shown["id"] in left})
    return found


def _snapshots(metadata: Metadata) -> list[Json]:
    """Return all snapshots with their times, and whether a branch or tag leads to them."""
    led_to = _reachable(metadata)
    return [
        {
            **snapshot_of(each),
            "parent_id": "" if (parent := _id(each, "parent-snapshot-id")) is None else str(parent),
            "timestamp": _time_of(each),
            "referenced": _snapshot_id(each) in led_to,
        }
        for each in _maps(metadata, "snapshots")
    ]


def _reachable(metadata: Metadata) -> frozenset[str]:
    """Return the ids of the snapshots that a branch or a tag leads to: those that it names, and their ancestors."""
    parents = {_id(each, "snapshot-id"): _id(each, "parent-snapshot-id") for each in _maps(metadata, "snapshots")}
    found: set[int | None] = set()
    for _, ref in _known_refs(metadata):
        snapshot = _id(ref, "snapshot-id")
        while snapshot is not None and snapshot not in found:
            found.add(snapshot)
            snapshot = parents.get(snapshot)
    return frozenset(str(each) for each in found)


def _ref_list(metadata: Metadata) -> list[Json]:
    """Return branches and tags with what they keep; 0 where the table's properties say that."""
    times = {_id(each, "snapshot-id"): _time_of(each) for each in _maps(metadata, "snapshots")}
    return [
        {
            "name": name,
            "type": _text(ref, "type"),
            "snapshot_id": _snapshot_id(ref),
            "timestamp": times.get(_id(ref, "snapshot-id"), ""),
            "max_ref_age_ms": _integer(ref, "max-ref-age-ms"),
            "max_snapshot_age_ms": _integer(ref, "max-snapshot-age-ms"),
            "min_snapshots_to_keep": _integer(ref, "min-snapshots-to-keep"),
        }
        for name, ref in _known_refs(metadata)
    ]


def _statistics(metadata: Metadata) -> list[Json]:
    """Return the files of statistics, those of tables first, with the types of their blobs."""
    return [
        {
            "kind": kind,
            "snapshot_id": _snapshot_id(each),
            "path": _text(each, "statistics-path"),
            "size_bytes": _integer(each, "file-size-in-bytes"),
            "blob_types": [_text(blob, "type") for blob in _maps(each, "blob-metadata")],
        }
        for kind, name in (("table", "statistics"), ("partition", "partition-statistics"))
        for each in _maps(metadata, name)
    ]


def _time_of(snapshot: Metadata) -> str:
    """Return when a snapshot was made, in the form of RFC 3339; empty if that is not known."""
    milliseconds = _id(snapshot, "timestamp-ms")
    if milliseconds is None:
        return ""
    try:
        made = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise UnreadableMetadataError(f"timestamp-ms: expected a time, found {milliseconds}") from error
    return made.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


_ON_DEMAND: Final[Mapping[str, Callable[[Metadata], Json]]] = {
    "fields": _all_fields,
    "ref_list": _ref_list,
    "snapshots": _snapshots,
    "statistics": _statistics,
}


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
    return {name: {"type": _text(ref, "type"), "snapshot_id": _snapshot_id(ref)} for name, ref in _known_refs(metadata)}


def _known_refs(metadata: Metadata) -> Iterator[tuple[str, Metadata]]:
    """Yield branches and tags; `main` is always there once there is a snapshot (specification, "Table Metadata")."""
    refs = _map(metadata, "refs")
    current = _current_snapshot(metadata)
    if not refs and current is not None:
        refs = {"main": {"snapshot-id": current["snapshot-id"], "type": "branch"}}
    for name in refs:
        yield str(name), _map(refs, name)


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
        for each in _maps(kind, "fields"):
            name = prefix + _text(each, "name")
            yield _integer(each, "id"), name
            if isinstance(each.get("type"), Mapping):
                waiting.append((f"{name}.", each["type"]))
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
