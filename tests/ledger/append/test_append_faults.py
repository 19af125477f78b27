# SPDX-License-Identifier: Apache-2.0
"""
Faults at every statement of the Appender: whatever a caller was told is true afterwards.

At each step of one batch in two round trips: the wire cut before it arrives, its answer lost, the server stopped at
once; and then either all is well again, or the server stays away until the callers' deadlines have passed. A batch in
one round trip has its own: `test_at_once_faults.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from select import select
from typing import TypeAlias

import psycopg
import pytest
from psycopg import AsyncConnection

from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.process import postmaster_pid
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned, provision
from ledger.append.appender import Appender
from ledger.errors import GuardError, LogUnavailableError, OutcomeUnknownError
from ledger.format.entry import Branch
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.session import is_refusal
from testkit.ledger.appending import (
    aggregate,
    appended,
    appender,
    confirm,
    event,
    group,
    new_id,
    new_log,
    places,
    read_log,
    verify,
)
from testkit.ledger.cutting_proxy import Cut, CuttingProxy, Plan

STEPS = {
    "begin": b"BEGIN",
    "lock the heads": b"SKIP LOCKED",
    "look the ids up": b"group_id = ANY",
    "savepoint": b"SAVEPOINT guard",
    "hold the heads": b"NOWAIT",
    "guard": b"INSERT INTO ledger.aggregates",
    "undo a guard": b"ROLLBACK TO",
    "release": b"RELEASE",
    "insert entries": b"INSERT INTO ledger.entries",
    "insert parts": b"INSERT INTO ledger.parts",
    "insert tiles": b"INSERT INTO ledger.tiles",
    "move the heads": b"UPDATE ledger.heads",
    "commit": b"COMMIT",
}
BEFORE_ANY_COMMIT = tuple(STEPS)[:7]
STOPS = [*zip(STEPS, cycle((Cut.BEFORE, Cut.AFTER)), strict=False), ("commit", Cut.AFTER)]
"""To stop a server takes long: at each step once, at the COMMIT both before it arrives and after it was carried out."""
BEFORE = [event({"n": n}) for n in range(253)]
"""So many events that a tile is completed soon after them."""


@dataclass
class Scene:
    """One log behind a proxy, and a batch that takes every step: guards of every outcome, parts, a tile."""

    database: str
    installation: Provisioned
    proxy: CuttingProxy
    log_id: int

    def __post_init__(self) -> None:
        taken = "policy:taken"
        self.start = [group(*BEFORE), aggregate(taken, 1)]
        self.then = [
            group(event({"plain": 1}, payloads={"inputs": b"in"}), event({"plain": 2})),
            aggregate("policy:new", 1),
            group(event({"plain": 3})),
        ]
        self.otherwise = aggregate(taken, 1, otherwise=(event({"lost": 1}),))
        self.nothing = aggregate(taken, 1)
        bad = aggregate("policy:bad", 1)
        self.failing = Group(id=new_id(), then=bad.then, guard=(*bad.guard, aggregate(taken, 2**40).guard[0]))
        self.batch = [*self.then, self.otherwise, self.nothing, self.failing]

    async def append_all(self, running: Appender, *, timeout_s: float = 10) -> list[Appended | Stale | BaseException]:
        calls = (running.append(self.log_id, one, timeout_s=timeout_s) for one in self.batch)
        return await asyncio.gather(*calls, return_exceptions=True)

    async def check_that_all_is_in(self, answers: list[Appended | Stale | BaseException]) -> None:
        """Check the answers of a batch that went well in the end, and the log."""
        *done, failed = answers
        assert [appended(one).branch for one in done if not isinstance(one, BaseException)] == [
            *[Branch.THEN] * len(self.then),
            Branch.ELSE,
            Branch.ELSE,
        ]
        assert isinstance(failed, GuardError)
        entries = await read_log(self.database, self.log_id)
        for one, answer in zip(self.batch, done, strict=False):
            assert isinstance(answer, Appended)
            assert places(entries, one.id) == ((answer.branch, answer.indices) if answer.indices else None)
        assert places(entries, self.failing.id) is None
        assert len(entries) == 254 + 2 + 1 + 1 + 1
        with psycopg.connect(self.database) as owner:
            rows = owner.execute("SELECT key, version FROM ledger.aggregates WHERE log_id = %s", (self.log_id,))
            assert dict(rows.fetchall()) == {"policy:taken": 1, "policy:new": 1}
        await verify(self.installation, self.log_id)


NewScene: TypeAlias = Callable[[], AbstractAsyncContextManager[Scene]]


@pytest.fixture
def new_scene(
    module_database: str,
    module_installation: Provisioned,
    postgres_server: EmbeddedServer,
    short_directory: Callable[[], AbstractContextManager[Path]],
    two_round_trips: None,
) -> NewScene:
    """Makes scenes, each with a log and a proxy of its own."""

    @asynccontextmanager
    async def new() -> AsyncIterator[Scene]:
        with short_directory() as directory:
            async with CuttingProxy(directory, postgres_server.files.run / SOCKET_NAME) as proxy:
                log_id = new_log(module_database, module_installation)
                yield Scene(module_database, module_installation, proxy, log_id)

    return new


@pytest.fixture
async def scene(new_scene: NewScene) -> AsyncIterator[Scene]:
    async with new_scene() as scene:
        yield scene


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


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
async def test_a_wire_cut_at_any_step_is_mended_and_everyone_is_told_the_truth(new_scene: NewScene, cut: Cut) -> None:
    await at_each_step(new_scene, partial(cut_once, cut=cut))


async def cut_once(scene: Scene, step: str, *, cut: Cut) -> None:
    """Cut the wire at a step, and check what everyone is told."""
    async with appender(scene.installation, host=str(scene.proxy.directory)) as running:
        for one in scene.start:
            await running.append(scene.log_id, one)
        plan = scene.proxy.plan = Plan(STEPS[step], cut)
        answers = await scene.append_all(running)
        assert plan.hit.is_set()
    await scene.check_that_all_is_in(answers)
    assert [answer.repeated for answer in answers if isinstance(answer, Appended) and answer.indices] == [
        (step, cut) == ("commit", Cut.AFTER)
    ] * 4


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
async def test_with_the_server_gone_at_any_step_nobody_is_told_more_than_is_known(
    new_scene: NewScene, cut: Cut
) -> None:
    await at_each_step(new_scene, partial(go_away_until_the_deadline, cut=cut))


async def go_away_until_the_deadline(scene: Scene, step: str, *, cut: Cut) -> None:
    """Let the server be gone from a step on until the callers' deadline, and check what they are told."""

    async def go_away() -> None:
        scene.proxy.accepts = False

    async with appender(scene.installation, host=str(scene.proxy.directory)) as running:
        for one in scene.start:
            await running.append(scene.log_id, one)
        plan = scene.proxy.plan = Plan(STEPS[step], cut, go_away)
        answers = await scene.append_all(running, timeout_s=2.0)
        assert plan.hit.is_set()
        assert {type(answer) for answer in answers} <= {LogUnavailableError, OutcomeUnknownError}
        if step in BEFORE_ANY_COMMIT:
            assert {type(answer) for answer in answers} == {LogUnavailableError}
        if step == "commit":
            assert {type(answer) for answer in answers} == {OutcomeUnknownError}
        entries = await read_log(scene.database, scene.log_id)
        told_not_in = [
            one.id for one, answer in zip(scene.batch, answers, strict=True) if isinstance(answer, LogUnavailableError)
        ]
        assert not {entry.group_id for entry in entries} & set(told_not_in)
        assert (len(entries) > 254) == ((step, cut) == ("commit", Cut.AFTER))
        # The callers ask again, under the same ids, when the server is back.
        scene.proxy.accepts = True
        answers = await scene.append_all(running)
    await scene.check_that_all_is_in(answers)


