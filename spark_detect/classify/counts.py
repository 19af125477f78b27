# SPDX-License-Identifier: Apache-2.0
"""
What a scan brings home of one column: counts, never a value.

Counts of parts of a column add up to those of the whole, in any order: `+` is associative and commutative, and
`ColumnCounts()` is its zero. They travel as plain integers, each of which fits 63 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final

from spark_detect.errors import DetectionError


class Pattern(IntEnum):
    """
    The patterns that are counted; the number is a row of a kernel's result.

    The bare ones are digits without punctuation, or with none but spaces. They are too common to tell anything by
    themselves, and count only in a column whose name says what they are.
    """

    US_SSN = 0
    US_SSN_BARE = 1
    EMAIL = 2
    CREDIT_CARD = 3
    PHONE = 4
    PHONE_BARE = 5
    IBAN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternCounts:
    """
    What was seen of one pattern.

    `candidates` are places that have its form, `valid` those of them that its validator accepts as well, `cells` the
    values with at least one valid place. `spread` has bit n set if a valid one fell into bucket n of 32: how many
    buckets are filled tells many different numbers from one that is repeated, and no number can be read from it.
    """

    candidates: int = 0
    valid: int = 0
    cells: int = 0
    spread: int = 0

    def __add__(self, other: PatternCounts) -> PatternCounts:
        return PatternCounts(
            candidates=self.candidates + other.candidates,
            valid=self.valid + other.valid,
            cells=self.cells + other.cells,
            spread=self.spread | other.spread,
        )


_MEMBERS: Final = tuple(field.name for field in fields(PatternCounts))
_NOTHING: Final = tuple(PatternCounts() for _ in Pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCounts:
    """The counts of a column, or of a part of it: `values` that are not null, and one `PatternCounts` a pattern."""

    values: int = 0
    patterns: tuple[PatternCounts, ...] = _NOTHING

    def __add__(self, other: ColumnCounts) -> ColumnCounts:
        return ColumnCounts(
            values=self.values + other.values,
            patterns=tuple(a + b for a, b in zip(self.patterns, other.patterns, strict=True)),
        )

    def of(self, pattern: Pattern) -> PatternCounts:
        """Return the counts of one pattern."""
        return self.patterns[pattern]

    def to_ints(self) -> tuple[int, ...]:
        """Return the counts as 29 integers: the values, then the four of each pattern."""
        return (self.values, *(getattr(counts, name) for counts in self.patterns for name in _MEMBERS))

    @classmethod
    def from_ints(cls, ints: Sequence[int]) -> ColumnCounts:
        """
        Return the counts that `to_ints` made these of.

        Raises:
            DetectionError: if there are more or fewer than 29, or one is negative.
        """
        expected = 1 + len(Pattern) * len(_MEMBERS)
        if len(ints) != expected or any(number < 0 for number in ints):
            raise DetectionError(f"expected {expected} counts of 0 or more, found {list(ints)!r}")
        rows = (ints[start : start + len(_MEMBERS)] for start in range(1, expected, len(_MEMBERS)))
        patterns = tuple(PatternCounts(**dict(zip(_MEMBERS, row, strict=True))) for row in rows)
        return cls(values=ints[0], patterns=patterns)
