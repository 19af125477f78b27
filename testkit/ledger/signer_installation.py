# SPDX-License-Identifier: Apache-2.0
"""A signer at work on a real database, and what an auditor sees of its keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.format.guards import GuardRegistry
from ledger.format.key_history import KeyHistory, follow_keys
from ledger.format.note import VerifierKey, open_note
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing.key_directory import KeyDirectory, open_key_directory
from ledger.signing.key_ring import KeyLife
from ledger.signing.keys import FileKey, read_seed
from ledger.signing.rotation import KeyRotation
from ledger.signing.signer import CheckpointSigner, IssuedCheckpoint
from ledger.store.read import read_entries, read_head
from testkit.lakeproof.operator import Operator, make_operator
from testkit.ledger.appending import NOON, appender_dsn, group
from testkit.ledger.logs import TENANT


class SignerSetup:
    """A signer at work: a database with the system log and one tenant's, and the directory of its keys."""

    def __init__(self, installation: Provisioned, appender: Appender, log_id: int, path: Path) -> None:
        self.installation = installation
        self.appender = appender
        self.log_id = log_id
        self.path = path
        self.system = installation.system_origin
        self.origin = installation.origin(TENANT)
        self.agent: Path | None = None
        self.signer = self.started()

    def open(self) -> KeyDirectory:
        """Return the directory as a process has it that has just started."""
        return open_key_directory(self.path, agent=self.agent)

    def started(self) -> CheckpointSigner:
        return CheckpointSigner(self.installation.as_role(self.installation.roles.signer), self.open())

    def keeper(self, append: Callable[[Group], Awaitable[Appended | Stale]] | None = None) -> KeyRotation:
        return KeyRotation(self.open(), origin=self.system, append=append or self.tell, clock=lambda: NOON)

    async def tell(self, group: Group) -> Appended | Stale:
        return await self.appender.append(1, group)

    async def grow(self) -> list[IssuedCheckpoint]:
        """Append to the tenant's log, and return what the signer, running all the time, then signs."""
        await self.signer.sign_once()
        await self.appender.append(self.log_id, group())
        return await self.signer.sign_once()

    async def history(self, *pinned: VerifierKey) -> KeyHistory:
        """Return the keys as an auditor follows them."""
        dsn = self.installation.as_role(self.installation.roles.auditor)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            size = (await read_head(connection, 1)).size
            entries = await read_entries(connection, 1, from_index=0, to_index=size)
        return follow_keys(entries, pinned, origin=self.system)

    def lives(self) -> list[KeyLife]:
        return [record.life for record in self.open().keys.ring.records]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerSite:
    """A signer at work, and the operator in which its logs are exported, proven and verified."""

    signing: SignerSetup
    operator: Operator
    directory: Path
    database: str

    def first_key(self) -> FileKey:
        """Return the key that the directory was made with."""
        return FileKey.from_seed(read_seed(self.signing.path / "signing-key"))


AnySite = TypeVar("AnySite", bound=SignerSite)


@asynccontextmanager
async def open_site(
    kind: type[AnySite], database: str, installation: Provisioned, directory: Path
) -> AsyncIterator[AnySite]:
    """Yield a site of that kind, with a tenant's log next to the system log."""
    log_id = create_tenant_log(database, installation, TENANT)
    operator = make_operator(database, installation, directory)
    async with Appender(appender_dsn(installation), GuardRegistry(CORE_GUARDS)) as appender:
        signing = SignerSetup(installation, appender, log_id, operator.installation.keys)
        yield kind(signing=signing, operator=operator, directory=directory, database=database)


def signed_by(note: bytes, keys: KeyDirectory, origin: str) -> list[str]:
    """Return the ids of the keys that have signed a note, whatever their life."""
    every = {VerifierKey.ed25519(name=origin, public=record.public): record.key_id for record in keys.keys.ring.records}
    return sorted(every[key] for key in open_note(note, list(every)).verified)
