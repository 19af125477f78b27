# SPDX-License-Identifier: Apache-2.0
"""
Metrics of purges: how many are open in each log, and how many of these met a problem.
"""

from __future__ import annotations

from ledger.store.queries import load_queries
from ledger.store.session import Connection
from projections.exposition import Metric, MetricKind, Sample

_QUERIES = load_queries("gateway", "purges.sql")


async def read_purge_metrics(connection: Connection) -> list[Metric]:
    """
    Return the metrics of open purges by log; a connection of the gateway's role sees those of all.
    """
    rows = await (await connection.execute(_QUERIES["open_by_log"])).fetchall()
    return [
        Metric(
            name="lakeproof_open_purges",
            kind=MetricKind.GAUGE,
            help="Dropped tables whose files are being deleted.",
            samples=[Sample(labels={"log": origin}, value=count) for origin, count, _ in rows],
        ),
        Metric(
            name="lakeproof_purges_with_problems",
            kind=MetricKind.GAUGE,
            help="Those of them whose last attempt could not be finished; lakeproof purges list says why.",
            samples=[Sample(labels={"log": origin}, value=count) for origin, _, count in rows],
        ),
    ]
