# SPDX-License-Identifier: Apache-2.0
"""
What the processes of the projections and of the reconciler do for requests: rebuilds of read models, long evidence, and
replays of policies.

The same functions as the commands `projections rebuild`, `projections replace`, `ledger bundle` and `policies replay`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import psycopg

from gateway.errors import UnavailableError
from gateway.http.evidence_routes import parse_asked
from gateway.jobs import Job, JobKind, Jobs, may_hold_erased
from gateway.policy.process import Spawn, spawn_worker
from gateway.replaying.jobs import TIMEOUT_S, replay_asked
from lakeproof.evidence import EvidenceFiles, gather_evidence
from lakeproof.projecting import PROJECTIONS, attest, find_projection, rebuilt_shown
from lakeproof.services import Services
from lakeproof.working import Progress, Work
from ledger.format.entry import parse_entry
from ledger.format.events import ProjectionAttested
from ledger.proving.evidence.bundle import parse_bundle
from ledger.proving.evidence.gather import NO_PARTS
from ledger.proving.evidence.scope import PeriodScope
from ledger.store.notifications import wait_for_any
from ledger.store.read import Log, read_head
from projections.errors import ProjectionError
from projections.processing.generations import prune, rebuild, replace

TIDY_S: Final = 2.0
DROPPED_WITHIN_S: Final = 10
"""A process that is told to stop does not wait longer for whoever still reads what a cancelled rebuild has made."""

_log = logging.getLogger(__name__)


def rebuild_for(services: Services) -> Work:
    """Return what rebuilds a read model of a tenant's log, or replaces it."""
    installation = services.installation
    dsn = installation.as_role(installation.roles.projector)

    async def work(job: Job, progress: Progress) -> Mapping[str, Any]:
        projection, log = find_projection(PROJECTIONS, job.subject), await _log_of(services, job)

        async def append(log: Log, attested: ProjectionAttested) -> None:
            progress.is_settled = True  # the new generation is read: what is left is to say so in the log
            await attest(services, log, attested)

        async with services.gateway.database.as_role(installation.roles.auditor) as auditor:
            progress.reached(0, (await read_head(auditor, log.log_id)).size)
        build = replace if job.asked["replace"] else rebuild
        try:
            rebuilt = await build(dsn, projection, log, append=append, report=progress.reached, opener=services.opener)
        except asyncio.CancelledError:
            with suppress(ProjectionError, psycopg.Error, TimeoutError):  # else the next rebuild drops it
                async with asyncio.timeout(DROPPED_WITHIN_S):
                    await prune(dsn, projection, log)
            raise
        return rebuilt_shown(rebuilt)

    return work


def evidence_for(services: Services, files: EvidenceFiles) -> Work:
    """Return what makes evidence of a tenant's log, as a file."""
    installation = services.installation

    async def work(job: Job, progress: Progress) -> Mapping[str, Any]:
        request, parts = parse_asked(job.asked)
        log = await _log_of(services, job)
        async with installation.connect(installation.roles.auditor) as auditor:
            size = (await read_head(auditor, log.log_id)).size
            data = await gather_evidence(
                installation,
                auditor,
                log,
                request,
                parts=parts,
                opener=services.opener,
                looked=progress.reached,
            )
        section = parse_bundle(data).section
        entries = [parse_entry(bundled.entry) for bundled in section.entries]
        is_period = isinstance(request, PeriodScope)
        await asyncio.to_thread(files.write, job.id, data)
        return {
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "entries": len(entries),
            "about": None if is_period else sorted({(entry.type, entry.key) for entry in entries}),
            "with_parts": parts != NO_PARTS,
            "log_size": size,
        }

    return work


def policy_replay_for(services: Services, *, spawn: Spawn = spawn_worker, timeout_s: float = TIMEOUT_S) -> Work:
    """Return what judges recorded decisions again with proposed policies, under the role of their tenant."""

    async def work(job: Job, progress: Progress) -> Mapping[str, Any]:
        log = await _log_of(services, job)
        return await replay_asked(
            services.gateway, log, job.asked, progress=progress.reached, spawn=spawn, timeout_s=timeout_s
        )

    return work


async def keep_tidy(services: Services, jobs: Jobs, files: EvidenceFiles, stop: asyncio.Event) -> None:
    """Remove jobs that have expired, and evidence that holds what was erased since, until `stop`."""
    while not stop.is_set():
        try:
            await _tidy(services, jobs, files)
        except UnavailableError as error:
            _log.info("evidence that has expired waits for the database: %s", error)
        except OSError as error:
            _log.error("evidence that has expired cannot be removed: %s", error)
        await wait_for_any(stop, None, timeout_s=TIDY_S)


async def _tidy(services: Services, jobs: Jobs, files: EvidenceFiles) -> None:
    for expired in await jobs.forget_expired():
        files.remove(expired)
    kept = await jobs.of_kind(JobKind.EVIDENCE)
    for job in kept:
        async with services.gateway.database.as_role(services.installation.roles.auditor) as auditor:
            is_outdated = await may_hold_erased(auditor, job)
        if is_outdated:
            await jobs.remove(job)
            files.remove(job.id)
    files.remove_others({job.id for job in kept})


async def _log_of(services: Services, job: Job) -> Log:
    (log,) = [log for log in await services.logs() if log.log_id == job.log_id]
    return log
