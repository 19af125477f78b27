# SPDX-License-Identifier: Apache-2.0
"""
How many loads and commits a second, and how long each takes: compared with the peer, over numbers of connections, and
over numbers of gateway processes.

Each table has 50 columns. Commits set a property of a table chosen at random and have no requirements, so each of them
can be done whatever happened before it: any answer but 200 is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Final

from bench.gateway.bench import Bench, Part, ratio
from bench.gateway.installation import lakeproof_up
from bench.gateway.rustberg import NAME as PEER
from bench.gateway.rustberg import version
from bench.gateway.target import Target
from bench.gateway.wrk import Figures, Load, Mode, median_of, wrk_program

TABLES: Final = 16
NAMESPACE: Final = "bench"
LOADS, COMMIT, COMMITS = "load, 8 connections", "commit, 1 connection", "commit, 16 connections"
KINDS: Final = {LOADS: (Mode.LOAD, 8), COMMIT: (Mode.COMMIT, 1), COMMITS: (Mode.COMMIT, 16)}
GOALS: Final = {"loads_ratio_min": 2.0, "commit_p50_ratio_max": 2.0, "commits_ratio_min": 1.0}
PROCESSES: Final = "LAKEPROOF_GATEWAY_PROCESSES"


def compare(bench: Bench) -> Part:
    """
    Measure loads and commits of ours and of the peer by turns, in each round in the other order; figures are medians of
    the rounds. So are ratios: both of a round are measured one right after the other, whatever else the machine does in
    that minute.
    """
    part = Part()
    rounds: dict[str, dict[str, list[Figures]]] = {kind: {} for kind in KINDS}
    with prepared(bench) as targets:
        for number in range(bench.scale.rounds):
            for kind, (mode, connections) in KINDS.items():
                for target in targets if number % 2 == 0 else targets[::-1]:
                    bench.settle()
                    found = part.measure(target, load_of(bench, mode, connections), kind)
                    rounds[kind].setdefault(target.name, []).append(found)
    for kind, by_name in rounds.items():
        part.figures[kind] = {
            **{name: median_of(each) for name, each in by_name.items()},
            "per_second_of_rounds": {name: [one["per_second"] for one in each] for name, each in by_name.items()},
        }
    part.figures["memory_mib"] = bench.up.memory_mib()
    if PEER in rounds[LOADS]:
        part.figures |= {"peer": version(), "ratios": _ratios(rounds), "goals": GOALS}
    return part


def loads(bench: Bench) -> Part:
    """Measure loads over numbers of connections."""
    return _over_connections(bench, Mode.LOAD)


def commits(bench: Bench) -> Part:
    """Measure commits over numbers of connections."""
    return _over_connections(bench, Mode.COMMIT)


def processes(bench: Bench) -> Part:
    """Measure with so many gateway processes each, and the memory of all processes of each installation."""
    part, scale = Part(), bench.scale
    wrk_program()
    for count in scale.processes:
        with lakeproof_up(bench.program, **{PROCESSES: str(count)}) as up:
            target = up.new_tenant()[1]
            figures: Figures = {"memory_mib_at_rest": up.memory_mib()}
            make_tables(target)
            for mode, connections in (
                (Mode.LOAD, 8),
                (Mode.LOAD, 64),
                (Mode.COMMIT, 1),
                (Mode.COMMIT, 16),
                (Mode.COMMIT, 64),
            ):
                up.wait_until_quiet()
                kind = kind_of(mode, connections)
                figures[kind] = part.measure(target, load_of(bench, mode, connections), f"{count} processes, {kind}")
            figures["memory_mib"] = up.memory_mib()
            part.figures[f"{count} processes"] = figures
    return part


@contextmanager
def prepared(bench: Bench) -> Iterator[list[Target]]:
    """Yield catalogs with tables, and with whatever first requests make already made."""
    wrk_program()
    with bench.catalogs() as targets:
        for target in targets:
            make_tables(target)
        yield targets


def make_tables(target: Target) -> None:
    """Make the tables of most parts."""
    with target.connect() as catalog:
        catalog.make_tables(NAMESPACE, TABLES)
        for number in range(TABLES):
            catalog.load(NAMESPACE, f"t{number}")


def load_of(bench: Bench, mode: Mode, connections: int) -> Load:
    """Return the load of most parts: on the tables of `NAMESPACE`, from one thread."""
    return Load(mode=mode, namespace=NAMESPACE, tables=TABLES, connections=connections, seconds=bench.scale.seconds)


def kind_of(mode: Mode, connections: int) -> str:
    """Return the name of a load in the results."""
    return f"{mode.value}, {plural(connections, 'connection')}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _over_connections(bench: Bench, mode: Mode) -> Part:
    part = Part()
    with prepared(bench) as targets:
        for connections in bench.scale.connections:
            kind = plural(connections, "connection")
            for target in targets:
                bench.settle()
                found = part.measure(target, load_of(bench, mode, connections), kind_of(mode, connections))
                part.figures.setdefault(kind, {})[target.name] = found
    return part


def _ratios(rounds: Mapping[str, Mapping[str, Sequence[Figures]]]) -> dict[str, float]:
    def of(kind: str, name: str) -> float:
        pairs = zip(rounds[kind]["lakeproof"], rounds[kind][PEER], strict=True)
        return median(ratio(ours[name], theirs[name]) for ours, theirs in pairs)

    return {
        "loads_ratio": of(LOADS, "per_second"),
        "commit_p50_ratio": of(COMMIT, "p50_ms"),
        "commits_ratio": of(COMMITS, "per_second"),
    }
