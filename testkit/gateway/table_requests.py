# SPDX-License-Identifier: Apache-2.0
"""Requests about the places of tables: bodies that create a table, move it and add a snapshot."""

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
