# SPDX-License-Identifier: Apache-2.0
"""
The metrics of /metrics that come from the database: read models, streams, open decisions, purges, anchoring,
detection.

If the published size of the system log stays behind the signed one, witnesses do not answer: alert on that.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from gateway.purging.metrics import read_purge_metrics
from gateway.reconcile.metrics import read_open_decision_metrics
from lakeproof.anchor_settings import load_policy
from lakeproof.projecting import metrics_text
from lakeproof.services import Services, now
from lakeproof.streaming import streams_metrics_text
from ledger.anchoring.anchor_log import QUERIES, read_states
from ledger.anchoring.published import read_published_checkpoint
from projections.exposition import Metric, MetricKind, Sample, format_metrics
from spark_detect.status import read_status, status_metrics


async def read_metrics(services: Services) -> str:
    """
    Return all metrics that are read from the database, in the format of Prometheus.

    Raises:
        UnavailableError: if the database cannot be reached.
    """
    database, roles = services.gateway.database, services.installation.roles
    projected = await metrics_text(database, roles.auditor)
    streamed = await streams_metrics_text(database, roles.auditor, services)
    async with database.as_role(roles.gateway) as connection:
        undecided = format_metrics(await read_open_decision_metrics(connection, now=now()))
        purging = format_metrics(await read_purge_metrics(connection))
    anchored = format_metrics(await measure_anchoring(services, now=now()))
    # Detection works on blocking connections of its own; its role may read the counts.
    dsn = services.installation.as_role(roles.detector)
    detected = format_metrics(status_metrics(await asyncio.to_thread(read_status, dsn)))
    return projected + streamed + undecided + purging + anchored + detected


async def measure_anchoring(services: Services, *, now: datetime) -> list[Metric]:
    """
    Return the metrics of anchoring, as stored now.

    Raises:
        UnavailableError: if the database cannot be reached.
        LedgerError: if a checkpoint or an anchor of the system log is broken, or the signer's keys cannot be read.
        SettingsError: if the witness policy cannot be used.
    """
    system, policy = services.system, load_policy(services.installation.settings)
    async with services.gateway.database.as_role(services.installation.roles.auditor) as connection:
        states = await read_states(connection, system)
        row = await (await connection.execute(QUERIES["anchoring_measures"], {"system": system.log_id})).fetchone()
        signed, stamped, stamped_at = row or (None, None, None)
        published = signed or 0
        if policy is not None and signed is not None:
            keys = services.installation.open_keys().verifier_keys(system.origin)
            found = await read_published_checkpoint(connection, system, keys=keys, policy=policy)
            published = 0 if found is None else found.checkpoint.size
    waiting = [(state.size or 0) - (state.anchor.size if state.anchor else 0) for state in states if state.moved]
    sizes = {"signed": signed or 0, "published": published, "stamped": stamped or 0}
    metrics = [
        Metric(
            name="lakeproof_system_log_checkpoint_size",
            kind=MetricKind.GAUGE,
            help="Size of the newest checkpoint of the system log that is signed, published or stamped.",
            samples=[Sample(labels={"stage": stage}, value=size) for stage, size in sizes.items()],
        ),
        _gauge("lakeproof_unanchored_logs", "Logs with signed entries that are not anchored yet.", len(waiting)),
        _gauge("lakeproof_unanchored_entries", "Signed entries that are not anchored yet.", sum(waiting)),
    ]
    if stamped_at is not None:
        age_s = int((now - stamped_at).total_seconds())
        metrics.append(_gauge("lakeproof_time_stamp_age_seconds", "Age of the newest time stamp.", age_s))
    return metrics


def _gauge(name: str, text: str, value: int) -> Metric:
    return Metric(name=name, kind=MetricKind.GAUGE, help=text, samples=[Sample(labels={}, value=value)])
