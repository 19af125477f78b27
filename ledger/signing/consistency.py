# SPDX-License-Identifier: Apache-2.0
"""
Checks that a database is consistent with what was signed: the rule by which the signer signs, confirms or refuses a
log.

A log passes if it extends all that is known of it: its last note next to the key, and the newest checkpoint in the
database. A note is kept before it is published, so the notes are never behind the checkpoints. If they are, or are
missing, the key directory is older than the database, and nobody here knows what was signed last: the database may be a
backup too. Such a log waits until an operator has adopted it (`recovering/recover.py`).

Entries behind the newest checkpoint are compared with the head alone: they are not signed yet.

A log that passed is confirmed: a row says which head was compared with the last note, and for which start of the server
that holds. A database that was failed over to, or restored from a base backup, runs under another start of a server.
One that was restored from a dump or cloned in the same server is another database, or has other files, or rows that
another transaction wrote. So none of its rows counts (the view `confirmed_logs`, migration 0007), and the Appender,
which checks for each batch, appends nothing to its logs. The signer, whose notes lie outside the database, compares and
confirms. It withdraws the confirmation of a log that it refuses. A row is written only where that changes anything, so
a quiet round writes nothing. A log that is not confirmed may hold what was erased since its backup. That is erased
again first (`BeforeConfirming`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.format.checkpoint import Checkpoint
from ledger.format.merkle import Frontier
from ledger.signing.key_directory import KeyDirectory, SignedNote
from ledger.store.queries import load_queries
from ledger.store.read import read_leaves
from ledger.store.session import Connection
from ledger.store.stored_tree import read_frontier

_QUERIES: Final = load_queries("ledger.store", "signing.sql")
LEAVES_READ_MAX: Final = 65_536
RESTORED: Final = (
    "If it was restored from a backup, replay what is missing from an export (`lakeproof ledger recover <log> --from "
    "<directory>`), or start a log of another origin (`--new-origin`)"
)
NOT_ADOPTED: Final = (
    "The key directory is older than the database, or its notes are lost: restore the newest one, or inspect the "
    "log and let the signer adopt it (`lakeproof ledger adopt <log>`)"
)
CLOSED: Final = "It is closed permanently"

BeforeConfirming: TypeAlias = Callable[[Connection, Collection[int]], Awaitable[Mapping[int, LedgerError]]]
"""
Prepares logs (log_ids) for their confirmation; returns which of them must not be confirmed, and why.

