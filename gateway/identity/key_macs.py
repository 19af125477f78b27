# SPDX-License-Identifier: Apache-2.0
"""
The keyed hash of API keys: HMAC-SHA-256 of the whole key under a secret of the installation.

Checking it takes a microsecond, where argon2id takes 20 milliseconds of a core: wrong keys cost the gateway little. A
key has 256 random bits, so this is no weaker: neither hash lets a reader of the table guess the key. The secret is in a
file outside of the database, so that write access to the table is not enough to make a hash for a new key.

If the secret is lost, another one is made, and each key is checked by its argon2id hash once more. The access tokens of
this installation are signed with a key that is derived from the secret, so they end then: clients log in again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.identity.api_keys import ApiKeyText
from ledger.errors import FormatError, KeyDirectoryError
from ledger.files.atomic import create_file
from ledger.files.private_files import check_private
from ledger.format.encoding import format_base64, parse_base64

SECRET_SIZE_BYTES: Final = 32

_OF_KEYS: Final = b"lakeproof API key\x00"
_OF_THE_SECRET: Final = b"lakeproof name of the secret\x00"
_OF_TOKENS: Final = b"lakeproof key of access tokens\x00"
"""Domain separation between the uses of the secret: no key has the hash that names the secret, or that signs tokens."""


class KeyMacs:
    """
    Makes keyed hashes. `secret_id` (16 hex digits) identifies the secret: a hash under another secret proves nothing.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_SIZE_BYTES:
            raise FormatError("secret of API keys", expected=f"{SECRET_SIZE_BYTES} bytes", found=f"{len(secret)} bytes")
        self._secret = secret
        self.secret_id: Final = hmac.digest(secret, _OF_THE_SECRET, hashlib.sha256)[:8].hex()

    def __repr__(self) -> str:
        return f"KeyMacs({self.secret_id})"

    def signing_seed(self) -> bytes:
        """
        Return HMAC-SHA-256(secret, "lakeproof key of access tokens" || 0x00), 32 bytes: the private key of Ed25519 that
        signs access tokens. It is as secret as the secret, and ends with it.
        """
        return hmac.digest(self._secret, _OF_TOKENS, hashlib.sha256)

    def mac(self, key: ApiKeyText) -> bytes:
        """Return HMAC-SHA-256(secret, "lakeproof API key" || 0x00 || key), 32 bytes."""
        return self.mac_of_text(key.format())

    def mac_of_text(self, key: str) -> bytes:
        """Return the same as `mac`, given the text of the key."""
        return hmac.digest(self._secret, _OF_KEYS + key.encode(), hashlib.sha256)


def open_key_macs(path: Path, *, random: Callable[[int], bytes] = os.urandom) -> KeyMacs:
    """
    Return the keyed hash under the secret in the file `path`, which is made there first if there is none.

    Raises:
        KeyDirectoryError: if others may read it, it is damaged, or cannot be read or made.
    """
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process was first: its secret is used
                create_file(path, f"{format_base64(random(SECRET_SIZE_BYTES))}\n".encode())
        check_private(path, mode=0o600)
        return KeyMacs(parse_base64(path.read_text(encoding="ascii").removesuffix("\n"), what="secret of API keys"))
    except (FormatError, UnicodeDecodeError) as error:  # the message must not contain the secret
        raise KeyDirectoryError(
            f"{path} is damaged: restore it from a backup, or remove it (then each API key is checked slowly once more)"
        ) from error
    except OSError as error:
        raise KeyDirectoryError(f"{path} cannot be used ({error.strerror}): make it readable for this user") from error
