"""
A mutation that was approved and is to be made: what the two ways of making it (`swapping.py`, `forwarding.py`) share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gateway.catalogs import Change, Loaded
from gateway.commit.events import Requested
from gateway.commit.house import House
from gateway.commit.judgement import Judgement
from gateway.mutations import Mutation

Step: TypeAlias = Callable[[int], None]
"""Called with the number of each step when it is done: for latency metrics, and for tests that stop the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """
    What the engine is told when all went well: the target as it is now.

    `shown` is the body of the answer: of a table always, of a namespace if a catalog elsewhere has answered with one.
    """

    mutation: Mutation
    loaded: Loaded
    change: Change
    shown: bytes | None

    @property
    def before_properties(self) -> Mapping[str, str]:
        """Return the properties of a namespace before the change."""
        return self.loaded.properties or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """
    What was asked for, what it was judged against (`loaded`), and what it would make of that (`change`).

    Whoever loses a race says so to the flow, which judges again; on the last attempt (`is_last`), to the engine.
    """

    house: House
    log_id: int
    requested: Requested
    judgement: Judgement
    loaded: Loaded
    change: Change
    is_last: bool
    step: Step

    @property
    def mutation(self) -> Mutation:
        """Return the mutation that is to be made."""
        return self.requested.mutation

    def answer(self, shown: bytes | None) -> Answer:
        """Return what the engine is told once it is made."""
        return Answer(mutation=self.mutation, loaded=self.loaded, change=self.change, shown=shown)
