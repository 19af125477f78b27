# SPDX-License-Identifier: Apache-2.0
"""
The fault table: one operation, one statement or step on files, one fault, and what happens then.

A point is a tuple of its coordinates and nothing else: the seed draws the batch, so the same point can be run again.
At each, what the callers were told is held against the logs, every invariant is checked, and then the operation is done
once more under the same ids, after which the logs must be as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeAlias

import psycopg

from ledger.errors import LedgerError
from testkit.ledger.cutting_proxy import Cut, Plan
from testkit.ledger.faults.files import Crash, FileFault, FilePlan, planned
from testkit.ledger.faults.key_trials import EraseTrial, SignTrial
from testkit.ledger.faults.site import Site
from testkit.ledger.faults.trials import AppendTrial, SealTrial, Trial

OPERATIONS: Final[dict[str, Callable[[int, Path], Trial]]] = {
    "append": AppendTrial,
    "seal": SealTrial,
    "sign": SignTrial,
    "erase": EraseTrial,
}

TRANSIENT: Final = ("40001", "40P01", "53100", "53200", "55P03", "57014", "58030")
"""Errors that speak of the server's state: serialization, deadlock, disk, memory, lock, time, input and output."""
LASTING: Final = ("XX000", "23505", "22023", "42501")
"""Errors that speak of what was asked: the group is refused, and no other."""
GONE_S: Final = 0.12
"""The deadline of callers where the server stays away until it has passed."""
WELL_S: Final = 20.0
POINT_S: Final = 60.0
"""After that a point hangs, which is a failure."""


class Fault(StrEnum):
    """What goes wrong at a statement, besides the errors by their SQLSTATE."""

    CUT_BEFORE = "wire cut before"
    CUT_AFTER = "wire cut after"
    LATE = "wire cut, arrives late"
    ENDED_BEFORE = "session ended before"
    ENDED_AFTER = "session ended after"
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    STOP_BEFORE = "server stopped before"
    STOP_AFTER = "server stopped after"
    KILL_BEFORE = "process killed before"
    KILL_AFTER = "process killed after"


CUTS: Final = {
    Fault.CUT_BEFORE: Cut.BEFORE,
    Fault.CUT_AFTER: Cut.AFTER,
    Fault.LATE: Cut.LATE,
    Fault.ENDED_BEFORE: Cut.ENDED_BEFORE,
    Fault.ENDED_AFTER: Cut.ENDED_AFTER,
    Fault.CRASH_BEFORE: Cut.BEFORE,
    Fault.CRASH_AFTER: Cut.AFTER,
    Fault.STOP_BEFORE: Cut.BEFORE,
    Fault.STOP_AFTER: Cut.AFTER,
    Fault.KILL_BEFORE: Cut.BEFORE,
    Fault.KILL_AFTER: Cut.AFTER,
}
CRASHES: Final = {Fault.CRASH_BEFORE, Fault.CRASH_AFTER}
COSTLY: Final = {Fault.STOP_BEFORE, Fault.STOP_AFTER, Fault.KILL_BEFORE, Fault.KILL_AFTER}
"""These take half a second and more: they are sampled."""


class Then(StrEnum):
    """What happens then."""

    WELL = "all is well"
    SOON = "the server is away, and back before the deadline"
    GONE = "the server is away until the deadline"
    AGAIN = "the same happens again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """
    One point of the table. `step` counts statements, or steps on files if `fault` is one of theirs, from 0.

    `fault` is a `Fault`, a SQLSTATE, or a `FileFault` behind `file: `.
    """

    operation: str
    seed: int
    step: int
    fault: str
    then: Then

    @property
    def on_files(self) -> bool:
        """Whether it is a file's step that fails."""
        return self.fault.startswith("file: ")

    def __str__(self) -> str:
        return f"{self.operation}/{self.seed}/{self.step}/{self.fault}/{self.then.name}"


