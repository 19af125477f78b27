# SPDX-License-Identifier: Apache-2.0
"""
The engine over real child processes: hostile expressions, crashes, queues, and no processes left afterwards.

Most workers are forked from one that is loaded. The tests of their start use the command that the gateway starts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.policy.engine import (
    ACCESS_RULE,
    POLICY,
    DeadlineExceededError,
    EngineUnavailableError,
    Outcome,
    PolicyEngine,
    PolicyEngineError,
    PolicyNotCompiledError,
    Program,
    Verdict,
)
from gateway.policy.pool import TOOK_LONGER, WorkerEngine
from gateway.policy.process import WorkerProcess
from gateway.policy.restrictions.written import MASK_CONDITION, ROW_FILTER
from testkit.gateway.restrictions import read
from testkit.servers.forked_workers import fork_worker

ALLOW, DENY, ERROR = Outcome.ALLOW, Outcome.DENY, Outcome.ERROR
SHORT_S, LONG_S = 0.4, 60.0
DIGITS = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"


def nested_loops(levels: int) -> str:
    """10^levels steps."""
    return "".join(f"{DIGITS}.all(x{level}, " for level in range(levels)) + "true" + ")" * levels


def doubled_string(levels: int) -> str:
    """A string of 16 * 4^levels characters, which one name hands on to the next."""
    text = "['aaaaaaaaaaaaaaaa'].all(x0, "
    for level in range(levels):
        text += f"[x{level} + x{level} + x{level} + x{level}].all(x{level + 1}, "
    return text + f"x{levels} == ''" + ")" * (levels + 1)


ENDLESS = nested_loops(12)


def program(expression: str, *, name: str = "p", kind: str = POLICY) -> Program:
    return Program(kind=kind, id=name, version=1, expression=expression)


async def outcomes(engine: PolicyEngine, *expressions: str, activation: dict[str, Any] | None = None) -> list[Outcome]:
    verdicts = await engine.judge([program(one) for one in expressions], activation or {}, log_id=1, timeout_s=LONG_S)
    return [verdict.outcome for verdict in verdicts]


def is_gone(pid: int) -> bool:
    """Whether the process has ended and its parent has been told (a zombie would still be there)."""
    return not Path(f"/proc/{pid}").exists()


def in_use(engine: WorkerEngine) -> set[int]:
    """The ids of the processes that have a seat: not of the spare one."""
    return {process.pid for process in engine._processes._taken}


async def at_work_in_the_long_lane(engine: WorkerEngine) -> None:
    """Wait until the processes of two lanes have a seat, and nothing waits: a call has gone on to the long lane."""
    while len(engine._processes._taken) < 2 or len(engine._short.lines) or len(engine._long.lines):
        await asyncio.wait([asyncio.create_task(asyncio.sleep(0))])


def proc_bytes(pid: int | str, name: str) -> bytes:
    return Path(f"/proc/{pid}/{name}").read_bytes()


def worker_children() -> list[bytes]:
    """The command lines of those of our own child processes that are workers."""
    children = proc_bytes("self", f"task/{os.getpid()}/children").split()
    commands = [proc_bytes(pid.decode(), "cmdline") for pid in children]
    return [command for command in commands if b"gateway.policy.worker" in command]


@pytest.fixture
async def engine() -> AsyncIterator[WorkerEngine]:
    async with WorkerEngine(judging_bytes_max=64 * 2**20, spawn=fork_worker) as engine:
        yield engine
        pids = engine.pids
    assert all(is_gone(pid) for pid in pids)
    assert not engine.pids


@pytest.fixture
async def spawning_engine() -> AsyncIterator[WorkerEngine]:
    """An engine that starts its workers as the gateway's does."""
    async with WorkerEngine() as engine:
        yield engine
        pids = engine.pids
    assert all(is_gone(pid) for pid in pids)
    assert not engine.pids


