# SPDX-License-Identifier: Apache-2.0
"""
Engines' reports of scans and commits are kept in the log, within bounds, and what they tell of people can be erased.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.commit.metrics_reports import KEPT_MAX
from ledger.format.events import MetricsReported, ReportKind, from_data
from testkit.gateway.log_contents import check_agreement, read_stored
from testkit.gateway.sales import ORDERS, ORDERS_KEY, TABLES, another_key, error_of
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

METRICS = f"{ORDERS}/metrics"
SCAN: dict[str, Any] = {
    "report-type": "scan-report",
    "table-name": "lake.sales.orders",
    "snapshot-id": 993863745535017463,
    "filter": {"type": "eq", "term": "name", "value": "Ada"},
    "schema-id": 0,
    "projected-field-ids": [1],
    "projected-field-names": ["id"],
    "metrics": {"total-planning-duration": {"count": 1, "time-unit": "nanoseconds", "total-duration": 26}},
}
COMMIT: dict[str, Any] = {
    "report-type": "commit-report",
    "table-name": "lake.sales.orders",
    "snapshot-id": 7,
    "sequence-number": 1,
    "operation": "append",
    "metrics": {},
}


async def reported(sales: Gateway) -> list[tuple[MetricsReported, bytes]]:
    stored = await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)
    return [
        (from_data(MetricsReported, one.entry.data), one.parts["report"])
        for one in stored
        if one.entry.type == MetricsReported.TYPE
    ]


async def test_a_report_is_kept_as_it_was_sent_and_the_entry_tells_nothing_personal(sales: Gateway) -> None:
    for report in (SCAN, COMMIT):
        assert (await sales.http.post(METRICS, json=report)).status_code == 204
    (scan, scan_report), (commit, commit_report) = await reported(sales)
    assert (scan.kind, scan.operation, scan.snapshot) == (ReportKind.SCAN, None, "993863745535017463")
    assert (commit.kind, commit.operation, commit.snapshot) == (ReportKind.COMMIT, "append", "7")
    assert [json.loads(scan_report), json.loads(commit_report)] == [SCAN, COMMIT]
    (entry, *_) = (
        one.entry
        for one in await read_stored(sales.services, sales.acme.log_id, key=ORDERS_KEY)
        if one.entry.type == MetricsReported.TYPE
    )
    assert "Ada" not in str(entry.data)
    metrics = (await sales.http.get("/metrics")).text
    assert 'lakeproof_gateway_metrics_reports_total{outcome="kept"}' in metrics
    await check_agreement(sales.services, sales.acme.log_id)


async def test_of_one_caller_a_bounded_number_is_kept(sales: Gateway) -> None:
    for _ in range(KEPT_MAX + 5):
        assert (await sales.http.post(METRICS, json=COMMIT)).status_code == 204
    assert len(await reported(sales)) == KEPT_MAX
    assert 'outcome="dropped"} ' in (await sales.http.get("/metrics")).text


@pytest.mark.parametrize(
    "report",
    [
        *({**SCAN, name: None} for name in ("report-type", "table-name", "snapshot-id", "metrics")),
        *({**COMMIT, name: None} for name in ("operation", "sequence-number")),
        {**SCAN, "report-type": "other-report"},
        {**SCAN, "snapshot-id": "7"},
        {**SCAN, "snapshot-id": True},
        {**SCAN, "metrics": []},
        [],
        {},
    ],
)
async def test_what_is_no_report_is_refused(module_sales: Gateway, report: Any) -> None:
    answer = await module_sales.http.post(METRICS, json=report)
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert await reported(module_sales) == []


async def test_a_report_that_is_too_large_is_refused(sales: Gateway) -> None:
    answer = await sales.http.post(METRICS, json={**SCAN, "metadata": {"a": "x" * 70_000}})
    assert answer.status_code == 413


async def test_only_who_may_read_a_table_reports_about_it(sales: Gateway) -> None:
    assert (await sales.http.post(f"{TABLES}/nothing/metrics", json=SCAN)).status_code == 404
    headers = {"Authorization": f"Bearer {await another_key(sales)}"}
    assert (await sales.http.post(METRICS, json=SCAN, headers=headers)).status_code == 403
    assert await reported(sales) == []
