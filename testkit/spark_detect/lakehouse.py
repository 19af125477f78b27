# SPDX-License-Identifier: Apache-2.0
"""
A gateway with a client, and detection over its logs: what the tests of this folder work on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import psycopg
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from lakeproof.demo.personal_data import PERSON_SCHEMA, person_rows
from lakeproof.provision import Provisioned
from lakeproof.services import Services
from lakeproof.tenants import found_tenant
from ledger.format.events import EVENTS, DetectionFound, EventData, ScanCompleted, ScanFailed, from_data
from ledger.store.read import read_entries, read_head
from projections.entries import read_log_entry
from spark_detect.job_folder import Driver, Lake
from spark_detect.recording.recorder import RecordedCounts
from testkit.environment import PATIENCE_S
from testkit.servers.gateways import open_gateway
from testkit.servers.loopback import serve_gateway
from testkit.spark_detect.sparkless import scan_once

BYTES_MAX = 1024**3


def now() -> datetime:
    return datetime.now(UTC)


@dataclass(kw_only=True)
class Lakehouse:
    """One tenant's catalog behind a gateway on a port, and the detection of the installation."""

    services: Services
    url: str
    key: str
    log_id: int
    tenant: UUID
    bytes_max: int = BYTES_MAX
    java_home: str = ""
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def installation(self) -> Provisioned:
        return self.services.installation

    @property
    def driver(self) -> Driver:
        roles = self.installation.roles
        return Driver(
            detector_dsn=self.installation.as_role(roles.detector),
            appender_dsn=self.installation.as_role(roles.appender),
            batch_bytes_max=self.bytes_max,
            master="local[2,4]",
            java_home=self.java_home,
        )

    @property
    def lake(self) -> Lake:
        settings = self.services.installation.settings
        return Lake(
            warehouse=settings.warehouse,
            properties=self.properties,
            secrets=str(settings.home / "secrets" / "tenants"),
            upstreams_allowed=settings.upstreams_allowed.text,
        )

    def connect(self) -> RestCatalog:
        """Return a new client, blocking as PyIceberg is."""
        return RestCatalog("test", uri=self.url, warehouse="lake", token=self.key)

    def commit(self, namespace: str, name: str, updates: list[dict[str, Any]]) -> None:
        """Commit updates as they are."""
        url = f"{self.url}/v1/iceberg/lake/namespaces/{namespace}/tables/{name}"
        headers = {"Authorization": f"Bearer {self.key}"}
        httpx.post(
            url, json={"requirements": [], "updates": updates}, headers=headers, timeout=PATIENCE_S
        ).raise_for_status()

    async def play(self, act: Callable[[RestCatalog], object]) -> None:
        """Do something as an engine does, in a thread."""
        await asyncio.to_thread(lambda: act(self.connect()))

    async def detect(self) -> RecordedCounts:
        """Work on everything that waits, without Spark."""
        return await asyncio.to_thread(scan_once, self.driver, self.lake, clock=now)

    async def events(self, *kinds: type[EventData]) -> list[EventData]:
        """Return the events of those kinds in the tenant's log, in order."""
        types = {kind.TYPE for kind in kinds}
        dsn = self.installation.as_role(self.installation.roles.auditor)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            head = await read_head(connection, self.log_id)
            entries = await read_entries(connection, self.log_id, from_index=0, to_index=head.size)
        items = (read_log_entry(entry, {}).entry for entry in entries)
        return [from_data(EVENTS[item.type, item.version], item.data) for item in items if item.type in types]

    async def completed(self) -> list[ScanCompleted]:
        return [event for event in await self.events(ScanCompleted) if isinstance(event, ScanCompleted)]

    async def failed(self) -> list[ScanFailed]:
        return [event for event in await self.events(ScanFailed) if isinstance(event, ScanFailed)]

    async def found(self) -> list[DetectionFound]:
        return [event for event in await self.events(DetectionFound) if isinstance(event, DetectionFound)]

    async def operations(self, table: tuple[str, ...]) -> dict[int, str]:
        """Return the operations of a table's snapshots, oldest first."""
        loaded = await asyncio.to_thread(lambda: self.connect().load_table(table))
        return {each.snapshot_id: each.summary.operation.value for each in loaded.snapshots() if each.summary}

    async def begin_now(self) -> None:
        """Let detection begin with the last commit, as if it had been switched on only then."""
        async with await psycopg.AsyncConnection.connect(
            self.services.installation.admin_dsn, autocommit=True
        ) as owner:
            await owner.execute(
                "INSERT INTO detection.positions (log_id, next_index) "
                "SELECT log_id, max(index) FROM ledger.entries WHERE log_id = %s AND type = 'commit.settled' "
                "GROUP BY log_id",
                (self.log_id,),
            )

    def path(self, location: str) -> Path:
        """Return the local file of a location."""
        return Path(location.removeprefix("file://"))


@asynccontextmanager
async def open_lakehouse(services: Services, *, name: str = "acme") -> AsyncIterator[Lakehouse]:
    """Yield a lakehouse over `services`, with a tenant of its own."""
    tenant = await found_tenant(services, name=name, identity=f"ada@{name}.example", roles=["data-eng"], alias="lake")
    async with open_gateway(services, tenant) as gateway, serve_gateway(gateway.app) as url:
        yield Lakehouse(services=services, url=url, key=tenant.key.secret, log_id=tenant.log_id, tenant=tenant.tenant)


def make_people(catalog: RestCatalog, *, name: str = "people", count: int = 50) -> Table:
    """Create `crm.<name>` and append `count` people to it."""
    catalog.create_namespace_if_not_exists(("crm",))
    table: Table = catalog.create_table(("crm", name), schema=PERSON_SCHEMA)
    table.append(person_rows(0, count))
    return table


def some_people(first: int, count: int) -> pa.Table:
    return person_rows(first, count)


def append_file(table: Table, location: str, **members: Any) -> None:
    """Append a data file to an unpartitioned table that nobody has written, or not as `members` say."""
    described = {"file_format": FileFormat.PARQUET, "record_count": 1, "file_size_in_bytes": 100, **members}
    file = DataFile.from_args(content=DataFileContent.DATA, file_path=location, partition=Record(), **described)
    file.spec_id = table.metadata.default_spec_id
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as snapshot:
        snapshot.append_data_file(file)
