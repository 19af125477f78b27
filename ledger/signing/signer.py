"""
The signer of all logs: it signs what each log has grown to, and never two different histories.

Guarantee: for one log and one size at most one root ever leaves, and each checkpoint that leaves is of a tree that
begins with the one before, whatever crashes or is restored from a backup. How:

1. One signer at a time: a session advisory lock on the database, a file lock on the key directory.
2. What was signed last is known from two sides, the notes beside the key and the table of checkpoints; both bind.
3. The tree at that size, from the stored tiles and leaf hashes, must have the root that was signed then; extended by
   the leaf hashes since, it must be the head's. A log that is shorter, or whose tree differs, is refused, and alone.
4. A note is kept beside the key, on the disk, before it leaves.
5. It leaves by an INSERT into `ledger.checkpoints`. A note that was kept and is missing there is put back.

The tree that was signed last stays in memory, so a round costs one read of what is new in each log that has moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import psycopg
from psycopg import AsyncConnection

from ledger.checkpoint import Checkpoint, format_checkpoint, open_checkpoint
from ledger.errors import BrokenError, Fault, FormatError, LedgerError
from ledger.merkle import Frontier
from ledger.note import VerifierKey, sign_note
from ledger.queries import load_queries
from ledger.read import Connection, read_leaves
from ledger.signing.key_directory import BusyKeyDirectoryError, KeyDirectory, SignedNote
from ledger.stored_tree import read_frontier

_QUERIES: Final = load_queries("ledger", "signing.sql")
_LOCK: Final = 0x6C70_0002
"""Advisory lock: one signer at a time on a database."""

LEAVES_READ_MAX: Final = 65_536
CONNECT_TIMEOUT_S: Final = 5

_log = logging.getLogger(__name__)


class SignerRefusedError(LedgerError):
    """
    A log is not signed, because it does not go on from what was signed last; says what was signed and what was found.

    `signed` is the checkpoint that left last, None if there is none; `size` is that of the log's head.
    """

    def __init__(self, origin: str, *, signed: Checkpoint | None, size: int, found: str) -> None:
        known = f"size {signed.size} with root {signed.root.hex()}" if signed else "nothing"
        super().__init__(
            f"log {origin} is not signed: signed last was {known}, the database holds {size} entries; {found}. "
            "If it was restored from a backup, replay what is missing from an export, or start a log of another origin"
        )
        self.origin = origin
        self.signed = signed
        self.size = size


class Standing(StrEnum):
    """What a signer did in its last round."""

    SIGNING = "signing"
    STANDBY = "standby"  # another one signs
    UNAVAILABLE = "unavailable"  # the database, or the key directory's disk, cannot be reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A checkpoint that has left; `put_back` if it was signed earlier and had not arrived in the table."""

    log_id: int
    checkpoint: Checkpoint
    note: bytes
    put_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogState:
    log_id: int
    origin: str
    size: int
    frontier: bytes
    note: bytes | None


