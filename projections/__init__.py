"""
Read models built from the log: a graph a tenant, lineage, commits, findings, metrics. Any of them can be built again.

Read `projection.py` first: what a projection is, and how entries get into it. Then `runner.py` (keeps the live
generations up to date) and `generations.py` (rebuilds one beside the live one, compares, switches).

What the projections say is pure: `graph/model.py` (entries to vertices and edges; the labels in `graph/labels.py`) and
`counting.py` (what is counted, and when). `lineage/` decides which edges are drawn, and is where lineage comes in;
`lake/` opens files of the lake. Reading is beside what is read: `graph/read.py` and `graph/answers.py`, `commits.py`,
`findings.py`, `metrics.py`.
"""

from __future__ import annotations

from projections.entries import LogEntry
from projections.errors import (
    DigestMismatchError,
    NotProjectedError,
    ProjectionError,
    RebuildRunningError,
    StaleGenerationError,
    UnknownControlError,
)
from projections.exposition import CONTENT_TYPE, Metric, MetricKind, Sample, format_metrics
from projections.graph.labels import EdgeLabel, VertexLabel

__all__ = [
    "CONTENT_TYPE",
    "DigestMismatchError",
    "EdgeLabel",
    "LogEntry",
    "Metric",
    "MetricKind",
    "NotProjectedError",
    "ProjectionError",
    "RebuildRunningError",
    "Sample",
    "StaleGenerationError",
    "UnknownControlError",
    "VertexLabel",
    "format_metrics",
]
