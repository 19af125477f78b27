# SPDX-License-Identifier: Apache-2.0
"""
Sessions of the console: a browser that has logged in sends a cookie in place of credentials.

A cookie holds 256 random bits and nothing else. The database has their SHA-256, and the credentials of the login
encrypted with a key that is derived from the same bits: a copy of the database logs nobody in, and a cookie is worth
nothing once its row is gone. The credentials are verified with every request, as those of an engine are: a key that was
revoked ends its sessions at once.

A login at an identity provider may be renewed (`renewals.py`). Then what renews it is sealed with the token, and each
renewal seals another text with another key, which a salt in the row makes another one: the keys are used once, each for
one text (RFC 8439 asks for a nonce that no key meets twice). They are derived as RFC 5869 does for a secret that is
uniformly random already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from gateway.database import Database
from gateway.errors import BadRequestError
from ledger.store.queries import load_queries

SECRET_SIZE_BYTES: Final = 32
LIFETIME: Final = timedelta(hours=8)
"""From the login on, whatever is done meanwhile: a working day."""
CREDENTIALS_LENGTH_MAX: Final = 8_192
SALT_SIZE_BYTES: Final = 16
RENEWED_BEFORE_S_MAX: Final = 10.0
"""How long before its end a token is renewed, at most: the page that is asked for must still be made with it."""
EXPIRED_AT_A_TIME: Final = 1_000

_QUERIES: Final = load_queries("gateway", "console.sql")
_SESSION: Final = b"lakeproof console session"
_NONCE: Final = bytes(12)
_SEPARATOR: Final = "\n"
"""Between the parts of a text: no header, actor or refresh token has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewable:
    """
    How a session is renewed: with the provider's `refresh_token`, from `renew_at` on, and to the same `actor` alone.

    `version` is another one after each renewal; a request is renewing it until `renewing_until` (None: no one is).
    """

    actor: str
    refresh_token: str = field(repr=False)
    renew_at: datetime
    version: bytes = b""
    renewing_until: datetime | None = None

    def is_due(self, now: datetime) -> bool:
        """Return whether the credentials are about to end."""
        return now >= self.renew_at

    def is_under_way(self, now: datetime) -> bool:
        """Return whether a request is renewing it."""
        return self.renewing_until is not None and now < self.renewing_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session that has not expired; it ends with its credentials unless it is `renewable`."""

    credentials: str = field(repr=False)
    renewable: Renewable | None = None


class Sessions:
    """
    The sessions of an installation; `role` is the gateway's.
    """

    def __init__(
        self, database: Database, role: str, *, clock: Callable[[], datetime], random: Callable[[int], bytes]
    ) -> None:
        self._database = database
        self._role = role
        self._clock = clock
        self._random = random

    async def begin(
        self,
        credentials: str,
        *,
        ends_at: datetime | None = None,
        actor: str = "",
        refresh_token: str | None = None,
    ) -> str:
        """
        Return what the cookie of a new session holds: 64 hexadecimal digits. `credentials` were verified as those of
        `actor`, and end at `ends_at` (None: not by themselves) unless they are renewed with `refresh_token`.

        Raises:
            BadRequestError: if the credentials are too long to be kept.
            UnavailableError: if the database cannot be reached.
        """
        if len(credentials) > CREDENTIALS_LENGTH_MAX:
            raise BadRequestError(f"expected at most {CREDENTIALS_LENGTH_MAX} characters", field="key")
        secret, now = self._random(SECRET_SIZE_BYTES), self._clock()
        session = hashlib.sha256(secret).digest()
        row: dict[str, object] = {"session": session, "expires_at": now + LIFETIME}
        if refresh_token is None or ends_at is None:
            query = "add_session"
            row["sealed"] = seal(_SESSION, secret, credentials, about=session)
            if ends_at is not None:
                row["expires_at"] = min(now + LIFETIME, ends_at)
        else:
            query = "add_renewable_session"
            row |= self._renewable_row(secret, (credentials, actor, refresh_token), ends_at=ends_at)
        async with self._database.as_role(self._role) as connection:
            await connection.execute(_QUERIES["end_expired"], {"now": now, "limit": EXPIRED_AT_A_TIME})
            await connection.execute(_QUERIES[query], row)
        return secret.hex()

    async def find(self, cookie: str) -> Session | None:
        """
        Return a session; None if there is none, it has expired, or `cookie` is no cookie.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        return await self._read(cookie, "session", now=self._clock())

    async def begin_renewal(self, cookie: str, renewable: Renewable, *, until: datetime) -> bool:
        """
        Return whether the caller is to renew a session: nobody else does before `until`, or has since it was read.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        return await self._change(cookie, "begin_renewal", version=renewable.version, until=until, now=self._clock())

    async def give_up_renewal(self, cookie: str, renewable: Renewable) -> None:
        """Let another request try to renew a session. Raises as `begin_renewal`."""
        await self._change(cookie, "give_up_renewal", version=renewable.version)

    async def renew(
        self, cookie: str, credentials: str, *, ends_at: datetime, before: Renewable, refresh_token: str
    ) -> bool:
        """
        Let a session go on with `credentials` of the same actor, which end at `ends_at`; return whether it does.

        It does not if it has ended meanwhile, or the credentials are too long. How long it may last at most stays as it
        was. Raises as `begin_renewal`.
        """
        secret = secret_in(cookie)
        if secret is None or len(credentials) > CREDENTIALS_LENGTH_MAX:
            return False
        row = self._renewable_row(secret, (credentials, before.actor, refresh_token), ends_at=ends_at)
        return await self._change(cookie, "renew_session", version=before.version, now=self._clock(), **row)

    async def end(self, cookie: str) -> Session | None:
        """
        End a session, and return it; one that is not there is ended already.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        return await self._read(cookie, "end_session")

    async def _read(self, cookie: str, query: str, **more: object) -> Session | None:
        secret = secret_in(cookie)
        if secret is None:
            return None
        session = hashlib.sha256(secret).digest()
        async with self._database.as_role(self._role) as connection:
            found = await connection.execute(_QUERIES[query], {"session": session, **more})
            row = await found.fetchone()
        if row is None:
            return None
        sealed, salt, renew_at, renewing_until = row
        text = opened(_SESSION + (salt or b""), secret, sealed, about=session)
        if text is None or salt is None:
            return None if text is None else Session(credentials=text)
        credentials, actor, refresh_token = text.split(_SEPARATOR)
        renewable = Renewable(
            actor=actor, refresh_token=refresh_token, renew_at=renew_at, version=salt, renewing_until=renewing_until
        )
        return Session(credentials=credentials, renewable=renewable)

    async def _change(self, cookie: str, query: str, **row: object) -> bool:
        secret = secret_in(cookie)
        if secret is None:
            return False
        session = hashlib.sha256(secret).digest()
        async with self._database.as_role(self._role) as connection:
            return (await connection.execute(_QUERIES[query], {"session": session, **row})).rowcount == 1

    def _renewable_row(self, secret: bytes, parts: tuple[str, str, str], *, ends_at: datetime) -> dict[str, object]:
        """Return what is stored of credentials, actor and refresh token: sealed with a key that a new salt makes."""
        salt = self._random(SALT_SIZE_BYTES)
        sealed = seal(_SESSION + salt, secret, _SEPARATOR.join(parts), about=hashlib.sha256(secret).digest())
        return {"salt": salt, "sealed": sealed, "renew_at": _renew_at(self._clock(), ends_at)}


def _renew_at(now: datetime, ends_at: datetime) -> datetime:
    """Return when credentials that end at `ends_at` are renewed: a little before, also if they last for seconds."""
    return ends_at - min(timedelta(seconds=RENEWED_BEFORE_S_MAX), max(ends_at - now, timedelta(0)) / 2)


def seal(purpose: bytes, secret: bytes, text: str, *, about: bytes) -> bytes:
    """
    Return a text encrypted with a key that is derived from `secret` for one `purpose`, and authenticated with `about`.
    """
    return _cipher(purpose, secret).encrypt(_NONCE, text.encode(), about)


def opened(purpose: bytes, secret: bytes, sealed: bytes, *, about: bytes) -> str | None:
    """
    Return what was sealed so; None if it is anything else: somebody has written in the table.
    """
    try:
        return _cipher(purpose, secret).decrypt(_NONCE, sealed, about).decode()
    except InvalidTag:
        return None


def secret_in(text: str) -> bytes | None:
    """Return the secret that is written as 64 hexadecimal digits; None if it is anything else."""
    if len(text) != 2 * SECRET_SIZE_BYTES:
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def _cipher(purpose: bytes, secret: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(HKDFExpand(algorithm=SHA256(), length=32, info=purpose).derive(secret))
