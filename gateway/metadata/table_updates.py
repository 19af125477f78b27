# SPDX-License-Identifier: Apache-2.0
"""Updates of the table as a whole: its identity, format version, location, properties and encryption keys."""

from __future__ import annotations

from gateway.metadata.draft import FORMAT_VERSION_MAX, Draft, Update
from gateway.metadata.errors import InvalidUpdateError


def assign_uuid(draft: Draft, update: Update) -> None:
    """
    Give the table its id, once.

    The reference lets a later commit replace it, though the specification calls that unsafe; here the id is what log
    entries and scans know a table by, so replacing it is refused, in the words the reference has for views.
    """
    if draft.table_uuid is None:
        draft.table_uuid = update["uuid"]
        draft.is_changed = True
    elif draft.table_uuid.lower() != update["uuid"].lower():
        raise InvalidUpdateError("Cannot reassign uuid")


def upgrade_format_version(draft: Draft, update: Update) -> None:
    """Raise the format version; what the new one stores differently is put right when the table is written."""
    version = update["format-version"]
    if version > FORMAT_VERSION_MAX:
        text = f"Cannot upgrade table to unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})"
        raise InvalidUpdateError(text)
    if version < draft.format_version:
        raise InvalidUpdateError(f"Cannot downgrade v{draft.format_version} table to v{version}")
    if version > draft.format_version:
        draft.format_version = version
        draft.is_changed = True


def set_location(draft: Draft, update: Update) -> None:
    """Set the table's location, written without a slash at its end."""
    location = stripped_location(update["location"])
    if draft.location != location:
        draft.location = location
        draft.is_changed = True


def stripped_location(location: str) -> str:
    """Return a location without slashes at its end, but for those of `scheme://`."""
    stripped = location.rstrip("/")
    is_scheme = stripped.endswith(":") and location.startswith("//", len(stripped))
    return f"{stripped}//" if is_scheme else stripped


def set_properties(draft: Draft, update: Update) -> None:
    """Set properties; setting one to the value it has is a change too, as it is in the reference."""
    if update["updates"]:
        draft.properties |= update["updates"]
        draft.is_changed = True


def remove_properties(draft: Draft, update: Update) -> None:
    """Remove properties; those that are not there are passed over."""
    for name in update["removals"]:
        draft.properties.pop(name, None)
    if update["removals"]:
        draft.is_changed = True


def add_encryption_key(draft: Draft, update: Update) -> None:
    """Add a wrapped key, unless there is one of that id."""
    key = update["encryption-key"]
    if key["key-id"] not in draft.encryption_keys:
        draft.encryption_keys[key["key-id"]] = key
        draft.is_changed = True


def remove_encryption_key(draft: Draft, update: Update) -> None:
    """Remove a wrapped key, if it is there."""
    if draft.encryption_keys.pop(update["key-id"], None) is not None:
        draft.is_changed = True
