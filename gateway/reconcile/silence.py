# SPDX-License-Identifier: Apache-2.0
"""
Foreign catalogs that do not answer, and the keys whose checks wait for them.

A check that gets no answer says nothing about its decisions, so their pauses do not grow: the key is checked again
soon, and at once when its catalog has answered about any other key. The more keys wait for a catalog, the rarer each is
checked, so that one that is away for long costs few requests. This is the memory of one process: what it forgets costs
no more than a pause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import timedelta
from typing import Final, NamedTuple

PAUSE_S_LEAST: Final = 2.0
PAUSE_S_MAX: Final = 300.0
CHECKS_PER_S: Final = 4.0
"""How many checks a catalog gets that does not answer, of all keys that wait for it."""


class NamedCatalog(NamedTuple):
    """A catalog of a tenant."""

    log_id: int
    alias: str


class SilentCatalogs:
    """The keys that wait for each catalog to answer."""

    def __init__(self) -> None:
        self._waiting: defaultdict[NamedCatalog, set[str]] = defaultdict(set)

    def wait(self, catalog: NamedCatalog, key: str) -> timedelta:
        """Note that a catalog has not answered about a key; return when to check that again."""
        waiting = self._waiting[catalog]
        waiting.add(key)
        return timedelta(seconds=min(max(PAUSE_S_LEAST, len(waiting) / CHECKS_PER_S), PAUSE_S_MAX))

    def answered(self, catalog: NamedCatalog) -> Collection[str]:
        """Return the keys that have waited for a catalog, which has answered."""
        return self._waiting.pop(catalog, ())
