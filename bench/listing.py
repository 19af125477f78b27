# SPDX-License-Identifier: Apache-2.0
"""
How long a list of tables takes under access rules: a namespace with 10,000 tables, of which the caller may see some.

Claim: with fifty rules that all depend on the names, a caller's first list of all takes at most 1 s, the next one, with
the same rules, at most 0.2 s. The time is that of `GET .../tables` through a socket on a real `lakeproof up`, from the
request to the last byte. Before each first list other rules come into force, so that nothing is known of any name.

Three clients are measured, by turns: one that asks for all names at once (the answer without `pageSize` is the whole
list), one that asks for the first page of 100, and the operator, whom a rule without names permits everything. The peer
is rustberg on the same machine, without rules: it lists all names of the same tables to everybody, in pages of 1,000.

Run: `python -m bench.listing`; `--names 1000 --rounds 1` for a small one. The last line is JSON with all figures; the
exit code is 1 if a list had other names than the rules permit.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from bench.gateway.installation import Up, commit_of, lakeproof_up
from bench.gateway.rustberg import running_rustberg, version
from bench.gateway.target import SETUP_TIMEOUT_S, Catalog, JsonObject, MissingError, Target
from bench.measuring import circumstances, options, publish

RULES: Final = 50
OF_CALLER: Final = 5
"""Rules about the caller's team; the others are about other teams."""
PAGE: Final = 100
LARGE_PAGE: Final = 1_000
TRIES: Final = 5
NAMESPACE: Final = "sales"
CALLER: Final = "team-0"
FIRST_S_MAX: Final = 1.0
NEXT_S_MAX: Final = 0.2
KINDS: Final[Mapping[str, str]] = {
    "names of others": "'team-{team}' in roles && path.startsWith('sales.t{team}-')",
    "names of all": "path.startsWith('sales.t{team}-') && op.startsWith('READ_')",
    "no names": "'team-{team}' in roles && op.startsWith('READ_')",
}
"""Rules by teams: with names, of which five are for the caller's; with names for whoever asks; without names."""
MAY_LIST: Final = f"path == '{NAMESPACE}' && op.startsWith('READ_')"
"""The last rule: whoever may see some tables may list their namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A list that was answered: how many names it has, how long it took, and the token of the next page."""

    count: int
    ms: float
    token: str | None = None


def names_of(count: int) -> list[str]:
    """Return the names of the tables: those of team 0 begin with `t0-`."""
    return [f"t{number % RULES}-{number}" for number in range(count)]


def shown_by(kind: str, names: Sequence[str]) -> int:
    """Return how many of `names` the rules of this kind show to the caller."""
    teams = {"names of others": {0}, "names of all": {0, *range(OF_CALLER, RULES - 1)}}
    return sum(kind not in teams or int(name[1:].partition("-")[0]) in teams[kind] for name in names)


def rules(kind: str, round_number: int) -> list[dict[str, str]]:
    """Return the bodies of fifty rules, which are not those of another round."""
    of_teams = [KINDS[kind].format(team=0 if number < OF_CALLER else number) for number in range(RULES - 1)]
    return [
        {
            "id": f"{kind.replace(' ', '-')}-{round_number}-{number}",
            "effect": "permit",
            "expression": f"{expression} && catalog != 'c{round_number}-{number}'",
        }
        for number, expression in enumerate([*of_teams, MAY_LIST])
    ]


