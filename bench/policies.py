# SPDX-License-Identifier: Apache-2.0
"""
How long a commit waits for its policies: fifty of them on one worker, as the gateway calls it.

Claim: for fifty policies on a table of 50 columns, five of which compare every column with every other, p99 is at most
5 ms, on 200 columns at most 40 ms; for fifty simple ones on 50 columns at most 1.5 ms; on inputs of 50 columns that
were judged before (`KnownVerdicts`) at most 0.3 ms. The time is that of `PolicyEngine.judge`: the variables go to the
worker's process, and fifty verdicts come back.

The peer is cel-python's own interpreter, whose grammar we use, on the same expressions and variables in this process:
without a process between, deadline or limit of memory, and with the logic that `cel/functions.py` corrects. Each of its
programs is compiled before.

Run: `python -m bench.policies --calls 500`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import celpy
from celpy.adapter import json_to_cel

from bench.latencies import latencies
from bench.measuring import circumstances, options, publish
from gateway.policy.engine import POLICY, Outcome, Program, Verdict
from gateway.policy.known_verdicts import KnownVerdicts
from gateway.policy.pool import WorkerEngine

Judge: TypeAlias = Callable[..., Coroutine[Any, Any, tuple[Verdict, ...]]]

COLUMNS: Final = (50, 200)
QUADRATIC: Final = "table.columns.all(c, result.columns.exists(r, r.id == c.id))"
SIMPLE: Final = (
    "result.properties.owner != ''",
    "'data-eng' in principal.roles || commit.namespace[0] != 'finance'",
    "!commit.actions.exists(a, a == 'remove-snapshots' || a == 'remove-snapshot-ref')",
    "result.format_version >= 2 && result.location.startsWith('s3://lake/')",
    "!result.properties.exists(name, name.startsWith('secret.'))",
    "commit.operation != 'table.drop' || principal.source == 'api_key'",
    "result.partition_fields.all(field, field.transform != 'void')",
    "!('ssn' in result.properties)",
    "size(commit.snapshots) <= 10",
)
"""One of each kind that a tenant has: schema, writers, retention, format, properties, drops, partitions, size."""
MIX: Final = [*[QUADRATIC] * 5, *(SIMPLE[number % len(SIMPLE)] for number in range(45))]
FIFTY_SIMPLE: Final = [SIMPLE[number % len(SIMPLE)] for number in range(50)]
PEER_CALLS: Final = 3
PEER_LONG_S: Final = 5.0
"""The peer is called once if it takes longer."""
WARM_CALLS: Final = 20
TIMEOUT_S: Final = 60.0


def variables(columns: int) -> dict[str, Any]:
    """Return the variables of a commit that appends to a table of so many columns."""
    table = {
        "exists": True,
        "uuid": "5f3c8f5e-0000-4000-8000-000000000000",
        "location": "s3://lake/sales/orders",
        "format_version": 2,
        "columns": [
            {"id": number, "name": f"column_{number}", "type": "string", "required": False, "doc": "what it holds"}
            for number in range(1, columns + 1)
        ],
        "partition_fields": [{"name": "day", "transform": "day", "source_id": 1, "source": "column_1"}],
        "sort_fields": [],
        "properties": {"owner": "ada@acme.example", "write.format.default": "parquet"},
        "refs": {"main": {"type": "branch", "snapshot_id": "1"}},
        "snapshot": {"id": "1", "operation": "append", "summary": {"operation": "append"}},
        "queries": {},
    }
    return {
        "table": table,
        "result": table,
        "commit": {
            "catalog": "lake",
            "namespace": ["sales"],
            "name": "orders",
            "kind": "table",
            "operation": "table.commit",
            "actions": ["add-snapshot", "set-snapshot-ref"],
            "purge": False,
            "updates": [],
            "requirements": [],
            "snapshots": [{"id": "2", "operation": "append", "summary": {}}],
        },
        "principal": {"actor": "a" * 32, "sub": "ada", "email": "", "roles": ["data-eng"], "source": "api_key"},
        "request": {"method": "POST", "path": "/v1/iceberg/lake", "client": "spark"},
    }


async def measure(judge: Judge, expressions: Sequence[str], values: Mapping[str, Any], calls: int) -> list[float]:
    """Return how long each call took, in milliseconds."""
    programs = [
        Program(kind=POLICY, id=f"p{number}", version=1, expression=each) for number, each in enumerate(expressions)
    ]
    waits_ms = []
    for number in range(WARM_CALLS + calls):
        began_s = time.perf_counter()
        verdicts = await judge(programs, values, log_id=1, timeout_s=TIMEOUT_S)
        took_s = time.perf_counter() - began_s
        assert {verdict.outcome for verdict in verdicts} == {Outcome.ALLOW}, verdicts
        if number >= WARM_CALLS:
            waits_ms.append(1e3 * took_s)
    return waits_ms


def measure_peer(expressions: Sequence[str], values: Mapping[str, Any]) -> float:
    """Return how long cel-python takes for all expressions on these values at best, in seconds."""
    environment = celpy.Environment(runner_class=celpy.InterpretedRunner)
    programs = [environment.program(environment.compile(expression)) for expression in expressions]
    best_s = float("inf")
    for _ in range(PEER_CALLS):
        began_s = time.perf_counter()
        converted = {name: json_to_cel(value) for name, value in values.items()}
        for program in programs:
            assert program.evaluate(converted)
        took_s = time.perf_counter() - began_s
        best_s = min(best_s, took_s)
        if took_s > PEER_LONG_S:
            break
    return best_s


async def play(calls: int) -> dict[str, Any]:
    """Measure everything, by turns with the peer."""
    runs, peer_s = list[dict[str, Any]](), 0.0
    async with WorkerEngine(workers=1) as engine:
        await engine.start()
        for columns in COLUMNS:
            known = partial(KnownVerdicts().judge, engine)
            cases = (("simple", FIFTY_SIMPLE, engine.judge), ("mix", MIX, engine.judge), ("unchanged", MIX, known))
            for kind, expressions, judge in cases:
                values = variables(columns)
                waits_ms = await measure(judge, expressions, values, calls)
                if kind != "unchanged":  # it keeps no verdicts, and takes as long as before
                    peer_s = measure_peer(expressions, values)
                waits = latencies(waits_ms)
                found = {"kind": kind, "columns": columns, **waits, "peer_ms": round(1e3 * peer_s, 1)}
                runs.append({**found, "peer_to_ours": round(1e3 * peer_s / waits["p50_ms"], 1)})
                print(runs[-1], flush=True)
    return {"bench": "policies", "policies": len(MIX), "calls": calls, "runs": runs, **circumstances()}


def main() -> None:
    """Measure and write what was found."""
    parser = options("policies", __doc__)
    parser.add_argument("--calls", type=int, default=500)
    arguments = parser.parse_args()
    publish(asyncio.run(play(arguments.calls)), arguments.results)


if __name__ == "__main__":
    main()
