# SPDX-License-Identifier: Apache-2.0
"""
The folders of a tenant's built-in catalogs, those of retired ones included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.catalogs.catalog_places import LOCATION
from gateway.catalogs.registry import BUILTIN
from gateway.commit.gateway import Gateway
from gateway.tenant_logs import TenantLogs
from ledger.format.entry import parse_entry
from ledger.format.events import CatalogCreated, from_data
from ledger.store.queries import load_queries
from ledger.store.read import Log

_QUERIES: Final = load_queries("gateway", "purges.sql")


async def catalog_folders(gateway: Gateway, logs: TenantLogs, log: Log) -> Mapping[str, Sequence[str]]:
    """
    Return the folders of the tenant's built-in catalogs by alias, of retired ones while nobody else has them.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    where = {"log_id": log.log_id}
    async with logs.reading(log) as connection:
        rows = await (await connection.execute(_QUERIES["catalogs"], where)).fetchall()
    async with gateway.database.as_role(gateway.roles.auditor) as connection:
        held = {alias for (alias,) in await (await connection.execute(_QUERIES["held_places"], where)).fetchall()}
    folders: dict[str, Sequence[str]] = {}
    for (data,) in rows:
        catalog = from_data(CatalogCreated, parse_entry(bytes(data)).data)
        if catalog.kind == BUILTIN and log.tenant is not None:
            location = catalog.options.get(LOCATION)
            own = gateway.catalogs.folder(log.tenant, catalog.id)
            has_place = location is not None and catalog.id in held
            folders[catalog.id] = (own, str(location).rstrip("/")) if has_place else (own,)
    return folders
