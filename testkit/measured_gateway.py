# SPDX-License-Identifier: Apache-2.0
"""
The results of `bench.gateway` in words, for `docs/measured.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Found = Mapping[str, Any]

TABLE: Final = "table"
ENGINES: Final = "engines"
PRESSURES: Final = {
    "neighbours": "another tenant at ten times its share",
    "idle": "1,000 idle connections",
    "slow": "50 slow readers of large answers",
}
LOADS, COMMIT, COMMITS = "load, 8 connections", "commit, 1 connection", "commit, 16 connections"


def gateway(found: Found) -> Iterator[str]:
    yield "Loads and commits through a socket, with `wrk` as the client and `lakeproof up` as users start it, on 16"
    yield "tables of 50 columns. Commits set a property of a table chosen at random, without requirements. The peer is"
    yield "rustberg, a catalog without authentication, policies or a log; it was measured by turns with each commit of"
    yield "the source that has a column. A ratio compares rates, or the p50 of one connection, with the peer (median of"
    yield "the rounds, in each of which both are measured one right after the other):"
    runs = found["runs"].values()
    yield f"| | {' | '.join(f'{_commit(run, TABLE)} | peer | ratio' for run in runs)} |"
    yield f"|---{'|---:|---:|---:' * len(runs)}|"
    for kind, figure, ratio in (
        (LOADS, "per_second", "loads_ratio"),
        (COMMIT, "p50_ms", "commit_p50_ratio"),
        (COMMITS, "per_second", "commits_ratio"),
    ):
        tables = [_part(run, TABLE) for run in runs]
        shown = [_beside_peer(of.get(kind, {}), figure, of.get("ratios", {}).get(ratio)) for of in tables]
        yield f"| {kind} | {' | '.join(shown)} |"
    yield "An append of ten rows, end to end, with one engine after another (p50):"
    yield f"| | {' | '.join(f'{_commit(run, ENGINES)} | peer | ratio' for run in runs)} |"
    yield f"|---{'|---:|---:|---:' * len(runs)}|"
    for engine in ("pyiceberg", "iceberg-go", "spark"):
        appends = [_part(run, ENGINES).get(engine, {}) for run in runs]
        cells = ({name: one["append"] for name, one in each.items() if "append" in one} for each in appends)
        yield f"| {engine} | {' | '.join(_beside_peer(each, 'p50_ms') for each in cells)} |"
    newest = list(runs)[-1]
    for describe in (_rates_by_connections, _foreign, _sizes, _pressures, _kills, _soak, _operations, _against):
        yield from describe(newest)
    yield "Where and when each part of the newest run was measured:"
    yield "| parts | commit | machine | date |"
    yield "|---|---|---|---|"
    for circumstances, parts in _by_circumstances(newest).items():
        yield f"| {', '.join(parts)} | {' | '.join(circumstances)} |"


def _by_circumstances(run: Found) -> dict[tuple[str, str, str], list[str]]:
    """Return the parts that were measured on a machine, of a commit, and on a day."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, part in run.items():
        if isinstance(part, dict) and "of" in part and "skipped" not in part:
            found.setdefault((part["of"], part["machine"], part["measured_at"][:10]), []).append(name)
    return found


def _part(run: Found, name: str) -> Found:
    """Return what a part has found; nothing if it was not measured."""
    part: Found = run.get(name, {})
    return {} if "skipped" in part else part


def _commit(run: Found, part: str) -> str:
    return str(_part(run, part).get("of", ""))


def _beside_peer(of_target: Found, figure: str, ratio: float | None = None) -> str:
    """Return three cells: our figure, the peer's, and how many times as large ours is, if `ratio` does not say it."""
    unit = " ms" if figure.endswith("_ms") else "/s"
    values = [of_target.get(name, {}).get(figure) for name in ("lakeproof", "rustberg")]
    cells = ["" if value is None else f"{value:,.1f}{unit}" for value in values]
    ours, theirs = values
    if ratio is None and ours and theirs:
        ratio = ours / theirs
    return " | ".join([*cells, "" if ratio is None else f"{ratio:.2f}"])


