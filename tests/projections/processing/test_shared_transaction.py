# SPDX-License-Identifier: Apache-2.0
"""
What the projections of a log share in a round: payload parts, and whether the round waits for the disk.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg

from ledger.format import canonical
from ledger.format.events import CommitDecided, from_data
from ledger.format.sealing import PLAIN
from projections.processing.generations import rebuild
from projections.processing.runner import ProjectionRunner
from projections.relational.commits import read_commits
from testkit.projections.story import ADA, ORDERS

if TYPE_CHECKING:
    from ledger.format.event import Part
    from ledger.format.sealing import StoredPart
    from ledger.store.read import Log
    from testkit.projections.story import Story, World

TIMEOUT_S = 20

NOTED_AT_COMMIT = """
CREATE TABLE public.noted (next_index bigint, setting text);
CREATE FUNCTION public.note() RETURNS trigger SECURITY DEFINER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO public.noted VALUES (NEW.next_index, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER noted AFTER UPDATE ON projections.cursors DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION public.note();
"""
"""Deferred, so it runs when the transaction commits, and sees how it does."""


class NotingOpener:
    """Opens parts, and notes which."""

    def __init__(self) -> None:
        self.opened: list[tuple[int, str]] = []

    def open(self, stored: StoredPart) -> Part | None:
        self.opened.append((stored.entry_index, stored.name))
        return PLAIN.open(stored)


async def run_until_applied(runner: ProjectionRunner, log: Log, size: int) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(runner.run(stop))
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if all(each.next_index == size for each in await runner.progress() if each.log == log):
                break
    stop.set()
    await asyncio.wait_for(running, TIMEOUT_S)


async def test_a_principal_is_opened_once_for_all_projections_and_no_other_part_is(world: World, story: Story) -> None:
    log = await world.new_log()
    parts = (("inputs", b"{}"), ("principal", b'{"sub": "ada@example.com"}'), ("verdicts", b"{}"))
    data = from_data(CommitDecided, canonical.decode(story.decision().data))
    for _ in range(2):
        story.add(story.event(data, key=ORDERS, parts=parts))
    await world.append(log, story)
    opener = NotingOpener()
    await run_until_applied(ProjectionRunner(world.dsn, world.projections, opener=opener, poll_s=0.01), log, story.size)
    assert opener.opened == [(0, "principal"), (1, "principal")]
    async with world.as_reader(log) as connection:
        assert [commit.principal for commit in await read_commits(connection)] == ["ada@example.com"] * 2
    for projection in (world.commits, world.graph):
        assert (await rebuild(world.dsn, projection, log, append=world.attest)).compared


async def test_only_a_round_with_an_erasure_waits_for_the_disk(world: World, story: Story) -> None:
    log = await world.new_log()
    with psycopg.connect(world.database, autocommit=True) as admin:
        admin.execute(NOTED_AT_COMMIT)
    sizes = []
    for tell in (story.committed, lambda: story.erased(subject=ADA), story.committed):
        tell()
        await world.append(log, story)
        runner = ProjectionRunner(world.dsn, world.projections, poll_s=0.01)
        await run_until_applied(runner, log, story.size)
        sizes.append(story.size)
    with psycopg.connect(world.database, autocommit=True) as admin:
        noted = admin.execute("SELECT DISTINCT next_index, setting FROM public.noted ORDER BY next_index").fetchall()
    assert noted == list(zip(sizes, ("off", "on", "off"), strict=True))
    async with world.as_reader(log) as connection:
        assert [commit.principal for commit in await read_commits(connection)] == ["ada@example.com", None]
