# SPDX-License-Identifier: Apache-2.0
"""
Open stored table metadata as a draft, and write a draft back as table metadata.

Reading accepts what the table specification allows for each format version: version 1 may lack the lists of schemas,
specs and orders, the last partition id and the refs, and has no sequence numbers. Writing gives every version its full
form. Members that are not known here are carried over as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import orjson

from gateway.errors import BadRequestError
from gateway.metadata.draft import (
    FORMAT_VERSION_MAX,
    MAIN_BRANCH,
    NO_SNAPSHOT,
    NOTHING,
    ROW_LINEAGE_SINCE_VERSION,
    SCHEMAS_TEXT,
    Definitions,
    Draft,
    Metadata,
    TableMetadata,
)
from gateway.metadata.errors import CorruptMetadataError
from gateway.metadata.known_schemas import KNOWN_MAX, known_text, sorted_text_of, text_of
from gateway.metadata.partitions import FIRST_FIELD_ID, highest_field_id, parse_spec, spec_key, with_field_ids
from gateway.metadata.schemas import schema_key
from gateway.metadata.shapes import (
    INT32_MAX,
    INT64_MAX,
    JsonObject,
    are_all,
    as_object,
    check_bounds,
    read_int,
    read_int_or_none,
    read_list,
    read_object,
    read_text,
    read_text_or_none,
    read_texts,
)
from gateway.metadata.sorting import UNSORTED_ID, order_key, parse_order, unsorted

_ById: TypeAlias = dict[int, JsonObject]

_AT = "metadata"
# members of version 1 that later versions must not keep, since they would contradict the lists that replaced them
_ONLY_IN_V1 = ("schema", "partition-spec")


def open_draft(metadata: Metadata) -> Draft:
    """
    Open stored table metadata to change it.

    Raises:
        CorruptMetadataError: if it is not metadata of a table in format version 1, 2 or 3.
    """
    return view_draft(metadata).copy(metadata)


def view_draft(metadata: Metadata) -> Draft:
    """
    Open stored table metadata to read it: others may be given the same draft. It has no members.

    Raises as `open_draft`.
    """
    if not isinstance(metadata, TableMetadata):
        return _opened(metadata)
    if metadata.opened is None:
        metadata.opened = _opened(metadata)
        metadata.derived.pop(SCHEMAS_TEXT, None)  # the draft has it
    return metadata.opened


def _opened(metadata: Metadata) -> Draft:
    try:
        return _open(metadata)
    except BadRequestError as error:
        raise CorruptMetadataError(f"The stored table metadata cannot be read: {error}") from error


def _open(metadata: Metadata) -> Draft:
    version = read_int(metadata, "format-version", _AT, least=1, most=FORMAT_VERSION_MAX)
    specs = _specs(metadata, version)
    last_partition_id = read_int_or_none(metadata, "last-partition-id", _AT, most=INT32_MAX)
    if last_partition_id is None:
        last_partition_id = max((highest_field_id(s) for s in specs.by_id.values()), default=FIRST_FIELD_ID - 1)
    current_snapshot_id = _current_snapshot_id(metadata)
    with_rows = version >= ROW_LINEAGE_SINCE_VERSION
    return Draft(
        members=NOTHING,
        format_version=version,
        table_uuid=read_text_or_none(metadata, "table-uuid", _AT),
        location=read_text(metadata, "location", _AT),
        last_sequence_number=read_int(metadata, "last-sequence-number", _AT) if version > 1 else 0,
        last_updated_ms=read_int(metadata, "last-updated-ms", _AT),
        last_column_id=read_int(metadata, "last-column-id", _AT, most=INT32_MAX),
        last_partition_id=last_partition_id,
        next_row_id=read_int(metadata, "next-row-id", _AT) if with_rows else 0,
        schemas=_schemas(metadata, version),
        specs=specs,
        orders=_orders(metadata, version),
        properties=dict(read_texts(metadata, "properties", _AT)) if metadata.get("properties") is not None else {},
        current_snapshot_id=current_snapshot_id,
        snapshots={_id(one, "snapshot-id", "snapshots"): one for one in _objects(metadata, "snapshots")},
        refs=_refs(metadata, current_snapshot_id),
        statistics=_by_snapshot(metadata, "statistics"),
        partition_statistics=_by_snapshot(metadata, "partition-statistics"),
        encryption_keys={
            read_text(one, "key-id", f"{_AT}.encryption-keys"): one for one in _objects(metadata, "encryption-keys")
        },
        snapshot_log=_log(metadata, "snapshot-log"),
        metadata_log=_log(metadata, "metadata-log"),
    )


def _objects(metadata: Metadata, name: str) -> list[JsonObject]:
    if metadata.get(name) is None:
        return []
    listed = read_list(metadata, name, _AT)
    return [*listed] if are_all(dict, listed) else [as_object(one, f"{_AT}.{name}") for one in listed]


def _id(holder: Mapping[str, Any], name: str, within: str) -> int:
    return read_int(holder, name, f"{_AT}.{within}", least=-INT64_MAX - 1)


def _schemas(metadata: Metadata, version: int) -> Definitions:
    if version == 1 and metadata.get("schemas") is None:
        schema = read_object(metadata, "schema", _AT)
        check_bounds(schema, f"{_AT}.schema")
        schema_id = read_int_or_none(schema, "schema-id", f"{_AT}.schema", most=INT32_MAX) or 0
        return Definitions(
            by_id={schema_id: {**schema, "schema-id": schema_id}}, current_id=schema_id, key_of=schema_key
        )
    # schemas are walked by recursion when they are compared
    listed = read_list(metadata, "schemas", _AT)
    text = metadata.schemas_text() if isinstance(metadata, TableMetadata) else sorted_text_of(listed)
    text = known_text(listed, text, f"{_AT}.schemas")
    found = [as_object(one, f"{_AT}.schemas") for one in listed]
    by_id = {_id(schema, "schema-id", "schemas"): schema for schema in found}
    if len(by_id) < len(listed):
        text = None  # it has one that is not kept
    definitions = Definitions(by_id=by_id, current_id=0, key_of=schema_key, text=text)
    return _in_force(metadata, "current-schema-id", definitions)


def _specs(metadata: Metadata, version: int) -> Definitions:
    if version == 1 and metadata.get("partition-specs") is None:
        fields = read_list(metadata, "partition-spec", _AT)
        spec = parse_spec({"spec-id": 0, "fields": fields}, f"{_AT}.partition-spec")
        spec = with_field_ids(spec, {}, last_id=FIRST_FIELD_ID - 1)
        return Definitions(by_id={0: spec}, current_id=0, key_of=spec_key)
    by_id = _parsed(read_list(metadata, "partition-specs", _AT), _specs_by_id, _known_specs)
    return _in_force(metadata, "default-spec-id", Definitions(by_id=by_id, current_id=0, key_of=spec_key))


def _orders(metadata: Metadata, version: int) -> Definitions:
    if version == 1 and metadata.get("sort-orders") is None:
        return Definitions(by_id={UNSORTED_ID: unsorted()}, current_id=UNSORTED_ID, key_of=order_key)
    by_id = _parsed(read_list(metadata, "sort-orders", _AT), _orders_by_id, _known_orders)
    return _in_force(metadata, "default-sort-order-id", Definitions(by_id=by_id, current_id=0, key_of=order_key))


def _specs_by_id(listed: Sequence[Any]) -> _ById:
    found = [parse_spec(one, f"{_AT}.partition-specs") for one in listed]
    return {
        _id(spec, "spec-id", "partition-specs"): with_field_ids(spec, {}, last_id=FIRST_FIELD_ID - 1) for spec in found
    }


def _orders_by_id(listed: Sequence[Any]) -> _ById:
    found = [parse_order(one, f"{_AT}.sort-orders") for one in listed]
    return {_id(order, "order-id", "sort-orders"): order for order in found}


@lru_cache(maxsize=KNOWN_MAX)
def _known_specs(text: bytes) -> _ById:
    return _specs_by_id(orjson.loads(text))


@lru_cache(maxsize=KNOWN_MAX)
def _known_orders(text: bytes) -> _ById:
    return _orders_by_id(orjson.loads(text))


def _parsed(listed: Sequence[Any], parse: Callable[[Sequence[Any]], _ById], known: Callable[[bytes], _ById]) -> _ById:
    """Most commits leave a table's specs and sort orders as they are, so what was parsed is remembered by its text."""
    text = text_of(listed)
    return parse(listed) if text is None else dict(known(text))


