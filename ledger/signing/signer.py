# SPDX-License-Identifier: Apache-2.0
"""
The signer of all logs: it signs checkpoints of growing logs, and never two different histories.

Guarantee: for one log and one size at most one root is ever published, and each published checkpoint is of a tree that
extends the one before, whatever crashes or is restored from a backup. How:

1. One signer at a time: a session advisory lock on the database, a file lock on the key directory.
2. Each log is compared with what was signed last: the note next to the key, and the newest row of checkpoints
   (`consistency.py`). A log that does not extend it, or is closed, is refused, and the others are signed.
3. A log that passed is confirmed for this start of the server, once everything erased from it is erased again. A log
   that did not pass loses its confirmation (`consistency.py`).
4. A note, signed by every key that signs now (`rotation.py`), is forced to the disk, next to the keys, before it
   is published.
5. It is published by an INSERT into `ledger.checkpoints`. A note that was kept and is missing there is put back.

The tree that was signed last stays in memory, so a round costs one read of the new leaf hashes in each log that has
grown.

A note whose row is missing may never have arrived: the signer died in between, and puts it back. If it had arrived, the
row was removed. So the signer records, in a file next to its notes, which checkpoints have arrived. The file is written
without waiting for the disk: after a power cut it may list fewer, never more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import psycopg

from ledger.errors import BusyKeyDirectoryError, KeyUnavailableError, LedgerError
from ledger.format import canonical
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.continuation import successor_origin
from ledger.format.note import VerifierKey, sign_note
from ledger.signing.consistency import (
    CLOSED,
    BeforeConfirming,
    ConsistencyChecker,
    ConsistentLog,
    SignerRefusedError,
    SigningState,
    confirm,
    no_preparation,
    read_states,
    withdraw,
)
from ledger.signing.key_directory import KeyDirectory, SignedNote
from ledger.store.notifications import CHECKPOINT_REQUESTED, CHECKPOINT_SIGNED
from ledger.store.queries import load_queries
from ledger.store.session import Connection, Outage, connect_service

_QUERIES: Final = load_queries("ledger.store", "signing.sql")
_LOCK: Final = 0x6C70_0002
"""Advisory lock: one signer at a time on a database."""
UNAVAILABLE: Final = (psycopg.Error, OSError, KeyUnavailableError)
"""Errors after which it tries again: of the database, the key directory's disk, the agent that holds a key."""
ROUND_PAUSE_S: Final = 0.02
"""The minimum time between two rounds, however many callers request one."""
RECONNECT_PAUSE_S: Final = 0.5
"""Short: after a restart of the server nothing is appended until the signer has confirmed."""
_log = logging.getLogger(__name__)

ARRIVALS_FILE: Final = "arrived-notes"


class SignerState(StrEnum):
    """What the signer did in its last round."""

    SIGNING = "signing"
    STANDBY = "standby"  # another signer signs
    UNAVAILABLE = "unavailable"  # the database, the key directory's disk or a key's agent is unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCheckpoint:
    """A checkpoint that is published; `put_back` if it was signed earlier and had not arrived in the table."""

    log_id: int
    checkpoint: Checkpoint
    note: bytes
    put_back: bool


