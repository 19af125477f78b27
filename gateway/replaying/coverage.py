# SPDX-License-Identifier: Apache-2.0
"""
How many recorded decisions have reached each branch of proposed policies: coverage by history.

Guarantee: a decision counts for a branch and a value only if the part gave that value on what was recorded of it. One
for which no policy was asked, to which the policy does not apply, or whose outcome is not known counts for none.

What a program takes on one set of variables are the bits of an integer: two for each of its branches, in the order of
the text, the lower one for true (`cel/inspection.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.policy.inspected import Branch

Taken: TypeAlias = tuple[tuple[str, int], ...]
"""The bits of each policy that was judged on a decision, by its id."""
Place: TypeAlias = Callable[[int, int], tuple[int, int]]
"""Returns the line and column to show for those in an expression."""

TAKEN_MAX: Final = 5_000
"""Different bits that are counted apart before they are added up."""
BRANCHES_MAX: Final = 500
"""Branches that are listed; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A branch of a policy, and how many decisions made it true, and false; of a predicate in a loop, maybe both."""

    branch: Branch
    true: int
    false: int

    @property
    def missing(self) -> tuple[str, ...]:
        """The values that no decision gave it."""
        return tuple(name for name, count in (("true", self.true), ("false", self.false)) if not count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The branches of one policy, in the order of its text."""

    policy: str
    branches: tuple[Reached, ...]

    def shown(
        self, place: Place = lambda line, column: (line, column), *, branches_max: int = BRANCHES_MAX
    ) -> dict[str, Any]:
        """Return it as JSON, with at most `branches_max` branches."""
        listed = self.branches[:branches_max]
        missing = sum(len(one.missing) for one in self.branches)
        return {
            "policy": self.policy,
            "directions": 2 * len(self.branches),
            "taken": 2 * len(self.branches) - missing,
            "branches": [{**_at(one, place), "true": one.true, "false": one.false} for one in listed],
            "missing": [{**_at(one, place), "never": value} for one in listed for value in one.missing],
            "not_listed": len(self.branches) - len(listed),
        }


def coverage_shown(coverage: Sequence[Coverage]) -> list[dict[str, Any]]:
    """
    Return the coverage of several policies as JSON, with at most `BRANCHES_MAX` branches of all together.
    """
    shown, left = [], BRANCHES_MAX
    for one in coverage:
        shown.append(one.shown(branches_max=left))
        left -= len(shown[-1]["branches"])
    return shown


def coverage_lines(shown: Mapping[str, Any]) -> Iterator[str]:
    """
    Yield what `Coverage.shown` returns, for people: first the sum, then each branch that no decision has reached.
    """
    yield "{policy}: {taken} of {directions} directions of branches taken by decisions".format(**shown)
    for one in shown["missing"]:
        yield "  {line}:{column}: never {never}: {part} {text}".format(**one)


class BranchCounts:
    """Counts what decisions have taken of the `branches` of each policy, by its id."""

    def __init__(self, branches: Mapping[str, Sequence[Branch]]) -> None:
        self._branches = branches
        self._counts = {policy: [0] * (2 * len(each)) for policy, each in branches.items()}
        self._taken: Counter[Taken] = Counter()

    def add(self, taken: Taken, times: int) -> None:
        """Count some decisions that have taken the same."""
        self._taken[taken] += times
        if len(self._taken) > TAKEN_MAX:
            self._add_up()

    def coverage(self) -> tuple[Coverage, ...]:
        """Return what was counted."""
        self._add_up()
        return tuple(
            Coverage(
                policy=policy,
                branches=tuple(
                    Reached(branch=branch, true=counts[2 * place], false=counts[2 * place + 1])
                    for place, branch in enumerate(self._branches[policy])
                ),
            )
            for policy, counts in self._counts.items()
        )

    def _add_up(self) -> None:
        for taken, times in self._taken.items():
            for policy, bits in taken:
                counts = self._counts[policy]
                for place in range(min(bits.bit_length(), len(counts))):
                    if bits >> place & 1:
                        counts[place] += times
        self._taken.clear()


def _at(one: Reached, place: Place) -> dict[str, Any]:
    line, column = place(one.branch.line, one.branch.column)
    return {"line": line, "column": column, "part": one.branch.role, "text": one.branch.text}
