"""
From an Authorization header to a verified principal.

 1  the header holds one bearer token of the form of an API key
 2  its prefix finds the row, and with it the tenant; the whole key is checked against the row's argon2id hash. A prefix
    that nobody has costs the same: a hash that no key has is checked instead
 3  the key is in force in the tenant's control plane, as of now

Step 2 is slow on purpose, so a key that passed it is remembered for a while, by its SHA-256. Step 3 is taken every
time: a key that was revoked anywhere is refused by the next request here.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.control import ControlState
from gateway.database import outage_as_unavailable
from gateway.errors import UnauthorizedError, UnavailableError
from gateway.identity.api_keys import ApiKeyText, KeyHasher, mint_key, parse_key
from gateway.identity.key_rows import KeyRow, find_key
from gateway.identity.principal import NotInForceError, Principal, PrincipalSource
from ledger.log_store import Lend

CHECKS_MAX: Final = 2
"""Hashes computed at once: each takes 19 MiB and a core for about 30 ms."""
WAITING_MAX: Final = 256
"""Requests that may wait for their turn to be checked; more are told to come back."""
CACHE_MAX: Final = 10_000
CACHE_TTL_S: Final = 300.0
"""How long an erased identity's key can still be used by a process that has checked it."""


class Control(Protocol):
    """What the authenticator needs of the control plane."""

    async def current(self, log_id: int) -> ControlState:
        """Return what is in force in the log now."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """A row whose key was presented and is right."""

    row: KeyRow
    expires_s: float


class Authenticator:
    """
    Verifies credentials. One per process; `lend` lends connections of the gateway's role.
    """

    def __init__(
        self,
        lend: Lend,
        control: Control,
        *,
        random: Callable[[int], bytes],
        hasher: KeyHasher | None = None,
        monotonic_s: Callable[[], float] = time.monotonic,
        cache_max: int = CACHE_MAX,
    ) -> None:
        self._lend = lend
        self._control = control
        self._hasher = hasher or KeyHasher()
        self._nobodys_hash = self._hasher.hash(mint_key(random))
        self._monotonic_s = monotonic_s
        self._cache_max = cache_max
        self._cache: OrderedDict[bytes, _Checked] = OrderedDict()
        self._turns = asyncio.Semaphore(CHECKS_MAX)
        self._waiting = 0

    async def authenticate(self, authorization: str | None) -> Principal:
        """
        Return whom the credentials of an Authorization header stand for (an X-Api-Key is a bearer token).

        Raises:
            UnauthorizedError: if there are none, they are malformed, unknown, or not in force.
            UnavailableError: if that cannot be found out now.
        """
        key = parse_key(parse_bearer(authorization))
        digest = hashlib.sha256(key.format().encode()).digest()
        row = self._remembered(digest) or await self._check(key, digest)
        if row.tenant is None or row.identity is None:
            raise NotInForceError
        in_force = (await self._control.current(row.log_id)).keys.get(row.key_id)
        if in_force is None:
            self._cache.pop(digest, None)
            raise NotInForceError
        return Principal(
            tenant=row.tenant,
            log_id=row.log_id,
            actor=row.actor,
            sub=row.identity,
            roles=in_force.roles,
            source=PrincipalSource.API_KEY,
            key_id=row.key_id,
        )

    async def _check(self, key: ApiKeyText, digest: bytes) -> KeyRow:
        """Step 2; whoever waited for his turn may find that another request has checked the same key meanwhile."""
        if self._waiting >= WAITING_MAX:
            raise UnavailableError("too many credentials wait to be checked: try again")
        self._waiting += 1
        try:
            async with self._turns:
                if (row := self._remembered(digest)) is not None:
                    return row
                row = await self._find(key.prefix)
                stored_hash = self._nobodys_hash if row is None else row.hash
                await asyncio.to_thread(self._hasher.check, key, stored_hash=stored_hash)
        finally:
            self._waiting -= 1
        if row is None:
            raise NotInForceError
        self._cache[digest] = _Checked(row, self._monotonic_s() + CACHE_TTL_S)
        if len(self._cache) > self._cache_max:
            self._cache.popitem(last=False)
        return row

    async def _find(self, prefix: str) -> KeyRow | None:
        with outage_as_unavailable("the database cannot be reached: credentials cannot be checked"):
            async with self._lend() as connection:
                return await find_key(connection, prefix)

    def _remembered(self, digest: bytes) -> KeyRow | None:
        checked = self._cache.get(digest)
        if checked is None or checked.expires_s <= self._monotonic_s():
            self._cache.pop(digest, None)
            return None
        self._cache.move_to_end(digest)
        return checked.row


def parse_bearer(authorization: str | None) -> str:
    """
    Return the token of an Authorization header (RFC 6750, section 2.1). No message repeats what may be a secret.

    Raises:
        UnauthorizedError: if there is no header, another scheme, or no token.
    """
    if authorization is None:
        raise UnauthorizedError("expected an Authorization header with 'Bearer <API key>', found none")
    scheme, _, token = authorization.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer":
        raise UnauthorizedError("expected an Authorization header with 'Bearer <API key>', found another scheme")
    if token.lower() in {"", "none", "null", "undefined"}:
        raise UnauthorizedError(
            f"expected an API key, found the token {token!r}: the client's credential is not set (PyIceberg: `token`)"
        )
    return token
