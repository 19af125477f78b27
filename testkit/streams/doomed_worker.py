# SPDX-License-Identifier: Apache-2.0
"""
A process that runs a runner until it is killed, by itself at one step or by whoever watches its wire.

Run as a program with a JSON object of settings; it says "ready" on stdout once its runner has begun, and each line on
stdin rings its doorbell.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ledger.append.appender import Appender
from ledger.format.guards import GuardRegistry
from ledger.format.sequence import Appended, Group, Stale
from ledger.store.session import Connection
from streams.handler import Effects, Message
from streams.processing.runner import HandlerRunner
from testkit.streams.answering import Answering


class Doomed(Answering):
    """Answers, unless this process is to die while it handles."""

    def __init__(self, dies_at: str | None) -> None:
        super().__init__()
        self._dies_at = dies_at

    async def handle(self, batch: Sequence[Message], reading: Connection) -> Effects:
        """Answer, or die."""
        if self._dies_at == "handle":
            die()
        return await super().handle(batch, reading)


def die() -> None:
    """End this process as the kernel does when memory is short."""
    os.kill(os.getpid(), signal.SIGKILL)


async def main(settings: dict[str, Any]) -> None:
    """Run until killed, or until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Appender(settings["appender_dsn"], GuardRegistry([])) as appender:
        appended = 0

        async def append(log_id: int, group: Group) -> Appended | Stale:
            nonlocal appended
            answer = await appender.append(log_id, group)
            appended += 1
            if settings["dies_at"] == "append" and appended == settings["after"]:
                die()
            return answer

        wake = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, lambda: wake.set() if sys.stdin.readline() else None)
        options = {name: settings[name] for name in ("batch_max", "lease_s", "poll_s")}
        runner = HandlerRunner(settings["dsn"], [Doomed(settings["dies_at"])], append, **options)
        running = asyncio.create_task(runner.run(stop, wake))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await running


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
