# SPDX-License-Identifier: Apache-2.0
"""
Two tenants of one installation that have lived: what each has bears marks of its own wherever something can be named.

Names bear the mark `<name>`, which the other tenant may guess and send; contents bear `<secret>`, which it never sends.
Whatever shows a tenant's secret, or its id, to the other has read something of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from gateway.admin.application import OPERATOR
from gateway.http import lineage_routes
from lakeproof.projecting import PROJECTIONS
from lakeproof.services import Services, now
from lakeproof.tenants import Founded, found_tenant
from ledger.format.event import format_key
from ledger.format.events import CommitDecided, DetectionKind, Identifier, TriggerReceived, TriggerSource
from ledger.store.read import read_head
from projections.processing.runner import ProjectionRunner
from streams.handler import DeferringHandler
from streams.handlers.alerts import Alerts
from streams.handlers.observe import ObserveCommits
from streams.metadata.reader import MetadataReaderPool
from streams.processing.runner import HandlerRunner
from streams.sinks.webhook import WEBHOOK
from testkit.gateway.application_events import save_note
from testkit.gateway.log_contents import read_bare
from testkit.gateway.sales import properties
from testkit.gateway.view_requests import view_created
from testkit.projections.story import Story
from testkit.servers.gateways import Gateway
from testkit.streams.answering import happened

FAR_AWAY = ("203.0.113.7", 4711)
"""Where requests come from: not the machine itself, which is trusted with more."""


@pytest.fixture(scope="module", autouse=True)
def nobody_projects() -> Iterator[None]:
    """Let no answer about lineage wait for what draws it: no projection follows the log while these tests send."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lineage_routes, "DECISION_TIMEOUT_S", 0.0)
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant, and a client with its key."""

    founded: Founded
    http: httpx.AsyncClient
    name: str
    key_ids: tuple[str, ...] = ()
    size: int = 0
    decision: str = ""

    @property
    def secret(self) -> str:
        """What stands in the tenant's contents, and in nothing that another tenant would think of."""
        return f"{self.name}secret"

    @property
    def alias(self) -> str:
        """The tenant's catalog."""
        return f"{self.name}-vault"

    @property
    def namespace(self) -> str:
        """A namespace of that catalog."""
        return f"{self.name}-sales"

    @property
    def table(self) -> str:
        """A table of that namespace."""
        return f"{self.name}-orders"

    @property
    def policy(self) -> str:
        """A policy."""
        return f"{self.name}-policy"

    @property
    def restriction(self) -> str:
        """A restriction."""
        return f"{self.name}-restriction"

    @property
    def rule(self) -> str:
        """An access rule."""
        return f"{self.name}-rule"

    @property
    def orders(self) -> str:
        """The path of the table."""
        return f"/v1/iceberg/{self.alias}/namespaces/{self.namespace}/tables/{self.table}"

    @property
    def ids(self) -> tuple[str, ...]:
        """The tenant's id, as it may be written."""
        return (self.founded.tenant.hex, str(self.founded.tenant))

    @property
    def marks(self) -> tuple[str, ...]:
        """What tells that something of this tenant was read: as text, and as bytes in hex."""
        texts = (self.secret, *self.ids)
        return (*texts, *(text.encode().hex() for text in texts))


def tenant_client(app: FastAPI, *, key: str | None, client: tuple[str, int] = FAR_AWAY) -> httpx.AsyncClient:
    """Return a client of the application that sends from elsewhere."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False, client=client)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)


def schema(tenant: Tenant) -> dict[str, Any]:
    """A schema whose column's name is the tenant's."""
    column = {"id": 1, "name": f"{tenant.secret}_column", "type": "long", "required": True}
    return {"type": "struct", "fields": [column]}


async def live_over_http(tenant: Tenant) -> None:
    """Do a little of everything that can be done over HTTP."""
    http, name, secret = tenant.http, tenant.name, tenant.secret
    answers = [
        await http.post("/v1/catalogs", json={"alias": tenant.alias, "kind": "builtin"}),
        await http.post(
            f"/v1/iceberg/{tenant.alias}/namespaces",
            json={"namespace": [tenant.namespace], "properties": {"comment": secret}},
        ),
        await http.post(
            f"/v1/iceberg/{tenant.alias}/namespaces/{tenant.namespace}/tables",
            json={"name": tenant.table, "schema": schema(tenant), "properties": {"comment": secret}},
        ),
        await http.post(tenant.orders, json=properties(more=secret)),
        await http.post(
            f"/v1/iceberg/{tenant.alias}/namespaces/{tenant.namespace}/views",
            json=view_created(f"{name}-report", f"SELECT {secret}", schema=schema(tenant)),
        ),
        await http.post(
            "/v1/policies",
            json={"id": tenant.policy, "expression": "!('no' in result.properties)", "message": f"{secret} says no"},
        ),
        await http.put(
            f"/v1/policy-drafts/{tenant.policy}",
            json={"expression": "true", "message": f"{secret} says yes", "reason": secret},
        ),
        await http.post(
            "/v1/restrictions",
            json={
                "id": tenant.restriction,
                "filter": f"row.{secret}_column == 1",
                "schemas": {secret: schema(tenant)},
                "reason": secret,
            },
        ),
        await http.put(
            f"/v1/restriction-drafts/{tenant.restriction}",
            json={"filter": f"row.{secret}_column == 2", "schemas": {secret: schema(tenant)}, "reason": secret},
        ),
        await http.post(
            "/v1/access-rules",
            json={"id": tenant.rule, "effect": "permit", "expression": f"'{secret}' in roles"},
        ),
        await http.post("/v1/lineage", json=run_event(name, secret)),
    ]
    for answer in answers:
        assert answer.status_code < 300, answer.text
    assert (await http.post(tenant.orders, json=properties(no=secret))).status_code == 403


def run_event(name: str, secret: str) -> dict[str, Any]:
    """A run of a job that reads one data set of the tenant's and makes another."""
    return {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-20T12:00:00Z",
        "producer": "https://example.com/etl/1.4",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": "01890000-0000-7000-8000-000000000000"},
        "job": {"namespace": f"{name}-etl", "name": f"{secret}-job"},
        "inputs": [{"namespace": f"{name}-kafka", "name": f"{secret}-read"}],
        "outputs": [{"namespace": f"{name}-kafka", "name": f"{secret}-made"}],
    }


