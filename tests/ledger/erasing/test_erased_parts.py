# SPDX-License-Identifier: Apache-2.0
"""Which payload parts a log says are erased: exactly those that its erasures name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final, NamedTuple

import pytest

from ledger.erasing.rerun import ErasedParts
from ledger.format.events import ErasureReason, PayloadErased

ADA, EVE = "ad" * 16, "e0" * 16
DECIDED, LINEAGE = "commit.decided", "lineage.received"


class Place(NamedTuple):
    """A part of an entry."""

    at: int
    type: str
    part: str
    subject: str | None


PLACES: Final = [
    Place(*each) for each in product(range(4), (DECIDED, LINEAGE), ("inputs", "principal"), (ADA, EVE, None))
]


def erased(**named: Any) -> PayloadErased:
    nothing = dict.fromkeys(("before", "index", "name", "subject", "type"))
    return PayloadErased(reason=ErasureReason.REQUEST, **{**nothing, **named})


@pytest.mark.parametrize(
    ("erasures", "is_named"),
    [
        ([], lambda _: False),
        ([erased(subject=ADA)], lambda place: place.subject == ADA),
        ([erased(index=2, name="inputs")], lambda place: (place.at, place.part) == (2, "inputs")),
        ([erased(before=2)], lambda place: place.at < 2),
        ([erased(before=3), erased(before=1)], lambda place: place.at < 3),
        ([erased(before=2, name="inputs")], lambda place: place.at < 2 and place.part == "inputs"),
        (
            [erased(before=3, type=LINEAGE), erased(before=2, name="inputs", type=DECIDED), erased(subject=EVE)],
            lambda place: (
                place.subject == EVE
                or (place.at < 3 and place.type == LINEAGE)
                or (place.at < 2 and (place.type, place.part) == (DECIDED, "inputs"))
            ),
        ),
    ],
)
def test_exactly_what_is_named_is_erased(erasures: list[PayloadErased], is_named: Callable[[Place], bool]) -> None:
    told = ErasedParts(erasures)
    for place in PLACES:
        assert told.covers(index=place.at, type=place.type, part=place.part, subject=place.subject) == is_named(
            place
        ), place
