# SPDX-License-Identifier: Apache-2.0
"""
The child process alone: called over its pipes as its parent does, and abandoned as its parent must not do.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import Any

import orjson
import pytest

from gateway.policy.frames import FRAME_BYTES_MAX, LENGTH, FrameError, format_frame, parse_length, parse_payload
from gateway.policy.progress import NOTHING_JUDGED, Judged
from testkit.environment import PROJECT
from testkit.servers.forked_workers import ForkedWorker

JUDGING_BYTES_MAX = 64 * 2**20
WORKER = [sys.executable, "-m", "gateway.policy.worker", str(JUDGING_BYTES_MAX)]
ENDLESS = "".join(f"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(x{n}, " for n in range(12)) + "true" + ")" * 12
TIMEOUT_S = 30.0

# Starts a worker, has it judge two programs of which the second never ends, and waits to be killed.
PARENT = f"""
import subprocess, sys
from gateway.policy.frames import LENGTH, format_frame
from gateway.policy.progress import Progress, new_file
file = new_file()
progress = Progress.of(file)
command = [*{WORKER!r}, str(file)]
worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file])
def receive():
    (size,) = LENGTH.unpack(worker.stdout.read(LENGTH.size))
    return worker.stdout.read(size)
receive()
if sys.argv[1] == "busy":
    programs = [("policy", "true"), ("policy", {ENDLESS!r})]
    worker.stdin.write(format_frame({{
        "call": 1, "judge": [{{"programs": programs, "variables": {{}}, "log_id": 1}}], "timeout_s": 600.0
    }}))
    worker.stdin.flush()
    while progress.judged(1).letters != "a":
        pass
print(worker.pid, flush=True)
sys.stdin.read()
"""


def started() -> ForkedWorker:
    worker = ForkedWorker(JUDGING_BYTES_MAX)
    assert received(worker) == {"ready": True}
    return worker


def send(worker: ForkedWorker, request: dict[str, Any]) -> None:
    worker.stdin.write(format_frame(request))
    worker.stdin.flush()


def judge(
    *expressions: str, call: int = 1, timeout_s: float = 60.0, activation: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A request to judge policies."""
    programs = [("policy", expression) for expression in expressions]
    asked = {"programs": programs, "variables": activation or {}, "log_id": 1}
    return {"call": call, "judge": [asked], "timeout_s": timeout_s}


def ended(worker: ForkedWorker) -> tuple[str, str]:
    """How the next call ended, and the letters of its verdicts."""
    answer = received(worker)
    return answer["end"], answer["judged"][0]["letters"]


def received(worker: ForkedWorker) -> dict[str, Any]:
    return parse_payload(worker.stdout.read(parse_length(worker.stdout.read(LENGTH.size))))


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_a_worker_ends_when_its_parent_is_killed(state: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, state], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        worker = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            ended, _, _ = select.select([worker], [], [], TIMEOUT_S)
            assert ended, "the worker outlived its parent"
        finally:
            os.close(worker)


def test_a_worker_ends_by_itself_when_its_deadline_is_not_enforced() -> None:
    """Even where no other thread of it may run: it is the kernel that ends it."""
    with started() as worker:
        send(worker, judge(ENDLESS, timeout_s=0.0))
        assert worker.wait() == -signal.SIGALRM


def test_a_worker_ends_when_the_pipe_does() -> None:
    with started() as worker:
        worker.stdin.close()
        assert worker.wait() == 0


def test_a_worker_ends_when_it_is_sent_no_frame() -> None:
    with started() as worker:
        worker.stdin.write(LENGTH.pack(2) + b"[]")
        worker.stdin.flush()
        assert worker.wait() == 1


def test_a_worker_is_not_interrupted_with_its_parent() -> None:
    with started() as worker:
        worker.send_signal(signal.SIGINT)
        send(worker, {"call": 1, "check": {"expression": "true", "kind": "policy"}, "timeout_s": 10.0})
        assert received(worker) == {"compiled": True}
        assert received(worker)["end"] == "ready"


def until_judged(worker: ForkedWorker, call: int, count: int) -> Judged:
    """What is judged of a call, once it is so many programs; the worker is at work with it."""
    while len((judged := worker.progress.judged(call)).letters) < count:
        assert worker.runs
    return judged


