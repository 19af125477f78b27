# SPDX-License-Identifier: Apache-2.0
"""A log in a database that is signed at whichever size a test asks for, to make proofs of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned, create_tenant_log
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.merkle import root_of
from ledger.format.note import Ed25519Signer, sign_note
from ledger.store.read import Log, find_log
from ledger.store.session import Connection
from testkit.ledger.logs import TENANT, plain_rows, put


@dataclass(frozen=True, slots=True, kw_only=True)
class SignerLog:
    """A log with its leaf hashes, its signer, and the connection that proofs are made over."""

    database: str
    connection: Connection
    log: Log
    leaves: list[bytes]
    signer: Ed25519Signer
    roots: dict[int, bytes] = field(default_factory=dict)

    def checkpoint(self, size: int) -> Checkpoint:
        """Return the checkpoint of the log as it was at that size."""
        root = self.roots[size] = self.roots.get(size) or root_of(self.leaves[:size])
        return Checkpoint(origin=self.log.origin, size=size, root=root)

    def sign(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint the only one of the database."""
        note = sign_note(format_checkpoint(checkpoint), [self.signer])
        with psycopg.connect(self.database, autocommit=True) as owner:
            owner.execute("DELETE FROM ledger.checkpoints")
            row = (self.log.log_id, checkpoint.size, note)
            owner.execute("INSERT INTO ledger.checkpoints VALUES (%s, %s, %s)", row)

    def keep_roots(self) -> None:
        """Keep beside each complete tile its root, as the Appender does."""
        with psycopg.connect(self.database, autocommit=True) as owner:
            for level, tile, hashes in owner.execute("SELECT level, tile, hashes FROM ledger.tiles").fetchall():
                root = root_of([hashes[at : at + 32] for at in range(0, len(hashes), 32)])
                owner.execute("UPDATE ledger.tiles SET root = %s WHERE level = %s AND tile = %s", (root, level, tile))


@asynccontextmanager
async def open_signer_log(database: str, installation: Provisioned, size: int) -> AsyncIterator[SignerLog]:
    """Write a log of so many plain entries for a new tenant."""
    log_id = create_tenant_log(database, installation, TENANT)
    origin = installation.origin(TENANT)
    rows = plain_rows(size, log=origin)
    await put(database, log_id, rows)
    dsn = installation.as_role(installation.roles.auditor)
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield SignerLog(
            database=database,
            connection=connection,
            log=await find_log(connection, origin),
            leaves=[row.leaf for row in rows],
            signer=Ed25519Signer.from_seed(name=origin, seed=bytes(range(32))),
        )
