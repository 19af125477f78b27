# SPDX-License-Identifier: Apache-2.0
"""
Which table a data set is. Pure: a data set and the known tables in, a key out.

The first of these rules that gives one answer decides: its version is a snapshot of one table; one of its names is a
table's location; one of its names is a table's name in the catalog that the name's namespace identifies (by alias, by
URI, or by the location above it); or in the only catalog that has a table of that name; or it begins with an alias. Any
other data set has a key of its own, `dataset:<namespace>/<name>`.

Known tables come from the entries before, so a name may stand for a data set first and for a table later: an edge keeps
the keys that its event resolved to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ledger.errors import FormatError
from ledger.format.event import KEY_LENGTH_MAX, format_key
from ledger.format.events import DatasetName, LineageDataset
from projections.entries import storable
from projections.keys import KEYS_CACHED

METADATA: Final = "/metadata/"
_SAME_SCHEME: Final[Mapping[str, str]] = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "wasb"}
_CATALOG_SCHEMES: Final = ("http://", "https://", "iceberg://")
_CATALOG_WORDS: Final = frozenset({"iceberg", "lakeproof"})
LEVELS_MIN: Final = 2
"""Of a table's name in its catalog: a namespace and a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCatalog:
    """URI and table location of a catalog in force, normalised; None where its options do not say."""

    uri: str | None
    location: str | None


@dataclass(slots=True, kw_only=True)
class KnownTables:
    """
    Catalogs by alias, and tables by location, by snapshot and by name; dropped tables are in none by name.

    `by_name` maps a dotted name to the keys of its tables, and each key to its alias.
    """

    catalogs: dict[str, KnownCatalog] = field(default_factory=dict)
    by_location: dict[str, str] = field(default_factory=dict)
    by_snapshot: dict[str, set[str]] = field(default_factory=dict)
    by_name: dict[str, dict[str, str]] = field(default_factory=dict)


def resolve(dataset: LineageDataset, known: KnownTables) -> str:
    """
    Return the key of the table that `dataset` is, or the key of the data set itself.
    """
    if dataset.version is not None and len(keys := known.by_snapshot.get(storable(dataset.version), ())) == 1:
        return next(iter(keys))
    names = names_of(dataset)
    locations = [location for name in names if (location := location_of(name)) is not None]
    for location in locations:
        if location in known.by_location:
            return known.by_location[location]
    for name in names:
        key = _named(name, _aliases(name, locations, known), known)
        if key is not None:
            return key
    return format_key("dataset", (dataset.namespace, dataset.name))


def names_of(dataset: LineageDataset) -> tuple[DatasetName, ...]:
    """
    Return all names of a data set, its own first, in the form in which the database stores names.
    """
    names = ((dataset.namespace, dataset.name), *((name.namespace, name.name) for name in dataset.symlinks))
    return tuple(DatasetName(namespace=storable(namespace), name=storable(name)) for namespace, name in names)


def location_of(name: DatasetName) -> str | None:
    """
    Return the location that a data set's name is, normalised; None if it is none (OpenLineage, "Naming conventions":
    namespace `s3://bucket`, name the path; namespace `file`, name the absolute path).
    """
    if name.namespace == "file":
        return normalise_location(f"file:///{name.name.lstrip('/')}")
    if "://" not in name.namespace or name.namespace.startswith(_CATALOG_SCHEMES):
        return None
    return normalise_location(f"{name.namespace.rstrip('/')}/{name.name.lstrip('/')}")


@lru_cache(maxsize=KEYS_CACHED)
def normalise_location(location: str) -> str:
    """
    Return the canonical spelling of a location: one scheme per store, and no slash at the end.
    """
    scheme, colon, rest = location.partition(":")
    if not colon:
        return location.rstrip("/")
    scheme = scheme.lower()
    if scheme == "file":
        rest = f"///{rest.lstrip('/')}"
    return f"{_SAME_SCHEME.get(scheme, scheme)}:{rest.rstrip('/')}"


def table_location(metadata_location: str) -> str | None:
    """
    Return the location of the table whose metadata file that is; None if it does not lie in a folder `metadata`.
    """
    location, separator, _ = storable(metadata_location).rpartition(METADATA)
    return normalise_location(location) if separator else None


def dotted(levels: Iterable[str]) -> str:
    """
    Return namespace levels and name as engines write them.
    """
    return storable(".".join(levels))


def is_catalog_name(name: DatasetName, aliases: Iterable[str]) -> bool:
    """
    Return whether a name can be one in a catalog: names of other systems may look alike.
    """
    namespace = name.namespace
    return namespace.startswith(_CATALOG_SCHEMES) or namespace.lower() in _CATALOG_WORDS or namespace in aliases


def _aliases(name: DatasetName, locations: Iterable[str], known: KnownTables) -> list[str]:
    """Return the catalogs that a name itself tells: by alias, by URI, or by where the data set lies."""
    if name.namespace in known.catalogs:
        return [name.namespace]
    uri = normalise_location(name.namespace)
    found = [alias for alias, catalog in known.catalogs.items() if catalog.uri == uri]
    if found or not is_catalog_name(name, known.catalogs):
        return found
    holding = {
        alias: len(catalog.location)
        for alias, catalog in known.catalogs.items()
        if catalog.location is not None and any(f"{at}/".startswith(f"{catalog.location}/") for at in locations)
    }
    # Of folders in one another the most specific one decides, as everywhere (`projections.lake.storage`).
    return [alias for alias, length in holding.items() if length == max(holding.values())]


def _named(name: DatasetName, aliases: list[str], known: KnownTables) -> str | None:
    """Return the one table of that name in those catalogs, or in any if there are none; None if it is not unique."""
    if not aliases and not is_catalog_name(name, known.catalogs):
        return None
    tables = known.by_name.get(name.name, {})
    keys = [key for key, alias in tables.items() if not aliases or alias in aliases]
    if len(keys) == 1:
        return keys[0]
    # No commit names it, but it can be in one catalog only: a table that is only read, or not yet created.
    alias, *levels = [*aliases, *name.name.split(".")]
    if keys or len(aliases) > 1 or alias not in known.catalogs or len(levels) < LEVELS_MIN:
        return None
    try:
        key = format_key("table", (alias, *levels))
    except FormatError:
        return None  # an empty level: no table's name
    return key if len(key) <= KEY_LENGTH_MAX else None
