# SPDX-License-Identifier: Apache-2.0
"""
The names by which people call logs: an origin, a tenant's name or id, or `system`.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ledger.errors import LogUnavailableError, NoSuchLogError
from ledger.store.read import Log, read_logs
from ledger.store.session import Connection

if TYPE_CHECKING:
    from lakeproof.provision import Provisioned

SYSTEM: Final = "system"


async def find_named_log(provisioned: Provisioned, auditor: Connection, name: str) -> Log:
    """
    Return the log that people call `name`; of several tenants of one name, the newest one's.

    Raises:
        NoSuchLogError: if there is none.
        LogUnavailableError: if the names of tenants cannot be read.
    """
    logs = await read_logs(auditor)
    # By its name, not as the log of no tenant: that column can be changed.
    system = next((log for log in logs if log.origin == provisioned.system_origin), None)
    if system is not None and name == SYSTEM:
        return system
    named = {log.origin: log for log in logs} | {log.tenant.hex: log for log in logs if log.tenant is not None}
    found = named.get(name)
    if found is None and system is not None and (tenant := await _newest_tenant(auditor, system, name)) is not None:
        found = named.get(tenant.hex)
    if found is None:
        raise NoSuchLogError(f"log {name!r:.100}: expected an origin, a tenant's name or id, or '{SYSTEM}'")
    return found


async def _newest_tenant(auditor: Connection, system: Log, name: str) -> UUID | None:
    # Only a name needs them: an origin and an id do not.
    from gateway.control.plane import ControlPlane, ControlUnreadableError

    try:
        state = await ControlPlane(lambda: nullcontext(auditor)).current(system.log_id)
    except ControlUnreadableError as error:
        raise LogUnavailableError(str(error)) from error
    named = [tenant for tenant in state.tenants.values() if tenant.name == name]
    return UUID(named[-1].id) if named else None
