# SPDX-License-Identifier: Apache-2.0
"""
How far detection is in each tenant's log, and what it has said there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import psycopg

from ledger.store.queries import load_queries
from ledger.store.read import Log
from ledger.store.session import Connection
from projections.exposition import Metric, MetricKind, Sample

QUERIES: Final = load_queries("spark_detect", "status.sql")
WAITING_MAX: Final = 100_000
"""Entries that are counted for one log; more are as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatus:
    """
    One log: entries that wait for a batch, ranges that are worked on and those that are put off, the last batch;
    scans in the log, those of them that failed, and findings.
    """

    log: Log
    waiting: int
    open_ranges: int
    put_off: int
    batch: int
    scans: int
    failed: int
    findings: int


def read_status(dsn: str) -> list[LogStatus]:
    """
    Return the status of every tenant's log. Blocking; `dsn` works as the detector or auditor role.

    Raises:
        psycopg.OperationalError: if the database cannot be reached.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute(QUERIES["logs"]).fetchall()
    return [
        LogStatus(
            log=Log(log_id=log_id, origin=origin, tenant=tenant, reader=None),
            waiting=waiting,
            open_ranges=open_ranges,
            put_off=put_off,
            batch=batch,
            scans=scans,
            failed=failed,
            findings=findings,
        )
        for log_id, origin, tenant, waiting, open_ranges, put_off, batch, scans, failed, findings in rows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What of one log waits for detection: entries, counted up to `WAITING_MAX`, and ranges that are put off."""

    entries: int
    put_off: int


async def read_waiting(connection: Connection, log_id: int) -> Waiting:
    """
    Return what of one log waits for detection; `connection` works as the detector or auditor role.
    """
    bounds = {"log_id": log_id, "limit": WAITING_MAX}
    ((entries, put_off),) = await (await connection.execute(QUERIES["waiting"], bounds)).fetchall()
    return Waiting(entries=entries, put_off=put_off)


def status_metrics(status: list[LogStatus]) -> list[Metric]:
    """
    Return what operators scrape of detection, over all logs.
    """
    gauges: tuple[tuple[str, str, int], ...] = (
        ("waiting_entries", "Entries that wait for detection.", sum(each.waiting for each in status)),
        ("open_ranges", "Ranges of logs that detection works on.", sum(each.open_ranges for each in status)),
        ("put_off_ranges", "Ranges of logs whose storage does not answer.", sum(each.put_off for each in status)),
    )
    counters = (
        ("scans_total", "Scans in the logs.", sum(each.scans for each in status)),
        ("scans_failed_total", "Scans that failed.", sum(each.failed for each in status)),
        ("findings_total", "Findings in the logs.", sum(each.findings for each in status)),
    )
    return [_metric(MetricKind.GAUGE, *each) for each in gauges] + [
        _metric(MetricKind.COUNTER, *each) for each in counters
    ]


def _metric(kind: MetricKind, name: str, help_text: str, value: int) -> Metric:
    samples = (Sample(labels={}, value=value),)
    return Metric(name=f"lakeproof_detection_{name}", kind=kind, help=help_text, samples=samples)