def _in_force(metadata: Metadata, name: str, definitions: Definitions) -> Definitions:
    definitions.current_id = read_int(metadata, name, _AT, most=INT32_MAX)
    if definitions.current is None:
        text = f"expected the id of one of {sorted(definitions.by_id)}, found {definitions.current_id}"
        raise BadRequestError(text, field=f"{_AT}.{name}")
    return definitions


def _current_snapshot_id(metadata: Metadata) -> int | None:
    snapshot_id = read_int_or_none(metadata, "current-snapshot-id", _AT, least=-INT64_MAX - 1)
    return None if snapshot_id == NO_SNAPSHOT else snapshot_id


def _refs(metadata: Metadata, current_snapshot_id: int | None) -> dict[str, JsonObject]:
    if metadata.get("refs") is None:
        main = {"snapshot-id": current_snapshot_id, "type": "branch"}
        return {} if current_snapshot_id is None else {MAIN_BRANCH: main}
    refs = read_object(metadata, "refs", _AT)
    for name, ref in refs.items():
        _id(as_object(ref, f"{_AT}.refs"), "snapshot-id", "refs")
        if read_text(ref, "type", f"{_AT}.refs") not in {"branch", "tag"}:
            raise BadRequestError("expected 'branch' or 'tag'", field=f"{_AT}.refs.{name}.type")
    return dict(refs)


