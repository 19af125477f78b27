# SPDX-License-Identifier: Apache-2.0
"""
How all benches summarise latencies: a 99th percentile means the same everywhere.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def latencies(took_ms: Sequence[float]) -> dict[str, float]:
    """Return minimum, median, 95th and 99th percentile and maximum of waits in milliseconds."""
    ordered = sorted(took_ms)
    found = {
        "min_ms": ordered[0],
        "p50_ms": statistics.median(ordered),
        "p95_ms": percentile(ordered, 95),
        "p99_ms": percentile(ordered, 99),
        "max_ms": ordered[-1],
    }
    return {name: round(value, 3) for name, value in found.items()}


def percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the smallest of `ordered` values that so many percent of them do not exceed: one that was measured."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
