# SPDX-License-Identifier: Apache-2.0
"""
The data keys of subjects: a folder of small files next to the signer's keys, never in the database.

    id              names the folder; the database remembers it, so that no process works with the keys of another one
    lock            locked (flock) by whoever writes the files below (`key_files.py`)
    00 … ff         the keys of the subjects whose names begin so, one line each

Why not in the database: a dump, a replica, a base backup and the archived WAL would each hold the keys together with
what they open, and every restored backup would bring back the destroyed ones. Here a key exists once. Destroyed here,
it is destroyed for all of those copies, wherever they are. Only a *backup of this folder* must not outlive an erasure:
keep only the newest, and repeat the erasures after a restore (`rerun_erasures` does).

Guarantees: a key that was returned is on the disk. A destroyed key is gone from every process that shares the folder as
soon as `destroy` has returned, because before each use they check whether the file has changed (about 2 µs). A stopped
process blocks no reader. A crash leaves the old file or the new one. A replaced file is overwritten with zeros; after a
crash in between, when the erasure is repeated. What a copy-on-write file system or flash keeps of old blocks is still
wrapped with the key-encryption key.

At 100,000 subjects a file holds about 400 lines, 60 KB: what one new key or one erasure writes.

The default key-encryption key, which wraps and unwraps the data keys, is a file. The folder is useless without it, so
keep the two apart where that matters: name another place with LAKEPROOF_KEY_ENCRYPTION_KEY, or implement
`KeyEncryption` of `format/sealing.py` over a key management service.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID

from ledger.erasing.key_files import LOCK_WAIT_S, NO_FILE, FileVersion, KeyFiles, KeyLines, WrappedKey
from ledger.errors import FormatError, LedgerError
from ledger.files.atomic import create_file
from ledger.files.private_files import check_private
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.sealing import (
    DATA_KEY_SIZE_BYTES,
    NONCE_SIZE_BYTES,
    DataKey,
    KeyEncryption,
    RandomBytes,
    SubjectKeysError,
)

ID_FILE: Final = "id"
OPENED_MAX: Final = 10_000
"""Unwrapped keys that a process caches, the most recently used."""
_SUBJECT: Final = re.compile(r"[0-9a-f]{32}")
_SHARDS: Final = tuple(f"{number:02x}" for number in range(256))


class KeyFolder:
    """The keys of all subjects in one folder (implements `SubjectKeys`); threads and processes may share it."""

    def __init__(
        self,
        path: Path,
        encryption: KeyEncryption,
        *,
        random: RandomBytes = os.urandom,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        self.path = path
        self._encryption = encryption
        self._random = random
        self._on_disk = KeyFiles(path, lock_wait_s=lock_wait_s)
        self._files: dict[str, tuple[FileVersion, KeyLines]] = {}
        """By shard: the file as it was last read. Changed under `_lock`; read without it, since values are replaced."""
        self._opened: OrderedDict[UUID, DataKey] = OrderedDict()
        """Unwrapped keys by id, least recently used first. Read and changed under `_lock`."""
        self._lock = Lock()
        """Never held during I/O or a call of the key management service."""

    def __repr__(self) -> str:
        return f"KeyFolder({str(self.path)!r})"

    @property
    def id(self) -> UUID:
        """
        The permanent name of the folder.

        Raises:
            SubjectKeysError: if it cannot be read.
        """
        file = self.path / ID_FILE
        try:
            return UUID(file.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            raise SubjectKeysError(f"{file} cannot be read: restore {self.path} from its backup") from error

    def cached(self, subject: str) -> DataKey | None:
        """
        Return the key of a subject if this process has unwrapped it, and its file has not changed since.

        Raises:
            SubjectKeysError: if the folder cannot be used.
        """
        shard = _shard(subject)
        known = self._files.get(shard)
        if known is None or known[0] != self._on_disk.version(shard) or (wrapped := known[1].get(subject)) is None:
            return None
        return self._opened_before(wrapped.id)

    def find(self, subject: str) -> DataKey | None:
        """
        Return the key of a subject, or None if it has none, or none any more.

        Raises:
            SubjectKeysError: if the folder cannot be read, or is damaged.
        """
        wrapped = self._current(_shard(subject)).get(subject)
        return None if wrapped is None else self._open(subject, wrapped)

    def find_or_create(self, subject: str) -> DataKey | None:
        """
        Return the key of a subject, created and on the disk first if it has none; None if it was destroyed.

        Raises:
            SubjectKeysError: if the folder cannot be read or written, or is damaged.
        """
        shard = _shard(_checked(subject))
        if subject not in self._current(shard):
            with self._on_disk.held(shard) as lines:
                if subject not in lines:
                    self._on_disk.replace(shard, {**lines, subject: self._new_key(subject)})
        return self.find(subject)

    def destroy(self, subject: str) -> None:
        """
        Destroy the key of a subject permanently, on the disk, and never give the subject another.

        Raises:
            SubjectKeysError: if the folder cannot be written; the key may still be there.
        """
        shard = _shard(_checked(subject))
        with self._on_disk.held(shard) as lines:
            if subject not in lines or lines[subject] is not None:
                self._on_disk.replace(shard, {**lines, subject: None})
        self._current(shard)  # which drops the unwrapped key, too

    def destroyed(self) -> frozenset[str]:
        """
        Return every subject whose key was destroyed. Raises as `find`.
        """
        return frozenset(
            subject for shard in _SHARDS for subject, known in self._current(shard).items() if known is None
        )

    def _current(self, shard: str) -> KeyLines:
        """Return the current content of a file; it is read again only if it has changed."""
        known = self._files.get(shard)
        if known is not None and known[0] == self._on_disk.version(shard):
            return known[1]
        version, lines = self._on_disk.read(shard)
        with self._lock:
            _, before = self._files.get(shard, (NO_FILE, {}))
            for subject, wrapped in before.items():
                if wrapped is not None and lines.get(subject) != wrapped:
                    self._opened.pop(wrapped.id, None)
            self._files[shard] = version, lines
        return lines

    def _opened_before(self, key_id: UUID) -> DataKey | None:
        with self._lock:
            if (opened := self._opened.get(key_id)) is not None:
                self._opened.move_to_end(key_id)
            return opened

    def _open(self, subject: str, wrapped: WrappedKey) -> DataKey:
        if (opened := self._opened_before(wrapped.id)) is not None:
            return opened
        if wrapped.kek != self._encryption.id:
            raise SubjectKeysError(
                f"{self.path} holds keys wrapped with {wrapped.kek}, the key-encryption key here is "
                f"{self._encryption.id}: name the right one (LAKEPROOF_KEY_ENCRYPTION_KEY)"
            )
        with self._translated_errors():
            key = self._encryption.unwrap(wrapped.wrapped, context=_context(subject, wrapped.id))
        opened = DataKey(wrapped.id, key)
        with self._lock:
            _, lines = self._files.get(_shard(subject), (NO_FILE, {}))
            if lines.get(subject) == wrapped:  # otherwise it was destroyed meanwhile, and nothing would remove it again
                self._opened[wrapped.id] = opened
            if len(self._opened) > OPENED_MAX:
                self._opened.popitem(last=False)
        return opened

    def _new_key(self, subject: str) -> WrappedKey:
        key_id, key = UUID(bytes=self._random(16), version=4), self._random(DATA_KEY_SIZE_BYTES)
        with self._translated_errors():
            wrapped = self._encryption.wrap(key, context=_context(subject, key_id))
        return WrappedKey(id=key_id, kek=self._encryption.id, wrapped=wrapped)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Turn any error of a key management service into ours."""
        try:
            yield
        except LedgerError:
            raise
        except Exception as error:
            raise SubjectKeysError(
                f"the key-encryption key {self._encryption.id} cannot be used ({type(error).__name__}): see that what "
                "holds it can be reached, and lets this process use it"
            ) from error


