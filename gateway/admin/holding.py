# SPDX-License-Identifier: Apache-2.0
"""
Which tenant holds which place: checked before a catalog is registered, and changed by the operator.

The check here is for a clear message; the guards of `gateway.catalogs.catalog_places` are decisive.
"""

from __future__ import annotations

from typing import Final

from gateway.admin.edits import OPERATOR, Editor, Edits
from gateway.catalogs.catalog_places import GRANTED, LOCATION, below, claim_guards, place_parameters, release_guards
from gateway.catalogs.places import StoragePlace, parse_place
from gateway.control.plane import ControlState
from gateway.database import outage_as_unavailable
from gateway.errors import BadRequestError, ConflictError, ForbiddenError, PlaceTakenError
from ledger.format.event import format_key
from ledger.format.events import PlaceGranted, PlaceReleased
from ledger.store.log_store import LendConnection
from ledger.store.queries import load_queries

TAKEN: Final = "PlaceTakenException"

_QUERIES: Final = load_queries("gateway", "catalog_places.sql")


class Holding:
    """`lend` lends connections of the appender's role; `warehouse` is the URI of the tenants' folders."""

    def __init__(self, lend: LendConnection, edits: Edits, *, warehouse: str) -> None:
        self._lend = lend
        self._edits = edits
        self._warehouse = parse_place(warehouse, field="warehouse")

    def check_own(self, location: str, by: Editor) -> None:
        """
        Check that a built-in catalog may have tables at `location`, where this installation writes their metadata.

        Raises:
            ForbiddenError: if `by` is not the operator, who alone says where this installation writes.
            BadRequestError: if it is in another kind of storage than the warehouse, or overlaps it.
        """
        if by != OPERATOR:
            raise ForbiddenError("only the operator gives a built-in catalog a location: lakeproof catalogs create")
        place, warehouse = parse_place(location, field=f"options.{LOCATION}"), self._warehouse
        if place.scheme != warehouse.scheme or place.overlaps(warehouse) or not place.segments:
            raise BadRequestError(
                f"expected a folder outside the warehouse {warehouse.format()}, in the same kind of storage, "
                f"found {location!r:.200}",
                field=f"options.{LOCATION}",
            )

    async def check_free(self, log_id: int, location: str) -> None:
        """
        Check that the tenant of that log may register a catalog for `location`.

        Raises:
            BadRequestError: if it is not a place.
            PlaceTakenError: if another tenant holds one that overlaps it, or keeps its built-in catalogs there.
            UnavailableError: if the database cannot be reached.
        """
        parameters = {"log_id": log_id, **place_parameters(GRANTED, location)}
        with outage_as_unavailable("the database cannot be reached: nothing was changed, try again"):
            async with self._lend() as connection:
                taken = await (await connection.execute(_QUERIES["taken"], parameters)).fetchone()
                tenant = await (await connection.execute(_QUERIES["tenant_of_log"], parameters)).fetchone()
        place = parse_place(location, field=f"options.{LOCATION}")
        own = tenant is not None and tenant[0] is not None and below(self._warehouse, tenant[0]).holds(place)
        if (taken is not None and taken[0]) or (place.overlaps(self._warehouse) and not own):
            raise PlaceTakenError(
                f"expected a place that no other tenant has, found {location!r:.200} overlapping one that was taken "
                "first: the operator can move it (lakeproof catalogs transfer)",
                field=f"options.{LOCATION}",
            )

    async def release(self, log_id: int, by: Editor, *, place: str, state: ControlState) -> bool:
        """
        Release a place and all below it, held by the tenant with control plane `state`; False if it holds none.

        Raises:
            ConflictError: if a catalog for such a place is in force, or the tenant holds a larger one.
            And as `Edits.record`.
        """
        released = parse_place(place, field="place")
        parameters = {"log_id": log_id, **place_parameters(GRANTED, place)}
        with outage_as_unavailable("the database cannot be reached: nothing was changed, try again"):
            async with self._lend() as connection:
                row = await (await connection.execute(_QUERIES["holds"], parameters)).fetchone()
        holds, holds_more = row or (False, False)
        if holds_more:
            raise ConflictError(f"the tenant holds a larger place than {released.format()}: name that one", kind=TAKEN)
        if in_force := _in_force(state, released):
            raise ConflictError(
                f"catalogs for {released.format()} are in force: delete {', '.join(in_force)} first "
                "(lakeproof catalogs delete)",
                kind=TAKEN,
            )
        if holds:
            event = PlaceReleased(place=released.format())
            key, guards = format_key("place", (event.place,)), release_guards(place)
            await self._edits.record(log_id, by, event, key=key, guard=guards, as_of=state.as_of)
        return bool(holds)

    async def grant(self, log_id: int, by: Editor, *, place: str) -> None:
        """
        Grant a tenant a place that no other tenant holds.

        Raises as `check_free` and `Edits.record`.
        """
        await self.check_free(log_id, place)
        event = PlaceGranted(place=parse_place(place, field="place").format())
        key = format_key("place", (event.place,))
        await self._edits.record(log_id, by, event, key=key, guard=claim_guards(GRANTED, place))


def check_local_files(by: Editor) -> None:
    """
    Check that the gateway may be let read files of this machine.

    Raises:
        ForbiddenError: if `by` is not the operator.
    """
    if by != OPERATOR:
        raise ForbiddenError("only the operator lets the gateway read files of this machine: lakeproof catalogs add")


def _in_force(state: ControlState, place: StoragePlace) -> list[str]:
    """The aliases of catalogs that were registered for a place at or below this one."""
    located = ((catalog.id, catalog.options.get(LOCATION)) for catalog in state.catalogs.values())
    return [alias for alias, location in located if location is not None and _lies_in(location, place)]


def _lies_in(location: str, place: StoragePlace) -> bool:
    try:
        return place.holds(parse_place(location, field=LOCATION))
    except BadRequestError:
        return False  # older than the requirement that it is a place
