# SPDX-License-Identifier: Apache-2.0
"""
The fault table in its small form: some points of each operation, spread over steps, faults and what happens then.

`bench/faults.py` runs it at length. A point that fails is printed; it runs again by itself with `--point`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from lakeproof.postgres.files import SOCKET_NAME
from lakeproof.postgres.server import EmbeddedServer
from lakeproof.provision import Provisioned
from ledger.append.appender import CORE_GUARDS, Appender
from ledger.errors import BrokenError, LogUnavailableError, QueueFullError
from ledger.format.entry import Branch
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended
from ledger.store.wire import PREPARE_AFTER
from testkit.databases import CLONE
from testkit.ledger.appending import NOON, appender_dsn, group, read_log
from testkit.ledger.cutting_proxy import Cut, Plan
from testkit.ledger.faults.batches import draw_batch
from testkit.ledger.faults.files import file_faults
from testkit.ledger.faults.site import Site, open_site
from testkit.ledger.faults.table import Point, Table, points_of
from testkit.ledger.faults.trials import AppendTrial, check_answers
from testkit.ledger.faults.worker import killed

SEEDS = {"append": range(100, 103), "seal": range(200, 202), "sign": range(300, 302), "erase": range(400, 403)}
SAMPLE = 4
ALL = 10**6


@pytest.fixture
def following_files() -> Iterator[None]:
    with file_faults():
        yield


@pytest.fixture
async def site(
    module_database: str,
    module_installation: Provisioned,
    postgres_server: EmbeddedServer,
    short_directory: Callable[[], AbstractContextManager[Path]],
) -> AsyncIterator[Site]:
    with short_directory() as directory:
        target = postgres_server.files.run / SOCKET_NAME
        async with open_site(module_database, module_installation, target, directory) as site:
            yield site


@asynccontextmanager
async def site_of_its_own(
    server: EmbeddedServer,
    template: Provisioned,
    name: str,
    short_directory: Callable[[], AbstractContextManager[Path]],
) -> AsyncIterator[Site]:
    """Yield a site on one more clone of the template, so that points go on beside each other."""
    template_name = str(conninfo_to_dict(template.dsn)["dbname"])
    identifiers = (sql.Identifier(f"faults_{name}"), sql.Identifier(template_name))
    async with await AsyncConnection.connect(server.admin_dsn, autocommit=True) as admin:
        await admin.execute(CLONE.format(*identifiers))
        database = make_conninfo(server.admin_dsn, dbname=f"faults_{name}")
        installation = replace(template, dsn=make_conninfo(template.dsn, dbname=f"faults_{name}"))
        try:
            with short_directory() as directory:
                async with open_site(database, installation, server.files.run / SOCKET_NAME, directory) as site:
                    yield site
        finally:
            await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(identifiers[0]))


@pytest.mark.usefixtures("following_files")
async def test_whatever_fails_everyone_is_told_the_truth_and_may_try_again(
    postgres_server: EmbeddedServer,
    template_installation: Provisioned,
    short_directory: Callable[[], AbstractContextManager[Path]],
) -> None:
    reached: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    possible: set[str] = set()

    async def run(operation: str, seeds: Iterable[int]) -> None:
        here: Counter[str] = Counter()
        async with site_of_its_own(postgres_server, template_installation, operation, short_directory) as site:
            for seed in seeds:
                course = await Table().course(site, operation, seed)
                points = list(points_of(operation, seed, course, sample=ALL))
                possible.update(point.fault for point in points)
                for point in chosen(points, here, tried):
                    try:
                        reached[point.fault] += bool(await Table().run(site, point, course))
                    except Exception as error:
                        error.add_note(f"at the point {point}")
                        raise

    async with asyncio.TaskGroup() as points:
        for operation, seeds in SEEDS.items():
            points.create_task(run(operation, seeds))
    assert sum(reached.values()) > 28
    assert len(reached) > 17
    assert tried.keys() == possible


def chosen(points: list[Point], here: Counter[str], tried: Counter[str]) -> Iterator[Point]:
    """Yield a few of these points, of the faults tried least often with this operation, and then with all of them."""
    for _ in range(SAMPLE):
        point = min(points, key=lambda one: (here[one.fault], tried[one.fault]))
        points.remove(point)
        for counter in (here, tried):
            counter[point.fault] += 1
        yield point


@pytest.mark.usefixtures("following_files")
@pytest.mark.parametrize("fault", ["process killed before", "process killed after"])
async def test_a_process_that_is_killed_leaves_a_batch_or_none_of_it(site: Site, fault: str) -> None:
    course = await Table().course(site, "append", 7)
    commit = max(step for step, text in enumerate(course.statements) if text == b"COMMIT")
    (point, *_) = points_of("append", 7, course, sample=1)
    point = replace(point, fault=fault, step=commit)
    assert await Table(kill=killed).run(site, point, course) == "COMMIT"


# The checker can fail


async def test_an_answer_that_is_not_true_is_noticed(site: Site, tmp_path: Path) -> None:
    trial = AppendTrial(1, tmp_path)
    await trial.prepare(site)
    await trial.run(site.reach(direct=True), lambda: None, timeout_s=10)
    await trial.check(site)
    number = next(at for at, answer in enumerate(trial.answers) if isinstance(answer, Appended) and answer.indices)
    answer = trial.answers[number]
    assert isinstance(answer, Appended)
    moved = answer._replace(indices=range(answer.indices.start + 1, answer.indices.stop + 1))
    for untrue in (LogUnavailableError("no"), moved, answer._replace(branch=Branch.ELSE)):
        trial.answers[number] = untrue
        with pytest.raises(AssertionError, match="answer"):
            await trial.check(site)


async def test_a_group_that_is_not_there_though_someone_was_told_so_is_noticed() -> None:
    batch = draw_batch(1, sealed=False)
    told = [
        Appended(branch=Branch.THEN, indices=range(at, at + 1), recorded_at=NOON, repeated=False)
        for at, _ in enumerate(batch.groups)
    ]
    with pytest.raises(AssertionError, match="found None"):
        check_answers(batch, list(told), [[] for _ in batch.sizes])


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger.entries SET leaf = sha256(leaf) WHERE index = 0",
        "UPDATE ledger.tiles SET hashes = overlay(hashes PLACING '\\x00'::bytea FROM 9)",
        "DELETE FROM ledger.entries WHERE index = 3",
        "UPDATE ledger.parts SET sealed = sealed || '\\x00'::bytea",
    ],
)
async def test_a_log_that_is_broken_by_a_fault_is_noticed(site: Site, tmp_path: Path, change: str) -> None:
    seed = next(seed for seed in range(1_000) if _has_everything(seed))
    trial = AppendTrial(seed, tmp_path)
    await trial.prepare(site)
    await trial.run(site.reach(direct=True), lambda: None, timeout_s=10)
    await trial.check(site)
    assert (await site.owner.execute(change.encode())).rowcount > 0
    with pytest.raises((BrokenError, AssertionError)):
        await trial.check(site)


def _has_everything(seed: int) -> bool:
    batch = draw_batch(seed, sealed=False)
    has_parts = any(one.parts for _, wanted in batch.groups for one in wanted.then)
    return has_parts and len(batch.sizes) == 1 and batch.sizes[0] > 256


# A statement that the server did not come to prepare


async def test_what_was_to_be_prepared_behind_a_statement_that_failed_is_prepared_again(site: Site) -> None:
    # A head that is not free in time is no reason to give the connection up: it goes on, but with what it has.
    (log,) = await site.new_logs(1)
    async with site.reach(direct=False).appender() as appender:
        for _ in range(PREPARE_AFTER):
            await appender.append(log.log_id, group())
        plan = site.proxy.plan = Plan(b"FROM ledger.heads", Cut.REFUSED, sqlstate="55P03")
        for _ in range(2):
            assert isinstance(await appender.append(log.log_id, group(), timeout_s=30), Appended)
        assert plan.hit.is_set()
    await site.check_invariants([log], {}, None)


# A full queue


async def test_a_full_queue_takes_nothing_more_and_says_so_at_once(site: Site) -> None:
    (log,) = await site.new_logs(1)
    dsn = appender_dsn(site.installation)
    async with Appender(dsn, GuardRegistry(CORE_GUARDS), queue_max=20) as appender:
        async with site.owner.transaction():
            await site.owner.execute("SELECT FROM ledger.heads WHERE log_id = %s FOR UPDATE", (log.log_id,))
            wanted = [group() for _ in range(60)]
            calls = [asyncio.create_task(appender.append(log.log_id, one, timeout_s=30)) for one in wanted]
            done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert {type(one.exception()) for one in done} == {QueueFullError}
        answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = {one.id for one, told in zip(wanted, answers, strict=True) if isinstance(told, QueueFullError)}
    assert len(refused) == 40
    assert {entry.group_id for entry in await read_log(site.database, log.log_id)} == {
        one.id for one in wanted
    } - refused