def _rates_by_connections(run: Found) -> Iterator[str]:
    loads, commits = _part(run, "loads"), _part(run, "commits")
    if not loads or not commits:
        return
    yield "Over numbers of connections:"
    yield "| connections | loads/s | p50 | p99 | commits/s | p50 | p99 |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for kind, of_loads in loads.items():
        if kind.partition(" ")[2] in {"connection", "connections"}:
            sides = (of_loads["lakeproof"], commits[kind]["lakeproof"])
            cells = (f"{one['per_second']:,} | {one['p50_ms']} ms | {one['p99_ms']} ms" for one in sides)
            yield f"| {kind.partition(' ')[0]} | {' | '.join(cells)} |"


def _foreign(run: Found) -> Iterator[str]:
    found = _part(run, "foreign")
    if not found:
        return
    added, goals = found["added_per_commit"], found["goals"]
    together = found[_clients(found)[-1]]["lakeproof"]["per_second"]
    holds = (
        added["p50_ms"] <= goals["added_p50_ms_max"],
        added["p95_ms"] <= goals["added_p95_ms_max"],
        together >= goals["per_second_min"],
    )
    yield "Commits to a foreign catalog, Apache Iceberg's own REST server on SQLite, directly and through the gateway,"
    yield "by turns. The decision is durable before the request is sent on, and the outcome before it is answered. A"
    yield f"commit takes {added['p50_ms']:.1f} ms (p50) and {added['p95_ms']:.1f} ms (p95) longer; the claims are"
    yield f"{goals['added_p50_ms_max']:g} ms, {goals['added_p95_ms_max']:g} ms, and {goals['per_second_min']:g} commits"
    yield f"a second with {_clients(found)[-1]}. {'All hold' if all(holds) else f'{sum(holds)} of 3 hold'}:"
    yield "| | directly | p50 | p95 | through the gateway | p50 | p95 |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for kind in _clients(found):
        cells = (
            f"{one['per_second']:,.1f}/s | {one['p50_ms']:.1f} ms | {one['p95_ms']:.1f} ms"
            for one in sorted(found[kind].values(), key=lambda one: one is found[kind]["lakeproof"])
        )
        yield f"| {kind} | {' | '.join(cells)} |"


def _clients(found: Found) -> list[str]:
    return [kind for kind in found if kind.endswith((" client", " clients"))]


def _sizes(run: Found) -> Iterator[str]:
    cases: dict[str, Found] = {}
    if found := _part(run, "tables"):
        cases[f"{found['tables']:,} tables"] = found
    for part, what in (("policies", "policies: "), ("processes", "gateway processes: ")):
        cases |= {
            f"{what}{kind.partition(' ')[0]}": one
            for kind, one in _part(run, part).items()
            if kind.endswith(f" {part}")
        }
    cases |= {
        f"{kind}, {one['metadata_bytes'] / 2**20:.1f} MiB of metadata": one
        for kind, one in _part(run, "metadata").items()
        if kind.startswith("many ")
    }
    if not cases:
        return
    yield "With many tables, policies and gateway processes, and large metadata:"
    yield "| with | loads/s, 8 connections | p50 | a commit, 1 connection: p50 | p99 | commits/s, 16 connections |"
    yield "|---|---:|---:|---:|---:|---:|"
    for case, one in cases.items():
        loads, commit, commits = one[LOADS], one[COMMIT], one.get(COMMITS)
        rate = f"{commits['per_second']:,}" if commits else ""
        yield (
            f"| {case} | {loads['per_second']:,} | {loads['p50_ms']} ms | {commit['p50_ms']} ms | "
            f"{commit['p99_ms']} ms | {rate} |"
        )