def parse_point(text: str) -> Point:
    """Return the point that was printed so."""
    operation, seed, step, fault, then = text.split("/")
    return Point(operation=operation, seed=int(seed), step=int(step), fault=fault, then=Then[then])


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How a trial goes without a fault: its statements, its steps on files, and what is there in the end."""

    statements: tuple[bytes, ...]
    files: tuple[str, ...]
    refused: list[int]
    strict: object
    loose: object


Stop: TypeAlias = Callable[[Site, Point], Awaitable[None]]
"""Stops the server at once, starts it again, and lets its logs be confirmed."""
Kill: TypeAlias = Callable[[Site, Trial, Plan, Callable[[], None]], Awaitable[None]]
"""Does the trial's work in a process of its own, which is killed when the plan is hit."""


class NotEquippedError(Exception):
    """The fault of a point needs a server of its own, or processes, and the table was given no way to strike these."""


async def _cannot(*_: object) -> None:
    raise NotEquippedError("expected a table made with `stop` and `kill`: this point stops a server or kills a process")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Runs points. `stop` and `kill` are what the costly faults need."""

    stop: Stop = _cannot
    kill: Kill = _cannot

    async def course(self, site: Site, operation: str, seed: int) -> Course:
        """Let a trial go through without a fault, and look at it."""
        with tempfile.TemporaryDirectory(dir=site.directory) as directory:
            trial = OPERATIONS[operation](seed, Path(directory))
            await trial.prepare(site)
            files = FilePlan(0, FileFault.NOT)
            site.proxy.plan = None

            def arm() -> None:
                site.proxy.trace.clear()
                files.seen.clear()

            with planned(files):
                await trial.run(site.reach(direct=False), arm, timeout_s=WELL_S)
            await site.settle()
            statements = tuple(site.proxy.trace)
            await trial.check(site)
            await trial.repeat(site)
            await trial.check(site)
            course = Course(
                refused=trial.refused(),
                statements=statements,
                files=tuple(files.seen),
                strict=await trial.result(site, in_order=True),
                loose=await trial.result(site, in_order=False),
            )
        await site.drop()
        return course

    async def run(self, site: Site, point: Point, course: Course) -> str:
        """
        Run one point; returns at which statement or step the fault happened, "" if it was not reached.

        Raises:
            AssertionError: if somebody was told what is not true, or the log is not as if nothing had happened.
            LedgerError: if an invariant does not hold.
        """
        directory = Path(tempfile.mkdtemp(dir=site.directory))
        late: list[asyncio.Future[None]] = []
        try:
            async with asyncio.timeout(POINT_S):
                return await self._run(site, point, course, directory, late)
        finally:
            for one in late:
                one.cancel()
            site.proxy.plan, site.proxy.accepts = None, True
            shutil.rmtree(directory)

    async def _run(
        self, site: Site, point: Point, course: Course, directory: Path, late: list[asyncio.Future[None]]
    ) -> str:
        trial = OPERATIONS[point.operation](point.seed, directory)
        await trial.prepare(site)
        plan, files = self._plans(site, point, late)
        crashed = asyncio.Event()
        if point.fault in CRASHES:
            plan.then = _both(plan.then, crashed)

        def arm() -> None:
            site.proxy.plan = None if point.on_files else plan
            files.seen.clear()

        timeout_s = GONE_S if point.then is Then.GONE else WELL_S
        if point.fault in {Fault.KILL_BEFORE, Fault.KILL_AFTER}:
            await self.kill(site, trial, plan, arm)
        else:
            with planned(files if point.on_files else None):
                for _ in range(2 if point.then is Then.AGAIN and point.operation in {"sign", "erase"} else 1):
                    await _until(crashed, trial.run(site.reach(direct=False), arm, timeout_s=timeout_s))
        struck = files.seen[point.step] if files.hit else _name_of(plan.statement)
        site.proxy.plan, site.proxy.accepts = None, True
        _deliver(plan)
        await site.settle()
        await trial.check(site)
        # An error of a guard, or one that lasts, refuses one group and lets those behind it pass: asked for again, it
        # comes after them. And parts are sealed one person after the other, in threads: such groups come in any order.
        in_order = point.operation != "seal" and trial.refused() in ([], course.refused)
        await trial.repeat(site)
        await trial.check(site)
        expected, found = course.strict if in_order else course.loose, await trial.result(site, in_order=in_order)
        assert found == expected, f"expected {expected!s:.500}, found {found!s:.500}"
        await site.drop()
        return struck

    def _plans(self, site: Site, point: Point, late: list[asyncio.Future[None]]) -> tuple[Plan, FilePlan]:
        """Return what is to fail on the wire, and on files."""
        if point.on_files:
            return Plan(b"", Cut.NOT), FilePlan(point.step, FileFault(point.fault.removeprefix("file: ")))
        draw = random.Random(str(point))  # noqa: S311 - it is to be repeatable
        cut = CUTS[Fault(point.fault)] if point.fault in list(Fault) else Cut.REFUSED
        plan = Plan(b"", cut, skip=point.step, sqlstate=point.fault)
        loop = asyncio.get_running_loop()

        async def go() -> None:
            if point.then in {Then.SOON, Then.GONE}:
                site.proxy.accepts = False
            if point.then is Then.SOON:
                loop.call_later(draw.uniform(0.02, 0.2), setattr, site.proxy, "accepts", True)

        async def stop() -> None:
            await self.stop(site, point)

        plan.then = stop if point.fault in {Fault.STOP_BEFORE, Fault.STOP_AFTER} else go
        if point.then is Then.AGAIN:
            plan.following = Plan(b"", cut, go, skip=draw.randrange(12), sqlstate=point.fault)
        if point.fault == Fault.LATE and point.then is not Then.GONE:
            late.append(asyncio.ensure_future(_deliver_late(plan, draw.uniform(0.0, 0.1))))
        return plan, FilePlan(0, FileFault.NOT)


async def _until(crashed: asyncio.Event, work: Awaitable[None]) -> None:
    """Let the work run to its end, or until its process has crashed."""
    task = asyncio.ensure_future(work)
    crash = asyncio.ensure_future(crashed.wait())
    await asyncio.wait([task, crash], return_when=asyncio.FIRST_COMPLETED)
    crash.cancel()
    if crashed.is_set():
        task.cancel()
    try:
        await task
    except* (asyncio.CancelledError, Crash, TimeoutError):
        pass


def _both(first: Callable[[], Awaitable[None]] | None, crashed: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def both() -> None:
        if first is not None:
            await first()
        crashed.set()

    return both


async def _deliver_late(plan: Plan | None, seconds: float) -> None:
    while plan is not None:
        await plan.hit.wait()
        await asyncio.sleep(seconds)
        plan.deliver.set()
        plan = plan.following


def _deliver(plan: Plan | None) -> None:
    while plan is not None:
        plan.deliver.set()
        plan = plan.following


def _name_of(statement: bytes) -> str:
    """Name a statement by its first words."""
    words = statement.decode(errors="replace").split()
    return " ".join(words[:3]) if words else ""


def points_of(operation: str, seed: int, course: Course, *, sample: int) -> Iterator[Point]:
    """Yield some of the points of one seed, those that are cheap: spread over steps, faults and what happens then."""
    every = [
        Point(operation=operation, seed=seed, step=step, fault=fault, then=then)
        for step in range(len(course.statements))
        for fault in (*(fault for fault in Fault if fault not in COSTLY), *TRANSIENT, *LASTING)
        for then in Then
        if then not in {Then.SOON, Then.GONE} or fault in list(Fault)
    ]
    every += [
        Point(operation=operation, seed=seed, step=step, fault=f"file: {fault}", then=Then.WELL)
        for step in range(len(course.files))
        for fault in FileFault
        if fault is not FileFault.NOT
    ]
    draw = random.Random(f"{operation} {seed}")  # noqa: S311 - it is to be repeatable
    yield from draw.sample(every, min(sample, len(every)))


def costly_points_of(operation: str, seed: int, course: Course, *, sample: int) -> Iterator[Point]:
    """Yield some of the points of one seed whose fault is a server that is stopped, or a process that is killed."""
    draw = random.Random(f"costly {operation} {seed}")  # noqa: S311 - it is to be repeatable
    every = [
        Point(operation=operation, seed=seed, step=step, fault=fault, then=Then.WELL)
        for step in range(len(course.statements))
        for fault in sorted(COSTLY)
    ]
    yield from draw.sample(every, min(sample, len(every)))


FAILURES: Final = (AssertionError, LedgerError, psycopg.Error, OSError, ExceptionGroup)
"""What a point that fails raises."""
