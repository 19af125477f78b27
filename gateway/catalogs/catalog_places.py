"""
The places of catalogs elsewhere: the option `location`, which the first tenant to register it holds against all others.

Guarantee: of two tenants whose places overlap, one is refused, at whatever time and in whatever process they come. The
claim is a guard in the group that appends `catalog.created`; since it looks at other tenants' claims, it is preceded by
a lock that a transaction keeps to its end. The object store's endpoint is no part of a place: events of S3 name none.
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
"""In place of an alias: the operator has granted the place, whatever will be registered for it."""


_QUERIES: Final = load_queries("gateway", "catalog_places.sql")


def place_parameters(alias: str, location: str) -> dict[str, object]:
    """
    Return what the row of a place holds.

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
    Return the guards that hold if the tenant holds a place at or below `place`, and then let go of all of them.
    """
    digest = parse_place(place, field="place").digest()
    return (GuardCall("place.lock", {"lock": LOCK}), GuardCall("place.release", {"digest": digest}))


def replayed_claim(alias: str, location: str) -> tuple[GuardCall, ...]:
    """
    Return the guards that make the row of a place again; none where the location is no place, as before it had to be.
    """
    try:
        return (GuardCall("place.replay", place_parameters(alias, location)),)
    except BadRequestError:
        return ()


def replayed_release(place: str) -> GuardCall:
    """
    Return the guard that lets go of a place again, whoever holds it by now.
    """
    return GuardCall("place.forget", {"digest": parse_place(place, field="place").digest()})


async def read_contested(connection: Connection, *, warehouse: str) -> dict[tuple[UUID, str], str]:
    """
    Return the catalogs (tenant and alias) that were registered for a place of another tenant, and why they wait.

    There are some only if they are older than the claims, or if the warehouse was moved onto a place that is held.
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
