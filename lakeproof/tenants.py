# SPDX-License-Identifier: Apache-2.0
"""
Creates a tenant: its log and reader role (as the owner of the database), then its first entries (as the gateway).

It is safe to repeat after a crash: the log exists or not, and the first entries are one group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import psycopg

from gateway.admin.application import OPERATOR, IssuedKey
from gateway.errors import NotFoundError
from lakeproof.errors import ServerError
from lakeproof.provision import create_tenant_log
from lakeproof.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class Founded:
    """A tenant that was just created; `key` is shown once."""

    tenant: UUID
    log_id: int
    origin: str
    key: IssuedKey


async def found_tenant(
    services: Services, *, name: str, identity: str, roles: Sequence[str] = (), alias: str | None = None
) -> Founded:
    """
    Create a tenant with a log, its first API key (for `identity`), and, with an `alias`, a built-in catalog.

    Raises:
        GatewayError: if a name is not of its form, or the log cannot be written.
        ServerError: if the database refuses to make the log.
    """
    installation = services.installation
    tenant = uuid4()
    try:
        log_id = await asyncio.to_thread(create_tenant_log, installation.admin_dsn, installation, tenant)
    except psycopg.Error as error:
        raise ServerError(f"the log of tenant {name} cannot be made ({error}): check the database") from error
    admin = services.gateway.admin
    key = await admin.found_tenant(
        log_id, system_log_id=services.system.log_id, tenant=tenant, name=name, identity=identity, roles=roles
    )
    if alias is not None:
        await admin.create_catalog(log_id, OPERATOR, alias=alias, kind="builtin", options={})
    return Founded(tenant=tenant, log_id=log_id, origin=installation.origin(tenant), key=key)


async def find_tenant(services: Services, name: str) -> tuple[UUID, int]:
    """
    Return the id and the log of the tenant of that name (or id in hex); of several, the newest.

    Raises:
        NotFoundError: if there is none.
    """
    state = await services.gateway.control.current(services.system.log_id)
    named = [tenant for tenant in state.tenants.values() if name in {tenant.name, tenant.id}]
    logs = {log.tenant: log.log_id for log in await services.logs()}
    if not named or (tenant := UUID(named[-1].id)) not in logs:
        known = ", ".join(sorted({tenant.name for tenant in state.tenants.values()})) or "none"
        raise NotFoundError(f"tenant {name!r:.80} does not exist; known: {known:.400}", kind="NotFoundException")
    return tenant, logs[tenant]


async def find_tenant_log(services: Services, name: str) -> int:
    """
    Return the log of a tenant; raises as `find_tenant`.
    """
    return (await find_tenant(services, name))[1]
