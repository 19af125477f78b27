# SPDX-License-Identifier: Apache-2.0
"""
Erases people and payload parts, and repeats erasures that were interrupted or that a restored database has lost.

Works while `lakeproof up` runs, or alone: then it confirms the logs first, as `lakeproof up` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import psycopg
from psycopg import AsyncConnection

from gateway.control.plane import ControlPlane
from gateway.errors import GatewayError
from gateway.identity.key_rows import KEY_GUARDS
from gateway.identity.revoking import revoke_keys
from lakeproof.console import say_aside
from lakeproof.erased_copies import InstalledCopies
from lakeproof.installation import Installation
from lakeproof.projecting import PROJECTIONS
from lakeproof.sealing import open_checked_keys
from lakeproof.services import Services, new_group_id, now
from lakeproof.signing import confirm_logs_with_existing_key
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.erase import Eraser, ErasureRequest
from ledger.erasing.execution import reclaim
from ledger.erasing.rerun import read_confirmed_logs, read_unrecorded, rerun_erasures
from ledger.errors import LedgerError
from ledger.format.events import ErasureReason
from ledger.format.guards import GuardRegistry
from ledger.store.read import Log, read_head
from ledger.store.session import Connection
from projections.processing.runner import ProjectionRunner
from streams.connections import connect_storing
from streams.state.dead_letters import TABLE as DEAD_LETTERS
from streams.state.dead_letters import delete_older

AGAIN_S: Final = 20.0
"""Period of the check for erasures whose process died. A check that finds nothing costs milliseconds."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_eraser(installation: Installation, auditor: Connection) -> AsyncIterator[Eraser]:
    """
    Yield what erases from any log, once the logs are confirmed; `auditor` is a connection of that role.

    Raises:
        SubjectKeysError: if the keys of sealed parts cannot be used.
    """
    await confirm_logs_with_existing_key(installation, say_aside)
    appender_dsn = installation.as_role(installation.roles.appender)
    async with (
        installation.connect(installation.roles.eraser) as connection,
        Appender(appender_dsn, GuardRegistry((*CORE_GUARDS, *KEY_GUARDS))) as appender,
    ):
        yield Eraser(
            connection,
            appender,
            await open_checked_keys(installation, connection),
            new_group_id=new_group_id,
            revoke=revoke_keys(ControlPlane(lambda: nullcontext(auditor)), clock=now),
            copies=InstalledCopies(installation=installation),
        )


async def reclaim_erased(installation: Installation, log: Log, index: int) -> None:
    """
    Bring the read models behind the erasure at `index`, then rewrite what held something personal.

    Raises:
        LedgerError: if something that holds it cannot be rewritten now.
    """
    if log.tenant is not None:
        # Of a closed log the entry stands in another one, and its read models learn of it separately.
        async with installation.connect(installation.roles.auditor) as auditor:
            to_index = min(index + 1, (await read_head(auditor, log.log_id)).size)
        projector = installation.as_role(installation.roles.projector)
        await ProjectionRunner(projector, PROJECTIONS, opener=installation.opener).catch_up(log.log_id, to_index)
    async with installation.connect(installation.roles.eraser) as eraser:
        await reclaim(eraser)
    await InstalledCopies(installation=installation).reclaim(log)


async def delete_dead_letters(installation: Installation, log: Log, before: datetime) -> int:
    """
    Delete the messages of a log's tenant that could not be handled before then; return how many.

    They are kept as they came, in the clear: nobody knows whom they are about, so their age alone says when they go.

    Raises:
        psycopg.Error: if the database cannot be reached, or refuses.
    """
    async with connect_storing(installation.as_role(installation.roles.streams)) as connection:
        return await delete_older(connection, log, before)


async def reclaim_dead_letters(installation: Installation) -> None:
    """
    Rewrite the table of dead letters, without what was deleted; it is locked for that time.

    Raises:
        psycopg.Error: if the database cannot be reached, or refuses.
    """
    # As the owner of the database: rewriting a table is more than the streams' role may do with its rows.
    async with await AsyncConnection.connect(installation.admin_dsn, autocommit=True) as owner:
        await owner.execute(f"VACUUM FULL {DEAD_LETTERS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedAgain:
    """How many erasures were carried out again, and of which logs some could not be: by origin, and why."""

    erasures: int
    failed: Mapping[str, LedgerError]


async def erase_again(services: Services) -> ErasedAgain:
    """
    Carry out every erasure that was cut off, or that this database has forgotten.

    Subjects whose keys were destroyed, but of whose erasure the log does not know, are erased through it once more, as
    soon as it is confirmed. A log of which that cannot be done does not keep the others from it.

    Raises:
        SubjectKeysError: if the keys cannot be used.
        GatewayError, psycopg.Error: if the database fails.
    """
    installation = services.installation
    async with installation.connect(installation.roles.eraser) as connection:
        copies = InstalledCopies(installation=services.installation)
        done = await rerun_erasures(connection, services.subject_keys, copies)
        eraser = Eraser(
            connection,
            services.appender,
            services.subject_keys,
            new_group_id=new_group_id,
            revoke=revoke_keys(services.gateway.control, clock=now),
            copies=copies,
        )
        erasures, failed = done.erasures, dict(done.failed)
        to_say = sorted({*done.unrecorded, *await read_unrecorded(connection)})
        logs = {log.log_id: log for log in await services.logs()} if to_say or failed else {}
        taking = await read_confirmed_logs(connection) if to_say else frozenset()
        for log_id, subject in to_say:
            try:
                _check_taking(await eraser.recording_log(logs[log_id]), taking)
                await eraser.erase_subject(
                    logs[log_id], subject, ErasureRequest(reason=ErasureReason.REQUEST, at=now())
                )
                erasures += 1
            except GatewayError as error:  # the control plane, which knows the person's keys
                failed.setdefault(log_id, LedgerError(str(error)))
            except LedgerError as error:
                failed.setdefault(log_id, error)
    return ErasedAgain(erasures=erasures, failed={logs[log_id].origin: error for log_id, error in failed.items()})


def _check_taking(saying: Log, taking: Collection[int]) -> None:
    if saying.log_id not in taking:
        raise LedgerError(
            f"log {saying.origin} is to say what is erased, and is not confirmed: see why the signer refuses it"
        )


async def keep_erasing(services: Services, stop: asyncio.Event) -> None:
    """
    Carry out again what was cut off, every 20 s, until `stop` is set; what fails is said once and tried again.
    """
    reported: set[str] = set()
    while not stop.is_set():
        try:
            failed = {origin: str(error) for origin, error in (await erase_again(services)).failed.items()}
        except (psycopg.Error, OSError, LedgerError, GatewayError) as error:
            failed = {"every log": str(error)}
        for origin in failed.keys() - reported:
            _log.error("what is erased of %s is still there: %s", origin, failed[origin])
        reported = set(failed)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), AGAIN_S)
