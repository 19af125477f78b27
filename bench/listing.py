# SPDX-License-Identifier: Apache-2.0
"""
How long a list waits for access rules: a namespace with 10,000 tables, of which the caller may see some.

Claim: with fifty rules that all depend on the names, a caller's first list of all waits at most 1 s, the next one, with
the same rules, at most 0.2 s. The time is that of `decide_each` over the worker's process and of `KnownNames`, in the
batches in which the built-in catalog reads names, for both reads that show a name. What the database takes is not in
it: no rule asks for a query.

Run: `python -m bench.listing --names 10000`. The last line is JSON with all figures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.measuring import circumstances, options, publish
from gateway.catalogs.page_tokens import PAGE_SIZE_MAX
from gateway.policy.access import Access, AccessRequest, JudgedRule
from gateway.policy.known_names import Asked, KnownNames
from gateway.policy.known_verdicts import KnownVerdicts
from gateway.policy.many import decide_each
from gateway.policy.pool import WorkerEngine
from gateway.policy.variables import CommitView, PrincipalView
from gateway.policy.words import mentions
from ledger.format.events import Effect
from testkit.servers.policy_engine import SharedEngine

RULES: Final = 50
PAGE: Final = 100
TIMEOUT_S: Final = 60.0
CALLER: Final = PrincipalView(actor="a" * 32, source="api_key", roles=("team-0",))
KINDS: Final[Mapping[str, str]] = {
    "names of others": "'team-{team}' in roles && path.startsWith('sales.t{team}')",
    "names of all": "path.startsWith('sales.t{team}') && op.startsWith('READ_')",
    "no names": "'team-{team}' in roles && op.startsWith('READ_')",
}
"""Rules by teams: with names, of which five are for the caller's; with names for whoever asks; without names."""
OF_CALLER: Final = 5


def rules(kind: str) -> list[JudgedRule]:
    """Return fifty rules, of which five are about the caller's team."""
    return [
        JudgedRule(
            id=f"r{number}",
            version=1,
            effect=Effect.PERMIT,
            expression=KINDS[kind].format(team=0 if number < OF_CALLER else number) + f" && catalog != 'c{number}'",
        )
        for number in range(RULES)
    ]


def requests(names: Sequence[str], verb: str) -> list[AccessRequest]:
    """Return the reads that show names."""
    return [
        AccessRequest(
            commit=CommitView(catalog="lake", namespace=("sales",), name=name, kind="table", operation=f"table.{verb}"),
            principal=CALLER,
        )
        for name in names
    ]


async def measure(engine: WorkerEngine | SharedEngine, kind: str, names: Sequence[str]) -> dict[str, Any]:
    """Return how long a list of `names` and its first page wait, and how many are shown."""
    known, names_known = KnownVerdicts(), KnownNames()
    evaluate = partial(known.judge, engine, log_id=1)
    rows = partial(engine.judge_rows, log_id=1)
    in_force = rules(kind)

    verbs = ("exists", "load") if any(mentions(rule.expression, ("op",)) for rule in in_force) else ("exists",)

    async def shown(batch: Sequence[str]) -> int:
        left, count = list(batch), 0
        for verb in verbs:
            asked, views = _asked(kind, verb), requests(left, verb)

            async def decide(places: Sequence[int], views: list[AccessRequest] = views) -> list[Access]:
                some = [views[place] for place in places]
                return await decide_each(evaluate, rows, in_force, some, timeout_s=TIMEOUT_S)

            decided = await names_known.decide(asked, [(("sales",), name, "") for name in left], decide)
            count += decided.count(Access.PERMITTED)
            left = [name for name, one in zip(left, decided, strict=True) if one is not Access.PERMITTED]
        return count

    async def whole() -> tuple[int, float]:
        began = time.perf_counter()
        count = sum([await shown(names[at : at + PAGE_SIZE_MAX]) for at in range(0, len(names), PAGE_SIZE_MAX)])
        return count, round((time.perf_counter() - began) * 1000, 1)

    await shown([f"other{number}" for number in range(PAGE)])  # compiled from now on
    began = time.perf_counter()
    await shown([f"page{number}" for number in range(PAGE)])
    page_s = time.perf_counter() - began
    count, list_ms = await whole()
    again, again_ms = await whole()
    assert again == count
    return {
        "rules": kind,
        "shown": count,
        "page_ms": round(page_s * 1000, 1),
        "list_ms": list_ms,
        "again_ms": again_ms,
    }


def _asked(kind: str, verb: str) -> Asked:
    return Asked(
        log_id=1,
        policy_set=kind,
        actor=CALLER.actor,
        roles=tuple(CALLER.roles),
        catalog="lake",
        kind="table",
        operation=f"table.{verb}",
        branch=None,
    )


async def run(names_count: int) -> list[dict[str, Any]]:
    """Measure each kind of rules."""
    names = [f"t{number % RULES}-{number}" for number in range(names_count)]
    async with WorkerEngine() as engine:
        await engine.start()
        return [await measure(engine, kind, names) for kind in KINDS]


def main() -> None:
    """Run the bench."""
    parser = options("listing", __doc__)
    parser.add_argument("--names", type=int, default=10_000, help="tables in the namespace")
    given = parser.parse_args()
    found = {**circumstances(), "names": given.names, "rule_count": RULES, "runs": asyncio.run(run(given.names))}
    results: Path = given.results
    publish(found, results)


if __name__ == "__main__":
    main()
