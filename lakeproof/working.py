# SPDX-License-Identifier: Apache-2.0
"""
Does the jobs of one kind that requests have asked for (`gateway/jobs.py`), one after the other, until it is told to
stop.

While it does one it says every second that it is alive and how far it is, and learns then whether somebody has
cancelled it. What a job may fail of is its `problem`. Anything else is a fault of ours and ends the process; the job
is told as failed by whoever notices the silence. A process that is stopped says so of the job that it leaves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import psycopg

from gateway.errors import GatewayError, UnavailableError
from gateway.jobs import Job, JobKind, Jobs, JobState
from lakeproof.errors import LakeproofError
from lakeproof.services import Services, new_group_id
from ledger.errors import LedgerError
from ledger.store.notifications import wait_for_any
from projections.errors import ProjectionError
from streams.errors import StreamError

POLL_S: Final = 1.0
BEAT_S: Final = 1.0
STOPPED: Final = "the process that did it was stopped: nothing is left half done; ask for it again"
_FAILURES: Final = (GatewayError, LakeproofError, LedgerError, ProjectionError, StreamError, psycopg.Error, OSError)
"""What a job may end of: something is not there, not as it must be, or cannot be reached."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Progress:
    """How far a job is: of `total`, once that is known. From `is_settled` on it cannot be cancelled any more."""

    done: int = 0
    total: int | None = None
    is_settled: bool = False

    def reached(self, done: int, total: int) -> None:
        """Say how far it is."""
        self.done, self.total = done, total


class Work(Protocol):
    """Does one job."""

    async def __call__(self, job: Job, progress: Progress, /) -> Mapping[str, Any]:
        """Return what came of it, as JSON. It is cancelled if the job is."""


def jobs_of(services: Services) -> Jobs:
    """Return the jobs of an installation."""
    gateway = services.gateway
    return Jobs(gateway.database, gateway.roles.gateway, new_id=new_group_id)


async def keep_working(jobs: Jobs, kind: JobKind, work: Work, stop: asyncio.Event, *, poll_s: float = POLL_S) -> None:
    """
    Do the jobs of a kind until `stop` is set; one that is under way then is left, and says so.
    """
    while not stop.is_set():
        try:
            await jobs.end_lost()
            job = await jobs.take(kind)
        except UnavailableError as error:
            _log.info("jobs wait for the database: %s", error)
            job = None
        if job is None:
            await wait_for_any(stop, None, timeout_s=poll_s)
        else:
            await _do(jobs, job, work, stop)


async def _do(jobs: Jobs, job: Job, work: Work, stop: asyncio.Event) -> None:
    progress = Progress()
    doing = asyncio.create_task(_outcome(work, job, progress), name=f"{job.kind} {job.id}")
    state: JobState | None = JobState.RUNNING
    try:
        while not doing.done() and not stop.is_set() and state is JobState.RUNNING:
            await _wait(doing, stop)
            with suppress(UnavailableError):  # whoever does not hear of it takes this process for dead, and is told so
                state = await jobs.beat(job, done=progress.done, total=progress.total)
        if not doing.done() and not progress.is_settled:
            doing.cancel()
        await asyncio.wait([doing])
    finally:
        doing.cancel()
    if not doing.cancelled():
        state, result, problem = doing.result()
        await _end(jobs, job, state, result=result, problem=problem)
    elif state is JobState.CANCELLING:
        await _end(jobs, job, JobState.CANCELLED)
    else:
        await _end(jobs, job, JobState.FAILED, problem=STOPPED)


async def _wait(doing: asyncio.Task[Any], stop: asyncio.Event) -> None:
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([doing, stopping], timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()


async def _outcome(work: Work, job: Job, progress: Progress) -> tuple[JobState, Mapping[str, Any] | None, str | None]:
    try:
        return JobState.DONE, await work(job, progress), None
    except _FAILURES as error:
        _log.info("a job of kind %s failed: %s", job.kind, error)
        return JobState.FAILED, None, str(error) or type(error).__name__


async def _end(
    jobs: Jobs, job: Job, state: JobState, *, result: Mapping[str, Any] | None = None, problem: str | None = None
) -> None:
    try:
        await jobs.end(job, state, result=result, problem=problem)
    except UnavailableError as error:
        _log.warning("a job of kind %s has ended (%s), which cannot be said: %s", job.kind, state, error)