class CheckpointSigner:
    """
    Signs all logs of one database with the keys of one directory, as they are in each round.

    `dsn` connects as the signer role, `clock` gives POSIX seconds. `state` tells whether it signs. `refused` maps the
    origins of the logs that it did not sign in its last round to the reasons. `unconfirmed` maps those that it signed
    and did not confirm, because `before_confirming` failed for them.
    """

    def __init__(
        self,
        dsn: str,
        keys: KeyDirectory,
        clock: Callable[[], float] = time.time,
        *,
        before_confirming: BeforeConfirming = no_preparation,
    ) -> None:
        # One task at a time runs `run` or `sign_once`, and it alone changes any of these. Other code on the loop reads
        # the first three; each is replaced as a whole after a round.
        self.state = SignerState.STANDBY
        self.refused: Mapping[str, SignerRefusedError] = {}
        self.unconfirmed: Mapping[str, LedgerError] = {}
        self._before_confirming = before_confirming
        self._dsn = dsn
        self._outage = Outage("signer", _log)
        self.keys = keys
        self._clock = clock
        self._checker = ConsistencyChecker(keys)

    @property
    def trouble(self) -> str:
        """What keeps it from signing now, and is tried again; empty if nothing does."""
        return self._outage.trouble

    def verifier_key(self, origin: str) -> VerifierKey:
        """
        Return the verifier key of one log.
        """
        return self.keys.verifier_key(origin)

    async def run(self, stop: asyncio.Event, *, interval_s: float) -> None:
        """
        Sign what has grown, every `interval_s` seconds and on request, until `stop` is set; then announce new
        checkpoints.

        Callers that wait for receipts request rounds (`ledger.proving.receipts`). A lost connection is made again at
        once. What the database refuses because a right, a table or a primary server is missing is tried again
        (`ledger.store.session`).

        Raises:
            KeyDirectoryError: if the key directory is damaged.
            psycopg.Error: if a statement is wrong in itself.
        """
        while not stop.is_set():
            try:
                async with await self._connect() as connection:
                    connection.add_notify_handler(lambda _: None)  # otherwise the driver collects notifications
                    await connection.execute(f"LISTEN {CHECKPOINT_REQUESTED}")
                    while not stop.is_set():
                        if await self.sign_due(connection):
                            await connection.execute(f"NOTIFY {CHECKPOINT_SIGNED}")
                        await _pause(stop, min(interval_s, ROUND_PAUSE_S))
                        await _pause(stop, interval_s, connection)
            except UNAVAILABLE as error:
                self._note_outage(error)
                await _pause(stop, min(interval_s, RECONNECT_PAUSE_S))

    async def sign_once(self) -> list[IssuedCheckpoint]:
        """
        Do one round over a connection of its own: for callers that are about to append to a server that has just
        started.

        If the database or the disk fails, nothing is signed or confirmed, and `state` says so.

        Raises:
            KeyDirectoryError, psycopg.Error: as `run`.
        """
        try:
            async with await self._connect() as connection:
                try:
                    return await self.sign_due(connection)
                finally:
                    # A closed session ends a moment later, and until then the next signer would find the lock held.
                    with suppress(psycopg.Error):  # a connection that is lost holds none
                        await connection.execute(_QUERIES["release_signer_lock"])
        except UNAVAILABLE as error:
            self._note_outage(error)
            return []

    async def sign_due(self, connection: Connection) -> list[IssuedCheckpoint]:
        """
        Sign every log whose head has moved, and return what was published; nothing while another signer works.

        A log that does not extend its last note is in `refused` afterwards, and the others are signed.

        Raises:
            KeyDirectoryError: if the key directory is damaged.
            OSError: if the notes cannot be kept; nothing is published then.
            psycopg.Error: if the database fails; what was signed is put back in the next round.
        """
        if not await self._hold_lock(connection):  # 1
            self._set_state(SignerState.STANDBY, "another process signs the logs of this database")
            return []
        try:
            with self.keys.locked():
                signed, refused = await self._round(connection)
        except BusyKeyDirectoryError as error:
            self._set_state(SignerState.STANDBY, str(error))
            return []
        self._set_state(SignerState.SIGNING, "")
        for origin in refused.keys() - self.refused.keys():
            _log.error("%s", refused[origin])
        self.refused = refused
        return signed

    async def _round(self, connection: Connection) -> tuple[list[IssuedCheckpoint], dict[str, SignerRefusedError]]:
        notes = self.keys.read_notes()
        states = {state.origin: state for state in await read_states(connection)}
        passed: dict[str, ConsistentLog] = {}
        refused = {origin: _missing(notes[origin]) for origin in notes.keys() - states.keys()}
        for origin, state in states.items():  # 2
            try:
                _check_open(state, notes.get(origin), states.keys())
                passed[origin] = await self._checker.check(connection, state, notes.get(origin))
            except SignerRefusedError as error:
                refused[origin] = error
        await withdraw(connection, [state.log_id for state in states.values() if _is_wrongly_confirmed(state, refused)])
        await self._confirm(connection, [states[origin] for origin in passed if not states[origin].confirmed])  # 3
        # In a thread: if an agent holds the key, each signature waits for it. The task waits for the thread, so nothing
        # else uses the checker meanwhile.
        signed = await asyncio.to_thread(
            lambda: [due for origin, log in passed.items() for due in self._due(states[origin], log, notes.get(origin))]
        )
        fresh = {
            new.checkpoint.origin: SignedNote(checkpoint=new.checkpoint, note=new.note)
            for new in signed
            if not new.put_back
        }
        if fresh:
            await _uninterrupted(lambda: self.keys.keep_notes({**notes, **fresh}))  # 4
        if signed:
            await connection.execute(_QUERIES["insert_checkpoints"], _columns(signed))  # 5
            keep_arrivals(self.keys.path, {one.checkpoint.origin: one.checkpoint.size for one in signed})
        return signed, refused

    async def _confirm(self, connection: Connection, states: Sequence[SigningState]) -> None:
        by_id = {state.log_id: state for state in states}
        failed = await self._before_confirming(connection, by_id.keys()) if by_id else {}
        held = {state.origin: failed[log_id] for log_id, state in by_id.items() if log_id in failed}
        for origin in held.keys() - self.unconfirmed.keys():
            _log.error("log %s takes no entries: %s", origin, held[origin])
        self.unconfirmed = held
        await confirm(connection, {log_id: state.size for log_id, state in by_id.items() if log_id not in failed})

    def _due(self, state: SigningState, log: ConsistentLog, noted: SignedNote | None) -> list[IssuedCheckpoint]:
        """Return the checkpoints of one log to publish now: one to put back, a new one, both, or none."""
        due: list[IssuedCheckpoint] = []
        if noted is not None and (log.stored is None or log.stored.size < noted.checkpoint.size):
            due.append(
                IssuedCheckpoint(log_id=state.log_id, checkpoint=noted.checkpoint, note=noted.note, put_back=True)
            )
        if log.head.size > (log.last.size if log.last else 0):
            checkpoint = Checkpoint(origin=state.origin, size=log.head.size, root=log.head.root())
            signers = self.keys.checkpoint_signers(state.origin, time_s=int(self._clock()))
            note = sign_note(format_checkpoint(checkpoint), signers)
            self._checker.remember(state.log_id, checkpoint, log.head)
            due.append(IssuedCheckpoint(log_id=state.log_id, checkpoint=checkpoint, note=note, put_back=False))
        return due

    async def _connect(self) -> Connection:
        return await connect_service(self._dsn, name="lakeproof signer")

    async def _hold_lock(self, connection: Connection) -> bool:
        row = await (await connection.execute(_QUERIES["hold_signer_lock"], {"lock": _LOCK})).fetchone()
        return row is not None and bool(row[0])

    def _set_state(self, state: SignerState, reason: str) -> None:
        self._outage.recovered()
        if state != self.state:
            _log.info("signer: %s%s", state.value, f", {reason}" if reason else "")
        self.state = state

    def _note_outage(self, error: psycopg.Error | OSError | KeyUnavailableError) -> None:
        self._outage.failed(error)
        self.state = SignerState.UNAVAILABLE


