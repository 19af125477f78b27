# SPDX-License-Identifier: Apache-2.0
"""
What recovers logs that the signer refuses: how their groups become rows again, and the steps that need more than a log.

It works alone, or while `lakeproof up` runs, which takes no entries for such a log.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from uuid import UUID

from gateway.catalogs.builtin import GUARDS as CATALOG_GUARDS
from gateway.guard_replay import REPLAY_GUARDS, gateway_guards, subject_of
from gateway.identity.key_rows import KEY_GUARDS
from lakeproof.erased_copies import InstalledCopies
from lakeproof.installation import Installation
from lakeproof.provision import create_tenant_log
from lakeproof.services import open_services
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.rerun import Rerun, rerun_erasures
from ledger.erasing.subject_keys import KeyFolder
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.recovering.replay import ReplayRules, core_guards
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from spark_detect.guard_replay import scan_guards
from spark_detect.marks import GUARDS as SCAN_GUARDS


async def as_it_is(group: Group) -> Group:
    """Return `group` as it is: its parts are kept as an append without keys keeps them."""
    return group


def open_replay(seal: Callable[[Group], Awaitable[Group]] = as_it_is) -> ReplayRules:
    """
    Return how the groups of this system become rows again: the guards of all packages, and which of them a group ran.

    `seal` seals the parts that are about a person, as before an append.
    """
    return ReplayRules(
        guards=GuardRegistry((*CORE_GUARDS, *KEY_GUARDS, *CATALOG_GUARDS, *SCAN_GUARDS, *REPLAY_GUARDS)),
        guarded=(core_guards, gateway_guards(os.urandom), scan_guards),
        subject_of=subject_of,
        seal=seal,
    )


async def make_signed_log(
    installation: Installation, auditor: Connection, signer: CheckpointSigner, origin: str, tenant: UUID
) -> Log:
    """
    Make the log of an origin, which belongs to the tenant of that id, if it is not there, and let it be confirmed.

    Raises:
        LedgerError: if it cannot be made or confirmed.
    """
    await asyncio.to_thread(create_tenant_log, installation.admin_dsn, installation, tenant, origin=origin)
    await signer.sign_once()
    return await find_log(auditor, origin)


async def append_once(installation: Installation, log_id: int, group: Group) -> Appended | Stale:
    """
    Append one group; raises as `Appender.append`.
    """
    appender_dsn = installation.as_role(installation.roles.appender)
    async with Appender(appender_dsn, GuardRegistry(CORE_GUARDS)) as appender:
        return await appender.append(log_id, group, timeout_s=installation.settings.append_deadline_s)


async def erase_again(installation: Installation, subject_keys: KeyFolder) -> Rerun:
    """
    Erase again what the logs know to be erased; raises as `rerun_erasures`.
    """
    async with installation.connect(installation.roles.eraser) as eraser:
        return await rerun_erasures(eraser, subject_keys, InstalledCopies(installation=installation))


async def found_successor(installation: Installation, log: Log, successor: Log, identity: str) -> str:
    """
    Make the tenant of a log that continues another. It takes over the tenant's name, which refers to it from now on.

    Returns the text of its first API key, which is for `identity`.

    Raises:
        GatewayError: if the tenant cannot be made.
    """
    if log.tenant is None or successor.tenant is None:
        message = f"expected logs of tenants, found {log.origin} and {successor.origin}"
        raise ValueError(message)
    async with open_services(installation) as services:
        state = await services.gateway.control.current(services.system.log_id)
        known = state.tenants.get(log.tenant.hex)
        issued = await services.gateway.admin.found_tenant(
            successor.log_id,
            system_log_id=services.system.log_id,
            tenant=successor.tenant,
            name=known.name if known else log.tenant.hex,
            identity=identity,
        )
    return issued.secret