class Lister:
    """A client that lists the namespace, on one connection."""

    def __init__(self, target: Target, stack: ExitStack) -> None:
        self._path = target.path(NAMESPACE)
        self._http = stack.enter_context(
            httpx.Client(base_url=target.url, headers=target.headers, timeout=SETUP_TIMEOUT_S, trust_env=False)
        )

    def whole(self) -> Taken:
        """Return how many names there are, and how long the list took. Raises `httpx.HTTPStatusError`."""
        return self._taken({})

    def first_page(self) -> Taken:
        """Return the same of the first page."""
        return self._taken({"pageSize": str(PAGE), "pageToken": ""})

    def pages(self) -> Taken:
        """Return the same of all large pages, one after another: the peer gives no whole list."""
        read = [self._taken({"pageSize": str(LARGE_PAGE), "pageToken": ""})]
        while token := read[-1].token:
            read.append(self._taken({"pageSize": str(LARGE_PAGE), "pageToken": token}))
        return Taken(count=sum(page.count for page in read), ms=sum(page.ms for page in read))

    def _taken(self, parameters: Mapping[str, str]) -> Taken:
        began_s = time.perf_counter()
        answer = self._http.get(self._path, params=parameters)
        took_s = time.perf_counter() - began_s
        answer.raise_for_status()
        page = answer.json()
        return Taken(count=len(page["identifiers"]), ms=1e3 * took_s, token=page.get("next-page-token"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A list that is measured: the name of its figure, how to take it, and how many names it must have."""

    name: str
    take: Callable[[], Taken]
    count: int


def steps_of(kind: str, listers: Mapping[str, Lister], names: Sequence[str]) -> tuple[tuple[Step, ...], ...]:
    """Return what is measured; before each group of steps other rules come into force."""
    caller, shown = listers["caller"], shown_by(kind, names)
    peer = [Step(name="peer_ms", take=listers["peer"].pages, count=len(names))] if "peer" in listers else []
    return (
        (Step(name="page_ms", take=caller.first_page, count=min(PAGE, shown)),),
        (
            Step(name="first_ms", take=caller.whole, count=shown),
            Step(name="next_ms", take=caller.whole, count=shown),
            Step(name="operator_ms", take=listers["operator"].whole, count=len(names)),
            *peer,
        ),
    )


def asked(operator: Catalog, method: str, path: str, content: Any = None) -> JsonObject:
    """Return what `Catalog.ask` does; a busy machine may be asked again, since changes of rules are not measured."""
    for _ in range(TRIES - 1):
        try:
            return operator.ask(method, path, content)
        except RuntimeError as error:
            if f"{path}: 503 " not in str(error):
                raise
            time.sleep(1)
    return operator.ask(method, path, content)


def measure(
    kind: str, operator: Catalog, listers: Mapping[str, Lister], names: Sequence[str], rounds: int
) -> tuple[dict[str, Any], list[str]]:
    """Return the medians over the rounds, and what was wrong, a sentence each."""
    waits: dict[str, list[float]] = {}
    wrong = list[str]()
    groups = steps_of(kind, listers, names)
    for number, group in enumerate(groups * rounds):
        ids = [asked(operator, "POST", "/v1/access-rules", rule)["id"] for rule in rules(kind, number)]
        for step in group:
            taken = step.take()
            waits.setdefault(step.name, []).append(taken.ms)
            if taken.count != step.count:
                wrong.append(f"{kind}, {step.name}: {taken.count} names, expected {step.count}")
        for each in ids:
            asked(operator, "DELETE", f"/v1/access-rules/{each}")
    medians = {name: round(statistics.median(each), 1) for name, each in waits.items()}
    shown = shown_by(kind, names)
    return {"rules": kind, "shown": shown, **medians, "first_ms_max": round(max(waits["first_ms"]), 1)}, wrong


def prepared(up: Up, names: Sequence[str], stack: ExitStack) -> tuple[Catalog, dict[str, Lister]]:
    """Found a tenant with the tables, and the peer with the same; return the operator's client, and who lists."""
    tenant, ours = up.new_tenant()
    operator = stack.enter_context(ours.connect())
    identity = {"identity": f"{CALLER}@{tenant}.example", "roles": [CALLER]}
    caller = up.target(operator.ask("POST", "/v1/keys", identity)["secret"])
    targets = {"caller": caller, "operator": ours}
    try:
        targets["peer"] = stack.enter_context(running_rustberg())
    except MissingError as missing:
        print(f"without a peer: {missing} is not there", file=sys.stderr, flush=True)
    for target in (target for name, target in targets.items() if name != "caller"):
        with target.connect() as catalog:
            catalog.make_tables_named(NAMESPACE, names)
    up.wait_until_quiet()
    return operator, {name: Lister(target, stack) for name, target in targets.items()}


def run(names: Sequence[str], rounds: int, program: Path) -> tuple[dict[str, Any], list[str]]:
    """Measure each kind of rules."""
    runs, wrong = list[dict[str, Any]](), list[str]()
    with ExitStack() as stack:
        up = stack.enter_context(lakeproof_up(program))
        operator, listers = prepared(up, names, stack)
        for kind in KINDS:
            found, faults = measure(kind, operator, listers, names, rounds)
            runs.append(found)
            wrong += faults
            print(json.dumps(found), file=sys.stderr, flush=True)
        peer = {"peer": version()} if "peer" in listers else {}
    return {"runs": runs, **peer, "wrong": wrong, "over_the_goal": over_the_goal(runs)}, wrong


def over_the_goal(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for which rules a list took longer than claimed."""
    return [
        str(found["rules"])
        for found in runs
        if found["first_ms"] > 1e3 * FIRST_S_MAX or found["next_ms"] > 1e3 * NEXT_S_MAX
    ]


def main() -> None:
    """Measure, publish, and exit with 1 if a list was wrong."""
    parser = options("listing", __doc__)
    parser.add_argument("--names", type=int, default=10_000, help="tables in the namespace")
    parser.add_argument("--rounds", type=int, default=5, help="how often each kind of rules is measured")
    given = parser.parse_args()
    program = Path(sys.executable).with_name("lakeproof").absolute()
    found, wrong = run(names_of(given.names), given.rounds, program)
    about = {"bench": "listing", "names": given.names, "rule_count": RULES, "rounds": given.rounds}
    publish({**about, **found, **circumstances(), "of": commit_of(program)}, given.results)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
