# SPDX-License-Identifier: Apache-2.0
"""
How long an append of ten rows takes end to end with PyIceberg, Spark and iceberg-go, one after another.

An append writes a data file, a manifest and a manifest list, then commits; the catalog takes only a part of that time.
Each engine does the same against the peer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from bench.gateway.bench import Bench, Part, skipping
from bench.gateway.target import MissingError, Target
from bench.latencies import latencies
from testkit.servers.iceberg_go_program import run_iceberg_go
from testkit.servers.spark_appends import WARM_UP, time_spark

ROWS: Final = 10
NAMESPACE: Final = "engines"


def engines(bench: Bench) -> Part:
    """Time every engine against every catalog; one that is not installed is skipped by name."""
    part = Part()
    timed: dict[str, Callable[[Target, int], dict[str, Any]]] = {
        "pyiceberg": _pyiceberg,
        "iceberg-go": _iceberg_go,
        "spark": _spark,
    }
    with bench.catalogs() as targets:
        for target in targets:
            with target.connect() as catalog:
                catalog.make_namespace(NAMESPACE)
        for name in bench.scale.engines:
            for target in targets:
                bench.settle()
                try:
                    with skipping():
                        found = timed[name](target, bench.scale.appends)
                except MissingError as error:
                    part.figures[name] = {"skipped": str(error)}
                    break
                read, expected = found.pop("rows"), found.pop("expected_rows")
                if read != expected and target.name == "lakeproof":
                    part.faults.append(f"{name} read {read} rows, expected {expected}")
                part.figures.setdefault(name, {})[target.name] = {
                    kind.removesuffix("_ms"): latencies(took) for kind, took in found.items()
                }
    return part


def _pyiceberg(target: Target, appends: int) -> dict[str, Any]:
    catalog = RestCatalog(
        "bench", uri=target.url, warehouse=target.warehouse, **({"token": target.key} if target.key else {})
    )
    catalog.create_table((NAMESPACE, "pyiceberg"), schema=_rows(0).schema)
    append_ms, load_ms = [], []
    for number in range(1 + appends):
        began_s = time.perf_counter()
        table = catalog.load_table((NAMESPACE, "pyiceberg"))
        loaded_s = time.perf_counter()
        table.append(_rows(number))
        if number:  # the first one imports what it needs
            load_ms.append(1_000 * (loaded_s - began_s))
            append_ms.append(1_000 * (time.perf_counter() - loaded_s))
    rows = table.refresh().scan().to_arrow().num_rows
    return {"append_ms": append_ms, "load_ms": load_ms, "rows": rows, "expected_rows": ROWS * (1 + appends)}


def _iceberg_go(target: Target, appends: int) -> dict[str, Any]:
    arguments = [target.url, target.warehouse, target.key or "", NAMESPACE, "go", str(1 + appends), str(ROWS)]
    found = run_iceberg_go(*arguments)
    times = {name: found[name][1:] for name in ("append_ms", "load_ms")}
    return {**times, "rows": found["rows"], "expected_rows": ROWS * (1 + appends)}


def _spark(target: Target, appends: int) -> dict[str, Any]:
    token = target.key or ""
    found = time_spark(
        uri=target.url, warehouse=target.warehouse, token=token, namespace=NAMESPACE, appends=appends, rows=ROWS
    )
    return {**found, "expected_rows": ROWS * (WARM_UP + appends)}


def _rows(number: int) -> pa.Table:
    first = number * ROWS
    names = [f"name {n}" for n in range(first, first + ROWS)]
    return pa.table({"id": list(range(first, first + ROWS)), "name": names})
