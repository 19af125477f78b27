# SPDX-License-Identifier: Apache-2.0
"""
The signer of this installation: its keys and last notes are in the home directory, outside the database.

A server that has just started takes no entries. After a restart, a restore or a failover, a signer first compares every
log with the last note that it signed of it, and repeats erasures. `lakeproof up` has a signer that does so; a command
that is alone on its server runs one round of signing (`confirm_logs`).

The first key is made, or taken from an SSH agent, only on the first start. If the database holds signed checkpoints and
the home has no key, the start is refused: to an auditor, checkpoints signed by another key look like a forged log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime

from psycopg import sql

from lakeproof.erased_copies import InstalledCopies
from lakeproof.errors import ServerError
from lakeproof.installation import Installation
from lakeproof.sealing import open_checked_keys
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.rerun import erase_before_confirming
from ledger.errors import KeyDirectoryError, KeyUnavailableError, LedgerError
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing.consistency import BeforeConfirming
from ledger.signing.key_directory import KeyDirectory, create_key_directory, enter_agent_key, holds_keys
from ledger.signing.key_ring import KeyLife
from ledger.signing.keys import parse_key_id
from ledger.signing.rotation import KeyRotation
from ledger.signing.signer import CheckpointSigner
from ledger.signing.ssh_agent import find_key
from ledger.store.read import QUERIES, Log
from ledger.store.session import Connection


async def confirm_logs(installation: Installation, say: Callable[[str], None]) -> None:
    """
    Run one round of signing, so that a server that has just started takes entries; make the first key if there is none.

    Does nothing if another process signs. Each reason why a log cannot be confirmed is passed to `say`, and the command
    continues: appends to that log are refused.
    """
    if installation.settings.dsn is not None and not holds_keys(installation.keys):
        return  # the user's own server, perhaps seen from a machine where no signer has ever run
    with _saying_why_not(say, KeyDirectoryError, KeyUnavailableError, ServerError):
        await _sign_once(await open_signer(installation), say)


async def confirm_logs_with_existing_key(installation: Installation, say: Callable[[str], None]) -> None:
    """
    Run one round of signing as `confirm_logs` does, but without a key do nothing: a log that was never signed cannot
    have been set back.
    """
    if not holds_keys(installation.keys):
        return
    with _saying_why_not(say, KeyDirectoryError, KeyUnavailableError):
        await _sign_once(make_signer(installation, installation.open_keys()), say)


async def open_signer(installation: Installation) -> CheckpointSigner:
    """
    Return the signer, making its key on the first start.

    Raises:
        KeyDirectoryError: if a key cannot be used, or others can read it.
        KeyUnavailableError: if the settings name a key of an agent that the agent does not have.
        ServerError: if checkpoints were signed and no key is here, or if the settings name a key that does not sign.
    """
    if not holds_keys(installation.keys):
        async with installation.connect(installation.roles.signer) as connection:
            row = await (await connection.execute("SELECT EXISTS (SELECT FROM ledger.checkpoints)")).fetchone()
        if row is None or row[0]:
            raise ServerError(
                f"the database holds signed checkpoints, but {installation.keys} holds no key: "
                "restore that directory from its backup"
            )
        _make_first_key(installation)
    keys = installation.open_keys()
    _check_named(keys, installation.settings.signer_agent_key)
    return make_signer(installation, keys)


def make_signer(installation: Installation, keys: KeyDirectory) -> CheckpointSigner:
    """
    Return a signer of this installation with these keys. Always make signers here.

    This signer repeats the erasures of a log before it confirms the log, so a restored database never brings erased
    content back.
    """
    dsn = installation.as_role(installation.roles.signer)
    return CheckpointSigner(dsn, keys, before_confirming=erase_first(installation))


def erase_first(installation: Installation) -> BeforeConfirming:
    """
    Return the function that repeats erasures over the signer's connection, in the role of the eraser.

    Without the right keys no log is confirmed, because it is unknown which content is erased.
    """

    async def erase(connection: Connection, log_ids: Collection[int]) -> Mapping[int, LedgerError]:
        await connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(installation.roles.eraser)))
        try:
            keys = await open_checked_keys(installation, connection)
            return await erase_before_confirming(connection, keys, log_ids, InstalledCopies(installation=installation))
        except LedgerError as error:
            return dict.fromkeys(log_ids, error)
        finally:
            if not connection.closed:
                await connection.execute("RESET ROLE")  # to the role that it was opened with

    return erase


@asynccontextmanager
async def open_key_rotation(installation: Installation, system: Log, keys: KeyDirectory) -> AsyncIterator[KeyRotation]:
    """Yield a `KeyRotation`, which changes the signer's keys and records each change in the log `system`."""
    appender_dsn = installation.as_role(installation.roles.appender)
    async with Appender(appender_dsn, GuardRegistry(CORE_GUARDS)) as appender:

        async def append(group: Group) -> Appended | Stale:
            timeout_s = installation.settings.append_deadline_s
            return await appender.append(system.log_id, group, timeout_s=timeout_s)

        yield KeyRotation(keys, origin=system.origin, append=append, clock=lambda: datetime.now(UTC))


async def latest_checkpoint_size(connection: Connection, log_id: int) -> int:
    """
    Return the size of the newest signed checkpoint of a log, 0 if there is none.
    """
    row = await (await connection.execute(QUERIES["latest_checkpoint"], {"log_id": log_id})).fetchone()
    return 0 if row is None else int(row[0])


def _make_first_key(installation: Installation) -> None:
    settings = installation.settings
    if settings.signer_agent_key is None:
        create_key_directory(installation.keys)
    elif settings.signer_agent is None:
        raise ServerError(
            "LAKEPROOF_SIGNER_AGENT_KEY names a key of an agent: name its socket in LAKEPROOF_SIGNER_AGENT"
        )
    else:
        enter_agent_key(installation.keys, find_key(settings.signer_agent, parse_key_id(settings.signer_agent_key)))


def _check_named(keys: KeyDirectory, named: str | None) -> None:
    """Check that the key that the settings name signs: no setting may be ignored silently."""
    ring = keys.keys.ring
    signing = [record.key_id for record in ring.records if record.life is not KeyLife.RETIRED]
    if named is not None and named not in signing:
        raise ServerError(
            f"LAKEPROOF_SIGNER_AGENT_KEY is {named}, but what signs is {ring.active.key_id}: correct the setting, or "
            f"rotate to that key (lakeproof ledger keys rotate --agent-key {named})"
        )


@contextmanager
def _saying_why_not(say: Callable[[str], None], *errors: type[Exception]) -> Iterator[None]:
    """Pass one of `errors` to `say` instead of raising it."""
    try:
        yield
    except errors as error:
        say(f"the logs cannot be confirmed: {error}")


async def _sign_once(signer: CheckpointSigner, say: Callable[[str], None]) -> None:
    await signer.sign_once()
    for refusal in signer.refused.values():
        say(str(refusal))
    for origin, error in signer.unconfirmed.items():
        say(f"log {origin} takes no entries: {error}")
