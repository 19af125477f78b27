"""
Versions of policies and access rules, as the graph's queries return them. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from projections.graph.labels import VertexLabel


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One version of a policy or access rule (`label`)."""

    label: VertexLabel
    id: str
    version: int


def versions_of(rows: Sequence[Sequence[Any]]) -> tuple[PolicyVersion, ...]:
    """
    Return what was collected as [label, id, version], without the row of nulls that stands for nothing.
    """
    found = sorted((label, id_, version) for label, id_, version in rows if label)
    return tuple(PolicyVersion(label=VertexLabel(label), id=id_, version=version) for label, id_, version in found)
