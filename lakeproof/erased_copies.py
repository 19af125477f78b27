# SPDX-License-Identifier: Apache-2.0
"""
Removes copies of an erased person's data outside the log: from read models, messages, and the files of the home.

The files are the stack traces of commands, the log of detection and that of the embedded server. A login is overwritten
in place, so a process that appends to the file is not disturbed, and no copy stays in freed blocks. Files of other
homes are not reached, nor is the log of a PostgreSQL server of your own.
"""

from __future__ import annotations

import os
from asyncio import to_thread
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from psycopg import AsyncConnection, sql

from gateway.jobs import forget_ended
from lakeproof.errors import ServerError
from lakeproof.evidence import EvidenceFiles
from lakeproof.installation import Installation
from lakeproof.postgres.directories import recorded_directory
from lakeproof.projecting import PROJECTIONS
from ledger.erasing.redaction import LoginMatcher
from ledger.errors import LedgerError
from ledger.format.events import PayloadErased
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.errors import ProjectionError
from projections.graph.personal_tables import personal_tables
from projections.processing.closed_logs import erase_from_closed
from projections.processing.generations import drop_superseded
from streams.connections import connect_storing
from streams.state.erasure import TABLES, erase_login

OVERWRITTEN: Final = b"x"
READ_BYTES: Final = 2**20
LOGIN_BYTES_MAX: Final = 2**13
"""Consecutive reads overlap by that, so that a login across their boundary is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledCopies:
    """The copies of one installation (implements `ledger.erasing.execution.Copies`)."""

    installation: Installation

    async def forget_person(self, log_id: int, subject: str, /) -> int:
        """
        Remove a person's login from messages and files; return in how many it was.

        Raises:
            LedgerError: if a file cannot be written, or the database fails.
        """
        installation = self.installation
        try:
            async with await AsyncConnection.connect(self._projector, autocommit=True) as reading:
                query = "SELECT identity FROM ledger.subjects WHERE log_id = %s AND actor = %s"
                row = await (await reading.execute(query, (log_id, subject))).fetchone()
            if row is None:
                return 0
            mention = LoginMatcher(row[0])
            async with connect_storing(installation.as_role(installation.roles.streams)) as connection:
                messages = await erase_login(connection, log_id, mention)
            async with installation.connect(installation.roles.gateway) as connection:
                await forget_ended(connection, log_id)
        except psycopg.Error as error:
            raise LedgerError(f"messages that mention who is erased are still there: {error}") from error
        settings = self.installation.settings
        folders = log_folders(settings.home.absolute(), has_own_server=settings.dsn is not None)
        # Evidence may disclose the person's parts: whoever wants it asks again, and gets it without them.
        evidence = await to_thread(_remove_evidence, settings.home)
        return messages + evidence + await to_thread(overwrite_login, folders, mention)

    async def forget_closed(self, log: Log, erased: PayloadErased, /) -> None:
        """
        Remove erased parts of a closed log from the read models.

        Raises:
            LedgerError: if a read model cannot be changed.
        """
        if log.tenant is None:
            return
        try:
            await erase_from_closed(self._projector, PROJECTIONS, log, erased)
        except ProjectionError as error:
            raise LedgerError(f"read models of {log.origin} still hold what is erased: {error}") from error

    async def drop_superseded(self) -> None:
        """Drop generations that no erasure reaches any more, except those that a rebuild uses now."""
        await drop_superseded(self._projector, PROJECTIONS)

    async def reclaim(self, log: Log) -> None:
        """
        Rewrite the tables that held personal data; they are locked meanwhile.

        Raises:
            LedgerError: if a generation that holds it cannot be dropped now.
        """
        if left := await drop_superseded(self._projector, PROJECTIONS):
            raise LedgerError(
                f"generations of {', '.join(sorted(set(left)))} from before the erasure are still there, since a "
                "rebuild or a reader uses them: once it has ended, repeat this"
            )
        async with await AsyncConnection.connect(self._projector, autocommit=True) as projector:
            for schema, table in await personal_tables(projector, log):
                await projector.execute(sql.SQL("VACUUM FULL {}").format(sql.Identifier(schema, table)))
        # As the owner of the database: the role of the streams may not rewrite a table.
        async with await AsyncConnection.connect(self.installation.admin_dsn, autocommit=True) as owner:
            await _rewrite(owner)

    @property
    def _projector(self) -> str:
        return self.installation.as_role(self.installation.roles.projector)


def _remove_evidence(home: Path) -> int:
    """Remove the files of evidence that requests have asked for; return how many there were."""
    try:
        return EvidenceFiles(home).remove_all()
    except OSError as error:
        raise LedgerError(f"evidence in {home} cannot be removed ({error}): repair that, and erase again") from error


def log_folders(home: Path, *, has_own_server: bool) -> list[Path]:
    """
    Return the folders of a home whose files may mention persons: its own log, and that of its embedded server.

    Raises:
        LedgerError: if the home does not say where its server is.
    """
    folders = [home / "log"]
    if not has_own_server:
        try:
            folders.append((recorded_directory(home) or home / "postgres") / "log")
        except (OSError, ServerError) as error:
            raise LedgerError(f"the log of the embedded server may mention who is erased: {error}") from error
    return folders


def overwrite_login(folders: Iterable[Path], mention: LoginMatcher) -> int:
    """
    Overwrite a login in the files of some folders; return in how many it was.

    Raises:
        LedgerError: if one cannot be written.
    """
    try:
        return sum(_overwrite(file, mention) for folder in folders for file in _files(folder))
    except OSError as error:
        raise LedgerError(
            f"{error.filename} may mention who is erased and cannot be written ({error.strerror}): delete it, or let "
            "this user write it"
        ) from error


async def _rewrite(owner: Connection) -> None:
    for table in TABLES:
        await owner.execute(sql.SQL("VACUUM FULL {}").format(sql.Identifier(*table.split("."))))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, without following links."""
    if folder.is_dir():
        yield from (file for file in sorted(folder.iterdir()) if file.is_file() and not file.is_symlink())


def _overwrite(file: Path, mention: LoginMatcher) -> bool:
    """Overwrite every occurrence of a login in a file; return whether there was one."""
    found = False
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:  # deleted meanwhile
        return False
    try:
        at = 0
        while data := os.pread(descriptor, READ_BYTES, at):
            for begin, end in mention.spans(data):
                os.pwrite(descriptor, OVERWRITTEN * (end - begin), at + begin)
                found = True
            if len(data) < READ_BYTES:
                break
            at += READ_BYTES - LOGIN_BYTES_MAX
        if found:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return found
