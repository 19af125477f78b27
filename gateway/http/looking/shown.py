# SPDX-License-Identifier: Apache-2.0
"""
Rows of read models as JSON: what a caller may not see of a row is null in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from fastapi.responses import JSONResponse

from ledger.format import canonical
from projections.relational.commits import Commit
from projections.relational.findings import Alert, Finding, ScanSummary

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def commit_shown(commit: Commit, *, with_principal: bool, as_of: int | None = None) -> dict[str, Any]:
    """
    Return a decision with its outcome; with `as_of`, as it was known when the log ended with that entry.
    """
    settled = commit.settled_index
    is_settled = settled is not None and (as_of is None or settled <= as_of)
    return {
        "index": commit.index,
        "group": str(commit.group_id),
        "key": commit.key,
        "recorded_at": canonical.format_time(commit.recorded_at),
        "actor": commit.actor,
        "principal": commit.principal if with_principal else None,
        "principal_source": commit.principal_source,
        "operation": commit.operation,
        "actions": list(commit.actions),
        "catalog": commit.alias,
        "namespace": list(commit.namespace),
        "name": commit.name,
        "decision": commit.decision,
        "reason": None if commit.reason_id is None else {"id": commit.reason_id, "version": commit.reason_version},
        "policy_set": commit.policy_set,
        "as_of": commit.as_of,
        "base": commit.base,
        "table_uuid": commit.table_uuid,
        "snapshots": list(commit.snapshots),
        "outcome": {
            "index": settled,
            "recorded_at": None if commit.settled_at is None else canonical.format_time(commit.settled_at),
            "outcome": commit.outcome,
            "evidence": commit.evidence,
            "metadata_location": commit.metadata_location,
            "metadata_sha256": commit.metadata_sha256,
        }
        if is_settled
        else None,
    }


def row_shown(row: Alert | Finding | ScanSummary) -> dict[str, Any]:
    """
    Return a scan, a finding or an alert.
    """
    shown: dict[str, Any] = plain(members(row))
    if isinstance(row, Finding):
        shown["state"] = row.state.value
        shown["review"] = None if row.review is None else plain(members(row.review))
    group = shown.pop("group_id", None)
    return shown if group is None else {**shown, "group": group}


def members(row: DataclassInstance) -> dict[str, Any]:
    """
    Return the members of a row, which holds no rows. `asdict` copies each value, at ten times the cost.
    """
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


class Shown(JSONResponse):
    """JSON of what may be long, written in a tenth of the time."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return orjson.dumps(content)


def plain(value: Any) -> Any:
    """
    Return a value of dataclasses as JSON has it: times and ids as text.
    """
    match value:
        case datetime():
            return canonical.format_time(value)
        case UUID():
            return str(value)
        case Enum():
            return value.value
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case str():
            return value
        case Sequence():
            return [plain(each) for each in value]
        case _:
            return value
