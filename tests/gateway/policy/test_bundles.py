# SPDX-License-Identifier: Apache-2.0
"""
Calls that are judged together, over real child processes: the verdicts of each are those that it would have alone,
whatever the others do, and whatever the process answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import orjson
import pytest

from gateway.policy import calls, pool
from gateway.policy.calls import BUNDLE_CALLS_MAX, BUNDLE_S, SHORT_BYTES_MAX, Call, Expected, Lane
from gateway.policy.engine import (
    POLICY,
    DeadlineExceededError,
    EngineUnavailableError,
    Outcome,
    PolicyEngineError,
    Program,
    Verdict,
)
from gateway.policy.inputs import Inputs, encoded
from gateway.policy.judge_requests import JudgeRequest
from gateway.policy.pool import SLICE_S, TOOK_LONGER, WorkerEngine
from gateway.policy.process import Child, WorkerProcess
from testkit.servers.forked_workers import fork_worker

ALLOW, DENY, ERROR = Outcome.ALLOW, Outcome.DENY, Outcome.ERROR
LONG_S = 60.0
SIXTY = str(list(range(60)))
ENDLESS = "".join(f"{SIXTY}.all({name}, " for name in "abcdefgh") + "true" + ")" * 8
COLUMNS = [{"id": number, "name": f"column_{number}"} for number in range(20)]
LENGTH = struct.Struct(">I")


def programs(*expressions: str) -> list[Program]:
    return [Program(kind=POLICY, id=f"p{place}", version=1, expression=one) for place, one in enumerate(expressions)]


def judging(
    engine: WorkerEngine, *expressions: str, log_id: int = 1, timeout_s: float = LONG_S, **variables: Any
) -> asyncio.Task[tuple[Verdict, ...]]:
    """A call that has been made."""
    return asyncio.create_task(engine.judge(programs(*expressions), variables, log_id=log_id, timeout_s=timeout_s))


def outcomes(verdicts: Sequence[Verdict]) -> list[Outcome]:
    return [verdict.outcome for verdict in verdicts]


@pytest.fixture
async def engine() -> AsyncIterator[WorkerEngine]:
    """An engine that has judged a call of tenants 1, 2 and 3, so that their next ones are expected to be quick."""
    async with WorkerEngine(waiting_s=LONG_S, spawn=fork_worker) as engine:
        for log_id in (1, 2, 3):
            await judging(engine, "true", log_id=log_id)
            engine._short.expected._expected_s[log_id] = BUNDLE_S / 10  # however busy the machine was
        engine._short.lines._used_s.clear()  # so that who came first is served first
        yield engine


@pytest.fixture
def bundles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many calls were sent together, each time."""
    sizes: list[int] = []
    make = calls.frame_of

    def noting(bundle: Sequence[Call], known: Any) -> bytes:
        sizes.append(len(bundle))
        return make(bundle, known)

    monkeypatch.setattr(pool, "frame_of", noting)
    return sizes


async def test_calls_that_wait_at_the_same_time_are_sent_together(engine: WorkerEngine, bundles: list[int]) -> None:
    calls = [
        judging(
            engine, f"commit.name == 't{number}'", "commit.name == 't0'", "1 / 0 == 1", commit={"name": f"t{number}"}
        )
        for number in range(6)
    ]
    found = [outcomes(await call) for call in calls]
    assert found == [[ALLOW, ALLOW, ERROR]] + [[ALLOW, DENY, ERROR]] * 5
    assert bundles == [6]


async def at_work(
    engine: WorkerEngine, letters: str, *, but: tuple[int, int] | None = None
) -> tuple[WorkerProcess, int]:
    """Wait until a process has judged so far of a call; return both. `but`: the id and the call that it was before."""
    async with asyncio.timeout(LONG_S):
        while True:
            for process in engine._processes._taken:
                for number in range(100):
                    if process.judged(number).letters == letters and (process.pid, number) != but:
                        return process, number
            await asyncio.wait([asyncio.create_task(asyncio.sleep(0.001))])


async def test_a_call_of_a_bundle_that_does_not_end_is_named_and_the_others_have_their_verdicts(
    engine: WorkerEngine, bundles: list[int]
) -> None:
    engine._short.slice_s = LONG_S
    before = judging(engine, "true", "false", "false", log_id=1)
    hanging = judging(engine, "true", "false", ENDLESS, "true", log_id=2)
    after = judging(engine, "false", log_id=3)
    process, number = await at_work(engine, "ad")
    process.stop(number)  # as the slice would
    assert outcomes(await before) == [ALLOW, DENY, DENY]
    again, number_again = await at_work(engine, "ad", but=(process.pid, number))
    assert again is process, "it obeyed"
    again.stop(number_again)
    with pytest.raises(DeadlineExceededError) as caught:
        await hanging
    assert outcomes(await after) == [DENY]
    found = caught.value.verdicts
    assert outcomes(found) == [ALLOW, DENY, ERROR, ERROR], "what was denied before it is not hidden"
    assert found[2].detail == f"was running: {TOOK_LONGER.format(LONG_S)}"
    assert found[3].detail.startswith("was not judged: ")
    assert bundles == [3, 1, 1]


