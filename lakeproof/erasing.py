"""
Erases people and payload parts of this installation, and runs again what a restored database has forgotten.

Works beside a running `lakeproof up`, or alone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial

from psycopg import AsyncConnection, sql

from gateway.control import ControlPlane
from gateway.identity.key_rows import KEY_GUARDS
from gateway.identity.revoking import revoke_keys
from lakeproof.foundation import Foundation
from lakeproof.projecting import PROJECTIONS
from lakeproof.sealing import open_checked_keys
from lakeproof.services import Services, new_group_id, now
from ledger.append import CORE_GUARDS, Appender
from ledger.erase import Asked, Eraser, reclaim
from ledger.erasing_desk import ErasingDesk
from ledger.events import ErasureReason
from ledger.guards import GuardRegistry
from ledger.read import Connection, Log
from ledger.rerun import rerun_erasures
from ledger.sealing import KeyOpener, SubjectKeys
from projections.personal import personal_tables
from projections.runner import Runner


@asynccontextmanager
async def open_erasing_desk(foundation: Foundation, auditor: Connection) -> AsyncIterator[ErasingDesk]:
    """
    Yield what the commands work with; `auditor` is a connection of that role in autocommit mode.

    Raises:
        SubjectKeysError: if the keys cannot be used.
    """
    installation = foundation.installation
    appender_dsn = installation.as_role(installation.roles.appender)
    async with (
        _as_eraser(foundation) as connection,
        Appender(appender_dsn, GuardRegistry((*CORE_GUARDS, *KEY_GUARDS))) as appender,
    ):
        keys = await open_checked_keys(foundation, connection)
        control = ControlPlane(lambda: nullcontext(auditor))
        eraser = Eraser(connection, appender, keys, new_group_id=new_group_id, revoke=revoke_keys(control, clock=now))
        forget = partial(_reclaim, foundation, connection, keys)
        yield ErasingDesk(connection=connection, eraser=eraser, reclaim=forget, clock=now)


async def erase_again(services: Services) -> int:
    """
    Carry out every erasure that this database has forgotten, before anything is served from it; return how many.

    Subjects whose keys were destroyed, but of whose erasure the log does not know, are erased through it once more.

    Raises:
        LedgerError: if that cannot be done: then nothing may be served.
    """
    async with _as_eraser(services.foundation) as connection:
        done = await rerun_erasures(connection, services.subject_keys)
        eraser = Eraser(
            connection,
            services.appender,
            services.subject_keys,
            new_group_id=new_group_id,
            revoke=revoke_keys(services.house.control, clock=now),
        )
        logs = {log.log_id: log for log in await services.logs()} if done.unrecorded else {}
        for log_id, subject in done.unrecorded:
            await eraser.erase_subject(logs[log_id], subject, Asked(reason=ErasureReason.REQUEST, at=now()))
    return done.erasures + len(done.unrecorded)


async def _reclaim(foundation: Foundation, connection: Connection, keys: SubjectKeys, log: Log, index: int) -> None:
    """Bring the read models behind the erasure at `index`, then write anew what held something personal."""
    installation = foundation.installation
    projector = installation.as_role(installation.roles.projector)
    if log.tenant is not None:
        await Runner(projector, PROJECTIONS, opener=KeyOpener(keys)).catch_up(log.log_id, index + 1)
    await reclaim(connection)
    async with await AsyncConnection.connect(projector, autocommit=True) as reading:
        for schema, table in await personal_tables(reading, log):
            await reading.execute(sql.SQL("VACUUM FULL {}").format(sql.Identifier(schema, table)))


@asynccontextmanager
async def _as_eraser(foundation: Foundation) -> AsyncIterator[Connection]:
    installation = foundation.installation
    dsn = installation.as_role(installation.roles.eraser)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection
