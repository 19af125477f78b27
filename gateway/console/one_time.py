# SPDX-License-Identifier: Apache-2.0
"""
What logs a browser in once: links that somebody at the machine makes, and attempts at an identity provider.

A link holds 256 random bits. The database has their SHA-256, and the credentials encrypted with a key that is derived
from them, as it has those of sessions; whoever takes them removes the row in the same statement, so of two who open a
link at once one is logged in. The hashes are over bytes that name their purpose first: no link is a session, and no
cookie of one is a link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from gateway.commit.gateway import Gateway
from gateway.console.sessions import EXPIRED_AT_A_TIME, SECRET_SIZE_BYTES, opened, seal, secret_in
from gateway.database import Database
from ledger.store.queries import load_queries

LINK_LIFETIME: Final = timedelta(minutes=10)
LINK_PATH: Final = "/console/login/link"

_QUERIES: Final = load_queries("gateway", "console.sql")
_LINK: Final = b"lakeproof console link"
_ATTEMPT: Final = b"lakeproof console attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link that logs in once: its path on the gateway, and when it ends."""

    path: str
    ends_at: datetime


class OneTime:
    """The links and attempts of an installation; `role` is the gateway's."""

    def __init__(
        self, database: Database, role: str, *, clock: Callable[[], datetime], random: Callable[[int], bytes]
    ) -> None:
        self._database = database
        self._role = role
        self._clock = clock
        self._random = random

    async def make_link(self, credentials: str) -> Link:
        """
        Return a link that begins a session with `credentials`, which are verified when it is used.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        secret, now = self._random(SECRET_SIZE_BYTES), self._clock()
        ends_at, link = now + LINK_LIFETIME, _hash(_LINK, secret)
        row = {"session": link, "sealed": seal(_LINK, secret, credentials, about=link), "expires_at": ends_at}
        async with self._database.as_role(self._role) as connection:
            await connection.execute(_QUERIES["end_expired"], {"now": now, "limit": EXPIRED_AT_A_TIME})
            await connection.execute(_QUERIES["add_session"], row)
        return Link(path=f"{LINK_PATH}?once={secret.hex()}", ends_at=ends_at)

    async def take_link(self, once: str) -> str | None:
        """
        Return the credentials of a link, which is of no use from then on; None if it was used, has expired or is none.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        secret = secret_in(once)
        if secret is None:
            return None
        link = _hash(_LINK, secret)
        async with self._database.as_role(self._role) as connection:
            found = await connection.execute(_QUERIES["take_link"], {"link": link, "now": self._clock()})
            row = await found.fetchone()
        return None if row is None else opened(_LINK, secret, bytes(row[0]), about=link)

    async def spend(self, secret: bytes, *, until: datetime) -> bool:
        """
        Return whether the attempt with this secret, which nobody takes after `until`, was not spent before; it is now.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        attempt = _hash(_ATTEMPT, secret)
        row = {"attempt": attempt, "sealed": seal(_ATTEMPT, secret, "spent", about=attempt), "expires_at": until}
        async with self._database.as_role(self._role) as connection:
            return (await connection.execute(_QUERIES["spend_attempt"], row)).rowcount == 1


def one_time_of(gateway: Gateway) -> OneTime:
    """Return the links and attempts of the installation that a gateway works on."""
    return OneTime(gateway.database, gateway.roles.gateway, clock=gateway.clock, random=gateway.random)


def _hash(purpose: bytes, secret: bytes) -> bytes:
    return hashlib.sha256(purpose + secret).digest()
