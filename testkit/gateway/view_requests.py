# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests about views: to create one, to replace its query, and to rename one."""

from __future__ import annotations

from typing import Any

from testkit.gateway.sales import SCHEMA

VIEWS = "/v1/iceberg/lake/namespaces/sales/views"
REPORT = f"{VIEWS}/report"
REPORT_KEY = "view:lake/sales/report"
RENAME_VIEW = "/v1/iceberg/lake/views/rename"
QUERY = "SELECT id FROM sales.orders"


def version(*queries: str, version_id: int = 1, schema_id: int = 0, **dialects: Any) -> dict[str, Any]:
    """A version of a view: `queries` are Spark's, others are given by dialect."""
    given = [*(("spark", query) for query in queries), *dialects.items()]
    return {
        "version-id": version_id,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": schema_id,
        "summary": {"engine-name": "spark", "engine-version": "4.1"},
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in given],
        "default-namespace": ["sales"],
    }


def view_created(name: str = "report", *queries: str, **members: Any) -> dict[str, Any]:
    """The body of a createView."""
    return {
        "name": name,
        "schema": SCHEMA,
        "view-version": version(*(queries or (QUERY,))),
        "properties": {"comment": "orders"},
        **members,
    }


def view_replaced(*queries: str, view_uuid: str | None = None, **dialects: Any) -> dict[str, Any]:
    """A commit that makes another query the current one, as engines send it."""
    requirements = [] if view_uuid is None else [{"type": "assert-view-uuid", "uuid": view_uuid}]
    return {
        "requirements": requirements,
        "updates": [
            {"action": "add-view-version", "view-version": version(*queries, version_id=2, **dialects)},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }


def view_renamed(to: str = "summary", of: str = "report", *, into: str = "sales") -> dict[str, Any]:
    """The body of a renameView."""
    return {"source": {"namespace": ["sales"], "name": of}, "destination": {"namespace": [into], "name": to}}
