# SPDX-License-Identifier: Apache-2.0
"""Decisions that are open in a tenant's log, and how each is settled."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from gateway.catalogs.catalog import Change
from gateway.commit.events import settled_event
from gateway.commit.open_decisions import (
    FORWARD,
    Forwarding,
    close_guard,
    doubt_guard,
    open_guard,
    state_digest,
)
from gateway.identifiers import Target
from lakeproof.services import Services, new_group_id
from ledger.format.entry import Branch
from ledger.format.event import SYSTEM_ACTOR, Event, Part, prepare
from ledger.format.events import CommitDecided, CommitDecision, CommitOutcome, CommitSettled, OutcomeEvidence, to_data
from ledger.format.sequence import Appended, Group

NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
OWNER: Final = "0123456789abcdef" * 2
TARGET = Target(alias="beyond", namespace=("sales",), name="orders")


async def decide(
    services: Services,
    log_id: int,
    *,
    target: Target = TARGET,
    deadline: datetime = NOON,
    snapshots: tuple[str, ...] = (),
) -> UUID:
    """Open a decision as the commit flow does."""
    decision, target = new_group_id(), TARGET
    forwarding = Forwarding(
        owner=OWNER,
        deadline=deadline,
        requirements=({"type": "assert-ref-snapshot-id", "ref": "ma\x00in", "snapshot-id": 2**62},),
        result=state_digest(Change(properties={"a": "b"})),
    )
    data = CommitDecided(
        actions=(),
        as_of=0,
        base="s3://b/0.json",
        decision=CommitDecision.APPROVED,
        identifier=target.identifier(),
        operation="table.commit",
        policy_set="0" * 64,
        principal_source="api_key",
        reason=None,
        request="0" * 64,
        snapshots=snapshots,
        table_uuid=None,
    )
    event = prepare(
        Event(
            type=CommitDecided.TYPE,
            version=1,
            key=target.key,
            actor=SYSTEM_ACTOR,
            occurred_at=NOON,
            data=to_data(data),
            parts=(Part(name=FORWARD, payload=forwarding.payload(), salt=services.gateway.random(32)),),
        )
    )
    guard = open_guard(
        decision,
        forwarding,
        target=target,
        operation="table.commit",
        base="s3://b/0.json",
        table_uuid=None,
        snapshots=snapshots,
    )
    outcome = await services.gateway.append(log_id, Group(id=decision, then=(event,), guard=(guard,)))
    assert isinstance(outcome, Appended)
    return decision


async def settle(
    services: Services, log_id: int, decision: UUID, outcome: CommitOutcome, key: str = TARGET.key
) -> bool:
    """Settle a decision as whoever finds out does; tells whether it was still open."""
    data = CommitSettled(
        decision=str(decision),
        evidence=OutcomeEvidence.RECONCILED,
        metadata_location=None,
        metadata_sha256=None,
        outcome=outcome,
        snapshots=(),
        table_uuid=None,
    )
    guard = (doubt_guard if outcome is CommitOutcome.UNKNOWN else close_guard)(decision, key)
    event = settled_event(data, key=key, actor=SYSTEM_ACTOR, at=NOON)
    appended = await services.gateway.append(log_id, Group(id=new_group_id(), then=(event,), guard=(guard,)))
    assert isinstance(appended, Appended)
    return appended.branch is Branch.THEN
