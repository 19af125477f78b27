# SPDX-License-Identifier: Apache-2.0
"""A table to which everything happened that the graph records."""

from __future__ import annotations

from ledger.format.events import CommitDecision, DetectionKind, Reason
from testkit.projections.story import BOB, ORDERS, Story, dataset


def happened(story: Story) -> Story:
    """What one table can meet with: policies, writers, lineage on both sides, findings, somebody behind its back."""
    story.catalog()
    story.policy("tenant-id", expression="result.columns.exists(c, c.name == 'tenant_id')")
    story.policy("writers", expression="'data-eng' in principal.roles")
    story.committed(snapshots=["11"])
    story.policy("tenant-id", 2, expression="size(result.columns) > 0")
    story.decided(ORDERS, CommitDecision.REJECTED, actor=BOB, principal="bob", reason=Reason(id="writers", version=1))
    story.committed(snapshots=["12"])
    story.observed("13", parent="12")
    story.lineage(
        [dataset("raw.events"), dataset("clicks", "kafka://broker")],
        [dataset("sales.orders", version="12")],
        columns=[("mail", "email")],
        run_id="11111111-0000-4000-8000-000000000000",
    )
    story.scanned("12", ("email", DetectionKind.EMAIL, 92), ("note", DetectionKind.PHONE, 55))
    story.scanned("13", ("email", DetectionKind.EMAIL, 92))
    story.reviewed(story.size - 1)
    story.lineage(
        [dataset("sales.orders", version="12")],
        [dataset("mart.revenue")],
        columns=[("email", "contact")],
        run_id="22222222-0000-4000-8000-000000000000",
        job="revenue",
        actor=BOB,
    )
    return story
