# SPDX-License-Identifier: Apache-2.0
"""
A database that refuses for a while: the streams and the projections wait, say so once, and go on by themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import psycopg
import pytest

from ledger.store.session import Connection
from projections.processing.runner import ProjectionRunner
from projections.relational.commits import CommitsProjection
from streams.handler import Effects, Message
from streams.processing.sender import Sender
from testkit.ledger.appending import logged
from testkit.streams.answering import Answering
from testkit.streams.outbox import Box, put
from testkit.streams.world import TIMEOUT_S, World, check_answers, running, until

QUICK_S = 0.02


async def change(world: World, statement: str) -> None:
    """Do what the database's owner can."""
    roles = world.installation.roles
    await world.rows(statement.format(streams=f'"{roles.streams}"', projector=f'"{roles.projector}"'))


async def test_handlers_wait_for_a_right_that_is_missing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = await world.new_log()
    async with running(world.runner(Answering(), poll_s=QUICK_S)):
        await change(world, "REVOKE SELECT ON ledger.entries FROM {streams}")
        await world.ask(log, 3)
        missing = (logging.ERROR, "streams: waiting, and trying again: permission denied for table entries")
        await until(lambda: missing in logged(caplog, "streams.processing.runner"))
        await change(world, "GRANT SELECT ON ledger.entries TO {streams}")
        await until(lambda: world.has_row("SELECT FROM streams.cursors WHERE handled = 3"))
    await check_answers(world, log)
    assert [message for _, message in logged(caplog, "streams.processing.runner")].count(missing[1]) == 1
    assert (logging.INFO, "streams: works again") in logged(caplog, "streams.processing.runner")


async def test_the_outbox_waits_for_a_table_that_is_missing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log, box = await world.new_log(), Box()
    async with running(Sender(world.dsn, [box], world.append, poll_s=QUICK_S)):
        await change(world, "ALTER TABLE streams.leases RENAME TO away")
        missing = 'outbox to test: waiting, and trying again: relation "streams.leases" does not exist'
        await until(
            lambda: any(message.startswith(missing) for _, message in logged(caplog, "streams.processing.sender"))
        )
        await change(world, "ALTER TABLE streams.away RENAME TO leases")
        await put(world, log, "a-1")
        await until(lambda: box.taken == ["a-1"])
    assert (logging.INFO, "outbox to test: works again") in logged(caplog, "streams.processing.sender")


async def test_projections_wait_for_a_right_that_is_missing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = await world.new_log()
    projector = ProjectionRunner(
        world.installation.as_role(world.roles.projector), [CommitsProjection()], poll_s=QUICK_S
    )

    async def has_caught_up() -> bool:
        return [each.lag_entries for each in await projector.progress()] == [0]

    await change(world, "REVOKE SELECT ON ledger.entries FROM {projector}")
    await world.ask(log, 1)
    async with running(projector):
        missing = (logging.ERROR, "projections: waiting, and trying again: permission denied for table entries")
        await until(lambda: missing in logged(caplog, "projections.processing.runner"))
        await change(world, "GRANT SELECT ON ledger.entries TO {projector}")
        await until(has_caught_up)
    assert (logging.INFO, "projections: works again") in logged(caplog, "projections.processing.runner")


async def test_a_statement_that_is_wrong_in_itself_ends_the_streams(world: World) -> None:
    class Wrong(Answering):
        async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
            await reading.execute("SELEC")
            return await super().handle(batch, reading)

    await world.ask(await world.new_log(), 1)
    with pytest.RaisesGroup(psycopg.errors.SyntaxError):
        await asyncio.wait_for(world.runner(Wrong(), poll_s=QUICK_S).run(asyncio.Event()), TIMEOUT_S)
