# SPDX-License-Identifier: Apache-2.0
"""
How fast the gateway is, as users start it: through a socket on a real `lakeproof up`, with `wrk` as the client, next to
rustberg on the same machine.

Claims: loads with 8 connections are at least twice as many per second as rustberg's; a commit with 1 connection takes
at most twice as long (p50); commits with 16 connections are at least as many. Through the adapter for foreign catalogs
a commit takes at most 5 ms (p50) and 10 ms (p95) longer than at the catalog itself, and 16 clients commit at least 200
times a second. While one tenant sends ten times its share, idle connections pile up or large answers are read slowly,
the 99th percentile of others at most doubles. Whatever is killed, every acknowledged commit is in the log and in the
table. No commit without requirements is answered 409.

A part whose program is not installed (rustberg, wrk, py-spy, Java, Maven, Go) is skipped by name. Each run of load ends
by itself. `--soak 60` adds an hour at 70 % of the measured rate; `--against OLDER/.venv/bin/lakeproof` compares two
commits of Lakeproof.

Run: `python -m bench.gateway`; `--quick` for two minutes of it, `--only table,commits` for parts. Parts that are not
run keep the figures that the results hold. The last line is JSON with all figures; the exit code is 1 if an answer was
wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.gateway.bench import FULL, QUICK, Bench, Measure
from bench.gateway.engines import engines
from bench.gateway.foreign import foreign
from bench.gateway.inside import profile, statements
from bench.gateway.installation import commit_of, python_of
from bench.gateway.kills import kills
from bench.gateway.operations import operations
from bench.gateway.pressure import idle, neighbours, slow
from bench.gateway.rates import commits, compare, loads, processes
from bench.gateway.sizes import metadata, policies, tables
from bench.gateway.soak import soak
from bench.gateway.target import MissingError
from bench.gateway.versions import against
from bench.measuring import circumstances, options, publish

PARTS: Final[Mapping[str, Measure]] = {
    "table": compare,
    "loads": loads,
    "commits": commits,
    "operations": operations,
    "processes": processes,
    "tables": tables,
    "metadata": metadata,
    "policies": policies,
    "foreign": foreign,
    "engines": engines,
    "statements": statements,
    "profile": profile,
    "neighbours": neighbours,
    "idle": idle,
    "slow": slow,
    "kills": kills,
}
SOAK: Final = "soak"
AGAINST: Final = "against"


def chosen(arguments: argparse.Namespace) -> dict[str, Measure]:
    """Return the parts to run."""
    names = arguments.only.split(",") if arguments.only else list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise SystemExit(f"no such parts: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    parts = {name: PARTS[name] for name in names}
    others: dict[str, Measure] = {}
    if arguments.soak:
        others[SOAK] = partial(soak, minutes=arguments.soak)
    if arguments.against:
        others[AGAINST] = partial(against, older=arguments.against.absolute())
    return {**(parts if arguments.only else {}), **others} if others else parts


def run_part(name: str, measure: Measure, bench: Bench) -> dict[str, Any]:
    """Return what a part has found, or why it was skipped."""
    began_s = time.monotonic()
    try:
        part = measure(bench)
        found = {**part.figures, "faults": part.faults}
    except MissingError as error:
        found = {"skipped": f"{error} is not there"}
    except Exception as error:  # noqa: BLE001 - the figures of the other parts must not go with it
        traceback.print_exc()
        found = {"faults": [f"it ended with {type(error).__name__}: {error}"]}
    of = {"of": commit_of(bench.program), "python": python_of(bench.program)}
    found = {**found, "took_s": round(time.monotonic() - began_s, 1), **circumstances(), **of}
    print(f"{name}: {json.dumps(found)}", file=sys.stderr, flush=True)
    return found


def known(results: Path) -> dict[str, Any]:
    """Return the runs that the results hold already."""
    runs: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))["runs"] if results.exists() else {}
    return runs


def main() -> None:
    """Measure, publish, and exit with 1 if an answer was wrong."""
    parser = options("gateway", __doc__)
    parser.add_argument("--quick", action="store_true", help="a small version of each part: figures mean little")
    parser.add_argument("--only", help=f"some parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument(
        "--soak", type=float, default=0, metavar="MINUTES", help="load for so long; alone without --only"
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="LAKEPROOF",
        help="compare with this program, which may be of an older commit; alone without --only",
    )
    parser.add_argument("--run", default="now", help="the name under which the figures are kept (default: now)")
    parser.add_argument(
        "--lakeproof",
        type=Path,
        default=Path(sys.executable).with_name("lakeproof"),
        help="the program that is measured (default: the one of this environment)",
    )
    arguments = parser.parse_args()
    runs = known(arguments.results)
    run = runs.setdefault(arguments.run, {})
    faults: list[str] = []
    with ExitStack() as stack:
        bench = Bench(arguments.lakeproof.absolute(), QUICK if arguments.quick else FULL, stack)
        for name, measure in chosen(arguments).items():
            run[name] = run_part(name, measure, bench)
            faults += run[name].get("faults", ())
            publish({"bench": "gateway", **circumstances(), "runs": runs}, arguments.results)
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