def test_what_is_judged_can_be_seen_before_all_of_it_is() -> None:
    with started() as worker:
        send(worker, judge("true", "1 / 0 == 1", "false", ENDLESS, call=5))
        judged = until_judged(worker, 5, 3)
        assert judged == Judged(letters="aed", details={1: "divides by zero (line 1, column 1)"})
        worker.kill()
        worker.wait()
        assert worker.progress.judged(5) == judged, "also once the worker has ended"
        assert worker.progress.judged(4) == NOTHING_JUDGED


def test_all_verdicts_of_a_call_come_in_its_last_frame() -> None:
    with started() as worker:
        send(worker, judge("true", "false", "1 / 0 == 1", "dyn(1)"))
        answer = received(worker)
        (judged,) = answer["judged"]
        assert (answer["end"], judged["letters"]) == ("ready", "adee")
        assert judged["details"] == {
            "2": "divides by zero (line 1, column 1)",
            "3": "gives something other than true or false",
        }


def test_an_evaluation_obeys_a_stop_and_the_worker_serves_on() -> None:
    with started() as worker:
        send(worker, judge("true", "false", ENDLESS, "true", call=7))
        until_judged(worker, 7, 2)
        send(worker, {"stop": 7})
        assert ended(worker) == ("stopped", "ad"), "what was judged before is not lost"
        send(worker, judge("true", call=8))
        assert ended(worker) == ("ready", "a")


def test_the_word_to_stop_stops_no_other_call() -> None:
    with started() as worker:
        send(worker, judge("true", call=7))
        assert ended(worker) == ("ready", "a")
        send(worker, {"stop": 7})
        send(worker, judge("true", call=8))
        assert ended(worker) == ("ready", "a")
        send(worker, judge(ENDLESS, call=9))
        send(worker, {"stop": 9})
        assert received(worker)["end"] == "stopped", "though it had perhaps not begun"


def test_a_conversion_of_many_values_is_stopped_too() -> None:
    with started() as worker:
        updates = [{"action": "set-properties", "updates": {"a": "b"}}] * 100_000
        send(worker, judge("commit.updates.size() == 1", activation={"commit": {"updates": updates}}, call=7))
        send(worker, {"stop": 7})
        assert received(worker)["end"] == "stopped"


def test_a_worker_whose_memory_was_exhausted_answers_and_leaves() -> None:
    doubled = "".join(f"[x{n} + x{n} + x{n} + x{n}].all(x{n + 1}, " for n in range(14))
    with started() as worker:
        send(worker, judge("['aaaaaaaaaaaaaaaa'].all(x0, " + doubled + "true" + ")" * 15, "true"))
        assert ended(worker) == ("leaving", "ea")
        assert worker.wait() == 0


def test_a_worker_reports_the_processor_time_of_a_call() -> None:
    with started() as worker:
        send(worker, judge("true"))
        assert 0 < received(worker)["used_s"] < TIMEOUT_S


