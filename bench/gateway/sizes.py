# SPDX-License-Identifier: Apache-2.0
"""
Whether loads and commits slow down with many tables, large metadata, or many policies.
"""

from __future__ import annotations

import time
from typing import Any, Final

import orjson

from bench.gateway.bench import Bench, Part
from bench.gateway.rates import NAMESPACE, TABLES, kind_of
from bench.gateway.target import Catalog, JsonObject
from bench.gateway.wrk import Load, Mode, wrk_program

SNAPSHOTS_PER_COMMIT: Final = 500
FIRST_SNAPSHOT: Final = 10**15
SUMMARY: Final = {
    "operation": "append",
    "added-data-files": "4",
    "added-records": "400000",
    "added-files-size": "83886080",
    "changed-partition-count": "4",
    "total-records": "400000000",
    "total-files-size": "83886080000",
    "total-data-files": "4000",
    "total-delete-files": "0",
    "total-position-deletes": "0",
    "total-equality-deletes": "0",
}


def tables(bench: Bench) -> Part:
    """Measure on tables chosen at random among very many."""
    part, scale = Part(), bench.scale
    wrk_program()
    target = bench.up.new_tenant()[1]
    began_s = time.monotonic()
    with target.connect() as catalog:
        catalog.make_tables(NAMESPACE, scale.tables)
    took_s = time.monotonic() - began_s
    part.figures = {"tables": scale.tables, "created_per_second": round(scale.tables / took_s, 1)}
    for mode, connections in ((Mode.LOAD, 8), (Mode.LOAD, 64), (Mode.COMMIT, 1), (Mode.COMMIT, 16)):
        bench.settle()
        kind = kind_of(mode, connections)
        load = Load(mode=mode, namespace=NAMESPACE, tables=scale.tables, connections=connections, seconds=scale.seconds)
        part.figures[kind] = part.measure(target, load, f"{scale.tables} tables, {kind}")
    part.figures["memory_mib"] = bench.up.memory_mib()
    return part


def metadata(bench: Bench) -> Part:
    """Measure on a table with very many snapshots, and on one with very many columns."""
    part, scale = Part(), bench.scale
    wrk_program()
    target = bench.up.new_tenant()[1]
    with target.connect() as catalog:
        make_large_table(catalog, "snapshots", scale.metadata_bytes)
        catalog.make_namespace("columns")
        catalog.make_table("columns", "t0", columns=scale.columns)
        for namespace in ("snapshots", "columns"):
            found = catalog.load(namespace, "t0")["metadata"]
            figures: JsonObject = {
                "metadata_bytes": len(orjson.dumps(found)),
                "snapshots": len(found.get("snapshots", ())),
                "columns": len(found["schemas"][0]["fields"]),
            }
            for mode, connections in ((Mode.LOAD, 1), (Mode.LOAD, 8), (Mode.COMMIT, 1), (Mode.COMMIT, 8)):
                bench.settle()
                kind = kind_of(mode, connections)
                load = Load(mode=mode, namespace=namespace, tables=1, connections=connections, seconds=scale.seconds)
                figures[kind] = part.measure(target, load, f"many {namespace}, {kind}")
            part.figures[f"many {namespace}"] = figures
    part.figures["memory_mib"] = bench.up.memory_mib()
    return part


def policies(bench: Bench) -> Part:
    """Measure tenants with so many policies each, all in force for every commit."""
    part, scale = Part(), bench.scale
    wrk_program()
    for count in scale.policies:
        target = bench.up.new_tenant()[1]
        with target.connect() as catalog:
            catalog.make_tables(NAMESPACE, TABLES)
            for number in range(count):
                catalog.ask("POST", "/v1/policies", policy(number))
        figures = {}
        for mode, connections in ((Mode.LOAD, 8), (Mode.COMMIT, 1), (Mode.COMMIT, 16)):
            bench.settle()
            kind = kind_of(mode, connections)
            load = Load(mode=mode, namespace=NAMESPACE, tables=TABLES, connections=connections, seconds=scale.seconds)
            figures[kind] = part.measure(target, load, f"{count} policies, {kind}")
        part.figures[f"{count} policies"] = figures
    return part


def policy(number: int) -> JsonObject:
    """Return a policy that looks at the properties and at every column, and permits what the benches send."""
    expression = f"!('owner-{number}' in result.properties) && result.columns.all(c, c.name != 'secret-{number}')"
    return {"id": f"p-{number}", "expression": expression, "message": "no"}


def make_large_table(catalog: Catalog, namespace: str, size_bytes: int) -> None:
    """Create a table t0 of a namespace of its own, and add snapshots until its metadata is so large."""
    catalog.make_namespace(namespace)
    catalog.make_table(namespace, "t0")
    location, count, size = catalog.load(namespace, "t0")["metadata"]["location"], 0, 0
    while size < size_bytes:
        updates = [_added_snapshot(location, count + n) for n in range(SNAPSHOTS_PER_COMMIT)]
        answered = catalog.commit(namespace, "t0", updates)
        count, size = count + len(updates), len(orjson.dumps(answered["metadata"]))


def _added_snapshot(location: str, number: int) -> dict[str, Any]:
    file = f"snap-{FIRST_SNAPSHOT + number}-1-0f5b7c1e-6a27-4c39-9d55-0d6f3f1d2a11.avro"
    snapshot = {
        "snapshot-id": FIRST_SNAPSHOT + number,
        **({"parent-snapshot-id": FIRST_SNAPSHOT + number - 1} if number else {}),
        "sequence-number": number + 1,
        "timestamp-ms": int(time.time() * 1000),
        "manifest-list": f"{location}/metadata/{file}",
        "summary": SUMMARY,
        "schema-id": 0,
    }
    return {"action": "add-snapshot", "snapshot": snapshot}
