# SPDX-License-Identifier: Apache-2.0
"""
The inventory of the graph: every vertex and edge label, with its natural key. No other module defines labels.

All labels are created with the graph, including those that nothing fills yet: a label that is created later would have
to be granted to existing readers. A vertex has one natural key, its property `key`; an edge is identified by its label
and its two ends. Natural keys are formed like event keys (docs/formats.md, "Event keys"), and what an event key names
has that key here. A column is identified by its path of names, not by its field id, because lineage has names only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from ledger.format.event import format_key
from projections.keys import KEYS_CACHED, bounded_key


class VertexLabel(StrEnum):
    """The labels of vertices."""

    __hash__ = str.__hash__  # that of an enum is a call of Python, and labels are parts of keys

    CATALOG = "Catalog"
    NAMESPACE = "Namespace"
    TABLE = "Table"
    VIEW = "View"
    COLUMN = "Column"
    SNAPSHOT = "Snapshot"
    DATASET = "Dataset"
    WRITE_EVENT = "WriteEvent"
    PERSON = "Person"
    API_KEY = "ApiKey"
    POLICY = "Policy"
    ACCESS_RULE = "AccessRule"
    RETENTION_POLICY = "RetentionPolicy"
    LIFECYCLE_POLICY = "LifecyclePolicy"
    SCHEDULED_ACTION = "ScheduledAction"
    CONTRACT = "Contract"
    ENGINE = "Engine"
    QUERY = "Query"
    PIPELINE = "Pipeline"
    RUN = "Run"
    DETECTION_RUN = "DetectionRun"
    CLASSIFICATION = "Classification"
    TAG = "Tag"


class EdgeLabel(StrEnum):
    """The labels of edges; read as start, label, end."""

    __hash__ = str.__hash__

    IN_CATALOG = "IN_CATALOG"
    IN_NAMESPACE = "IN_NAMESPACE"
    HAS_COLUMN = "HAS_COLUMN"
    HAS_SNAPSHOT = "HAS_SNAPSHOT"
    PARENT_OF = "PARENT_OF"
    RENAMED_TO = "RENAMED_TO"
    WROTE = "WROTE"
    INTENDED_WRITE = "INTENDED_WRITE"
    ACTUAL_WRITE = "ACTUAL_WRITE"
    DECIDED_BY = "DECIDED_BY"
    AUTHORED = "AUTHORED"
    HOLDS = "HOLDS"
    SCHEMA_GOVERNS = "SCHEMA_GOVERNS"
    WRITE_GOVERNS = "WRITE_GOVERNS"
    RETAINS = "RETAINS"
    MANAGES = "MANAGES"
    SCHEDULED = "SCHEDULED"
    TARGETS = "TARGETS"
    BINDS = "BINDS"
    REQUIRES = "REQUIRES"
    SUBMITTED = "SUBMITTED"
    RAN_ON = "RAN_ON"
    RUN_OF = "RUN_OF"
    READ_FROM = "READ_FROM"
    PRODUCED = "PRODUCED"
    LINEAGE_OF = "LINEAGE_OF"
    COLUMN_LINEAGE_OF = "COLUMN_LINEAGE_OF"
    SCANNED = "SCANNED"
    DETECTED_BY = "DETECTED_BY"
    CLASSIFIED_AS = "CLASSIFIED_AS"
    TAGGED_WITH = "TAGGED_WITH"
    REVIEWED = "REVIEWED"


@dataclass(frozen=True, slots=True)
class VertexKind:
    """A vertex label's natural key: the kind that begins it, and the segments that follow."""

    key: str
    segments: str


@dataclass(frozen=True, slots=True)
class EdgeKind:
    """The labels that an edge label may join."""

    starts: frozenset[VertexLabel]
    ends: frozenset[VertexLabel]


_V: Final = VertexLabel
_E: Final = EdgeLabel

VERTICES: Final[Mapping[VertexLabel, VertexKind]] = MappingProxyType(
    {
        _V.CATALOG: VertexKind("catalog", "alias"),
        _V.NAMESPACE: VertexKind("namespace", "alias, levels"),
        _V.TABLE: VertexKind("table", "alias, levels, name"),
        _V.VIEW: VertexKind("view", "alias, levels, name"),
        _V.COLUMN: VertexKind("column", "key of its table, view or data set, path of names"),
        _V.SNAPSHOT: VertexKind("snapshot", "table uuid (the table's key where there is none), snapshot id"),
        _V.DATASET: VertexKind("dataset", "namespace, name of a data set that is no table of a catalog here"),
        _V.WRITE_EVENT: VertexKind("write_event", "group id of the decision, event key"),
        _V.PERSON: VertexKind("person", "actor"),
        _V.API_KEY: VertexKind("api_key", "id"),
        _V.POLICY: VertexKind("policy", "id, version"),
        _V.ACCESS_RULE: VertexKind("access_rule", "id, version"),
        _V.RETENTION_POLICY: VertexKind("retention_policy", "id, version"),
        _V.LIFECYCLE_POLICY: VertexKind("lifecycle_policy", "id, version"),
        _V.SCHEDULED_ACTION: VertexKind("scheduled_action", "lifecycle policy id, table key, due time"),
        _V.CONTRACT: VertexKind("contract", "id, version"),
        _V.ENGINE: VertexKind("engine", "name"),
        _V.QUERY: VertexKind("query", "engine, run id"),
        _V.PIPELINE: VertexKind("pipeline", "job namespace, job name"),
        _V.RUN: VertexKind("run", "run id"),
        _V.DETECTION_RUN: VertexKind("detection_run", "table uuid, snapshot id, ruleset"),
        _V.CLASSIFICATION: VertexKind("classification", "table uuid, snapshot id, ruleset, field id, kind"),
        _V.TAG: VertexKind("tag", "name"),
    }
)

