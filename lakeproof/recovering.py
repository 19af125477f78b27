"""
Puts logs right that the signer refuses: what every room tells of its guarded rows, and what only the owner may make.

Works beside a running `lakeproof up`, which takes nothing for such a log, or alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from uuid import UUID

from psycopg import AsyncConnection

from gateway.catalogs.builtin import GUARDS as CATALOG_GUARDS
from gateway.guard_replay import REPLAY_GUARDS, gateway_guards, subject_of
from gateway.identity.key_rows import KEY_GUARDS
from lakeproof.erased_copies import InstalledCopies
from lakeproof.erasures_first import signer_of
from lakeproof.installation import Installation
from lakeproof.provision import create_tenant_log
from lakeproof.sealing import open_checked_keys, sealer
from lakeproof.services import now, open_services
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.rerun import Rerun, rerun_erasures
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.recovering.replay import ReplayRules, core_guards
from ledger.recovering.successor import RecoveryDesk
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from spark_detect.guard_replay import scan_guards
from spark_detect.marks import GUARDS as SCAN_GUARDS


async def as_it_is(group: Group) -> Group:
    """Return `group` as it is: its parts are kept as an append without keys keeps them."""
    return group


def open_replay(seal: Callable[[Group], Awaitable[Group]] = as_it_is) -> ReplayRules:
    """
    Return how the groups of this system become rows again: every room's guards, and which of them a group ran.

    `seal` seals the parts that are about a person, as before an append.
    """
    return ReplayRules(
        guards=GuardRegistry((*CORE_GUARDS, *KEY_GUARDS, *CATALOG_GUARDS, *SCAN_GUARDS, *REPLAY_GUARDS)),
        guarded=(core_guards, gateway_guards(os.urandom), scan_guards),
        subject_of=subject_of,
        seal=seal,
    )


@asynccontextmanager
async def open_recovery_desk(installation: Installation, auditor: Connection) -> AsyncIterator[RecoveryDesk]:
    """
    Yield what the commands work with; `auditor` is a connection of that role in autocommit mode.

    Raises:
        KeyDirectoryError: if no `lakeproof up` has made a key yet, or it cannot be used.
        SubjectKeysError: if the keys of sealed parts are not those of this database, or cannot be used.
    """
    settings = installation.settings
    keys = installation.open_keys()
    signer = signer_of(installation, keys)
    appender_dsn = installation.as_role(installation.roles.appender)
    eraser_dsn = installation.as_role(installation.roles.eraser)
    async with await AsyncConnection.connect(eraser_dsn, autocommit=True) as eraser:
        subject_keys = await open_checked_keys(installation, eraser)

    async def make_log(origin: str, tenant: UUID) -> Log:
        await asyncio.to_thread(create_tenant_log, installation.admin_dsn, installation, tenant, origin=origin)
        await signer.sign_once()
        return await find_log(auditor, origin)

    async def append(log_id: int, group: Group) -> Appended | Stale:
        async with Appender(appender_dsn, GuardRegistry(CORE_GUARDS)) as appender:
            return await appender.append(log_id, group, timeout_s=settings.append_deadline_s)

    async def rerun() -> Rerun:
        async with await AsyncConnection.connect(eraser_dsn, autocommit=True) as eraser:
            return await rerun_erasures(eraser, subject_keys, InstalledCopies(installation=installation))

    async def found(log: Log, successor: Log, identity: str) -> str:
        return await _found(installation, log, successor, identity)

    yield RecoveryDesk(
        auditor=auditor,
        appender_dsn=appender_dsn,
        keys=keys,
        signer=signer,
        replay=open_replay(sealer(installation, subject_keys).seal),
        make_log=make_log,
        append=append,
        rerun=rerun,
        found=found,
        clock=now,
    )


async def _found(installation: Installation, log: Log, successor: Log, identity: str) -> str:
    """Make the tenant of a log that goes on from another: of the same name, so that its name means it from now on."""
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
