# SPDX-License-Identifier: Apache-2.0
"""
Looks up the rows of API keys that are not in the cache: many at a time, over one connection.

Unknown keys cause lookups, and anyone can send them. However many come at once, they use one connection: requests that
arrive during a lookup are collected, and the next lookup is for all of them. So a new key waits for at most one
lookup before its own, and requests with cached keys find the other connections free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.database import outage_as_unavailable
from gateway.errors import UnavailableError
from gateway.identity.key_rows import KeyRow, find_keys
from ledger.futures import retrieve
from ledger.store.log_store import LendConnection

PREFIXES_MAX: Final = 256
"""Prefixes in one statement."""
WAITING_MAX: Final = 4_096
"""Requests that may wait for a lookup; further ones are answered 503."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Prefixes that are looked up together; `rows` is the lookup. Event loop only."""

    rows: asyncio.Task[Mapping[str, KeyRow]] | None = None
    prefixes: set[str] = field(default_factory=set)


class KeyLookups:
    """
    Looks up rows by prefix. One per process; `lend` lends connections of the gateway's role.

    Event loop only: `_gathering` is the batch that still takes prefixes, `_waiting` counts requests. `_turn` is held
    during a lookup.
    """

    def __init__(self, lend: LendConnection, *, secret_id: str) -> None:
        self._lend = lend
        self._secret_id = secret_id
        self._gathering: _Batch | None = None
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def find(self, prefix: str) -> KeyRow | None:
        """
        Return the row of the key with that prefix, read after this call; None if there is none.

        Raises:
            UnavailableError: if the database cannot be reached, or too many wait.
        """
        if self._waiting >= WAITING_MAX:
            raise UnavailableError("too many credentials wait to be looked up: try again")
        batch = self._gathering
        if batch is None or len(batch.prefixes) >= PREFIXES_MAX:
            batch = self._gathering = _Batch()
            batch.rows = asyncio.create_task(self._look_up(batch), name="lookup of API keys")
            batch.rows.add_done_callback(retrieve)
        batch.prefixes.add(prefix)
        assert batch.rows is not None  # noqa: S101  (for the type checker: it was made above)
        self._waiting += 1
        try:
            return (await asyncio.shield(batch.rows)).get(prefix)  # other requests wait for it, too
        finally:
            self._waiting -= 1

    async def _look_up(self, batch: _Batch) -> Mapping[str, KeyRow]:
        async with self._turn:
            if self._gathering is batch:
                self._gathering = None
            with outage_as_unavailable("the database cannot be reached: credentials cannot be checked"):
                async with self._lend() as connection:
                    return await find_keys(connection, batch.prefixes, secret_id=self._secret_id)
