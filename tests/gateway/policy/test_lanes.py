# SPDX-License-Identifier: Apache-2.0
"""
The engine with several tenants, over real child processes: the calls of one do not delay the others'.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import TooLargeError
from gateway.policy import pool
from gateway.policy.calls import SHORT_BYTES_MAX
from gateway.policy.engine import (
    POLICY,
    DeadlineExceededError,
    EngineUnavailableError,
    Outcome,
    PolicyNotCompiledError,
    Program,
    Verdict,
    limit_of,
)
from gateway.policy.frames import FRAME_BYTES_MAX
from gateway.policy.judging import countdown
from gateway.policy.pool import TOOK_LONGER, WorkerEngine
from testkit.servers.forked_workers import fork_worker

ALLOW, DENY = Outcome.ALLOW, Outcome.DENY
CALM, NOISY = 1, 2
LONG_S = 60.0
SIXTY = str(list(range(60)))
ENDLESS = "".join(f"{SIXTY}.all({name}, " for name in "abcdefgh") + "true" + ")" * 8


def program(expression: str) -> Program:
    return Program(kind=POLICY, id="p", version=1, expression=expression)


def judging(
    engine: WorkerEngine,
    expression: str,
    *,
    log_id: int,
    activation: dict[str, Any] | None = None,
    timeout_s: float = LONG_S,
) -> asyncio.Task[tuple[Verdict, ...]]:
    """A call that has been made."""
    asked = engine.judge([program(expression)], activation or {}, log_id=log_id, timeout_s=timeout_s)
    return asyncio.create_task(asked)


def is_there(pid: int) -> bool:
    """Whether the process runs, or has ended without its parent having been told."""
    return Path(f"/proc/{pid}").exists()


async def until(fact: Any) -> None:
    """Let everything else go on until `fact` holds."""
    while not fact():
        await asyncio.wait([asyncio.create_task(asyncio.sleep(0.001))])


def owes(engine: WorkerEngine, log_id: int) -> bool:
    return engine._credit.left_s(log_id, now_s=asyncio.get_running_loop().time()) <= 0


async def overrun(engine: WorkerEngine, log_id: int, times: int = 2) -> None:
    """Have a tenant overrun until it owes."""
    for _ in range(times):
        with pytest.raises(DeadlineExceededError):
            await judging(engine, ENDLESS, log_id=log_id, timeout_s=pool.SLICE_S)


@pytest.fixture
async def engine() -> AsyncIterator[WorkerEngine]:
    async with WorkerEngine(waiting_s=LONG_S, spawn=fork_worker) as engine:
        await engine.start()
        yield engine
        pids = engine.pids
    assert not any(is_there(pid) for pid in pids)
    assert not engine.pids


async def test_a_call_that_takes_long_gives_the_short_lane_back_and_goes_on_in_the_long_one(
    engine: WorkerEngine,
) -> None:
    (short,) = engine._processes._taken
    hanging = judging(engine, ENDLESS, log_id=NOISY)
    for _ in range(3):
        (verdict,) = await judging(engine, "true", log_id=CALM)
        assert verdict.outcome is ALLOW
    await until(lambda: len(engine._processes._taken) == 2)
    assert short in engine._processes._taken
    assert short.runs, "the judging was stopped, its process was not ended"
    assert not hanging.done()
    await engine.close()
    with pytest.raises(EngineUnavailableError, match="shut down"):
        await hanging


async def test_what_was_stopped_in_the_short_lane_is_judged_from_the_beginning_in_the_long_one(
    engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a slice, and then as if it had had the time at once: each verdict once."""
    engine._short.slice_s = 0.0
    asked = [program("true"), program(f"{SIXTY}.all(a, {SIXTY}.all(b, a + b >= 0))"), program("false")]
    verdicts = await engine.judge(asked, {}, log_id=CALM, timeout_s=LONG_S)
    assert [verdict.outcome for verdict in verdicts] == [ALLOW, ALLOW, DENY]
    assert len(engine._processes._taken) == 2


