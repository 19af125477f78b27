# SPDX-License-Identifier: Apache-2.0
"""Evidence of what a real client committed through a gateway: the commit, and logs that are signed and anchored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from psycopg import AsyncConnection

from ledger.anchoring.anchor_log import anchor_logs
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing.key_directory import create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import find_log, read_head
from ledger.store.session import Connection
from testkit.gateway.sales import ORDERS, create_orders, properties
from testkit.servers.gateways import Gateway


@asynccontextmanager
async def signed_and_anchored(gateway: Gateway) -> AsyncIterator[Connection]:
    """Yield the auditor's connection to the gateway's logs: signed, anchored in the system log, and signed again."""
    installation = gateway.services.installation
    signer_dsn = installation.as_role(installation.roles.signer)
    keys = create_key_directory(installation.keys)
    signer = CheckpointSigner(signer_dsn, keys)
    async with (
        await AsyncConnection.connect(signer_dsn, autocommit=True) as signing,
        installation.connect(installation.roles.auditor) as auditor,
    ):
        assert await signer.sign_due(signing)

        async def append(log_id: int, group: Group, /) -> Appended | Stale:
            return await gateway.services.gateway.append(log_id, group)

        system = await find_log(auditor, installation.system_origin)
        await anchor_logs(auditor, system, append, open_note=keys.open, clock=lambda: datetime.now(UTC))
        assert await signer.sign_due(signing)
        yield auditor


async def committed(gateway: Gateway) -> int:
    """Let a real client create a table and commit to it; return the index of the last decision."""
    await create_orders(gateway.http)
    assert (await gateway.http.post(ORDERS, json=properties(owner="ada"))).status_code == 200
    async with gateway.services.gateway.database.as_role(gateway.services.installation.roles.auditor) as c:
        return (await read_head(c, gateway.acme.log_id)).size - 2
