# SPDX-License-Identifier: Apache-2.0
"""
No tenant sees what another's streams are at, no reader writes, and the auditor sees counts and no messages.
"""

from __future__ import annotations

from itertools import product

import psycopg
import pytest

from projections.exposition import format_metrics
from streams.state.metrics import read_metrics
from testkit.streams.answering import POISON, AnsweringHosts, told
from testkit.streams.world import World

TABLES = ("leases", "cursors", "outbox", "dead_letters", "hosts", "deferred")


async def two_tenants(world: World) -> list[tuple[int, str]]:
    """Return the logs and reader roles of two tenants, each with an answer and a dead letter."""
    readers = []
    for _ in range(2):
        log = await world.new_log()
        await world.tell(log, told(number=0), told(**{POISON: "arsenic"}))
        await world.tell(log, told(host="silent.example"))
        await world.catch_up(log, AnsweringHosts("silent.example"))
        assert log.reader is not None
        readers.append((log.log_id, log.reader))
    return readers


async def test_each_reader_sees_its_own_rows_and_no_others(world: World) -> None:
    for log_id, reader in await two_tenants(world):
        async with world.as_role(reader) as connection:
            for table in TABLES:
                rows = await connection.execute(f"SELECT DISTINCT log_id FROM streams.{table}")  # noqa: S608 - ours
                assert await rows.fetchall() == [(log_id,)], table


async def test_no_reader_writes(world: World) -> None:
    (_, reader), _ = await two_tenants(world)
    for table, statement in product(TABLES, ("DELETE FROM streams.{}", "UPDATE streams.{} SET log_id = 1")):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with world.as_role(reader) as connection:
                await connection.execute(statement.format(table))


@pytest.mark.parametrize("role", ["signer", "projector", "appender", "gateway", "detector"])
async def test_other_services_see_nothing(world: World, role: str) -> None:
    for table in TABLES:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with world.as_role(getattr(world.roles, role)) as connection:
                await connection.execute(f"SELECT * FROM streams.{table}")  # noqa: S608 - ours


async def test_the_auditor_sees_no_message(world: World) -> None:
    for query in (
        "SELECT payload FROM streams.outbox",
        "SELECT reason FROM streams.dead_letters",
        "SELECT host FROM streams.hosts",
        "SELECT host FROM streams.deferred",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with world.as_role(world.roles.auditor) as connection:
                await connection.execute(query)


async def test_the_streams_role_changes_nothing_in_the_log(world: World) -> None:
    for statement in ("DELETE FROM ledger.entries", "UPDATE ledger.heads SET size = 0", "TABLE ledger.parts"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with world.as_role(world.roles.streams) as connection:
                await connection.execute(statement)


async def test_the_metrics_are_what_the_auditor_counts(world: World) -> None:
    log = await world.new_log()
    await world.tell(log, told(number=0), told(**{POISON: "arsenic"}))
    runner = world.runner(AnsweringHosts("silent.example"))
    await runner.catch_up(log.log_id, 2)
    await world.tell(log, told(host="silent.example"), told(host="silent.example"))
    await runner.catch_up(log.log_id, 5)
    async with world.as_role(world.roles.auditor) as connection:
        text = format_metrics(await read_metrics(connection, ["answering", "other"]))
    assert log.tenant is not None
    tenant = f'tenant="{log.tenant.hex}"'
    for line in (
        f'lakeproof_stream_lag_entries{{{tenant},handler="answering"}} 0',
        f'lakeproof_stream_lag_entries{{{tenant},handler="other"}} 5',
        f'lakeproof_stream_handled_total{{{tenant},handler="answering"}} 4',
        f'lakeproof_stream_deferred{{{tenant},handler="answering"}} 2',
        f'lakeproof_stream_host_failures{{{tenant},handler="answering"}} 1',
        f'lakeproof_stream_failures{{{tenant},handler="answering"}} 0',
        f'lakeproof_outbox_waiting{{{tenant},sink="test"}} 1',
        f'lakeproof_dead_letters{{{tenant},source="handler:answering"}} 1',
    ):
        assert line in text.splitlines(), line
    assert f'lakeproof_outbox_age_seconds{{{tenant},sink="test"}} ' in text
