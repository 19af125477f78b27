# SPDX-License-Identifier: Apache-2.0
"""
Loads and commits beside an older commit of Lakeproof: is anything slower than it was?

Both must run on the same build of Python: builds differ by a fifth. Starts of one commit differ by up to 15 %, and so
does the machine from one minute to the next. So each round starts both, in an order that alternates, and what counts is
the median over all starts.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final

from bench.gateway.bench import Bench, Part, ratio
from bench.gateway.installation import Up, commit_of, lakeproof_up, python_of
from bench.gateway.rates import KINDS, load_of, make_tables
from bench.gateway.target import MissingError
from bench.gateway.wrk import Figures, median_of, wrk_program

GOALS: Final = {"rate_ratio_min": 0.97}


def against(bench: Bench, *, older: Path) -> Part:
    """
    Measure both programs by turns; figures are medians over starts.

    Raises:
        MissingError: if they run on different builds of Python.
    """
    wrk_program()
    if python_of(older) != python_of(bench.program):
        raise MissingError(f"one build of Python for both programs: {python_of(older)}, {python_of(bench.program)}")
    part = Part()
    programs = {"older": older, "newer": bench.program}
    starts: dict[str, dict[str, list[Figures]]] = {kind: {name: [] for name in programs} for kind in KINDS}
    for number in range(bench.scale.starts):
        for name, program in sorted(programs.items(), reverse=number % 2 == 0):
            with lakeproof_up(program) as up:
                for kind, found in _measured(bench, part, up, name).items():
                    starts[kind][name].append(found)
    for kind, by_name in starts.items():
        part.figures[kind] = {
            **{name: median_of(each) for name, each in by_name.items()},
            "per_second_of_starts": {name: [one["per_second"] for one in each] for name, each in by_name.items()},
            "rate_ratio": ratio(*(_median_rate(by_name[name]) for name in ("newer", "older"))),
        }
    part.figures |= {"compared": {name: commit_of(program) for name, program in programs.items()}, "goals": GOALS}
    return part


def _measured(bench: Bench, part: Part, up: Up, name: str) -> dict[str, Figures]:
    target = up.new_tenant()[1]
    make_tables(target)
    found = {}
    for kind, (mode, connections) in KINDS.items():
        for _ in ("what first requests make", "what counts"):
            up.wait_until_quiet(bench.scale.quiet_s)
            found[kind] = part.measure(target, load_of(bench, mode, connections), f"{name}, {kind}")
    return found


def _median_rate(figures: list[Figures]) -> float:
    rates: list[float] = [one["per_second"] for one in figures]
    return statistics.median(rates)
