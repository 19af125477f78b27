# SPDX-License-Identifier: Apache-2.0
"""
The duty of the projections: apply what the logs get to the read models, and report cycles of lineage.

Read models of an older version are built again meanwhile (`upgrading.py`), and those that requests have asked for.
"""

from __future__ import annotations

import asyncio

from gateway.jobs import JobKind
from lakeproof.messages import Say
from lakeproof.projecting import PROJECTIONS
from lakeproof.services import Services, now
from lakeproof.serving.asked_work import rebuild_for
from lakeproof.serving.duties.duty import Ready
from lakeproof.serving.upgrading import replace_older
from lakeproof.working import jobs_of, keep_working
from projections.lineage.cycle_events import keep_appending_cycles
from projections.lineage.projection import LINEAGE
from projections.processing.runner import ProjectionRunner


async def project(services: Services, stop: asyncio.Event, _say: Say, ready: Ready) -> None:
    """
    Keep all read models up to date.

    Raises:
        LedgerError: if a log is corrupt.
    """
    installation = services.installation
    projector = installation.as_role(installation.roles.projector)
    decided = asyncio.Event()  # set when lineage was projected: there may be new cycles to report
    runner = ProjectionRunner(
        projector,
        PROJECTIONS,
        opener=services.opener,
        on_applied=lambda name, _: decided.set() if name == LINEAGE else None,
    )
    bell = services.notifier.subscribe()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(runner.run(stop, bell), name="projections")
            cycles = keep_appending_cycles(projector, services.gateway.append, stop, decided, clock=now)
            tasks.create_task(cycles, name="cycles")
            upgrading = tasks.create_task(replace_older(services, runner, PROJECTIONS), name="upgrading")
            tasks.create_task(
                keep_working(jobs_of(services), JobKind.REBUILD, rebuild_for(services), stop), name="rebuilds"
            )
            ready()
            await stop.wait()
            upgrading.cancel()
    finally:
        services.notifier.unsubscribe(bell)
