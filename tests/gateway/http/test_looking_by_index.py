# SPDX-License-Identifier: Apache-2.0
"""
What routes that look ask the database is answered by indexes, and reads a bounded part of a long log's read models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql

from ledger.proving import search
from ledger.store.read import read_head
from projections.lineage.edges import QUERIES as LINEAGE
from projections.relational.as_of import QUERIES as PAST
from projections.relational.batched import QUERIES as BATCHED
from projections.relational.commits import QUERIES as COMMITS
from projections.relational.findings import AS_OF as FINDINGS_AS_OF
from projections.relational.findings import EXAMINED_MAX, INDEX_END
from projections.relational.findings import QUERIES as FINDINGS
from projections.relational.metrics import QUERIES as METRICS
from projections.relational.table_names import AS_OF as NAMES_AS_OF
from projections.relational.table_names import QUERIES as NAMES
from testkit.gateway.two_views import project
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

TABLES: Final = 1_000
SNAPSHOTS: Final = 60
"""Of each table: one scan each, with one finding, its review, its alert, and one decision."""
HOT_SNAPSHOTS: Final = 6_000
"""The same of one more table, whose number is 0."""
READ_MAX: Final = 2_000
"""Rows that a query may read, whatever the read models hold; more only where that is its bound."""

WALKS: Final = json.dumps(
    [
        {"place": 0, "keys": ["table:far/a/t6", "table:far/a/t7"]},
        {"place": 1, "keys": ["table:far/b/t8/1"]},
    ]
)

_ROWS: Final = {
    "scans": """
        (log_id, generation, table_uuid, snapshot, ruleset, index, recorded_at, key, status, metadata_location,
         findings, rows, columns, files, cells, bytes_read, gaps)
        SELECT %(log_id)s, %(generation)s, 'uuid-' || t, n::text, 'r', 1000000 + n * 10000 + t, now(),
               'table:far/a/t' || t, 'completed', 'm', 1, 1, 1, 1, 1, 1, ARRAY[]::text[]
    """,
    "findings": """
        (log_id, generation, table_uuid, snapshot, ruleset, field_id, kind, index, group_id, recorded_at, key,
         column_path, confidence_percent, matches, not_null)
        SELECT %(log_id)s, %(generation)s, 'uuid-' || t, n::text, 'r', 1, 'email', 1000000 + n * 10000 + t,
               gen_random_uuid(), now(), 'table:far/a/t' || t, 'c', 92, 1, 1
    """,
    "finding_reviews": """
        (log_id, generation, table_uuid, field_id, kind, version, index, finding, recorded_at, actor, verdict,
         confidence_percent, reason)
        SELECT %(log_id)s, %(generation)s, 'uuid-' || t, 1, 'email', n, 2000000 + n * 1000 + t, 1000000 + n * 1000 + t,
               now(), 'system', 'dismissed', 92, 'r'
    """,
    "alerts": """
        (log_id, generation, index, group_id, recorded_at, key, finding, table_uuid, snapshot, field_id, column_path,
         kind, confidence_percent)
        SELECT %(log_id)s, %(generation)s, 1000000 + n * 10000 + t, gen_random_uuid(), now(), 'table:far/a/t' || t, 'f',
               'uuid-' || t, n::text, 1, 'c', 'email', 92
    """,
    "commits": """
        (log_id, generation, index, group_id, key, recorded_at, actor, principal_source, operation, actions, alias,
         namespace, decision, as_of, policy_set, request, table_uuid, snapshots)
        SELECT %(log_id)s, %(generation)s, 1000000 + n * 10000 + t, gen_random_uuid(), 'table:far/a/t' || t, now(),
               'system', 'api_key', 'table.commit', ARRAY[]::text[], 'far', ARRAY['a'], 'approved', 0, 'p', 'q',
               'uuid-' || t, ARRAY[(n * 1000 + t)::text]
    """,
    "lineage_runs": """
        (log_id, generation, run_id, state, event_time, first_index, last_index)
        SELECT %(log_id)s, %(generation)s, gen_random_uuid()::text, 'COMPLETE', 'now', 1, 1
    """,
    "table_names": """
        (log_id, generation, projection, table_uuid, key, index, is_certain, is_current)
        SELECT %(log_id)s, %(generation)s, 'findings', 'uuid-' || t || '/' || n, 'table:far/a/t' || t || '/' || n,
               1, true, true
    """,
    "findings_past": """
        (log_id, generation, table_uuid, snapshot, ruleset, field_id, kind, index, until, group_id, recorded_at, said,
         column_path, confidence_percent, matches, not_null)
        SELECT %(log_id)s, %(generation)s, 'uuid-' || t, n::text, 'r', 1, 'email', 900000000 + n * 10000 + t,
               999999999, gen_random_uuid(), now(), 'table:far/a/t' || t, 'c', 92, 1, 1
    """,
    "scans_past": """
        (log_id, generation, table_uuid, snapshot, ruleset, index, until, recorded_at, said, status, metadata_location,
         findings, rows, columns, files, cells, bytes_read, gaps, columns_unread, unread)
        SELECT %(log_id)s, %(generation)s, 'uuid-' || t, n::text, 'r', 900000000 + n * 10000 + t, 999999999, now(),
               'table:far/a/t' || t, 'completed', 'm', 1, 1, 1, 1, 1, 1, ARRAY[]::text[], 0, '[]'
    """,
    "table_names_past": """
        (log_id, generation, table_uuid, until, key, index, is_current)
        SELECT %(log_id)s, %(generation)s, 'uuid-' || t, 900000000 + n, 'table:far/p/t' || t || '/' || n,
               900000000 + n - 1, true
    """,
    "lineage_edges": """
        (log_id, generation, source, target, first_index, last_index, count)
        SELECT %(log_id)s, %(generation)s, 'table:far/a/t' || t, 'table:far/b/t' || t || '/' || n, 1, 1, 1
    """,
    "lineage_columns": """
        (log_id, generation, digest, source, source_column, target, target_column, first_index, last_index, count)
        SELECT %(log_id)s, %(generation)s, sha256(convert_to(t || '/' || n, 'UTF8')), 'table:far/a/t' || t, 'c',
               'table:far/b/t' || t || '/' || n, 'c', 1, 1, 1
    """,
    "commit_hours": """
        (log_id, generation, digest, hour, operation, decision, outcome, reason, count)
        SELECT %(log_id)s, %(generation)s, sha256(convert_to(t || '/' || n, 'UTF8')),
               '2026-11-01T00:00:00Z'::timestamptz + n * interval '1 hour', 'table.commit', 'approved', 'accepted',
               'p' || t, 1
    """,
}
_EACH: Final = sql.SQL("FROM generate_series(1, %(tables)s) AS a (t), generate_series(1, %(snapshots)s) AS b (n)")
_HOT: Final = sql.SQL("FROM generate_series(0, 0) AS a (t), generate_series(1, %(hot)s) AS b (n)")
_OF: Final = {
    "commits": "commits",
    "lineage_runs": "lineage",
    "lineage_edges": "lineage",
    "lineage_columns": "lineage",
    "commit_hours": "metrics",
}
"""The projection of a table; `findings` of all others."""


def fill(gateway: Gateway) -> None:
    """Put as many rows into the live generations as a tenant has after years."""
    log_id = gateway.acme.log_id
    with psycopg.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        rows = owner.execute("SELECT projection, generation FROM projections.live WHERE log_id = %s", (log_id,))
        live = {str(projection): int(generation) for projection, generation in rows.fetchall()}
        for table, chosen in _ROWS.items():
            name = sql.Identifier("projections", table)
            insert = sql.SQL("INSERT INTO {} ").format(name) + sql.SQL(chosen)
            parameters = {"log_id": log_id, "generation": live[_OF.get(table, "findings")]}
            owner.execute(insert + _EACH, {**parameters, "tables": TABLES, "snapshots": SNAPSHOTS})
            owner.execute(insert + _HOT, {**parameters, "hot": HOT_SNAPSHOTS})
            owner.execute(sql.SQL("ANALYZE {}").format(name))


async def test_long_read_models_are_read_by_index(sales: Gateway) -> None:
    await project(sales)
    fill(sales)
    log_id, end = sales.acme.log_id, 1_000_000 + SNAPSHOTS * 10_000 // 2
    since = datetime(2027, 6, 1, tzinfo=UTC)
    of_snapshots = {"table_uuid": "uuid-7", "snapshots": ["7"], "limit": 200}
    of_nobody: dict[str, Any] = {"tag": None, "tagged_percent": 92, "owner": None, "by_principal": False}
    of_tables = {"log_id": log_id, "after": "table:", "upto": "table:\x7f"}
    of_findings = {
        "log_id": log_id,
        "before": end,
        "kind": None,
        "state": None,
        "confidence_percent_min": 0,
        "limit": 100,
    }
    of_column = {"uuids": ["uuid-7"], "field_ids": [1], "kinds": ["email"]}
    asked: Mapping[str, tuple[str, Mapping[str, Any], int]] = {
        "findings below": (FINDINGS["findings_below"], {**of_findings, "floor": 0}, READ_MAX),
        "findings of a rare kind": (
            FINDINGS["findings_below"],
            {**of_findings, "kind": "iban", "floor": end - EXAMINED_MAX},
            EXAMINED_MAX,
        ),
        "findings of a rare state": (
            FINDINGS["findings_below"],
            {**of_findings, "state": "confirmed", "floor": end - EXAMINED_MAX},
            2 * EXAMINED_MAX,
        ),
        "a finding": (FINDINGS["finding_at"], {"log_id": log_id, "index": end}, READ_MAX),
        "the last review": (FINDINGS["last_reviews"], of_column, READ_MAX),
        "where a page ends": (
            FINDINGS["finding_floor"],
            {"log_id": log_id, "before": end, "skipped": EXAMINED_MAX - 1},
            EXAMINED_MAX,
        ),
        "findings of a table": (
            FINDINGS["findings_of_key_below"],
            {**of_findings, "before": INDEX_END, "key": "table:far/a/t7"},
            READ_MAX,
        ),
        "findings of a snapshot": (FINDINGS["findings_of_snapshots"], of_snapshots, READ_MAX),
        "alerts of a snapshot": (FINDINGS["alerts_of_snapshots"], of_snapshots, READ_MAX),
        "scans of a snapshot": (FINDINGS["scans_of_snapshots"], of_snapshots, READ_MAX),
        "last findings of a table": (
            FINDINGS["last_findings_of_table"],
            {"log_id": log_id, "table_uuid": "uuid-0", "confidence_percent_min": 0, "state": None, "limit": 100},
            READ_MAX,
        ),
        "scans of a table": (
            FINDINGS["scans_of_table"],
            {"log_id": log_id, "table_uuid": "uuid-0", "limit": 100},
            READ_MAX,
        ),
        "kinds in tables": (
            FINDINGS["found_in_tables"],
            {"log_id": log_id, "uuids": ["uuid-0", "uuid-7", "uuid-8"]},
            READ_MAX,
        ),
        "tables": (NAMES["tables"], {**of_tables, "texts": None, "kind": None, **of_nobody, "limit": 500}, READ_MAX),
        "tables with nothing of a kind": (
            NAMES["tables"],
            {**of_tables, "upto": "table:far/a/t10", "texts": None, "kind": "iban", **of_nobody, "limit": 500},
            READ_MAX + HOT_SNAPSHOTS,
        ),
        "the table of a name": (
            NAMES["live_names"],
            {"log_id": log_id, "uuids": [], "keys": ["table:far/a/t7/1", "table:far/a/t0/1"]},
            READ_MAX,
        ),
        "who made tables": (NAMES["owners"], {"log_id": log_id, "uuids": ["uuid-0", "uuid-7"]}, READ_MAX),
        "tables of an owner": (
            NAMES["tables"],
            {
                **of_tables,
                "upto": "table:far/a/t10",
                "texts": None,
                "kind": None,
                **of_nobody,
                "owner": "x",
                "limit": 5,
            },
            READ_MAX + HOT_SNAPSHOTS,
        ),
        "where a page of tables ends": (NAMES["table_ceiling"], {**of_tables, "skipped": 19_999}, 20_000),
        "findings as of an entry": (
            FINDINGS_AS_OF["findings_below"],
            {**of_findings, "floor": 0, "key": None, "as_of": end},
            READ_MAX,
        ),
        "where such a page ends": (
            FINDINGS_AS_OF["finding_floor"],
            {"log_id": log_id, "before": end, "skipped": EXAMINED_MAX - 1, "as_of": end},
            EXAMINED_MAX,
        ),
        "a finding as of an entry": (
            FINDINGS_AS_OF["finding_at"],
            {"log_id": log_id, "index": end, "as_of": end},
            READ_MAX,
        ),
        "last findings of a table as of an entry": (
            FINDINGS_AS_OF["last_findings_of_table"],
            {
                "log_id": log_id,
                "table_uuid": "uuid-0",
                "confidence_percent_min": 0,
                "state": None,
                "limit": 100,
                "as_of": INDEX_END,
            },
            READ_MAX + HOT_SNAPSHOTS,
        ),
        "scans of a table as of an entry": (
            FINDINGS_AS_OF["scans_of_table"],
            {"log_id": log_id, "table_uuid": "uuid-0", "limit": 100, "as_of": INDEX_END},
            READ_MAX + HOT_SNAPSHOTS,
        ),
        "kinds in tables as of an entry": (
            FINDINGS_AS_OF["found_in_tables"],
            {"log_id": log_id, "uuids": ["uuid-0", "uuid-7", "uuid-8"], "as_of": INDEX_END},
            READ_MAX + HOT_SNAPSHOTS,
        ),
        "tables as of an entry": (
            NAMES_AS_OF["tables"],
            {
                **of_tables,
                "upto": "table:far/b",
                "texts": None,
                "kind": None,
                **of_nobody,
                "limit": 500,
                "as_of": end,
            },
            READ_MAX,
        ),
        "where a page of them ends": (
            NAMES_AS_OF["table_ceiling"],
            {**of_tables, "skipped": 19_999, "as_of": end},
            20_000,
        ),
        "what tables were called": (
            PAST["names_then"],
            {"log_id": log_id, "uuids": ["uuid-0", "uuid-7"], "as_of": end},
            READ_MAX,
        ),
        "commits by hour": (METRICS["hours"], {"log_id": log_id, "since": since, "limit": 1_000}, READ_MAX),
        "what was made from a table": (
            LINEAGE["downstream"],
            {"log_id": log_id, "keys": ["table:far/a/t7"], "limit": 1_000},
            READ_MAX,
        ),
        "what a table was made from": (
            LINEAGE["upstream"],
            {"log_id": log_id, "keys": ["table:far/b/t7/8"], "limit": 1_000},
            READ_MAX,
        ),
        "the first of what was made from a table": (
            LINEAGE["downstream"],
            {"log_id": log_id, "keys": ["table:far/a/t0"], "limit": 100},
            READ_MAX,
        ),
        "the columns of a table": (
            LINEAGE["columns_of"],
            {"log_id": log_id, "key": "table:far/a/t0", "limit": 100},
            READ_MAX,
        ),
        "the columns of tables": (
            LINEAGE["columns_of_each"],
            {"log_id": log_id, "keys": ["table:far/a/t0", "table:far/a/t7"], "limit": 100},
            READ_MAX,
        ),
        "what was made from tables": (
            LINEAGE["downstream_of_each"],
            {"log_id": log_id, "walks": WALKS, "limit": 50},
            READ_MAX,
        ),
        "what tables were made from": (
            LINEAGE["upstream_of_each"],
            {"log_id": log_id, "walks": WALKS, "limit": 50},
            READ_MAX,
        ),
        "decisions on a table that do something": (
            COMMITS["history_of_actions"],
            {
                "log_id": log_id,
                "key": "table:far/a/t0",
                "before": INDEX_END,
                "floor": 1_000_000 + (HOT_SNAPSHOTS - 1_000) * 10_000,
                "actions": ["META_ADD_SCHEMA"],
            },
            READ_MAX,
        ),
        "where these end": (
            COMMITS["history_floor"],
            {"log_id": log_id, "key": "table:far/a/t0", "before": INDEX_END, "skipped": 999},
            READ_MAX,
        ),
        "the last refusals": (COMMITS["last_refused"], {"log_id": log_id, "limit": 10}, READ_MAX),
        "a decision": (COMMITS["commit_at"], {"index": end}, READ_MAX),
        "decisions of a snapshot": (
            COMMITS["commits_of_snapshots"],
            {"log_id": log_id, "table_uuid": "uuid-7", "snapshots": ["7007"], "before": INDEX_END, "examined": 1_000},
            READ_MAX,
        ),
        "decisions of a table": (
            COMMITS["history"],
            {"log_id": log_id, "key": "table:far/a/t7", "before": INDEX_END, "limit": 100},
            READ_MAX,
        ),
        "decisions of tables": (
            BATCHED["histories"],
            {
                "log_id": log_id,
                "keys": ["table:far/a/t7", "table:far/a/t8"],
                "befores": [INDEX_END, end],
                "limit": 100,
            },
            READ_MAX,
        ),
        "last findings of tables": (
            BATCHED["last_findings_of_tables"],
            {
                "log_id": log_id,
                "uuids": ["uuid-0", "uuid-7"],
                "confidence_percent_min": 0,
                "state": "open",
                "limit": 100,
            },
            READ_MAX,
        ),
        "tags of tables": (
            BATCHED["tags_of_tables"],
            {"log_id": log_id, "uuids": ["uuid-0", "uuid-7", "uuid-8"], "tagged_percent": 92},
            READ_MAX,
        ),
        "findings of snapshots of tables": (
            BATCHED["findings_of_each"],
            {
                "log_id": log_id,
                "places": [1, 2],
                "uuids": ["uuid-7", "uuid-8"],
                "snapshots": ["7", "8"],
                "limit": 100,
            },
            READ_MAX,
        ),
        "runs": (LINEAGE["runs"], {"log_id": log_id, "before": "8", "limit": 100}, READ_MAX),
    }
    gateway = sales.services.gateway
    async with gateway.database.as_role(gateway.roles.tenant(sales.acme.tenant)) as connection:
        for name, (query, parameters, most) in asked.items():
            read, scanned = await plan_of(connection, query, parameters)
            assert not scanned & set(_ROWS), f"{name}: {scanned} are read whole"
            assert read <= most + 10, f"{name}: {read} rows"


async def plan_of(connection: Any, query: str, parameters: Mapping[str, Any]) -> tuple[int, set[str]]:
    """How many rows a query reads, and of which tables it reads all."""
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {query}".encode()
    ((found,),) = await (await connection.execute(explain, parameters)).fetchall()
    nodes = nodes_of(found[0]["Plan"])
    scans = [node for node in nodes if "Relation Name" in node]
    assert scans
    read = sum(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in scans)
    return int(read), {node["Relation Name"] for node in scans if node["Node Type"] == "Seq Scan"}


def nodes_of(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """A node of a plan, and all below it."""
    return [plan, *(node for each in plan.get("Plans", ()) for node in nodes_of(each))]


async def test_entries_are_read_in_both_orders_by_index(sales: Gateway) -> None:
    gateway, log_id = sales.services.gateway, sales.acme.log_id
    async with gateway.database.as_role(gateway.roles.tenant(sales.acme.tenant)) as connection:
        size = (await read_head(connection, log_id)).size
        everything = search.EntryFilter().parameters()
        for name in search._IN_ORDER.values():
            parameters = {"log_id": log_id, "from_index": size - 3, "to_index": size, "limit": 100, **everything}
            read, scanned = await plan_of(connection, search.QUERIES[name], parameters)
            assert read <= 10
            assert scanned <= {"logs"}