class Signer:
    """
    Signs all logs of one database with one key. `dsn` connects as the signer role.

    `standing` tells whether it signs, `refused` which logs it did not sign in its last round, by origin, and why.
    """

    def __init__(self, dsn: str, keys: KeyDirectory) -> None:
        self.standing = Standing.STANDBY
        self.refused: Mapping[str, SignerRefusedError] = {}
        self._dsn = dsn
        self._keys = keys
        # By log_id: the newest stored note with its checkpoint, and the tree of the checkpoint signed last.
        self._opened: dict[int, SignedNote] = {}
        self._trees: dict[int, tuple[Checkpoint, Frontier]] = {}

    def verifier_key(self, origin: str) -> VerifierKey:
        """
        Return the verifier key of one log.
        """
        return self._keys.verifier_key(origin)

    async def run(self, stop: asyncio.Event, *, interval_s: float) -> None:
        """
        Sign what has moved, every `interval_s` seconds, until `stop` is set; a lost connection is made again.

        Raises:
            KeyDirectoryError: if the key directory is damaged.
        """
        while not stop.is_set():
            try:
                connection = await AsyncConnection.connect(
                    self._dsn, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S, application_name="lakeproof signer"
                )
                async with connection:
                    while not stop.is_set():
                        await self.sign_due(connection)
                        await _pause(stop, interval_s)
            except (psycopg.OperationalError, psycopg.InterfaceError, OSError) as error:
                self._stand(Standing.UNAVAILABLE, str(error))
                await _pause(stop, interval_s)

    async def sign_due(self, connection: Connection) -> list[Signed]:
        """
        Sign every log whose head has moved, and return what has left; nothing while another signer works.

        A log that does not go on from its last note is in `refused` afterwards, and the others are signed.

        Raises:
            KeyDirectoryError: if the key directory is damaged.
            OSError: if the notes cannot be kept; nothing has left then.
            psycopg.Error: if the database fails; what was signed is put back in the next round.
        """
        if not await self._hold_lock(connection):  # 1
            self._stand(Standing.STANDBY, "another process signs the logs of this database")
            return []
        try:
            with self._keys.locked():
                signed, refused = await self._round(connection)
        except BusyKeyDirectoryError as error:
            self._stand(Standing.STANDBY, str(error))
            return []
        self._stand(Standing.SIGNING, "")
        for origin in refused.keys() - self.refused.keys():
            _log.error("%s", refused[origin])
        self.refused = refused
        return signed

    async def _round(self, connection: Connection) -> tuple[list[Signed], dict[str, SignerRefusedError]]:
        notes = self._keys.read_notes()
        signed: list[Signed] = []
        refused: dict[str, SignerRefusedError] = {}
        for state in await _read_states(connection):
            try:
                signed += await self._due(connection, state, notes.get(state.origin))
            except SignerRefusedError as error:
                refused[state.origin] = error
        fresh = {
            new.checkpoint.origin: SignedNote(checkpoint=new.checkpoint, note=new.note)
            for new in signed
            if not new.put_back
        }
        if fresh:
            await _to_the_end(lambda: self._keys.keep_notes({**notes, **fresh}))  # 4
        if signed:
            await connection.execute(_QUERIES["insert_checkpoints"], _columns(signed))  # 5
        return signed, refused

    async def _due(self, connection: Connection, state: _LogState, noted: SignedNote | None) -> list[Signed]:
        """Return the checkpoints of one log that are to leave now: one to put back, a new one, both, or none."""
        stored = self._stored(state)
        known = sorted((note for note in (noted, stored) if note is not None), key=lambda note: note.checkpoint.size)
        last = known[-1].checkpoint if known else None  # 2
        with _refusing(state, last):
            if last is not None and state.size < last.size:
                raise _different(f"{last.size} entries or more", f"{state.size}")
            head = Frontier.parse(state.size, state.frontier)
            tree = await self._tree(connection, state, [note.checkpoint for note in known])
            tree = await _extended(connection, state.log_id, tree, head.size)
            if tree != head:
                raise _different(
                    f"root {tree.root().hex()}, of tiles and leaf hashes", f"{head.root().hex()} in the head"
                )
        due: list[Signed] = []
        if noted is not None and (stored is None or stored.checkpoint.size < noted.checkpoint.size):
            due.append(Signed(log_id=state.log_id, checkpoint=noted.checkpoint, note=noted.note, put_back=True))
        if head.size > (last.size if last else 0):
            checkpoint = Checkpoint(origin=state.origin, size=head.size, root=head.root())
            note = sign_note(format_checkpoint(checkpoint), [self._keys.signer(state.origin)])
            self._trees[state.log_id] = (checkpoint, head)
            due.append(Signed(log_id=state.log_id, checkpoint=checkpoint, note=note, put_back=False))
        return due

    async def _tree(self, connection: Connection, state: _LogState, known: Sequence[Checkpoint]) -> Frontier:
        """Return the tree that was signed last, checked to be what the database holds at that size (3)."""
        if not known:
            return Frontier.empty()
        remembered = self._trees.get(state.log_id)
        if remembered is not None and remembered[0] == known[-1]:
            return remembered[1]
        tree = Frontier.empty()
        for checkpoint in known:
            tree = await read_frontier(connection, state.log_id, checkpoint.size)
            if tree.root() != checkpoint.root:
                raise _different(f"root {checkpoint.root.hex()} at size {checkpoint.size}", tree.root().hex())
        self._trees[state.log_id] = (known[-1], tree)
        return tree

    def _stored(self, state: _LogState) -> SignedNote | None:
        """Return the newest checkpoint in the database; a signature is checked when it is first seen."""
        if state.note is None:
            return None
        opened = self._opened.get(state.log_id)
        if opened is None or opened.note != state.note:
            with _refusing(state, None):
                key = self._keys.verifier_key(state.origin)
                opened = SignedNote(checkpoint=open_checkpoint(state.note, [key], origin=state.origin), note=state.note)
            self._opened[state.log_id] = opened
        return opened

    async def _hold_lock(self, connection: Connection) -> bool:
        row = await (await connection.execute(_QUERIES["hold_signer_lock"], {"lock": _LOCK})).fetchone()
        return row is not None and bool(row[0])

    def _stand(self, standing: Standing, reason: str) -> None:
        if standing != self.standing:
            _log.info("signer: %s%s", standing.value, f", {reason}" if reason else "")
        self.standing = standing


async def _read_states(connection: Connection) -> list[_LogState]:
    rows = await (await connection.execute(_QUERIES["signing_states"])).fetchall()
    return [
        _LogState(
            log_id=log_id,
            origin=origin,
            size=size,
            frontier=bytes(frontier),
            note=None if note is None else bytes(note),
        )
        for log_id, origin, size, frontier, _, note in rows
    ]


async def _extended(connection: Connection, log_id: int, tree: Frontier, size: int) -> Frontier:
    """Return `tree` extended by the leaf hashes that the log has behind it, up to `size`."""
    while tree.size < size:
        to_index = min(tree.size + LEAVES_READ_MAX, size)
        leaves = await read_leaves(connection, log_id, from_index=tree.size, to_index=to_index)
        if len(leaves) != to_index - tree.size:
            raise _different(f"leaf hashes {tree.size} to {to_index - 1}", f"{len(leaves)} of them")
        tree = tree.extended(leaves)
    return tree


@contextmanager
def _refusing(state: _LogState, signed: Checkpoint | None) -> Iterator[None]:
    """Turn whatever is wrong with a log into the refusal to sign it."""
    try:
        yield
    except (BrokenError, FormatError) as error:
        raise SignerRefusedError(state.origin, signed=signed, size=state.size, found=str(error)) from error


def _different(expected: str, found: str) -> BrokenError:
    return BrokenError(Fault.ROOT, where="ledger.heads", expected=expected, found=found)


def _columns(signed: Sequence[Signed]) -> dict[str, list[object]]:
    return {
        "log_ids": [one.log_id for one in signed],
        "sizes": [one.checkpoint.size for one in signed],
        "notes": [one.note for one in signed],
    }


async def _pause(stop: asyncio.Event, interval_s: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), timeout=interval_s)


async def _to_the_end(work: Callable[[], None]) -> None:
    """Run `work` in a thread, to its end even if cancelled: the directory must not be unlocked while it is written."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
