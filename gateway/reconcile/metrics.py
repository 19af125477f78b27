# SPDX-License-Identifier: Apache-2.0
"""
Metrics of open decisions: their number in each log, and how long the oldest has been due.
"""

from __future__ import annotations

from datetime import datetime

from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.exposition import Metric, MetricKind, Sample

_QUERIES = load_queries("gateway", "reconciler.sql")


async def read_open_decision_metrics(connection: Connection, *, now: datetime) -> list[Metric]:
    """
    Return the metrics of open decisions by log; a connection of the gateway's role sees those of all.
    """
    rows = await (await connection.execute(_QUERIES["open_by_log"])).fetchall()
    ages_s = {origin: max(0, int((now - deadline).total_seconds())) for origin, _, deadline in rows}
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
            help="Time since the deadline of the oldest of them: its process is not at work on it any more.",
            samples=[Sample(labels={"log": origin}, value=age_s) for origin, age_s in ages_s.items()],
        ),
    ]
