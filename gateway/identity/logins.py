# SPDX-License-Identifier: Apache-2.0
"""
Callers whom somebody else vouches for, an identity provider or who signs client certificates, and their actors.

Whoever vouches for a caller could act as the caller. So such callers have actors of their own, of their identity and of
the issuer, and no issuer can act as somebody who has an API key. An actor is made at the first login.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from gateway.database import outage_as_unavailable
from gateway.errors import UnavailableError
from gateway.identity.key_rows import actor_for, find_actor, last_erasure
from gateway.identity.principal import PrincipalSource
from ledger.errors import FormatError
from ledger.store.log_store import LendConnection

ACTORS_MAX: Final = 10_000
"""Actors in the cache of a process; about 5 MB."""

_UNREACHABLE: Final = "the database cannot be reached: credentials cannot be checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """
    A caller whose credential was verified: one of `tenant`, in force until `ends_at`.

    `issuer` is the pseudonym of who vouches for `identity`, `actor` that of the two in the log. `groups` and
    `attributes` are for policies alone.
    """

    source: PrincipalSource
    tenant: UUID
    log_id: int
    issuer: str
    identity: str
    actor: str
    roles: tuple[str, ...]
    email: str | None
    ends_at: datetime
    groups: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()


class LoginActors:
    """
    The actors of such callers. `lend` lends connections of the appender's role, the only one that may write actors.

    `_actors` are those made or found before, by log, issuer and identity; it belongs to the event loop.
    """

    def __init__(self, lend: LendConnection, *, random: Callable[[int], bytes]) -> None:
        self._lend = lend
        self._random = random
        self._actors: OrderedDict[tuple[int, str, str], str] = OrderedDict()

    def forget(self, login: Login) -> None:
        """Look the actor up again at the next login: the person behind it was erased."""
        self._actors.pop((login.log_id, login.issuer, login.identity), None)

    async def find(self, log_id: int, *, issuer: str, identity: str, issued_at: datetime) -> str | None:
        """
        Return the actor of an identity, made now if it has none; the credential that says so was issued at `issued_at`.

        One that was issued before a person was erased makes no actor, and None is returned: an erasure forgets who that
        was, so the credential could be theirs, and would bring them back.

        Raises:
            UnavailableError: if the database cannot be reached, or the caller was erased at this moment.
        """
        name = (log_id, issuer, identity)
        if (known := self._actors.get(name)) is not None:
            self._actors.move_to_end(name)
            return known
        actor = await self._found_or_made(log_id, issuer=issuer, identity=identity, issued_at=issued_at)
        if actor is None:
            return None
        self._actors[name] = actor
        if len(self._actors) > ACTORS_MAX:
            self._actors.popitem(last=False)
        return actor

    async def _found_or_made(self, log_id: int, *, issuer: str, identity: str, issued_at: datetime) -> str | None:
        with outage_as_unavailable(_UNREACHABLE):
            async with self._lend() as connection:
                found = await find_actor(connection, log_id, identity, issuer=issuer)
                if found is not None:
                    return found
                erased_at = await last_erasure(connection, log_id)
                if erased_at is not None and issued_at <= erased_at:
                    return None
                try:
                    made = await actor_for(connection, log_id, identity, issuer=issuer, random=self._random)
                except FormatError as error:
                    raise UnavailableError("the caller was erased at this moment: try again") from error
                return made.actor
