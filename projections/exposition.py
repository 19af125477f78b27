# SPDX-License-Identifier: Apache-2.0
"""
Metrics in the Prometheus text exposition format, version 0.0.4. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricKind(StrEnum):
    """The metric types that are used here."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value under its labels."""

    labels: Mapping[str, str]
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric with all its samples."""

    name: str
    kind: MetricKind
    help: str
    samples: Sequence[Sample]


def format_metrics(metrics: Iterable[Metric]) -> str:
    """
    Return the exposition of `metrics`; label values may hold anything.
    """
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for sample in metric.samples:
            labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
            lines.append(f"{metric.name}{{{labels}}} {sample.value}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
