# SPDX-License-Identifier: Apache-2.0
"""Messages that never became entries are kept with their bytes, and for no longer than payload parts are."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from lakeproof.erasing import delete_dead_letters
from lakeproof.services import now
from ledger.store.read import Log
from streams.connections import connect_reading, connect_storing
from streams.handler import DeadLetter, Message
from streams.state import dead_letters
from testkit.gateway.recovery_site import run
from testkit.servers.gateways import Gateway

RAW = b'{"who": "ada@acme.example", "wrote": "no lineage at all"}'


async def log_of(gateway: Gateway) -> Log:
    return next(log for log in await gateway.services.logs() if log.log_id == gateway.acme.log_id)


def streams_dsn(gateway: Gateway) -> str:
    installation = gateway.services.installation
    return installation.as_role(installation.roles.streams)


@pytest.fixture
async def dead(gateway: Gateway) -> Gateway:
    """Messages of a topic could not be handled: one long ago, one just now, and one of the system log long ago."""
    system, acme = gateway.services.system, await log_of(gateway)
    letters = [
        DeadLetter(message=Message(id=f"lineage/0/{place}", log=log, value=RAW), reason="no lineage")
        for place, log in enumerate((acme, acme, system))
    ]
    async with connect_storing(streams_dsn(gateway)) as connection, connection.transaction():
        await dead_letters.put(connection, "handler:lineage", letters)
    with psycopg.connect(gateway.services.installation.admin_dsn) as owner:
        owner.execute(
            "UPDATE streams.dead_letters SET died_at = died_at - interval '400 days' WHERE id <> 'lineage/0/1'"
        )
        # An entry that a handler cannot handle: it lies in the log, and nothing of it here.
        owner.execute(
            "INSERT INTO streams.dead_letters (log_id, source, id, index, reason, died_at)"
            " VALUES (%s, 'handler:alerts', 'an entry', 0, 'no', now() - interval '400 days')",
            (acme.log_id,),
        )
    return gateway


async def left(gateway: Gateway) -> set[str]:
    async with connect_reading(streams_dsn(gateway)) as connection:
        return {letter.id for letter in await dead_letters.read_letters(connection)}


async def test_retention_covers_messages_that_could_not_be_handled(dead: Gateway) -> None:
    told = await run(dead.services, "retain", "acme", "--older-than", "365d")
    assert told.exit_code == 0, told.output
    assert "1 dead letters deleted" in told.output
    assert await left(dead) == {"lineage/0/1", "lineage/0/2", "an entry"}
    again = await run(dead.services, "retain", "acme", "--older-than", "365d")
    assert "nothing was erased" in again.output
    all_of_it = await run(dead.services, "retain", "acme", "--older-than", "0d")
    assert all_of_it.exit_code == 0, all_of_it.output
    assert "payload parts deleted" in all_of_it.output
    assert await left(dead) == {"lineage/0/2", "an entry"}


@pytest.mark.parametrize("only", [("--name", "inputs"), ("--type", "commit.decided")])
async def test_retention_of_some_parts_leaves_messages_alone(dead: Gateway, only: tuple[str, str]) -> None:
    told = await run(dead.services, "retain", "acme", "--older-than", "0d", *only)
    assert told.exit_code == 0, told.output
    assert len(await left(dead)) == 4


async def test_many_messages_are_deleted_page_by_page(dead: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "REMOVED_MAX", 2)
    log = await log_of(dead)
    many = [
        DeadLetter(message=Message(id=f"topic/1/{place}", log=log, value=RAW), reason="no lineage")
        for place in range(5)
    ]
    async with connect_storing(streams_dsn(dead)) as connection, connection.transaction():
        await dead_letters.put(connection, "handler:lineage", many)
    installation = dead.services.installation
    assert await delete_dead_letters(installation, log, datetime.min.replace(tzinfo=now().tzinfo)) == 0
    assert await delete_dead_letters(installation, log, now() + timedelta(days=1)) == 7


async def test_nothing_of_a_deleted_message_is_found_in_the_files(dead: Gateway, postgres_data: Path) -> None:
    installation = dead.services.installation
    with psycopg.connect(installation.admin_dsn, autocommit=True) as owner:
        assert RAW in table(owner, postgres_data)
        told = await run(dead.services, "retain", "acme", "--older-than", "365d", "--reclaim")
        assert told.exit_code == 0, told.output
        assert table(owner, postgres_data).count(RAW) == 2, "of the log that was meant, and young; and of another log"


def table(owner: psycopg.Connection, data: Path) -> bytes:
    """Return what the file of the table of dead letters holds."""
    owner.execute("CHECKPOINT")
    (path,) = owner.execute("SELECT pg_relation_filepath('streams.dead_letters')").fetchone() or ("",)
    return Path(data, path).read_bytes()


@pytest.fixture
def postgres_data(admin_dsn: str) -> Path:
    """The directory of the server's files."""
    with psycopg.connect(admin_dsn) as owner:
        (path,) = owner.execute("SHOW data_directory").fetchone() or ("",)
    return Path(path)