async def test_a_process_that_is_killed_within_a_bundle_leaves_no_call_without_its_verdicts(
    engine: WorkerEngine, bundles: list[int]
) -> None:
    engine._short.slice_s = LONG_S
    first = judging(engine, "true", "false", "true", log_id=1)
    hanging = judging(engine, "false", "true", ENDLESS, log_id=2)
    last = judging(engine, "false", log_id=3)
    process, number = await at_work(engine, "da")
    os.kill(process.pid, signal.SIGKILL)
    again, _ = await at_work(engine, "da", but=(process.pid, number))  # it has begun again, alone
    os.kill(again.pid, signal.SIGKILL)
    assert outcomes(await first) == [ALLOW, DENY, ALLOW]
    with pytest.raises(EngineUnavailableError, match="ended \\(status -9\\)") as caught:
        await hanging
    assert outcomes(caught.value.verdicts) == [DENY, ALLOW, ERROR]
    assert caught.value.verdicts[2].detail.startswith("was running: the policy worker ended (status -9)")
    assert outcomes(await last) == [DENY]
    assert bundles == [3, 1, 1, 1]


async def test_a_caller_that_leaves_a_bundle_does_no_harm_to_the_others(engine: WorkerEngine) -> None:
    calls = [judging(engine, "false", log_id=log_id) for log_id in (1, 2, 3)]
    await asyncio.wait([calls[1]], timeout=0)
    calls[1].cancel()
    assert [outcomes(await calls[place]) for place in (0, 2)] == [[DENY], [DENY]]
    with pytest.raises(asyncio.CancelledError):
        await calls[1]


async def test_a_value_that_the_process_does_not_keep_after_all_is_asked_for_again(
    engine: WorkerEngine, bundles: list[int]
) -> None:
    (process,) = engine._processes._taken
    value = encoded(COLUMNS)
    process.known._kept[value.digest] = len(value.data)
    verdicts = await judging(engine, "result.columns.size() == 20", result={"columns": COLUMNS})
    assert outcomes(verdicts) == [ALLOW]
    assert bundles == [1, 1], "once by its digest, and then in full"
    for _ in range(3):
        (verdict,) = await judging(engine, "result.columns.size() == 19", result={"columns": COLUMNS})
        assert verdict.outcome is DENY
    assert len(process.known) == 1
    assert bundles == [1] * 5
    assert process in engine._processes._taken, "nothing was wrong with it"


async def test_verdicts_are_the_same_for_what_is_kept_and_what_changes(engine: WorkerEngine) -> None:
    for number in range(30):
        columns = [*COLUMNS, {"id": 99, "name": f"c{number // 10}"}]
        table = {"columns": columns, "properties": {"n": str(number)}}
        expressions = (
            f"result.columns.exists(c, c.name == 'c{number // 10}')",
            "result.columns.exists(c, c.name == 'c0')",
            f"result.properties.n == '{number}'",
            "result.columns == table.columns",
        )
        verdicts = await judging(engine, *expressions, result=table, table={"columns": COLUMNS})
        assert outcomes(verdicts) == [ALLOW, ALLOW if number < 10 else DENY, ALLOW, DENY]


def lane(*, quick: Sequence[int] = (1, 2)) -> Lane:
    lane = Lane(bundles=True, slice_s=SLICE_S)
    for log_id in quick:
        lane.expected.note(log_id, BUNDLE_S / 20)
    return lane


def call(log_id: int, *, timeout_s: float = LONG_S, name: str = "") -> Call:
    request = JudgeRequest(programs("commit.name != ''"), Inputs({"commit": {"name": name}}), log_id=log_id)
    finished = asyncio.get_running_loop().create_future()
    return Call(number=1, log_id=log_id, timeout_s=timeout_s, waiting_s=LONG_S, request=request, finished=finished)


async def sizes(lane: Lane) -> list[list[int]]:
    """The tenants of all bundles that wait."""
    found = []
    while len(lane.lines):
        found.append([one.log_id for one in await lane.take()])
    return found