def open_key_folder(
    path: Path, encryption: KeyEncryption, *, random: RandomBytes = os.urandom, lock_wait_s: float = LOCK_WAIT_S
) -> KeyFolder:
    """
    Return the keys in the folder `path`, which is created if there is none.

    Raises:
        SubjectKeysError: if it cannot be used.
        KeyDirectoryError: if others may enter it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(path, mode=0o700)
        if not (path / ID_FILE).exists():
            with suppress(FileExistsError):  # another process was faster: use its folder
                create_file(path / ID_FILE, f"{UUID(bytes=random(16), version=4)}\n".encode())
    except OSError as error:
        raise SubjectKeysError(f"{path} cannot be used ({error.strerror}): make it writable for this user") from error
    return KeyFolder(path, encryption, random=random, lock_wait_s=lock_wait_s)


def _checked(subject: str) -> str:
    if not _SUBJECT.fullmatch(subject):
        raise FormatError("subject", expected="32 hex digits", found=subject)
    return subject


def _shard(subject: str) -> str:
    return subject[:2]


def _context(subject: str, key_id: UUID) -> bytes:
    return f"lakeproof/subject-key/v1\n{subject}\n{key_id}".encode()


class FileKeyEncryption:
    """The default: one AES-256 key in a file of mode 0600 (implements `KeyEncryption`)."""

    def __init__(self, id: str, key: bytes, *, random: RandomBytes = os.urandom) -> None:  # noqa: A002
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


def open_key_encryption(path: Path, *, random: RandomBytes = os.urandom) -> FileKeyEncryption:
    """
    Return the key-encryption key in the file `path`, which is created if there is none.

    Raises:
        SubjectKeysError: if it is damaged, or cannot be read or created.
        KeyDirectoryError: if others may read it.
    """
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileExistsError):  # another process was faster: use its key
                create_file(path, f"{random(4).hex()} {format_base64(random(DATA_KEY_SIZE_BYTES))}\n".encode())
        check_private(path, mode=0o600)
        text = path.read_text(encoding="ascii")
        key_id, _, encoded = text.removesuffix("\n").partition(" ")
        key = parse_base64(encoded, what="key-encryption key")
    except (FormatError, UnicodeDecodeError):
        key_id, key = "", b""
    except OSError as error:
        raise SubjectKeysError(f"{path} cannot be used ({error.strerror}): make it readable for this user") from error
    if len(key) != DATA_KEY_SIZE_BYTES or not re.fullmatch(r"[0-9a-f]{8}", key_id):  # its content is not in the message
        raise SubjectKeysError(f"{path} is damaged: restore it from a backup, or no sealed part can be read")
    return FileKeyEncryption(key_id, key, random=random)
