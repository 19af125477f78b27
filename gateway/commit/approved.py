"""
A mutation that was approved and is to be made: what the two ways of making it (`swapping.py`, `forwarding.py`) share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.catalogs.catalog import Change, Loaded
from gateway.commit.events import Requested
from gateway.commit.gateway import Gateway
from gateway.commit.judgement import Judgement
from gateway.commit.metrics import Done
from gateway.mutations import Mutation


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
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

    gateway: Gateway
    log_id: int
    requested: Requested
    judgement: Judgement
    loaded: Loaded
    change: Change
    is_last: bool
    done: Done

    @property
    def mutation(self) -> Mutation:
        """Return the mutation that is to be made."""
        return self.requested.mutation

    def answer(self, shown: bytes | None) -> Changed:
        """Return what the engine is told once it is made."""
        return Changed(mutation=self.mutation, loaded=self.loaded, change=self.change, shown=shown)
