# SPDX-License-Identifier: Apache-2.0
"""
A real Firefox, the one that is installed, driven over WebDriver BiDi by Puppeteer in Node; no browser is downloaded.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from testkit.environment import missing
from testkit.servers.node_program import node_program

PROGRAMS: Final = ("firefox-esr", "firefox")
ANSWER_TIMEOUT_S: Final = 120
LINE_BYTES_MAX: Final = 16 * 1024**2


class FirefoxError(Exception):
    """The browser could not do what it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Firefox:
    """A browser with one page; `version` is what it calls itself."""

    process: Process
    version: str

    async def do(self, action: str, **given: str) -> Any:
        """
        Do one of the actions of `firefox/server.mjs`, and return what it returns.

        Raises:
            FirefoxError: if it cannot be done.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": action, **given}).encode() + b"\n")
        await self.process.stdin.drain()
        return await _answer(self.process)


@asynccontextmanager
async def firefox() -> AsyncIterator[Firefox]:
    """Yield a browser without a window."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing("Firefox is not here, in which pages are tested: install it (Debian: apt-get install firefox-esr)")
    node, driver = await asyncio.to_thread(node_program, Path(__file__).parent / "firefox")
    process = await asyncio.create_subprocess_exec(
        node, str(driver), program, stdin=PIPE, stdout=PIPE, limit=LINE_BYTES_MAX
    )
    assert process.stdin is not None
    try:
        yield Firefox(process=process, version=await _answer(process))
    finally:
        process.stdin.close()
        await process.wait()


async def _answer(process: Process) -> Any:
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), ANSWER_TIMEOUT_S)
    assert line, "the browser has ended"
    answer = json.loads(line)
    if "thrown" in answer:
        raise FirefoxError(answer["thrown"])
    return answer["returned"]
