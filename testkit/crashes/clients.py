# SPDX-License-Identifier: Apache-2.0
"""
The client processes of a campaign, and all that they have said, as it comes.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import IO, Any, Final, cast

from testkit.crashes.client import Plan
from testkit.environment import PROJECT

STOP_TIMEOUT_S: Final = 60.0
CHUNK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Said:
    """A line of a client: what, when, about which snapshot, and what more."""

    client: int
    what: str
    at_s: float
    snapshot: str
    more: tuple[Any, ...]

    @property
    def status(self) -> int:
        """The status of an answer, 0 without one; of `told`."""
        return int(self.more[0])

    @property
    def port(self) -> int:
        """The client's port of the connection; of `sent`."""
        return int(self.more[0])


class Clients:
    """
    Some client processes. `said` grows in a thread of its own, so that no client ever waits for whoever reads it.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self.plans = {plan.number: plan for plan in plans}
        self.said: list[Said] = []
        self._news = threading.Condition()
        self._processes = [self._start(plan) for plan in plans]
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @staticmethod
    def _start(plan: Plan) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "testkit.crashes.client", json.dumps(asdict(plan))]
        return subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_for(self, is_it: Callable[[Said], bool], *, timeout_s: float, after: int | None = None) -> Said | None:
        """Return the first line that is it, of those from number `after` on (None: from now on); None if none came."""
        deadline_s = time.monotonic() + timeout_s
        with self._news:
            read_to = len(self.said) if after is None else after
            while True:
                found = next(filter(is_it, islice(self.said, read_to, None)), None)
                if found is not None:
                    return found
                read_to = len(self.said)
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return None
                self._news.wait(left_s)

    def stop(self) -> list[str]:
        """Let all of them finish what they have begun; return a sentence for each that did not end well."""
        wrong = []
        for process in self._processes:
            cast("IO[bytes]", process.stdin).close()
        for plan, process in zip(self.plans.values(), self._processes, strict=True):
            try:
                code = process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            if code:
                wrong.append(f"client {plan.number} has ended with exit code {code}")
        self._reading.join(STOP_TIMEOUT_S)
        return wrong

    def kill(self) -> None:
        """End all of them at once."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._reading.join(STOP_TIMEOUT_S)

    def _read(self) -> None:
        numbers, rest = list(self.plans), dict.fromkeys(self.plans, b"")
        with selectors.DefaultSelector() as selector:
            for number, process in zip(numbers, self._processes, strict=True):
                selector.register(cast("IO[bytes]", process.stdout), selectors.EVENT_READ, number)
            while selector.get_map():
                for ready, _ in selector.select():
                    output, number = cast("IO[bytes]", ready.fileobj), ready.data
                    data = cast("Any", output).raw.read(CHUNK_BYTES)
                    if not data:
                        selector.unregister(output)
                        output.close()
                        continue
                    *lines, rest[number] = (rest[number] + data).split(b"\n")
                    found = [_parse(number, line) for line in lines]
                    with self._news:
                        self.said += found
                        self._news.notify_all()


def _parse(client: int, line: bytes) -> Said:
    what, at_s, snapshot, *more = json.loads(line)
    return Said(client, what, at_s, snapshot, tuple(more))
