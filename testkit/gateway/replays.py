# SPDX-License-Identifier: Apache-2.0
"""Replays of a proposal over the log of a test's tenant, with workers that are forked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from psycopg import AsyncConnection

from gateway.policy.engine import POLICY, PolicyEngine, Program, Verdict
from gateway.policy.vocabulary import variables_of
from gateway.replaying.application import replay_since
from gateway.replaying.findings import RecordedFindings
from gateway.replaying.page_process import Access
from gateway.replaying.past_metadata import past_metadata
from gateway.replaying.reading import DecisionReader
from gateway.replaying.recorded import Decision
from gateway.replaying.replay import Proposed, Replayed
from gateway.replaying.variables import Known, Rebuilder, Unknown
from lakeproof.erasing import open_eraser
from lakeproof.services import now
from ledger.erasing.erase import ErasureRequest
from ledger.format.canonical import Json
from ledger.format.events import ErasureReason
from ledger.store.read import find_log, read_head
from testkit.servers.forked_workers import fork_worker
from testkit.servers.gateways import Gateway

LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
EVERY_VARIABLE: Final = dict.fromkeys(variables_of(POLICY))
"""All variables of policies, whole."""
READS_ALL: Final = " && ".join(f"size({name}) > 0" for name in EVERY_VARIABLE)
"""A policy that holds for all, and reads every variable whole."""


async def replay(
    gateway: Gateway,
    *proposal: Proposed,
    since: datetime = LONG_AGO,
    until: int | None = None,
    limit_s: float | None = None,
    covers: bool = False,
    access: Access | None = None,
) -> Replayed:
    """Replay a proposal over the tenant's log; one policy may take `limit_s` for one decision."""
    parts = gateway.services.gateway
    if limit_s is not None:
        parts = replace(parts, judge=replace(parts.judge, timeout_s=limit_s))
    return await replay_since(
        parts,
        gateway.acme.tenant,
        gateway.acme.log_id,
        proposal,
        since=since,
        until_index=until,
        covers=covers,
        spawn=fork_worker,
        access=access,
    )


async def rebuilt(gateway: Gateway) -> list[tuple[Decision, dict[str, Known | Unknown]]]:
    """Every recorded decision, with the variables that are made of what was recorded."""
    parts = gateway.services.gateway
    lend = partial(parts.database.as_role, parts.roles.tenant(gateway.acme.tenant))
    log_id = gateway.acme.log_id
    async with lend() as connection:
        end = (await read_head(connection, log_id)).size
    names = {"principal", "inputs"}
    reader = DecisionReader(lend, log_id, opener=parts.opener, parts=names, with_files=True, first=0)
    past = await past_metadata(parts, gateway.acme.tenant, log_id)
    rebuilder = Rebuilder(past, RecordedFindings(lend, log_id), EVERY_VARIABLE)
    found = []
    async for decisions, _ in reader.pages(0, end):
        await rebuilder.prepare(decisions)
        found += [(decision, rebuilder.variables(decision)) for decision in decisions]
    return found


class WatchedEngine:
    """The gateway's engine; keeps the variables of policies of each call, all of them or those that are `watched`."""

    def __init__(self, engine: PolicyEngine, watched: Iterable[str] = EVERY_VARIABLE) -> None:
        self._engine = engine
        self._watched = tuple(watched)
        self.seen: list[Mapping[str, Any]] = []

    async def check(self, expression: str, *, log_id: int, timeout_s: float, kind: str = POLICY) -> None:
        """See `PolicyEngine.check`."""
        await self._engine.check(expression, log_id=log_id, timeout_s=timeout_s, kind=kind)

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Json], *, log_id: int, timeout_s: float
    ) -> tuple[Verdict, ...]:
        """See `PolicyEngine.judge`."""
        if "result" in activation:
            self.seen.append({name: activation[name] for name in self._watched})
        return await self._engine.judge(programs, activation, log_id=log_id, timeout_s=timeout_s)


async def erase_ada(gateway: Gateway) -> None:
    """Erase the tenant's only person."""
    installation = gateway.services.installation
    request = ErasureRequest(reason=ErasureReason.REQUEST, at=now())
    dsn = installation.as_role(installation.roles.auditor)
    async with (
        await AsyncConnection.connect(dsn, autocommit=True) as auditor,
        open_eraser(installation, auditor) as eraser,
    ):
        log = await find_log(auditor, installation.origin(gateway.acme.tenant))
        await eraser.erase_subject(log, gateway.acme.key.actor, request)
