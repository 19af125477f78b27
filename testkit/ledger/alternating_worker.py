# SPDX-License-Identifier: Apache-2.0
"""
One of several processes that take turns: appends as many entries as each line of its input says, then says where it is.

Run as a program with a JSON object (dsn, log_id) as its argument; it ends with its input.
"""

from __future__ import annotations

import asyncio
import json
import sys

from ledger.append.appender import CORE_GUARDS, Appender
from ledger.format.event import GROUP_EVENTS_MAX
from ledger.format.guards import GuardRegistry
from testkit.ledger.appending import appended, event, group


async def take_turns(dsn: str, log_id: int) -> None:
    """Append what each line asks for, in groups as large as they may be."""
    loop = asyncio.get_running_loop()
    async with Appender(dsn, GuardRegistry(CORE_GUARDS)) as appender:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            left = int(line)
            while left:
                events = [event({"n": n}) for n in range(min(left, GROUP_EVENTS_MAX))]
                indices = appended(await appender.append(log_id, group(*events))).indices
                left -= len(events)
            print(indices.stop, flush=True)  # noqa: T201 - the answer to the other process


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    asyncio.run(take_turns(settings["dsn"], settings["log_id"]))
