# SPDX-License-Identifier: Apache-2.0
"""
A tenant whose catalog `far` is an AWS Glue Data Catalog with a store on S3, each behind a wire that can fail. Another
client of Glue, PyIceberg's own, changes its tables behind the gateway's back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import httpx
import orjson
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest

from gateway.admin.application import OPERATOR
from lakeproof.demo.cloud import Cloud
from lakeproof.services import Services
from testkit.environment import PATIENCE_S
from testkit.gateway.foreign_tenant import ALIAS, ForeignTenant
from testkit.gateway.sales import SCHEMA
from testkit.servers.chained import secrets_of
from testkit.servers.faulty_wire import FaultyWire
from testkit.servers.gateways import Gateway, open_gateway
from testkit.servers.glue import seen_as

SECRET: Final = "glue-key"


@dataclass(kw_only=True)
class GlueTenant(ForeignTenant):
    """
    A gateway whose catalog `far` is Glue at `glue` (its URL), with tables in the warehouse of `cloud`; `wire` is before
    Glue, `store_wire` before the store.
    """

    glue: str
    cloud: Cloud
    store_wire: FaultyWire

    @property
    def client(self) -> GlueCatalog:
        """Return the other client."""
        return glue_client(self.glue, self.cloud)

    async def make_table(self) -> None:
        """Make the table as another client does, in place of one that is there."""
        await asyncio.to_thread(self._make_table)

    def _make_table(self) -> None:
        client = self.client
        with suppress(NoSuchTableError):
            client.drop_table(("sales", self.name))
        client.create_table(
            ("sales", self.name),
            Schema.model_validate({"schema-id": 0, **SCHEMA}),
            location=f"{self.cloud.warehouse}/{self.name}",
        )

    async def table(self) -> dict[str, Any]:
        """Return the table as Glue and the store have it, in the form of LoadTableResult."""
        return await asyncio.to_thread(self._table)

    def _table(self) -> dict[str, Any]:
        location: str = self.entry()["Parameters"]["metadata_location"]
        key = location.removeprefix(f"s3://{self.cloud.bucket}/")
        body = self.cloud.client("s3").get_object(Bucket=self.cloud.bucket, Key=key)["Body"].read()
        return {"metadata-location": location, "metadata": orjson.loads(body)}

    def entry(self) -> dict[str, Any]:
        """Return the table as Glue has it; blocks."""
        glue = replace(self.cloud, endpoint=self.glue).client("glue")
        found: dict[str, Any] = glue.get_table(DatabaseName="sales", Name=self.name)["Table"]
        return found

    async def commit_behind(self, body: dict[str, Any]) -> None:
        """Commit as another client does."""
        await asyncio.to_thread(self._commit_behind, body)

    def _commit_behind(self, body: dict[str, Any]) -> None:
        named = {"identifier": {"namespace": ["sales"], "name": self.name}}
        request = CommitTableRequest.model_validate({**named, **body})
        client = self.client
        client.commit_table(client.load_table(("sales", self.name)), request.requirements, request.updates)


@cache
def glue_client(url: str, cloud: Cloud) -> GlueCatalog:
    """Return PyIceberg as a client of Glue itself; making one reads megabytes of JSON."""
    keys = {
        "glue.endpoint": url,
        "glue.region": cloud.region,
        "glue.access-key-id": cloud.access_key_id,
        "glue.secret-access-key": cloud.secret_access_key,
    }
    return GlueCatalog("direct", warehouse=cloud.warehouse, **keys, **cloud.engine_properties())


async def register_glue(gateway: Gateway, alias: str, url: str, cloud: Cloud, **options: str) -> None:
    """Make Glue at `url` reachable under `alias`, with tables in the warehouse of `cloud`."""
    secrets_of(gateway.services).write(gateway.acme.tenant, SECRET, cloud.secret_access_key)
    known = {
        "glue.endpoint": url,
        "glue.region": cloud.region,
        "glue.access-key-id": cloud.access_key_id,
        "glue.secret-access-key": f"secret:{SECRET}",
        "location": cloud.warehouse,
        **cloud.engine_properties(),
        "s3.secret-access-key": f"secret:{SECRET}",
    }
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    await gateway.services.gateway.admin.create_catalog(
        gateway.acme.log_id, OPERATOR, alias=alias, kind="glue", options=known | given
    )


@asynccontextmanager
async def open_glue_tenant(services: Services, glue: str, cloud: Cloud) -> AsyncIterator[GlueTenant]:
    """Yield a new tenant with catalog `far` at Glue."""
    # Looks up `far`, which is made below: nothing passes the wire before.
    async with (
        FaultyWire(glue, on_request=lambda request: far.look(request), seen_as=seen_as) as wire,
        FaultyWire(cloud.endpoint) as store_wire,
        open_gateway(services) as gateway,
        httpx.AsyncClient(base_url=glue, trust_env=False, timeout=PATIENCE_S) as direct,
    ):
        await register_glue(gateway, ALIAS, wire.url, cloud, s3__endpoint=store_wire.url)
        far = GlueTenant(
            gateway=gateway, wire=wire, direct=direct, prefix="", glue=glue, cloud=cloud, store_wire=store_wire
        )
        await asyncio.to_thread(_make_namespace, far.client)
        await far.make_table()
        yield far


def _make_namespace(client: GlueCatalog) -> None:
    with suppress(NamespaceAlreadyExistsError):
        client.create_namespace("sales")
