"""
What operators scrape: the history that the read models hold, and what waits in streams, at other catalogs and at
witnesses.
"""

from __future__ import annotations

import asyncio

from gateway.reconcile.metrics import read_open_decision_metrics
from lakeproof.projecting import metrics_text
from lakeproof.services import Services, now
from lakeproof.serving.anchoring_metrics import measure_anchoring
from lakeproof.streaming import streams_metrics_text
from projections.exposition import format_metrics
from spark_detect.status import read_status, status_metrics


async def history(services: Services) -> str:
    """
    Return everything that is measured in the database, as Prometheus scrapes it.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    database, roles = services.gateway.database, services.installation.roles
    projected = await metrics_text(database, roles.auditor)
    streamed = await streams_metrics_text(database, roles.auditor, services)
    async with database.as_role(roles.gateway) as connection:
        undecided = format_metrics(await read_open_decision_metrics(connection, now=now()))
    anchored = format_metrics(await measure_anchoring(services, now=now()))
    # Detection works on blocking connections of its own; its role may read the counts.
    dsn = services.installation.as_role(roles.detector)
    detected = format_metrics(status_metrics(await asyncio.to_thread(read_status, dsn)))
    return projected + streamed + undecided + anchored + detected