def _by_snapshot(metadata: Metadata, name: str) -> dict[int, list[JsonObject]]:
    files: dict[int, list[JsonObject]] = {}
    for one in _objects(metadata, name):
        files.setdefault(_id(one, "snapshot-id", name), []).append(one)
    return files


def _log(metadata: Metadata, name: str) -> list[JsonObject]:
    entries, at = _objects(metadata, name), f"{_AT}.{name}"
    if name == "metadata-log" and _are_files(entries):
        return entries
    for entry in entries:
        read_int(entry, "timestamp-ms", at)
        if name == "snapshot-log":
            read_int(entry, "snapshot-id", at, least=-INT64_MAX - 1)
        else:
            read_text(entry, "metadata-file", at)
    return entries


def _are_files(entries: Sequence[JsonObject]) -> bool:
    """Return whether all entries of a metadata log are right: it has a hundred, and they nearly always are."""
    times: list[Any] = [entry.get("timestamp-ms") for entry in entries]
    return (
        are_all(int, times)
        and 0 <= min(times, default=0) <= max(times, default=0) <= INT64_MAX
        and are_all(str, [entry.get("metadata-file") for entry in entries])
    )


def write_draft(draft: Draft) -> TableMetadata:
    """Return the draft as table metadata of its format version, which keeps it: nobody may change it any more."""
    version = draft.format_version
    no_snapshot = None if version >= ROW_LINEAGE_SINCE_VERSION else NO_SNAPSHOT
    members: JsonObject = {"format-version": version, "table-uuid": draft.table_uuid, "location": draft.location}
    if version > 1:
        members["last-sequence-number"] = draft.last_sequence_number
    members |= {"last-updated-ms": draft.last_updated_ms, "last-column-id": draft.last_column_id}
    if version == 1:
        members |= {"schema": draft.schemas.current, "partition-spec": (draft.specs.current or {}).get("fields", [])}
    members |= {
        "current-schema-id": draft.schemas.current_id,
        "schemas": list(draft.schemas.by_id.values()),
        "default-spec-id": draft.specs.current_id,
        "partition-specs": list(draft.specs.by_id.values()),
        "last-partition-id": draft.last_partition_id,
        "default-sort-order-id": draft.orders.current_id,
        "sort-orders": list(draft.orders.by_id.values()),
        "properties": draft.properties,
        "current-snapshot-id": no_snapshot if draft.current_snapshot_id is None else draft.current_snapshot_id,
    }
    if version >= ROW_LINEAGE_SINCE_VERSION:
        members["next-row-id"] = draft.next_row_id
    if draft.encryption_keys:
        members["encryption-keys"] = list(draft.encryption_keys.values())
    members |= {
        "refs": draft.refs,
        "snapshots": list(draft.snapshots.values()),
        "statistics": [file for files in draft.statistics.values() for file in files],
        "partition-statistics": [file for files in draft.partition_statistics.values() for file in files],
        "snapshot-log": draft.snapshot_log,
        "metadata-log": draft.metadata_log,
    }
    if draft.table_uuid is None:
        del members["table-uuid"]  # optional in version 1
    stored = TableMetadata(members | _unknown(draft.members, members))
    if version > 1:  # version 1 has other forms of what later versions store
        draft.settle()
        stored.opened = draft
    return stored


def _unknown(stored: Metadata, members: JsonObject) -> JsonObject:
    known = {*members, *_ONLY_IN_V1, "table-uuid", "encryption-keys"}
    return {name: value for name, value in stored.items() if name not in known}


def without_empty(value: Any) -> Any:
    """
    Return a part of metadata without null and empty members, to be compared: some write them, and some do not.
    """
    if isinstance(value, Mapping):
        kept = {name: member for name, member in value.items() if member is not None and member not in ([], {})}
        return {name: without_empty(member) for name, member in kept.items()}
    return [without_empty(item) for item in value] if isinstance(value, list) else value
