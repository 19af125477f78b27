# SPDX-License-Identifier: Apache-2.0
"""
Purges as the log has them: the files of a table of a built-in catalog are to be deleted after its drop, and were.

`purge.requested` is appended in the group of the drop, whose guard makes the row that keeps the table's places taken.
`purge.completed` removes it again. The id of a purge is that of the drop's group.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from gateway.catalogs.catalog import Loaded
from gateway.catalogs.places import parse_place
from gateway.catalogs.table_places import place_digests, table_places
from gateway.commit.events import Requested
from gateway.errors import BadRequestError
from gateway.metadata import uuid_of
from ledger.errors import FormatError
from ledger.format.event import SYSTEM_ACTOR, PreparedEvent, derived_group_id, format_key
from ledger.format.events import Identifier, PurgeCompleted, PurgeRequested, prepare_event, to_data
from ledger.format.guards import GuardCall
from ledger.format.sequence import Group


def purge_of(requested: Requested, loaded: Loaded) -> PurgeRequested | None:
    """
    Return the purge that the drop of a table asks for, as it was loaded; None if it asks for none.
    """
    if not requested.mutation.purge or loaded.metadata is None:
        return None
    if loaded.metadata_location is None or loaded.metadata_sha256 is None:
        raise AssertionError("a table of a built-in catalog is loaded with its pointer")
    return PurgeRequested(
        identifier=requested.mutation.target.identifier(),
        metadata_location=loaded.metadata_location,
        metadata_sha256=loaded.metadata_sha256,
        places=tuple(sorted(place.format() for place in table_places(loaded.metadata))),
        table_uuid=uuid_of(loaded.metadata),
    )


def purge_event(purge: PurgeRequested, *, key: str, actor: str, at: datetime) -> PreparedEvent:
    """
    Return the event of the drop's group that asks for a purge.
    """
    return prepare_event(purge, key=key, actor=actor, occurred_at=at)


def open_purge_guard(purge_id: UUID, key: str, purge: PurgeRequested) -> GuardCall:
    """
    Return the guard that opens a purge: the table's places stay taken.

    Raises:
        FormatError: if its places are none.
    """
    identifier = purge.identifier
    try:
        places = [parse_place(text, field="places") for text in purge.places]
    except BadRequestError as error:
        raise FormatError("purge.requested", expected="places", found=error) from error
    return GuardCall(
        "purge.open",
        {
            "purge": purge_id,
            "key": key,
            "alias": identifier.alias,
            "namespace": list(identifier.namespace),
            "name": identifier.name,
            "metadata_location": purge.metadata_location,
            "metadata_sha256": purge.metadata_sha256,
            **place_digests(places),
        },
    )


def close_purge_guard(purge_id: UUID, key: str) -> GuardCall:
    """
    Return the guard of a completed purge: it holds while the purge is open, and the places are free then.
    """
    return GuardCall("purge.close", {"purge": purge_id, "key": key})


def completion(completed: PurgeCompleted, *, at: datetime) -> Group:
    """
    Return the group that ends a purge; a repeated append of it changes nothing.
    """
    key = key_of(completed.identifier)
    return Group(
        id=derived_group_id("purge.completed", to_data(completed)),
        then=(prepare_event(completed, key=key, actor=SYSTEM_ACTOR, occurred_at=at),),
        guard=(close_purge_guard(UUID(completed.purge), key),),
    )


def key_of(identifier: Identifier) -> str:
    """
    Return the event key of a table.
    """
    return format_key("table", [identifier.alias, *identifier.namespace, str(identifier.name)])
