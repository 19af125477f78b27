# SPDX-License-Identifier: Apache-2.0
"""
What the gateway adds to a commit to a foreign catalog: Apache Iceberg's own REST server, on SQLite.

It keeps metadata files in its memory: on a file system it starts a process, `chmod`, for each, and that took a third of
two cores. So that they fit there, the tables name ten of their last metadata files instead of a hundred.

The same commits are sent to that server directly and through the gateway's adapter, by turns. Through the adapter, the
decision is durable before the request is sent, and the outcome before it is answered. Each client commits to a table of
its own, because that server answers 409 to commits that race at it.
"""

from __future__ import annotations

from typing import Final

from bench.gateway.bench import Bench, Part, ratio, skipping
from bench.gateway.rates import NAMESPACE
from bench.gateway.target import Target
from bench.gateway.wrk import Figures, Load, Mode, median_of, wrk_program
from testkit.servers.iceberg_rest import start_iceberg_rest

ALIAS: Final = "far"
BASE: Final = "/v1"
GOALS: Final = {"added_p50_ms_max": 5.0, "added_p95_ms_max": 10.0, "per_second_min": 200.0}


def foreign(bench: Bench) -> Part:
    """Measure commits with one client, for their latency, and with many, for their rate."""
    part, clients = Part(), bench.scale.foreign_clients
    wrk_program()
    with skipping(), start_iceberg_rest(keeps_files_in_memory=True) as server:
        name, ours = bench.up.new_tenant()
        arguments = ("--tenant", name, "--kind", "rest", "--option", f"uri={server.url}")
        bench.up.command.run("catalogs", bench.up.command.create, ALIAS, *arguments)
        direct = Target(name="iceberg-rest-fixture", url=server.url, base=BASE)
        through = bench.up.target(ours.key or "", ALIAS)
        with direct.connect() as catalog:
            catalog.make_tables(NAMESPACE, clients)
        kinds = {"1 client": 1, f"{clients} clients": clients}
        rounds: dict[str, dict[str, list[Figures]]] = {kind: {direct.name: [], through.name: []} for kind in kinds}
        for number in range(bench.scale.rounds + 1):
            for kind, count in kinds.items():
                for target in (direct, through):
                    bench.settle()
                    load = Load(
                        mode=Mode.OWN,
                        namespace=NAMESPACE,
                        tables=clients,
                        connections=count,
                        threads=count,
                        seconds=bench.scale.seconds,
                    )
                    found = part.measure(target, load, f"foreign, {kind}")
                    if number > 0 or bench.scale.rounds == 1:  # the server's virtual machine compiles at first
                        rounds[kind][target.name].append(found)
    for kind, by_name in rounds.items():
        part.figures[kind] = {name: median_of(each) for name, each in by_name.items()}
    part.figures |= _added(part.figures, direct.name, through.name, tuple(kinds))
    return part


def _added(figures: Figures, direct: str, through: str, kinds: tuple[str, ...]) -> Figures:
    alone, together = figures[kinds[0]], figures[kinds[1]]
    added = {name: round(alone[through][name] - alone[direct][name], 3) for name in ("p50_ms", "p95_ms", "p99_ms")}
    return {
        "added_per_commit": added,
        "rate_ratio": ratio(together[through]["per_second"], together[direct]["per_second"]),
        "goals": GOALS,
    }
