# SPDX-License-Identifier: Apache-2.0
"""
What a table or view begins with that is registered: the metadata file that is there already. Pure.

The built-in catalog takes the file as it is. A foreign catalog reads it again, and may keep it in its own form: leave
out what it does not keep, and add properties. So what it answers counts as the file's if nothing in it is from
elsewhere but properties, and the state in force is the file's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import UUID

import orjson

from gateway.catalogs.catalog import Change, FoundFile
from gateway.errors import BadRequestError
from gateway.metadata import CorruptMetadataError, Metadata, uuid_of
from gateway.metadata.paths import path_properties
from gateway.metadata.stored import view_draft, without_empty
from gateway.metadata.views import check_view_metadata, version_in_force
from gateway.mutations import SNAPSHOTS_MAX
from projections.errors import FileUnreadableError
from projections.lake.storage import split_location

REGISTERED: Final = "metadata-location"
"""The member of a request that names the file."""
_LISTED: Final = ("snapshots", "statistics", "partition-statistics")
_CHOSEN: Final = frozenset({"schema-id", "spec-id", "order-id", "version-id", "timestamp-ms", "summary"})
"""Members of definitions, snapshots and versions that a catalog may choose, or need not keep."""


def check_registered(metadata: Metadata, *, is_view: bool) -> None:
    """
    Check that a table, or a view, is described completely, with an identity of its own.

    Raises:
        BadRequestError: if not.
    """
    kind, other = ("view", "table") if is_view else ("table", "view")
    if metadata.get(f"{other}-uuid") is not None:  # which of its parts are in force would depend on who reads it
        raise BadRequestError(f"expected metadata of a {kind}, found a {other}-uuid in it", field=REGISTERED)
    try:
        (check_view_metadata if is_view else view_draft)(metadata)
        _check_uuid(str(metadata.get(f"{kind}-uuid")))
    except (CorruptMetadataError, ValueError) as error:
        text = f"expected metadata of a {kind} with a {kind}-uuid: {error}"
        raise BadRequestError(text, field=REGISTERED) from error


def _check_uuid(text: str) -> None:
    if str(UUID(text)) != text.lower():  # Python reads more spellings than PostgreSQL does
        raise ValueError(f"found the uuid {text!r:.80}")


def check_snapshots(registered: Change) -> None:
    """
    Check that the decision can list the snapshots of a table that is registered.

    Raises:
        BadRequestError: if there are too many.
    """
    if (count := len((registered.metadata or {}).get("snapshots") or ())) > SNAPSHOTS_MAX:
        text = f"expected at most {SNAPSHOTS_MAX} snapshots, found {count}: expire some of them first"
        raise BadRequestError(text, field=REGISTERED)


def is_registered(found: FoundFile, location: str | None, metadata: Metadata, *, is_view: bool) -> bool:
    """
    Return whether a foreign catalog has registered the file that was judged, and nothing else, if that is what it says:
    `location` and `metadata` are those of its answer.
    """
    try:
        if not is_same_file(found.location, location) or _state(metadata, is_view=is_view) != _state(
            found.metadata, is_view=is_view
        ):
            return False
        return _has_nothing_else(metadata, found.metadata, is_view=is_view)
    except (CorruptMetadataError, TypeError):
        return False


def is_same_file(one: str, other: str | None) -> bool:
    """
    Return whether two locations name one file, as its storage reads them: the spelling of its scheme does not count.
    """
    try:
        return other is not None and split_location(one) == split_location(other)
    except FileUnreadableError:
        return False


def registered_digest(metadata: Metadata, *, is_view: bool) -> str:
    """
    Return the SHA-256 (hex) of the state in force of a table or view that is registered, with its properties.

    Of a catalog that adds properties it is another one.

    Raises:
        CorruptMetadataError: if it is no such metadata.
    """
    state = [_state(metadata, is_view=is_view), metadata.get("properties") or {}]
    return hashlib.sha256(orjson.dumps(state, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _state(metadata: Metadata, *, is_view: bool) -> Any:
    """Identity, place, and what is in force; ids of definitions are the catalog's own."""
    named = {"uuid": uuid_of(metadata).lower(), "location": str(metadata.get("location")).rstrip("/")}
    if is_view:
        version, schema = version_in_force(metadata)
        kept = {name: version.get(name) for name in ("representations", "default-catalog", "default-namespace")}
        return without_empty({**named, **kept, "schema": _without(schema, "schema-id")})
    draft = view_draft(metadata)
    snapshot = draft.snapshots.get(draft.current_snapshot_id) if draft.current_snapshot_id is not None else None
    return without_empty(
        {
            **named,
            "format-version": draft.format_version,
            "schema": _without(draft.schemas.current, "schema-id"),
            "partition-spec": (draft.specs.current or {}).get("fields"),
            "sort-order": (draft.orders.current or {}).get("fields"),
            "snapshot": None if snapshot is None else [snapshot["snapshot-id"], snapshot.get("manifest-list")],
        }
    )


def _has_nothing_else(answered: Metadata, judged: Metadata, *, is_view: bool) -> bool:
    """Return whether all that it has was judged, but for properties that its catalog has added: none is a path."""
    before, after = judged.get("properties") or {}, answered.get("properties") or {}
    if not before.items() <= after.items() or path_properties(dict(after.items() - before.items())):
        return False
    listed = ("schemas", "versions") if is_view else _LISTED
    if not all(_texts(answered.get(name)) <= _texts(judged.get(name)) for name in listed):
        return False
    if is_view:
        return True
    old, new = view_draft(judged), view_draft(answered)
    refs = {name: ref["snapshot-id"] for name, ref in old.refs.items()}
    return all(
        _texts(mine.by_id.values()) <= _texts(theirs.by_id.values())
        for mine, theirs in ((new.schemas, old.schemas), (new.specs, old.specs), (new.orders, old.orders))
    ) and all(refs.get(name) == ref["snapshot-id"] for name, ref in new.refs.items())


def _texts(items: Iterable[Any] | None) -> set[bytes]:
    """Parts of metadata in a form in which they are compared: without what each catalog chooses."""
    return {
        orjson.dumps(
            without_empty({name: value for name, value in each.items() if name not in _CHOSEN}),
            option=orjson.OPT_SORT_KEYS,
        )
        for each in items or ()
    }


def _without(definition: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    return {each: value for each, value in (definition or {}).items() if each != name}
