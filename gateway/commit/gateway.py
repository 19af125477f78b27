# SPDX-License-Identifier: Apache-2.0
"""
The parts of one gateway process, in one place: `lakeproof.services` builds them, the commit flow, the routes and the
reconciler use them. Nothing is a global.
"""

from __future__ import annotations

import asyncio
from asyncio import Semaphore
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

from gateway.admin.application import Admin
from gateway.catalogs.login import Secrets
from gateway.catalogs.onward import Onward
from gateway.catalogs.registry import Adapter, CatalogRegistry
from gateway.commit.judgement import Judge, Judgement
from gateway.commit.kept_tables import KeptTables
from gateway.commit.known_tables import KnownTables
from gateway.commit.large_requests import LargeRequests
from gateway.commit.metrics_reports import MetricsReports
from gateway.commit.races import Races
from gateway.commit.refusals import Refusals
from gateway.commit.request_hash import RequestKeys
from gateway.commit.target_queues import TargetQueues
from gateway.control.plane import ControlPlane, ControlState
from gateway.database import Database
from gateway.errors import ForbiddenError, UndecidableError
from gateway.identifiers import Target
from gateway.identity import Arrived, Authenticator, Principal
from gateway.policy.engine import Tracer
from gateway.policy.started_engine import AuthorsEngine
from ledger.format.event import random_group_id
from ledger.format.events import CommitDecision
from ledger.format.sealing import Opener
from ledger.format.sequence import Appended, Group, Stale
from ledger.proving.receipts import Receipts
from ledger.store.notifications import LogNotifier
from ledger.store.roles import Roles

LOOKS_MAX: Final = 4
"""Of the connections of a process (`gateway.database.CONNECTIONS_MAX`): commits need the others."""


class Append(Protocol):
    """Appends one group to one log; it is durable on return (`ledger.append.appender.Appender.append`)."""

    async def __call__(
        self, log_id: int, group: Group, *, after: asyncio.Future[None] | None = None
    ) -> Appended | Stale:
        """Append `group`, or return that it was stale; nothing of it is committed before `after` is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What reads the body of a mutation: its cap, the tenants' keys for request hashes, the parser of large ones."""

    body_size_bytes_max: int
    request_keys: RequestKeys
    large_requests: LargeRequests


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """
    Who settles a forwarded decision: the process `owner` (32 hex digits) for as long as `timeout`, then the reconciler.
    """

    owner: str
    timeout: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """
    The parts of one gateway process.

    What it appends: `append`, with ids and times from `random` and `clock`; `opener` opens sealed payload parts.
    `system_log_id` is the log of the installation.
    What every request needs: `database` by its `roles`, `authenticator`, `control`, `judge`, `refusals`, `catalogs`.
    What only commits need: `intake`, `ownership`, `queues`, `races`, `known_tables`, `kept_tables` and `early_loads`.
    What only routes need: `admin`, `receipts` and `webhook_secrets`, the tenants' secrets that sign callbacks of
    Polaris (None: callbacks are not taken), `metrics_reports`, `tracer`, which explains verdicts, `authors`, which
    inspects what is not saved yet, `notifier`, which tells that a log has grown, and `looks`, which bounds how many
    connections of `database` are used to look at the log and the read models.
    """

    system_log_id: int
    append: Append
    clock: Callable[[], datetime]
    random: Callable[[int], bytes]
    opener: Opener
    database: Database
    roles: Roles
    authenticator: Authenticator
    control: ControlPlane
    judge: Judge
    refusals: Refusals
    catalogs: CatalogRegistry
    intake: Intake
    ownership: Ownership
    admin: Admin
    receipts: Receipts
    webhook_secrets: Secrets | None
    metrics_reports: MetricsReports
    tracer: Tracer
    authors: AuthorsEngine
    notifier: LogNotifier
    queues: TargetQueues = field(default_factory=TargetQueues)
    races: Races = field(default_factory=Races)
    known_tables: KnownTables = field(default_factory=KnownTables)
    kept_tables: KeptTables = field(default_factory=KeptTables)
    early_loads: set[tuple[int, Target]] = field(default_factory=set)
    """The logs and targets that are loaded early (`early_loads.py`). Event loop only."""
    looks: Semaphore = field(default_factory=lambda: Semaphore(LOOKS_MAX))

    def new_group_id(self) -> UUID:
        """Return the id of a group that is not derived from its content."""
        now_ms = int(self.clock().timestamp() * 1000)
        return random_group_id(now_ms=now_ms, random=self.random(10))

    def catalog(self, tenant: UUID, state: ControlState, alias: str, onward: Onward | None = None) -> Adapter:
        """
        Return the adapter behind `alias` as the tenant's control plane has it.

        Raises as `CatalogRegistry.adapter`.
        """
        return self.catalogs.adapter(tenant, state.catalogs, alias, onward)

    async def rules_in_force(self, principal: Principal) -> ControlState:
        """
        Return the tenant's control plane as of now, with the caller's credentials still in force in it.

        Raises:
            UnauthorizedError: if they were revoked, or have expired.
            UnavailableError: if it cannot be read: nothing can be judged.
        """
        state = await self.control.current(principal.log_id)
        principal.check_in_force(state, now=self.clock())
        return state

    def rules_at_arrival(self, arrived: Arrived) -> ControlState:
        """
        Return the tenant's control plane as it was read with the caller's credentials, which must not have expired
        since.

        Raises:
            UnauthorizedError: if they have.
        """
        arrived.principal.check_in_force(arrived.state, now=self.clock())
        return arrived.state

    async def check_permitted(
        self, caller: Principal, judgement: Judgement, *, operation: str, target: Target | None
    ) -> None:
        """
        Check that access was permitted where no decision is recorded; a refusal is counted.

        Raises:
            ForbiddenError: if no rule permits it, or one forbids it.
            UnavailableError: if access could not be judged.
        """
        self.judge.count_failures(judgement)
        if judgement.decision is CommitDecision.APPROVED:
            return
        if judgement.decision is CommitDecision.UNDECIDABLE:
            raise UndecidableError(f"access could not be judged: {judgement.message}")
        await self.refusals.not_permitted(caller, operation, target, judgement.reason)
        raise ForbiddenError(judgement.message)