def test_what_is_printed_does_not_reach_the_pipe() -> None:
    script = """
import gateway.policy.worker as worker
requests, answers = worker._take_pipes()
print("stray", flush=True)
import os; os.write(1, b"stray")
import sys; assert sys.stdin.read() == ""
worker._send(answers, {"ready": True})
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=PROJECT, input=b"not for it", capture_output=True, check=True
    )
    assert ran.stdout == format_frame({"ready": True})
    assert ran.stderr == b"stray\nstray"


def loaded(*modules: str) -> set[str]:
    """The top-level packages that importing `modules` loads."""
    script = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, check=True, text=True)
    return set(ran.stdout.split())


def test_a_worker_loads_nothing_of_the_gateway_that_it_does_not_need() -> None:
    found = loaded("gateway.policy.worker")
    assert {"celpy", "lark", "re2", "orjson"} <= found
    assert found.isdisjoint({"fastapi", "starlette", "httpx", "pyiceberg", "pyarrow", "psycopg", "ledger", "asyncio"})


def test_the_gateways_half_does_not_load_cel_python() -> None:
    modules = ("access", "judging", "engine", "pool", "variables", "verdicts")
    assert loaded(*(f"gateway.policy.{name}" for name in modules)).isdisjoint({"celpy", "lark", "re2"})


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"1", b"\xff"])
def test_a_payload_that_is_no_object_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        parse_payload(payload)


def test_a_frame_longer_than_allowed_is_neither_written_nor_read() -> None:
    assert parse_length(LENGTH.pack(FRAME_BYTES_MAX)) == FRAME_BYTES_MAX
    with pytest.raises(FrameError, match="was announced"):
        parse_length(LENGTH.pack(FRAME_BYTES_MAX + 1))
    with pytest.raises(FrameError, match="variables for policies"):
        format_frame({"a": "x" * FRAME_BYTES_MAX})


def test_a_frame_is_its_length_and_its_json() -> None:
    frame = format_frame({"a": "é"})
    assert frame == b"\x00\x00\x00\x0a" + '{"a":"é"}'.encode()
    assert parse_payload(frame[LENGTH.size :]) == orjson.loads(frame[4:]) == {"a": "é"}


def test_a_worker_whose_parent_is_gone_before_it_is_ready_ends_without_a_word() -> None:
    command = [sys.executable, "-P", "-m", "gateway.policy.worker", str(256 * 2**20)]
    environment = {"PYTHONPATH": str(PROJECT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environment) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        worker.stdout.close()
        said = worker.stderr.read()
        assert worker.wait() == 0
    assert said == b""


@pytest.mark.parametrize(
    "sent",
    [
        LENGTH.pack(FRAME_BYTES_MAX + 1),
        format_frame({"call": 1, "judge": [{"programs": 7, "variables": {}, "log_id": 1}], "timeout_s": 10.0}),
        format_frame({"call": 1, "judge": 7, "timeout_s": 10.0}),
        format_frame({"call": 1, "judge": [7], "timeout_s": 10.0}),
    ],
    ids=["oversized", "no programs", "no requests", "no request"],
)
def test_a_worker_ends_when_it_is_sent_a_frame_that_asks_nothing(sent: bytes) -> None:
    with started() as worker:
        worker.stdin.write(sent)
        worker.stdin.flush()
        assert worker.wait() == 1
        assert worker.stdout.read() == b"", "it has answered nothing"


@pytest.mark.parametrize("sent", [LENGTH.pack(100) + b'{"call": 1', b"\x00\x00"])
def test_a_worker_ends_when_a_frame_is_truncated(sent: bytes) -> None:
    with started() as worker:
        worker.stdin.write(sent)
        worker.stdin.flush()
        worker.stdin.close()
        assert worker.wait() == 1
        assert worker.stdout.read() == b"", "it has answered nothing"


def test_a_worker_says_that_it_does_not_keep_a_value_and_serves_on() -> None:
    with started() as worker:
        asked = {"programs": [["policy", "table.location == ''"]], "variables": {}, "log_id": 1}
        named = {**asked, "named": {"table": {"location": "00" * 32}}}
        send(worker, {"call": 1, "judge": [named], "timeout_s": 10.0})
        assert ended(worker) == ("unknown", "")
        kept = {**named, "keep": {"00" * 32: "s3://a"}}
        send(worker, {"call": 1, "judge": [kept], "timeout_s": 10.0})
        assert ended(worker) == ("ready", "d")
        send(worker, {"call": 2, "judge": [named, {**named, "forget": "all"}], "timeout_s": 10.0})
        answer = received(worker)
        assert (answer["end"], [one["letters"] for one in answer["judged"]]) == ("unknown", ["d", ""])


def test_a_worker_whose_memory_was_exhausted_judges_nothing_more_of_a_bundle() -> None:
    doubled = "".join(f"[x{n} + x{n} + x{n} + x{n}].all(x{n + 1}, " for n in range(14))
    hostile = "['aaaaaaaaaaaaaaaa'].all(x0, " + doubled + "true" + ")" * 15
    with started() as worker:
        requests = [judge(expression)["judge"][0] for expression in ("false", hostile, "true")]
        send(worker, {"call": 1, "judge": requests, "timeout_s": 60.0})
        answer = received(worker)
        assert (answer["end"], [one["letters"] for one in answer["judged"]]) == ("leaving", ["d", "e"])
        assert worker.wait() == 0