def _check_open(state: SigningState, noted: SignedNote | None, origins: Collection[str]) -> None:
    """Check that the log has no successor."""
    if (successor := successor_origin(state.origin)) in origins:
        signed = noted.checkpoint if noted else None
        found = f"its successor is {successor}"
        raise SignerRefusedError(state.origin, signed=signed, size=state.size, found=found, advice=CLOSED)


def _missing(noted: SignedNote) -> SignerRefusedError:
    """Return the refusal of a log that was signed and is missing in the database: an older backup was restored."""
    signed = noted.checkpoint
    return SignerRefusedError(signed.origin, signed=signed, size=0, found="it has no log of this origin")


def _is_wrongly_confirmed(state: SigningState, refused: Mapping[str, SignerRefusedError]) -> bool:
    return state.confirmed and state.origin in refused


def _columns(signed: Sequence[IssuedCheckpoint]) -> dict[str, list[object]]:
    return {
        "log_ids": [one.log_id for one in signed],
        "sizes": [one.checkpoint.size for one in signed],
        "notes": [one.note for one in signed],
    }


async def _pause(stop: asyncio.Event, interval_s: float, connection: Connection | None = None) -> None:
    """
    Wait for `stop`, but no longer than `interval_s`, nor than until `connection` receives something: a request, or its
    end.
    """
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    stopped = loop.create_task(stop.wait())
    stopped.add_done_callback(lambda _: woken.set())
    if connection is not None:
        loop.add_reader(connection.fileno(), woken.set)
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(woken.wait(), timeout=interval_s)
    finally:
        stopped.cancel()
        if connection is not None:
            loop.remove_reader(connection.fileno())


async def _uninterrupted(work: Callable[[], None]) -> None:
    """Run `work` in a thread, to its end even if cancelled: the directory must not be unlocked while it is written."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def read_arrivals(directory: Path) -> dict[str, int]:
    """
    Return the size of the newest checkpoint of each log that is known to have arrived, by origin.
    """
    try:
        arrived = canonical.decode((directory / ARRIVALS_FILE).read_bytes())
    except (OSError, LedgerError):
        return {}
    if not isinstance(arrived, dict):
        return {}
    return {origin: size for origin, size in arrived.items() if isinstance(size, int)}


def keep_arrivals(directory: Path, arrived: Mapping[str, int]) -> None:
    """
    Record that checkpoints have arrived; if the disk refuses, fewer are known. Only the holder of the lock may call it.
    """
    known = read_arrivals(directory)
    newer = {origin: size for origin, size in arrived.items() if size > known.get(origin, 0)}
    if not newer:
        return
    fresh = directory / f"{ARRIVALS_FILE}.new"
    with suppress(OSError):
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(canonical.encode({**known, **newer}))
        fresh.replace(directory / ARRIVALS_FILE)
