# SPDX-License-Identifier: Apache-2.0
"""
Where points of the fault table happen: a database behind a wire that fails, and what must hold in it afterwards.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo
from psycopg.sql import SQL, Identifier

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.sealer import Sealer
from ledger.format.entry import Entry, parse_entry
from ledger.format.guards import GuardRegistry
from ledger.format.note import VerifierKey
from ledger.format.sealing import KeyOpener, SubjectKeys
from ledger.store.read import Log, read_entries, read_head
from ledger.store.roles import Roles
from ledger.store.session import Connection
from ledger.verify.database import verify_database
from ledger.verify.parts import PartsReport, verify_parts
from testkit.ledger.cutting_proxy import CuttingProxy
from testkit.ledger.guard_replay import AGGREGATES

TABLES: Final = (
    "parts",
    "entries",
    "tiles",
    "checkpoints",
    "subjects",
    "aggregates",
    "recorded_events",
    "erased_subjects",
    "erasures_done",
    "confirmations",
    "heads",
    "logs",
)

_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How a process reaches the database: through the wire in the directory `host`, or directly if there is none."""

    id: str
    authority: str
    dsn: str
    host: str | None

    def dsn_of(self, duty: str) -> str:
        """Return the connection string of a role."""
        roles = Roles(self.id)
        installation = Provisioned(id=self.id, authority=self.authority, roles=roles, dsn=self.dsn)
        dsn = installation.as_role(str(getattr(roles, duty)))
        return dsn if self.host is None else make_conninfo(dsn, host=self.host)

    def appender(self, keys: SubjectKeys | None = None) -> Appender:
        """Return an Appender, not started; with keys it seals."""
        sealer = None if keys is None else Sealer(keys)
        return Appender(self.dsn_of("appender"), GuardRegistry(CORE_GUARDS), sealer=sealer)


@dataclass(slots=True, kw_only=True)
class Site:
    """A database for one point at a time. `owner` may do anything, `filler` appends what was there before."""

    database: str
    installation: Provisioned
    proxy: CuttingProxy
    directory: Path
    filler: Appender
    owner: Connection
    auditor: Connection
    projector: Connection

    def reach(self, *, direct: bool) -> Reach:
        """Return how to reach the database."""
        host = None if direct else str(self.proxy.directory)
        known = self.installation
        return Reach(id=known.id, authority=known.authority, dsn=known.dsn, host=host)

    async def connect(self) -> None:
        """Make the connections again: the server was stopped meanwhile."""
        await self.close()
        self.owner, self.auditor, self.projector = await _connections(self.database, self.installation)

    async def close(self) -> None:
        """Close the connections."""
        for connection in (self.owner, self.auditor, self.projector):
            await connection.close()

    async def new_logs(self, count: int) -> list[Log]:
        """Make empty logs."""
        logs = []
        for _ in range(count):
            origin = f"faults.example/log{next(_numbers)}"
            row = await (
                await self.owner.execute(
                    "WITH made AS (INSERT INTO ledger.logs (origin) VALUES (%s) RETURNING log_id), "
                    "head AS (INSERT INTO ledger.heads (log_id) SELECT log_id FROM made), "
                    "confirmed AS (INSERT INTO ledger.confirmations "
                    "(log_id, size, server_started_at, entries_file, written_in) "
                    "SELECT log_id, 0, pg_postmaster_start_time(), pg_relation_filepath('ledger.entries'), "
                    "pg_current_xact_id() FROM made) SELECT log_id FROM made",
                    (origin,),
                )
            ).fetchone()
            assert row is not None
            logs.append(Log(log_id=row[0], origin=origin, tenant=None, reader=None))
        return logs

    async def drop(self) -> None:
        """Remove every log: each point begins with none."""
        async with self.owner.transaction():
            for table in TABLES:
                await self.owner.execute(SQL("DELETE FROM ledger.{}").format(Identifier(table)))

    async def settle(self) -> None:
        """Wait until nothing of the point is on its way to the server, or being carried out there."""
        await self.proxy.quiet()
        working = (
            "SELECT pg_sleep(0.002) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name IN ('lakeproof signer', 'eraser of a point')"
        )
        while await (await self.owner.execute(working)).fetchone():
            pass  # it has lost its wire, and is about to notice

    async def entries(self, log: Log, *, first: int = 0) -> list[Entry]:
        """Return the entries of a log from `first` on, behind the head lock: nothing is still to come."""
        async with self.owner.transaction():
            await self.owner.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log.log_id,))
            size = (await read_head(self.owner, log.log_id)).size
            read = await read_entries(self.owner, log.log_id, from_index=first, to_index=size)
        return [parse_entry(entry) for entry in read]

    async def count(self, table: str, log: Log, condition: str = "true") -> int:
        """Return how many rows of a log there are."""
        query = f"SELECT count(*) FROM ledger.{table} WHERE log_id = %s AND {condition}"  # noqa: S608  (our own)
        (found,) = await (await self.owner.execute(query.encode(), (log.log_id,))).fetchone() or (0,)
        return int(found)

    async def check_invariants(
        self, logs: Sequence[Log], keys: Mapping[str, VerifierKey], parts: SubjectKeys | None
    ) -> list[PartsReport]:
        """Check everything that must always hold of logs, whatever the answers were; `keys` are theirs, by origin."""
        reports = []
        for log in logs:
            await verify_database(self.auditor, log, [keys[log.origin]] if log.origin in keys else [])
            opener = None if parts is None else KeyOpener(parts)
            reports.append(await verify_parts(self.projector, log, opener=opener))
            live = await (await self.owner.execute(AGGREGATES.select, {"log_id": log.log_id})).fetchall()
            query = "SELECT entry FROM ledger.entries WHERE log_id = %s AND is_control ORDER BY index"
            control = [parse_entry(row[0]) for row in await (await self.owner.execute(query, (log.log_id,))).fetchall()]
            assert dict(live) == AGGREGATES.replayed(control), "the guarded rows are not the log's"
        return reports


@asynccontextmanager
async def open_site(database: str, installation: Provisioned, target: Path, directory: Path) -> AsyncIterator[Site]:
    """Yield a site; `target` is the server's socket, `directory` a short one for this site alone."""
    wire = directory / "wire"
    wire.mkdir(exist_ok=True)
    dsn = installation.as_role(installation.roles.appender)
    async with CuttingProxy(wire, target) as proxy, Appender(dsn, GuardRegistry(CORE_GUARDS)) as filler:
        owner, auditor, projector = await _connections(database, installation)
        site = Site(
            database=database,
            installation=installation,
            proxy=proxy,
            directory=directory,
            filler=filler,
            owner=owner,
            auditor=auditor,
            projector=projector,
        )
        try:
            await site.drop()
            yield site
        finally:
            await site.close()


async def _connections(database: str, installation: Provisioned) -> tuple[Connection, Connection, Connection]:
    """Return connections of the owner, the auditor and the projector."""
    roles = installation.roles
    dsns = (database, installation.as_role(roles.auditor), installation.as_role(roles.projector))
    owner, auditor, projector = [await AsyncConnection.connect(dsn, autocommit=True) for dsn in dsns]
    return owner, auditor, projector