async def test_a_row_filter_is_read_by_a_worker_or_refused_at_its_place(engine: WorkerEngine) -> None:
    written = await engine.read_condition("row.a in ['x', 'é']", kind=ROW_FILTER, log_id=1, timeout_s=LONG_S)
    assert written == read("row.a in ['x', 'é']")
    for expression, kind, line, column in (
        ("true &&\n row.a == row.b", ROW_FILTER, 2, 2),
        ("row.a == 'x'", MASK_CONDITION, 1, 1),
        ("row.a ==", ROW_FILTER, 1, 9),
        ("row.a == '\x07'", ROW_FILTER, 1, 11),
        (f"row.a == '{'x' * 16_384}'", ROW_FILTER, 1, 1),
    ):
        with pytest.raises(PolicyNotCompiledError) as refused:
            await engine.read_condition(expression, kind=kind, log_id=1, timeout_s=LONG_S)
        assert (refused.value.line, refused.value.column) == (line, column), expression
    assert await outcomes(engine, "true") == [ALLOW]  # it serves on


async def test_verdicts_come_in_the_order_of_the_programs(spawning_engine: WorkerEngine) -> None:
    programs = [
        program("table.exists", name="a"),
        program("op == 'CREATE_ENTITY'", name="b", kind=ACCESS_RULE),
        program("dyn('true')", name="c"),
        program("1 / 0 == 1", name="d"),
        program("true", name="e"),
    ]
    activation: dict[str, Any] = {"table": {"exists": False}, "op": "CREATE_ENTITY"}
    verdicts = await spawning_engine.judge(programs, activation, log_id=1, timeout_s=LONG_S)
    assert verdicts == (
        Verdict(kind=POLICY, id="a", version=1, outcome=DENY),
        Verdict(kind=ACCESS_RULE, id="b", version=1, outcome=ALLOW),
        Verdict(kind=POLICY, id="c", version=1, outcome=ERROR, detail="gives something other than true or false"),
        Verdict(kind=POLICY, id="d", version=1, outcome=ERROR, detail="divides by zero (line 1, column 1)"),
        Verdict(kind=POLICY, id="e", version=1, outcome=ALLOW),
    )


async def test_no_programs_need_no_worker(engine: WorkerEngine) -> None:
    assert await engine.judge([], {}, log_id=1, timeout_s=LONG_S) == ()
    assert not engine.pids


async def test_an_expression_is_checked_and_refused_with_its_place(engine: WorkerEngine) -> None:
    await engine.check("result.columns.exists(c, c.name == 'tenant_id')", log_id=1, timeout_s=LONG_S)
    await engine.check("op == 'CREATE_ENTITY'", log_id=1, timeout_s=LONG_S, kind=ACCESS_RULE)
    with pytest.raises(PolicyNotCompiledError) as caught:
        await engine.check("true &&\n  op == 'CREATE_ENTITY'", log_id=1, timeout_s=LONG_S)
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert caught.value.status == 422


@pytest.mark.parametrize("text", ["true\n&& '\ud800' == ''", "x" * 16_385, " "])
async def test_a_text_that_is_no_expression_is_not_sent_to_a_worker(engine: WorkerEngine, text: str) -> None:
    with pytest.raises(PolicyNotCompiledError):
        await engine.check(text, log_id=1, timeout_s=LONG_S)
    assert not engine.pids


@pytest.mark.parametrize(
    "hostile",
    [ENDLESS, "[" + ENDLESS + "].filter(x, x).size() == 1", f"has({{'a': {ENDLESS}}}.a)"],
    ids=["nested loops", "within a list", "behind has"],
)
async def test_an_endless_expression_is_killed_at_the_deadline_and_the_next_call_works(
    engine: WorkerEngine, hostile: str
) -> None:
    await engine.start()
    (before,) = in_use(engine)
    programs = [program("true", name="first"), program(hostile, name="hostile"), program("true", name="last")]
    with pytest.raises(DeadlineExceededError) as caught:
        await engine.judge(programs, {}, log_id=1, timeout_s=SHORT_S)
    assert caught.value.status == 503
    assert [verdict.outcome for verdict in caught.value.verdicts] == [ALLOW, ERROR, ERROR]
    assert caught.value.verdicts[1].detail == f"was running: {TOOK_LONGER.format(SHORT_S)}"
    assert caught.value.verdicts[2].detail.startswith("was not judged: ")
    assert await outcomes(engine, "true", "false") == [ALLOW, DENY]
    assert before in in_use(engine), "a judging stops without ending its process"


