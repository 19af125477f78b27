# SPDX-License-Identifier: Apache-2.0
"""
Faults at every statement of a batch in one round trip: whatever a caller was told is true afterwards.

The wire is cut before the statement arrives or behind it, the session is ended, the statement refused; and then all is
well again, or the server stays away until the callers' deadlines have passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import psycopg
import pytest

from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned
from ledger.append.appender import Appender
from ledger.errors import OutcomeUnknownError
from ledger.format.entry import Branch
from ledger.format.sequence import Appended
from testkit.ledger.appending import aggregate, appender, event, group, new_log, places, read_log, verify
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan
from testkit.ledger.guarded_groups import Answer, append_all, counted, rows

STEPS = {
    "begin": b"BEGIN",
    "expect the head": b"not as expected",
    "guard": b"lakeproof_guard",
    "insert entries": b"INSERT INTO ledger.entries",
    "insert parts": b"INSERT INTO ledger.parts",
    "insert tiles": b"INSERT INTO ledger.tiles",
    "move the head": b"UPDATE ledger.heads",
    "commit": b"COMMIT",
}
BEFORE = [event({"n": n}) for n in range(253)]
"""So many events that a tile is completed soon after them."""


class Scene:
    """A log that its appender knows, behind a proxy, and a batch that takes every step in one round trip."""

    def __init__(self, database: str, installation: Provisioned, proxy: CuttingProxy) -> None:
        self.database, self.installation, self.proxy = database, installation, proxy
        self.log_id = new_log(database, installation)
        self.batch = [
            group(event({"plain": 1}, payloads={"inputs": b"in"}), event({"plain": 2})),
            aggregate("policy:new", 1),
            counted("row"),
            group(event({"plain": 3})),
        ]

    @asynccontextmanager
    async def appender(self) -> AsyncIterator[Appender]:
        """An Appender that knows the log, and has what it needs of the tile."""
        async with appender(self.installation, host=str(self.proxy.directory)) as running:
            await running.append(self.log_id, group(*BEFORE))
            transaction = running._writer._transaction
            assert transaction is not None
            await transaction._pending.prepare(self.log_id, size=len(BEFORE), count=5)
            yield running

    async def append_all(self, running: Appender, plan: Plan | None = None) -> list[Answer]:
        """Append the batch, with a fault planned if there is one; check that it was met in the one round trip."""
        self.proxy.trace.clear()
        self.proxy.plan = plan
        answers = await append_all(running, self.log_id, self.batch)
        if plan is not None:
            assert plan.hit.is_set()
            before = self.proxy.trace[: self.proxy.trace.index(plan.statement)]
            assert not any(b"SKIP LOCKED" in one for one in before)
        return answers

    async def check(self, answers: list[Answer]) -> None:
        """Check that every group is in the log once, where its caller was told, and all guards have run once."""
        entries = await read_log(self.database, self.log_id)
        for one, answer in zip(self.batch, answers, strict=True):
            assert isinstance(answer, Appended)
            assert answer.branch is Branch.THEN
            assert places(entries, one.id) == (answer.branch, answer.indices)
        assert len(entries) == len(BEFORE) + 5
        assert rows(self.database, self.log_id) == {"policy:new": 1, "row": 1}
        with psycopg.connect(self.database) as owner:
            query = "SELECT (SELECT count(*) FROM ledger.tiles WHERE log_id = %(log)s), count(*) FROM ledger.parts "
            found = owner.execute(query.encode() + b"WHERE log_id = %(log)s", {"log": self.log_id}).fetchone()
        assert found == (1, 1)
        await verify(self.installation, self.log_id)


NewScene: TypeAlias = Callable[[], AbstractAsyncContextManager[Scene]]


@pytest.fixture
def new_scene(
    module_database: str,
    module_installation: Provisioned,
    postgres_server: EmbeddedServer,
    short_directory: Callable[[], AbstractContextManager[Path]],
) -> NewScene:
    """Makes scenes, each with a log and a proxy of its own."""

    @asynccontextmanager
    async def new() -> AsyncIterator[Scene]:
        with short_directory() as directory:
            async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
                yield Scene(module_database, module_installation, proxy)

    return new


async def at_each_step(new_scene: NewScene, fail_at: Callable[[Scene, str], Awaitable[None]]) -> None:
    """Fail at each step in a scene of its own, all at once: most of the time each waits for a deadline or a pause."""

    async def fail(step: str) -> None:
        async with new_scene() as scene:
            try:
                await fail_at(scene, step)
            except Exception as error:
                error.add_note(f"at the step {step!r}")
                raise

    async with asyncio.TaskGroup() as steps:
        for step in STEPS:
            steps.create_task(fail(step))


async def test_the_batch_takes_every_step_in_one_round_trip(new_scene: NewScene) -> None:
    async with new_scene() as scene, scene.appender() as running:
        before = scene.proxy.exchanges
        answers = await scene.append_all(running)
        assert scene.proxy.exchanges == before + 1
        statements = scene.proxy.trace
        assert [sum(text in one for one in statements) for text in STEPS.values()] == [1, 1, 2, 1, 1, 1, 1, 1]
        await scene.check(answers)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER, Cut.ENDED_BEFORE, Cut.ENDED_AFTER])
async def test_a_wire_cut_or_a_session_ended_at_any_step_is_mended_and_everyone_is_told_the_truth(
    new_scene: NewScene, cut: Cut
) -> None:
    await at_each_step(new_scene, partial(fail_once, cut=cut))


async def fail_once(scene: Scene, step: str, *, cut: Cut) -> None:
    """Fail at a step, and check what everyone is told: that it was there before, if the COMMIT was carried out."""
    async with scene.appender() as running:
        answers = await scene.append_all(running, Plan(STEPS[step], cut))
    await scene.check(answers)
    committed = step == "commit" and cut in {Cut.AFTER, Cut.ENDED_AFTER}
    assert [isinstance(answer, Appended) and answer.repeated for answer in answers] == [committed] * len(scene.batch)


@pytest.mark.parametrize("sqlstate", ["40001", "53100", "22012", "0A000", "23505"])
async def test_a_statement_refused_at_any_step_refuses_no_group(new_scene: NewScene, sqlstate: str) -> None:
    async def refuse(scene: Scene, step: str) -> None:
        async with scene.appender() as running:
            session = running._writer._transaction
            answers = await scene.append_all(running, Plan(STEPS[step], Cut.REFUSED, sqlstate=sqlstate))
            assert running._writer._transaction is session, "what was missed costs no session"
        await scene.check(answers)

    await at_each_step(new_scene, refuse)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
async def test_with_the_server_gone_at_any_step_nobody_is_told_more_than_is_known(
    new_scene: NewScene, cut: Cut
) -> None:
    await at_each_step(new_scene, partial(go_away_until_the_deadline, cut=cut))


async def go_away_until_the_deadline(scene: Scene, step: str, *, cut: Cut) -> None:
    """Let the server be gone from a step on until the callers' deadline, and check what they are told."""

    async def go_away() -> None:
        scene.proxy.accepts = False

    async with scene.appender() as running:
        scene.proxy.plan = plan = Plan(STEPS[step], cut, go_away)
        calls = (running.append(scene.log_id, one, timeout_s=1.0) for one in scene.batch)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert plan.hit.is_set()
        # COMMIT was sent behind everything else, so it may have arrived, as far as anyone here can tell.
        assert {type(answer) for answer in answers} == {OutcomeUnknownError}
        is_in = len(await read_log(scene.database, scene.log_id)) > len(BEFORE)
        assert is_in == ((step, cut) == ("commit", Cut.AFTER))
        scene.proxy.accepts = True
        found = await append_all(running, scene.log_id, scene.batch)
    await scene.check(found)
    assert {isinstance(answer, Appended) and answer.repeated for answer in found} == {is_in}


async def test_a_commit_that_arrives_after_its_wire_was_cut_is_found(new_scene: NewScene) -> None:
    async with new_scene() as scene, scene.appender() as running:
        lost = scene.proxy.plan = Plan(STEPS["commit"], Cut.LATE)
        task = asyncio.create_task(append_all(running, scene.log_id, scene.batch))
        await lost.hit.wait()
        waits = scene.proxy.plan = Plan(b"FOR UPDATE\n)", Cut.NOT)  # it waits for the head that the lost session holds
        await waits.hit.wait()
        lost.deliver.set()
        await scene.check(await task)
