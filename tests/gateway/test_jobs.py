# SPDX-License-Identifier: Apache-2.0
"""
The life of a job, the same for every kind: asked for, taken, heard of, ended, expired. Nobody sees another tenant's.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql

from gateway.errors import TooManyRequestsError
from gateway.jobs import (
    DIED,
    EVIDENCE_MAX,
    NOT_TAKEN,
    RULES,
    UNDER_WAY_MAX,
    Job,
    JobKind,
    Jobs,
    JobState,
    forget_ended,
)
from gateway.replaying.jobs import DONE, SUBJECT, last_replay
from gateway.replaying.replay import Proposed
from lakeproof.provision import migrations
from lakeproof.serving.duties.reconciler import reconcile
from lakeproof.working import jobs_of
from testkit.gateway.jobs import POLL_S
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: Final[dict[JobKind, dict[str, Any]]] = {
    JobKind.EVIDENCE: {"decision": "1", "table": None, "from": None, "to": None, "parts": [], "policies": False},
    JobKind.REBUILD: {"replace": False},
    JobKind.REPLAY: {"source": None, "id": None},
    JobKind.POLICY_REPLAY: {"proposal": [], "since": "2026-11-26T00:00:00.000000Z"},
}
ALL: Final = pytest.mark.parametrize("kind", JobKind)
ADA, EVE = "ada", "eve"
NOW: Final = timedelta(0)


@pytest.fixture
def jobs(shared_gateway: Gateway) -> Jobs:
    return jobs_of(shared_gateway.services)


async def ask(jobs: Jobs, gateway: Gateway, kind: JobKind, subject: str = "s", actor: str = ADA) -> Job:
    return await jobs.ask(gateway.acme.log_id, kind, subject, ASKED[kind], actor=actor)


async def take(jobs: Jobs, kind: JobKind) -> Job:
    """Take the job that waits; other tests have ended theirs."""
    taken = await jobs.take(kind)
    assert taken is not None
    return taken


async def shown(jobs: Jobs, job: Job) -> Job:
    found = await jobs.find(job.log_id, job.kind, job.id, actor=job.actor)
    assert found is not None
    return found


async def end_all(jobs: Jobs) -> None:
    await jobs.end_lost(silent=NOW, waited=NOW)


def owner_of(gateway: Gateway) -> psycopg.Connection:
    return psycopg.connect(gateway.services.installation.admin_dsn, autocommit=True)


def end_earlier(gateway: Gateway, job: Job, ago: timedelta) -> None:
    with owner_of(gateway) as owner:
        owner.execute("UPDATE gateway.jobs SET ended_at = ended_at - %s WHERE job = %s", (ago, job.id))


@ALL
async def test_a_job_waits_is_taken_says_how_far_it_is_and_is_done(
    jobs: Jobs, shared_gateway: Gateway, kind: JobKind
) -> None:
    asked = await ask(jobs, shared_gateway, kind)
    assert (asked.state, asked.began_at, asked.total, asked.expires_at) == (JobState.WAITING, None, None, None)
    assert (await ask(jobs, shared_gateway, kind)).id == asked.id, "asked twice it is one"
    assert await jobs.ask_anew(asked.log_id, kind, "s", ASKED[kind], actor=EVE) is None
    taken = await take(jobs, kind)
    assert (taken.id, taken.state, dict(taken.asked)) == (asked.id, JobState.RUNNING, ASKED[kind])
    assert await jobs.take(kind) is None, "nobody else does it"
    assert await jobs.beat(taken, done=3, total=9) is JobState.RUNNING
    far = await shown(jobs, asked)
    assert (far.done, far.total) == (3, 9)
    assert await jobs.end(taken, JobState.DONE, result={"found": 1})
    done = await shown(jobs, asked)
    assert (done.state, done.done, done.result, done.has_ended) == (JobState.DONE, 9, {"found": 1}, True)
    assert await jobs.cancel(done) is None
    assert not await jobs.end(taken, JobState.FAILED), "what has ended does not end again"


@ALL
async def test_a_job_is_cancelled_whether_it_waits_or_runs(jobs: Jobs, shared_gateway: Gateway, kind: JobKind) -> None:
    waits = await jobs.cancel(await ask(jobs, shared_gateway, kind))
    assert waits is not None
    assert (waits.state, await jobs.take(kind)) == (JobState.CANCELLED, None)
    await ask(jobs, shared_gateway, kind)
    taken = await take(jobs, kind)
    runs = await jobs.cancel(taken)
    assert runs is not None
    assert (runs.state, await jobs.beat(taken, done=1, total=2)) == (JobState.CANCELLING, JobState.CANCELLING)
    assert await jobs.end(taken, JobState.CANCELLED)
    assert (await shown(jobs, taken)).state is JobState.CANCELLED


@ALL
async def test_a_job_whose_process_dies_has_failed_and_is_asked_for_again(
    jobs: Jobs, shared_gateway: Gateway, kind: JobKind
) -> None:
    await ask(jobs, shared_gateway, kind)
    taken = await take(jobs, kind)
    await jobs.end_lost()
    assert (await shown(jobs, taken)).state is JobState.RUNNING, "it is not silent yet"
    await jobs.end_lost(silent=NOW)
    lost = await shown(jobs, taken)
    assert (lost.state, lost.problem, lost.is_lost) == (JobState.FAILED, DIED, True)
    assert await jobs.beat(taken, done=1, total=2) is None
    assert not await jobs.end(taken, JobState.DONE), "what was taken for dead does not end it any more"
    again = await ask(jobs, shared_gateway, kind)
    assert again.id != taken.id
    assert (await take(jobs, kind)).id == again.id
    await end_all(jobs)


@ALL
async def test_what_nobody_takes_fails_unless_a_process_is_busy_with_another_one(
    jobs: Jobs, shared_gateway: Gateway, module_gateway: Gateway, kind: JobKind
) -> None:
    with owner_of(shared_gateway) as owner:
        owner.execute("DELETE FROM gateway.jobs")
    await ask(jobs, module_gateway, kind)
    busy = await take(jobs, kind)
    waiting = await ask(jobs, shared_gateway, kind)
    with owner_of(shared_gateway) as owner:
        owner.execute("UPDATE gateway.jobs SET asked_at = asked_at - interval '1 hour' WHERE job = %s", (waiting.id,))
    await jobs.end_lost()
    assert (await shown(jobs, waiting)).state is JobState.WAITING
    await jobs.end(busy, JobState.DONE)
    await jobs.end_lost()
    assert (await shown(jobs, waiting)).state is JobState.WAITING, "its turn comes now"
    with owner_of(shared_gateway) as owner:
        owner.execute("UPDATE gateway.jobs SET seen_at = seen_at - interval '1 hour' WHERE job = %s", (busy.id,))
    await jobs.end_lost()
    untaken = await shown(jobs, waiting)
    assert (untaken.state, untaken.problem, untaken.is_lost) == (JobState.FAILED, NOT_TAKEN, False)


@ALL
async def test_a_job_expires_when_its_kind_says_so(jobs: Jobs, shared_gateway: Gateway, kind: JobKind) -> None:
    log_id, kept = shared_gateway.acme.log_id, RULES[kind].kept
    await ask(jobs, shared_gateway, kind)
    first = await take(jobs, kind)
    await jobs.end(first, JobState.DONE, result={})
    assert (await shown(jobs, first)).kept == kept
    end_earlier(shared_gateway, first, (kept or timedelta(days=365)) - timedelta(minutes=1))
    assert await jobs.forget_expired() == []
    assert (await shown(jobs, first)).id == first.id
    if kept is None:
        await ask(jobs, shared_gateway, kind)
        assert await jobs.find(log_id, kind, first.id, actor=ADA) is None, "another one has taken its place"
        await end_all(jobs)
        return
    end_earlier(shared_gateway, first, timedelta(minutes=1))
    assert await jobs.find(log_id, kind, first.id, actor=ADA) is None, "it is gone before anybody has tidied up"
    assert first.subject not in await jobs.newest(log_id, kind)
    assert await jobs.of_actor(log_id, kind, ADA) == []
    assert await jobs.forget_expired() == [first.id]
    assert await jobs.forget_expired() == []


@ALL
async def test_a_job_of_another_tenant_kind_or_person_is_not_there(
    jobs: Jobs, shared_gateway: Gateway, module_gateway: Gateway, kind: JobKind
) -> None:
    job, theirs = await ask(jobs, shared_gateway, kind), module_gateway.acme.log_id
    assert await jobs.find(theirs, kind, job.id, actor=ADA) is None
    assert job.id not in {each.id for each in (await jobs.newest(theirs, kind)).values()}
    assert job.id not in {each.id for each in await jobs.of_actor(theirs, kind, ADA)}
    other = next(each for each in JobKind if each is not kind)
    assert await jobs.find(job.log_id, other, job.id, actor=ADA) is None
    seen = await jobs.find(job.log_id, kind, job.id, actor=EVE)
    assert (seen is None) == RULES[kind].is_private
    await end_all(jobs)


async def test_a_tenant_has_so_many_jobs_of_all_kinds_together(
    jobs: Jobs, shared_gateway: Gateway, module_gateway: Gateway
) -> None:
    kinds = [JobKind.REBUILD, JobKind.REPLAY] * UNDER_WAY_MAX
    asked = [await ask(jobs, shared_gateway, kinds[number], f"{number}") for number in range(UNDER_WAY_MAX)]
    for kind in JobKind:
        with pytest.raises(TooManyRequestsError, match="at most 20 jobs under way"):
            await ask(jobs, shared_gateway, kind, "one more")
    assert (await ask(jobs, shared_gateway, asked[3].kind, "3")).id == asked[3].id, "it is under way already"
    await ask(jobs, module_gateway, JobKind.REBUILD)
    await jobs.cancel(asked[0])
    await ask(jobs, shared_gateway, JobKind.POLICY_REPLAY)
    await end_all(jobs)


async def test_evidence_whose_file_is_kept_counts_until_it_expires(jobs: Jobs, shared_gateway: Gateway) -> None:
    made = [await ask(jobs, shared_gateway, JobKind.EVIDENCE, f"{number}") for number in range(EVIDENCE_MAX)]
    for _ in made:
        await jobs.end(await take(jobs, JobKind.EVIDENCE), JobState.DONE, result={"with_parts": False})
    with pytest.raises(TooManyRequestsError, match="at most 4 jobs of this kind"):
        await ask(jobs, shared_gateway, JobKind.EVIDENCE, "one more")
    end_earlier(shared_gateway, made[0], timedelta(hours=1))
    await ask(jobs, shared_gateway, JobKind.EVIDENCE, "one more")
    await end_all(jobs)


async def test_an_erasure_removes_what_has_ended_of_every_kind_in_its_log_alone(
    jobs: Jobs, shared_gateway: Gateway, module_gateway: Gateway
) -> None:
    ended = [await jobs.cancel(await ask(jobs, shared_gateway, kind)) for kind in JobKind]
    runs = await ask(jobs, shared_gateway, JobKind.REBUILD, "runs")
    theirs = await jobs.cancel(await ask(jobs, module_gateway, JobKind.REBUILD, "theirs"))
    parts = shared_gateway.services.gateway
    async with parts.database.as_role(parts.roles.gateway) as connection:
        await forget_ended(connection, shared_gateway.acme.log_id)
    assert theirs is not None
    left = {job.id for kind in JobKind for job in await jobs.of_kind(kind)}
    assert {job.id for job in ended if job is not None}.isdisjoint(left)
    assert {runs.id, theirs.id} <= left
    await end_all(jobs)


async def test_the_reconcilers_duty_replays_policies(jobs: Jobs, sales: Gateway) -> None:
    asked = {"proposal": [Proposed(id="p", expression="false").shown()], "since": "2020-01-01T00:00:00.000000Z"}
    await jobs.ask(sales.acme.log_id, JobKind.POLICY_REPLAY, SUBJECT, asked, actor=ADA)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(reconcile(sales.services, stop, lambda _: None, lambda: None))
        while True:
            last = await last_replay(jobs, sales.acme.log_id)
            if last is None or last.job.has_ended:
                break
            await asyncio.sleep(POLL_S)
        stop.set()
    assert last is not None
    assert (last.state, last.found is not None and last.found["counts"]["narrowed"]) == (DONE, 2), last.trouble


@pytest.mark.parametrize(
    ("state", "trouble", "found", "becomes"),
    [
        ("done", "", '{"changes":[]}', (JobState.DONE, None, {"changes": []})),
        ("failed", "it took too long", "", (JobState.FAILED, "it took too long", None)),
        ("cancelled", "", "", (JobState.CANCELLED, None, None)),
        ("running", "", "", (JobState.FAILED, DIED, None)),
    ],
)
async def test_replays_of_the_version_before_are_jobs_after_the_migration(
    jobs: Jobs, shared_gateway: Gateway, state: str, trouble: str, found: str, becomes: tuple[object, ...]
) -> None:
    log_id, roles = shared_gateway.acme.log_id, shared_gateway.services.installation.roles
    texts = {each.name: each.text for each in migrations() if each.package == "gateway"}
    names = {duty: sql.Identifier(role) for duty, role in roles.duties().items()}
    proposal = '[{"expression":"a == \\"\\u00e4\\"","id":"p","scope":{"names":["sales.**"]}}]'
    with owner_of(shared_gateway) as owner:
        owner.execute("DROP TABLE gateway.jobs")
        for name in ("policy_replays", "jobs"):
            owner.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(roles.owner)))
            owner.execute(sql.SQL(texts[name]).format(**names))
        owner.execute(
            "INSERT INTO gateway.policy_replays (log_id, replay, actor, proposal, since, done, total, state, trouble, "
            "found) VALUES (%s, gen_random_uuid(), 'ada', %s, '2026-11-26 01:02:03.5+01', 3, 9, %s, %s, %s)",
            (log_id, proposal, state, trouble, found),
        )
        owner.execute(
            "INSERT INTO gateway.jobs (log_id, job, kind, subject, asked, actor) "
            "VALUES (%s, gen_random_uuid(), 'rebuild', 'graph', '{\"replace\": false}', 'ada')",
            (log_id,),
        )
        owner.execute(sql.SQL(texts["one_table_of_jobs"]).format(**names))
        assert owner.execute("SELECT to_regclass('gateway.policy_replays')").fetchone() == (None,)
    last = await last_replay(jobs, log_id)
    assert last is not None
    assert (last.job.state, last.job.problem, last.found) == becomes
    assert (last.job.subject, last.done, last.total, last.job.kept) == (SUBJECT, 3, 9, None)
    (policy,) = last.proposal
    assert (policy.id, policy.expression, policy.scope.names) == ("p", 'a == "ä"', ("sales.**",))
    assert last.since.isoformat() == "2026-11-26T00:02:03.500000+00:00"
    assert (await jobs.newest(log_id, JobKind.REBUILD))["graph"].kept == timedelta(hours=24)