@pytest.mark.parametrize("text", ["'" + r"\a" * 500, "'" + "\\" * 999, 'r"""' + r"\"" * 500, "b'" + r"\x" * 500])
async def test_a_string_of_escapes_that_is_not_closed_is_refused_like_any_other(
    engine: WorkerEngine, text: str
) -> None:
    """cel-python's own pattern for strings is exponential in the escapes of one that is not closed."""
    with pytest.raises(PolicyNotCompiledError, match=r"not closed|cannot stand here"):
        await engine.check(text, log_id=1, timeout_s=LONG_S)


# How much memory is free again after an error depends on what the process has loaded and how: the real start, here.
async def test_a_string_that_grows_without_bound_meets_the_memory_limit(spawning_engine: WorkerEngine) -> None:
    programs = [program("true"), program(doubled_string(14)), program("false")]
    verdicts = await spawning_engine.judge(programs, {}, log_id=1, timeout_s=LONG_S)
    assert [verdict.outcome for verdict in verdicts] == [ALLOW, ERROR, DENY]
    assert verdicts[1].detail == "needs more memory than a judging may use"
    assert await outcomes(spawning_engine, "true") == [ALLOW]


async def test_a_list_that_grows_without_bound_meets_the_memory_limit(spawning_engine: WorkerEngine) -> None:
    hostile = "[[0, 0, 0, 0]].all(x0, " + "".join(f"[x{n} + x{n} + x{n} + x{n}].all(x{n + 1}, " for n in range(14))
    try:
        found = await outcomes(spawning_engine, hostile + "x14 == []" + ")" * 15)
    except EngineUnavailableError:
        found = [ERROR]  # it was the process that could not get the memory, not the expression
    assert found == [ERROR]
    assert await outcomes(spawning_engine, "true") == [ALLOW]


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|aa)+$", "(.*a){12}$", "(a?){50}a{50}"])
async def test_a_pattern_that_is_catastrophic_in_other_engines_is_not(engine: WorkerEngine, pattern: str) -> None:
    text = "a" * 3000 + "!"
    activation = {"commit": {"name": text, "operation": pattern}}
    assert await outcomes(engine, "commit.name.matches(commit.operation)", activation=activation) in ([ALLOW], [DENY])


async def test_an_expression_nested_too_deeply_is_an_error_and_not_a_crash(engine: WorkerEngine) -> None:
    await engine.start()
    before = in_use(engine)
    assert await outcomes(engine, "[" * 4000 + "]" * 4000 + " == []", "true") == [ERROR, ALLOW]
    assert in_use(engine) >= before


async def test_concurrent_calls_of_one_worker_each_get_their_own_answer(engine: WorkerEngine) -> None:
    async def judged(number: int) -> list[Outcome]:
        activation = {"commit": {"name": f"t{number}"}}
        return await outcomes(engine, f"commit.name == 't{number}'", "commit.name == 't0'", activation=activation)

    answers = await asyncio.gather(*(judged(number) for number in range(20)))
    assert answers == [[ALLOW, ALLOW]] + [[ALLOW, DENY]] * 19


async def test_a_call_that_waits_too_long_for_its_turn_fails_because_the_engine_is_busy() -> None:
    async with WorkerEngine(spawn=fork_worker) as engine:
        hanging = asyncio.create_task(engine.judge([program(ENDLESS)], {}, log_id=1, timeout_s=LONG_S))
        await at_work_in_the_long_lane(engine)
        engine._waiting_s = SHORT_S
        waiting = [engine.judge([program(ENDLESS)], {}, log_id=1, timeout_s=LONG_S) for _ in range(2)]
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        for error in errors:
            assert isinstance(error, DeadlineExceededError)
            assert "busy" in str(error)
            assert [verdict.outcome for verdict in error.verdicts] == [ERROR]
            assert error.verdicts[0].detail.startswith("was not judged: ")
        assert not hanging.done(), "what is at work has its own deadline"
        assert not len(engine._long.lines), "nobody waits on for a caller that has left"
    with pytest.raises(EngineUnavailableError):
        await hanging


async def test_more_calls_than_may_wait_are_refused_at_once() -> None:
    async with WorkerEngine(line_calls_max=2, spawn=fork_worker) as engine:
        calls = [engine.judge([program("true")], {}, log_id=1, timeout_s=LONG_S) for _ in range(3)]
        *served, refused = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(verdicts, tuple) for verdicts in served)
    assert isinstance(refused, EngineUnavailableError)
    assert "2 calls of this tenant already wait" in str(refused)


