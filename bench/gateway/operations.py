# SPDX-License-Identifier: Apache-2.0
"""
How long each operation of the catalog takes on one connection, but for loads and commits: `rates` measures those.

A round makes a namespace, a table and a view, asks about them, changes and renames them, and drops them again; the
next request is sent when the answer is there. The peer is sent the same; what it refuses has no figure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, Final

from bench.gateway.bench import Bench, Part
from bench.gateway.rates import NAMESPACE, prepared
from bench.gateway.target import COLUMNS, Target, schema, set_properties
from bench.gateway.wrk import Figures, start
from bench.latencies import latencies

SCRIPT: Final = Path(__file__).with_name("operations.lua")
TOGETHER: Final = 3
"""Tables of a transaction."""
TIMES_AS_LONG: Final = 2
"""As the run of another part: each operation has a share of it."""

JsonObject = dict[str, Any]
Step = tuple[str, str, str, JsonObject | None]


def operations(bench: Bench) -> Part:
    """Measure the operations of ours and of the peer by turns."""
    part = Part()
    found: dict[str, dict[str, _Answers]] = {}
    with prepared(bench) as targets:
        for _ in range(bench.scale.rounds):
            for target in targets:
                bench.settle()
                for step, answers in _run(target, TIMES_AS_LONG * bench.scale.seconds).items():
                    found.setdefault(step, {}).setdefault(target.name, _Answers()).add(answers)
    for step in (step[0] for step in _steps(targets[0])):
        if (by_name := found.get(step)) is None:
            continue  # the run was too short
        part.figures[step] = {name: answers.figures() for name, answers in by_name.items()}
        if refused := by_name["lakeproof"].refused:
            part.faults.append(f"{step}: {refused}")
    return part


@dataclass(slots=True)
class _Answers:
    """What was answered to one operation: the waits in milliseconds, and how often each status."""

    waits_ms: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, other: _Answers) -> None:
        self.waits_ms += other.waits_ms
        self.statuses += other.statuses

    @property
    def refused(self) -> dict[str, int]:
        """The counts of statuses that are no success."""
        return {status: count for status, count in self.statuses.items() if not status.startswith("2")}

    def figures(self) -> Figures:
        """Return the latencies; what was refused even once has none."""
        if self.refused:
            return {"refused": self.refused}
        return {"requests": len(self.waits_ms), **latencies(self.waits_ms)}


def _run(target: Target, seconds: float) -> dict[str, _Answers]:
    """Return what was answered to each operation within so many seconds."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "steps"
        lines = ("\t".join((*step[:3], "" if step[3] is None else json.dumps(step[3]))) for step in _steps(target))
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        found = start(target, SCRIPT, str(file), seconds=seconds).result()
    answers = {step: _Answers([int(us) / 1e3 for us in waits.split()]) for step, waits in found["waits"].items()}
    for counted, count in found["statuses"].items():
        step, _, status = counted.partition(" ")
        answers[step].statuses[status] += count
    return answers


def _steps(target: Target) -> Iterator[Step]:
    """
    Yield a round's requests in order: operation, method, path and body.

    Namespaces are named anew for each run, so a round that the end of a run cuts off is in nobody's way.
    """
    spaces, space = f"{target.base}/namespaces", f"{token_hex(4)}_@"
    there, orders, views = f"{spaces}/{space}", f"{spaces}/{space}/tables/orders", f"{spaces}/{space}/views"
    yield "createNamespace", "POST", spaces, {"namespace": [space]}
    yield "namespaceExists", "HEAD", there, None
    yield "loadNamespaceMetadata", "GET", there, None
    yield "updateProperties", "POST", f"{there}/properties", {"updates": {"owner": "bench"}}
    yield "createTable", "POST", f"{there}/tables", {"name": "orders", "schema": schema(COLUMNS)}
    yield "listTables", "GET", f"{there}/tables", None
    yield "tableExists", "HEAD", orders, None
    yield "reportMetrics", "POST", f"{orders}/metrics", _scan(space)
    yield "renameTable", "POST", f"{target.base}/tables/rename", _moved(space, "orders", "sales")
    yield "commitTransaction", "POST", f"{target.base}/transactions/commit", _transaction()
    yield "unregisterTable", "POST", f"{there}/tables/sales/unregister", {}
    yield "registerTable", "POST", f"{there}/register", {"name": "orders", "metadata-location": "^"}
    yield "dropTable", "DELETE", orders, None
    yield "createView", "POST", views, _view(space)
    yield "loadView", "GET", f"{views}/report", None
    yield "listViews", "GET", views, None
    yield "viewExists", "HEAD", f"{views}/report", None
    yield "replaceView", "POST", f"{views}/report", _replaced(space)
    yield "renameView", "POST", f"{target.base}/views/rename", _moved(space, "report", "summary")
    yield "dropView", "DELETE", f"{views}/summary", None
    yield "listFunctions", "GET", f"{there}/functions", None
    yield "dropNamespace", "DELETE", there, None
    yield "listNamespaces", "GET", f"{spaces}?pageSize=100", None
    yield "getEvents", "POST", f"{target.base}/events", {"page-size": 100}


def _transaction() -> JsonObject:
    named = ({"namespace": [NAMESPACE], "name": f"t{number}"} for number in range(TOGETHER))
    updates = [set_properties(round="@")]
    return {"table-changes": [{"identifier": name, "requirements": [], "updates": updates} for name in named]}


def _moved(namespace: str, source: str, destination: str) -> JsonObject:
    return {
        "source": {"namespace": [namespace], "name": source},
        "destination": {"namespace": [namespace], "name": destination},
    }


def _view(namespace: str) -> JsonObject:
    return {
        "name": "report",
        "schema": schema(COLUMNS),
        "view-version": _version(namespace, 1),
        "properties": {},
    }


def _replaced(namespace: str) -> JsonObject:
    return {
        "requirements": [],
        "updates": [
            {"action": "add-view-version", "view-version": _version(namespace, 2)},
            {"action": "set-current-view-version", "view-version-id": -1},
        ],
    }


def _version(namespace: str, number: int) -> JsonObject:
    return {
        "version-id": number,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {"engine-name": "bench"},
        "representations": [{"type": "sql", "dialect": "spark", "sql": f"TABLE orders LIMIT {number}"}],
        "default-namespace": [namespace],
    }


def _scan(namespace: str) -> JsonObject:
    """Return the report of a scan, as small as the specification allows."""
    return {
        "report-type": "scan-report",
        "table-name": f"{namespace}.orders",
        "snapshot-id": -1,
        "filter": True,
        "schema-id": 0,
        "projected-field-ids": [1],
        "projected-field-names": ["c0"],
        "metrics": {"result-data-files": {"unit": "count", "value": 3}},
    }
