# SPDX-License-Identifier: Apache-2.0
"""
The names of those who wrote entries, for whoever may read on what was judged.

An actor is a pseudonym; who it is stands in a part of each entry, which can be erased. Where it was, there is no name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from gateway.commit.gateway import Gateway
from gateway.http.looking.reading import Looking
from gateway.identity import Principal
from gateway.replaying.callers import names_of
from gateway.replaying.recorded import PRINCIPAL


class Visitor(Protocol):
    """Who looks at a page."""

    @property
    def gateway(self) -> Gateway:
        """What is behind the page."""

    @property
    def caller(self) -> Principal:
        """Who it is."""

    async def looking(self) -> Looking:
        """Return what the visitor may see."""


async def names_in(visit: Visitor, entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the names of the actors of entries of a list, by actor, as the visitor may know them."""
    return await names_by_entry(visit, {each["actor"]: each["index"] for each in entries if PRINCIPAL in each["parts"]})


async def names_by_entry(visit: Visitor, entries: Mapping[str, int]) -> dict[str, str]:
    """Return the names of actors, each with the index of one of its entries, as the visitor may know them."""
    if not entries or not await (await visit.looking()).sight.reads_inputs():
        return {}
    return await names_of(visit.gateway, visit.caller.tenant, visit.caller.log_id, entries)
