# SPDX-License-Identifier: Apache-2.0
"""
The baseline below events and webhooks: at intervals, read every table of foreign catalogs, and append what the log
does not know yet.

The catalog is read first and the log afterwards. Two things are appended: a trigger for a new metadata file (whether a
snapshot is ungoverned is found out in `streams.handlers.observe`), and `table.identified`, which table a name is. That
is how tables that S3 events report get their names.

The poller reads as any engine does, through the gateway, with an API key that the tenant issued for it and stored as
the secret `poller-key`. A tenant without that secret is not polled.

A round is bounded: in tables per catalog, and the next round continues after them; in time per tenant, and the next
round begins with another of its catalogs. A few tenants are polled at a time. So a catalog that answers slowly, or
never, only takes time from its own tenant.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import httpx
import psycopg

from ledger.errors import GroupMismatchError
from ledger.format.canonical import Json
from ledger.format.event import SYSTEM_ACTOR, derived_group_id, format_key
from ledger.format.events import Identifier, IdentitySource, TableIdentified, TriggerSource, prepare_event
from ledger.format.sequence import Group
from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.errors import SecretMissingError
from projections.lake.storage import SecretStore
from projections.relational.catalogs import BUILTIN, CatalogRow, read_catalogs
from projections.relational.table_names import TableName, read_live_names
from streams.connections import connect_reading
from streams.execution import UNAVAILABLE, UNSTORABLE
from streams.handler import Append
from streams.handlers.decisions import read_groups
from streams.handlers.triggers import metadata_trigger
from streams.sources.catalog_walk import CatalogReader, CatalogReadError, LoadedTable

INTERVAL_S: Final = 30.0
TABLES_MAX: Final = 500
"""Tables of one catalog that are looked at in a round."""
TENANT_TIMEOUT_S: Final = 60.0
"""For all catalogs of one tenant in a round."""
TENANTS_MAX: Final = 4
"""Polled at a time."""
REMEMBERED_MAX: Final = 100_000
"""Tables that are kept in mind as they were last, by name and by uuid, so that the log is not queried again."""
SECRET: Final = "poller-key"  # noqa: S105 - the id of one

_QUERIES: Final = load_queries("streams", "triggers.sql")
T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class PollerCounts:
    """What a poller has done since it was made."""

    rounds: int = 0
    tables: int = 0
    triggers: int = 0
    failures: int = 0


class Poller:
    """
    Polls the catalogs of all tenants; `dsn` works as the streams' role, `http` reaches the gateway (base URL, no key).

    All fields belong to the event loop of `run`. The tasks of a round share `_waiting`, `_known`, `_called` and
    `counts`: each task touches the keys of its own tenant only, and changes happen between awaits.
    """

    def __init__(
        self,
        dsn: str,
        append: Append,
        *,
        http: httpx.AsyncClient,
        secrets: SecretStore,
        clock: Callable[[], datetime],
        interval_s: float = INTERVAL_S,
        tables_max: int = TABLES_MAX,
        tenant_timeout_s: float = TENANT_TIMEOUT_S,
    ) -> None:
        self._dsn = dsn
        self._append = append
        self._http = http
        self._secrets = secrets
        self._clock = clock
        self._interval_s = interval_s
        self._tables_max = tables_max
        self._tenant_timeout_s = tenant_timeout_s
        self._waiting: dict[tuple[int, str], deque[Identifier]] = {}
        self._known: OrderedDict[tuple[int, str], LoadedTable] = OrderedDict()
        self._called: OrderedDict[tuple[int, str], str] = OrderedDict()
        self.counts = PollerCounts()

    async def run(self, stop: asyncio.Event) -> None:
        """
        Poll at intervals until `stop` is set; a catalog that has begun is finished.

        Raises:
            LedgerError: if a log is corrupt, or gone.
        """
        while not stop.is_set():
            try:
                await self.poll(stop)
            except (psycopg.OperationalError, *UNAVAILABLE) as error:
                self.counts.failures += 1
                _log.warning("the poller waits: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._interval_s)

    async def poll(self, stop: asyncio.Event | None = None) -> None:
        """
        Read every catalog once; what cannot be reached is left for the next round.

        Raises:
            psycopg.OperationalError: if the database cannot be reached.
            LedgerError: if a trigger cannot be appended.
        """
        async with connect_reading(self._dsn) as reading:
            of_log: dict[int, list[CatalogRow]] = {}
            for row in await read_catalogs(reading):
                if row.kind != BUILTIN:
                    of_log.setdefault(row.log.log_id, []).append(row)
            turns = asyncio.Semaphore(TENANTS_MAX)
            try:
                async with asyncio.TaskGroup() as tasks:
                    for rows in of_log.values():
                        tasks.create_task(self._poll_tenant(rows, turns, reading, stop))
            except ExceptionGroup as group:
                raise group.exceptions[0] from None
        self.counts.rounds += 1

    async def _poll_tenant(
        self, rows: Sequence[CatalogRow], turns: asyncio.Semaphore, reading: Connection, stop: asyncio.Event | None
    ) -> None:
        """Read the catalogs of one tenant, within the timeout for a tenant."""
        first = self.counts.rounds % len(rows)
        async with turns:
            try:
                async with asyncio.timeout(self._tenant_timeout_s):
                    for row in (*rows[first:], *rows[:first]):
                        if stop is not None and stop.is_set():
                            return
                        walk = await self._walk(row)
                        if walk is not None:
                            await self._poll_catalog(row, walk, reading)
            except TimeoutError:
                self.counts.failures += 1
                _log.warning(
                    "the catalogs of %s took longer than %g s and are polled again later",
                    rows[0].log.origin,
                    self._tenant_timeout_s,
                )

    async def _walk(self, row: CatalogRow) -> CatalogReader | None:
        """Return how the catalog is read, with the tenant's key for the poller; None if there is no such key."""
        if row.log.tenant is None:
            return None
        try:
            key = await asyncio.to_thread(self._secrets.read, row.log.tenant, SECRET)
        except SecretMissingError:
            return None
        return CatalogReader(http=self._http, key=key, alias=row.alias)

    async def _poll_catalog(self, row: CatalogRow, walk: CatalogReader, reading: Connection) -> None:
        """Read the next tables of one catalog; if one cannot be read, the next round continues behind it."""
        waiting = self._waiting.setdefault((row.log.log_id, row.alias), deque())
        try:
            if not waiting:
                waiting.extend(await walk.list_tables())
            for _ in range(min(self._tables_max, len(waiting))):
                table = waiting.popleft()
                # The catalog first, then the log.
                loaded = await walk.load(table)
                self.counts.tables += 1
                if loaded is not None:
                    await self._tell(row, table, loaded, reading)
        except (CatalogReadError, *UNSTORABLE) as error:
            self.counts.failures += 1
            _log.warning("catalog %s of %s is polled again later: %s", row.alias, row.log.origin, error)

    async def _tell(self, row: CatalogRow, table: Identifier, loaded: LoadedTable, reading: Connection) -> None:
        """Tell the log which table the name is, and pull a trigger, unless it knows; both are kept in mind."""
        key = format_key("table", (table.alias, *table.namespace, table.name or ""))
        by_name, by_uuid = (row.log.log_id, key), (row.log.log_id, loaded.table_uuid)
        if self._known.get(by_name) == loaded and self._called.get(by_uuid) == key:
            return
        await self._identify(row, table, key, loaded, reading)
        location = loaded.metadata_location
        group = metadata_trigger(row.alias, location, source=TriggerSource.POLLER, identifier=table, at=self._clock())
        parameters = {"log_id": row.log.log_id, "key": key, "metadata_location": location}
        settled = await (await reading.execute(_QUERIES["settled_location"], parameters)).fetchone()
        if settled is None and group.id not in await read_groups(reading, row.log.log_id, [group.id]):
            # The same file under the name that the table had before: it is known.
            with suppress(GroupMismatchError):
                await self._append(row.log.log_id, group)
                self.counts.triggers += 1
        _remember(self._known, by_name, loaded)
        _remember(self._called, by_uuid, key)

    async def _identify(
        self, row: CatalogRow, table: Identifier, key: str, loaded: LoadedTable, reading: Connection
    ) -> None:
        """
        Tell the log which table a name is, unless it knows.

        As long as the read models have not seen the entry, it is appended again, under the same id: the log has it
        once.
        """
        names = await read_live_names(reading, row.log.log_id, uuids=[loaded.table_uuid], keys=[key])
        if any(
            name.table_uuid == loaded.table_uuid and name.key == key and name.is_current and name.is_certain
            for name in names
        ):
            return
        with suppress(GroupMismatchError):
            await self._append(row.log.log_id, _identified(table, key, loaded, names, at=self._clock()))


def _identified(table: Identifier, key: str, loaded: LoadedTable, names: Sequence[TableName], *, at: datetime) -> Group:
    """
    Return the group that says which table a name is. Its id is of that, and of the entries that said otherwise before:
    a table that is renamed back is reported again.
    """
    data = TableIdentified(
        identifier=table,
        metadata_location=loaded.metadata_location,
        source=IdentitySource.POLLER,
        table_uuid=loaded.table_uuid,
    )
    event = prepare_event(data, key=key, actor=SYSTEM_ACTOR, occurred_at=at)
    before: list[Json] = [*sorted(name.index for name in names)]
    return Group(id=derived_group_id(TableIdentified.TYPE, [key, loaded.table_uuid, before]), then=(event,))


def _remember(memory: OrderedDict[tuple[int, str], T], key: tuple[int, str], value: T) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED_MAX:
        memory.popitem(last=False)
