# SPDX-License-Identifier: Apache-2.0
"""
Decisions on many requests at once: each is the one that the request alone gets, and rules are evaluated seldom.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from gateway.policy.access import Access, AccessRequest, JudgedRule
from gateway.policy.engine import Program, Verdict
from gateway.policy.judging import judge_rules
from gateway.policy.many import decide_each
from gateway.policy.pool import WorkerEngine
from gateway.policy.variables import CommitView, PrincipalView
from ledger.format.events import Effect
from testkit.servers.forked_workers import fork_worker

TIMEOUT_S = 60.0
SEED = 20_260_801
ROUNDS = 40
CONDITIONS = (
    "'reader' in roles",
    "'writer' in roles",
    "role == 'reader'",
    "roles[1] == 'x'",
    "op == 'READ_ENTITY_VALUE'",
    "op in ['READ_CONTENT_KEY', 'VIEW_REFERENCE']",
    "path == 'sales.t1'",
    "path.startsWith('sales.')",
    "path.endsWith('2')",
    "uuid == 'u1'",
    "uuid != ''",
    "ref == 'main'",
    "catalog == 'lake'",
    "contentType == 'ICEBERG_TABLE'",
    "true",
)


class Counted:
    """An engine, and how many programs it was asked for on how many sets of variables."""

    def __init__(self, engine: WorkerEngine) -> None:
        self._engine = engine
        self.calls: list[tuple[int, int]] = []

    async def judge(
        self, programs: Sequence[Program], activation: Mapping[str, Any], *, timeout_s: float
    ) -> tuple[Verdict, ...]:
        self.calls.append((len(programs), 1))
        return await self._engine.judge(programs, activation, log_id=1, timeout_s=timeout_s)

    async def judge_rows(
        self,
        programs: Sequence[Program],
        shared: Mapping[str, Any],
        rows: Sequence[Mapping[str, Any]],
        *,
        timeout_s: float,
    ) -> list[str]:
        self.calls.append((len(programs), len(rows)))
        return await self._engine.judge_rows(programs, shared, rows, log_id=1, timeout_s=timeout_s)


@pytest.fixture
async def engine() -> AsyncIterator[WorkerEngine]:
    async with WorkerEngine(judging_bytes_max=64 * 2**20, spawn=fork_worker) as engine:
        yield engine


def rule(number: int, expression: str, effect: Effect = Effect.PERMIT, vocabulary: int = 2) -> JudgedRule:
    return JudgedRule(id=f"r{number}", version=1, effect=effect, expression=expression, vocabulary=vocabulary)


def requests(
    names: Sequence[str], *, operation: str = "table.exists", roles: tuple[str, ...] = ("reader",), **parts: Any
) -> list[AccessRequest]:
    caller = PrincipalView(actor="a" * 32, source="api_key", roles=roles)
    return [
        AccessRequest(
            commit=CommitView(catalog="lake", namespace=("sales",), name=name, kind="table", operation=operation),
            principal=caller,
            **{"uuid": f"u{name[-1:]}", **parts},
        )
        for name in names
    ]


async def decided(engine: Counted, rules: Sequence[JudgedRule], asked: Sequence[AccessRequest]) -> list[Access]:
    return await decide_each(engine.judge, engine.judge_rows, rules, asked, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("seed", range(ROUNDS))
async def test_each_request_is_decided_as_it_is_alone(engine: WorkerEngine, seed: int) -> None:
    made = random.Random(SEED + seed)  # noqa: S311 - which rules are tried is no secret
    rules = [
        rule(
            number,
            " && ".join(made.sample(CONDITIONS, made.choice((1, 2, 3)))),
            made.choice((Effect.PERMIT, Effect.PERMIT, Effect.FORBID)),
            made.choice((1, 2, 2)) if seed % 3 else made.choice((1, 2, 3)),
        )
        for number in range(made.choice((1, 3, 6)))
    ]
    asked = requests(
        ["t1", "t2", "t3", "x2", "t1@dev", "t1"],
        operation=made.choice(["table.exists", "table.load"]),
        roles=made.choice([(), ("reader",), ("writer", "x")]),
        branch=made.choice([None, None, "main", ""]),
        **({"uuid": None} if made.random() < 0.3 else {}),
    )
    counted = Counted(engine)
    together = await decided(counted, rules, asked)
    evaluate = partial(engine.judge, log_id=1)
    alone = [(await judge_rules(evaluate, rules, one, timeout_s=TIMEOUT_S)).decision.outcome for one in asked]
    assert together == alone, [one.expression for one in rules]


async def test_rules_that_read_no_names_are_evaluated_once(engine: WorkerEngine) -> None:
    counted = Counted(engine)
    rules = [rule(1, "'reader' in roles && op == 'READ_CONTENT_KEY'"), rule(2, "'x' in roles", Effect.FORBID)]
    assert await decided(counted, rules, requests([f"t{n}" for n in range(500)])) == [Access.PERMITTED] * 500
    assert counted.calls == [(2, 1)]


async def test_rules_that_others_decide_without_a_name_are_not_evaluated_for_each(engine: WorkerEngine) -> None:
    counted = Counted(engine)
    rules = [
        rule(1, "'writer' in roles && path == 'sales.t1'"),
        rule(2, "'reader' in roles || path == 'sales.t1'"),
        rule(3, "path == 'sales.t7'", Effect.FORBID),
    ]
    found = await decided(counted, rules, requests([f"t{n}" for n in range(500)]))
    assert [number for number, one in enumerate(found) if one is Access.DENIED] == [7]
    assert counted.calls == [(3, 1), (3, 1), (1, 500)]


async def test_nothing_is_asked_about_nothing(engine: WorkerEngine) -> None:
    counted = Counted(engine)
    assert await decided(counted, [rule(1, "true")], []) == []
    assert await decided(counted, [], requests(["t1", "t2"])) == [Access.DENIED] * 2


async def test_a_request_whose_rule_cannot_be_judged_is_undecidable_alone(engine: WorkerEngine) -> None:
    rules = [rule(1, "path == 'sales.t1' || roles[5] == 'x'")]
    found = await decided(Counted(engine), rules, requests(["t1", "t2"]))
    assert found == [Access.PERMITTED, Access.UNDECIDABLE]
