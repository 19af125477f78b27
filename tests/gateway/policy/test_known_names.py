# SPDX-License-Identifier: Apache-2.0
"""
Decisions on names of lists: kept for exactly what was asked, bounded, and never where they are not certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.errors import UnavailableError
from gateway.policy.access import Access
from gateway.policy.known_names import Asked, KnownNames

ASKED = Asked(
    log_id=1,
    policy_set="ab",
    actor="a" * 32,
    roles=("reader",),
    catalog="lake",
    kind="table",
    operation="table.load",
    branch=None,
)
OTHERS: dict[str, Any] = {
    "log_id": 2,
    "policy_set": "cd",
    "actor": "b" * 32,
    "roles": (),
    "catalog": "other",
    "kind": "view",
    "operation": "table.exists",
    "branch": "main",
}


class Rules:
    """Permits names that begin with p, cannot decide on those with u, and counts what it was asked."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.asked: list[str] = []

    async def __call__(self, places: Sequence[int]) -> list[Access]:
        found = [self.names[place] for place in places]
        self.asked += found
        known = {"p": Access.PERMITTED, "u": Access.UNDECIDABLE}
        return [known.get(name[0], Access.DENIED) for name in found]


async def asked(known: KnownNames, names: Sequence[str], what: Asked = ASKED) -> tuple[list[Access], list[str]]:
    rules = Rules(names)
    return await known.decide(what, names, rules), rules.asked


async def test_a_name_is_decided_once_and_an_undecidable_one_again() -> None:
    known = KnownNames()
    first = await asked(known, ["p1", "d1", "u1"])
    assert first == ([Access.PERMITTED, Access.DENIED, Access.UNDECIDABLE], ["p1", "d1", "u1"])
    assert await asked(known, ["u1", "d1", "p2", "p1"]) == (
        [Access.UNDECIDABLE, Access.DENIED, Access.PERMITTED, Access.PERMITTED],
        ["u1", "p2"],
    )
    assert len(known) == 3


@pytest.mark.parametrize("member", OTHERS)
async def test_nothing_is_known_of_what_was_asked_otherwise(member: str) -> None:
    known = KnownNames()
    await asked(known, ["p1"])
    _, again = await asked(known, ["p1"], ASKED._replace(**{member: OTHERS[member]}))
    assert again == ["p1"]
    assert set(OTHERS) == set(Asked._fields)


async def test_what_was_asked_longest_ago_is_dropped() -> None:
    known = KnownNames(names_max=3)
    other, third = ASKED._replace(actor="b"), ASKED._replace(actor="c")
    await asked(known, ["p1", "p2"])
    await asked(known, ["p1"], other)
    await asked(known, ["p1"])
    await asked(known, ["p1"], third)
    assert (len(known), (await asked(known, ["p1", "p2"]))[1]) == (3, [])
    assert (await asked(known, ["p1"], other))[1] == ["p1"]


async def test_a_list_of_more_names_than_are_kept_is_decided_all_the_same() -> None:
    known = KnownNames(names_max=3)
    names = [f"p{number}" for number in range(10)]
    assert (await asked(known, names))[0] == [Access.PERMITTED] * 10
    assert len(known) == 0


async def test_nothing_is_kept_of_a_list_that_could_not_be_judged() -> None:
    known = KnownNames()

    async def fails(_: Sequence[int]) -> list[Access]:
        raise UnavailableError("no answer")

    with pytest.raises(UnavailableError):
        await known.decide(ASKED, ["p1"], fails)
    assert len(known) == 0
