# SPDX-License-Identifier: Apache-2.0
"""
An engine that speaks SQL, in a process of its own: statements go in as lines of JSON, rows or errors come back.

A request is a list of sessions, each a list of statements. Session 0 is the engine's first one and keeps its settings;
the others are new. Sessions of one request run at the same time.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Final, Protocol

from testkit.environment import PROJECT

STOP_TIMEOUT_S: Final = 30
ERROR_CHARACTERS_MAX: Final = 4_000

Rows = list[list[Any]]


class StatementError(Exception):
    """A statement failed; the text is what the engine tells its user."""


class Execute(Protocol):
    """Runs a statement in a session of an engine; used in the engine's process."""

    def __call__(self, session: int, statement: str) -> Sequence[Sequence[Any]]:
        """Return the rows; whatever is raised is the engine's error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlEngine:
    """A running engine."""

    process: subprocess.Popen[str]
    said: IO[bytes]
    """What the process prints besides answers."""

    async def run(self, statement: str) -> Rows:
        """
        Return the rows of a statement in the first session.

        Raises:
            StatementError: if the engine did not carry it out.
        """
        ((answer,),) = await asyncio.to_thread(self._ask, [[statement]])
        if isinstance(answer, StatementError):
            raise answer
        return answer

    async def race(self, *sessions: Sequence[str]) -> list[list[Rows | StatementError]]:
        """Run each list of statements in a new session, all at the same time; a failed one does not end its list."""
        return (await asyncio.to_thread(self._ask, [[], *sessions]))[1:]

    def _ask(self, sessions: Sequence[Sequence[str]]) -> list[list[Rows | StatementError]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):  # then there is no answer either
            self.process.stdin.write(json.dumps(sessions) + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the engine ended: {self._last_words()}"
        return [[_answer(answer) for answer in session] for session in json.loads(line)]

    def _last_words(self) -> str:
        self.said.seek(0)
        return self.said.read().decode(errors="replace")[-ERROR_CHARACTERS_MAX:]


def _answer(answer: Mapping[str, Any]) -> Rows | StatementError:
    if "error" in answer:
        return StatementError(answer["error"])
    rows: Rows = answer["rows"]
    return rows


@contextmanager
def start_engine(
    program: str, given: Mapping[str, Any], *, environment: Mapping[str, str] | None = None
) -> Iterator[SqlEngine]:
    """Yield the engine of module `program`, which gets `given` as its first line; it ends with the context."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            cwd=PROJECT,
            env={**os.environ, **(environment or {})},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(given) + "\n")
            process.stdin.flush()
            yield SqlEngine(process=process, said=said)
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def read_given() -> dict[str, Any]:
    """Return the first line of the input; used in the engine's process."""
    given: dict[str, Any] = json.loads(sys.stdin.readline())
    return given


def serve_statements(execute: Execute) -> None:
    """
    Answer the requests of the input until it ends; used in the engine's process.

    What an engine and its libraries print goes elsewhere: the output has the answers alone.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def run(session: int, statements: Sequence[str]) -> list[dict[str, Any]]:
        return [_tried(execute, session, statement) for statement in statements]

    for line in sys.stdin:
        sessions = json.loads(line)
        with ThreadPoolExecutor(len(sessions)) as threads:
            answered = list(threads.map(run, range(len(sessions)), sessions))
        answers.write(json.dumps(answered, default=str) + "\n")
        answers.flush()


def _tried(execute: Execute, session: int, statement: str) -> dict[str, Any]:
    try:
        return {"rows": [list(row) for row in execute(session, statement)]}
    except Exception as error:  # noqa: BLE001 - an engine raises what it likes
        return {"error": f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS_MAX]}
