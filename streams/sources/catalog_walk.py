# SPDX-License-Identifier: Apache-2.0
"""
Reads a catalog through the gateway, as any engine does: its tables, and the metadata location of each.

Our own gateway answers, but passes on what another catalog wrote: every answer is bounded, and has the form of the
Iceberg REST specification, or is an error of ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

import httpx

from ledger.errors import FormatError
from ledger.format.events import Identifier
from ledger.format.json_object import parse_object
from streams.errors import StreamError
from streams.metadata.parse import TABLE_UUID

PAGE_SIZE: Final = 500
PAGES_MAX: Final = 1_000
NAMESPACES_MAX: Final = 1_000
TABLES_MAX: Final = 10_000
ANSWER_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
LOCATION_LENGTH_MAX: Final = 2_048
SEPARATOR: Final = "\x1f"


class CatalogReadError(StreamError):
    """The gateway does not answer, does not let us read, or what it passes on is not what a catalog says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """What a catalog answers about a table that was requested by name."""

    metadata_location: str
    table_uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogReader:
    """Reads the catalog `alias` through the gateway that `http` reaches, with an API key."""

    http: httpx.AsyncClient = field(repr=False)
    key: str = field(repr=False)
    alias: str

    async def list_tables(self) -> list[Identifier]:
        """
        Return the tables of the catalog, at most 10,000, namespace by namespace.

        Raises:
            CatalogWalkError: if it cannot be walked, or has more than 1,000 namespaces.
        """
        tables: list[Identifier] = []
        waiting: deque[tuple[str, ...]] = deque([()])
        seen = 0
        while waiting and len(tables) < TABLES_MAX:
            parent = waiting.popleft()
            listed = await self._pages("", "namespaces", {"parent": SEPARATOR.join(parent)} if parent else {})
            # A catalog that ignores `parent` lists all namespaces every time: only those directly below count.
            levels = {_names(each, "namespaces") for each in listed}
            below = sorted(each for each in levels if each[:-1] == parent)
            seen += len(below)
            if seen > NAMESPACES_MAX:
                raise CatalogReadError(
                    f"catalog {self.alias}: expected at most {NAMESPACES_MAX} namespaces, found more"
                )
            waiting.extend(below)
            if parent:
                found = await self._pages(f"/{_segment(parent)}/tables", "identifiers", {})
                tables += (Identifier(alias=self.alias, namespace=parent, name=_name(item)) for item in found)
        return tables[:TABLES_MAX]

    async def load(self, table: Identifier) -> LoadedTable | None:
        """
        Return which table that name is now, and where its metadata is; None if there is no such table any more.

        Raises:
            CatalogWalkError: if it cannot be read.
        """
        path = f"/{_segment(table.namespace)}/tables/{quote(table.name or '', safe='')}"
        loaded = await self._get(path, {"snapshots": "refs"})
        if loaded is None:
            return None
        location = loaded.get("metadata-location")
        if not isinstance(location, str) or not 0 < len(location) <= LOCATION_LENGTH_MAX or not location.isprintable():
            raise CatalogReadError(f"{path}: expected a metadata-location, found {location!r:.80}")
        metadata = loaded.get("metadata")
        table_uuid = metadata.get("table-uuid") if isinstance(metadata, dict) else None
        if not isinstance(table_uuid, str) or not TABLE_UUID.fullmatch(table_uuid):
            raise CatalogReadError(f"{path}: expected a UUID as table-uuid, found {table_uuid!r:.80}")
        return LoadedTable(metadata_location=location, table_uuid=table_uuid)

    async def _pages(self, path: str, member: str, query: Mapping[str, str]) -> list[Any]:
        """Return a list that comes in pages; of what is gone meanwhile, nothing more."""
        found: list[Any] = []
        token = ""
        for _ in range(PAGES_MAX):
            page = await self._get(path, {**query, "pageSize": str(PAGE_SIZE), "pageToken": token})
            if page is None:
                return found
            items, following = page.get(member), page.get("next-page-token")
            if not isinstance(items, list) or not isinstance(following, str | None):
                raise CatalogReadError(f"{path}: expected a page with a list as {member}")
            found += items
            if not following:
                return found
            token = following
        raise CatalogReadError(f"{path}: expected at most {PAGES_MAX} pages, found more")

    async def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the object that the gateway answers with; None for 404."""
        url = f"/v1/iceberg/{quote(self.alias, safe='')}/namespaces{path}"
        headers = {"Authorization": f"Bearer {self.key}"}
        try:
            async with self.http.stream("GET", url, params=query, headers=headers) as answer:
                body = bytearray()
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > ANSWER_SIZE_BYTES_MAX:
                        raise CatalogReadError(f"{url}: expected at most {ANSWER_SIZE_BYTES_MAX} bytes, found more")
        except httpx.HTTPError as error:
            raise CatalogReadError(f"{url}: the gateway does not answer: {error!s:.200}") from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        if answer.status_code != httpx.codes.OK:
            raise CatalogReadError(f"{url}: expected 200, found {answer.status_code}")
        return _object(bytes(body), url)


def _object(body: bytes, url: str) -> dict[str, Any]:
    try:
        return parse_object(body, what=url, size_bytes_max=ANSWER_SIZE_BYTES_MAX)
    except FormatError as error:
        raise CatalogReadError(str(error)) from error


def _name(item: object) -> str:
    return _names([item.get("name") if isinstance(item, dict) else None], "identifiers")[0]


def _names(names: object, where: str) -> tuple[str, ...]:
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise CatalogReadError(f"{where}: expected names, found {names!r:.80}")
    return tuple(names)


def _segment(levels: tuple[str, ...]) -> str:
    return quote(SEPARATOR.join(levels), safe="")
