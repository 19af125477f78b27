# SPDX-License-Identifier: Apache-2.0
"""
A tenant with two namespaces, `sales` and `hr`, and two callers: one may see everything, the other `sales` alone. With
scans, findings, an alert and lineage of tables in both, and read models that have all of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import httpx
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from lakeproof.projecting import PROJECTIONS
from lakeproof.services import Services
from ledger.format.event import SYSTEM_ACTOR, format_key
from ledger.format.events import (
    AlertRaised,
    DetectionFound,
    DetectionKind,
    Identifier,
    ScanCompleted,
    prepare_event,
)
from ledger.format.sequence import Appended, Group
from ledger.store.read import read_head
from projections.processing.runner import ProjectionRunner
from testkit.gateway.sales import NAMESPACES, SCHEMA, another_key
from testkit.gateway.table_requests import snapshot
from testkit.servers.gateways import Gateway, open_gateway

SECRET: Final = "salaries"
"""The name of the table in `hr`: it must be in no answer to the second caller."""
RULE: Final = (
    "'seller' in roles && (path == 'sales' || path.startsWith('sales.')) "
    "&& op in ['READ_ENTITY_VALUE', 'READ_CONTENT_KEY']"
)
RULESET: Final = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoViews:
    """`whole` sees everything, `part` the namespace `sales`, `other` is of another tenant; `size` is the log's."""

    gateway: Gateway
    part: httpx.AsyncClient
    other: Gateway
    uuids: dict[str, str]

    @property
    def whole(self) -> httpx.AsyncClient:
        """The client that sees everything."""
        return self.gateway.http

    async def project(self) -> None:
        """Bring the read models to the end of the log."""
        await project(self.gateway)


@asynccontextmanager
async def open_two_views(services: Services, app: FastAPI) -> AsyncIterator[TwoViews]:
    """Yield both callers, and another tenant that has the same names."""
    async with open_gateway(services, app=app) as gateway, open_gateway(services, app=app) as other:
        await gateway.services.gateway.admin.create_access_rule(
            gateway.acme.log_id, OPERATOR, rule_id="sellers", effect="permit", expression=RULE
        )
        key = await another_key(gateway, "sam@acme.example", "seller")
        uuids = {
            "orders": await make_table(gateway, "sales", "orders"),
            SECRET: await make_table(gateway, "hr", SECRET),
        }
        await make_table(other, "sales", "orders")
        for namespace, name in (("sales", "orders"), ("hr", SECRET)):
            await found_in(gateway, namespace, name, uuids[name])
        await report_lineage(gateway)
        await project(gateway)
        await project(other)
        async with gateway.client(key) as part:
            yield TwoViews(gateway=gateway, part=part, other=other, uuids=uuids)


async def make_table(gateway: Gateway, namespace: str, name: str) -> str:
    """Make a table with one snapshot, number 7; return its uuid."""
    tables = f"{NAMESPACES}/{namespace}/tables"
    (await gateway.http.post(NAMESPACES, json={"namespace": [namespace]})).raise_for_status()
    made = (await gateway.http.post(tables, json={"name": name, "schema": SCHEMA})).raise_for_status().json()
    folder = made["metadata-location"].rpartition("/")[0]
    (await gateway.http.post(f"{tables}/{name}", json=snapshot(f"{folder}/snap-7.avro"))).raise_for_status()
    return str(made["metadata"]["table-uuid"])


async def found_in(gateway: Gateway, namespace: str, name: str, uuid: str) -> None:
    """Record a scan of snapshot 7 that found addresses in column `id`, and the alert about it."""
    key = format_key("table", ("lake", namespace, name))
    found = finding(uuid)
    scan = ScanCompleted(
        bytes_read=1,
        cells=10,
        columns=1,
        columns_unread=0,
        files=1,
        findings=1,
        gaps=(),
        identifier=Identifier(alias="lake", namespace=(namespace,), name=name),
        metadata_location="file:///lake/1.metadata.json",
        rows=10,
        rows_sampled=None,
        ruleset=RULESET,
        snapshot="7",
        table_uuid=uuid,
        unread=(),
    )
    group_id = await append(gateway, key, [scan, found])
    alert = AlertRaised(
        column="id",
        confidence_percent=92,
        field_id=1,
        finding=group_id,
        kind=DetectionKind.EMAIL,
        snapshot="7",
        table_uuid=uuid,
    )
    await append(gateway, key, [alert])


def finding(uuid: str) -> DetectionFound:
    """Addresses in column `id` of snapshot 7."""
    return DetectionFound(
        column="id",
        confidence_percent=92,
        field_id=1,
        kind=DetectionKind.EMAIL,
        matches=9,
        ruleset=RULESET,
        snapshot="7",
        table_uuid=uuid,
        values=10,
    )


async def append(gateway: Gateway, key: str, events: Sequence[Any]) -> str:
    """Append events about a key in one group; return its id."""
    parts = gateway.services.gateway
    prepared = tuple(prepare_event(each, key=key, actor=SYSTEM_ACTOR, occurred_at=parts.clock()) for each in events)
    group = Group(id=parts.new_group_id(), then=prepared)
    assert isinstance(await parts.append(gateway.acme.log_id, group), Appended)
    return str(group.id)


async def report_lineage(gateway: Gateway) -> None:
    """Report that orders were made from salaries and from a topic, and a report from orders."""
    for inputs, outputs in (
        ([("lake", f"hr.{SECRET}"), ("kafka://prod", "clicks")], [("lake", "sales.orders")]),
        ([("lake", "sales.orders")], [("lake", "sales.report"), ("lake", "hr.bonus")]),
    ):
        event = {
            "eventType": "COMPLETE",
            "eventTime": "2026-11-20T12:00:00Z",
            "producer": "https://example.com/etl/1.4",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
            "run": {"runId": str(uuid4())},
            "job": {"namespace": "etl", "name": "nightly"},
            "inputs": [{"namespace": namespace, "name": name} for namespace, name in inputs],
            "outputs": [{"namespace": namespace, "name": name} for namespace, name in outputs],
        }
        (await gateway.http.post("/v1/lineage", json=event)).raise_for_status()


async def project(gateway: Gateway) -> None:
    """Bring the read models of a tenant to the end of its log."""
    installation = gateway.services.installation
    async with gateway.services.gateway.database.as_role(gateway.services.gateway.roles.auditor) as connection:
        size = (await read_head(connection, gateway.acme.log_id)).size
    dsn = installation.as_role(installation.roles.projector)
    await ProjectionRunner(dsn, PROJECTIONS, opener=gateway.services.opener).catch_up(gateway.acme.log_id, size)


async def shown(http: httpx.AsyncClient, path: str, **parameters: Any) -> dict[str, Any]:
    """Return the members of an answer that must be 200; parameters end in `_` where Python has the word."""
    query = {name.removesuffix("_"): value for name, value in parameters.items()}
    answer = await http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    members: dict[str, Any] = answer.json()
    return members


async def pages(http: httpx.AsyncClient, path: str, member: str, **parameters: Any) -> list[dict[str, Any]]:
    """Return everything of a list, read page by page."""
    page = await shown(http, path, **parameters)
    found: list[dict[str, Any]] = list(page[member])
    while page["cursor"] is not None:
        page = await shown(http, path, **parameters, cursor=page["cursor"])
        found += page[member]
    return found
