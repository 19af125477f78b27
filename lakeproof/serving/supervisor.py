# SPDX-License-Identifier: Apache-2.0
"""
Keeps child processes running: forks them, forks one that has died again after a pause, and stops them in order.

The supervisor has one thread, no event loop and no connection, because a fork copies memory and descriptors, but no
other threads. What it has imported before a fork is shared with the child, so a child starts in milliseconds and costs
only the memory that it writes to.

Guarantee: no child is left behind. When the supervisor ends, it has ended its children, which it kills if they do not
end by themselves. If it is killed itself, the kernel closes the pipe whose end every child waits for (`Line.orphaned`).
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from lakeproof.errors import ProcessError
from lakeproof.messages import Say

PAUSE_S: Final = 0.5
"""The pause before the first restart; it doubles with each."""
PAUSE_S_MAX: Final = 30.0
HEALTHY_S: Final = 30.0
"""A process that ran as long begins again with the shortest pause."""
STOP_TIMEOUT_S: Final = 45.0
"""How long a process may take to end: longer than a gateway takes for requests that have begun, and Spark to end."""
BROKEN_DOWN: Final = 70
NAME_LENGTH_MAX: Final = 15
"""Of a process's name in Linux."""
TEXT_LENGTH_MAX: Final = 2_000
"""Of what a child says of its end: a pipe takes that without anyone reading."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)


class Reason(StrEnum):
    """Why a process has ended by itself."""

    CORRUPT = "corrupt"  # what is stored is not what it must be: people decide what is done
    REFUSED = "refused"  # it cannot be started before people have changed something
    FAILED = "failed"  # anything else: it is started again


@dataclass(frozen=True, slots=True)
class Line:
    """A child's line to its supervisor."""

    _messages: int
    orphaned: int
    """A descriptor that becomes readable when the supervisor is gone."""

    def ready(self) -> None:
        """Say that what others wait for is done."""
        self._send({"ready": True})

    def ended(self, reason: Reason, text: str) -> None:
        """Say why the process is about to end; `text` is for people."""
        self._send({"reason": reason, "text": text[:TEXT_LENGTH_MAX]})

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the supervisor is gone, and so is this process soon
            os.write(self._messages, json.dumps(message).encode() + b"\n")


Work: TypeAlias = Callable[[Line], int]
"""What a child does until it is told to end by SIGTERM; returns its exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    One process: its name, its stage, and what imports its modules and returns its work.

    A stage is started when all processes of the stage before have been ready once; the last stage is stopped first.
    """

    name: str
    stage: int
    load: Callable[[], Work]


@dataclass(slots=True)
class _Child:
    """The present state of one planned process. The supervisor's alone."""

    plan: Plan
    pause_s: float
    """Before it is started again."""
    work: Work | None = None
    pid: int | None = None
    messages: int = -1
    """Our end of the pipe that it writes to."""
    received: bytes = b""
    began_s: float = 0.0
    is_ready: bool = False
    """Whether the process that runs now, or ran last, was ready."""
    was_ready: bool = False
    """Whether any was."""
    reason: Reason = Reason.FAILED
    text: str = ""
    due_s: float | None = None
    """When it is started again."""


@dataclass(slots=True, kw_only=True)
class Observer:
    """Who is told what happens to processes, by name."""

    started: Callable[[str], None] = lambda _: None
    """Called before each fork."""
    ready: Callable[[str], None] = lambda _: None
    ended: Callable[[str], None] = lambda _: None
    stopping: Callable[[], None] = lambda: None
    """Called before the first process is told to end."""