async def test_a_commit_that_arrives_after_its_wire_was_cut_is_found(scene: Scene) -> None:
    # The server has the batch, locked and written, and nobody knows: only the head's lock tells that it is not over.
    async with appender(scene.installation, host=str(scene.proxy.directory)) as running:
        for one in scene.start:
            await running.append(scene.log_id, one)
        lost = scene.proxy.plan = Plan(STEPS["commit"], Cut.LATE)
        task = asyncio.create_task(scene.append_all(running))
        await lost.hit.wait()
        waits = scene.proxy.plan = Plan(b"FOR UPDATE\n)", Cut.NOT)  # it waits for the head that the lost session holds
        await waits.hit.wait()
        lost.deliver.set()
        answers = await task
    await scene.check_that_all_is_in(answers)


async def test_a_commit_that_may_still_arrive_is_unknown_at_the_deadline(scene: Scene) -> None:
    async with appender(scene.installation, host=str(scene.proxy.directory)) as running:
        for one in scene.start:
            await running.append(scene.log_id, one)
        lost = scene.proxy.plan = Plan(STEPS["commit"], Cut.LATE)
        late = group()
        task = asyncio.create_task(scene.append_all(running, timeout_s=0.3))
        await lost.hit.wait()
        behind = asyncio.create_task(running.append(scene.log_id, late, timeout_s=0.3))
        assert {type(answer) for answer in await task} == {OutcomeUnknownError}
        with pytest.raises(LogUnavailableError):
            await behind  # of this one no COMMIT was sent
        lost.deliver.set()
        answers = await scene.append_all(running)
    await scene.check_that_all_is_in(answers)
    assert places(await read_log(scene.database, scene.log_id), late.id) is None


# A server that is stopped or does not answer


@pytest.fixture(scope="module")
def own_server(age: Path, short_directory: Callable[[], AbstractContextManager[Path]]) -> Iterator[EmbeddedServer]:
    with short_directory() as directory:
        server = EmbeddedServer(directory / "home", age, folder=directory / "servers")
        server.start(print)
        yield server
        server.stop()


@pytest.fixture(scope="module")
def own_installation(own_server: EmbeddedServer) -> Provisioned:
    return provision(own_server.admin_dsn, login_password="of a test")


