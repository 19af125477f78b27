# SPDX-License-Identifier: Apache-2.0
"""
The group that records that a foreign catalog has accepted a commit, made while the catalog is still at work on it.

Nothing of it is appended before the catalog has answered. Guarantee: what is appended is what `settled_by_reply` would
have made of the answer. An answer that says anything else than that the commit to this very table was accepted is
recorded by a group that is made of it.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from gateway.catalogs.replies import ForwardOutcome
from gateway.commit.approved import Approved
from gateway.commit.events import accepted_blank, table_uuid
from gateway.commit.open_decisions import close_guard
from gateway.mutations import Operation
from ledger.errors import LedgerError
from ledger.format.event import BlankEvent
from ledger.format.events import CommitOutcome, OutcomeEvidence
from ledger.format.guards import GuardCall
from ledger.format.sequence import Group
from ledger.values import value_class


@value_class
class SettledAhead:
    """What is known of such a group before there is an answer: all but where the metadata is, and the time."""

    group_id: UUID
    event: BlankEvent
    guard: GuardCall
    table_uuid: str | None

    def group(self, outcome: ForwardOutcome, at: datetime) -> Group | None:
        """Return the group that records `outcome` at that time; None if that is not what was expected."""
        location = outcome.metadata_location
        is_expected = (
            outcome.settled is CommitOutcome.ACCEPTED
            and outcome.evidence is OutcomeEvidence.ANSWER
            and outcome.table_uuid == self.table_uuid
        )
        if location is None or not is_expected:
            return None
        return Group(id=self.group_id, then=(self.event.fill(location, at),), guard=(self.guard,))


def settle_ahead(decision: UUID, approved: Approved) -> SettledAhead | None:
    """
    Return what is known of the outcome of a commit to a table if it is accepted; None if that cannot be said ahead.
    """
    gateway, requested, loaded, change = approved.gateway, approved.requested, approved.loaded, approved.change
    if approved.mutation.operation is not Operation.TABLE_COMMIT or len(approved.ends) != 1:
        return None
    try:
        event = accepted_blank(requested, decision, loaded, change, at=gateway.clock())
    except LedgerError:
        return None  # why, the outcome tells
    if event is None:
        return None
    return SettledAhead(
        group_id=gateway.new_group_id(),
        event=event,
        guard=close_guard(decision, approved.mutation.target.key),
        table_uuid=table_uuid(loaded, change),
    )
