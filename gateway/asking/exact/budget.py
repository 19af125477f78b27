# SPDX-License-Identifier: Apache-2.0
"""
What a decision may take: steps, and time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_LOOKED_EVERY: Final = 1_000


class OverBudgetError(Exception):
    """Nothing is known: the steps or the time were over before."""


@dataclass(slots=True, kw_only=True)
class Budget:
    """Steps that are left, and the time at which it ends by `clock` (in seconds)."""

    steps: int
    ends_s: float
    clock: Callable[[], float]
    _looked_at: int = 0

    def spend(self, steps: int) -> None:
        """
        Take so many steps.

        Raises:
            OverBudgetError: if there are no more, or the time is over.
        """
        self.steps -= steps
        self._looked_at += steps
        if self.steps < 0:
            raise OverBudgetError
        if self._looked_at > _LOOKED_EVERY:
            self._looked_at = 0
            if self.clock() > self.ends_s:
                raise OverBudgetError
