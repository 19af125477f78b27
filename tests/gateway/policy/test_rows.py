# SPDX-License-Identifier: Apache-2.0
"""
Programs judged on many sets of variables at once: each outcome is the one that a call for that set alone gives.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.policy.engine import (
    ACCESS_RULE,
    OUTCOME_LETTERS,
    EngineUnavailableError,
    Outcome,
    PolicyEngineError,
    Program,
    outcomes_of,
)
from gateway.policy.pool import QUICK_EVALUATIONS, ROWS_MAX, WorkerEngine, next_size
from testkit.servers.forked_workers import fork_worker

TIMEOUT_S = 60.0
ALLOW, ERROR = OUTCOME_LETTERS[Outcome.ALLOW], OUTCOME_LETTERS[Outcome.ERROR]
SEED = 20_260_801
SHARED: dict[str, Any] = {"op": "READ_ENTITY_VALUE", "roles": ["reader"], "catalog": "lake", "contentType": "x"}
EXPRESSIONS = (
    "path == 'sales.t1'",
    "path.startsWith('sales.') && 'reader' in roles",
    "roles[1] == 'x' && path == 'sales.t1'",
    "op == 'DELETE_ENTITY' && ref == 'main'",
    "ref == 'main'",
    "true",
)


@pytest.fixture
async def engine() -> AsyncIterator[WorkerEngine]:
    async with WorkerEngine(judging_bytes_max=64 * 2**20, spawn=fork_worker) as engine:
        yield engine


def programs(*expressions: str) -> list[Program]:
    return [
        Program(kind=ACCESS_RULE, id=f"r{number}", version=1, expression=text)
        for number, text in enumerate(expressions)
    ]


async def test_a_row_has_the_outcomes_of_its_own_call(engine: WorkerEngine) -> None:
    made = random.Random(SEED)  # noqa: S311 - which rows are tried is no secret
    rows: list[dict[str, Any]] = [
        {
            **({"path": made.choice(["sales.t1", "sales.t2", "hr.t1", ""])} if made.random() < 0.9 else {}),
            **({"ref": made.choice(["main", "dev"])} if made.random() < 0.5 else {}),
            **({"roles": ["a", "x"]} if made.random() < 0.3 else {}),
        }
        for _ in range(60)
    ]
    asked = programs(*EXPRESSIONS)
    together = await engine.judge_rows(asked, SHARED, rows, log_id=1, timeout_s=TIMEOUT_S)
    for row, letters in zip(rows, together, strict=True):
        alone = await engine.judge(asked, {**SHARED, **row}, log_id=1, timeout_s=TIMEOUT_S)
        assert outcomes_of(letters) == tuple(verdict.outcome for verdict in alone), row
    assert {outcome for letters in together for outcome in outcomes_of(letters)} == set(Outcome)


async def test_more_rows_than_one_call_takes_come_in_their_order(engine: WorkerEngine) -> None:
    count = QUICK_EVALUATIONS + 10
    rows = [{"path": f"sales.t{number % 7}"} for number in range(count)]
    outcomes = await engine.judge_rows(programs("path == 'sales.t3'"), SHARED, rows, log_id=1, timeout_s=TIMEOUT_S)
    assert [letter == ALLOW for letter in outcomes] == [number % 7 == 3 for number in range(count)]


async def test_without_rows_or_programs_there_is_nothing_to_judge(engine: WorkerEngine) -> None:
    assert await engine.judge_rows([], SHARED, [{}, {}], log_id=1, timeout_s=TIMEOUT_S) == ["", ""]
    assert await engine.judge_rows(programs("true"), SHARED, [], log_id=1, timeout_s=TIMEOUT_S) == []
    assert not engine.pids


async def test_a_program_that_does_not_compile_fails_in_each_row(engine: WorkerEngine) -> None:
    outcomes = await engine.judge_rows(programs("path ==", "true"), SHARED, [{}, {}], log_id=1, timeout_s=TIMEOUT_S)
    assert outcomes == [ERROR + ALLOW] * 2


async def test_rows_that_take_too_long_have_no_outcome(engine: WorkerEngine) -> None:
    digits = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    endless = "".join(f"{digits}.all(x{level}, " for level in range(12)) + "true" + ")" * 12
    with pytest.raises(PolicyEngineError):
        await engine.judge_rows(programs(endless), SHARED, [{"path": "a"}], log_id=1, timeout_s=0.4)
    assert await engine.judge_rows(programs("true"), SHARED, [{}], log_id=1, timeout_s=TIMEOUT_S) == [ALLOW]


async def test_a_closed_engine_judges_no_rows() -> None:
    engine = WorkerEngine(spawn=fork_worker)
    await engine.close()
    with pytest.raises(EngineUnavailableError):
        await engine.judge_rows(programs("true"), SHARED, [{}], log_id=1, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize(
    ("size", "used_s", "expected"),
    [(10, 0.001, 40), (10, 0.005, 10), (10, 0.02, 2), (1, 0.02, 1), (1_500, 0.0, ROWS_MAX)],
)
def test_the_next_piece_is_as_large_as_the_time_of_the_last_one_allows(size: int, used_s: float, expected: int) -> None:
    assert next_size(size, used_s) == expected
