# SPDX-License-Identifier: Apache-2.0
"""
Helper processes of the scene: `python -m lakeproof.demo.<name>` prints one line of JSON when it is ready.

They end when their standard input ends, so none outlives the scene, however the scene ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lakeproof.demo.waiting import computed_s, until
from ledger.child_processes import kill_child, start_child

STOP_TIMEOUT_S: Final = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperProcess:
    """A helper process that is ready, and the facts it printed."""

    process: asyncio.subprocess.Process
    facts: Mapping[str, Any]

    async def ended(self) -> int:
        """
        Return the exit code once the process has ended by itself.

        Raises:
            AssertionError: if it neither ends nor computes.
        """
        ended = asyncio.create_task(self.process.wait())
        return await _while_it_computes(self.process, ended, expected="expected the process to end by itself")


@asynccontextmanager
async def run_helper(module: str, environment: Mapping[str, str]) -> AsyncIterator[HelperProcess]:
    """
    Run a module of the scene while the context is open; `environment` holds all its LAKEPROOF_* variables.

    Raises:
        AssertionError: if it ends before it is ready, or never is.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")}
    process = await start_child(
        asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"lakeproof.demo.{module}",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**inherited, **environment},
            # Ctrl-C is for the scene, which ends this process in its own order.
            start_new_session=True,
        )
    )
    try:
        yield HelperProcess(process=process, facts=await _first_line(module, process))
    finally:
        await _end(process)


async def _first_line(module: str, process: asyncio.subprocess.Process) -> Mapping[str, Any]:
    if process.stdout is None:
        raise AssertionError("the process was started with a pipe")
    reading = asyncio.create_task(process.stdout.readline())
    line = await _while_it_computes(process, reading, expected=f"expected lakeproof.demo.{module} to get ready")
    if not line:
        raise AssertionError(f"lakeproof.demo.{module} ended before it was ready; its messages are above")
    facts: Mapping[str, Any] = json.loads(line)
    return facts


async def _while_it_computes(process: asyncio.subprocess.Process, task: asyncio.Task[T], *, expected: str) -> T:
    """Return what `task` returns, however long that takes, as long as the process computes."""

    async def poll() -> asyncio.Task[T] | None:
        return task if task.done() else None

    async def moved() -> int:
        return computed_s(process.pid)  # it leads a session of its own

    async def say() -> str:
        return expected

    try:
        return (await until(poll, moved, expected=say)).result()
    finally:
        task.cancel()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        await kill_child(process)


def end_with_input(end: Callable[[], None]) -> None:
    """
    Call `end` when this process's standard input ends.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(sys.stdin.fileno(), 4_096):
            loop.remove_reader(sys.stdin.fileno())
            end()

    loop.add_reader(sys.stdin.fileno(), read)


def say_ready(**facts: str) -> None:
    """Print the facts that the starting process waits for."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()
