# SPDX-License-Identifier: Apache-2.0
"""
Makes new API keys: the actor of the identity, the text of the key, and the event and guards that bring it into force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from gateway.admin.limits import format_expiry
from gateway.database import outage_as_unavailable
from gateway.identity.api_keys import KeyHasher, mint_key
from gateway.identity.key_macs import KeyMacs
from gateway.identity.key_rows import actor_for, create_guard, identities_of, mac_guard
from ledger.format.event import SYSTEM_ACTOR
from ledger.format.events import KeyCreated
from ledger.format.guards import GuardCall
from ledger.store.log_store import LendConnection

KEY_ID_SIZE_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """A new API key. `secret` is its whole text: shown to its holder once and stored nowhere."""

    id: str
    actor: str
    expires_at: datetime | None
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedKey:
    """The key that replaces another one, `replaced`, which is in force until `replaced_ends_at` (None: is revoked)."""

    key: IssuedKey
    replaced: str
    replaced_ends_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """A key that comes into force with the group that appends `event` under `guards`."""

    key: IssuedKey
    event: KeyCreated
    guards: tuple[GuardCall, ...]


class KeyIssue:
    """Makes keys; `lend` lends connections of the appender's role, the only one that may write actors."""

    def __init__(
        self, lend: LendConnection, *, random: Callable[[int], bytes], hasher: KeyHasher, macs: KeyMacs
    ) -> None:
        self._lend = lend
        self._random = random
        self._macs = macs
        self._hasher = hasher

    async def holders(self, log_id: int, actors: Collection[str]) -> dict[str, str]:
        """
        Return the identities behind actors of a log, of those that were not erased.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        with outage_as_unavailable("the database cannot be reached: try again"):
            async with self._lend() as connection:
                return await identities_of(connection, log_id, actors)

    async def mint(
        self, log_id: int, *, by: str, identity: str, roles: tuple[str, ...], expires_at: datetime | None
    ) -> Issue:
        """
        Return a new key for `identity` of the tenant whose log that is, issued by actor `by`. Only its actor is stored.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        issuer = None if by == SYSTEM_ACTOR else by
        with outage_as_unavailable("the database cannot be reached: nothing was changed, try again"):
            async with self._lend() as connection:
                actor = await actor_for(connection, log_id, identity, issuer=issuer, random=self._random)
        key = mint_key(self._random)
        key_id = f"key-{self._random(KEY_ID_SIZE_BYTES).hex()}"
        stored_hash = await asyncio.to_thread(self._hasher.hash, key)
        return Issue(
            key=IssuedKey(id=key_id, actor=actor.actor, expires_at=expires_at, secret=key.format()),
            event=KeyCreated(
                id=key_id,
                version=1,
                prefix=key.prefix,
                actor=actor.actor,
                roles=roles,
                expires_at=format_expiry(expires_at),
                issuer=actor.issuer,
            ),
            guards=(
                create_guard(key_id, key, stored_hash=stored_hash, actor=actor.actor),
                mac_guard(key_id, key, secret_id=self._macs.secret_id, mac=self._macs.mac(key)),
            ),
        )
