# SPDX-License-Identifier: Apache-2.0
"""
A disk that is full, a real one: a small file system of its own, which is filled while groups are appended.

Nobody is told that something was appended that was not; the process lives on, and goes on by itself when there is room.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import provision
from ledger.append.appender import Appender
from ledger.errors import LogUnavailableError, OutcomeUnknownError
from ledger.format.sequence import Appended, Group, Stale
from ledger.signing.key_directory import create_key_directory, open_key_directory
from ledger.signing.signer import CheckpointSigner, SignerState
from testkit.databases import LOGIN_PASSWORD
from testkit.environment import missing
from testkit.ledger.appending import appender, confirm, event, group, new_log, places, read_log, verify

SERVER_MIB: Final = 400
KEYS_KIB: Final = 64
SPARE_BYTES: Final = 3 * 1024 * 1024
"""What is left of the disk when appending goes on: less than what is appended then."""
PART_BYTES: Final = 900_000

AppendResult = Appended | Stale | BaseException


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """Mount a file system of that size, in memory; only root may."""
    path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0:
        missing("only root can mount the small file system that is to be filled")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0711", "tmpfs", path], check=False)
    if done.returncode:
        missing("no file system can be mounted here, so none can be filled")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(disk: Path, *, spare_bytes: int) -> Path:
    """Fill the disk with a file, but for `spare_bytes`."""
    found, file = os.statvfs(disk), disk / "filling"
    with file.open("wb") as filling:
        os.posix_fallocate(filling.fileno(), 0, found.f_bavail * found.f_frsize - spare_bytes)
    return file


async def append_all(running: Appender, log_id: int, wanted: list[Group], timeout_s: float) -> list[AppendResult]:
    calls = (running.append(log_id, one, timeout_s=timeout_s) for one in wanted)
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def test_while_the_database_s_disk_is_full_nothing_is_promised_and_then_it_goes_on(
    age: Path, short_directory: Callable[[], AbstractContextManager[Path]]
) -> None:
    with short_directory() as directory, small_disk(directory / "disk", f"{SERVER_MIB}m") as disk:
        server = EmbeddedServer(
            disk / "home",
            age,
            folder=disk / "servers",
            overrides={"min_wal_size": "32MB", "max_wal_size": "64MB"},
        )
        server.start(print)
        try:
            installation = provision(server.admin_dsn, login_password="of a test")
            log_id = new_log(server.admin_dsn, installation)
            async with appender(installation) as running:
                await running.append(log_id, group())
                filling = fill(disk, spare_bytes=SPARE_BYTES)
                wanted = [group(event(payloads={"inputs": os.urandom(PART_BYTES)})) for _ in range(24)]
                told = await append_all(running, log_id, wanted, 1.0)
                assert any(isinstance(one, LogUnavailableError | OutcomeUnknownError) for one in told)
                filling.unlink()
                server.start(print)  # if the log of PostgreSQL itself found no room, it has stopped at once
                confirm(server.admin_dsn, installation)
                entries = await read_log(server.admin_dsn, log_id)
                for one, answer in zip(wanted, told, strict=True):
                    found = places(entries, one.id)
                    match answer:
                        case Appended():
                            assert found == (answer.branch, answer.indices)
                        case LogUnavailableError():
                            assert found is None
                        case _:
                            assert isinstance(answer, OutcomeUnknownError)
                again = await append_all(running, log_id, wanted, 60)
            assert all(isinstance(one, Appended) for one in again)
            assert len(await read_log(server.admin_dsn, log_id)) == 1 + len(wanted)
            await verify(installation, log_id)
        finally:
            server.stop()


async def test_while_the_signer_s_disk_is_full_no_note_leaves_and_then_it_does(
    database: str, short_directory: Callable[[], AbstractContextManager[Path]]
) -> None:
    installation = provision(database, login_password=LOGIN_PASSWORD)
    log_id = new_log(database, installation)
    with short_directory() as directory, small_disk(directory / "disk", f"{KEYS_KIB}k") as disk:
        create_key_directory(disk / "keys")
        async with appender(installation) as running:
            await running.append(log_id, group())
        signer = CheckpointSigner(installation.as_role(installation.roles.signer), open_key_directory(disk / "keys"))
        assert await signer.sign_once()
        async with appender(installation) as running:
            await running.append(log_id, group())
        filling = fill(disk, spare_bytes=0)
        assert await signer.sign_once() == []
        assert signer.state == SignerState.UNAVAILABLE.value
        kept = open_key_directory(disk / "keys").read_notes()
        assert {note.checkpoint.size for note in kept.values()} == {1}
        filling.unlink()
        signed = await signer.sign_once()
        assert [one.checkpoint.size for one in signed] == [2]
        assert signer.state == SignerState.SIGNING.value


def test_a_disk_that_is_filled_has_no_room(short_directory: Callable[[], AbstractContextManager[Path]]) -> None:
    with short_directory() as directory, small_disk(directory / "disk", "1m") as disk:
        fill(disk, spare_bytes=0)
        with pytest.raises(OSError, match="No space left"):
            (disk / "more").write_bytes(b"more")
