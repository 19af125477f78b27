# SPDX-License-Identifier: Apache-2.0
"""
Judges access rules in the test's own process, and has a closed space of requests on which rules are judged one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import TYPE_CHECKING, Any, Final

from gateway.policy.access import AccessRequest, Grant, JudgedRule, access_activation
from gateway.policy.cel.programs import Programs
from gateway.policy.checks import check_activation, units_of
from gateway.policy.engine import Outcome, Program
from gateway.policy.rule_formulas import Formula
from gateway.policy.variables import CommitView, PrincipalView

if TYPE_CHECKING:
    from ledger.format.canonical import Json

ALIASES: Final = ("lake", "far")
PATHS: Final = ("a.b", "a.b.c", "ab.c", "b.a", "c.ab", "b.b", "x.y", "x.a.b", "b.x.a")
ROLES: Final = ("a", "ab", "b", "r")
REF: Final = "dev"
_APPEND: Final = {"action": "add-snapshot", "snapshot": {"snapshot-id": 1, "summary": {"operation": "append"}}}
_PROPERTIES: Final = {"action": "set-properties", "updates": {}}
_UPDATES: Final[tuple[tuple[dict[str, Any], ...], ...]] = (
    (),
    (_PROPERTIES,),
    (_APPEND, {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 1}),
    (_APPEND, {"action": "set-snapshot-ref", "ref-name": REF, "snapshot-id": 1}),
    ({"action": "set-snapshot-ref", "ref-name": REF, "snapshot-id": 7},),
    ({"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": 7},),
    ({"action": "remove-snapshot-ref", "ref-name": REF}, _PROPERTIES),
)


class OwnJudges:
    """What `JudgesRules` asks for, without a process."""

    def __init__(self) -> None:
        self.programs = Programs()

    async def judge_rows(
        self,
        programs: Sequence[Program],
        shared: Mapping[str, Json],
        rows: Sequence[Mapping[str, Json]],
        *,
        log_id: int,
        timeout_s: float,  # noqa: ARG002 - nothing here is stopped
    ) -> list[str]:
        """See `JudgesRows.judge_rows`."""
        pairs = [(program.judged_as, program.expression) for program in programs]
        judged = self.programs.judge_rows(pairs, shared, rows, log_id=log_id)
        return ["".join(result.letter for result in results) for results in judged]

    async def read_rule(self, expression: str, *, log_id: int, timeout_s: float) -> Formula:  # noqa: ARG002
        """See `ReadsRules.read_rule`."""
        return self.programs.read_rule(expression)

    def outcomes(self, rule: JudgedRule, rows: Sequence[Mapping[str, Json]]) -> list[Outcome]:
        """Return what a rule is on each of some rows."""
        program = rule.program()
        pair = (program.judged_as, program.expression)
        return [results[0].outcome for results in self.programs.judge_rows([pair], {}, rows, log_id=0)]


@dataclass(frozen=True, slots=True)
class Asked:
    """One unit of a request: the variables of the whole, and of each check."""

    request: AccessRequest
    whole: Mapping[str, Json]
    checks: tuple[Mapping[str, Json], ...]


def closed_space() -> tuple[Asked, ...]:
    """Return requests of several kinds on all of `PATHS`, by callers with each set of `ROLES` up to two."""
    callers = [
        PrincipalView(actor="0" * 32, source="api_key", sub="someone", roles=roles)
        for roles in chain((), *(combinations(ROLES, size) for size in range(3)))
    ]
    return tuple(
        asked
        for (commit, grant, refs), caller in product(_requests(), callers)
        for asked in _asked(AccessRequest(commit=commit, principal=caller, grant=grant, refs=refs))
    )


def _requests() -> Iterator[tuple[CommitView, Grant, frozenset[str]]]:
    nothing = Grant()
    for alias, path in product(ALIASES, PATHS):
        names = tuple(path.split("."))
        for kind, verb in (("table", "load"), ("table", "drop"), ("view", "load"), ("namespace", "drop")):
            namespace, name = (names, "") if kind == "namespace" else (names[:-1], names[-1])
            yield _commit(alias, namespace, name, kind, verb), nothing, frozenset()
    for path, updates, refs in product(PATHS[:4], _UPDATES, (frozenset[str](), frozenset({REF}))):
        *levels, name = path.split(".")
        yield _commit("lake", tuple(levels), name, "table", "commit", updates), nothing, refs
    yield _commit("lake", (), "", "namespace", "list"), nothing, frozenset()
    for kind, verb, name in (("access_rule", "configure", "first"), ("log", "load", ""), ("key", "configure", "")):
        yield _commit("", (), name, kind, verb), nothing, frozenset()
    for identity, granted in product(("someone", "b"), (("a",), ("r",), ("a", "b"), ())):
        yield _commit("", (), "", "key", "configure"), Grant(identity=identity, roles=granted), frozenset()


def _commit(
    alias: str,
    namespace: tuple[str, ...],
    name: str,
    kind: str,
    verb: str,
    updates: tuple[dict[str, Any], ...] = (),
) -> CommitView:
    return CommitView(
        catalog=alias, namespace=namespace, name=name, kind=kind, operation=f"{kind}.{verb}", updates=updates
    )


def _asked(request: AccessRequest) -> Iterator[Asked]:
    for unit in units_of(request):
        checks = tuple(check_activation(request, check) for check in unit.checks)
        yield Asked(request, access_activation(request, ref=unit.ref), checks)
