# SPDX-License-Identifier: Apache-2.0
"""
Signing keys: what a key management system offers, and keys that lie in a file.

A `SigningKey` signs, and has a public half and an id. Where the private half is does not matter to its users. There are
two kinds: `FileKey`, here, and `AgentKey` (`ssh_agent.py`), whose private half may be in a token or in another user's
process. All are Ed25519 (RFC 8032).

The id is the one that OpenSSH prints (`ssh-keygen -lf`, `ssh-add -l`), so that three tools show the same text:
`SHA256:` and the base64, without padding, of the SHA-256 of the public key in SSH's form (RFC 8709, section 4).
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

from ledger.errors import FormatError, KeyDirectoryError
from ledger.files.atomic import create_file
from ledger.files.private_files import check_private
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.note import Ed25519Signer, VerifierKey

SEED_SIZE_BYTES: Final = 32
PUBLIC_KEY_SIZE_BYTES: Final = 32
SSH_ALGORITHM: Final = b"ssh-ed25519"

_KEY_ID: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")
_KEY_FILE_SIZE_BYTES_MAX: Final = 1_000


class SigningKey(Protocol):
    """An Ed25519 key that signs; its private half may be anywhere."""

    @property
    def key_id(self) -> str:
        """The id by which people and tools name the key."""

    @property
    def public_key(self) -> bytes:
        """The public half, 32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """
        Return the signature over `message`, 64 bytes.

        Raises:
            KeyUnavailableError: if what holds the private half does not sign now.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKey:
    """A key whose seed was read from a file; the seed is in no text form of this object."""

    key_id: str
    public_key: bytes
    _signer: Ed25519Signer = field(repr=False, compare=False)

    @classmethod
    def from_seed(cls, seed: bytes) -> FileKey:
        """
        Return the key of a 32-byte seed (RFC 8032, section 5.1.5).

        Raises:
            FormatError: if it is not 32 bytes long; its bytes are not in the message.
        """
        signer = Ed25519Signer.from_seed(name="file", seed=seed)
        public = signer.verifier_key.public
        return cls(key_id=key_id(public), public_key=public, _signer=signer)

    def sign(self, message: bytes) -> bytes:
        """Return the signature over `message`, 64 bytes."""
        return self._signer.sign(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSigner:
    """
    Signs notes with a key under a name: the origin of the log (implements `ledger.format.note.Signer`).
    """

    name: str
    key: SigningKey

    @property
    def verifier_key(self) -> VerifierKey:
        """The verifier key of that name."""
        return VerifierKey.ed25519(name=self.name, public=self.key.public_key)

    def sign(self, text: bytes) -> bytes:
        """
        Return the bare signature over `text`.

        Raises:
            KeyUnavailableError: if what holds the private half does not sign now.
        """
        return self.key.sign(text)


def key_id(public: bytes) -> str:
    """
    Return the id of a public key, as OpenSSH prints it.
    """
    digest = sha256(ssh_blob(public)).digest()
    return "SHA256:" + base64.b64encode(digest).decode("ascii").rstrip("=")


def parse_key_id(text: str) -> str:
    """
    Return `text` if it is the id of a key.

    Raises:
        FormatError: if it is not.
    """
    if not _KEY_ID.fullmatch(text):
        raise FormatError("key id", expected="SHA256: and 43 characters, as ssh-add -l prints it", found=text)
    return text


def ssh_blob(public: bytes) -> bytes:
    """
    Return an Ed25519 public key in SSH's form: string "ssh-ed25519", string key (RFC 8709, section 4).
    """
    return b"".join(len(part).to_bytes(4, "big") + part for part in (SSH_ALGORITHM, public))


def generate_key_file(path: Path, *, random: Callable[[int], bytes] = os.urandom) -> FileKey:
    """
    Make a key in a new file of mode 0600, and return it; `random` gives that many random bytes.

    Raises:
        FileExistsError: if there is a file of that name.
        OSError: if it cannot be written.
    """
    create_file(path, format_seed(random(SEED_SIZE_BYTES)))
    return read_key_file(path)


def read_key_file(path: Path) -> FileKey:
    """
    Return the key in a file of mode 0600.

    Raises:
        KeyDirectoryError: if others may read the file, or it holds no key; nothing of it is in the message.
        OSError: if it cannot be read.
    """
    return FileKey.from_seed(read_seed(path))


def read_seed(path: Path) -> bytes:
    """
    Return the seed in a file of mode 0600; raises as `read_key_file`.
    """
    check_private(path, mode=0o600)
    with path.open("rb") as file:
        data = file.read(_KEY_FILE_SIZE_BYTES_MAX)
    try:
        seed = parse_base64(data.decode("ascii").removesuffix("\n"), what="signing key")
    except (UnicodeDecodeError, FormatError):
        seed = b""  # the cause is dropped: a stack trace would write the content to the log
    if len(seed) != SEED_SIZE_BYTES:
        raise KeyDirectoryError(
            f"{path} is damaged: expected {SEED_SIZE_BYTES} bytes in base64; restore it from a backup"
        )
    return seed


def format_seed(seed: bytes) -> bytes:
    """
    Return what a key file holds: the seed in base64, and a newline.
    """
    return (format_base64(seed) + "\n").encode("ascii")
