# SPDX-License-Identifier: Apache-2.0
"""
Sessions of the console: a browser that has logged in sends a cookie in place of credentials.

A cookie holds 256 random bits and nothing else. The database has their SHA-256, and the credentials of the login
encrypted with a key that is derived from the same bits: a copy of the database logs nobody in, and a cookie is worth
nothing once its row is gone. The credentials are verified with every request, as those of an engine are: a key that was
revoked ends its sessions at once.

The keys are used once, each for one text (RFC 8439 asks for a nonce that no key meets twice), and are derived as
RFC 5869 does for a secret that is uniformly random already.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
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
EXPIRED_AT_A_TIME: Final = 1_000

_QUERIES: Final = load_queries("gateway", "console.sql")
_SESSION: Final = b"lakeproof console session"
_NONCE: Final = bytes(12)


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

    async def begin(self, credentials: str, *, ends_at: datetime | None = None) -> str:
        """
        Return what the cookie of a new session holds: 64 hexadecimal digits; `credentials` were verified, and end at
        `ends_at` (None: not by themselves).

        Raises:
            BadRequestError: if the credentials are too long to be kept.
            UnavailableError: if the database cannot be reached.
        """
        if len(credentials) > CREDENTIALS_LENGTH_MAX:
            raise BadRequestError(f"expected at most {CREDENTIALS_LENGTH_MAX} characters", field="key")
        secret, now = self._random(SECRET_SIZE_BYTES), self._clock()
        session = hashlib.sha256(secret).digest()
        row = {
            "session": session,
            "sealed": seal(_SESSION, secret, credentials, about=session),
            "expires_at": now + LIFETIME if ends_at is None else min(now + LIFETIME, ends_at),
        }
        async with self._database.as_role(self._role) as connection:
            await connection.execute(_QUERIES["end_expired"], {"now": now, "limit": EXPIRED_AT_A_TIME})
            await connection.execute(_QUERIES["add_session"], row)
        return secret.hex()

    async def credentials(self, cookie: str) -> str | None:
        """
        Return the credentials of a session; None if there is none, it has expired, or `cookie` is no cookie.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        secret = secret_in(cookie)
        if secret is None:
            return None
        session = hashlib.sha256(secret).digest()
        async with self._database.as_role(self._role) as connection:
            found = await connection.execute(_QUERIES["session"], {"session": session, "now": self._clock()})
            row = await found.fetchone()
        return None if row is None else opened(_SESSION, secret, bytes(row[0]), about=session)

    async def end(self, cookie: str) -> None:
        """
        End a session; one that is not there is ended already.

        Raises:
            UnavailableError: if the database cannot be reached.
        """
        if (secret := secret_in(cookie)) is not None:
            async with self._database.as_role(self._role) as connection:
                session = hashlib.sha256(secret).digest()
                await connection.execute(_QUERIES["end_session"], {"session": session})


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