It uses the signer's connection, because another might reach another server, and leaves its session as it was.
"""


class SignerRefusedError(LedgerError):
    """
    A log is not signed, because it does not extend what was signed last; says what was signed and what was found.

    `signed` is the checkpoint that was published last, None if there is none; `size` is that of the log's head.
    """

    def __init__(
        self, origin: str, *, signed: Checkpoint | None, size: int, found: str, advice: str = RESTORED
    ) -> None:
        known = f"size {signed.size} with root {signed.root.hex()}" if signed else "nothing"
        super().__init__(
            f"log {origin} is not signed: signed last was {known}, the database holds {size} entries; {found}. {advice}"
        )
        self.origin = origin
        self.signed = signed
        self.size = size


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningState:
    """The end of one log, its newest stored note, and whether it is confirmed for this start of the server."""

    log_id: int
    origin: str
    size: int
    frontier: bytes
    note: bytes | None
    confirmed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsistentLog:
    """A log that extends what was signed: its head, the checkpoint signed last, the newest one in the table."""

    head: Frontier
    last: Checkpoint | None
    stored: Checkpoint | None


class ConsistencyChecker:
    """
    Compares logs with the notes of one key directory; remembers trees, so that a log that has not grown costs nothing.
    """

    def __init__(self, keys: KeyDirectory) -> None:
        # Used by one round of the signer at a time, on the loop or, while the loop waits for it, in one thread.
        self._keys = keys
        self._opened: dict[int, SignedNote] = {}
        """By log_id: the newest stored note with its checkpoint."""
        self._trees: dict[int, tuple[Checkpoint, Frontier]] = {}
        """By log_id: the checkpoint signed last, and its tree."""

    async def check(self, connection: Connection, state: SigningState, noted: SignedNote | None) -> ConsistentLog:
        """
        Return the state of a log, if it extends what was signed.

        Raises:
            SignerRefusedError: if it does not, or if that cannot be known.
            psycopg.Error: if the database fails.
        """
        stored = self._stored(state)
        known = [note.checkpoint for note in (stored, noted) if note is not None]
        last = max(known, key=lambda checkpoint: checkpoint.size, default=None)
        with _refusing(state, last):
            if last is not None and state.size < last.size:
                raise _different(f"{last.size} entries or more", f"{state.size}")
            head = Frontier.parse(state.size, state.frontier)
            tree = await self._tree(connection, state, known)
            tree = await _extended(connection, state.log_id, tree, head.size)
            if tree != head:
                raise _different(
                    f"root {tree.root().hex()}, of tiles and leaf hashes", f"{head.root().hex()} in the head"
                )
        if stored is not None and (noted is None or noted.checkpoint.size < stored.checkpoint.size):
            held = f"a note of size {noted.checkpoint.size}" if noted else "no note of it"
            found = f"the key directory holds {held}, and the database a checkpoint of size {stored.checkpoint.size}"
            raise SignerRefusedError(state.origin, signed=last, size=state.size, found=found, advice=NOT_ADOPTED)
        return ConsistentLog(head=head, last=last, stored=stored.checkpoint if stored else None)

    def remember(self, log_id: int, checkpoint: Checkpoint, tree: Frontier) -> None:
        """Remember the tree of a checkpoint that is about to be published."""
        self._trees[log_id] = (checkpoint, tree)

    async def _tree(self, connection: Connection, state: SigningState, known: Sequence[Checkpoint]) -> Frontier:
        """Return the tree that was signed last, after comparing it with the database at each size that was signed."""
        tree = Frontier.empty()
        remembered = self._trees.get(state.log_id)
        if known and remembered is not None and all(checkpoint == remembered[0] for checkpoint in known):
            return remembered[1]
        for checkpoint in sorted(known, key=lambda checkpoint: checkpoint.size):
            tree = await read_frontier(connection, state.log_id, checkpoint.size)
            if tree.root() != checkpoint.root:
                raise _different(f"root {checkpoint.root.hex()} at size {checkpoint.size}", tree.root().hex())
            self._trees[state.log_id] = (checkpoint, tree)
        return tree

    def _stored(self, state: SigningState) -> SignedNote | None:
        """Return the newest checkpoint in the database; a signature is checked when it is first seen."""
        if state.note is None:
            return None
        opened = self._opened.get(state.log_id)
        if opened is None or opened.note != state.note:
            with _refusing(state, None):
                opened = SignedNote(checkpoint=self._keys.open(state.note, state.origin), note=state.note)
            self._opened[state.log_id] = opened
        return opened


async def read_states(connection: Connection) -> list[SigningState]:
    """
    Return the state of every log, by log_id. `connection` works as the signer.
    """
    rows = await (await connection.execute(_QUERIES["signing_states"])).fetchall()
    return [
        SigningState(
            log_id=log_id,
            origin=origin,
            size=size,
            frontier=bytes(frontier),
            note=None if note is None else bytes(note),
            confirmed=confirmed,
        )
        for log_id, origin, size, frontier, note, confirmed in rows
    ]


async def _extended(connection: Connection, log_id: int, tree: Frontier, size: int) -> Frontier:
    """Return `tree` extended by the leaf hashes that follow it in the log, up to `size`."""
    while tree.size < size:
        to_index = min(tree.size + LEAVES_READ_MAX, size)
        leaves = await read_leaves(connection, log_id, from_index=tree.size, to_index=to_index)
        if len(leaves) != to_index - tree.size:
            raise _different(f"leaf hashes {tree.size} to {to_index - 1}", f"{len(leaves)} of them")
        tree = tree.extended(leaves)
    return tree


@contextmanager
def _refusing(state: SigningState, signed: Checkpoint | None) -> Iterator[None]:
    """Turn any fault of a log into the refusal to sign it."""
    try:
        yield
    except (BrokenError, FormatError) as error:
        raise SignerRefusedError(state.origin, signed=signed, size=state.size, found=str(error)) from error


def _different(expected: str, found: str) -> BrokenError:
    return BrokenError(Fault.ROOT, where="ledger.heads", expected=expected, found=found)


async def no_preparation(_connection: Connection, _log_ids: Collection[int]) -> Mapping[int, LedgerError]:
    """Prepare nothing: for installations where nothing is ever erased."""
    return {}


async def confirm(connection: Connection, sizes: Mapping[int, int]) -> None:
    """
    Confirm that the logs of these log_ids, of these sizes, extend what was signed, in this database and for this start
    of its server.

    `connection` works as the signer, in autocommit mode. It must be the one on which the heads were read, because
    another might reach another server.

    Raises:
        psycopg.Error: if the database fails; the next round tries again.
    """
    if sizes:
        await connection.execute(_QUERIES["confirm"], {"log_ids": list(sizes), "sizes": list(sizes.values())})


async def withdraw(connection: Connection, log_ids: Collection[int]) -> None:
    """
    Withdraw the confirmations of these logs: no batch that begins after this appends to them.

    Raises:
        psycopg.Error: if the database fails.
    """
    if log_ids:
        await connection.execute(_QUERIES["withdraw"], {"log_ids": list(log_ids)})
