# SPDX-License-Identifier: Apache-2.0
"""
API keys: their text and its argon2id hash. The one module that imports argon2.

A key is `lp_<prefix>_<secret>`: the prefix (12 characters of base32) finds the row, the secret (32 random bytes in
base64url) is checked. The whole text is hashed, so a secret is valid only with its prefix. `parse_key` accepts exactly
what `mint_key` makes: no two texts are the same key.
"""

from __future__ import annotations

import re
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import field
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from gateway.errors import UnauthorizedError
from gateway.identity.principal import NotInForceError
from ledger.errors import FormatError
from ledger.values import value_class

SECRET_SIZE_BYTES: Final = 32
PREFIX_SIZE_BYTES: Final = 8
"""Random bytes for the prefix; 60 of their bits make its 12 characters."""

_KEY = re.compile(r"lp_[a-z2-7]{12}_[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
"""The last character stands for 4 bits of the secret and two that are zero."""


@value_class
class ApiKeyText:
    """A key with its secret, which `repr` does not show: 43 characters, as `format_secret` makes them."""

    prefix: str
    secret: str = field(repr=False)

    def format(self) -> str:
        """Return the text of the key. It must never be stored or logged."""
        return f"lp_{self.prefix}_{self.secret}"


def format_secret(random_bytes: bytes) -> str:
    """
    Return a secret of 32 bytes in base64url, without padding.
    """
    return urlsafe_b64encode(random_bytes).rstrip(b"=").decode()


def mint_key(random: Callable[[int], bytes]) -> ApiKeyText:
    """
    Return a new key made of `random` bytes.
    """
    prefix = b32encode(random(PREFIX_SIZE_BYTES)).decode().lower()[:12]
    return ApiKeyText(prefix=prefix, secret=format_secret(random(SECRET_SIZE_BYTES)))


def parse_key(text: str) -> ApiKeyText:
    """
    Parse the text of a key; `format` returns the same text.

    Raises:
        UnauthorizedError: if it is not a key. The message does not repeat the text: it may be another secret.
    """
    _, prefix, secret = check_key(text).split("_", 2)
    return ApiKeyText(prefix=prefix, secret=secret)


def check_key(text: str) -> str:
    """
    Return the text of a key. Raises as `parse_key`.
    """
    if _KEY.fullmatch(text) is None:
        raise UnauthorizedError(
            f"expected an API key (lp_, 12 characters, _, 43 characters), found {len(text)} other characters"
        )
    return text


class KeyHasher:
    """
    argon2id over whole keys. Slow on purpose: call it in a thread, not on the event loop.

    The defaults are the second recommendation of OWASP's cheat sheet (19 MiB, 2 passes). A secret of 256 random bits
    cannot be guessed; the hash keeps readers of the table from using it.
    """

    def __init__(self, *, time_cost: int = 2, memory_cost_kib: int = 19 * 1024, parallelism: int = 1) -> None:
        self._hasher = PasswordHasher(time_cost=time_cost, memory_cost=memory_cost_kib, parallelism=parallelism)

    def hash(self, key: ApiKeyText) -> str:
        """Return the encoded hash of a key, under a random salt."""
        return self._hasher.hash(key.format())

    def check(self, key: ApiKeyText, *, stored_hash: str) -> None:
        """
        Check that `stored_hash` is of this key.

        Raises:
            NotInForceError: if it is another key's.
            FormatError: if it is not an argon2id hash; that is corruption.
        """
        try:
            self._hasher.verify(stored_hash, key.format())
        except VerifyMismatchError as error:
            raise NotInForceError from error
        except (InvalidHashError, VerificationError) as error:
            raise FormatError(
                "hash of an API key", expected="an argon2id hash", found=f"one that fails: {error}"
            ) from error