async def test_a_worker_that_dies_in_a_call_makes_the_engine_unavailable_for_it_alone(engine: WorkerEngine) -> None:
    await engine.start()
    (pid,) = in_use(engine)
    judging = asyncio.create_task(engine.judge([program(ENDLESS)], {}, log_id=1, timeout_s=LONG_S))
    await asyncio.wait([judging], timeout=0)
    while len(engine._short.lines):  # until the worker's seat has taken it
        await asyncio.wait([judging], timeout=0)
    waiting = asyncio.create_task(outcomes(engine, "true"))
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineUnavailableError, match="ended \\(status -9\\)") as caught:
        await judging
    assert [verdict.outcome for verdict in caught.value.verdicts] == [ERROR]
    assert caught.value.status == 503
    assert await waiting == [ALLOW]
    assert engine.pids.isdisjoint({pid})


async def test_a_worker_that_died_while_idle_is_replaced_without_anyone_noticing(engine: WorkerEngine) -> None:
    await engine.start()
    (process,) = engine._processes._taken
    os.kill(process.pid, signal.SIGKILL)
    await process._process.wait()
    assert await outcomes(engine, "true") == [ALLOW]


async def test_a_caller_that_leaves_does_no_harm_to_the_next(engine: WorkerEngine) -> None:
    await engine.start()
    leaving = asyncio.create_task(engine.judge([program(ENDLESS)], {}, log_id=1, timeout_s=SHORT_S))
    await asyncio.wait([leaving], timeout=0)
    leaving.cancel()
    assert await outcomes(engine, "true") == [ALLOW]
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_worker_that_cannot_start_is_an_unavailable_engine() -> None:
    async with WorkerEngine(start_timeout_s=0.0) as engine:
        with pytest.raises(EngineUnavailableError, match="not ready within"):
            await engine.start()
        with pytest.raises(EngineUnavailableError) as caught:
            await engine.judge([program("true")], {}, log_id=1, timeout_s=LONG_S)
        assert [verdict.outcome for verdict in caught.value.verdicts] == [ERROR]
        assert not engine.pids


async def test_a_closed_engine_answers_nothing() -> None:
    async with WorkerEngine(spawn=fork_worker) as engine:
        assert await outcomes(engine, "true") == [ALLOW]
    with pytest.raises(EngineUnavailableError, match="shut down") as caught:
        await outcomes(engine, "true")
    assert [verdict.outcome for verdict in caught.value.verdicts] == [ERROR]


async def test_closing_an_engine_that_is_starting_leaves_no_process() -> None:
    engine = WorkerEngine(workers=2)
    starting = asyncio.create_task(engine.start())
    await asyncio.wait([starting], timeout=0)
    await engine.close()
    starting.cancel()
    await asyncio.wait([starting])
    assert not worker_children()


async def test_a_process_whose_killing_is_cancelled_has_ended_all_the_same() -> None:
    process = await WorkerProcess.start(judging_bytes_max=2**28, timeout_s=60)
    killing = asyncio.create_task(process.kill())
    await asyncio.sleep(0)  # it waits for the end now
    assert killing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killing
    assert is_gone(process.pid)


@pytest.mark.parametrize("unwritable", ["\ud800", 2**64, {1: "a"}, 1j])
async def test_variables_that_are_no_json_are_not_judged(engine: WorkerEngine, unwritable: Any) -> None:
    with pytest.raises(PolicyEngineError) as caught:
        await engine.judge([program("table == table")], {"table": unwritable}, log_id=1, timeout_s=LONG_S)
    assert [verdict.outcome for verdict in caught.value.verdicts] == [ERROR]
    assert await outcomes(engine, "true", activation={"table": unwritable}) == [ALLOW], "nothing reads it"


async def test_a_worker_sees_nothing_of_our_environment(
    spawning_engine: WorkerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEPROOF_SIGNING_KEY", "a secret")
    await spawning_engine.start()
    (pid,) = in_use(spawning_engine)
    environment = proc_bytes(pid, "environ")
    assert b"PYTHONPATH=" in environment
    assert b"secret" not in environment
