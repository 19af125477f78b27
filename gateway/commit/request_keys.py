"""
Each tenant's key for request hashes: 32 random bytes, minted at the first request and kept for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.database import Database
from ledger.store.queries import load_queries

_QUERIES = load_queries("gateway", "catalog.sql")


class RequestKeys:
    """Reads (and mints) tenants' request keys; they never change, so each is read once."""

    def __init__(self, database: Database, *, role: str, random: Callable[[int], bytes]) -> None:
        self._database = database
        self._role = role
        self._random = random
        self._keys: dict[int, bytes] = {}

    async def key(self, log_id: int) -> bytes:
        """
        Return the key of the tenant whose log that is.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        known = self._keys.get(log_id)
        if known is not None:
            return known
        async with self._database.as_role(self._role) as connection:
            minted = {"log_id": log_id, "key": self._random(32)}
            await connection.execute(_QUERIES["mint_request_key"], minted)
            row = await (await connection.execute(_QUERIES["request_key"], {"log_id": log_id})).fetchone()
        if row is None:
            raise AssertionError("a request key that was just minted is there")
        self._keys[log_id] = bytes(row[0])
        return self._keys[log_id]
