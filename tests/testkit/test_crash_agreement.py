# SPDX-License-Identifier: Apache-2.0
"""What a campaign of kills checks: every way in which tables, log and answers can disagree is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pytest

from testkit.crashes.agreement import Accepted, Intended, Told, check_agreement, unrecorded

TABLE: Final = "table:far/p0/shared"
OTHER: Final = "table:far/p0/own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What there is at the end of a phase."""

    intended: Mapping[str, Intended]
    told: Sequence[Told]
    accepted: Sequence[Accepted]
    tables: Mapping[str, frozenset[str]]

    def check(self) -> list[str]:
        return check_agreement(self.intended, self.told, accepted=self.accepted, tables=self.tables)


def told(snapshot: str, status: int, *, shows_it: bool = False) -> Told:
    return Told(snapshot=snapshot, status=status, shows_it=shows_it)


GOOD: Final = Outcome(
    intended={
        "1": Intended(client=0, table=TABLE, has_idempotency_key=True),
        "2": Intended(client=1, table=TABLE, has_idempotency_key=False),
        "3": Intended(client=1, table=TABLE, has_idempotency_key=False),
        "4": Intended(client=2, table=OTHER, has_idempotency_key=False),
        "5": Intended(client=2, table=OTHER, has_idempotency_key=False),
    },
    # The first was answered after it was sent again, the second conflicted, and nobody knows of the third.
    told=[
        told("1", 0),
        told("1", 503),
        told("1", 200, shows_it=True),
        told("2", 409),
        told("3", 504),
        told("4", 0),
        told("5", 503),
    ],
    accepted=[
        Accepted(index=7, table=TABLE, snapshots=("1",), request="a"),
        Accepted(index=9, table=TABLE, snapshots=("3",), request="b"),
    ],
    tables={TABLE: frozenset({"1", "3"}), OTHER: frozenset()},
)


def test_what_agrees_is_left_alone() -> None:
    assert GOOD.check() == []
    assert unrecorded(GOOD.accepted, GOOD.tables) == set()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (replace(GOOD, accepted=GOOD.accepted[:1]), "snapshot 3, which no accepted outcome"),
        (replace(GOOD, tables={TABLE: frozenset({"1"}), OTHER: frozenset()}), "snapshot 3 was accepted, which is not"),
        (replace(GOOD, tables={TABLE: frozenset({"1"}), OTHER: frozenset({"3"})}), "snapshot 3, which no client has"),
        (replace(GOOD, tables={**GOOD.tables, OTHER: frozenset({"6"})}), "snapshot 6, which no client has"),
        (replace(GOOD, accepted=[*GOOD.accepted, replace(GOOD.accepted[1], request="c")]), "snapshot 3 was accepted 2"),
        (replace(GOOD, accepted=[GOOD.accepted[0], replace(GOOD.accepted[1], request="a")]), "request a was accepted"),
        (replace(GOOD, told=[told("4", 200, shows_it=True)]), "told 200 about snapshot 4, which is not there"),
        (replace(GOOD, told=[told("1", 200)]), "told 200 about snapshot 1, but the answer does not show it"),
        (replace(GOOD, told=[told("3", 409)]), "told 409 about snapshot 3, which is there"),
        (replace(GOOD, told=[told("3", 503)]), "told 503 about snapshot 3, which is there"),
        (replace(GOOD, told=[told("2", 401)]), "told 401 about snapshot 2, which is not there: no answer to expect"),
        (replace(GOOD, told=[told("9", 200)]), "a request that nobody intended"),
    ],
)
def test_every_contradiction_is_found(wrong: Outcome, sentence: str) -> None:
    assert any(sentence in each for each in wrong.check()), wrong.check()


def test_a_commit_without_a_record_is_named() -> None:
    assert unrecorded(GOOD.accepted[:1], GOOD.tables) == {(TABLE, "3")}
