"""
Who may register catalogs for a place: the operator takes it from one tenant, and gives it to another.

Whoever registers a catalog with a location first holds that place, by `catalog.created` alone; these two are for the
operator, who settles what that leaves open. Each stands in the log of the tenant whose it is, and names no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceReleased:
    """The tenant no longer holds the places at and below this one (a URI); its catalogs for them were retired."""

    TYPE: ClassVar[str] = "place.released"
    VERSION: ClassVar[int] = 1

    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceGranted:
    """The tenant holds this place (a URI) from here on: no other may register a catalog that overlaps it."""

    TYPE: ClassVar[str] = "place.granted"
    VERSION: ClassVar[int] = 1

    place: str
