# SPDX-License-Identifier: Apache-2.0
"""
Metrics of this process for Prometheus: mutations in flight, their outcomes, and the duration of each stage.

These counters start at zero with the process; metrics over the whole log are the projections'.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import accumulate
from time import perf_counter
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from gateway.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    GatewayError,
    NotFoundError,
    PolicyDeniedError,
    RequirementFailedError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UndecidableError,
    UnprocessableError,
    UnsupportedEncodingError,
    UnsupportedOperationError,
    UpstreamAnswerError,
    UpstreamCredentialsError,
)
from gateway.mutations import Operation

OK = 200
BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class MutationStage(StrEnum):
    """
    The stages of a mutation as `commit_flow.py` numbers them; the number is the label `step` of the latency metric.
    """

    TENANT = "1"
    IDENTIFIERS = "2"
    PRINCIPAL = "3"
    BODY = "4"
    PARSE = "5"
    CATALOG = "7"
    LOAD = "8"
    CONTROL = "9"
    JUDGE = "10"
    DECIDE = "11"
    CHANGE = "12"
    SETTLE = "13"
    ANSWER = "14"


class LoadStage(StrEnum):
    """The stages of a load: whether the caller may, and the table for the answer."""

    PERMIT = "permit"
    SHOW = "show"


class Ending(StrEnum):
    """How a mutation ended, for its whole duration."""

    MADE = "made"
    REFUSED = "refused"


class Rejection(StrEnum):
    """
    Why a mutation was certainly not made: the label `reason` of `lakeproof_commit_rejected_total`, a closed set.

    Which policy or rule it was is in the log, not here: tenants make them, so they are not bounded.
    """

    POLICY_DENIED = "policy_denied"
    ACCESS_DENIED = "access_denied"
    POLICY_ENGINE_UNAVAILABLE = "policy_engine_unavailable"
    CONFLICT = "conflict"
    UNAUTHENTICATED = "unauthenticated"
    INVALID = "invalid"
    NOT_FOUND = "not_found"
    UPSTREAM_REFUSED = "upstream_refused"
    UNAVAILABLE = "unavailable"


def rejection_of(error: GatewayError) -> Rejection | None:
    """
    Return why a mutation was rejected; None if it may have been made, or broke down.
    """
    match error:
        case PolicyDeniedError():
            return Rejection.POLICY_DENIED
        case ForbiddenError():
            return Rejection.ACCESS_DENIED
        case UndecidableError():
            return Rejection.POLICY_ENGINE_UNAVAILABLE
        case UnavailableError():
            return Rejection.UNAVAILABLE
        case ConflictError() | RequirementFailedError():
            return Rejection.CONFLICT
        case UnauthorizedError():
            return Rejection.UNAUTHENTICATED
        case UpstreamAnswerError() | UpstreamCredentialsError():
            return Rejection.UPSTREAM_REFUSED
        case NotFoundError():
            return Rejection.NOT_FOUND
        case BadRequestError() | UnprocessableError() | UnsupportedOperationError():
            return Rejection.INVALID
        case TooLargeError() | UnsupportedEncodingError():
            return Rejection.INVALID
        case _:  # its outcome is unknown (`CommitStateUnknownError`), or it is a failure of ours
            return None


Done: TypeAlias = Callable[[MutationStage], None]
"""Called at the end of each stage: for latency metrics, and for tests that stop the process there."""


class FailedPrograms:
    """Counts programs that could not be judged. A permitting rule that fails shows only here: it refuses nothing."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._failed = Counter(
            "lakeproof_failed_programs_total",
            "Access rules and policies that could not be judged, by kind: once for each request they were judged for.",
            ["kind"],
            registry=self._registry,
        )

    def count(self, kind: str) -> None:
        """Count one failure of a program of this kind."""
        self._failed.labels(kind=kind).inc()

    def text(self) -> str:
        """Return the counts in Prometheus' text format."""
        return generate_latest(self._registry).decode()


class _Times:
    """The durations of one stage: how often it ended in each bucket, the last of which has no bound, and their sum."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


class _StageTimes(Collector):
    """
    The histogram of the duration of each stage, by the label `label`. Event loop only: without the locks of a
    `Histogram`, of which a commit would take some forty.
    """

    def __init__(self, name: str, about: str, *, label: str, stages: Iterable[StrEnum]) -> None:
        self._name = name
        self._about = about
        self._label = label
        self.times = {stage: _Times() for stage in stages}

    def of(self, stage: StrEnum) -> _Times:
        """Return the durations of a stage."""
        return self.times[stage]

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the histogram; its buckets are cumulative."""
        family = HistogramMetricFamily(self._name, self._about, labels=[self._label])
        bounds = [*map(floatToGoString, BUCKETS_S), "+Inf"]
        for stage, times in self.times.items():
            buckets = zip(bounds, map(float, accumulate(times.counts)), strict=True)
            family.add_metric([stage.value], list(buckets), times.sum_s)
        yield family


