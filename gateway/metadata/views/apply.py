# SPDX-License-Identifier: Apache-2.0
"""
Apply updates to view metadata: pure, one function an update, the rules of the Java reference implementation.

The ids in a request are proposals. A version that is there already, apart from its id and its time, keeps its id; a new
one gets at least the next. -1 means whichever schema or version the same commit has added last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gateway.metadata.columns import index_columns
from gateway.metadata.draft import Metadata, Update
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.properties import integer_property
from gateway.metadata.schemas import parse_schema
from gateway.metadata.shapes import INT32_MAX, JsonObject, check_bounds, read_texts
from gateway.metadata.table_updates import stripped_location
from gateway.metadata.views.draft import FORMAT_VERSION, ViewDraft, open_view, write_view
from gateway.metadata.views.parse import LAST_ADDED, dialect_of, parse_version

HISTORY_SIZE: Final = "version.history.num-entries"
HISTORY_SIZE_DEFAULT: Final = 10
MAY_DROP_DIALECT: Final = "replace.drop-dialect.allowed"
MAY_APPEND_DIALECT: Final = "replace.append-dialect.allowed"

_MEANING: Final = ("summary", "representations", "default-catalog", "default-namespace", "schema-id")
"""The members in which two versions differ, if they do."""


def create_view_updates(request: Mapping[str, Any], *, view_uuid: str, location: str) -> list[Update]:
    """
    Return the updates that create the view of a CreateViewRequest; `location` is where it goes.

    Raises:
        BadRequestError: where the request is malformed, with the member's path.
        InvalidUpdateError: if the parts do not fit each other.
    """
    for name in ("schema", "view-version", "properties"):
        check_bounds(request.get(name), name)
    schema = parse_schema(request.get("schema"), "schema")
    version = {**parse_version(request.get("view-version"), "view-version"), "schema-id": LAST_ADDED}
    properties = read_texts(request, "properties", "") if request.get("properties") is not None else {}
    return [
        {"action": "assign-uuid", "uuid": view_uuid},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": dict(properties)},
        {"action": "add-schema", "schema": schema},
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": LAST_ADDED},
    ]


def apply_view_updates(metadata: Metadata | None, updates: Sequence[Update], *, now_ms: int) -> dict[str, Any]:
    """
    Return the metadata that results from applying `updates`, as `parse_view_updates` or `create_view_updates` returned
    them, to that of a view (None: it is created).

    `now_ms` is the time of the change in milliseconds since 1970. If the updates change nothing, the result equals
    `metadata`, and there is nothing to commit.

    Raises:
        InvalidUpdateError: if an update does not fit the view; its `field` names it.
        CorruptMetadataError: if `metadata` is not view metadata.
    """
    draft = ViewDraft() if metadata is None else open_view(metadata)
    draft.now_ms = now_ms
    before = None if draft.current_version_id is None else draft.versions[draft.current_version_id]
    for position, update in enumerate(updates):
        try:
            _APPLY[update["action"]](draft, update)
        except InvalidUpdateError as error:
            error.field = f"updates[{position}]"
            raise
    if metadata is not None and not draft.is_changed:
        return dict(metadata)
    _settle(draft, before)
    return write_view(draft)


def _settle(draft: ViewDraft, before: JsonObject | None) -> None:
    """Check the view as a whole, `before` being its current version until now, and forget versions beyond its limit."""
    if draft.location is None:
        raise InvalidUpdateError("Invalid location: null")
    if draft.current_version_id is None:
        raise InvalidUpdateError("Invalid view: no versions were added")
    current = draft.versions[draft.current_version_id]
    may_drop = _is_true(draft, MAY_DROP_DIALECT)
    if may_drop and _is_true(draft, MAY_APPEND_DIALECT):
        raise InvalidUpdateError(f"Cannot set both {MAY_DROP_DIALECT} and {MAY_APPEND_DIALECT} to true")
    if before is not None and not may_drop and not _dialects(before) <= _dialects(current):
        raise InvalidUpdateError(
            f"Cannot replace view due to loss of view dialects ({MAY_DROP_DIALECT}=false):\n"
            f"Previous dialects: {sorted(_dialects(before))}\nNew dialects: {sorted(_dialects(current))}"
        )
    if draft.made_current is not None:
        draft.version_log.append(draft.made_current)
    _expire(draft, draft.current_version_id)


def _expire(draft: ViewDraft, current_id: int) -> None:
    """Keep the newest versions, those of this commit, and the current one; the log begins behind what is gone."""
    size = integer_property(draft.properties, HISTORY_SIZE, HISTORY_SIZE_DEFAULT)
    if size <= 0:
        raise InvalidUpdateError(f"{HISTORY_SIZE} must be positive but was {size}")
    count = max(size, len(draft.added_versions | {current_id}))
    others = sorted(draft.versions.keys() - {current_id}, reverse=True)
    kept = {current_id, *others[: count - 1]}
    draft.versions = {version_id: one for version_id, one in draft.versions.items() if version_id in kept}
    gone = [position for position, entry in enumerate(draft.version_log) if entry.get("version-id") not in kept]
    draft.version_log = draft.version_log[gone[-1] + 1 if gone else 0 :]


def _is_true(draft: ViewDraft, name: str) -> bool:
    return draft.properties.get(name, "false").lower() == "true"


def _dialects(version: Mapping[str, Any]) -> set[str]:
    return {dialect_of(each) for each in version["representations"]}


def _assign_uuid(draft: ViewDraft, update: Update) -> None:
    if draft.view_uuid is None:
        draft.view_uuid, draft.is_changed = update["uuid"], True
    elif draft.view_uuid.lower() != update["uuid"].lower():
        raise InvalidUpdateError("Cannot reassign uuid")


def _upgrade_format_version(_draft: ViewDraft, update: Update) -> None:
    if (version := update["format-version"]) != FORMAT_VERSION:
        raise InvalidUpdateError(f"Unsupported format version: {version}")


def _set_location(draft: ViewDraft, update: Update) -> None:
    location = stripped_location(update["location"])
    if draft.location != location:
        draft.location, draft.is_changed = location, True


def _set_properties(draft: ViewDraft, update: Update) -> None:
    if update["updates"]:
        draft.properties |= update["updates"]
        draft.is_changed = True


def _remove_properties(draft: ViewDraft, update: Update) -> None:
    for name in update["removals"]:
        draft.properties.pop(name, None)
    if update["removals"]:
        draft.is_changed = True


def _add_schema(draft: ViewDraft, update: Update) -> None:
    schema = update["schema"]
    index_columns(schema)
    known_id = draft.schemas.id_of(schema)
    if known_id is not None:
        draft.schemas.last_added_id = known_id
        return
    new_id = draft.schemas.next_id(first=0)
    if new_id > INT32_MAX:
        raise InvalidUpdateError(f"expected a schema-id below {new_id}: there is none behind it")
    draft.schemas.add({**schema, "schema-id": new_id}, new_id)
    draft.is_changed = True


def _add_view_version(draft: ViewDraft, update: Update) -> None:
    version = dict(update["view-version"])
    if version["schema-id"] == LAST_ADDED:
        if draft.schemas.last_added_id is None:
            raise InvalidUpdateError("Cannot set last added schema: no schema has been added")
        version["schema-id"] = draft.schemas.last_added_id
    if version["schema-id"] not in draft.schemas.by_id:
        raise InvalidUpdateError(f"Cannot add version with unknown schema: {version['schema-id']}")
    for known_id, known in draft.versions.items():
        if all(known.get(name) == version.get(name) for name in _MEANING):
            draft.last_added_version_id = known_id
            return
    new_id = max([version["version-id"], *(known_id + 1 for known_id in draft.versions)])
    if new_id > INT32_MAX:
        raise InvalidUpdateError(f"expected a version-id below {new_id}: there is none behind it")
    draft.versions[new_id] = {**version, "version-id": new_id}
    draft.added_versions.add(new_id)
    draft.last_added_version_id = new_id
    draft.is_changed = True


def _set_current_view_version(draft: ViewDraft, update: Update) -> None:
    version_id = update["view-version-id"]
    if version_id == LAST_ADDED:
        version_id = draft.last_added_version_id
        if version_id is None:
            raise InvalidUpdateError("Cannot set last version id: no current version id has been set")
    if version_id not in draft.versions:
        raise InvalidUpdateError(f"Cannot set current version to unknown version: {version_id}")
    if version_id == draft.current_version_id:
        return
    is_new = version_id in draft.added_versions
    time_ms = draft.versions[version_id]["timestamp-ms"] if is_new else draft.now_ms
    draft.current_version_id = version_id
    draft.made_current = {"version-id": version_id, "timestamp-ms": time_ms}
    draft.is_changed = True


_APPLY: Final[Mapping[str, Callable[[ViewDraft, Update], None]]] = {
    "assign-uuid": _assign_uuid,
    "upgrade-format-version": _upgrade_format_version,
    "set-location": _set_location,
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "add-schema": _add_schema,
    "add-view-version": _add_view_version,
    "set-current-view-version": _set_current_view_version,
}
