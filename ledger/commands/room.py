"""
The commands of `verifying.py` and `exporting.py` that need an installation: its database, and its signer's keys.

A room is opened for one command and closed with it. What a command prints is what its function here returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeAlias

from ledger.checkpoint import Checkpoint
from ledger.errors import LedgerError
from ledger.export import as_reader, export_log, export_parts
from ledger.note import VerifierKey
from ledger.prove import prove
from ledger.read import Connection, Log
from ledger.verify.database import verify_database
from ledger.verify.parts import verify_parts
from ledger.verify.rules import Progress, Report


class LogRoom(Protocol):
    """What the commands need of an installation."""

    @property
    def connection(self) -> Connection:
        """A connection in autocommit mode that works as the auditor, of a login that may take readers' roles."""

    async def find_log(self, name: str, /) -> Log:
        """Return the log that people call `name`: its origin, its tenant's name or id, or `system`."""

    def verifier_key(self, origin: str, /) -> VerifierKey:
        """Return the verifier key of a log, from the signer's key directory."""


OpenRoom: TypeAlias = Callable[[], AbstractAsyncContextManager[LogRoom]]


async def verify_log(
    open_room: OpenRoom, name: str, keys: Sequence[VerifierKey], *, held: Sequence[bytes], progress: Progress
) -> Report:
    """
    Verify a log in the database and its payload parts; without `keys`, with the key of this installation.

    Raises:
        BrokenError: at the first fault.
        LedgerError: if there is no such log, or no key.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        keys = keys or [room.verifier_key(log.origin)]
        report = await verify_database(room.connection, log, keys, held=held, progress=progress)
        if log.reader is None:
            return replace(report, unchecked=("payload parts of a log that belongs to no tenant",))
        async with as_reader(room.connection, log):
            parts = await verify_parts(room.connection, log)
        sealed = (f"{parts.sealed:,} payload parts that are encrypted",) if parts.sealed else ()
        return replace(report, parts=parts.entries, unchecked=sealed)


async def export_only_log(
    open_room: OpenRoom, name: str, directory: Path, *, key: VerifierKey | None, progress: Progress
) -> str:
    """
    Export a log and say what to do with the export.

    Raises:
        LedgerError: if there is no such log, nothing of it is signed, or the directory cannot take it.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        key = key or room.verifier_key(log.origin)
        return _exported(await export_log(room.connection, log, directory, key=key, progress=progress), directory, key)


async def export_log_and_parts(
    open_room: OpenRoom, name: str, directory: Path, *, key: VerifierKey | None, progress: Progress
) -> str:
    """
    Export a log with the payload parts that still exist, and say what to do with the export.

    Raises:
        LedgerError: as `export_only_log`, or if the log belongs to no tenant.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        key = key or room.verifier_key(log.origin)
        if log.reader is None:
            raise LedgerError(
                f"log {log.origin} belongs to no tenant, its payload parts are not given out: omit --parts"
            )
        checkpoint = await export_log(room.connection, log, directory, key=key, progress=progress)
        async with as_reader(room.connection, log):
            disclosed = await export_parts(room.connection, log, directory, progress=progress)
        return f"{_exported(checkpoint, directory, key)}\ndisclosed: payload parts of {disclosed:,} entries"


async def prove_entry(open_room: OpenRoom, name: str, index: int, out: Path, *, key: VerifierKey | None) -> str:
    """
    Write the proof of one entry to the file `out`, and say what to do with it.

    Raises:
        LedgerError: if there is no such log or entry, it is not signed yet, or the file cannot be written.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        key = key or room.verifier_key(log.origin)
        proof = await prove(room.connection, log, index, key=key)
    _write(out, proof)
    return f"proof of entry {index} of {log.origin} in {out}\nlakeproof ledger check-proof {out} --key {key.format()}"


async def find_key(open_room: OpenRoom, name: str) -> str:
    """
    Return the text of a log's verifier key.

    Raises:
        LedgerError: if there is no such log, or no key.
    """
    async with open_room() as room:
        return room.verifier_key((await room.find_log(name)).origin).format()


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error.strerror}") from error


def _exported(checkpoint: Checkpoint, directory: Path, key: VerifierKey) -> str:
    return (
        f"{checkpoint.size:,} entries of {checkpoint.origin} in {directory}\n"
        f"lakeproof ledger verify {directory} --key {key.format()}"
    )
