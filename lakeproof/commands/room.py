"""
The commands of `verifying.py` and `exporting.py` that need an installation: its database, and its signer's keys.

A room is opened for one command and closed with it. What a command prints is what its function here returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

from ledger.anchoring.kept import Place
from ledger.anchoring.published import signing_key
from ledger.erasing.erase import ErasingDesk, KeptMessages
from ledger.errors import LedgerError
from ledger.files.directory import STAMP_FILE
from ledger.format.key_history import KeyHistory, Trusted
from ledger.format.note import VerifierKey
from ledger.format.sealing import Opener
from ledger.format.verification import Progress
from ledger.format.witness_policy import Policy
from ledger.proving.export import Exported, as_reader, export_log, export_parts, export_stamped_log
from ledger.proving.prove import prove_entry
from ledger.recovering.successor import RecoveryDesk
from ledger.signing.rotation import KeyDesk
from ledger.store.read import Log
from ledger.store.session import Connection


class LogRoom(Protocol):
    """What the commands need of an installation."""

    @property
    def connection(self) -> Connection:
        """A connection in autocommit mode that works as the auditor, of a login that may take readers' roles."""

    async def find_log(self, name: str, /) -> Log:
        """Return the log that people call `name`: its origin, its tenant's name or id, or `system`."""

    def verifier_key(self, origin: str, /) -> VerifierKey:
        """Return the verifier key of a log, from the signer's key directory."""

    def verifier_keys(self, origin: str, /) -> Sequence[VerifierKey]:
        """Return all keys that have ever signed a log, the newest first."""

    def ml_dsa_verifier_keys(self, origin: str, /) -> Sequence[VerifierKey]:
        """Return the ML-DSA-44 keys that sign a log beside Ed25519, the newest first, perhaps none."""

    def key_history(self) -> KeyHistory:
        """Return which of the signer's keys may have signed what, as its key directory has it."""

    def signed_notes(self) -> Mapping[str, bytes]:
        """Return the last signed note of each log, by origin, as the signer keeps them outside the database."""

    def witness_policy(self) -> Policy | None:
        """Return the policy by which checkpoints of the system log are published, if one is configured."""

    def places(self) -> Sequence[Place]:
        """Return the places outside that the system log's checkpoints are published to, if some are configured."""

    @property
    def auditor_dsn(self) -> str:
        """Return what other processes connect with to read as the auditor; it holds a password."""

    async def check_deeply(self, log: Log, /) -> Sequence[str]:
        """Check that what the installation keeps beside a verified log is what it says; return what was checked."""

    @property
    def opener(self) -> Opener:
        """What opens sealed payload parts: the keys of this installation."""

    async def checked_opener(self) -> Opener:
        """Return it with keys that were checked to be the ones that the database's parts were sealed with."""

    @property
    def kept_messages(self) -> KeptMessages:
        """What is kept beside the logs, and for no longer than their payload parts."""

    def erasing_desk(self) -> AbstractAsyncContextManager[ErasingDesk]:
        """Open what erases payload parts."""

    def key_desk(self) -> AbstractAsyncContextManager[KeyDesk]:
        """Open what shows and changes the signer's keys."""

    def recovery_desk(self) -> AbstractAsyncContextManager[RecoveryDesk]:
        """Open what puts logs right that the signer refuses."""


OpenRoom: TypeAlias = Callable[[], AbstractAsyncContextManager[LogRoom]]


