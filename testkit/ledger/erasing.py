# SPDX-License-Identifier: Apache-2.0
"""What tests of sealing and erasing share: people, keys in a test's own directory, and an Eraser over a database."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.erase import Eraser, ErasureRequest
from ledger.erasing.key_files import LOCK_FILE
from ledger.erasing.sealer import Sealer
from ledger.erasing.subject_keys import KeyFolder, open_key_encryption, open_key_folder
from ledger.format.event import Event, Part, PreparedEvent, prepare
from ledger.format.events import ErasureReason
from ledger.format.guards import GuardRegistry
from ledger.format.sealing import KeyOpener
from ledger.format.sequence import Group
from ledger.store.read import Log, read_logs, read_parts
from ledger.store.session import Connection
from testkit.ledger.appending import NOON, appended, new_id, new_log

ADA, EVE = "ad" * 16, "e0" * 16
ASKED = ErasureRequest(reason=ErasureReason.REQUEST, at=NOON)


def key_folder(directory: Path, kek: str = "kek") -> KeyFolder:
    """Return the keys in a directory, as another process would open them."""
    return open_key_folder(directory / "subjects", open_key_encryption(directory / kek))


@contextmanager
def held(keys: KeyFolder) -> Iterator[None]:
    """Hold the folder of keys as a process does that stands still where it writes."""
    descriptor = os.open(keys.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def about(subject: str | None, payloads: Mapping[str, bytes], *, kind: str = "commit.decided") -> PreparedEvent:
    """Return an event with parts that are about a person."""
    parts = tuple(
        Part(name=name, payload=data, salt=os.urandom(32), subject=subject) for name, data in payloads.items()
    )
    actor = subject or "system"
    return prepare(Event(type=kind, version=1, key="table:lake/t", actor=actor, occurred_at=NOON, data={}, parts=parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A tenant's log whose parts are sealed, and what erases them. `owner` may do anything."""

    installation: Provisioned
    log: Log
    keys: KeyFolder
    appender: Appender
    eraser: Eraser
    connection: Connection
    owner: Connection

    async def tell(self, *events: PreparedEvent) -> int:
        """Append events in a group of their own; return the index of the first."""
        outcome = await self.appender.append(self.log.log_id, Group(id=new_id(), then=events))
        return appended(outcome).indices.start

    async def payloads(self) -> dict[tuple[int, str], bytes]:
        """Return what readers with keys are shown, by index and name."""
        roles = self.installation.roles
        async with await AsyncConnection.connect(self.installation.as_role(roles.projector)) as reader:
            parts = await read_parts(reader, self.log.log_id, from_index=0, to_index=10**6, opener=KeyOpener(self.keys))
        return {(index, name): part.payload for index, named in parts.items() for name, part in named.items()}

    async def count(self, table: str, condition: str = "true") -> int:
        """Return how many rows there are, for anybody who may look."""
        query = f"SELECT count(*) FROM {table} WHERE {condition}"  # noqa: S608  (the tests' own)
        (count,) = await (await self.owner.execute(query)).fetchone() or (0,)
        return int(count)


@asynccontextmanager
async def open_site(database: str, installation: Provisioned, directory: Path) -> AsyncIterator[Site]:
    """Yield a site whose log knows Ada and Eve."""
    log_id = new_log(database, installation)
    roles, keys = installation.roles, key_folder(directory)
    dsn = installation.as_role(roles.appender)
    async with (
        Appender(dsn, GuardRegistry(CORE_GUARDS), sealer=Sealer(keys)) as appender,
        await AsyncConnection.connect(installation.as_role(roles.eraser), autocommit=True) as connection,
        await AsyncConnection.connect(database, autocommit=True) as owner,
    ):
        for actor, identity in ((ADA, "ada@acme.example"), (EVE, "eve@acme.example")):
            await owner.execute("INSERT INTO ledger.subjects VALUES (%s, %s, %s)", (log_id, actor, identity))
        log = next(log for log in await read_logs(owner) if log.log_id == log_id)
        eraser = Eraser(connection, appender, keys, new_group_id=new_id)
        yield Site(
            installation=installation,
            log=log,
            keys=keys,
            appender=appender,
            eraser=eraser,
            connection=connection,
            owner=owner,
        )
