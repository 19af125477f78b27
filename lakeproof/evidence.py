# SPDX-License-Identifier: Apache-2.0
"""
Evidence from the installation's own logs: for the command `ledger bundle`, for requests, and for jobs that requests
begin.

A request is given what is short at once. What takes longer, or has more in it, is a job of the reconciler's process,
which leaves a file of mode 0600 in the home (`evidence/`), for an hour.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import psycopg

from gateway.errors import UnavailableError
from lakeproof.anchor_settings import load_policy
from lakeproof.installation import Installation
from lakeproof.log_names import SYSTEM, find_named_log
from ledger.errors import KeyDirectoryError, LedgerError
from ledger.files.atomic import create_file
from ledger.format.event import Part
from ledger.format.note import VerifierKey
from ledger.format.sealing import Opener
from ledger.proving.evidence.from_database import DatabaseSource, Looked, open_source
from ledger.proving.evidence.gather import (
    NO_PARTS,
    EvidenceCheckpoint,
    EvidenceRequest,
    EvidenceSource,
    PartNames,
    gather,
)
from ledger.store.read import Log, read_logs
from ledger.store.session import Connection

SHORT_S: Final = 2.0
"""Evidence that takes longer is a job."""
SHORT_ENTRIES_MAX: Final = 100
SHORT_PARTS_BYTES_MAX: Final = 2 * 1024**2
ORPHANED_S: Final = 3_600.0
SUFFIX: Final = ".evidence"


def log_keys(installation: Installation, *origins: str) -> list[VerifierKey]:
    """
    Return the verifier keys of logs.

    Raises:
        KeyDirectoryError: if there are none, or they cannot be used.
    """
    keys = installation.open_keys()
    return [key for origin in dict.fromkeys(origins) for key in keys.verifier_keys(origin)]


async def gather_evidence(
    installation: Installation,
    auditor: Connection,
    log: Log,
    request: EvidenceRequest,
    *,
    parts: PartNames,
    opener: Opener,
    keys: Sequence[VerifierKey] = (),
    looked: Looked = lambda _searched, _of: None,
    within: Callable[[DatabaseSource], EvidenceSource] = lambda source: source,
) -> bytes:
    """
    Return evidence from a log, checked with `keys`: without any, with those of the log and of the system log.

    `within` bounds what it is made of, and `looked` is told how far searches are.

    Raises:
        LedgerError: if nothing of the log is signed, there is no such evidence in it, or what is stored is broken.
    """
    if parts != NO_PARTS and log.reader is None:
        raise LedgerError(f"log {log.origin} belongs to no tenant, its payload parts are not given out: name none")
    system = await find_named_log(installation, auditor, SYSTEM)
    trusted = keys or log_keys(installation, log.origin, system.origin)
    anchoring = system if any(key.name == system.origin for key in trusted) else None
    policy = load_policy(installation.settings)
    source = await open_source(auditor, log, anchoring, keys=trusted, policy=policy, opener=opener, looked=looked)
    return await gather(within(source), request, keys=trusted, parts=parts)


class EvidenceMaker:
    """
    Makes short evidence for requests, and knows the files of the long one (implements the gateway's `MakesEvidence`).

    One at a time in a process: whoever comes meanwhile has a job made of it. Event loop only.
    """

    def __init__(self, installation: Installation, opener: Opener) -> None:
        self._installation = installation
        self._opener = opener
        self._files = EvidenceFiles(installation.settings.home)
        self._making = asyncio.Lock()

    async def make_short(self, log_id: int, request: EvidenceRequest, parts: PartNames, /) -> bytes | None:
        """
        Return evidence from a log; None if that takes longer than a request may, or is more than one is given.

        Raises:
            UnavailableError: if the database or the keys cannot be read.
            LedgerError: if there is no such evidence, or what is stored is broken.
        """
        if self._making.locked():
            return None
        installation = self._installation
        try:
            async with (
                self._making,
                asyncio.timeout(SHORT_S),
                installation.connect(installation.roles.auditor) as auditor,
            ):
                (log,) = [each for each in await read_logs(auditor) if each.log_id == log_id]
                return await gather_evidence(
                    installation, auditor, log, request, parts=parts, opener=self._opener, within=ShortSource
                )
        except (_LongError, TimeoutError):
            return None
        except psycopg.Error as error:
            raise UnavailableError("the database cannot be reached: nothing was changed, try again") from error
        except KeyDirectoryError as error:
            raise UnavailableError(
                "the keys of the installation cannot be read now: the gateway's own log says why"
            ) from error

    def file(self, job: UUID, /) -> Path | None:
        """Return the file of a job, None if there is none."""
        path = self._files.path(job)
        return path if path.is_file() else None

    def remove(self, job: UUID, /) -> None:
        """Remove the file of a job, if there is one."""
        self._files.remove(job)


class _LongError(Exception):
    """It is more than a request is given."""


@dataclass(slots=True)
class ShortSource:
    """A log of which only so much is read (implements `EvidenceSource`)."""

    whole: DatabaseSource
    parts_bytes: int = 0

    @property
    def newest(self) -> EvidenceCheckpoint:
        """The newest checkpoint."""
        return self.whole.newest

    @property
    def anchored(self) -> EvidenceCheckpoint | None:
        """The newest one that is anchored."""
        return self.whole.anchored

    async def entries(self, first: int, end: int) -> Sequence[bytes]:
        """Return the entries `first` … `end` - 1."""
        if end - first > SHORT_ENTRIES_MAX:
            raise _LongError
        return await self.whole.entries(first, end)

    async def first_of_group(self, group_id: UUID) -> int | None:
        """Return the index of the first entry of a group, or None."""
        return await self.whole.first_of_group(group_id)

    async def containing(self, texts: Collection[bytes], *, first: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` on that contain each of `texts`."""
        found = await self.whole.containing(texts, first=first, limit=min(limit, SHORT_ENTRIES_MAX + 1))
        if len(found) > SHORT_ENTRIES_MAX:
            raise _LongError
        return found

    async def about(self, key: str, *, first: int, end: int, limit: int) -> Sequence[bytes]:
        """Return, in order, the first `limit` entries from `first` to `end` - 1 about a key."""
        found = await self.whole.about(key, first=first, end=end, limit=min(limit, SHORT_ENTRIES_MAX + 1))
        if len(found) > SHORT_ENTRIES_MAX:
            raise _LongError
        return found

    async def control_entries(self, *, end: int) -> Sequence[bytes]:
        """Return the control entries below index `end`, in order."""
        return await self.whole.control_entries(end=end)

    async def parts(self, index: int) -> Mapping[str, Part]:
        """Return the payload parts of an entry that still exist."""
        found = await self.whole.parts(index)
        self.parts_bytes += sum(len(part.payload) for part in found.values())
        if self.parts_bytes > SHORT_PARTS_BYTES_MAX:
            raise _LongError
        return found

    async def prove(self, indexes: Sequence[int], *, size: int) -> Sequence[bytes]:
        """Return the proof of these entries in the tree of that size."""
        return await self.whole.prove(indexes, size=size)


class EvidenceFiles:
    """The files of evidence in a home, one for each job that has made some."""

    def __init__(self, home: Path) -> None:
        self._folder = home.absolute() / "evidence"

    def path(self, job: UUID) -> Path:
        """Return where the file of a job is."""
        return self._folder / f"{job}{SUFFIX}"

    def write(self, job: UUID, data: bytes) -> None:
        """
        Write the file of a job, for nobody but this user.

        Raises:
            OSError: if it cannot be written.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_file(self.path(job), data)

    def remove(self, job: UUID) -> None:
        """Remove the file of a job, if there is one."""
        self.path(job).unlink(missing_ok=True)

    def remove_all(self) -> int:
        """Remove every file; return how many there were."""
        files = self._listed()
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)

    def remove_others(self, known: Collection[UUID]) -> None:
        """Remove what is of no known job and is not being written any more: a process that died has left it."""
        names = {self.path(job).name for job in known}
        for file in self._listed():
            try:
                is_old = time.time() - file.stat().st_mtime > ORPHANED_S
            except FileNotFoundError:
                continue
            if file.name not in names and is_old:
                file.unlink(missing_ok=True)

    def _listed(self) -> Sequence[Path]:
        return [each for each in self._folder.iterdir() if each.is_file()] if self._folder.is_dir() else []
