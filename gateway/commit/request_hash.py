# SPDX-License-Identifier: Apache-2.0
"""
The keyed hash of a request, and each tenant's key for it: 32 random bytes, made at the first request and never changed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

from gateway.database import Database
from ledger.store.queries import load_queries

_QUERIES = load_queries("gateway", "catalog.sql")


def request_hash(key: bytes, *, method: str, path: str, body: bytes) -> str:
    """
    Return HMAC-SHA256(key, method || 0x00 || path || 0x00 || body) in hex (docs/formats.md, "Hashes").

    `key` is the tenant's: without it, the log does not reveal whether a guessed request was made.
    """
    return hmac.digest(key, method.encode() + b"\x00" + path.encode() + b"\x00" + body, hashlib.sha256).hex()


class RequestKeys:
    """Reads tenants' request keys, and makes missing ones; they never change, so each is read once."""

    def __init__(self, database: Database, *, role: str, random: Callable[[int], bytes]) -> None:
        self._database = database
        self._role = role
        self._random = random
        self._keys: dict[int, bytes] = {}
        """By log. Event loop only; two first requests may both read a key, and read the same one."""

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