async def live_behind(services: Services, tenant: Tenant) -> None:
    """Let happen what other services tell: scans, findings, alerts, triggers, snapshots that nobody decided on."""
    secret, log_id = tenant.secret, tenant.founded.log_id
    story = Story()
    key = format_key("table", (tenant.alias, tenant.namespace, tenant.table))
    story.committed(key, snapshots=["7"])
    finding = story.scanned("7", (f"{secret}_column", DetectionKind.EMAIL, 92), key=key)
    story.delivered(story.alerted(finding, "7"))
    story.observed("8", key=key)
    identifier = Identifier(alias=tenant.alias, namespace=(tenant.namespace,), name=tenant.table)
    for alias in (f"{tenant.name}-far", f"{secret}-gone"):
        trigger = TriggerReceived(
            alias=alias,
            file_count=0,
            files=(),
            identifier=identifier,
            metadata_location=f"s3://{secret}/1.metadata.json",
            source=TriggerSource.S3,
        )
        story.add(happened(trigger, key=f"catalog:{alias}"))
    for group in story.groups:
        await services.gateway.append(log_id, group)
    await save_note(services, log_id, 1, 2, note=f"{secret}-note")


async def project(services: Services, tenant: Tenant) -> None:
    """Bring the read models, and what streams keep, to the end of the tenant's log."""
    installation, log_id = services.installation, tenant.founded.log_id
    projector = installation.as_role(installation.roles.projector)
    await ProjectionRunner(projector, PROJECTIONS, opener=services.opener).catch_up(
        log_id, await size_of(services, tenant)
    )
    size = await size_of(services, tenant)
    observe = ObserveCommits(
        warehouse=services.installation.settings.warehouse,
        ours={},
        secrets=services.installation.secrets,
        egress=services.installation.settings.upstreams_allowed,
        clock=now,
        reads=MetadataReaderPool(),
    )
    handlers = (Alerts(clock=now, sink=WEBHOOK), DeferringHandler(observe))
    dsn = installation.as_role(installation.roles.streams)
    await HandlerRunner(dsn, handlers, services.gateway.append).catch_up(log_id, size)
    await ProjectionRunner(projector, PROJECTIONS, opener=services.opener).catch_up(
        log_id, await size_of(services, tenant)
    )


async def size_of(services: Services, tenant: Tenant) -> int:
    """Return the size of the tenant's log."""
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        return (await read_head(connection, tenant.founded.log_id)).size


async def new_tenant(gateway: Gateway, name: str) -> Tenant:
    """Found a tenant and let it live."""
    services = gateway.services
    founded = await found_tenant(services, name=name, identity=f"ada@{name}secret.example", roles=[f"{name}secret"])
    tenant = Tenant(founded=founded, http=tenant_client(gateway.app, key=founded.key.secret), name=name)
    await live_over_http(tenant)
    issued = await tenant.http.post("/v1/keys", json={"identity": f"eve@{tenant.secret}.example", "roles": []})
    assert issued.status_code < 300, issued.text
    options = {"uri": f"https://{tenant.secret}.example", "s3.endpoint": f"https://{tenant.secret}.example"}
    await services.gateway.admin.create_catalog(
        founded.log_id, OPERATOR, alias=f"{name}-far", kind="rest", options=options
    )
    await live_behind(services, tenant)
    await project(services, tenant)
    keys = (await tenant.http.get("/v1/keys")).json()["keys"]
    stored = await read_bare(services, founded.log_id)
    # The gateway's own, each alone in its group; those of the story name no rules.
    alone = [one for one in stored if one.entry.type == CommitDecided.TYPE and one.entry.of <= 2]
    decisions = [str(one.entry.group_id) for one in alone if one.decided.policy_set.strip("0")]
    return Tenant(
        founded=founded,
        http=tenant.http,
        name=name,
        key_ids=tuple(key["id"] for key in keys),
        decision=decisions[-1],
    )
