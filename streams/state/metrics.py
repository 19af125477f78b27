# SPDX-License-Identifier: Apache-2.0
"""
Metrics of the streams: the lag of handlers, deferred messages, the outbox, dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from ledger.store.read import Log
from ledger.store.session import Connection
from projections.exposition import Metric, MetricKind, Sample
from streams.state.cursors import read_progress
from streams.state.dead_letters import count_letters
from streams.state.deferred import count_deferred
from streams.state.outbox import read_backlog


async def read_metrics(connection: Connection, handlers: Iterable[str]) -> list[Metric]:
    """
    Return the streams' metrics over all logs that the connection's role may see (an auditor: every one).

    Whatever process runs the streams, they are read from the database.
    """
    progress = await read_progress(connection, handlers)
    waiting = await read_backlog(connection)
    letters = await count_letters(connection)
    deferred = await count_deferred(connection)
    return [
        Metric(
            name="lakeproof_stream_lag_entries",
            kind=MetricKind.GAUGE,
            help="Entries in the log that a handler has not passed yet.",
            samples=[
                Sample(labels=_labels(each.log, handler=each.handler), value=each.lag_entries) for each in progress
            ],
        ),
        Metric(
            name="lakeproof_stream_handled_total",
            kind=MetricKind.COUNTER,
            help="Entries that a handler was given and has passed.",
            samples=[Sample(labels=_labels(each.log, handler=each.handler), value=each.handled) for each in progress],
        ),
        Metric(
            name="lakeproof_stream_failures",
            kind=MetricKind.GAUGE,
            help="Failures in a row that put off a handler's next batch.",
            samples=[Sample(labels=_labels(each.log, handler=each.handler), value=each.failures) for each in progress],
        ),
        Metric(
            name="lakeproof_stream_deferred",
            kind=MetricKind.GAUGE,
            help="Entries that a handler has passed and that wait for a host that others run.",
            samples=[Sample(labels=_labels(each.log, handler=each.handler), value=each.messages) for each in deferred],
        ),
        Metric(
            name="lakeproof_stream_host_failures",
            kind=MetricKind.GAUGE,
            help="How often in a row the worst of those hosts did not answer.",
            samples=[Sample(labels=_labels(each.log, handler=each.handler), value=each.failures) for each in deferred],
        ),
        Metric(
            name="lakeproof_outbox_waiting",
            kind=MetricKind.GAUGE,
            help="Messages that wait to be taken by a sink.",
            samples=[Sample(labels=_labels(each.log, sink=each.sink), value=each.messages) for each in waiting],
        ),
        Metric(
            name="lakeproof_outbox_age_seconds",
            kind=MetricKind.GAUGE,
            help="How long the oldest message has waited for a sink.",
            samples=[Sample(labels=_labels(each.log, sink=each.sink), value=ceil(each.age_s)) for each in waiting],
        ),
        Metric(
            name="lakeproof_dead_letters",
            kind=MetricKind.GAUGE,
            help="Messages that could not be handled, or were refused, and wait for a replay.",
            samples=[Sample(labels=_labels(each.log, source=each.source), value=each.count) for each in letters],
        ),
    ]


def _labels(log: Log, **labels: str) -> Mapping[str, str]:
    return {"tenant": "system" if log.tenant is None else log.tenant.hex, **labels}
