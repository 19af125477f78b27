# SPDX-License-Identifier: Apache-2.0
"""A database with one log and a key directory, for tests of the signer: what it holds, and what has left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import psycopg
from psycopg import AsyncConnection

from lakeproof.provision import Provisioned
from ledger.format.merkle import Frontier
from ledger.format.note import open_checkpoint
from ledger.format.sequence import SequencedEntry
from ledger.signing.key_directory import KeyDirectory, open_key_directory
from ledger.signing.signer import CheckpointSigner, IssuedCheckpoint
from ledger.store.session import Connection
from testkit.ledger.appending import CONFIRM
from testkit.ledger.logs import TENANT, groups, head_of, put_over, sequenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One log in one database, and the directory that its signer keeps its notes in; others may share that."""

    database: str
    installation: Provisioned
    keys: KeyDirectory
    log_id: int
    origin: str
    owner: Connection
    """A connection of the database's owner, in autocommit mode."""
    left: dict[int, bytes] = field(default_factory=dict)
    """Every note that was ever seen in the table of checkpoints, by size."""

    async def hold(self, rows: Sequence[SequencedEntry]) -> None:
        """Make the log one of exactly these rows."""
        await put_over(self.owner, self.log_id, rows)

    async def clear(self) -> None:
        """Make the database what it was on the first day: the log is empty, never signed, and confirmed."""
        self.left.clear()
        await self.hold([])
        await self.owner.execute("DELETE FROM ledger.checkpoints")
        sizes: dict[int, int] = dict(
            await (await self.owner.execute("SELECT log_id, size FROM ledger.heads")).fetchall()
        )
        await self.owner.execute(CONFIRM, {"log_ids": list(sizes), "sizes": list(sizes.values())})

    def signer(self) -> CheckpointSigner:
        """Return a signer as a process has it that has just started: it remembers nothing."""
        dsn = self.installation.as_role(self.installation.roles.signer)
        return CheckpointSigner(dsn, open_key_directory(self.keys.path))

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """Yield a connection of the signer's role."""
        dsn = self.installation.as_role(self.installation.roles.signer)
        async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
            try:
                yield connection
            finally:
                # A closed session ends a moment later, and until then the next signer would find the lock held.
                with suppress(psycopg.Error):
                    await connection.execute("SELECT pg_advisory_unlock_all()")

    async def sign(self, signer: CheckpointSigner | None = None) -> list[IssuedCheckpoint]:
        """Let a signer, or one that has just started, do one round; return what left of this log."""
        async with self.connected() as connection:
            signed = await (signer or self.signer()).sign_due(connection)
        await self.look()
        return [one for one in signed if one.checkpoint.origin == self.origin]

    async def look(self) -> None:
        """Remember what has left, and check that no other note has left for the same size."""
        for size, note in await self.stored():
            assert self.left.setdefault(size, note) == note, f"two notes have left for size {size}"

    async def stored(self) -> list[tuple[int, bytes]]:
        """Return size and note of the stored checkpoints, smallest first."""
        rows = await self.owner.execute(
            "SELECT size, note FROM ledger.checkpoints WHERE log_id = %s ORDER BY size", (self.log_id,)
        )
        return [(size, bytes(note)) for size, note in await rows.fetchall()]

    async def confirmed(self) -> bool:
        """Return whether the log is confirmed here, for this start of the server."""
        rows = await self.owner.execute("SELECT FROM ledger.confirmed_logs WHERE log_id = %s", (self.log_id,))
        return await rows.fetchone() is not None

    async def unconfirm(self) -> None:
        """Make the database one that another server serves now: none of its confirmations is of this start."""
        await self.owner.execute(
            "UPDATE ledger.confirmations SET server_started_at = server_started_at - interval '1 s'"
        )

    def check_left(self, rows: Sequence[SequencedEntry]) -> None:
        """Check that everything that has left is signed, and of the tree that these rows make at its size."""
        for size, note in self.left.items():
            checkpoint = open_checkpoint(note, [self.keys.verifier_key(self.origin)], origin=self.origin)
            assert (checkpoint.size, checkpoint.root) == (size, head_of(rows[:size]).frontier.root())

    def kept(self) -> int:
        """Return the size of the note next to the key, 0 if there is none."""
        note = open_key_directory(self.keys.path).read_notes().get(self.origin)
        return note.checkpoint.size if note else 0


@asynccontextmanager
async def open_site(
    database: str, installation: Provisioned, keys: KeyDirectory, *, log_id: int
) -> AsyncIterator[Site]:
    """Yield the site of the log of `TENANT`."""
    async with await AsyncConnection.connect(database, autocommit=True) as owner:
        yield Site(
            database=database,
            installation=installation,
            keys=keys,
            log_id=log_id,
            origin=installation.origin(TENANT),
            owner=owner,
        )


def forked(rows: Sequence[SequencedEntry], at: int, count: int, *, origin: str, salt: str) -> list[SequencedEntry]:
    """Return a log that is `rows` up to `at` continued with `count` entries of its own, with its chain recomputed."""
    kept = list(rows[:at])
    follow, _ = sequenced(list(groups(count, first=at, salt=salt)), log=origin, head=head_of(kept))
    return [*kept, *follow]


def root_of_rows(rows: Sequence[SequencedEntry]) -> bytes:
    """Return the root of the tree over these rows."""
    return Frontier.empty().extended(row.leaf for row in rows).root()