async def test_a_tenant_that_overran_begins_in_the_long_lane_until_it_has_credit_again(engine: WorkerEngine) -> None:
    await overrun(engine, NOISY)
    assert owes(engine, NOISY)
    assert not owes(engine, CALM)
    hanging = judging(engine, ENDLESS, log_id=NOISY)
    await until(lambda: len(engine._processes._taken) == 2)  # the long lane is at work
    behind = judging(engine, "true", log_id=NOISY)
    for _ in range(5):
        (verdict,) = await judging(engine, "true", log_id=CALM)
        assert verdict.outcome is ALLOW
    assert not behind.done(), "it waits behind its own tenant's call"
    engine._credit._left.clear()  # as some time would
    (verdict,) = await judging(engine, "true", log_id=NOISY)
    assert verdict.outcome is ALLOW
    assert not behind.done()
    await engine.close()
    for call in (hanging, behind):
        with pytest.raises(EngineUnavailableError):
            await call


async def test_tenants_that_owe_take_turns_in_the_long_lane(engine: WorkerEngine) -> None:
    for tenant in (NOISY, CALM):
        await overrun(engine, tenant)
    flood = [judging(engine, ENDLESS, log_id=NOISY, timeout_s=0.05) for _ in range(8)]
    (verdict,) = await judging(engine, "true", log_id=CALM)
    assert verdict.outcome is ALLOW
    assert sum(call.done() for call in flood) < len(flood) - 1, "it waited for those alone that were at work"
    results = await asyncio.gather(*flood, return_exceptions=True)
    assert all(isinstance(result, DeadlineExceededError) for result in results)


async def test_a_deadline_begins_with_the_work(engine: WorkerEngine) -> None:
    """Five calls, one after another, of which each takes all of its own deadline: together they take many times it."""
    await overrun(engine, NOISY)
    flood = [judging(engine, ENDLESS, log_id=NOISY, timeout_s=0.2) for _ in range(5)]
    (verdict,) = await judging(engine, "true", log_id=NOISY, timeout_s=LONG_S)
    assert verdict.outcome is ALLOW
    errors = await asyncio.gather(*flood, return_exceptions=True)
    assert all(isinstance(error, DeadlineExceededError) for error in errors)
    assert {str(error) for error in errors} == {TOOK_LONGER.format(0.2)}, "none of them was told it waited"


async def test_an_error_names_the_whole_time_limit_of_which_a_rest_was_left(engine: WorkerEngine) -> None:
    remaining_s = countdown(0.05)
    remaining_s()
    await asyncio.sleep(0.06)
    left_s = remaining_s()
    assert left_s < 0.05
    with pytest.raises(DeadlineExceededError) as caught:
        await judging(engine, ENDLESS, log_id=CALM, timeout_s=left_s)
    assert str(caught.value) == TOOK_LONGER.format(0.05)
    again_s = countdown(left_s)
    again_s()
    assert limit_of(again_s()) == 0.05, "of a rest of a rest, too"


async def test_a_flood_of_one_tenant_is_refused_and_the_calls_of_another_are_answered() -> None:
    async with WorkerEngine(line_calls_max=8, waiting_s=LONG_S, spawn=fork_worker) as engine:
        flood = [judging(engine, ENDLESS, log_id=NOISY, timeout_s=LONG_S) for _ in range(50)]
        calm = [judging(engine, "true", log_id=CALM) for _ in range(8)]
        verdicts = await asyncio.gather(*calm)
        assert [verdict.outcome for (verdict,) in verdicts] == [ALLOW] * len(calm)
        refused = [call for call in flood if call.done()]
        assert len(refused) >= 50 - 2 * 8 - 2
        for call in refused:
            with pytest.raises(EngineUnavailableError, match="of this tenant already wait"):
                await call
    await asyncio.gather(*flood, return_exceptions=True)


async def test_a_large_call_is_no_short_one(engine: WorkerEngine) -> None:
    engine._short.slice_s = LONG_S
    hanging = judging(engine, ENDLESS, log_id=NOISY)  # holds the short lane
    await until(lambda: not len(engine._short.lines))
    large = {"commit": {"name": "x" * SHORT_BYTES_MAX}}
    (verdict,) = await judging(engine, "commit.name != ''", log_id=CALM, activation=large)
    assert verdict.outcome is ALLOW
    assert not hanging.done()
    await engine.close()
    with pytest.raises(EngineUnavailableError):
        await hanging


