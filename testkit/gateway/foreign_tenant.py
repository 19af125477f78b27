# SPDX-License-Identifier: Apache-2.0
"""
A tenant whose catalog `far` is elsewhere, behind a wire that can fail, and what must hold of it whatever happens.

The same for every upstream: a simulator or a real server. A table in `sales` is made there directly; commits to it go
through the gateway, and each adds one snapshot, so that what happened can be read off the table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Final, Self
from urllib.parse import urlsplit

import httpx

from gateway.commit.gateway import Gateway as GatewayParts
from gateway.reconcile.reconciler import Reconciled, Reconciler
from lakeproof.services import Services
from ledger.format.events import CommitOutcome, CommitSettled
from ledger.store.read import read_head
from testkit.environment import PATIENCE_S
from testkit.gateway.log_contents import read_bare, words
from testkit.gateway.sales import SCHEMA
from testkit.servers.chained import register
from testkit.servers.faulty_wire import FaultyWire, Request
from testkit.servers.gateways import Gateway, open_gateway

ALIAS: Final = "far"
ROOT: Final = f"/v1/iceberg/{ALIAS}/namespaces"
TABLES: Final = f"{ROOT}/sales/tables"
RENAME: Final = f"/v1/iceberg/{ALIAS}/tables/rename"
VIEWS: Final = f"{ROOT}/sales/views"
RENAME_VIEW: Final = f"/v1/iceberg/{ALIAS}/views/rename"
UNKNOWN_STATUSES: Final = frozenset({500, 502, 504})
"""Statuses of CommitStateUnknown in the REST specification: clients keep their files."""
PAST_DEADLINES: Final = timedelta(hours=2)

_snapshot_ids = count(4_611_686_018_427_387_904)
_tables = count(1)


@dataclass(kw_only=True)
class ForeignTenant:
    """A gateway with catalog `far`; `direct` asks the upstream behind its back, below `prefix`."""

    gateway: Gateway
    wire: FaultyWire
    direct: httpx.AsyncClient
    prefix: str
    name: str = "orders"
    """The name of its table."""
    first: int = 0
    """The index in the log that the entries about its table are not below."""
    unrecorded: list[Request] = field(default_factory=list)
    """Mutations that reached the upstream without an approved decision in the log."""
    _approved: int = 0
    _counted: int = 0
    """Approved decisions among the entries below index `_counted`."""

    @property
    def orders(self) -> str:
        """Return the path of the table at the gateway."""
        return f"{TABLES}/{self.name}"

    @property
    def path(self) -> str:
        """Return what the path of every request about the table ends with, whatever the upstream's prefix."""
        return f"/tables/{self.name}"

    @property
    def key(self) -> str:
        """Return the table's key in the log."""
        return f"table:{ALIAS}/sales/{self.name}"

    @property
    def upstream_path(self) -> str:
        """Return the path of the table at the upstream."""
        return f"{self.prefix}/namespaces/sales{self.path}"

    async def with_new_table(self) -> Self:
        """Return it with a table of its own: what is open on others is none of its business."""
        far = replace(self, name=f"orders-{next(_tables)}", first=await self.size())
        await far.make_table()
        return far

    async def make_table(self) -> None:
        """Make the table at the upstream, in place of one that is there."""
        await self.direct.delete(self.upstream_path)
        table = {"name": self.name, "schema": SCHEMA, "stage-create": False}
        made = await self.direct.post(self.upstream_path.rpartition("/")[0], json=table)
        made.raise_for_status()

    @property
    def services(self) -> Services:
        """Return the services that the gateway is made of."""
        return self.gateway.services

    @property
    def log_id(self) -> int:
        """Return the tenant's log."""
        return self.gateway.acme.log_id

    async def look(self, request: Request) -> None:
        """Check that a request that is about to reach the upstream was decided on, if it asks for a change."""
        if not request.is_mutation:
            return
        reached = sum(seen.is_mutation for seen in self.wire.seen)
        new = await read_bare(self.services, self.log_id, after=self._counted)
        new = [one for one in new if one.entry.index >= self._counted]  # the others were counted meanwhile
        self._counted += len(new)
        self._approved += sum(one.words == "approved" for one in new)
        if reached > self._approved:
            self.unrecorded.append(request)

    async def size(self) -> int:
        """Return the size of the tenant's log."""
        async with self.services.gateway.database.as_role(self.services.gateway.roles.projector) as connection:
            return (await read_head(connection, self.log_id)).size

    async def table(self) -> dict[str, Any]:
        """Return the table as the upstream has it: LoadTableResult."""
        answer = await self.direct.get(self.upstream_path)
        answer.raise_for_status()
        loaded: dict[str, Any] = answer.json()
        return loaded

    async def snapshots(self) -> set[str]:
        """Return the ids of the snapshots that the upstream's table has."""
        return {str(each["snapshot-id"]) for each in (await self.table())["metadata"].get("snapshots") or []}

    async def next_append(self, *, properties: dict[str, str] | None = None) -> dict[str, Any]:
        """Return the body of a commit that appends a new snapshot to the table as it is now."""
        return append_to((await self.table())["metadata"], properties=properties)

    async def commit_behind(self, body: dict[str, Any]) -> None:
        """Commit at the upstream itself."""
        answer = await self.direct.post(self.upstream_path, json=body)
        answer.raise_for_status()

    async def words(self) -> list[str]:
        """Return what the log says of the table, in short forms."""
        return await words(self.services, self.log_id, after=self.first, key=self.key)

    async def reconcile(self, clock: Callable[[], datetime] | None = None) -> list[Reconciled]:
        """Settle what is past its deadline, as of a time when everything is; other tenants' decisions are left out."""
        return self.own(await self.reconciler(clock).settle_now())

    def own(self, results: Sequence[Reconciled]) -> list[Reconciled]:
        """Return those of this tenant."""
        return [each for each in results if each.log_id == self.log_id]

    def reconciler(self, clock: Callable[[], datetime] | None = None, **parts: Any) -> Reconciler:
        """Return a reconciler for which every deadline has passed, or one with another clock."""
        return Reconciler(self.exchanged(clock=clock or self.late), **parts)

    def late(self) -> datetime:
        """Return a time after every deadline."""
        return self.services.gateway.clock() + PAST_DEADLINES

    def exchanged(self, **parts: Any) -> GatewayParts:
        """Return the gateway with some of its parts exchanged."""
        return replace(self.services.gateway, **parts)

    async def check(self) -> None:
        """
        Check what must hold at any time, once the reconciler has looked: record and table agree.

        No accepted record without the commit, no commit through the gateway without a record, no mutation at the
        upstream without a decision before it, and nothing called failed, refused or conflicted that is there, except by
        a decision on the same request that was not the one to send it.
        """
        assert not self.unrecorded
        there = await self.snapshots()
        outcomes = await self._outcomes()
        accepted = {
            snapshot for outcome, added in outcomes.values() if outcome is CommitOutcome.ACCEPTED for snapshot in added
        }
        for outcome, added in outcomes.values():
            is_accepted = outcome is CommitOutcome.ACCEPTED
            is_there = bool(set(added) & (there if is_accepted else there - accepted))
            assert is_accepted == is_there, (outcome, added, there)
        is_open = {one for one, (outcome, _) in outcomes.items() if outcome in {None, CommitOutcome.UNKNOWN}}
        assert await self.open_decisions() == is_open

    async def outcomes(self) -> list[tuple[CommitOutcome | None, tuple[str, ...]]]:
        """Return the last outcome of each approved commit, None if there is none yet, and the snapshots it adds."""
        return list((await self._outcomes()).values())

    async def _outcomes(self) -> dict[str, tuple[CommitOutcome | None, tuple[str, ...]]]:
        outcomes: dict[str, tuple[CommitOutcome | None, tuple[str, ...]]] = {}
        for one in await read_bare(self.services, self.log_id, after=self.first, key=self.key):
            if one.words == "approved":
                outcomes[str(one.entry.group_id)] = (None, one.decided.snapshots)
            elif one.entry.type == CommitSettled.TYPE:
                before, snapshots = outcomes[one.settled.decision]
                assert before in {None, CommitOutcome.UNKNOWN}, "an outcome that ends a decision is the last one"
                outcomes[one.settled.decision] = (one.settled.outcome, snapshots)
        return outcomes

    async def open_decisions(self) -> set[str]:
        """Return the decisions that are open."""
        async with self.services.gateway.database.as_role(self.services.gateway.roles.auditor) as connection:
            found = await connection.execute(
                "SELECT decision::text FROM gateway.open_decisions WHERE log_id = %s AND key = %s",
                (self.log_id, self.key),
            )
            return {decision for (decision,) in await found.fetchall()}


