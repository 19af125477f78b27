# SPDX-License-Identifier: Apache-2.0
"""
Metrics of this process for Prometheus: mutations in flight, their outcomes, and the duration of each stage.

These counters start at zero with the process; metrics over the whole log are the projections'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter
from typing import TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway.errors import GatewayError
from gateway.mutations import Operation

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


class Measures:
    """The gateway's own metrics, in a registry of their own (nothing global)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._stages = Histogram(
            "lakeproof_commit_step_seconds",
            "Time from the end of the step before to the end of this one.",
            ["step"],
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._of_stage = {stage: self._stages.labels(step=stage.value) for stage in MutationStage}
        self._answers = Counter(
            "lakeproof_gateway_mutations_total", "Mutations answered.", ["operation", "status"], registry=self.registry
        )
        self._upstream = Counter(
            "lakeproof_upstream_requests_total",
            "Requests to foreign catalogs, by outcome.",
            ["method", "outcome"],
            registry=self.registry,
        )
        self._connections = Gauge("lakeproof_gateway_connections", "Connections that are open.", registry=self.registry)
        self._connections_refused = Counter(
            "lakeproof_gateway_connections_refused_total",
            "Connections beyond the limit per address or in total.",
            registry=self.registry,
        )
        self._in_flight = Gauge("lakeproof_gateway_mutations_in_flight", "Mutations at work.", registry=self.registry)

    @contextmanager
    def commit(self, operation: Operation) -> Iterator[Done]:
        """Measure one mutation; yields the function that `commit_flow` calls at the end of each stage."""
        last = perf_counter()

        def done(stage: MutationStage) -> None:
            nonlocal last
            now = perf_counter()
            self._of_stage[stage].observe(now - last)
            last = now

        status = 500
        self._in_flight.inc()
        try:
            yield done
            status = 200
        except GatewayError as error:
            status = error.status
            raise
        finally:
            self._in_flight.dec()
            self._answers.labels(operation=operation.value, status=str(status)).inc()

    def upstream(self, method: str, outcome: str) -> None:
        """Count a request to a foreign catalog: answered (`2xx`, `4xx`, …), `unanswered` or `never_sent`."""
        self._upstream.labels(method=method, outcome=outcome).inc()

    def connection_refused(self) -> None:
        """Count a connection beyond the limits."""
        self._connections_refused.inc()

    def watch_connections(self, count: Callable[[], int]) -> None:
        """Read the number of open connections from `count` whenever the metrics are read."""
        self._connections.set_function(count)

    def text(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()