@pytest.fixture
async def own_scene(
    own_server: EmbeddedServer,
    own_installation: Provisioned,
    short_directory: Callable[[], AbstractContextManager[Path]],
    two_round_trips: None,
) -> AsyncIterator[Scene]:
    own_server.start(print)
    log_id = new_log(own_server.admin_dsn, own_installation)
    with short_directory() as directory:
        async with CuttingProxy(directory, own_server.files.run / SOCKET_NAME) as proxy:
            yield Scene(own_server.admin_dsn, own_installation, proxy, log_id)


def stop_at_once(server: EmbeddedServer, installation: Provisioned) -> None:
    """
    Do what `pg_ctl stop -m immediate` does, and start again: the server recovers from its write-ahead log.

    The signer, which confirms the logs then, is played by `confirm`.
    """
    pid = postmaster_pid(server.files.data)
    assert pid is not None
    process = os.pidfd_open(pid)
    os.kill(pid, signal.SIGQUIT)
    select([process], [], [])  # until it has ended
    os.close(process)
    server.start(print)
    confirm(server.admin_dsn, installation)


@pytest.mark.parametrize(("step", "cut"), STOPS)
async def test_a_server_stopped_at_any_step_has_what_it_acknowledged(
    own_scene: Scene, own_server: EmbeddedServer, step: str, cut: Cut
) -> None:
    async with appender(own_scene.installation, host=str(own_scene.proxy.directory)) as running:
        for one in own_scene.start:
            await running.append(own_scene.log_id, one)
        restart = partial(asyncio.to_thread, stop_at_once, own_server, own_scene.installation)
        plan = own_scene.proxy.plan = Plan(STEPS[step], cut, restart)
        answers = await own_scene.append_all(running, timeout_s=60)
        assert plan.hit.is_set()
    await own_scene.check_that_all_is_in(answers)


async def test_only_an_error_that_the_session_survives_says_that_nothing_was_committed(
    module_database: str,
) -> None:
    statements = {
        "SELECT 1 / 0": True,
        "SELECT FROM nowhere": True,
        "SELECT pg_terminate_backend(pg_backend_pid())": False,  # FATAL: it may stand in place of a COMMIT's answer
    }
    for statement, expected in statements.items():
        with psycopg.connect(module_database, autocommit=True) as connection, pytest.raises(psycopg.Error) as caught:
            connection.execute(statement.encode())
        assert is_refusal(caught.value) is expected
    with pytest.raises(psycopg.Error) as caught:
        connection.execute("SELECT 1")  # on a closed connection
    assert not is_refusal(caught.value)
    with psycopg.connect(module_database) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute("SELECT %s", ("a\x00b",))  # refused before it was sent
    assert is_refusal(caught.value)


@pytest.mark.usefixtures("two_round_trips")
async def test_a_server_that_does_not_answer_is_answered_for_at_the_deadline(
    database: str, installation: Provisioned
) -> None:
    log_id = new_log(database, installation)
    async with appender(installation) as running:
        await running.append(log_id, group())
        with frozen(await backend_of(database)):
            one = group()
            with pytest.raises(LogUnavailableError, match="nothing was appended"):
                await running.append(log_id, one, timeout_s=0.1)
        await running.append(log_id, group())
    assert places(await read_log(database, log_id), one.id) is None


async def test_a_server_that_does_not_answer_has_had_the_commit_if_there_was_one_round_trip(
    database: str, installation: Provisioned
) -> None:
    log_id = new_log(database, installation)
    async with appender(installation) as running:
        await running.append(log_id, group())
        one = group()
        with frozen(await backend_of(database)), pytest.raises(OutcomeUnknownError):
            await running.append(log_id, one, timeout_s=0.1)
        again = appended(await running.append(log_id, one))
        assert appended(await running.append(log_id, group())).indices == range(2, 3)
    assert places(await read_log(database, log_id), one.id) == (Branch.THEN, range(1, 2))
    assert (again.indices, again.repeated) == (range(1, 2), True)


@pytest.mark.usefixtures("two_round_trips")
async def test_stopping_does_not_wait_for_a_server_that_does_not_answer(
    database: str, installation: Provisioned
) -> None:
    log_id = new_log(database, installation)
    running = appender(installation)
    await running.start()
    await running.append(log_id, group())
    with frozen(await backend_of(database)):
        task = asyncio.create_task(running.append(log_id, group()))
        await asyncio.sleep(0)
        await running.stop()
        with pytest.raises(LogUnavailableError, match="nothing was appended"):
            await task
    assert len(await read_log(database, log_id)) == 1


async def backend_of(database: str) -> int:
    """Return the process of the Appender's session."""
    async with await AsyncConnection.connect(database) as connection:
        query = (
            "SELECT pid FROM pg_stat_activity "
            "WHERE application_name = 'lakeproof appender' AND datname = current_database()"
        )
        ((pid,),) = await (await connection.execute(query)).fetchall()
    return int(pid)


class frozen:  # noqa: N801 - read as a verb: with frozen(pid)
    """Stops a process for a while, as a debugger or a full disk would."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)
