# SPDX-License-Identifier: Apache-2.0
"""
Keeps the process of detection running: starts it, restarts it with growing pauses after it died, stops it.

Guarantee: the process does not outlive its supervisor. On Linux the kernel ends it when its parent is gone (PDEATHSIG);
Spark's virtual machine ends with the process that started it, and the workers with the virtual machine.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.child_processes import kill_child, start_child
from spark_detect.job_folder import JobFolder

PAUSE_S: Final = 1.0
PAUSE_S_MAX: Final = 60.0
HEALTHY_S: Final = 30.0
"""Whoever ran as long begins again with the shortest pause."""
STOP_TIMEOUT_S: Final = 30.0
PR_SET_PDEATHSIG: Final = 1
PACKAGES: Final = Path(__file__).resolve().parents[2]
ENDED: Final = "detection has ended: "
"""How the line begins in which the process says why it ends."""

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class DetectionState:
    """How detection is, for whoever waits for what it does; kept up to date by whoever runs it."""

    absent: str | None = None
    """Why it does not run at all."""
    process: int | None = None
    """The process that was started last; its number is that of its session, too."""
    lines: int = 0
    """How many lines were said of it."""
    ended: int = 0
    """How often it has ended unexpectedly."""
    reason: str = ""
    """Why it ended the last time."""


async def supervise(
    job: JobFolder,
    *,
    log: Path,
    stop: asyncio.Event,
    say: Say,
    condition: DetectionState | None = None,
    pause_s_max: float = PAUSE_S_MAX,
) -> None:
    """
    Run detection until `stop` is set. Lines that it says go to `say`, everything else that it prints to the file `log`.

    The pause before it is started again doubles from one second to `pause_s_max`. How it is can be seen in `condition`.
    """
    condition = condition or DetectionState()

    def tell(line: str) -> None:
        condition.lines += 1
        say(line)

    loop = asyncio.get_running_loop()
    pause_s = PAUSE_S
    while not stop.is_set():
        began = loop.time()
        reason = await _run(job, log, stop, tell, condition)
        if stop.is_set():
            return
        condition.ended, condition.reason = condition.ended + 1, reason
        pause_s = PAUSE_S if loop.time() - began > HEALTHY_S else pause_s
        tell(f"{ENDED}{reason}; it is started again in {pause_s:g} s, and {log} has the details")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(2 * pause_s, pause_s_max)


async def _run(job: JobFolder, log: Path, stop: asyncio.Event, say: Say, condition: DetectionState) -> str:
    """Run the process once; return why it has ended."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as errors:
        process = await start_child(
            asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "spark_detect.driver.process",
                str(job.folder),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                # Ctrl-C at a terminal goes to everyone there; this one gets its signal from us, and from the kernel.
                start_new_session=True,
                env=_environment(os.environ),
                preexec_fn=_end_with_parent,
            )
        )
    condition.process = process.pid
    relaying = asyncio.create_task(_relay(process, say))
    stopping = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait([stopping, ended], return_when=asyncio.FIRST_COMPLETED)
        code = await _end(process, ended)
        return await relaying or f"its process has ended with {_outcome(code)}"
    finally:
        await kill_child(process)
        stopping.cancel()
        await relaying


async def _end(process: asyncio.subprocess.Process, ended: asyncio.Task[int]) -> int:
    if not ended.done():
        with suppress(ProcessLookupError):
            process.terminate()
        await asyncio.wait([ended], timeout=STOP_TIMEOUT_S)
    await kill_child(process)
    return await ended


async def _relay(process: asyncio.subprocess.Process, say: Say) -> str | None:
    """Hand on what the process says, but for why it ends: return that, if it says so."""
    reason = None
    if process.stdout is None:
        return reason
    async for line in process.stdout:
        text = line.decode("utf-8", "replace").rstrip()
        if text.startswith(ENDED):
            reason = text.removeprefix(ENDED)
        else:
            say(text)
    return reason


def _outcome(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Return the process's variables: without our settings, whose secrets it needs none of, and with this package."""
    kept = {name: value for name, value in ours.items() if not name.startswith("LAKEPROOF_")}
    paths = [str(PACKAGES), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
