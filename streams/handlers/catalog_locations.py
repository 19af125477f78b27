# SPDX-License-Identifier: Apache-2.0
"""
Which catalog a location belongs to: the folder of each catalog in object storage, and its log and alias. Pure.

The longest folder that holds a location wins, at path boundaries: `s3://lake/sales` does not hold `s3://lake/sales-eu`.
A folder of this installation's own warehouse belongs to its tenant, whatever other tenants have registered. If two
tenants have registered the same folder, it belongs to neither: one of them would read the other's names. Among one
tenant's catalogs the longest folder wins, of whatever kind, as in `projections.lake.storage.nearest_catalog`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ledger.store.read import Log
from projections.errors import FileUnreadableError
from projections.lake.storage import split_location
from projections.relational.catalogs import BUILTIN, CatalogRow, folders_of
from streams.errors import PoisonError

S3: Final = "s3"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogLocation:
    """The tables of catalog `alias` of a log lie below `path`, a bucket and folders without a final slash."""

    path: str
    log: Log
    alias: str
    is_builtin: bool


class CatalogLocations:
    """The places of all catalogs, by path."""

    def __init__(self, places: Iterable[CatalogLocation]) -> None:
        self._of: dict[str, list[CatalogLocation]] = {}
        for place in sorted(places, key=lambda place: (place.log.log_id, place.alias)):
            self._of.setdefault(place.path, []).append(place)

    @classmethod
    def of(cls, rows: Iterable[CatalogRow], *, warehouse: str) -> CatalogLocations:
        """
        Return the places of catalogs; those whose files are not in object storage have none.
        """
        return cls(place for row in rows for place in _places(row, warehouse))

    def find(self, location: str) -> CatalogLocation:
        """
        Return the place that holds `location`; where one tenant has several catalogs there, the first by alias.

        Raises:
            PoisonError: if no catalog is there, or those of several tenants are.
        """
        folders = _folders(location)
        holding = [place for folder in folders for place in self._of.get(folder, ())]
        owner = next((place.log.log_id for place in holding if place.is_builtin), None)
        nearest = [place for place in holding if owner in {None, place.log.log_id}]
        if not nearest:
            raise PoisonError(f"{location}: expected a catalog whose option `location` holds it, found none")
        claims = [place for place in nearest if place.path == nearest[0].path]
        if len({place.log.log_id for place in claims}) > 1:
            raise PoisonError(f"{location}: expected the catalogs of one tenant at {claims[0].path}, found several")
        return claims[0]


def _places(row: CatalogRow, warehouse: str) -> Iterator[CatalogLocation]:
    if row.log.tenant is None:
        return
    for position, folder in enumerate(folders_of(row, warehouse=warehouse)):
        if (path := _path(folder)) is not None:
            is_builtin = row.kind == BUILTIN and position == 0
            yield CatalogLocation(path=path, log=row.log, alias=row.alias, is_builtin=is_builtin)


def _path(location: str) -> str | None:
    """Return bucket and key of a location in object storage, None of any other."""
    try:
        scheme, path = split_location(location)
    except FileUnreadableError:
        return None
    return path.rstrip("/") if scheme == S3 else None


def _folders(location: str) -> list[str]:
    """Return the folders that hold a location, the longest first."""
    levels = (_path(location) or "").split("/")
    return ["/".join(levels[:depth]) for depth in range(len(levels) - 1, 0, -1)]
