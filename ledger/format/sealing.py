# SPDX-License-Identifier: Apache-2.0
"""
Sealed payload parts: encrypted for the person they are about, so that destroying one key erases every copy at once.

A part that has a subject is stored as `nonce || AES-256-GCM(salt || bytes)` under the data key of that subject. The
associated data names subject and part, so that a sealed part cannot replace another one. Commitments are over
plaintext: no proof changes when a key is destroyed. A subject is 128 random bits that one log has made, so it
identifies its log, too, and a part stays readable when its log continues under another origin or number.

A reader of parts takes an `Opener`. A part whose key is gone is erased (`open` returns None, as if there were no row).
One that does not open although its key exists is corrupt. `erasing/sealer.py` seals. `erasing/subject_keys.py` keeps
the keys, never in the database, because a backup of it would bring them back.

This is the one place that imports AES.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ledger.errors import BrokenError, Fault, LogUnavailableError
from ledger.format.event import SALT_SIZE_BYTES, Part
from ledger.format.sequence import Group
from ledger.values import value_class

DATA_KEY_SIZE_BYTES: Final = 32
NONCE_SIZE_BYTES: Final = 12
TAG_SIZE_BYTES: Final = 16
KEY_WAIT_S: Final = 10.0
"""How long sealing a group waits for keys that are not cached."""
RandomBytes = Callable[[int], bytes]


class SubjectKeysError(LogUnavailableError):
    """The keys of sealed parts cannot be used: they are missing, damaged, or of another folder; says what to do."""


class KeyEncryption(Protocol):
    """
    Wraps data keys for storage: a local file (`FileKeyEncryption`), or a key management service.

    `id` names the key-encryption key, and is stored with every key it has wrapped. `context` must be the same for
    both calls. A person's key is wrapped once, and unwrapped once in each process.
    """

    @property
    def id(self) -> str:
        """The name of the key-encryption key: printable, without spaces."""

    def wrap(self, key: bytes, *, context: bytes) -> bytes:
        """Return `key`, encrypted."""

    def unwrap(self, wrapped: bytes, *, context: bytes) -> bytes:
        """Return the key that `wrap` was given. Raises SubjectKeysError if it cannot."""


class DataKey:
    """The key of one subject, unwrapped. Its text form does not show it."""

    __slots__ = ("_cipher", "id")

    def __init__(self, id: UUID, key: bytes) -> None:  # noqa: A002  (it is the key's id)
        self.id = id
        self._cipher = AESGCM(key)

    def __repr__(self) -> str:
        return f"DataKey({self.id})"

    def seal(self, plain: bytes, *, context: bytes, nonce: bytes) -> bytes:
        """Return `nonce || ciphertext || tag`; the nonce must be new for this key."""
        return nonce + self._cipher.encrypt(nonce, plain, context)

    def open(self, sealed: bytes, *, context: bytes) -> bytes | None:
        """Return what was sealed, or None if this key has not sealed that, in that context."""
        if len(sealed) < NONCE_SIZE_BYTES + TAG_SIZE_BYTES:
            return None
        try:
            return self._cipher.decrypt(sealed[:NONCE_SIZE_BYTES], sealed[NONCE_SIZE_BYTES:], context)
        except InvalidTag:
            return None


class SubjectKeys(Protocol):
    """
    The data keys of all subjects, outside the database (`subject_keys.KeyFolder`).

    A key that was destroyed is gone for every process at once, and its subject never gets another one.
    """

    def cached(self, subject: str) -> DataKey | None:
        """Return the key of a subject if this process has unwrapped it, and nothing has changed. Does not block."""

    def find(self, subject: str) -> DataKey | None:
        """Return the key of a subject, or None if it has none, or none any more. Fast: called for every part."""

    def find_or_create(self, subject: str) -> DataKey | None:
        """
        Return the key of a subject, created and on the disk first if it has none; None if it was destroyed. May block.
        """

    def destroy(self, subject: str) -> None:
        """Destroy the key of a subject permanently, on the disk, and never give it another. May block."""

    def destroyed(self) -> frozenset[str]:
        """Return every subject whose key was destroyed."""


class FindsKeys(Protocol):
    """What an opener needs of the data keys."""

    def find(self, subject: str) -> DataKey | None:
        """Return the key of a subject, or None if it has none, or none any more."""


@value_class
class SealedPart(Part):
    """A part that is about to be appended, with the bytes that are stored of it."""

    key_id: UUID
    sealed: bytes = field(repr=False)

    def __repr__(self) -> str:
        return f"SealedPart(name={self.name!r}, {len(self.payload)} bytes)"


class StoredPart(NamedTuple):
    """A row of `ledger.parts`: `sealed` is `salt || bytes`, encrypted if there is a `key_id`."""

    entry_index: int
    name: str
    subject: str | None
    key_id: UUID | None
    sealed: bytes

    def __repr__(self) -> str:
        sealed = "" if self.key_id is None else f" sealed with key {self.key_id}"
        return f"StoredPart(entry_index={self.entry_index}, name={self.name!r}, {len(self.sealed)} bytes{sealed})"


class Opener(Protocol):
    """Opens the payload parts that the database holds."""

    def open(self, stored: StoredPart) -> Part | None:
        """
        Return the part, or None if its key is gone: then it is erased.

        Raises:
            BrokenError: (`Fault.PART`) if it does not open although its key exists, or is too short.
            SubjectKeysError: if the keys cannot be used, so that this is unknown.
        """


class KeyOpener:
    """Opens parts with the keys of their subjects (implements `Opener`)."""

    def __init__(self, keys: FindsKeys) -> None:
        self._keys = keys

    def for_page(self) -> KeyOpener:
        """
        Return an opener for a page of parts that are opened at once: it looks up each person's key once.

        It must not be kept: it does not learn of keys that are destroyed later.
        """
        return KeyOpener(_KeysOnce(self._keys))

    def open(self, stored: StoredPart) -> Part | None:
        """Return the part, or None if its key is gone. Raises as `Opener.open`."""
        if stored.key_id is None:
            return _part(stored, stored.sealed)
        if stored.subject is None:
            raise _broken(stored, expected="a subject of the sealed part", found="none")
        key = self._keys.find(stored.subject)
        if key is None or key.id != stored.key_id:
            return None
        plain = key.open(stored.sealed, context=part_context(stored.subject, stored.name))
        if plain is None:
            raise _broken(stored, expected=f"bytes sealed with the key {stored.key_id}", found="others")
        return _part(stored, plain)


class _KeysOnce:
    """The keys of subjects, each looked up once."""

    def __init__(self, keys: FindsKeys) -> None:
        self._keys = keys
        self._found: dict[str, DataKey | None] = {}

    def find(self, subject: str) -> DataKey | None:
        """Return the key of a subject as it was when it was looked up."""
        if subject not in self._found:
            self._found[subject] = self._keys.find(subject)
        return self._found[subject]


class PlainOpener:
    """Opens parts that are not sealed, for callers without keys (implements `Opener`)."""

    def open(self, stored: StoredPart) -> Part | None:
        """
        Return the part.

        Raises:
            SubjectKeysError: if it is sealed: treating it as erased would lose it silently.
        """
        if stored.key_id is not None:
            raise SubjectKeysError(
                f"part {stored.name} of entry {stored.entry_index} is sealed, and no keys are at hand to open it"
            )
        return _part(stored, stored.sealed)


PLAIN: Final = PlainOpener()


class Seals(Protocol):
    """Prepares groups for the Appender before any lock, and opens stored parts."""

    @property
    def opener(self) -> Opener:
        """Opens stored parts, to compare a group with one that is in the log already."""

    async def seal(self, group: Group, *, timeout_s: float = KEY_WAIT_S) -> Group:
        """Return the group as it will be stored. Raises SubjectKeysError if that takes longer."""


class LeavesPlain:
    """Seals nothing, and still opens what was sealed earlier (implements `Seals`)."""

    def __init__(self, keys: SubjectKeys) -> None:
        self.opener: Opener = KeyOpener(keys)

    async def seal(self, group: Group, *, timeout_s: float = KEY_WAIT_S) -> Group:  # noqa: ARG002 - nothing to wait for
        """Return `group` unchanged."""
        return group


def stored_bytes(part: Part) -> bytes:
    """
    Return the bytes that the database stores of a part.
    """
    return part.sealed if isinstance(part, SealedPart) else part.salt + part.payload


def key_id_of(part: Part) -> UUID | None:
    """
    Return the id of the key that has sealed a part, None if none has.
    """
    return part.key_id if isinstance(part, SealedPart) else None


def part_context(subject: str, name: str) -> bytes:
    """The associated data: neither a subject nor a name holds a line feed, so no two pairs share one."""
    return f"lakeproof/part/v1\n{subject}\n{name}".encode()


def _part(stored: StoredPart, plain: bytes) -> Part:
    if len(plain) < SALT_SIZE_BYTES:
        raise _broken(stored, expected="a salt of 32 bytes, and what follows it", found=f"{len(plain)} bytes")
    salt, payload = bytes(plain[:SALT_SIZE_BYTES]), bytes(plain[SALT_SIZE_BYTES:])
    return Part(name=stored.name, salt=salt, payload=payload, subject=stored.subject)


def _broken(stored: StoredPart, *, expected: str, found: str) -> BrokenError:
    where = f"ledger.parts {stored.name}"
    return BrokenError(Fault.PART, where=where, expected=expected, found=found, index=stored.entry_index)