class Measures:
    """The gateway's own metrics, in a registry of their own (nothing global)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._stages = _StageTimes(
            "lakeproof_commit_step_seconds",
            "Time from the end of the step before to the end of this one.",
            label="step",
            stages=MutationStage,
        )
        self._whole = _StageTimes(
            "lakeproof_commit_seconds",
            "Time from the arrival of a mutation to its end, by how it ended.",
            label="ending",
            stages=Ending,
        )
        loads = _StageTimes(
            "lakeproof_load_step_seconds",
            "Time of each step of a load of a table or view that was answered.",
            label="step",
            stages=LoadStage,
        )
        for times in (self._stages, self._whole, loads):
            self.registry.register(times)
        self._permit, self._show = loads.of(LoadStage.PERMIT), loads.of(LoadStage.SHOW)
        self._rejected = Counter(
            "lakeproof_commit_rejected_total",
            "Mutations that were certainly not made, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for reason in Rejection:
            self._rejected.labels(reason=reason.value)  # there from the start: an alert needs a first value
        self._answers = Counter(
            "lakeproof_gateway_mutations_total", "Mutations answered.", ["operation", "status"], registry=self.registry
        )
        self._known_answers: dict[tuple[Operation, int], Counter] = {}
        self._upstream = Counter(
            "lakeproof_upstream_requests_total",
            "Requests to foreign catalogs, by outcome.",
            ["method", "outcome"],
            registry=self.registry,
        )
        self._known_upstream: dict[tuple[str, str], Counter] = {}
        self._connections = Gauge("lakeproof_gateway_connections", "Connections that are open.", registry=self.registry)
        self._connections_refused = Counter(
            "lakeproof_gateway_connections_refused_total",
            "Connections beyond the limit per address or in total.",
            registry=self.registry,
        )
        self._passed_on = Counter(
            "lakeproof_gateway_passed_on_total",
            "Commits that another process of the gateway was to make, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self._rate_limited = Counter(
            "lakeproof_gateway_rate_limited_total",
            "Requests beyond the requests a second that a tenant or a caller may make.",
            ["scope"],
            registry=self.registry,
        )
        self._metrics_reports = Counter(
            "lakeproof_gateway_metrics_reports_total",
            "Engines' reports of scans and commits: kept in the log, or dropped beyond the limit.",
            ["outcome"],
            registry=self.registry,
        )
        in_flight = Gauge("lakeproof_gateway_mutations_in_flight", "Mutations at work.", registry=self.registry)
        in_flight.set_function(lambda: self._in_flight)
        self._in_flight = 0

    @contextmanager
    def commit(self, operation: Operation) -> Iterator[Done]:
        """Measure one mutation; yields the function that `commit_flow` calls at the end of each stage."""
        began = last = perf_counter()
        stages = self._stages.times

        def done(stage: MutationStage) -> None:
            nonlocal last
            now = perf_counter()
            stages[stage].observe(now - last)
            last = now

        status = 500
        self._in_flight += 1
        try:
            yield done
            status = OK
        except GatewayError as error:
            status = error.status
            if (reason := rejection_of(error)) is not None:
                self._rejected.labels(reason=reason.value).inc()
            raise
        finally:
            self._whole.of(Ending.MADE if status == OK else Ending.REFUSED).observe(perf_counter() - began)
            self._in_flight -= 1
            self._answered(operation, status).inc()

    def _answered(self, operation: Operation, status: int) -> Counter:
        """Return the count of such answers; to look it up by its labels takes longer than to count."""
        if (counted := self._known_answers.get((operation, status))) is None:
            counted = self._answers.labels(operation=operation.value, status=str(status))
            self._known_answers[operation, status] = counted
        return counted

    def loaded(self, *, permit_s: float, show_s: float) -> None:
        """Count a load that was answered: seconds until access was permitted, and from then to the answer."""
        self._permit.observe(permit_s)
        self._show.observe(show_s)

    def upstream(self, method: str, outcome: str) -> None:
        """Count a request to a foreign catalog: answered (`2xx`, `4xx`, …), `unanswered` or `never_sent`."""
        if (counted := self._known_upstream.get((method, outcome))) is None:
            counted = self._known_upstream[method, outcome] = self._upstream.labels(method=method, outcome=outcome)
        counted.inc()

    def metrics_report(self, *, is_kept: bool) -> None:
        """Count a report of an engine."""
        self._metrics_reports.labels(outcome="kept" if is_kept else "dropped").inc()

    def rate_limited(self, scope: str) -> None:
        """Count a request beyond the limit of its `tenant` or its `caller`."""
        self._rate_limited.labels(scope=scope).inc()

    def passed_on(self, outcome: str) -> None:
        """Count a commit that was to be passed on to another process: `answered`, `unanswered` or `not_sent`."""
        self._passed_on.labels(outcome=outcome).inc()

    def connection_refused(self) -> None:
        """Count a connection beyond the limits."""
        self._connections_refused.inc()

    def watch_connections(self, count: Callable[[], int]) -> None:
        """Read the number of open connections from `count` whenever the metrics are read."""
        self._connections.set_function(count)

    def text(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()
