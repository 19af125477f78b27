# SPDX-License-Identifier: Apache-2.0
"""
Bodies of requests about tables: to create one, also one that was staged, to move it, to add a snapshot, and to commit
to several at once.
"""

from __future__ import annotations

from typing import Any

from gateway.metadata.paths import PATH_PROPERTIES
from testkit.gateway.sales import CREATE

PATHS = [*sorted(PATH_PROPERTIES), "engine.scratch.location", "my.Path"]


def created(name: str, location: str | None = None, **texts: str) -> dict[str, Any]:
    """The body of a createTable."""
    body = {**CREATE, "name": name, "properties": texts}
    return body if location is None else body | {"location": location}


def moved(location: str) -> dict[str, Any]:
    """A commit that sets the location of a table."""
    return {"requirements": [], "updates": [{"action": "set-location", "location": location}]}


def snapshot(manifest_list: str) -> dict[str, Any]:
    """A commit that adds a snapshot."""
    added = {
        "snapshot-id": 7,
        "sequence-number": 1,
        "timestamp-ms": 4_102_444_800_000,
        "manifest-list": manifest_list,
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    return {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": added}]}


def commit_of_staged(metadata: dict[str, Any]) -> dict[str, Any]:
    """The commit of a staged create, as engines send it."""
    return {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": metadata["schemas"][0]},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": metadata["partition-specs"][0]},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-location", "location": metadata["location"]},
            {"action": "set-properties", "updates": metadata["properties"]},
        ],
    }


def commit_to(name: str, body: dict[str, Any], *, namespace: str = "sales") -> dict[str, Any]:
    """One commit of a transaction: the body of a commit, and the table that it is to."""
    return {"identifier": {"namespace": [namespace], "name": name}, **body}


def transaction(*commits: Any) -> dict[str, Any]:
    """The body of a commitTransaction."""
    return {"table-changes": list(commits)}
