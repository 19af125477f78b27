# SPDX-License-Identifier: Apache-2.0
"""
What all parts of this bench share: how much is measured, the installation that is measured, and its peer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import pytest

from bench.gateway.installation import Up, lakeproof_up
from bench.gateway.rustberg import running_rustberg
from bench.gateway.target import MissingError, Target
from bench.gateway.wrk import Figures, Load, faults_of, run

WITH_PEER: Final = 8
"""Connections of the comparison's loads, and of most other loads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured. `seconds` are of one run of wrk; `quiet_s` is how long all must rest before one."""

    seconds: float
    quiet_s: float
    rounds: int
    starts: int
    connections: tuple[int, ...]
    processes: tuple[int, ...]
    tables: int
    metadata_bytes: int
    columns: int
    policies: tuple[int, ...]
    foreign_clients: int
    engines: tuple[str, ...]
    appends: int
    statements: int
    tenants: int
    idle_connections: int
    slow_readers: int
    fault_s: float
    sample_s: float


FULL: Final = Scale(
    seconds=8,
    quiet_s=1,
    rounds=7,
    starts=8,
    connections=(1, 8, 16, 64, 256),
    processes=(1, 2, 4),
    tables=10_000,
    metadata_bytes=5 * 2**20,
    columns=3_000,
    policies=(0, 10, 50),
    foreign_clients=16,
    engines=("pyiceberg", "iceberg-go", "spark"),
    appends=20,
    statements=300,
    tenants=4,
    idle_connections=1_000,
    slow_readers=50,
    fault_s=20,
    sample_s=10,
)
QUICK: Final = Scale(
    seconds=1,
    quiet_s=0,
    rounds=1,
    starts=1,
    connections=(1, 8),
    processes=(2,),
    tables=50,
    metadata_bytes=2**18,
    columns=300,
    policies=(2,),
    foreign_clients=4,
    engines=("pyiceberg",),
    appends=2,
    statements=20,
    tenants=3,
    idle_connections=100,
    slow_readers=5,
    fault_s=3,
    sample_s=1,
)


@dataclass(slots=True, kw_only=True)
class Part:
    """What a part has found: its figures, and what must not have happened, a sentence each."""

    figures: Figures = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def measure(self, target: Target, load: Load, what: str) -> Figures:
        """Run wrk; every answer other than 200, and every connection that breaks, is a fault of the gateway."""
        found = run(target, load)
        if target.name == "lakeproof":
            self.faults += faults_of(what, found)
        return found


class Bench:
    """One run of the bench: the program `lakeproof` that it measures, and what several parts use, begun when needed."""

    def __init__(self, program: Path, scale: Scale, stack: ExitStack) -> None:
        self.program = program
        self.scale = scale
        self._stack = stack

    @cached_property
    def up(self) -> Up:
        """The installation with default settings."""
        return self._stack.enter_context(lakeproof_up(self.program))

    @contextmanager
    def catalogs(self) -> Iterator[list[Target]]:
        """Yield a new tenant's catalog, and an empty one of the peer if that is installed."""
        ours = self.up.new_tenant()[1]
        with ExitStack() as stack:
            try:
                peers = [stack.enter_context(running_rustberg())]
            except MissingError:
                peers = []
            yield [ours, *peers]

    def settle(self) -> None:
        """Wait until the installation has nothing left to do of what was measured before."""
        self.up.wait_until_quiet(self.scale.quiet_s)


Measure = Callable[[Bench], Part]


@contextmanager
def skipping() -> Iterator[None]:
    """
    Let helpers of the tests be used here: what would skip a test skips a part.

    Raises:
        MissingError: instead of pytest's own exceptions.
    """
    try:
        yield
    except (pytest.skip.Exception, pytest.fail.Exception) as error:
        raise MissingError(str(error)) from error


def ratio(ours: float, theirs: float) -> float:
    """Return how many times as large ours is."""
    return round(ours / theirs, 2) if theirs else 0.0