async def export_only_log(
    open_room: OpenRoom, name: str, directory: Path, *, keys: list[VerifierKey], progress: Progress
) -> str:
    """
    Export a log and say what to do with the export.

    Without `keys`, what this installation's have signed is exported.

    Raises:
        LedgerError: if there is no such log, nothing of it is signed, or the directory cannot take it.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        return _told(await _export(room, log, directory, keys, progress), directory)


async def export_only_stamped_log(
    open_room: OpenRoom, name: str, directory: Path, *, keys: list[VerifierKey], progress: Progress
) -> str:
    """
    Export a log up to its newest time-stamped checkpoint, with the stamp, and say what to do with the export.

    Raises:
        LedgerError: as `export_only_log`, or if the log was never stamped.
    """
    async with open_room() as room:
        log, policy = await room.find_log(name), room.witness_policy()
        exported = await export_stamped_log(
            room.connection, log, directory, keys=_trusted(room, keys), policy=policy, progress=progress
        )
        return f"{_told(exported, directory)} --stamp {directory / STAMP_FILE} --tsa-root <PEM>"


async def export_log_and_parts(
    open_room: OpenRoom, name: str, directory: Path, *, keys: list[VerifierKey], progress: Progress
) -> str:
    """
    Export a log with the payload parts that still exist, and say what to do with the export.

    Raises:
        LedgerError: as `export_only_log`, or if the log belongs to no tenant, or its parts cannot be opened.
    """
    async with open_room() as room:
        log = await room.find_log(name)
        if log.reader is None:
            raise LedgerError(
                f"log {log.origin} belongs to no tenant, its payload parts are not given out: omit --parts"
            )
        opener = await room.checked_opener()  # with others all parts would be taken for erased, and removed there
        exported = await _export(room, log, directory, keys, progress)
        async with as_reader(room.connection, log):
            disclosed = await export_parts(room.connection, log, directory, opener=opener, progress=progress)
        return f"{_told(exported, directory)}\ndisclosed: payload parts of {disclosed:,} entries"


async def write_proof(open_room: OpenRoom, name: str, index: int, out: Path, *, keys: list[VerifierKey]) -> str:
    """
    Write the proof of one entry to the file `out`, and say what to do with it.

    Raises:
        LedgerError: if there is no such log or entry, it is not signed yet, or the file cannot be written.
    """
    async with open_room() as room:
        log, trusted = await room.find_log(name), _trusted(room, keys)
        proven = await prove_entry(room.connection, log, index, keys=trusted, policy=room.witness_policy())
    key = signing_key(proven.note, proven.checkpoint, keys=trusted)
    _write(out, proven.format())
    return f"proof of entry {index} of {log.origin} in {out}\nlakeproof ledger check-proof {out} --key {key.format()}"


async def find_key(open_room: OpenRoom, name: str) -> str:
    """
    Return the text of a log's verifier key.

    Raises:
        LedgerError: if there is no such log, or no key.
    """
    async with open_room() as room:
        return room.verifier_key((await room.find_log(name)).origin).format()


async def find_ml_dsa_keys(open_room: OpenRoom, name: str) -> str:
    """
    Return the text of a log's ML-DSA-44 verifier keys, one a line, the newest first.

    Raises:
        LedgerError: if there is no such log, or no such key.
    """
    async with open_room() as room:
        keys = room.ml_dsa_verifier_keys((await room.find_log(name)).origin)
    if not keys:
        raise LedgerError("no ML-DSA-44 key signs the logs: lakeproof ledger keys add-ml-dsa makes one")
    return "\n".join(key.format() for key in keys)


def _trusted(room: LogRoom, keys: list[VerifierKey]) -> Trusted:
    """Return the keys that checkpoints are read with: this installation's, old ones too, if no other is named."""
    return keys or room.key_history()


async def _export(room: LogRoom, log: Log, directory: Path, keys: list[VerifierKey], progress: Progress) -> Exported:
    trusted, policy = _trusted(room, keys), room.witness_policy()
    return await export_log(room.connection, log, directory, keys=trusted, policy=policy, progress=progress)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise LedgerError(f"{path} cannot be written: {error.strerror}") from error


def _told(exported: Exported, directory: Path) -> str:
    return (
        f"{exported.checkpoint.size:,} entries of {exported.checkpoint.origin} in {directory}\n"
        f"lakeproof ledger verify {directory} --key {exported.key.format()}"
    )
