"""
The commands of `verifying.py` and `exporting.py` that need an installation: its database, and its signer's keys.

A room is opened for one command and closed with it. What a command prints is what its function here returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from ledger.anchoring.archive import CheckpointArchive
from ledger.erasing.erase import ErasingDesk, KeptMessages
from ledger.format.key_history import KeyHistory
from ledger.format.note import VerifierKey
from ledger.format.sealing import Opener
from ledger.format.witness_policy import WitnessPolicy
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

    def witness_policy(self) -> WitnessPolicy | None:
        """Return the policy by which checkpoints of the system log are published, if one is configured."""

    def places(self) -> Sequence[CheckpointArchive]:
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
