# SPDX-License-Identifier: Apache-2.0
"""
What access rules have decided about the names of lists: kept, so that the next list evaluates none of it again.

Guarantee: a kept decision is the one that the rules would give. `Asked` has all that a rule can see of a request of a
list, but the name itself and its uuid, and which rules are in force: their digest, whose content never changes. So
nothing is kept longer than it holds: with other rules, another caller or another branch another `Asked` is looked up.
Undecidable ones are never kept.

Bounded in names, over all tenants. Beyond that, what was asked longest ago is dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.policy.access import Access

NAMES_MAX: Final = 200_000
"""Some 40 MB. A list takes one for each of its names, two where rules tell loading a table from seeing that it is."""

Decide = Callable[[Sequence[int]], Awaitable[Sequence[Access]]]
"""Decides on the names at these places."""


class Asked(NamedTuple):
    """One read by one caller under one set of rules, of whatever name in a catalog."""

    log_id: int
    policy_set: str
    actor: str
    roles: tuple[str, ...]
    catalog: str
    kind: str
    operation: str
    branch: str | None


class KnownNames:
    """Decisions on names, by what was asked about them. Event loop only."""

    def __init__(self, *, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._count = 0
        self._kept: OrderedDict[Asked, dict[Hashable, Access]] = OrderedDict()
        """What was asked longest ago comes first."""

    def __len__(self) -> int:
        return self._count

    async def decide(self, asked: Asked, names: Sequence[Hashable], decide: Decide) -> list[Access]:
        """
        Return the decision on each of `names`, each with its uuid if rules see that; `decide` is called for the others.

        Raises as `decide`.
        """
        kept = self._kept.get(asked, {})
        if kept:
            self._kept.move_to_end(asked)
        found = list(map(kept.get, names))
        places = [place for place, one in enumerate(found) if one is None]
        if places:
            decided = await decide(places)
            for place, access in zip(places, decided, strict=True):
                found[place] = access
            certain = {
                names[place]: access
                for place, access in zip(places, decided, strict=True)
                if access is not Access.UNDECIDABLE
            }
            self._keep(asked, certain)
        return [Access.UNDECIDABLE if one is None else one for one in found]

    def _keep(self, asked: Asked, decided: Mapping[Hashable, Access]) -> None:
        kept = self._kept.setdefault(asked, {})
        before = len(kept)
        kept.update(decided)
        self._kept.move_to_end(asked)
        self._count += len(kept) - before
        while self._count > self._names_max:
            _, dropped = self._kept.popitem(last=False)
            self._count -= len(dropped)