def append_to(metadata: Mapping[str, Any], *, properties: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the body of a commit that appends a new snapshot to a table that has `metadata`."""
    parent = (metadata.get("refs") or {}).get("main", {}).get("snapshot-id")
    snapshot = {
        "snapshot-id": next(_snapshot_ids),
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": metadata["last-updated-ms"] + 1,
        "manifest-list": f"{metadata['location']}/metadata/snap.avro",
        "summary": {"operation": "append"},
        "schema-id": 0,
        **({} if parent is None else {"parent-snapshot-id": parent}),
    }
    updates: list[dict[str, Any]] = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {
            "action": "set-snapshot-ref",
            "ref-name": "main",
            "type": "branch",
            "snapshot-id": snapshot["snapshot-id"],
        },
    ]
    if properties:
        updates.append({"action": "set-properties", "updates": dict(properties)})
    required = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}
    return {"requirements": [required], "updates": updates}


@asynccontextmanager
async def open_far(
    services: Services,
    upstream: str,
    *,
    make: Callable[..., ForeignTenant] = ForeignTenant,
    headers: Mapping[str, str] | None = None,
    secrets: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> AsyncIterator[ForeignTenant]:
    """
    Yield a new tenant with catalog `far` at `upstream`, a base URL before /v1, which is empty so far.

    The gateway logs in by `options` and `secrets` of the catalog; the upstream is asked directly with `headers`.
    """
    # Looks up `far`, which is made below: nothing passes the wire before.
    async with (
        FaultyWire(upstream, on_request=lambda request: far.look(request)) as wire,
        open_gateway(services) as gateway,
        httpx.AsyncClient(base_url=upstream, headers=headers, trust_env=False, timeout=PATIENCE_S) as direct,
    ):
        uri = f"{wire.url}{urlsplit(upstream).path}"
        await register(gateway, ALIAS, uri, secrets=secrets, **(options or {}))
        config = (await direct.get("/v1/config")).json()
        prefix = {**config["defaults"], **config["overrides"]}.get("prefix", "")
        far = make(gateway=gateway, wire=wire, direct=direct, prefix=f"/v1/{prefix}".rstrip("/"))
        made = await direct.post(f"{far.prefix}/namespaces", json={"namespace": ["sales"]})
        if made.status_code != httpx.codes.CONFLICT:
            made.raise_for_status()
        await far.make_table()
        yield far
