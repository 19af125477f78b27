# SPDX-License-Identifier: Apache-2.0
"""
A trial of the fault table in a process of its own, to be killed without warning.

`killed` starts it and hands it the trial; run as a program, this module does the trial's work.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress

from testkit.environment import PROJECT
from testkit.ledger.cutting_proxy import Plan
from testkit.ledger.faults.site import Reach, Site
from testkit.ledger.faults.trials import Trial

TIMEOUT_S = 20.0


async def killed(site: Site, trial: Trial, plan: Plan, arm: Callable[[], None]) -> None:
    """Let another process do the trial's work, and kill it when `plan` is hit; its answers die with it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "testkit.ledger.faults.worker"),
        cwd=PROJECT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )

    async def kill() -> None:
        with suppress(ProcessLookupError):
            process.kill()

    plan.then = kill
    assert process.stdin is not None
    assert process.stdout is not None
    work = pickle.dumps((trial, site.reach(direct=False)))
    process.stdin.write(len(work).to_bytes(8, "big") + work)
    try:
        if await process.stdout.readline() == b"ready\n":
            arm()
            process.stdin.write(b"go\n")
        await process.wait()
    finally:
        await kill()
        await process.wait()


def main() -> None:
    """Do the work that comes on standard input."""
    size = int.from_bytes(sys.stdin.buffer.read(8), "big")
    trial, reach = pickle.loads(sys.stdin.buffer.read(size))  # noqa: S301  (from the process that started this one)
    asyncio.run(work(trial, reach))


async def work(trial: Trial, reach: Reach) -> None:
    """Do the trial's work once the other process is ready to kill this one."""

    def arm() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.buffer.readline()

    await trial.run(reach, arm, timeout_s=TIMEOUT_S)


if __name__ == "__main__":
    main()