class Supervisor:
    """Runs the processes of some plans, see `run`."""

    def __init__(
        self,
        plans: Sequence[Plan],
        say: Say,
        *,
        observer: Observer | None = None,
        pause_s: float = PAUSE_S,
        stop_timeout_s: float = STOP_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._children = [_Child(plan, pause_s=pause_s) for plan in plans]
        self._pause_s = pause_s
        self._say = say
        self._observer = observer or Observer()
        self._stop_timeout_s = stop_timeout_s
        self._clock = clock
        self._stops = 0
        """How often SIGINT or SIGTERM has arrived."""
        self._lifeline = (-1, -1)
        self._wakeup = (-1, -1)

    def run(self) -> None:
        """
        Run all processes until SIGINT or SIGTERM; none of them runs when this returns or raises.

        Raises:
            ProcessError: if a process met corruption, or cannot be started before people have changed something.
        """
        with self._pipes(), self._signals():
            try:
                gc.disable()  # imports make many objects, and no garbage
                self._start_stages()
                gc.enable()
                while not self._stops:
                    self._turn()
                self._say("stopping")
            finally:
                self._stop()

    def _start_stages(self) -> None:
        for stage in sorted({child.plan.stage for child in self._children}):
            children = [child for child in self._children if child.plan.stage == stage]
            for child in children:
                child.work = child.plan.load()  # the processes of the stage before get ready meanwhile
            while not self._stops and not all(c.was_ready for c in self._children if c.plan.stage < stage):
                self._turn()
            if self._stops:
                return
            for child in children:
                self._start(child)

    def _turn(self) -> None:
        """Wait for something to happen, and do what is due."""
        due = [child.due_s for child in self._children if child.due_s is not None]
        self._wait(max(0.0, min(due) - self._clock()) if due else None)
        for child in self._children:
            if not self._stops and child.due_s is not None and child.due_s <= self._clock():
                self._start(child)

    def _wait(self, timeout_s: float | None) -> None:
        """Wait for a signal or a message at most so long; take messages, and notice who has ended."""
        pipes = [child.messages for child in self._children if child.messages >= 0]
        for ready in select.select([self._wakeup[0], *pipes], [], [], timeout_s)[0]:
            if ready == self._wakeup[0]:
                with suppress(BlockingIOError):
                    os.read(ready, 4_096)
        for child in self._children:
            self._receive(child)
            self._reap(child)

    def _start(self, child: _Child) -> None:
        """Fork a process; if the system has none to give, try again later."""
        if threading.active_count() != 1:
            raise AssertionError("a process with several threads must not fork")
        child.due_s, child.is_ready, child.reason, child.text, child.received = None, False, Reason.FAILED, "", b""
        child.began_s = self._clock()
        self._observer.started(child.plan.name)
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # what was imported: a collection that looked through it in a child would copy all of it
        ours, theirs = os.pipe()
        # A signal that arrives before the child has handlers of its own would only be counted by a copy of ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            pid = os.fork()
            if not pid:
                self._be(child, theirs)
        except OSError as error:
            os.close(ours)
            self._put_off(child, f"it cannot be started: {error.strerror}")
            return
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            os.close(theirs)
        os.set_blocking(ours, False)
        child.pid, child.messages = pid, ours

    def _be(self, child: _Child, messages: int) -> NoReturn:
        """Be the child: work, and end without unwinding into what the supervisor has opened."""
        code = BROKEN_DOWN
        try:
            signal.set_wakeup_fd(-1)
            # Ctrl-C at a terminal goes to everyone there: the supervisor tells us when it is our turn to end.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            gc.enable()
            for descriptor in (*self._wakeup, self._lifeline[1], *(c.messages for c in self._children)):
                if descriptor >= 0:
                    os.close(descriptor)
            with suppress(OSError):  # where there is no such file
                name = f"lp-{child.plan.name}"
                Path("/proc/self/comm").write_bytes(name.encode()[:NAME_LENGTH_MAX])
            if child.work is not None:
                code = child.work(Line(messages, self._lifeline[0]))
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001 - the top of the process
            traceback.print_exc()
        finally:
            os._exit(code)

    def _receive(self, child: _Child) -> None:
        if child.messages < 0:
            return
        with suppress(BlockingIOError):
            while data := os.read(child.messages, 4_096):
                child.received += data
            os.close(child.messages)  # it has ended, or is about to
            child.messages = -1
        *lines, child.received = child.received.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message.get("ready"):
                child.is_ready = child.was_ready = True
                self._observer.ready(child.plan.name)
            else:
                child.reason, child.text = Reason(message["reason"]), message["text"]

    def _reap(self, child: _Child) -> None:
        """Notice that a process has ended; start it again later, unless people have to do something."""
        if child.pid is None:
            return
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if not pid:
            return
        self._receive(child)
        if child.messages >= 0:
            os.close(child.messages)
            child.messages = -1
        child.pid = None
        self._observer.ended(child.plan.name)
        if self._stops:
            return
        text = child.text or _outcome(os.waitstatus_to_exitcode(status))
        if child.reason is Reason.CORRUPT:
            raise ProcessError(f"{child.plan.name}: {text}")
        if child.reason is Reason.REFUSED and not child.is_ready:
            raise ProcessError(text)
        self._put_off(child, text)

    def _put_off(self, child: _Child, text: str) -> None:
        now_s = self._clock()
        if now_s - child.began_s >= HEALTHY_S:
            child.pause_s = self._pause_s
        self._say(f"{child.plan.name} has ended ({text}); it is started again in {child.pause_s:g} s")
        child.due_s = now_s + child.pause_s
        child.pause_s = min(2 * child.pause_s, PAUSE_S_MAX)

    def _stop(self) -> None:
        """End all processes, the last stage first. A second signal, or a process that takes too long, is SIGKILL."""
        told = self._stops = max(self._stops, 1)
        self._observer.stopping()
        for stage in sorted({child.plan.stage for child in self._children}, reverse=True):
            children = [child for child in self._children if child.plan.stage == stage]
            for child in children:
                self._kill(child, signal.SIGTERM)
            deadline_s = self._clock() + self._stop_timeout_s
            while any(child.pid is not None for child in children):
                left_s = deadline_s - self._clock()
                if left_s <= 0 or self._stops > told:
                    for child in children:
                        if child.pid is not None:
                            self._say(f"{child.plan.name} has not ended, and is killed")
                            self._kill(child, signal.SIGKILL)
                    deadline_s, told = self._clock() + self._stop_timeout_s, self._stops
                else:
                    self._wait(left_s)

    def _kill(self, child: _Child, number: signal.Signals) -> None:
        if child.pid is not None:  # nobody else waits for it, so its number is not given away before we have
            os.kill(child.pid, number)

    @contextmanager
    def _pipes(self) -> Iterator[None]:
        """Open what children notice our end by, and what wakes us at a signal."""
        self._lifeline, self._wakeup = os.pipe(), os.pipe()
        for descriptor in self._wakeup:
            os.set_blocking(descriptor, False)
        try:
            yield
        finally:
            for descriptor in (*self._lifeline, *self._wakeup):
                os.close(descriptor)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Count signals that end us, and wake up at these and when a child has ended."""

        def count(_number: int, _frame: object) -> None:
            self._stops += 1

        with ExitStack() as stack:
            handlers: dict[signal.Signals, Callable[[int, object], None]] = {
                signal.SIGINT: count,
                signal.SIGTERM: count,
                signal.SIGCHLD: lambda _number, _frame: None,
            }
            for number, handler in handlers.items():
                stack.callback(signal.signal, number, signal.signal(number, handler))
            stack.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False))
            yield


def _outcome(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"
    return f"exit code {code}"
