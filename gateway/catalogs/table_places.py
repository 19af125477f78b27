# SPDX-License-Identifier: Apache-2.0
"""
The places of a table: its location and the folders that its properties name, as the log records them. Pure.

The part `places` of a decision that changes them has them as a JSON list of URIs, and they are replayed from there. For
tables with older decisions, the location of the metadata file implies the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import orjson

from gateway.catalogs.places import PLACE_LENGTH_MAX, StoragePlace, parse_place
from gateway.errors import BadRequestError
from gateway.metadata.draft import TableMetadata
from gateway.metadata.paths import path_properties
from ledger.errors import FormatError

REMEMBERED_MAX: Final = 1_024
"""Locations that are not parsed again; some MB at most."""
PLACES: Final = "places"
"""The payload part of a `commit.decided` with the places of the table from then on."""
_DIGESTS: Final = "place digests"
_METADATA: Final = "metadata"


def table_places(metadata: Mapping[str, Any] | None) -> list[StoragePlace]:
    """
    Return the places of a table, without those inside another of them; what cannot be parsed is not a place.
    """
    if metadata is None:
        return []
    if not isinstance(metadata, TableMetadata):
        return _table_places(metadata)
    kept = metadata.derived.get(PLACES)
    if kept is None:
        kept = metadata.derived[PLACES] = _table_places(metadata)
    return list(cast("list[StoragePlace]", kept))


def _table_places(metadata: Mapping[str, Any]) -> list[StoragePlace]:
    texts = (metadata["location"], *path_properties(metadata.get("properties") or {}).values())
    return list(_places_of(texts) if sum(map(len, texts)) <= PLACE_LENGTH_MAX else _places_of.__wrapped__(texts))


def own_digests(metadata: Mapping[str, Any]) -> Sequence[bytes]:
    """
    Return the digests of a table's places, as its row has them.
    """
    if not isinstance(metadata, TableMetadata):
        return place_digests(table_places(metadata))[PLACES]
    kept = metadata.derived.get(_DIGESTS)
    if kept is None:
        kept = metadata.derived[_DIGESTS] = place_digests(table_places(metadata))[PLACES]
    return cast("list[bytes]", kept)


def expected_places(metadata_location: str) -> list[StoragePlace]:
    """
    Return the place that a metadata file's location implies: the parent of the folder `metadata`.
    """
    place = _place(metadata_location)
    if place is None or not place.segments:
        return []
    levels = 2 if place.segments[-2:-1] == (_METADATA,) else 1
    return [StoragePlace(place.scheme, place.authority, place.segments[:-levels])]


def added_places(after: Iterable[StoragePlace], before: Iterable[StoragePlace]) -> list[StoragePlace]:
    """
    Return those of `after` that are not inside one of `before`.
    """
    known = list(before)
    return [place for place in after if not any(one.holds(place) for one in known)]


def place_digests(places: Iterable[StoragePlace]) -> dict[str, list[bytes]]:
    """
    Return the stored and indexed form of places: their digests, and those of all folders above them.
    """
    own, folders = _digests(tuple(places))
    return {"places": list(own), "folders": list(folders)}


def format_places(places: Iterable[StoragePlace]) -> bytes:
    """
    Return the payload of the part `places`.
    """
    return orjson.dumps(sorted(place.format() for place in places))


def parse_places(payload: bytes) -> list[StoragePlace]:
    """
    Return the places in the part `places`.

    Raises:
        FormatError: if it is not what `format_places` writes.
    """
    try:
        texts = orjson.loads(payload)
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return [parse_place(text, field=PLACES) for text in texts]
    except (orjson.JSONDecodeError, BadRequestError) as error:
        raise FormatError("part places", expected="a list of locations", found=error) from error
    raise FormatError("part places", expected="a list of locations", found=payload)


def _outermost(places: Iterable[StoragePlace]) -> list[StoragePlace]:
    found: list[StoragePlace] = []
    for place in sorted(places, key=lambda place: len(place.segments)):
        if not any(one.holds(place) for one in found):
            found.append(place)
    return found


@lru_cache(maxsize=REMEMBERED_MAX)
def _places_of(texts: tuple[str, ...]) -> tuple[StoragePlace, ...]:
    return tuple(_outermost(place for text in texts if (place := _place(text)) is not None))


@lru_cache(maxsize=REMEMBERED_MAX)
def _digests(places: tuple[StoragePlace, ...]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    folders = {digest for place in places for digest in place.folder_digests()}
    return sorted(place.digest() for place in places), sorted(folders)


@lru_cache(maxsize=REMEMBERED_MAX)
def _place(text: str) -> StoragePlace | None:
    try:
        return parse_place(text, field="location")
    except BadRequestError:
        return None