def _pressures(run: Found) -> Iterator[str]:
    rows = [
        (what, kind, one)
        for name, what in PRESSURES.items()
        for kind, one in _part(run, name).items()
        if isinstance(one, dict) and "p99_ratio" in one
    ]
    if not rows:
        return
    yield "What others notice of it, at the 99th percentile; the claim is that it at most doubles:"
    yield "| beside | measured | quiet | then | ratio |"
    yield "|---|---|---:|---:|---:|"
    for what, kind, one in rows:
        quiet, pressed = one["quiet"]["p99_ms"], one["pressed"]["p99_ms"]
        yield f"| {what} | {kind} | {quiet} ms | {pressed} ms | {one['p99_ratio']} |"


def _kills(run: Found) -> Iterator[str]:
    victims = {name: one for name, one in _part(run, "kills").items() if isinstance(one, dict)}
    if not victims:
        return
    yield "Killed in the middle of commits. Each acknowledged one is in the log and in the table:"
    yield "| killed | acknowledged | after the kill | longest pause | answers other than 200 |"
    yield "|---|---:|---:|---:|---|"
    for victim, one in victims.items():
        others = ", ".join(f"{count} {answer}" for answer, count in one["answers"].items() if answer != "200")
        yield (
            f"| {victim} | {one['acknowledged']:,} | {one['acknowledged_after_the_kill']:,} | "
            f"{one['longest_pause_s']} s | {others or 'none'} |"
        )


def _soak(run: Found) -> Iterator[str]:
    found = _part(run, "soak")
    if not found:
        return
    yield "Loads and commits at 70 % of the highest rate:"
    yield "| for | requests | p50 | p99 | memory in the second third | in the last third |"
    yield "|---:|---:|---:|---:|---:|---:|"
    memory = (f"{found[f'memory_mib_of_{third}_third']:,.0f} MiB" for third in ("second", "last"))
    yield (
        f"| {found['minutes']:g} min | {found['requests']:,} | {found['p50_ms']} ms | {found['p99_ms']} ms | "
        f"{' | '.join(memory)} |"
    )


def _operations(run: Found) -> Iterator[str]:
    figures = {name: by_name for name, by_name in _part(run, "operations").items() if _is_measured(by_name)}
    if not figures:
        return
    yield "Each other operation alone on one connection, in rounds that make, change, rename and drop a"
    yield "namespace, a table and a view (a transaction is over three tables; without a figure, the peer refuses):"
    yield "| operation | p50 | p99 | p50 of the peer |"
    yield "|---|---:|---:|---:|"
    for name, by_name in figures.items():
        ours, peer = by_name["lakeproof"], by_name.get("rustberg", {})
        theirs = f"{peer['p50_ms']:.2f} ms" if "p50_ms" in peer else ""
        yield f"| {name} | {ours['p50_ms']:.2f} ms | {ours['p99_ms']:.2f} ms | {theirs} |"


def _against(run: Found) -> Iterator[str]:
    found = _part(run, "against")
    if "compared" not in found:
        return
    older, newer = found["compared"]["older"], found["compared"]["newer"]
    kinds = {kind: both for kind, both in found.items() if isinstance(both, dict) and "rate_ratio" in both}
    starts = len(next(iter(kinds.values()))["per_second_of_starts"]["newer"])
    yield f"Beside an older commit, {starts} starts of each by turns (medians):"
    yield f"| | {older} | {newer} | rate | p50 at {older} | p50 at {newer} |"
    yield "|---|---:|---:|---:|---:|---:|"
    for kind, both in kinds.items():
        rates, waits = ([both[name][figure] for name in ("older", "newer")] for figure in ("per_second", "p50_ms"))
        cells = (*(f"{one:,.1f}/s" for one in rates), f"{both['rate_ratio']:.2f}", *(f"{one:.2f} ms" for one in waits))
        yield f"| {kind} | {' | '.join(cells)} |"


def _is_measured(found: object) -> bool:
    return isinstance(found, dict) and "p50_ms" in found.get("lakeproof", {})
