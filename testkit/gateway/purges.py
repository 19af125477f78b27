# SPDX-License-Identifier: Apache-2.0
"""
A real table with every kind of file, and a purger whose clock and deletions a test decides on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from gateway.purging.deleting import Deletion, FileDeleter
from gateway.purging.own_files import OwnFile
from gateway.purging.purger import Purger
from ledger.format.events import PurgeCompleted, PurgeRequested, from_data
from projections.lake.storage import Storage
from testkit.gateway.log_contents import read_stored
from testkit.gateway.shop_rows import SCHEMA, rows
from testkit.servers.gateways import Gateway

LATER = timedelta(hours=2)
"""Longer than any hold and any pause."""


def nothing(_count: int) -> None:
    """Let every deletion be."""


@dataclass(slots=True, kw_only=True)
class WatchedDeleter:
    """Deletes files, and calls `before` with the number of deletions so far before each."""

    before: Callable[[int], None] = nothing
    locations: list[str] = field(default_factory=list)

    def delete(self, file: OwnFile) -> tuple[Deletion, int | None]:
        """See `FileDeleter.delete`."""
        self.before(len(self.locations))
        self.locations.append(file.location)
        return FileDeleter(Storage()).delete(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A gateway on a port, and the folder where catalog `lake` of its tenant has its tables."""

    gateway: Gateway
    url: str

    @property
    def folder(self) -> Path:
        """The folder of catalog `lake`."""
        catalogs = self.gateway.services.gateway.catalogs
        return Path(catalogs.folder(self.gateway.acme.tenant, "lake").removeprefix("file://"))

    def connect(self) -> Catalog:
        """Return a new client, blocking as PyIceberg is."""
        return RestCatalog("test", uri=self.url, warehouse="lake", token=self.gateway.acme.key.secret)

    async def play(self, act: Callable[[Catalog], object]) -> None:
        """Do something as an engine does, in a thread."""
        await asyncio.to_thread(lambda: act(self.connect()))

    def files(self) -> dict[str, bytes]:
        """Return the files below the catalog's folder, links included, and their contents."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else b""
            for path in self.folder.rglob("*")
            if path.is_file() or path.is_symlink()
        }

    def put_back(self, files: Mapping[str, bytes]) -> None:
        """Write files again that were deleted."""
        for name, data in files.items():
            (self.folder / name).write_bytes(data)

    async def purge(self, name: str) -> httpx.Response:
        """Drop a table with its files."""
        return await self.gateway.http.delete(f"/v1/iceberg/lake/namespaces/sales/tables/{name}?purgeRequested=true")

    def purger(self, deleter: WatchedDeleter | None = None, *, late: timedelta = timedelta(0), **parts: Any) -> Purger:
        """Return a purger as a process of its own has one, its clock so much late."""
        services = self.gateway.services

        def clock() -> datetime:
            return services.gateway.clock() + late

        gateway = replace(services.gateway, clock=clock, **parts)
        return Purger(gateway, storage={}, deleter=deleter or WatchedDeleter(), keep_s=0, poll_s=0.01)

    async def purged(self, **parts: Any) -> PurgeCompleted:
        """Attempt the purge that is due, which is completed, and return that."""
        (completed,) = await self.purger(late=LATER, **parts).purge_due()
        return completed

    async def requested(self) -> list[PurgeRequested]:
        """Return what the log has of purges that were asked for."""
        stored = await read_stored(self.gateway.services, self.gateway.acme.log_id)
        return [from_data(PurgeRequested, one.entry.data) for one in stored if one.entry.type == PurgeRequested.TYPE]

    async def completed(self) -> list[PurgeCompleted]:
        """Return what the log has of purges that were completed."""
        stored = await read_stored(self.gateway.services, self.gateway.acme.log_id)
        return [from_data(PurgeCompleted, one.entry.data) for one in stored if one.entry.type == PurgeCompleted.TYPE]


def make_table(catalog: Catalog, name: str = "orders", **members: Any) -> Table:
    """Create a table of two appends in namespace `sales`."""
    catalog.create_namespace_if_not_exists("sales")
    table = catalog.create_table(("sales", name), SCHEMA, **members)
    for first in (0, 10):
        table.append(rows(first, 10))
    return table


def append_file(table: Table, location: str, content: DataFileContent = DataFileContent.DATA) -> None:
    """Append a data or delete file to a table that nobody has written."""
    file = DataFile.from_args(
        content=content,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=4,
    )
    file.spec_id = table.metadata.default_spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)


def write(table: Table, name: str, data: bytes = b"data") -> str:
    """Write a file below a table's location, and return its location."""
    path = Path(table.location().removeprefix("file://")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"{table.location()}/{name}"