_NAMED: Final = frozenset({_V.NAMESPACE, _V.TABLE, _V.VIEW})
_RULES: Final = frozenset({_V.POLICY, _V.ACCESS_RULE})
_DATA: Final = frozenset({_V.TABLE, _V.VIEW, _V.DATASET})


def _joins(starts: VertexLabel | frozenset[VertexLabel], ends: VertexLabel | frozenset[VertexLabel]) -> EdgeKind:
    def as_set(labels: VertexLabel | frozenset[VertexLabel]) -> frozenset[VertexLabel]:
        return frozenset({labels}) if isinstance(labels, VertexLabel) else labels

    return EdgeKind(as_set(starts), as_set(ends))


EDGES: Final[Mapping[EdgeLabel, EdgeKind]] = MappingProxyType(
    {
        _E.IN_CATALOG: _joins(_V.NAMESPACE, _V.CATALOG),
        _E.IN_NAMESPACE: _joins(_NAMED, _V.NAMESPACE),
        _E.HAS_COLUMN: _joins(_DATA, _V.COLUMN),
        _E.HAS_SNAPSHOT: _joins(_V.TABLE, _V.SNAPSHOT),
        _E.PARENT_OF: _joins(_V.SNAPSHOT, _V.SNAPSHOT),
        _E.RENAMED_TO: _joins(_V.TABLE, _V.TABLE),
        _E.WROTE: _joins(_V.PERSON, _V.WRITE_EVENT),
        _E.INTENDED_WRITE: _joins(_V.WRITE_EVENT, _NAMED),
        _E.ACTUAL_WRITE: _joins(_V.WRITE_EVENT, _NAMED | {_V.SNAPSHOT}),
        _E.DECIDED_BY: _joins(_V.WRITE_EVENT, _RULES),
        _E.AUTHORED: _joins(_V.PERSON, _RULES | {_V.CATALOG, _V.CONTRACT, _V.API_KEY}),
        _E.HOLDS: _joins(_V.PERSON, _V.API_KEY),
        _E.SCHEMA_GOVERNS: _joins(_V.POLICY, _V.TABLE),
        _E.WRITE_GOVERNS: _joins(_V.POLICY, _V.TABLE),
        _E.RETAINS: _joins(_V.RETENTION_POLICY, _V.TABLE),
        _E.MANAGES: _joins(_V.LIFECYCLE_POLICY, _V.TABLE),
        _E.SCHEDULED: _joins(_V.LIFECYCLE_POLICY, _V.SCHEDULED_ACTION),
        _E.TARGETS: _joins(_V.SCHEDULED_ACTION, frozenset({_V.TABLE, _V.SNAPSHOT})),
        _E.BINDS: _joins(_V.CONTRACT, _V.TABLE),
        _E.REQUIRES: _joins(_V.CONTRACT, _V.POLICY),
        _E.SUBMITTED: _joins(_V.PERSON, frozenset({_V.QUERY, _V.RUN})),
        _E.RAN_ON: _joins(frozenset({_V.QUERY, _V.RUN}), _V.ENGINE),
        _E.RUN_OF: _joins(_V.RUN, _V.PIPELINE),
        _E.READ_FROM: _joins(frozenset({_V.QUERY, _V.RUN}), _DATA | {_V.SNAPSHOT}),
        _E.PRODUCED: _joins(frozenset({_V.QUERY, _V.RUN}), _DATA | {_V.SNAPSHOT, _V.WRITE_EVENT}),
        _E.LINEAGE_OF: _joins(_DATA, _DATA),
        _E.COLUMN_LINEAGE_OF: _joins(_V.COLUMN, _V.COLUMN),
        _E.SCANNED: _joins(_V.DETECTION_RUN, _V.SNAPSHOT),
        _E.DETECTED_BY: _joins(_V.CLASSIFICATION, _V.DETECTION_RUN),
        _E.CLASSIFIED_AS: _joins(_V.COLUMN, _V.CLASSIFICATION),
        _E.TAGGED_WITH: _joins(frozenset({_V.TABLE, _V.COLUMN, _V.CLASSIFICATION}), _V.TAG),
        _E.REVIEWED: _joins(_V.PERSON, _V.CLASSIFICATION),
    }
)


@lru_cache(maxsize=KEYS_CACHED)
def vertex_key(label: VertexLabel, *segments: str) -> str:
    """
    Return the natural key of the vertex that `segments` name, at most 1,024 ASCII bytes.
    """
    return bounded_key(format_key(VERTICES[label].key, segments))


def write_event_key(group_id: str, key: str) -> str:
    """
    Return the natural key of the WriteEvent of a decision: what `vertex_key` makes of its group's id and event key.

    No two decisions have the same one, and the id has no character that is encoded.
    """
    return bounded_key(f"{VERTICES[VertexLabel.WRITE_EVENT].key}:{group_id}/{_quoted(key)}")


@lru_cache(maxsize=KEYS_CACHED)
def _quoted(segment: str) -> str:
    return quote(segment, safe="")
