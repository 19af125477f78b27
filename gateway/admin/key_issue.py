"""
Making a new API key: an actor for its identity, its text, the event and the guard that bring it into force together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.database import outage_as_unavailable
from gateway.identity.api_keys import KeyHasher, mint_key
from gateway.identity.key_rows import actor_of, create_guard
from ledger.events import KeyCreated
from ledger.guards import GuardCall
from ledger.log_store import Lend

KEY_ID_SIZE_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A new API key. `secret` is its whole text: shown to its holder once and kept nowhere."""

    id: str
    actor: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A key that comes into force with the group that appends `event` under `guard`."""

    key: IssuedKey
    event: KeyCreated
    guard: GuardCall


class KeyIssue:
    """Mints keys; `lend` lends connections of the appender's role, which alone may write actors."""

    def __init__(self, lend: Lend, *, random: Callable[[int], bytes], hasher: KeyHasher) -> None:
        self._lend = lend
        self._random = random
        self._hasher = hasher

    async def mint(self, log_id: int, *, identity: str, roles: tuple[str, ...]) -> Issue:
        """
        Return a new key for `identity` of the tenant whose log that is. Only its actor is stored yet.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        with outage_as_unavailable("the database cannot be reached: nothing was changed, try again"):
            async with self._lend() as connection:
                actor = await actor_of(connection, log_id, identity, random=self._random)
        key = mint_key(self._random)
        key_id = f"key-{self._random(KEY_ID_SIZE_BYTES).hex()}"
        stored_hash = await asyncio.to_thread(self._hasher.hash, key)
        return Issue(
            key=IssuedKey(id=key_id, actor=actor, secret=key.format()),
            event=KeyCreated(id=key_id, version=1, prefix=key.prefix, actor=actor, roles=roles),
            guard=create_guard(key_id, key, stored_hash=stored_hash, actor=actor),
        )
