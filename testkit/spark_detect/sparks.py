# SPDX-License-Identifier: Apache-2.0
"""
Detection as a process of its own, for tests: Spark as `lakeproof up` starts it.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from spark_detect.driver.supervise import supervise
from spark_detect.job_folder import JobFolder
from testkit.servers.java import find_java
from testkit.spark_detect.class_archive import archive_variables
from testkit.spark_detect.lakehouse import Lakehouse

FOUND_TIMEOUT_S = 120


def java_home() -> str:
    """Return the home of a Java 17."""
    return str(find_java().parent.parent)


@dataclass(kw_only=True)
class Sparks:
    """Detection that runs; `said` is what it has said."""

    job: JobFolder
    log: Path
    said: list[str] = field(default_factory=list)

    def pids(self, word: str) -> list[int]:
        """Return the processes of this detection whose command line contains `word`."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                variables = (folder / "environ").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if word in line and f"LP_JOB={self.job.folder}" in variables:
                found.append(int(folder.name))
        return found

    def kill(self, word: str) -> int:
        """Kill those processes; return how many they were."""
        pids = self.pids(word)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)


@asynccontextmanager
async def detecting(lakehouse: Lakehouse, folder: Path) -> AsyncIterator[Sparks]:
    """Run detection over the logs of `lakehouse` while the context is open."""
    lakehouse.java_home = java_home()
    sparks = Sparks(job=JobFolder(folder / "detect"), log=folder / "detect.log")
    sparks.job.write(lakehouse.driver, lakehouse.lake)
    stop = asyncio.Event()
    variables = {"LP_JOB": str(sparks.job.folder), **archive_variables()}
    os.environ.update(variables)
    running = asyncio.create_task(supervise(sparks.job, log=sparks.log, stop=stop, say=sparks.said.append))
    try:
        yield sparks
    finally:
        stop.set()
        await running
        for name in variables:
            del os.environ[name]


async def until(condition: Callable[[], object], sparks: Sparks) -> None:
    """Return when `condition` holds; fail with what detection has said if it does not for two minutes."""
    try:
        async with asyncio.timeout(FOUND_TIMEOUT_S):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{sparks.said}\n{sparks.log.read_text()[-4000:]}") from None
