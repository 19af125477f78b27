# SPDX-License-Identifier: Apache-2.0
"""
Two gateways in a row, over real sockets: the catalog `beyond` of the first is the catalog `lake` of the second.

Both are one application, served once, each to a tenant of its own: neither knows anything of the other but its URL and
a key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog

from gateway.admin.application import OPERATOR
from gateway.commit.metrics import Measures
from lakeproof.services import Services
from lakeproof.tenants import found_tenant
from ledger.format.events import CatalogCreated
from projections.lake.secrets import SecretDirectory
from testkit.gateway.sales import CREATE
from testkit.servers.gateways import Gateway, open_gateway

BEYOND = "beyond"
LOCATED = "located"
TOKEN = "upstream"  # the name of a secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Chained:
    """`near` is the gateway engines use, whose catalog `beyond` is the catalog `lake` of `far`."""

    near: Gateway
    far: Gateway
    near_url: str
    far_url: str
    measures: Measures

    @property
    def http(self) -> httpx.AsyncClient:
        """A client of the near gateway."""
        return self.near.http

    def connect(self, key: str | None = None, *, alias: str = BEYOND) -> Catalog:
        """Return a PyIceberg client of the near gateway, blocking as it is."""
        return RestCatalog("test", uri=self.near_url, warehouse=alias, token=key or self.near.acme.key.secret)

    def connect_directly(self) -> Catalog:
        """Return a PyIceberg client of the far gateway."""
        return RestCatalog("test", uri=self.far_url, warehouse="lake", token=self.far.acme.key.secret)


def secrets_of(services: Services) -> SecretDirectory:
    """Return where the services look for the secrets of catalogs."""
    return SecretDirectory(services.installation.settings.home / "secrets" / "tenants")


async def register(
    gateway: Gateway,
    alias: str,
    uri: str,
    *,
    token: str | None = None,
    secrets: Mapping[str, str] | None = None,
    **options: str,
) -> None:
    """Make the catalog at `uri` reachable under `alias`, as whoever holds `token`; `secrets` are by their options."""
    for name, value in {**(secrets or {}), **({} if token is None else {"token": token})}.items():
        secret = f"{TOKEN}-{alias}" if name == "token" else f"{name}-{alias}"
        secrets_of(gateway.services).write(gateway.acme.tenant, secret, value)
        options[name] = f"secret:{secret}"
    await gateway.services.gateway.admin.create_catalog(
        gateway.acme.log_id, OPERATOR, alias=alias, kind="rest", options={"uri": uri, **options}
    )


@asynccontextmanager
async def open_chain(services: Services, app: FastAPI, url: str) -> AsyncIterator[Chained]:
    """Yield two gateways in a row: the application over `services`, served under `url`, for two new tenants."""
    founded = await found_tenant(
        services, name="far", identity="gateway@acme.example", roles=["data-eng"], alias="lake"
    )
    async with open_gateway(services, founded, app) as far, open_gateway(services, app=app) as near:
        await register(near, BEYOND, url, token=far.acme.key.secret, warehouse="lake")
        yield Chained(near=near, far=far, near_url=url, far_url=url, measures=app.state.measures)


async def register_located(chained: Chained, **more: str) -> None:
    """
    Make the far catalog reachable as `located`, with the place of its files and `more` options.

    The catalog has the namespace `sales` and the table `orders`. Both gateways are of one installation, whose warehouse
    is nobody's place, so no operator could register it so.
    """
    services, log_id = chained.near.services, chained.near.acme.log_id
    lake = f"{chained.far.services.gateway.catalogs.warehouse}/{chained.far.acme.tenant.hex}/lake"
    secrets_of(services).write(chained.near.acme.tenant, LOCATED, chained.far.acme.key.secret)
    options = {"uri": chained.far_url, "token": f"secret:{LOCATED}", "warehouse": "lake", "location": lake, **more}
    event = CatalogCreated(id=LOCATED, version=1, kind="rest", options=options)
    await services.gateway.admin._edits.create(log_id, OPERATOR, event)
    namespaces = f"/v1/iceberg/{LOCATED}/namespaces"
    (await chained.http.post(namespaces, json={"namespace": ["sales"]})).raise_for_status()
    (await chained.http.post(f"{namespaces}/sales/tables", json=CREATE)).raise_for_status()
