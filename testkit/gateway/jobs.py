# SPDX-License-Identifier: Apache-2.0
"""The processes that do what requests ask for, as tasks of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from gateway.jobs import JobKind
from gateway.policy.process import Spawn
from lakeproof.evidence import EvidenceFiles
from lakeproof.services import Services
from lakeproof.serving.asked_work import evidence_for, policy_replay_for, rebuild_for
from lakeproof.working import Work, jobs_of, keep_working
from testkit.servers.forked_workers import fork_worker

POLL_S = 0.02


def files_of(services: Services) -> EvidenceFiles:
    """The files of evidence in the home."""
    return EvidenceFiles(services.installation.settings.home)


@asynccontextmanager
async def doing(services: Services, works: Mapping[JobKind, Work] | None = None) -> AsyncIterator[None]:
    """Do jobs while the context is open: rebuilds and evidence, or what `works` says."""
    does = works or {
        JobKind.EVIDENCE: evidence_for(services, files_of(services)),
        JobKind.REBUILD: rebuild_for(services),
    }
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for kind, work in does.items():
            tasks.create_task(keep_working(jobs_of(services), kind, work, stop, poll_s=POLL_S))
        yield
        stop.set()


@asynccontextmanager
async def replaying(
    services: Services, *, spawn: Spawn = fork_worker, timeout_s: float = 60.0
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Replay policies while the context is open; yields what waits until no replay is under way."""
    jobs = jobs_of(services)

    async def wait() -> None:
        while not all(job.has_ended for job in await jobs.of_kind(JobKind.POLICY_REPLAY)):  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

    async with doing(services, {JobKind.POLICY_REPLAY: policy_replay_for(services, spawn=spawn, timeout_s=timeout_s)}):
        yield wait


async def ended(http: httpx.AsyncClient, path: str, *members: str) -> dict[str, Any]:
    """Ask until the job at `path`, or in a member of what is there, has ended; return it."""
    while True:
        found: dict[str, Any] = (await http.get(path)).raise_for_status().json()
        for member in members:
            found = found[member]
        if found["ended_at"] is not None:
            return found
        await asyncio.sleep(POLL_S)