async def test_a_tenant_with_many_calls_leaves_others_their_place_in_a_bundle() -> None:
    full = lane()
    for log_id in [1] * 20 + [2] * 2:
        full.put(call(log_id))
    found = await sizes(full)
    assert [len(bundle) for bundle in found] == [BUNDLE_CALLS_MAX, 22 - BUNDLE_CALLS_MAX]
    assert found[0][:4].count(2) == 2, "they take turns within a bundle, too"


@pytest.mark.parametrize(
    "alone",
    [
        lambda: call(3),
        lambda: call(1, timeout_s=SLICE_S / 2),
        lambda: call(1, name="x" * SHORT_BYTES_MAX),
    ],
    ids=["of a tenant of whom nothing is known", "with little time left", "large"],
)
async def test_a_call_that_may_take_long_is_judged_alone(alone: Callable[[], Call]) -> None:
    full = lane(quick=(1,))
    for one in (alone(), call(1), call(1)):
        full.put(one)
    assert sorted(map(len, await sizes(full))) == [1, 2]
    for one in (call(1), alone(), call(1)):
        full.put(one)
    assert max(map(len, await sizes(full))) < 3


async def test_a_bundle_is_expected_to_take_no_longer_than_a_quick_call() -> None:
    full = lane()
    full.expected.note(1, BUNDLE_S / 2.5)
    for _ in range(6):
        full.put(call(1))
    assert [len(bundle) for bundle in await sizes(full)] == [2, 2, 2]


def test_a_call_that_took_long_is_expected_for_some_time() -> None:
    expected = Expected(tenants_max=2)
    assert expected.of(1) == float("inf")
    expected.note(1, 0.08)
    for _ in range(3):
        expected.note(1, 0.001)
    assert expected.of(1) == pytest.approx(0.01)
    expected.note(2, 0.1)
    expected.note(3, 0.1)
    assert expected.of(1) == float("inf"), "it was the one that is longest ago"


GOOD = {"letters": "a", "details": {}, "used_s": 0.0}
ANSWERS = {
    "of too many verdicts": {"end": "ready", "used_s": 0.0, "judged": [{**GOOD, "letters": "aa"}]},
    "of too few verdicts": {"end": "ready", "used_s": 0.0, "judged": [{**GOOD, "letters": ""}]},
    "to two requests": {"end": "ready", "used_s": 0.0, "judged": [GOOD, GOOD]},
    "to none": {"end": "ready", "used_s": 0.0},
    "of another kind": {"end": "ready", "used_s": 0.0, "judged": [{**GOOD, "letters": "y"}]},
    "in another end": {"end": "done", "used_s": 0.0, "judged": [GOOD]},
    "without a time": {"end": "ready", "judged": [GOOD]},
    "that it knows nothing": {"end": "unknown", "used_s": 0.0, "judged": [GOOD]},
}
FRAMES = {
    **{name: LENGTH.pack(len(data := orjson.dumps(answer))) + data for name, answer in ANSWERS.items()},
    "truncated": LENGTH.pack(100) + b'{"end":"ready"',
    "truncated in its length": b"\x00\x00",
    "oversized": LENGTH.pack(2**32 - 1) + b"{}",
    "not JSON": LENGTH.pack(3) + b"{]}",
    "no object": LENGTH.pack(2) + b"[]",
}
OTHER_SIDE = """
import sys
pipe, answer = sys.stdout.buffer, bytes.fromhex(sys.argv[1])
hello = b'{"ready":true}'
pipe.write(len(hello).to_bytes(4) + hello)
pipe.flush()
while size := sys.stdin.buffer.read(4):
    sys.stdin.buffer.read(int.from_bytes(size))
    pipe.write(answer)
    pipe.flush()
    if len(answer) != 4 + int.from_bytes(answer[:4]):
        break
"""


def answering(frame: bytes) -> Callable[[int, int], Awaitable[Child]]:
    """Start processes that answer everything with these bytes."""

    async def spawn(judging_bytes_max: int, progress: int) -> Child:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-I", "-S", "-c", OTHER_SIDE, frame.hex())
        return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)

    return spawn


@pytest.mark.parametrize("name", FRAMES)
async def test_an_answer_that_is_none_approves_nothing(name: str) -> None:
    async with WorkerEngine(spawn=answering(FRAMES[name])) as engine:
        await engine.start()
        (before,) = engine._processes._taken
        with pytest.raises(PolicyEngineError) as caught:
            await judging(engine, "true")
        assert isinstance(caught.value, EngineUnavailableError)
        assert outcomes(caught.value.verdicts) == [ERROR]
        while before in engine._processes._taken:  # until another process has taken its place
            await asyncio.wait([asyncio.create_task(asyncio.sleep(0.001))])
