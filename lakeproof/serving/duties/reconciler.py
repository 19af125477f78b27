# SPDX-License-Identifier: Apache-2.0
"""
The duty of the reconciler: settle decisions on foreign catalogs whose outcome is not known.

It also says at the start what the operator has to decide: contested catalogs, and access rules that are in doubt.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.jobs import JobKind
from gateway.reconcile.reconciler import Reconciler
from lakeproof.evidence import EvidenceFiles
from lakeproof.messages import Say
from lakeproof.services import Services
from lakeproof.serving.asked_work import evidence_for, keep_tidy, policy_replay_for
from lakeproof.serving.duties.duty import Ready
from lakeproof.serving.former_rules import warn_of_doubtful_rules
from lakeproof.working import jobs_of, keep_working

REPLAYS_AT_ONCE: Final = 2
"""Replays of policies, of different tenants: each keeps a worker process busy."""


async def reconcile(services: Services, stop: asyncio.Event, say: Say, ready: Ready) -> None:
    """
    Settle open decisions that are past their deadline; make the evidence and replay the policies that requests ask for.

    Raises:
        LedgerError: if a log is corrupt.
    """
    for (tenant, alias), reason in services.gateway.catalogs.contested.items():
        say(
            f"catalog {alias} of tenant {tenant.hex} is not served: {reason}; move the place "
            "(lakeproof catalogs transfer) or delete the catalog, then start again"
        )
    jobs, files = jobs_of(services), EvidenceFiles(services.installation.settings.home)
    bell = services.notifier.subscribe()
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(Reconciler(services.gateway).run(stop, bell), name="reconciler")
            tasks.create_task(warn_of_doubtful_rules(services, say), name="doubtful rules")
            tasks.create_task(
                keep_working(jobs, JobKind.EVIDENCE, evidence_for(services, files), stop), name="evidence"
            )
            for number in range(REPLAYS_AT_ONCE):
                replays = keep_working(jobs, JobKind.POLICY_REPLAY, policy_replay_for(services), stop)
                tasks.create_task(replays, name=f"replays of policies {number}")
            tasks.create_task(keep_tidy(services, jobs, files, stop), name="expired evidence")
            ready()
    finally:
        services.notifier.unsubscribe(bell)
