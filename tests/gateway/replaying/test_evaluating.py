# SPDX-License-Identifier: Apache-2.0
"""Many cases in worker processes: one that ends its process, or is too large, spoils no other."""

from __future__ import annotations

import pytest

from gateway.policy.engine import POLICY, Outcome
from gateway.policy.frames import FRAME_BYTES_MAX
from gateway.policy.pool import JUDGING_BYTES_MAX
from gateway.replaying import evaluating
from gateway.replaying.evaluating import ENDED, TOO_LARGE, Case, CaseWorkers
from gateway.replaying.variables import Known
from testkit.servers.forked_workers import fork_worker

MIB = 2**20
GROWS = "size([1,2,3,4,5,6,7,8].map(a, [1,2,3,4,5,6,7,8].map(b, commit.name + commit.name + commit.name))) == 8"


def case(program: int, **fields: object) -> Case:
    return Case(program, (("commit", Known(fields), None),))  # type: ignore[arg-type]


async def outcomes(
    expressions: list[str], cases: list[Case], judging_bytes_max: int = JUDGING_BYTES_MAX
) -> list[Outcome | None]:
    programs = [(POLICY, expression) for expression in expressions]
    async with CaseWorkers(programs, timeout_s=30, judging_bytes_max=judging_bytes_max, spawn=fork_worker) as workers:
        return [one.outcome for one in await workers.evaluate(cases)]


@pytest.mark.parametrize("cases_of_frame", [1, 2, 7, 1_000])
async def test_every_case_has_its_own_outcome_in_its_place(
    monkeypatch: pytest.MonkeyPatch, cases_of_frame: int
) -> None:
    monkeypatch.setattr(evaluating, "FRAME_CASES", cases_of_frame)
    cases = [case(number % 2, name=str(number)) for number in range(20)]
    expected = [Outcome.ALLOW if number in {4, 7} else Outcome.DENY for number in range(20)]
    assert await outcomes(["commit.name == '4'", "commit.name == '7'"], cases) == expected


async def test_a_case_without_memory_fails_alone() -> None:
    cases = [case(0, name="x"), case(1, name="x" * MIB), case(0, name="x"), case(0, name="y")]
    found = await outcomes(["commit.name == 'x'", GROWS], cases, judging_bytes_max=32 * MIB)
    assert found == [Outcome.ALLOW, Outcome.ERROR, Outcome.ALLOW, Outcome.DENY]


async def test_a_case_that_is_too_large_for_a_frame_is_unknown_alone() -> None:
    cases = [case(0, name="x"), case(0, name="x" * (FRAME_BYTES_MAX + 1)), case(0, name="x")]
    async with CaseWorkers([(POLICY, "commit.name == 'x'")], timeout_s=30, spawn=fork_worker) as workers:
        found = await workers.evaluate(cases)
    assert [one.outcome for one in found] == [Outcome.ALLOW, None, Outcome.ALLOW]
    assert found[1].why == TOO_LARGE


async def test_no_process_is_left() -> None:
    workers = CaseWorkers([(POLICY, "true")], timeout_s=30, spawn=fork_worker)
    async with workers:
        await workers.evaluate([case(0, name="x")])
        (process,) = workers._running
        assert process.runs
    assert not process.runs


def test_what_is_said_of_a_lost_process_does_not_name_values() -> None:
    assert "x" * 10 not in ENDED
