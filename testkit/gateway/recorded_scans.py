# SPDX-License-Identifier: Apache-2.0
"""Scans of tables of a test's tenant, as detection records them, and the read model that is made of them."""

from __future__ import annotations

from dataclasses import replace

from ledger.format.events import DetectionKind
from ledger.store.read import read_head
from projections.lineage.projection import LineageProjection
from projections.processing.projection import Projection
from projections.processing.runner import ProjectionRunner
from projections.relational.findings import FindingsProjection
from testkit.gateway.sales import ORDERS, ORDERS_KEY
from testkit.projections.story import Story
from testkit.servers.gateways import Gateway

EMAIL = ("email", DetectionKind.EMAIL, 92)
PHONE = ("phone", DetectionKind.PHONE, 55)
Found = tuple[str, DetectionKind, int]


class Detection:
    """Records scans in the log of a gateway's tenant. The columns that are found have the field ids 1, 2, …."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def scanned(self, snapshot: str, *found: Found, table_uuid: str, key: str = ORDERS_KEY) -> None:
        """Record a scan and what it found."""
        parts, story = self._gateway.services.gateway, Story()
        story.scanned(snapshot, *found, table_uuid=table_uuid, key=key)
        for group in story.groups:
            await parts.append(self._gateway.acme.log_id, replace(group, id=parts.new_group_id()))

    async def size(self) -> int:
        """Return the size of the log."""
        parts = self._gateway.services.gateway
        async with parts.database.as_role(parts.roles.tenant(self._gateway.acme.tenant)) as connection:
            return (await read_head(connection, self._gateway.acme.log_id)).size

    async def projected(self) -> None:
        """Bring the read models of findings and lineage to the end of the log."""
        installation = self._gateway.services.installation
        read_models: list[Projection] = [FindingsProjection(), LineageProjection()]
        runner = ProjectionRunner(installation.as_role(installation.roles.projector), read_models)
        await runner.catch_up(self._gateway.acme.log_id, await self.size())


async def uuid_of_orders(gateway: Gateway, path: str = ORDERS) -> str:
    """Return the uuid of a table."""
    return str((await gateway.http.get(path)).json()["metadata"]["table-uuid"])
