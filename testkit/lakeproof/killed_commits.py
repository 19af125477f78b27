# SPDX-License-Identifier: Apache-2.0
"""
A gateway process of `lakeproof up` that is killed during a commit to a foreign catalog, which is judged on the table as
the last commit of that process left it: before the catalog has shown that table, before the commit, and behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import httpx
import orjson
import psycopg

from ledger.format.events import CommitDecided, CommitDecision, CommitSettled
from projections.entries import read_log_entry
from streams.handlers.decisions import read_decided
from testkit.gateway.foreign_faults import snapshot_of
from testkit.gateway.foreign_tenant import append_to
from testkit.gateway.sales import SCHEMA
from testkit.lakeproof.running_up import TIMEOUT_S, Up, holds_connection
from testkit.servers.faulty_wire import END_OF_HEAD, FaultyWire, Request
from testkit.servers.upstream import Upstream, serve_upstream

ALIAS: Final = "elsewhere"
NAMESPACE: Final = ("sales",)
TABLES: Final = f"/v1/iceberg/{ALIAS}/namespaces/sales/tables"
ATTEMPTS_MAX: Final = 20
"""Where the machine is too slow, the key was not verified a moment ago, or the decision is settled before the kill."""
OPEN_S: Final = 0.8
"""So long a decision is waited for: a second later it would not be open any more."""
OPEN: Final = "SELECT true FROM gateway.open_decisions WHERE %s = ANY (snapshots)"
OF_TABLE: Final = """
SELECT log_id, entry FROM ledger.entries
WHERE type IN ('commit.decided', 'commit.settled') AND key = %s
ORDER BY index
"""


class Moment(StrEnum):
    """When it is killed, as far as the catalog has come to know."""

    ASKED = "the decision is recorded, and the catalog has not shown the table"
    SENT = "the catalog has shown the table, and the commit does not reach it"
    MADE = "the commit is made, and its answer does not arrive"


@dataclass(kw_only=True)
class Killed:
    """A commit whose process was killed, and the next one to the same table."""

    table: str
    snapshot: str
    next_snapshot: str


@dataclass(kw_only=True)
class Elsewhere:
    """An installation with a foreign catalog in this process, which does not answer when it is told so."""

    up: Up
    dsn: str
    key: str
    catalog: Upstream
    held: tuple[Moment, str] | None = None
    """What is not answered: requests to a table."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The methods and tables of the requests about tables that came."""

    async def hold(self, request: Request) -> None:
        """Wait with a request that is to be held, and lose it then."""
        name = request.target.partition("?")[0].rpartition("/tables/")[2]
        self.asked.append((request.method, name))
        if self.held is None or self.held[1] != name:
            return
        moment = self.held[0]
        if request.method != ("GET" if moment is Moment.ASKED else "POST"):
            return
        if moment is Moment.MADE:
            self.catalog.commit(NAMESPACE, name, orjson.loads(request.data.partition(END_OF_HEAD)[2]))
        self.reached.set()
        await self.lost.wait()
        raise ConnectionResetError

    async def kill_at(self, moment: Moment) -> Killed:
        """Kill the process of a commit at a moment; the next commit is made by a process that runs."""
        for attempt in range(ATTEMPTS_MAX):
            table = f"{moment.name.lower()}-{attempt}"
            self.catalog.create_table(NAMESPACE, {"name": table, "schema": SCHEMA})
            if (snapshot := await self._attempt(moment, table)) is not None:
                break
        else:
            raise AssertionError(f"no process could be killed when {moment}")
        # Whatever process it is that answers, and whether the one that was killed is back or not.
        async with self._client() as client:
            body = append_to(self.catalog.table(NAMESPACE, table).metadata)
            (await client.post(f"{TABLES}/{table}", json=body)).raise_for_status()
        return Killed(table=table, snapshot=snapshot, next_snapshot=snapshot_of(body))

    async def _attempt(self, moment: Moment, table: str) -> str | None:
        """Return the snapshot of the commit; None if its decision was not open when its process died."""
        async with self._client() as client:
            first = await client.post(f"{TABLES}/{table}", json=append_to(self._metadata(table)))
            first.raise_for_status()
            name, body = self._process_of(first), append_to(self._metadata(table))
            self.reached, self.lost, self.held = asyncio.Event(), asyncio.Event(), (moment, table)
            committing = asyncio.create_task(client.post(f"{TABLES}/{table}", json=body))
            try:
                await asyncio.wait_for(self.reached.wait(), TIMEOUT_S)
                if not await self._is_open(snapshot_of(body)):
                    return None
                await asyncio.to_thread(self.up.kill, name)
                await asyncio.wait([committing], timeout=TIMEOUT_S)
                assert isinstance(committing.exception(), httpx.TransportError), "the client learns nothing"
            finally:
                self.held = None
                self.lost.set()
                await asyncio.wait([committing])
        return snapshot_of(body) if await self._is_open(snapshot_of(body)) else None

    async def _is_open(self, snapshot: str) -> bool:
        """Tell whether a decision that names a snapshot is open, or comes to be in time."""
        end_s = asyncio.get_running_loop().time() + OPEN_S
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            while await (await connection.execute(OPEN, (snapshot,))).fetchone() is None:
                if asyncio.get_running_loop().time() > end_s:
                    return False
                await asyncio.sleep(0.005)
        return True

    def _metadata(self, table: str) -> dict[str, Any]:
        return self.catalog.table(NAMESPACE, table).metadata

    def _client(self) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.up.url, headers=headers, trust_env=False, timeout=TIMEOUT_S)

    def _process_of(self, answer: httpx.Response) -> str:
        """Return the gateway process that holds the connection of an answer."""
        port = int(answer.extensions["network_stream"].get_extra_info("client_addr")[1])
        (name,) = [
            name
            for name, pid in self.up.processes().items()
            if name.startswith("gateway") and holds_connection(pid, port=self.up.port, client_port=port)
        ]
        return name

    async def outcomes(self, table: str) -> dict[str, str | None]:
        """Return the last outcome of each approved decision on a table, by the snapshot that it names."""
        outcomes: dict[str, str | None] = {}
        snapshots: dict[str, str] = {}
        async with await psycopg.AsyncConnection.connect(self.dsn) as connection:
            rows = await (await connection.execute(OF_TABLE, (f"table:{ALIAS}/sales/{table}",))).fetchall()
        for item in (read_log_entry(bytes(stored), {}) for _, stored in rows):
            match item.event:
                case CommitDecided(decision=CommitDecision.APPROVED, snapshots=(snapshot,)):
                    snapshots[str(item.entry.group_id)] = snapshot
                    outcomes[snapshot] = None
                case CommitSettled() as settled:
                    outcomes[snapshots[settled.decision]] = settled.outcome.value
                case other:
                    raise AssertionError(f"expected approved commits alone, found {other}")
        return outcomes

    async def settled(self, table: str) -> dict[str, str | None]:
        """Return the outcomes once the reconciler, which looks by itself, has found all of them out."""
        async with asyncio.timeout(TIMEOUT_S):
            while {None, "unknown"} & set((outcomes := await self.outcomes(table)).values()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return outcomes

    async def approved(self, table: str) -> frozenset[str]:
        """Return the snapshots of the table that the log approves, of those that any decision on it names."""
        named = list(await self.outcomes(table))
        uuid = str(self._metadata(table)["table-uuid"])
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            row = await (await connection.execute(OF_TABLE, (f"table:{ALIAS}/sales/{table}",))).fetchone()
            assert row is not None
            return (await read_decided(connection, row[0], table_uuid=uuid, snapshots=named)).snapshots

    def snapshots(self, table: str) -> set[str]:
        """Return the snapshots that the table has."""
        return {str(each["snapshot-id"]) for each in self._metadata(table)["snapshots"]}


@asynccontextmanager
async def open_elsewhere(up: Up, *, dsn: str, key: str) -> AsyncIterator[Elsewhere]:
    """Yield a foreign catalog of the tenant whose key that is; `dsn` is the owner's."""
    catalog = Upstream()
    catalog.create_namespace(NAMESPACE, {})
    elsewhere = Elsewhere(up=up, dsn=dsn, key=key, catalog=catalog)
    async with serve_upstream(catalog) as url, FaultyWire(url, on_request=elsewhere.hold) as wire:
        async with elsewhere._client() as client:
            registered = {"alias": ALIAS, "kind": "rest", "options": {"uri": wire.url}}
            (await client.post("/v1/catalogs", json=registered)).raise_for_status()
        yield elsewhere
