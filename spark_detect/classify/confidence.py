# SPDX-License-Identifier: Apache-2.0
"""
From counts to findings: how sure a column's name and values make us that it holds personal data.

Confidence is 65 percent for an indicative name alone, 55 for matching values alone, 92 for both. A column without
values has no finding, whatever it is called.

Values match if there are enough of them, and if they are not what chance makes of something else. Numbers of 16 digits
pass Luhn one time in ten; identifiers in the form of an IBAN pass modulo 97 one time in 97; part numbers cut 3-2-4
could be a social security number eight times in nine; random digits cut 3-3-4 could be a phone 57 times in 100. So the
valid share of the candidates has to lie well above that chance (the lift): above a fixed share, so that a great column
does not turn a slight excess into evidence, and by more than luck would do in a small one. Luck is bounded by Chernoff:
if each of n candidates is valid with probability p, then at least k are with a probability of at most exp(-n D(k/n,
p)), D being the relative entropy of two coins. The bound holds for every n, and is exact for k = n.

That takes the candidates to be independent, which a number repeated in every row is not. Where values alone are the
evidence, the valid ones must therefore be spread as well (`PatternCounts.spread`). An indicative name makes the demand
smaller, since it is a second witness: one valid card number in a column of that name will do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Final

from ledger.format.events import DetectionKind
from spark_detect.classify.counts import ColumnCounts, Pattern, PatternCounts
from spark_detect.classify.names import kinds_of_name

NAME_PERCENT: Final = 65
VALUES_PERCENT: Final = 55
BOTH_PERCENT: Final = 92


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFinding:
    """A column looks like personal data of `kind`: `matches` of its `values` passed pattern and validator."""

    kind: DetectionKind
    confidence_percent: int
    matches: int
    values: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """
    What counts must show before values are evidence; shares are in percent.

    `cells_percent` is the least share of the values that must match, `valid_percent` the least valid share of the
    candidates, `surprise` the least number of nats (negative logarithm of a probability) by which chance is ruled out,
    `spread` the least number of buckets that valid numbers fall into.
    """

    cells_percent: int
    valid_percent: int
    surprise: float = 0.0
    spread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindThresholds:
    """
    How the counts of a kind are judged.

    `chance_per_mille` is the valid share of candidates among what only looks alike, 0 if there is none of that sort.
    """

    pattern: Pattern
    bare: Pattern | None
    chance_per_mille: int
    alone: Threshold
    named: Threshold


THRESHOLDS: Final = {
    DetectionKind.US_SSN: KindThresholds(
        pattern=Pattern.US_SSN,
        bare=Pattern.US_SSN_BARE,
        chance_per_mille=889,  # 898 areas of 1,000, 99 groups of 100
        alone=Threshold(cells_percent=1, valid_percent=97, surprise=4.6, spread=6),
        named=Threshold(cells_percent=5, valid_percent=50),
    ),
    DetectionKind.EMAIL: KindThresholds(
        pattern=Pattern.EMAIL,
        bare=None,
        chance_per_mille=0,
        alone=Threshold(cells_percent=1, valid_percent=50),
        named=Threshold(cells_percent=5, valid_percent=50),
    ),
    DetectionKind.CREDIT_CARD: KindThresholds(
        pattern=Pattern.CREDIT_CARD,
        bare=None,
        chance_per_mille=100,  # one check digit in ten is right
        alone=Threshold(cells_percent=1, valid_percent=30, surprise=11.5, spread=6),
        named=Threshold(cells_percent=5, valid_percent=30, surprise=2.3),
    ),
    DetectionKind.PHONE: KindThresholds(
        pattern=Pattern.PHONE,
        bare=Pattern.PHONE_BARE,
        chance_per_mille=570,  # 720 areas of 1,000, 792 exchanges of 1,000
        alone=Threshold(cells_percent=10, valid_percent=70, surprise=3.0),
        named=Threshold(cells_percent=5, valid_percent=30),
    ),
    DetectionKind.IBAN: KindThresholds(
        pattern=Pattern.IBAN,
        bare=None,
        chance_per_mille=10,  # 1 of 97 remainders
        alone=Threshold(cells_percent=1, valid_percent=10, surprise=11.5, spread=3),
        named=Threshold(cells_percent=5, valid_percent=10, surprise=2.3),
    ),
}


def classify(path: str, counts: ColumnCounts) -> tuple[ColumnFinding, ...]:
    """
    Return what a column looks like: at most one finding a kind, in the order of `DetectionKind`.

    `path` is the column's name in the table's schema, `a.b` for a member of a struct; `counts` are those of all its
    parts.
    """
    if counts.values == 0:
        return ()
    indicated = kinds_of_name(path)
    findings = (_judge(kind, counts, is_indicated=kind in indicated) for kind in DetectionKind)
    return tuple(finding for finding in findings if finding is not None)


def surprise(valid: int, candidates: int, *, chance_per_mille: int) -> float:
    """
    Return -ln of the most that luck can do: that at least `valid` of `candidates` are valid, each with that chance.

    Chernoff's bound, n D(k/n, p); 0 if no more than expected are valid, infinite if the chance is 0.
    """
    if candidates == 0 or valid * 1000 <= candidates * chance_per_mille:
        return 0.0
    if chance_per_mille == 0:
        return inf
    share, chance = valid / candidates, chance_per_mille / 1000
    divergence = share * log(share / chance)
    if valid < candidates:
        divergence += (1 - share) * log((1 - share) / (1 - chance))
    return candidates * divergence


def _judge(kind: DetectionKind, counts: ColumnCounts, *, is_indicated: bool) -> ColumnFinding | None:
    evidence = THRESHOLDS[kind]
    seen = counts.of(evidence.pattern)
    if is_indicated:
        # Digits without punctuation are evidence only where the name says what they are.
        seen = seen if evidence.bare is None else seen + counts.of(evidence.bare)
        met = _meets(seen, counts.values, evidence.named, evidence.chance_per_mille)
        percent = BOTH_PERCENT if met else NAME_PERCENT
    elif _meets(seen, counts.values, evidence.alone, evidence.chance_per_mille):
        percent = VALUES_PERCENT
    else:
        return None
    # A value that holds one number with punctuation and one without is counted under both patterns.
    matches = min(seen.cells, counts.values)
    return ColumnFinding(kind=kind, confidence_percent=percent, matches=matches, values=counts.values)


def _meets(seen: PatternCounts, values: int, demand: Threshold, chance_per_mille: int) -> bool:
    return (
        seen.cells > 0
        and seen.cells * 100 >= values * demand.cells_percent
        and seen.valid * 100 >= seen.candidates * demand.valid_percent
        and surprise(seen.valid, seen.candidates, chance_per_mille=chance_per_mille) >= demand.surprise
        and seen.spread.bit_count() >= demand.spread
    )
