"""
The baseline under events and webhooks: at intervals it looks at every table of catalogs elsewhere, and tells the log of
a metadata file that nobody has told it of.

It reads a catalog first and the log afterwards, and only pulls a trigger: whether a snapshot is ungoverned is found out
as behind any other trigger (`streams.observe`). It reads as any engine does, through the gateway, with an API key that
the tenant has issued to it and that is kept as the tenant's secret `poller-key`. A tenant without one is not polled.

A round is bounded: of each catalog so many tables, and the next round goes on behind them; of each tenant so much time,
and the next round begins with another of its catalogs. A few tenants are polled at a time. So a catalog that answers
slowly, or never, takes that time from its own tenant alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import httpx
import psycopg

from ledger.errors import GroupMismatchError
from ledger.events import Identifier, TriggerSource
from ledger.keys import format_key
from ledger.queries import load_queries
from projections.catalogs import BUILTIN, CatalogRow, read_catalogs
from projections.errors import SecretMissingError
from projections.lake.storage import Secrets
from streams.catalog_walk import CatalogWalk, CatalogWalkError
from streams.connections import Connection, connect_reading
from streams.decisions import read_groups
from streams.handler import Append
from streams.handling import AWAY, UNSTORABLE
from streams.triggers import metadata_trigger

INTERVAL_S: Final = 30.0
TABLES_MAX: Final = 500
"""Tables of one catalog that are looked at in a round."""
TENANT_TIMEOUT_S: Final = 60.0
"""For all catalogs of one tenant in a round."""
TENANTS_MAX: Final = 4
"""Polled at a time."""
REMEMBERED_MAX: Final = 100_000
"""Tables whose last metadata location is kept in mind, so that the log is not asked again."""
SECRET: Final = "poller-key"  # noqa: S105 - the id of one

_QUERIES: Final = load_queries("streams", "triggers.sql")
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
    """

    def __init__(
        self,
        dsn: str,
        append: Append,
        *,
        http: httpx.AsyncClient,
        secrets: Secrets,
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
        self._known: OrderedDict[tuple[int, str], str] = OrderedDict()
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
            except (psycopg.OperationalError, *AWAY) as error:
                self.counts.failures += 1
                _log.warning("the poller waits: %s", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._interval_s)

    async def poll(self, stop: asyncio.Event | None = None) -> None:
        """
        Look once at every catalog; what cannot be reached is left for the next round.

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
        """Look at the catalogs of one tenant, for so long."""
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

    async def _walk(self, row: CatalogRow) -> CatalogWalk | None:
        """Return how the catalog is read, with the tenant's key for the poller; None if there is no such key."""
        if row.log.tenant is None:
            return None
        try:
            key = await asyncio.to_thread(self._secrets.read, row.log.tenant, SECRET)
        except SecretMissingError:
            return None
        return CatalogWalk(http=self._http, key=key, alias=row.alias)

    async def _poll_catalog(self, row: CatalogRow, walk: CatalogWalk, reading: Connection) -> None:
        """Look at the next tables of one catalog; where it cannot be read, the next round goes on behind that."""
        waiting = self._waiting.setdefault((row.log.log_id, row.alias), deque())
        try:
            if not waiting:
                waiting.extend(await walk.list_tables())
            for _ in range(min(self._tables_max, len(waiting))):
                table = waiting.popleft()
                # The catalog first, then the log.
                location = await walk.metadata_location(table)
                self.counts.tables += 1
                if location is not None:
                    await self._tell(row, table, location, reading)
        except (CatalogWalkError, *UNSTORABLE) as error:
            self.counts.failures += 1
            _log.warning("catalog %s of %s is polled again later: %s", row.alias, row.log.origin, error)

    async def _tell(self, row: CatalogRow, table: Identifier, location: str, reading: Connection) -> None:
        """Pull a trigger, unless the log knows this metadata file."""
        key = format_key("table", (table.alias, *table.namespace, table.name or ""))
        if self._known.get((row.log.log_id, key)) == location:
            return
        group = metadata_trigger(row.alias, location, source=TriggerSource.POLLER, identifier=table, at=self._clock())
        asked = {"log_id": row.log.log_id, "key": key, "metadata_location": location}
        settled = await (await reading.execute(_QUERIES["settled_location"], asked)).fetchone()
        if settled is None and group.id not in await read_groups(reading, row.log.log_id, [group.id]):
            # The same file under the name that the table had before: it is known.
            with suppress(GroupMismatchError):
                await self._append(row.log.log_id, group)
                self.counts.triggers += 1
        self._known[row.log.log_id, key] = location
        self._known.move_to_end((row.log.log_id, key))
        if len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
