# SPDX-License-Identifier: Apache-2.0
"""
Metrics of open decisions: their number in each log, and the age of the oldest.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.exposition import Metric, MetricKind, Sample

_QUERIES = load_queries("gateway", "reconciler.sql")
_TIME_BITS: Final = 128 - 48
"""A UUIDv7 begins with 48 bits of Unix time in milliseconds (RFC 9562, section 5.7)."""


async def read_open_decision_metrics(connection: Connection, *, now: datetime) -> list[Metric]:
    """
    Return the metrics of open decisions by log; a connection of the gateway's role sees those of all.
    """
    rows = await (await connection.execute(_QUERIES["open_by_log"])).fetchall()
    now_ms = int(now.timestamp() * 1000)
    ages_s = {origin: max(0, now_ms - (UUID(first).int >> _TIME_BITS)) // 1000 for origin, _, first in rows}
    return [
        Metric(
            name="lakeproof_open_decisions",
            kind=MetricKind.GAUGE,
            help="Decisions on foreign catalogs whose outcome is not known yet.",
            samples=[Sample(labels={"log": origin}, value=count) for origin, count, _ in rows],
        ),
        Metric(
            name="lakeproof_open_decision_age_seconds",
            kind=MetricKind.GAUGE,
            help="Age of the oldest of them.",
            samples=[Sample(labels={"log": origin}, value=age_s) for origin, age_s in ages_s.items()],
        ),
    ]
