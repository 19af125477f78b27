# SPDX-License-Identifier: Apache-2.0
"""
An approved mutation and its result: the input and output of `swapping.py` and `forwarding.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gateway.catalogs.catalog import Change, Loaded, Shown
from gateway.commit.decision_ids import DecisionIds
from gateway.commit.events import Requested
from gateway.commit.gateway import Gateway
from gateway.commit.judgement import Judgement
from gateway.commit.metrics import Done
from gateway.mutations import Mutation
from ledger.values import value_class


@value_class
class Changed:
    """
    The result of a mutation that was made: the target before (`loaded`) and after (`change`).

    `shown` is what the engine sees: always for a table, for a namespace if a foreign catalog answered with one.
    `left` is the target as `loaded` would find it now; None if that is not known without loading it.
    """

    mutation: Mutation
    loaded: Loaded
    change: Change
    shown: Shown | None
    left: Loaded | None = None

    @property
    def before_properties(self) -> Mapping[str, str]:
        """Return the properties of a namespace before the change."""
        return self.loaded.properties or {}


@dataclass(frozen=True, slots=True)
class Judged:
    """A request, or the other end of a rename as a request of its own, its judgement, and the time of judging."""

    requested: Requested
    judgement: Judgement
    at: datetime


@value_class
class Approved:
    """
    An approved request, the state it was judged against (`loaded`), and what it would make of that (`change`).

    A commit that loses a race is judged again by the flow; on the last attempt (`is_last`) it conflicts. `ends` are
    what was judged: the request, and of a rename also its other end. `ids` are those of its decisions.
    """

    gateway: Gateway
    log_id: int
    ends: Sequence[Judged]
    loaded: Loaded
    change: Change
    ids: DecisionIds
    is_last: bool
    done: Done

    @property
    def requested(self) -> Requested:
        """Return the request."""
        return self.ends[0].requested

    @property
    def judgement(self) -> Judgement:
        """Return the judgement of the request, by the same rules as that of its other end."""
        return self.ends[0].judgement

    @property
    def mutation(self) -> Mutation:
        """Return the mutation that is to be made."""
        return self.requested.mutation

    def answer(self, shown: Shown | None, *, left: Loaded | None = None) -> Changed:
        """Return the result once it is made; `left` as in `Changed`."""
        return Changed(mutation=self.mutation, loaded=self.loaded, change=self.change, shown=shown, left=left)
