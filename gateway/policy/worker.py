# SPDX-License-Identifier: Apache-2.0
"""
The child process that evaluates expressions (see `frames.py`):
`python -m gateway.policy.worker <bytes of memory> [<descriptor of the file of its progress>]`.

Guarantee: it never outlives its parent, its deadline or its memory. A thread reads the pipe: when the pipe is closed it
ends the process, whatever expression is running; on `stop` it sets a flag, and the evaluation stops at its next node
(`cel/interruption.py`). If that thread cannot run (a single operation that holds the interpreter's lock), the kernel's
timer ends the process some time after the deadline; usually the parent has killed it before.

It reads no file and no environment variable, opens no connection, and has no secret: its parent gives it an empty
environment. Output of an expression cannot reach the pipe. The memory that it shares with its parent has outcomes and
their details alone (`progress.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from gateway.policy.access_checker import Checkers
from gateway.policy.cel.interruption import Interruption, JudgingStopped
from gateway.policy.cel.natives import check_json
from gateway.policy.cel.programs import Programs, Result
from gateway.policy.engine import OUTCOME_LETTERS, POLICY, Outcome, PolicyNotCompiledError
from gateway.policy.frames import LENGTH, End, FrameError, format_frame, parse_length, parse_payload
from gateway.policy.inspected import format_inspection
from gateway.policy.judge_requests import parse_request
from gateway.policy.kept_values import KeptValues, UnknownValueError
from gateway.policy.progress import Progress
from gateway.policy.restrictions.written import format_written
from gateway.policy.rule_formulas import format_formula

GRACE_S: Final = 2.0
"""How long after a deadline the process ends by itself; the parent waits less than that before it kills it."""
_ERROR: Final = OUTCOME_LETTERS[Outcome.ERROR]
BATCH: Final = 256
"""Results of cases that are sent together."""


def main(arguments: Sequence[str]) -> None:
    """
    Serve requests until the parent closes the pipe. `arguments`: the bytes of memory that judging may take, and the
    descriptor of the file of its progress; without one, nobody sees how far it is with a call.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process when it is done
    requests, answers = _take_pipes()
    progress = _take_progress(arguments[1:])
    logging.disable(logging.CRITICAL)  # cel-python logs values, and formats them first
    programs = Programs()
    programs.check("true", kind=POLICY)  # builds the parser, which takes most of the start-up time
    inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, inbox, programs.interruption), daemon=True).start()
    _limit_memory(int(arguments[0]))
    with contextlib.suppress(BrokenPipeError):  # the parent is gone: `_read` has noticed, or is about to
        _send(answers, {"ready": True})
        judges = _Judges(programs, progress)
        while _serve(inbox.get(), programs, judges, answers):
            pass


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Reserve stdin and stdout for frames; from here on a print goes to stderr and a read finds nothing."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return requests, answers


def _take_progress(arguments: Sequence[str]) -> Progress:
    if not arguments:
        return Progress.unshared()
    file = int(arguments[0])
    progress = Progress.of(file)
    os.close(file)
    return progress


