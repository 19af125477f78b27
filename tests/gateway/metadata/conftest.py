# SPDX-License-Identifier: Apache-2.0
"""Tables to commit to, and commits in one call: parsed, checked and applied."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from gateway.metadata import apply_updates, check_requirements, parse_requirements, parse_updates

HERE = Path(__file__).parent
NOW_MS = 1_795_200_000_000
BASE = "file:///warehouse/db/t/metadata/00001-a.metadata.json"

COLUMNS: list[dict[str, Any]] = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "name", "required": False, "type": "string"},
    {"id": 3, "name": "day", "required": False, "type": "date"},
]
TABLE: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "0cc7a4b9-3a2c-4b1b-9b35-3c6e8a6b6a01",
    "location": "file:///warehouse/db/t",
    "last-sequence-number": 2,
    "last-updated-ms": NOW_MS - 1_000,
    "last-column-id": 3,
    "current-schema-id": 0,
    "schemas": [{"type": "struct", "schema-id": 0, "fields": COLUMNS}],
    "default-spec-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": [{"name": "day", "transform": "identity", "source-id": 3, "field-id": 1000}]}
    ],
    "last-partition-id": 1000,
    "default-sort-order-id": 0,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "properties": {"owner": "ada"},
    "current-snapshot-id": 12,
    "refs": {"main": {"snapshot-id": 12, "type": "branch"}, "first": {"snapshot-id": 11, "type": "tag"}},
    "snapshots": [
        {
            "sequence-number": 1,
            "snapshot-id": 11,
            "timestamp-ms": NOW_MS - 3_000,
            "summary": {"operation": "append"},
            "manifest-list": "file:///warehouse/db/t/metadata/snap-11.avro",
            "schema-id": 0,
        },
        {
            "sequence-number": 2,
            "snapshot-id": 12,
            "parent-snapshot-id": 11,
            "timestamp-ms": NOW_MS - 2_000,
            "summary": {"operation": "append"},
            "manifest-list": "file:///warehouse/db/t/metadata/snap-12.avro",
            "schema-id": 0,
        },
    ],
    "statistics": [],
    "partition-statistics": [],
    "snapshot-log": [
        {"timestamp-ms": NOW_MS - 3_000, "snapshot-id": 11},
        {"timestamp-ms": NOW_MS - 2_000, "snapshot-id": 12},
    ],
    "metadata-log": [
        {"timestamp-ms": NOW_MS - 3_000, "metadata-file": "file:///warehouse/db/t/metadata/00000-a.metadata.json"}
    ],
}


class Commit(Protocol):
    """Apply updates to a table (None: create it) as one commit, and return the metadata that results."""

    def __call__(
        self,
        metadata: dict[str, Any] | None,
        *updates: dict[str, Any],
        requirements: tuple[dict[str, Any], ...] = (),
        now_ms: int = NOW_MS,
        base_location: str | None = BASE,
    ) -> dict[str, Any]: ...


@pytest.fixture(scope="session")
def commit() -> Commit:
    """The whole path of a commit; fails if it changes its input."""

    def run(
        metadata: dict[str, Any] | None,
        *updates: dict[str, Any],
        requirements: tuple[dict[str, Any], ...] = (),
        now_ms: int = NOW_MS,
        base_location: str | None = BASE,
    ) -> dict[str, Any]:
        before = json.dumps([metadata, updates])
        try:
            parsed = parse_updates(list(updates))
            check_requirements(metadata, parse_requirements(list(requirements)))
            return apply_updates(metadata, parsed, now_ms=now_ms, base_location=base_location)
        finally:
            assert json.dumps([metadata, updates]) == before, "a commit changed its input"

    return run


def _table(version: int) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(json.dumps(TABLE))
    table["format-version"] = version
    if version == 1:
        del table["last-sequence-number"]
        table |= {"schema": table["schemas"][0], "partition-spec": table["partition-specs"][0]["fields"]}
        for snapshot in table["snapshots"]:
            del snapshot["sequence-number"]
    if version == 3:
        table["next-row-id"] = 20
        for snapshot, first in zip(table["snapshots"], (0, 10), strict=True):
            snapshot |= {"first-row-id": first, "added-rows": 10}
    return table


@pytest.fixture
def table() -> dict[str, Any]:
    """A table of format version 2: three columns, two snapshots, a tag on the first."""
    return _table(2)


@pytest.fixture
def table_of_version() -> Callable[[int], dict[str, Any]]:
    """The same table in another format version."""
    return _table


@pytest.fixture(scope="session")
def captured() -> Callable[[str], dict[str, Any]]:
    """Read a request that Spark sent, with the answer it got where that was kept."""

    def read(name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((HERE / "captured" / f"{name}.json").read_text())
        return content

    return read


@pytest.fixture(scope="session")
def recorded() -> list[dict[str, Any]]:
    """Tables with their commits and the answers of the reference implementation."""
    tables: list[dict[str, Any]] = json.loads((HERE / "recorded" / "commits.json").read_text())
    return tables
