# SPDX-License-Identifier: Apache-2.0
"""
A supervisor with small processes: `python -m testkit.lakeproof.supervised SECONDS PLAN…`. SECONDS is how long a process
may take to end; a plan is NAME:STAGE:WORK.

It prints what the supervisor says, and a line `NAME PID EVENT` for what happens in a process: begun, stopped, alone.
The error that ends the supervisor is printed as `error: …`, and the exit code is 1.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from lakeproof.errors import ProcessError
from lakeproof.serving.supervisor import Line, Observer, Plan, Reason, Supervisor

PAUSE_S: Final = 0.01
ENDED_BY_ITSELF: Final = 3


def show(text: str) -> None:
    """Print a line in one write, so that lines of several processes do not mix."""
    os.write(1, f"{text}\n".encode())


def serve(name: str, line: Line) -> int:
    """Get ready, and work until SIGTERM, or until the supervisor is gone."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGTERM, lambda *_: None)
    show(f"{name} {os.getpid()} begun")
    line.ready()
    ready = select.select([woken, line.orphaned], [], [])[0]
    show(f"{name} {os.getpid()} {'alone' if line.orphaned in ready else 'stopped'}")
    return 0


def get_ready_late(name: str, line: Line) -> int:
    """Serve, but begin when the others could have."""
    time.sleep(0.3)
    return serve(name, line)


def die(_name: str, _line: Line) -> int:
    """End at once, without a reason."""
    return ENDED_BY_ITSELF


def break_down(_name: str, _line: Line) -> int:
    """Raise what nobody has expected."""
    raise RuntimeError("it broke")


def find_corruption(_name: str, line: Line) -> int:
    """Find that something stored is not as it must be, after some time of work."""
    line.ready()
    line.ended(Reason.CORRUPT, "entry fault at index 7")
    return 1


def be_refused(_name: str, line: Line) -> int:
    """Find a setting that is wrong, at the start."""
    line.ended(Reason.REFUSED, "the setting is wrong: correct it")
    return 1


def be_refused_later(_name: str, line: Line) -> int:
    """Work, and then find the same."""
    line.ready()
    return be_refused(_name, line)


def refuse_to_end(name: str, line: Line) -> int:
    """Ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    show(f"{name} {os.getpid()} begun")
    line.ready()
    while True:
        signal.pause()


WORKS: Final[dict[str, Callable[[str, Line], int]]] = {
    work.__name__: work
    for work in (
        serve,
        get_ready_late,
        die,
        break_down,
        find_corruption,
        be_refused,
        be_refused_later,
        refuse_to_end,
    )
}


def plan(text: str) -> Plan:
    """Return the plan that an argument names."""
    name, stage, work = text.split(":")
    return Plan(name=name, stage=int(stage), load=lambda: partial(WORKS[work], name))


def main(arguments: list[str]) -> int:
    """Supervise until a signal, or an error."""
    observer = Observer(stopping=lambda: show("no more is accepted"))
    stop_timeout_s, *plans = arguments
    supervisor = Supervisor(
        list(map(plan, plans)), show, observer=observer, pause_s=PAUSE_S, stop_timeout_s=float(stop_timeout_s)
    )
    try:
        supervisor.run()
    except ProcessError as error:
        show(f"error: {error}")
        return 1
    show("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