def _limit_memory(judging_bytes_max: int) -> None:
    """
    Limit the address space to its current size plus `judging_bytes_max`; write no core file with a commit's content.

    On Linux only: other kernels accept the limit but do not enforce it, and only the deadline bounds the growth.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + judging_bytes_max
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _read(requests: BinaryIO, inbox: queue.SimpleQueue[dict[str, Any]], interruption: Interruption) -> None:
    status = 1
    try:
        while header := requests.read(LENGTH.size):
            match parse_payload(requests.read(parse_length(header))):
                case {"stop": call}:
                    interruption.stop(call)
                case request:
                    inbox.put(request)
        status = 0
    finally:
        os._exit(
            status
        )  # the parent has closed the pipe or has died; or the bytes are not a frame, and nothing can follow


def _send(answers: BinaryIO, value: dict[str, Any]) -> None:
    answers.write(format_frame(value))
    answers.flush()


class _Judges:
    """Who judges, what is kept for that, and how far a judging is."""

    def __init__(self, programs: Programs, progress: Progress) -> None:
        self.checkers = Checkers(programs)
        self._progress = progress
        self._kept = KeptValues(partial(check_json, interruption=programs.interruption))

    def judge_all(self, call: int, asked: Sequence[dict[str, Any]], answers: list[dict[str, Any]]) -> bool:
        """
        Judge what is `asked`, one request after another, and put what is known into `answers`; return whether memory
        was exhausted: then the others are not judged.

        Raises as `judge`.
        """
        for one in asked:
            answer: dict[str, Any] = {}
            answers.append(answer)
            if self.judge(call, one, answer):
                return True
        return False

    def judge(self, call: int, asked: dict[str, Any], answer: dict[str, Any]) -> bool:
        """
        Judge what is `asked` and put what is known into `answer`; return whether memory was exhausted.

        Raises:
            JudgingStopped: if the parent says so; the answer has what was judged before.
            UnknownValueError: if what is asked names a value that is not kept.
        """
        progress, letters, exhausted = self._progress, list[str](), False
        details: dict[str, str] = {}
        began_s = time.process_time()
        progress.begin(call)
        try:
            pairs, variables = parse_request(asked, self._kept)
            for result in self.checkers.judge(pairs, variables, log_id=asked["log_id"], sound=self._kept.sound):
                progress.note(result.letter, result.detail)
                if result.detail:
                    details[str(len(letters))] = result.detail
                letters.append(result.letter)
                exhausted = exhausted or result.exhausted
        finally:
            answer["letters"], answer["details"] = "".join(letters), details
            answer["used_s"] = time.process_time() - began_s
        return exhausted


def _serve(request: dict[str, Any], programs: Programs, judges: _Judges, pipe: BinaryIO) -> bool:
    """Answer one request; return whether to serve another: not after memory was exhausted once."""
    signal.setitimer(signal.ITIMER_REAL, request["timeout_s"] + GRACE_S)
    began_s = time.process_time()
    programs.interruption.begin(request["call"])
    end, answer = End.READY, dict[str, Any]()
    try:
        if (asked := request.get("judge")) is not None:
            answer["judged"] = answers = list[dict[str, Any]]()
            if judges.judge_all(request["call"], asked, answers):
                end = End.LEAVING
        else:
            for result in _results(request, programs, judges.checkers):
                if result.pop("exhausted", False):
                    end = End.LEAVING
                _send(pipe, result)
    except JudgingStopped:
        end = End.LEAVING if end is End.LEAVING else End.STOPPED
    except UnknownValueError:
        end = End.UNKNOWN
    _send(pipe, {"end": end, "used_s": time.process_time() - began_s, **answer})
    signal.setitimer(signal.ITIMER_REAL, 0)
    return end is not End.LEAVING


def _results(request: dict[str, Any], programs: Programs, checkers: Checkers) -> Iterator[dict[str, Any]]:
    match request:
        case {"cases": {"programs": requested, "values": values, "cases": cases, "log_id": log_id, "covers": covers}}:
            pairs = [(kind, expression) for kind, expression in requested]
            yield from _batches(programs.judge_cases(pairs, values, cases, log_id=log_id, covers=covers))
        case {"rows": {"programs": requested, "shared": shared, "rows": rows, "log_id": log_id}}:
            pairs = [(kind, expression) for kind, expression in requested]
            outcomes: list[str] = []
            exhausted = False
            for results in checkers.judge_rows(pairs, shared, rows, log_id=log_id):
                outcomes.append("".join([result.letter for result in results]))
                if _ERROR in outcomes[-1]:
                    exhausted = exhausted or any(result.exhausted for result in results)
            yield {"rows": outcomes, "exhausted": exhausted}
        case {"trace": {"kind": kind, "expression": expression, "activation": activation}}:
            result, steps = checkers.trace(kind, expression, activation)
            yield {"outcome": result.outcome, "detail": result.detail, "steps": steps, "exhausted": result.exhausted}
        case _:
            try:
                yield _compiled(request, programs, checkers)
            except PolicyNotCompiledError as error:
                yield {"reason": error.reason, "line": error.line, "column": error.column}


def _compiled(request: dict[str, Any], programs: Programs, checkers: Checkers) -> dict[str, Any]:
    """Return what there is to say of an expression that is not in force; raises `PolicyNotCompiledError`."""
    match request:
        case {"check": {"expression": expression, "kind": kind}}:
            checkers.check(expression, kind=kind)
            return {"compiled": True}
        case {"inspect": {"expression": expression, "kind": kind, "zero": zero}}:
            return {"inspection": format_inspection(programs.inspect(expression, kind=kind, zero=zero))}
        case {"read": {"expression": expression, "kind": kind}}:
            return {"written": format_written(programs.read_condition(expression, kind=kind))}
        case {"formula": {"expression": expression}}:
            return {"formula": format_formula(programs.read_rule(expression))}
        case {"cover": {"expression": expression, "kind": kind, "activations": activations}}:
            return {"branches": list(map(asdict, programs.cover(expression, activations, kind=kind)))}
        case _:
            raise FrameError(f"expected a request of the parent, found one with {sorted(request)}")


def _batches(results: Iterator[Result]) -> Iterator[dict[str, Any]]:
    """Yield results many at a time: a frame for each would cost more than its evaluation. A stop loses none."""
    batch: list[tuple[str, ...]] = []
    exhausted = False
    try:
        for result in results:
            # A number in JSON has 64 bits, and an expression may have more branches.
            taken = (f"{result.taken:x}",) if result.taken else ()
            batch.append((result.outcome, result.detail, *taken))
            exhausted = exhausted or result.exhausted
            if len(batch) >= BATCH:
                yield {"outcomes": batch, "exhausted": exhausted}
                batch, exhausted = [], False
    except JudgingStopped:
        if batch:
            yield {"outcomes": batch, "exhausted": exhausted}
        raise
    if batch:
        yield {"outcomes": batch, "exhausted": exhausted}


if __name__ == "__main__":
    main(sys.argv[1:])