async def test_variables_beyond_every_bound_are_refused_before_anything_waits(engine: WorkerEngine) -> None:
    large = {"commit": {"name": "x" * FRAME_BYTES_MAX}}
    with pytest.raises(TooLargeError, match="expected at most") as caught:
        await judging(engine, "commit.name != ''", log_id=NOISY, activation=large)
    assert caught.value.status == 413
    assert len(engine._processes._taken) == 1
    (verdict,) = await judging(
        engine, "commit.kind != ''", log_id=NOISY, activation={"commit": {**large["commit"], "kind": "table"}}
    )
    assert verdict.outcome is ALLOW, "what no program names is not sent"


async def test_expressions_are_compiled_apart_from_all_judging(engine: WorkerEngine) -> None:
    hanging = [judging(engine, ENDLESS, log_id=tenant) for tenant in (NOISY, CALM)]
    await engine.check("table.exists", log_id=CALM, timeout_s=LONG_S)
    assert not any(call.done() for call in hanging)
    with pytest.raises(PolicyNotCompiledError):
        await engine.check("tabel.exists", log_id=CALM, timeout_s=LONG_S)
    assert not any(call.done() for call in hanging)
    await engine.close()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_a_check_that_does_not_end_holds_up_no_commit(engine: WorkerEngine) -> None:
    await engine.check("true", log_id=CALM, timeout_s=LONG_S)
    (checking,) = [process for process in engine._processes._taken if process.pid != min(engine.pids)]
    os.kill(checking.pid, signal.SIGSTOP)  # as one at work on what never ends
    stuck = asyncio.create_task(engine.check("true", log_id=NOISY, timeout_s=0.3))
    (verdict,) = await judging(engine, "true", log_id=CALM)
    assert verdict.outcome is ALLOW
    with pytest.raises(DeadlineExceededError):
        await stuck
    await engine.check("true", log_id=CALM, timeout_s=LONG_S)
    assert checking not in engine._processes._taken, "it was killed and replaced"


async def test_a_process_that_does_not_stop_is_killed_and_a_spare_one_that_is_ready_takes_its_place(
    engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: len(engine.pids) == 2)
    (before,) = engine._processes._taken
    (spare,) = engine._processes.running - {before}
    monkeypatch.setattr(pool, "STOP_GRACE_S", 0.0)
    with pytest.raises(DeadlineExceededError):
        await judging(engine, ENDLESS, log_id=NOISY, timeout_s=pool.SLICE_S)
    (verdict,) = await judging(engine, "true", log_id=CALM)
    assert verdict.outcome is ALLOW
    assert engine._processes._taken == {spare}
    assert not before.runs
    await until(lambda: len(engine.pids) == 2)  # and the next one gets ready


async def test_a_spare_process_that_has_died_meanwhile_is_not_taken(engine: WorkerEngine) -> None:
    await until(lambda: len(engine.pids) == 2)
    for process in engine._processes.running:
        os.kill(process.pid, signal.SIGKILL)
        await process._process.wait()
    (verdict,) = await judging(engine, "true", log_id=CALM)
    assert verdict.outcome is ALLOW


async def test_the_processes_for_what_may_take_long_give_way_to_all_others(engine: WorkerEngine) -> None:
    (short,) = engine._processes._taken
    await engine.check("true", log_id=CALM, timeout_s=LONG_S)
    (checking,) = engine._processes._taken - {short}
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, short.pid) == ours
    assert os.getpriority(os.PRIO_PROCESS, checking.pid) > ours


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("'" + "\\" * 3000, "3000 backslashes"),
        ("(" * 33 + "true" + ")" * 33, "more than 32 open brackets"),
        ("1" + "+1" * 1100, "more than 2048 names"),
    ],
)
async def test_a_text_that_is_too_intricate_is_refused_before_a_parser_sees_it(
    engine: WorkerEngine, text: str, words: str
) -> None:
    with pytest.raises(PolicyNotCompiledError, match=words):
        await engine.check(text, log_id=NOISY, timeout_s=LONG_S)
    assert len(engine._processes._taken) == 1, "no process was asked"


async def test_brackets_within_strings_and_comments_are_not_counted(engine: WorkerEngine) -> None:
    text = "commit.name != '" + "(" * 500 + '\' && """' + "[{" * 200 + '""" != commit.name // ' + "(" * 500
    await engine.check(text, log_id=CALM, timeout_s=LONG_S)
