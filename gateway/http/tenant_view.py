# SPDX-License-Identifier: Apache-2.0
"""
One tenant as it is shown: its log and the keys that sign it, how much is in force for it, and its settings.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from gateway.admin.shown import setting_shown
from gateway.commit.gateway import Gateway
from ledger.errors import KeyDirectoryError
from ledger.format import canonical
from ledger.format.entry import parse_entry
from ledger.store.read import QUERIES, read_entries_at, read_head, read_logs


async def tenant_shown(gateway: Gateway, tenant: UUID, log_id: int) -> dict[str, Any]:
    """
    Return a tenant as JSON; the log is read as its reader.

    `founded_at` is when the first entry of the log was recorded. `verifier_keys` are those that may have signed the
    newest checkpoint, the newest first; null if they cannot be read.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    state = await gateway.control.current(log_id)
    named = (await gateway.control.current(gateway.system_log_id)).tenants.get(tenant.hex)
    async with gateway.database.as_role(gateway.roles.tenant(tenant)) as connection:
        (origin,) = [log.origin for log in await read_logs(connection) if log.log_id == log_id]
        head = await read_head(connection, log_id)
        newest = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log_id})).fetchone()
        first = (await read_entries_at(connection, log_id, [0])).get(0)
    signed = 0 if newest is None else newest[0]
    return {
        "id": tenant.hex,
        "name": None if named is None else named.name,
        "log": origin,
        "founded_at": None if first is None else canonical.format_time(parse_entry(first).recorded_at),
        "entries": head.size,
        "checkpoint_size": signed,
        "verifier_keys": _verifier_keys(gateway, origin, signed),
        "catalogs": list(state.catalogs),
        "policies": len(state.at(gateway.clock()).policies),
        "access_rules": len(state.access_rules),
        "keys": len(state.keys),
        "settings": [setting_shown(each) for each in await gateway.admin.list_settings(log_id)],
    }


def _verifier_keys(gateway: Gateway, origin: str, size: int) -> list[str] | None:
    try:
        return [key.format() for key in gateway.receipts.keys_for(origin, size)]
    except KeyDirectoryError:
        return None  # what else is known of a tenant is shown without them
