# SPDX-License-Identifier: Apache-2.0
"""
The places of foreign catalogs: the option `location`, which the first tenant to register it holds against all others.

Guarantee: of two tenants whose places overlap, one is refused, whenever and in whichever process they register. The
claim is a guard in the group that appends `catalog.created`. Since it reads other tenants' claims, a lock that is held
to the end of the transaction precedes it. The object store's endpoint is not part of a place: S3's events name none.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from gateway.catalogs.places import StoragePlace, parse_place
from gateway.errors import BadRequestError
from ledger.format.guards import GuardCall
from ledger.store.queries import load_queries
from ledger.store.session import Connection

LOCATION: Final = "location"
LOCK: Final = 0x6C70_0005
"""Advisory lock: one claim at a time on a database."""
GRANTED: Final = ""
"""Stands for an alias where the operator has granted the place before a catalog is registered for it."""


_QUERIES: Final = load_queries("gateway", "catalog_places.sql")


def place_parameters(alias: str, location: str) -> dict[str, object]:
    """
    Return the columns of the row of a place.

    Raises:
        BadRequestError: if `location` is no place.
    """
    place = parse_place(location, field=f"options.{LOCATION}")
    return {
        "alias": alias,
        "place": place.format(),
        "digest": place.digest(),
        "folders": place.folder_digests(),
    }


def claim_guards(alias: str, location: str) -> tuple[GuardCall, ...]:
    """
    Return the guards that hold if no other tenant holds a place that overlaps `location`, and then claim it.
    """
    return (GuardCall("place.lock", {"lock": LOCK}), GuardCall("place.claim", place_parameters(alias, location)))


def release_guards(place: str) -> tuple[GuardCall, ...]:
    """
    Return the guards that hold if the tenant holds a place at or below `place`, and then release all of them.
    """
    digest = parse_place(place, field="place").digest()
    return (GuardCall("place.lock", {"lock": LOCK}), GuardCall("place.release", {"digest": digest}))


def replayed_claim(alias: str, location: str) -> tuple[GuardCall, ...]:
    """
    Return the guards that rebuild the row of a place; none if the location is not a place (older entries).
    """
    try:
        return (GuardCall("place.replay", place_parameters(alias, location)),)
    except BadRequestError:
        return ()


def replayed_release(place: str) -> GuardCall:
    """
    Return the guard that replays the release of a place, regardless of its current holder.
    """
    return GuardCall("place.forget", {"digest": parse_place(place, field="place").digest()})


async def read_contested(connection: Connection, *, warehouse: str) -> dict[tuple[UUID, str], str]:
    """
    Return the catalogs (tenant and alias) that were registered for a place of another tenant, and the reason in words.

    They are not served. They are older than the claims, or the warehouse was moved onto a place that is held.
    """
    contested: dict[tuple[UUID, str], str] = {}
    for tenant, alias, place, holder in await (await connection.execute(_QUERIES["contested"])).fetchall():
        contested[tenant, alias] = f"{place} overlaps a place that tenant {holder.hex} was first to register"
    root = parse_place(warehouse, field="warehouse")
    for tenant, alias, text in await (await connection.execute(_QUERIES["held"])).fetchall():
        place = parse_place(text, field=LOCATION)
        if place.overlaps(root) and not below(root, tenant).holds(place):
            contested[tenant, alias] = (
                f"{text} overlaps the warehouse {warehouse}, where tenants keep built-in catalogs"
            )
    return contested


def below(warehouse: StoragePlace, tenant: UUID) -> StoragePlace:
    """
    Return the folder of a tenant's built-in catalogs.
    """
    return StoragePlace(warehouse.scheme, warehouse.authority, (*warehouse.segments, tenant.hex))
