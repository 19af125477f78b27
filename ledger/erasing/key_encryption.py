"""
The default key-encryption key: a file. It wraps the data keys that `subject_keys.py` keeps, and opens them again.

Who has the folder of data keys without this key has nothing, so keep the two apart where that counts: name another
place with LAKEPROOF_KEY_ENCRYPTION_KEY, or implement `ledger.erasing.sealing.KeyEncryption` over a service that manages
keys.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from ledger.encoding import format_base64, parse_base64
from ledger.erasing.sealing import DATA_KEY_SIZE_BYTES, NONCE_SIZE_BYTES, DataKey, Random, SubjectKeysError
from ledger.errors import FormatError
from ledger.signing.private_files import check_private, create_private


class FileKeyEncryption:
    """The default: one AES-256 key in a file of mode 0600 (implements `KeyEncryption`)."""

    def __init__(self, id: str, key: bytes, *, random: Random = os.urandom) -> None:  # noqa: A002
        self.id = id
        self._key = DataKey(UUID(int=0), key)
        self._random = random

    def __repr__(self) -> str:
        return f"FileKeyEncryption({self.id!r})"

    def wrap(self, key: bytes, *, context: bytes) -> bytes:
        """Return `key`, encrypted."""
        return self._key.seal(key, context=context, nonce=self._random(NONCE_SIZE_BYTES))

    def unwrap(self, wrapped: bytes, *, context: bytes) -> bytes:
        """
        Return the key that was wrapped.

        Raises:
            SubjectKeysError: if this is not the key-encryption key that has wrapped it.
        """
        key = self._key.open(wrapped, context=context)
        if key is None:
            raise SubjectKeysError(f"a key does not open with the key-encryption key {self.id}: restore the right one")
        return key


def open_key_encryption(path: Path, *, random: Random = os.urandom) -> FileKeyEncryption:
    """
    Return the key-encryption key in the file `path`, made there first if there is none.

    Raises:
        SubjectKeysError: if others may read it, it is damaged, or cannot be read or made.
        KeyDirectoryError: if others may read it.
    """
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process was faster: its key is the one
                create_private(path, f"{random(4).hex()} {format_base64(random(DATA_KEY_SIZE_BYTES))}\n".encode())
        check_private(path, mode=0o600)
        text = path.read_text(encoding="ascii")
        key_id, _, encoded = text.removesuffix("\n").partition(" ")
        key = parse_base64(encoded, what="key-encryption key")
    except (FormatError, UnicodeDecodeError):
        key_id, key = "", b""
    except OSError as error:
        raise SubjectKeysError(f"{path} cannot be used ({error.strerror}): make it readable for this user") from error
    if len(key) != DATA_KEY_SIZE_BYTES or not re.fullmatch(r"[0-9a-f]{8}", key_id):  # and nothing of it in the message
        raise SubjectKeysError(f"{path} is damaged: restore it from a backup, or no sealed part can be read")
    return FileKeyEncryption(key_id, key, random=random)
