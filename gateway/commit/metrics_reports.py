# SPDX-License-Identifier: Apache-2.0
"""
Metrics that engines report of their scans and commits, kept in the log within bounds.

They are claims, and nothing is decided by them. A report's filter may contain values of columns, so that the report
itself is a payload part of the caller, which can be erased. Of one caller at most sixty reports are kept in a minute by
each process; the others are counted (`lakeproof_gateway_metrics_reports_total`) and gone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Final

from gateway.commit.recorded_callers import RecordedCallers
from gateway.errors import BadRequestError
from gateway.identifiers import Target
from gateway.identity import Principal
from gateway.log_errors import append_errors
from ledger.errors import FormatError
from ledger.format.event import Part, random_group_id
from ledger.format.events import MetricsReported, ReportKind, prepare_event
from ledger.format.json_object import parse_object
from ledger.format.sequence import Appended, Group, Stale

REPORT_SIZE_BYTES_MAX: Final = 64 * 1024
KEPT_MAX: Final = 60
"""Reports of one caller in one interval."""
PART: Final = "report"
_KINDS: Final = {"scan-report": ReportKind.SCAN, "commit-report": ReportKind.COMMIT}
_OPERATION_LENGTH_MAX: Final = 64


class MetricsReports:
    """Keeps reports. One per process; `_callers` belongs to the event loop."""

    def __init__(
        self,
        append: Callable[[int, Group], Awaitable[Appended | Stale]],
        *,
        clock: Callable[[], datetime],
        random: Callable[[int], bytes],
    ) -> None:
        self._append = append
        self._clock = clock
        self._random = random
        self._callers = RecordedCallers()

    async def keep(self, caller: Principal, target: Target, body: bytes) -> bool:
        """
        Keep a report about a table; False if the caller has sent too many.

        Raises:
            BadRequestError: if it is not a report as the specification has it.
            UnavailableError: if the log does not answer.
        """
        data, now = _parse(target, body), self._clock()
        recorded = self._callers.of(caller.log_id, caller.actor, now=now)
        if recorded.recorded >= KEPT_MAX:
            return False
        recorded.recorded += 1
        event = prepare_event(
            data,
            key=target.key,
            actor=caller.actor,
            occurred_at=now,
            parts=(Part(name=PART, payload=body, salt=self._random(32), subject=caller.actor),),
        )
        group_id = random_group_id(now_ms=int(now.timestamp() * 1000), random=self._random(10))
        with append_errors(not_appended="the report could not be kept: try again"):
            await self._append(caller.log_id, Group(id=group_id, then=(event,)))
        return True


def _parse(target: Target, body: bytes) -> MetricsReported:
    try:
        report = parse_object(body, what="body")
    except FormatError as error:
        raise BadRequestError(f"expected {error.expected}, found {error.found}", field="body") from error
    kind = _KINDS.get(str(report.get("report-type")))
    if kind is None:
        raise BadRequestError(
            f"expected one of {sorted(_KINDS)}, found {report.get('report-type')!r:.80}", field="report-type"
        )
    required: dict[str, type] = {"table-name": str, "snapshot-id": int, "metrics": dict}
    if kind is ReportKind.COMMIT:
        required |= {"operation": str, "sequence-number": int}
    for name, type_ in required.items():
        if not isinstance(report.get(name), type_) or isinstance(report.get(name), bool):
            raise BadRequestError(f"expected a {_WORDS[type_]}, found {report.get(name)!r:.80}", field=name)
    operation: Any = report.get("operation")
    return MetricsReported(
        identifier=target.identifier(),
        kind=kind,
        operation=operation[:_OPERATION_LENGTH_MAX] if kind is ReportKind.COMMIT else None,
        snapshot=str(report["snapshot-id"])[:_OPERATION_LENGTH_MAX],
    )


_WORDS: Final = {str: "text", int: "whole number", dict: "JSON object"}
