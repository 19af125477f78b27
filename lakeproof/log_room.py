"""
What the commands `lakeproof ledger …` work with when they need an installation: a connection, names of logs, keys.

Kept apart from `operating.py`: reading a log needs no gateway, no appender and no policy engine. Whatever keeps the
room from being opened is raised as the ledger's own error, since `verify` must never take it for a broken log.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import psycopg
from psycopg import AsyncConnection

from lakeproof.anchor_settings import load_places, load_policy
from lakeproof.console import say_aside
from lakeproof.errors import LakeproofError
from lakeproof.installation import Installation, open_existing_installation
from lakeproof.settings import load_settings
from ledger.anchoring.archive import CheckpointArchive
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.erasing.erase import ErasingDesk, KeptMessages
from ledger.errors import LogUnavailableError, NoSuchLogError
from ledger.format.guards import GuardRegistry
from ledger.format.key_history import KeyHistory
from ledger.format.note import VerifierKey
from ledger.format.sealing import KeyOpener, Opener
from ledger.format.sequence import Appended, Group, Stale
from ledger.format.witness_policy import WitnessPolicy
from ledger.recovering.successor import RecoveryDesk
from ledger.signing.key_directory import NOTES_FILE
from ledger.signing.rotation import KeyDesk, KeyRotation
from ledger.signing.signer import read_arrivals
from ledger.store.read import Log, read_logs
from ledger.store.session import Connection

SYSTEM = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledLogs:
    """The logs of an installation, as the auditor reads them (implements `lakeproof.commands.room.LogRoom`)."""

    installation: Installation
    connection: Connection

    async def find_log(self, name: str, /) -> Log:
        """
        Return the log that people call `name`: its origin, its tenant's name or id, or `system`.

        Of several tenants of one name, the newest is meant.

        Raises:
            NoSuchLogError: if there is none.
        """
        logs = await read_logs(self.connection)
        # By its name, not as the log of no tenant: that column can be changed.
        system = next((log for log in logs if log.origin == self.installation.system_origin), None)
        if system is not None and name == SYSTEM:
            return system
        named = {log.origin: log for log in logs} | {log.tenant.hex: log for log in logs if log.tenant is not None}
        found = named.get(name)
        if found is None and system is not None and (tenant := await self._tenant(system, name)) is not None:
            found = named.get(tenant.hex)
        if found is None:
            raise NoSuchLogError(f"log {name!r:.100}: expected an origin, a tenant's name or id, or '{SYSTEM}'")
        return found

    def verifier_key(self, origin: str, /) -> VerifierKey:
        """
        Return the verifier key of a log, from the signer's key directory.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made one yet, or it cannot be used.
        """
        return self.installation.verifier_key(origin)

    def verifier_keys(self, origin: str, /) -> Sequence[VerifierKey]:
        """
        Return all keys that have ever signed a log, the newest first.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made one yet, or it cannot be used.
        """
        return self.installation.open_keys().verifier_keys(origin)

    def ml_dsa_verifier_keys(self, origin: str, /) -> Sequence[VerifierKey]:
        """
        Return the ML-DSA-44 keys that sign a log beside Ed25519, the newest first, perhaps none.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made a key yet, or it cannot be used.
        """
        return self.installation.open_keys().ml_dsa_verifier_keys(origin)

    def key_history(self) -> KeyHistory:
        """
        Return which of the signer's keys may have signed what, as its key directory has it.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made one yet, or it cannot be used.
        """
        return self.installation.open_keys().keys.history

    def signed_notes(self) -> Mapping[str, bytes]:
        """
        Return the last signed note of each log, by origin, as the signer keeps them outside the database.

        There are none where nothing was ever signed: the signer may work on another machine.

        Raises:
            KeyDirectoryError: if there are some that cannot be used.
        """
        if not (self.installation.keys / NOTES_FILE).exists():
            return {}
        return {origin: signed.note for origin, signed in self.installation.open_keys().read_notes().items()}

    def witness_policy(self) -> WitnessPolicy | None:
        """
        Return the policy by which checkpoints of the system log are published, if one is configured.

        Raises:
            SettingsError: if it cannot be used.
        """
        return load_policy(self.installation.settings)

    def places(self) -> Sequence[CheckpointArchive]:
        """
        Return the places outside that the system log's checkpoints are published to, if some are configured.

        Raises:
            SettingsError: if one of them is no place.
        """
        return load_places(self.installation.settings)

    @property
    def auditor_dsn(self) -> str:
        """What other processes connect with to read as the auditor; it holds a password."""
        return self.installation.as_role(self.installation.roles.auditor)

    async def check_deeply(self, log: Log, /) -> Sequence[str]:
        """
        Check that what this installation keeps beside a verified log is what it says; return what was checked.

        Raises:
            BrokenError: (`Fault.DERIVED`) if something is not; names the table and the key.
        """
        from gateway.metadata.files import MetadataFiles  # gateway and projections: only one command needs them
        from lakeproof.deep_verification.checks import check_deeply
        from lakeproof.services import storage_properties

        return await check_deeply(
            self.connection,
            log,
            installation=self.installation,
            files=MetadataFiles(storage_properties(self.installation.settings)),
            opener=self.opener,
            arrived=read_arrivals(self.installation.keys),
        )

    @property
    def opener(self) -> Opener:
        """What opens sealed payload parts: the keys in the home, whatever they are."""
        from lakeproof.sealing import open_subject_keys  # only what reads payload parts needs them

        return KeyOpener(open_subject_keys(self.installation))

    async def checked_opener(self) -> Opener:
        """
        Return what opens sealed payload parts: the keys in the home, which the database's parts were sealed with.

        Raises:
            SubjectKeysError: if they are others, which open nothing, as if all had been erased.
        """
        from lakeproof.sealing import open_checked_keys  # only what discloses payload parts needs them

        installation = self.installation
        eraser_dsn = installation.as_role(installation.roles.eraser)
        async with await AsyncConnection.connect(eraser_dsn, autocommit=True) as eraser:
            return KeyOpener(await open_checked_keys(self.installation, eraser))

    @property
    def kept_messages(self) -> KeptMessages:
        """Messages that could not be handled."""
        from lakeproof.retaining import KeptDeadLetters  # streams: only one command needs them

        return KeptDeadLetters(installation=self.installation)

    @asynccontextmanager
    async def erasing_desk(self) -> AsyncIterator[ErasingDesk]:
        """
        Open what erases payload parts.

        Raises:
            SubjectKeysError: if the keys of sealed parts cannot be used.
        """
        from lakeproof.erasing import open_erasing_desk  # the whole system: only two commands need it

        async with open_erasing_desk(self.installation, self.connection) as desk:
            yield desk

    @asynccontextmanager
    async def key_desk(self) -> AsyncIterator[KeyDesk]:
        """
        Open what shows and changes the signer's keys.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made one yet, or it cannot be used.
            KeyUnavailableError: if an agent holds a key, and the settings name none.
        """
        from lakeproof.erasures_first import signer_of  # the whole system: only what confirms logs needs it

        installation, settings = self.installation, self.installation.settings
        system = await self.find_log(SYSTEM)
        keys = self.installation.open_keys()
        appender_dsn = installation.as_role(installation.roles.appender)
        async with Appender(appender_dsn, GuardRegistry(CORE_GUARDS)) as appender:

            async def append(group: Group) -> Appended | Stale:
                return await appender.append(system.log_id, group, timeout_s=settings.append_deadline_s)

            yield KeyDesk(
                origin=system.origin,
                directory=keys,
                keeper=KeyRotation(keys, origin=system.origin, append=append, clock=lambda: datetime.now(UTC)),
                signer=signer_of(self.installation, keys),
            )

    @asynccontextmanager
    async def recovery_desk(self) -> AsyncIterator[RecoveryDesk]:
        """
        Open what puts logs right that the signer refuses.

        Raises:
            KeyDirectoryError: if no `lakeproof up` has made a key yet, or it cannot be used.
        """
        from lakeproof.recovering import open_recovery_desk  # the whole system: only two commands need it

        async with open_recovery_desk(self.installation, self.connection) as desk:
            yield desk

    async def _tenant(self, system: Log, name: str) -> UUID | None:
        """Return the newest tenant of that name."""
        from gateway.control.plane import ControlPlane  # only a name needs it: an origin and an id do not

        state = await ControlPlane(lambda: nullcontext(self.connection)).current(system.log_id)
        named = [tenant for tenant in state.tenants.values() if tenant.name == name]
        return UUID(named[-1].id) if named else None


@asynccontextmanager
async def open_log_room() -> AsyncIterator[InstalledLogs]:
    """
    Yield the logs of the installation in the home.

    Raises:
        LogUnavailableError: if the settings, the server or the database cannot be used; says what to do.
    """
    try:
        # Opening blocks the loop, on which nothing else runs yet.
        with open_existing_installation(load_settings(os.environ, directory=Path.cwd()), say_aside) as installation:
            dsn = installation.as_role(installation.roles.auditor)
            async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
                yield InstalledLogs(installation=installation, connection=connection)
    except (LakeproofError, OSError) as error:
        raise LogUnavailableError(str(error)) from error
    except psycopg.OperationalError as error:
        raise LogUnavailableError(f"the database cannot be reached ({error}): check that it runs") from error
