"""
One child process of the policy engine, seen from the gateway: started, spoken to, killed.

Guarantee: whatever goes wrong with the process leaves as `EngineUnavailableError`, and a process whose start failed or
was given up has been killed. It inherits none of our environment, in which the gateway's secrets may stand.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any, Final, Self

from gateway.policy.engine import EngineUnavailableError
from gateway.policy.frames import LENGTH, FrameError, parse_length, parse_payload

_SOURCES: Final = Path(__file__).resolve().parents[2]
"""Where the child finds `gateway`: from here, not from a working directory that others may write to (hence `-P`)."""

_INHERITED: Final = ("LD_LIBRARY_PATH",)
"""What a Python that lives outside the system's folders needs to start at all."""


class WorkerProcess:
    """A running child process. It belongs to one task: it answers one request at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """The process id, for the records of operators and tests."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process has not ended, as far as the loop has been told."""
        return self._process.returncode is None

    @classmethod
    async def start(cls, *, judging_bytes_max: int, timeout_s: float) -> Self:
        """
        Start a process and wait until it can serve.

        Raises:
            EngineUnavailableError: if it ends, says something else, or takes longer than `timeout_s`.
        """
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "gateway.policy.worker",
                str(judging_bytes_max),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**environment, "PYTHONPATH": str(_SOURCES)},
            )
        except OSError as error:
            raise EngineUnavailableError(f"the policy worker cannot be started: {error}") from error
        worker = cls(process)
        try:
            async with asyncio.timeout(timeout_s):
                hello = await worker._receive()
        except TimeoutError as error:
            await worker.kill()
            raise EngineUnavailableError(f"the policy worker was not ready within {timeout_s} s") from error
        except (EngineUnavailableError, asyncio.CancelledError):
            await worker.kill()
            raise
        if hello != {"ready": True}:
            await worker.kill()
            raise EngineUnavailableError("the policy worker did not say that it is ready")
        return worker

    async def converse(self, frame: bytes, results: list[dict[str, Any]]) -> bool:
        """
        Send a request and append its results to `results` as they come; return whether the process serves on.

        Raises:
            EngineUnavailableError: if the process ends before it has answered.
        """
        stdin = self._process.stdin
        try:
            if stdin is not None:
                stdin.write(frame)
                await stdin.drain()
        except ConnectionError as error:
            raise await self._lost() from error
        while "end" not in (result := await self._receive()):
            results.append(result)
        return bool(result["end"] == "ready")

    async def kill(self) -> None:
        """Kill the process, and wait until the system has taken it off its table."""
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            self._process.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self._process.wait()

    async def _receive(self) -> dict[str, Any]:
        stdout = self._process.stdout
        try:
            if stdout is None:
                raise await self._lost()
            return parse_payload(await stdout.readexactly(parse_length(await stdout.readexactly(LENGTH.size))))
        except asyncio.IncompleteReadError as error:
            raise await self._lost() from error
        except FrameError as error:
            raise EngineUnavailableError(f"the policy worker cannot be understood: {error}") from error

    async def _lost(self) -> EngineUnavailableError:
        """Return the error for a process that has closed its pipe, which is the last thing it does."""
        status = await self._process.wait()
        return EngineUnavailableError(f"the policy worker ended (status {status}); it starts again with the next call")
