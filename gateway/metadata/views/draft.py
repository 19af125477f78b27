# SPDX-License-Identifier: Apache-2.0
"""
View metadata opened for change, and written back; members that are not known here are carried over as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.errors import BadRequestError
from gateway.metadata.draft import Definitions, Metadata
from gateway.metadata.errors import CorruptMetadataError
from gateway.metadata.schemas import parse_schema, schema_key
from gateway.metadata.shapes import INT32_MAX, JsonObject, as_object, read_int, read_list, read_text, read_texts
from gateway.metadata.views.parse import parse_version

FORMAT_VERSION: Final = 1
"""The only version of the view specification."""
_AT: Final = "metadata"


@dataclass(slots=True, kw_only=True)
class ViewDraft:
    """View metadata while updates are applied; the first half mirrors what is stored, the second what has happened."""

    members: Metadata = field(default_factory=dict)  # as stored, for the unknown members
    view_uuid: str | None = None
    location: str | None = None
    schemas: Definitions = field(
        default_factory=lambda: Definitions(by_id={}, current_id=0, key_of=schema_key)
    )  # which one is in force, its version says
    versions: dict[int, JsonObject] = field(default_factory=dict)
    current_version_id: int | None = None
    version_log: list[JsonObject] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)

    now_ms: int = 0
    is_changed: bool = False
    added_versions: set[int] = field(default_factory=set)
    last_added_version_id: int | None = None
    made_current: JsonObject | None = None
    """The entry of the version log for the version that was made the current one last."""


def open_view(metadata: Metadata) -> ViewDraft:
    """
    Open stored view metadata to change it.

    Raises:
        CorruptMetadataError: if it is not metadata of a view in format version 1.
    """
    try:
        return _open(metadata)
    except BadRequestError as error:
        raise CorruptMetadataError(f"The stored view metadata cannot be read: {error}") from error


def check_view_metadata(metadata: Metadata) -> None:
    """
    Check that this is the metadata of a view. Raises as `open_view`.
    """
    open_view(metadata)


def version_in_force(metadata: Metadata) -> tuple[JsonObject, JsonObject]:
    """
    Return the current version of a view, and its schema. Raises as `open_view`.
    """
    view = open_view(metadata)
    version = view.versions[view.current_version_id or 0]
    return version, view.schemas.by_id[version["schema-id"]]


def _open(metadata: Metadata) -> ViewDraft:
    read_int(metadata, "format-version", _AT, least=FORMAT_VERSION, most=FORMAT_VERSION)
    view_uuid, location = (read_text(metadata, name, _AT) for name in ("view-uuid", "location"))
    schemas = _by_id(metadata, "schemas", "schema-id")
    for schema_id, schema in schemas.items():
        parse_schema(schema, f"{_AT}.schemas[{schema_id}]")
    versions = _by_id(metadata, "versions", "version-id")
    for version_id, version in versions.items():
        schema_id = parse_version(version, f"{_AT}.versions[{version_id}]")["schema-id"]
        if schema_id not in schemas:
            raise BadRequestError(f"version {version_id}: expected one of the schemas, found {schema_id}")
    current = read_int(metadata, "current-version-id", _AT, most=INT32_MAX)
    if current not in versions:
        raise BadRequestError(f"current-version-id: expected one of the versions, found {current}")
    return ViewDraft(
        members=metadata,
        view_uuid=view_uuid,
        location=location,
        schemas=Definitions(by_id=schemas, current_id=0, key_of=schema_key),
        versions=versions,
        current_version_id=current,
        version_log=[
            _log_entry(entry, f"{_AT}.version-log[{index}]")
            for index, entry in enumerate(read_list(metadata, "version-log", _AT))
        ],
        properties=dict(read_texts(metadata, "properties", _AT)) if metadata.get("properties") is not None else {},
    )


def _by_id(metadata: Mapping[str, Any], name: str, id_name: str) -> dict[int, JsonObject]:
    items = [as_object(item, f"{_AT}.{name}[{i}]") for i, item in enumerate(read_list(metadata, name, _AT))]
    by_id = {read_int(item, id_name, f"{_AT}.{name}", most=INT32_MAX): item for item in items}
    if len(by_id) < len(items):  # which of two is meant would depend on who reads it
        raise BadRequestError(f"expected each {id_name} once", field=f"{_AT}.{name}")
    return by_id


def _log_entry(value: object, at: str) -> JsonObject:
    entry = as_object(value, at)
    read_int(entry, "version-id", at, most=INT32_MAX)
    return entry


def write_view(draft: ViewDraft) -> dict[str, Any]:
    """
    Return a draft as view metadata.
    """
    return {
        **draft.members,
        "view-uuid": draft.view_uuid,
        "format-version": FORMAT_VERSION,
        "location": draft.location,
        "schemas": list(draft.schemas.by_id.values()),
        "current-version-id": draft.current_version_id,
        "versions": list(draft.versions.values()),
        "version-log": draft.version_log,
        "properties": draft.properties,
    }
