# SPDX-License-Identifier: Apache-2.0
"""
Table metadata opened for change: what updates read and write, in the same form for every format version.

`gateway.metadata.stored` opens a draft and writes it back. A draft shares its parts with the metadata it was opened
from, so nothing is changed in place but its own containers: an update puts a new object in the place of an old one.

Metadata that is read-only remembers how it was opened (`TableMetadata`), so that the next commit need not read all of
it again: `copy` gives each commit a draft with containers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

import orjson

from gateway.errors import BadRequestError
from gateway.metadata.columns import Columns
from gateway.metadata.errors import CorruptMetadataError, InvalidUpdateError
from gateway.metadata.known_schemas import columns_in, columns_of, sorted_text_of
from gateway.metadata.partitions import FIRST_FIELD_ID, Origin, field_ids, spec_key
from gateway.metadata.schemas import schema_key
from gateway.metadata.shapes import JsonObject
from gateway.metadata.sorting import UNSORTED_ID, order_key

Metadata: TypeAlias = Mapping[str, Any]
"""Iceberg metadata of a table or a view, parsed from JSON (Iceberg table specification, appendix C)."""

Update: TypeAlias = Mapping[str, Any]  # as `parse_updates` or `create_updates` returned it

MAIN_BRANCH = "main"
NOTHING: Metadata = MappingProxyType({})
NO_SNAPSHOT = -1  # how versions 1 and 2 write that there is no current snapshot
ROW_LINEAGE_SINCE_VERSION = 3
FORMAT_VERSION_DEFAULT = 2
FORMAT_VERSION_MAX = 3
SCHEMAS_TEXT = "schemas_text"  # in what is derived of metadata that was not opened


@dataclass(slots=True, kw_only=True)
class Definitions:
    """
    The schemas, the partition specs or the sort orders of a table, by id.

    `current_id` is the one in force; `last_added_id` the one this commit added last, or found to be there already.
    `text` is what is known of their list as JSON with sorted members, as long as they are those that were read.
    """

    by_id: dict[int, JsonObject]
    current_id: int
    key_of: Callable[[Mapping[str, Any]], Hashable]
    last_added_id: int | None = None
    text: bytes | None = field(default=None, compare=False)
    _ids_by_key: dict[Hashable, list[int]] | None = None

    @property
    def current(self) -> JsonObject | None:
        """The one in force, None while a table is being created and has none."""
        return self.by_id.get(self.current_id)

    def id_of(self, definition: Mapping[str, Any]) -> int | None:
        """Return the id under which the same definition is there already."""
        if self._ids_by_key is None:
            self._ids_by_key = {}
            for known_id, known in self.by_id.items():
                self._ids_by_key.setdefault(self.key_of(known), []).append(known_id)
        ids = self._ids_by_key.get(self.key_of(definition))
        return ids[0] if ids else None

    def add(self, definition: JsonObject, new_id: int) -> None:
        """Add a definition that is not there yet."""
        self.by_id[new_id] = definition
        self.text = None
        self.last_added_id = new_id
        if self._ids_by_key is not None:
            self._ids_by_key.setdefault(self.key_of(definition), []).append(new_id)

    def remove(self, ids: Iterable[int]) -> bool:
        """Remove those of `ids` that are there; return whether any was."""
        has_removed = False
        for one in ids:
            definition = self.by_id.pop(one, None)
            if definition is None:
                continue
            has_removed = True
            self.text = None
            if self._ids_by_key is not None:
                self._ids_by_key[self.key_of(definition)].remove(one)
        return has_removed

    def next_id(self, *, first: int) -> int:
        """Return the id after the highest, at least `first`."""
        return max(first, max(self.by_id, default=first - 1) + 1)

    def copy(self) -> Definitions:
        """Return the same definitions, for another commit to change."""
        return Definitions(by_id=dict(self.by_id), current_id=self.current_id, key_of=self.key_of, text=self.text)

    def settle(self) -> None:
        """Forget what this commit did."""
        self.last_added_id = None
        self._ids_by_key = None


@dataclass(slots=True, kw_only=True)
class Draft:
    """Table metadata while updates are applied; the first half mirrors what is stored, the second what has happened."""

    members: Metadata  # as stored, for the unknown members
    format_version: int
    table_uuid: str | None
    location: str | None
    last_sequence_number: int
    last_updated_ms: int
    last_column_id: int
    last_partition_id: int
    next_row_id: int
    schemas: Definitions
    specs: Definitions
    orders: Definitions
    properties: dict[str, str]
    current_snapshot_id: int | None
    snapshots: dict[int, JsonObject]
    refs: dict[str, JsonObject]
    statistics: dict[int, list[JsonObject]]
    partition_statistics: dict[int, list[JsonObject]]
    encryption_keys: dict[str, JsonObject]
    snapshot_log: list[JsonObject]
    metadata_log: list[JsonObject]

    now_ms: int = 0
    is_changed: bool = False
    added_snapshots: set[int] = field(default_factory=set)
    was_main: set[int] = field(default_factory=set)  # added by this commit and made the current snapshot by it
    has_removed_snapshots: bool = False
    columns_by_schema: dict[int, Columns] = field(default_factory=dict)  # filled by add-schema, and on demand
    _partition_field_ids: dict[Origin, int] | None = None
    _ref_names: dict[int, set[str]] | None = None
    is_metadata_log_checked: bool = field(default=False, compare=False)
    """Whether the times of `metadata_log` are known to run forward, apart from the entry that this commit adds."""

    def columns(self) -> Columns:
        """
        Return the columns of the current schema.

        Raises:
            InvalidUpdateError: if a table that is being created has none yet.
            CorruptMetadataError: if the stored schema cannot be read.
        """
        schema = self.schemas.current
        if schema is None:
            raise InvalidUpdateError("Cannot find a current schema: add-schema and set-current-schema must come first")
        schema_id = self.schemas.current_id
        if schema_id not in self.columns_by_schema:
            try:
                text = self.schemas.text
                self.columns_by_schema[schema_id] = columns_of(schema) if text is None else columns_in(text, schema_id)
            except BadRequestError as error:
                raise CorruptMetadataError(f"The stored schema {schema_id} cannot be read: {error}") from error
        return self.columns_by_schema[schema_id]

    def partition_field_ids(self) -> dict[Origin, int]:
        """Return the id that each source and transform has in the specs there are, and in those this commit removed."""
        if self._partition_field_ids is None:
            self._partition_field_ids = field_ids(self.specs.by_id.values())
        return self._partition_field_ids

    def set_ref(self, name: str, ref: JsonObject) -> None:
        """Point a branch or tag at a snapshot."""
        self.drop_ref(name)
        self.refs[name] = ref
        if self._ref_names is not None:
            self._ref_names.setdefault(ref["snapshot-id"], set()).add(name)

    def drop_ref(self, name: str) -> bool:
        """Remove a branch or tag; return whether it was there."""
        ref = self.refs.pop(name, None)
        if ref is not None and self._ref_names is not None:
            self._ref_names[ref["snapshot-id"]].discard(name)
        return ref is not None

    def refs_to(self, snapshot_id: int) -> list[str]:
        """Return the branches and tags of a snapshot; indexed, since an expiry asks for thousands of snapshots."""
        if self._ref_names is None:
            self._ref_names = {}
            for name, ref in self.refs.items():
                self._ref_names.setdefault(ref["snapshot-id"], set()).add(name)
        return sorted(self._ref_names.get(snapshot_id, ()))

    def copy(self, members: Metadata) -> Draft:
        """Return the same table, for a commit to change; `members` is the metadata that it was opened from."""
        return Draft(
            members=members,
            format_version=self.format_version,
            table_uuid=self.table_uuid,
            location=self.location,
            last_sequence_number=self.last_sequence_number,
            last_updated_ms=self.last_updated_ms,
            last_column_id=self.last_column_id,
            last_partition_id=self.last_partition_id,
            next_row_id=self.next_row_id,
            schemas=self.schemas.copy(),
            specs=self.specs.copy(),
            orders=self.orders.copy(),
            properties=dict(self.properties),
            current_snapshot_id=self.current_snapshot_id,
            snapshots=dict(self.snapshots),
            refs=dict(self.refs),
            statistics=dict(self.statistics),
            partition_statistics=dict(self.partition_statistics),
            encryption_keys=dict(self.encryption_keys),
            snapshot_log=list(self.snapshot_log),
            metadata_log=list(self.metadata_log),
            columns_by_schema=dict(self.columns_by_schema),
            is_metadata_log_checked=self.is_metadata_log_checked,
        )

    def settle(self) -> None:
        """Become the table as it is stored now, to be copied: without what this commit did, and without members."""
        self.members = NOTHING
        for definitions in (self.schemas, self.specs, self.orders):
            definitions.settle()
        self.now_ms = 0
        self.is_changed = False
        self.added_snapshots = set()
        self.was_main = set()
        self.has_removed_snapshots = False
        kept = self.columns_by_schema
        self.columns_by_schema = {one: kept[one] for one in self.schemas.by_id if one in kept}
        self._partition_field_ids = None
        self._ref_names = None


class TableMetadata(dict[str, Any]):
    """
    Metadata of a table or a view that nobody changes any more. `opened` is a table's draft once it was opened, to be
    copied. `derived` is what others have made of it, by their names for that. Neither refers to the metadata itself:
    what is not used any more is freed at once.
    """

    __slots__ = ("derived", "opened")

    def __init__(self, members: Metadata, opened: Draft | None = None) -> None:
        super().__init__(members)
        self.opened = opened
        self.derived: dict[str, object] = {}

    def schemas_text(self) -> bytes | None:
        """Return the list of schemas as JSON with sorted members, written once; None if it is not known so."""
        if self.opened is not None:
            return self.opened.schemas.text
        text = self.derived.get(SCHEMAS_TEXT)
        if not isinstance(text, bytes) and isinstance(schemas := self.get("schemas"), list):
            text = self.derived[SCHEMAS_TEXT] = sorted_text_of(schemas)
        return text if isinstance(text, bytes) else None


def to_sorted_json(metadata: Metadata, *, without: Collection[str] = ()) -> bytes:
    """
    Return metadata as JSON with sorted members, `without` some of them.

    Raises:
        TypeError: if JSON cannot hold it.
    """
    members = {name: value for name, value in metadata.items() if name not in without} if without else metadata
    text = metadata.schemas_text() if isinstance(metadata, TableMetadata) and "schemas" in members else None
    if text is not None:
        members = {**members, "schemas": orjson.Fragment(text)}
    return orjson.dumps(members, option=orjson.OPT_SORT_KEYS)


def uuid_of(metadata: Metadata) -> str:
    """Return the uuid of a table or a view; an empty text if it has none."""
    return str(metadata.get("table-uuid") or metadata.get("view-uuid") or "")


def known_uuid(metadata: Metadata) -> str:
    """Return the uuid of a table or a view in the form in which it is compared: lower case, with hyphens."""
    text = uuid_of(metadata)
    try:
        return str(UUID(text))
    except ValueError:
        return text.lower()


def empty_draft(format_version: int) -> Draft:
    """Return what a table is before its first update."""
    return Draft(
        members={},
        format_version=format_version,
        table_uuid=None,
        location=None,
        last_sequence_number=0,
        last_updated_ms=0,
        last_column_id=0,
        last_partition_id=FIRST_FIELD_ID - 1,
        next_row_id=0,
        schemas=Definitions(by_id={}, current_id=0, key_of=schema_key),
        specs=Definitions(by_id={}, current_id=0, key_of=spec_key),
        orders=Definitions(by_id={}, current_id=UNSORTED_ID, key_of=order_key),
        properties={},
        current_snapshot_id=None,
        snapshots={},
        refs={},
        statistics={},
        partition_statistics={},
        encryption_keys={},
        snapshot_log=[],
        metadata_log=[],
    )
