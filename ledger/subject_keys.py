"""
Where the data keys of subjects are kept: a folder of small files beside the signer's keys, never in the database.

    id              names the folder; the database remembers it, so that no process works with another one's keys
    lock            held (flock) by whoever reads or writes the files below
    00 … ff         the keys of the subjects whose names begin so, a line each

A line is `<subject> <key id> <id of the key-encryption key> <wrapped key, base64>`, or `<subject> destroyed`.

Why not in the database: a dump, a replica, a base backup and the archived WAL would each hold the keys beside what they
open, and every backup that was restored would bring back the destroyed ones. Here a key exists once. Destroyed here, it
is destroyed for all of those copies, whoever has them. What must be kept from happening is a *backup of this folder*
that outlives an erasure: keep only its newest, and run the erasures again after a restore (`rerun_erasures` does).

Guarantees: a key that was handed out is on the disk. A destroyed key is gone from every process that shares the folder
as soon as `destroy` has returned: before each use they look whether the file has changed (about 2 µs). A crash leaves a
file as it was before, or as it was to become. A file that was replaced is overwritten with zeros; what a file system
that copies on write, or flash, keeps of old blocks is still wrapped with the key-encryption key.

At 100,000 subjects a file holds about 400 lines, 60 KB: what one new key or one erasure writes.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import UUID

from ledger.encoding import format_base64, parse_base64
from ledger.errors import FormatError
from ledger.sealing import DATA_KEY_SIZE_BYTES, DataKey, KeyEncryption, Random, SubjectKeysError
from ledger.signing.private_files import check_private, create_private, write_private

ID_FILE: Final = "id"
LOCK_FILE: Final = "lock"
OPENED_MAX: Final = 10_000
"""Keys that a process keeps unwrapped, the most recently used."""

_DESTROYED: Final = "destroyed"
_SUBJECT: Final = re.compile(r"[0-9a-f]{32}")
_SHARDS: Final = tuple(f"{number:02x}" for number in range(256))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrapped:
    """A key as its file holds it."""

    id: UUID
    kek: str
    wrapped: bytes = field(repr=False)


_Lines = dict[str, _Wrapped | None]
"""A file's keys by subject; None for one that was destroyed."""


class KeyFolder:
    """The keys of all subjects in one folder (implements `SubjectKeys`); several threads and processes may share it."""

    def __init__(self, path: Path, encryption: KeyEncryption, *, random: Random = os.urandom) -> None:
        self.path = path
        self._encryption = encryption
        self._random = random
        self._files: dict[str, tuple[tuple[int, int, int], _Lines]] = {}
        self._opened: OrderedDict[UUID, DataKey] = OrderedDict()
        self._turn = Lock()

    def __repr__(self) -> str:
        return f"KeyFolder({str(self.path)!r})"

    @property
    def id(self) -> UUID:
        """
        The folder's name for ever.

        Raises:
            SubjectKeysError: if it cannot be read.
        """
        file = self.path / ID_FILE
        try:
            return UUID(file.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            raise SubjectKeysError(f"{file} cannot be read: restore {self.path} from its backup") from error

    def find(self, subject: str) -> DataKey | None:
        """
        Return the key of a subject, or None if there is none (any more).

        Raises:
            SubjectKeysError: if the folder cannot be read, or is damaged.
        """
        wrapped = self._current(_shard(subject)).get(subject)
        return None if wrapped is None else self._open(subject, wrapped)

    def find_or_make(self, subject: str) -> DataKey | None:
        """
        Return the key of a subject, made durable first if it has none; None if it was destroyed.

        Raises:
            SubjectKeysError: if the folder cannot be read or written, or is damaged.
        """
        if not _SUBJECT.fullmatch(subject):
            raise FormatError("subject", expected="32 hex digits", found=subject)
        shard = _shard(subject)
        with self._locked(fcntl.LOCK_EX):
            lines = self._read(shard)
            if subject not in lines:
                key_id, key = UUID(bytes=self._random(16), version=4), self._random(DATA_KEY_SIZE_BYTES)
                wrapped = self._encryption.wrap(key, context=_context(subject, key_id))
                self._write(shard, {**lines, subject: _Wrapped(id=key_id, kek=self._encryption.id, wrapped=wrapped)})
        return self.find(subject)

    def destroy(self, subject: str) -> None:
        """
        Destroy the key of a subject for ever, on the disk, and let it never have another.

        Raises:
            SubjectKeysError: if the folder cannot be written; the key may still be there.
        """
        if not _SUBJECT.fullmatch(subject):
            raise FormatError("subject", expected="32 hex digits", found=subject)
        shard = _shard(subject)
        with self._locked(fcntl.LOCK_EX):
            lines = self._read(shard)
            if lines.get(subject, _DESTROYED) is not None:
                self._write(shard, {**lines, subject: None})
        self._current(shard)  # which forgets the unwrapped key, too

    def destroyed(self) -> frozenset[str]:
        """
        Return every subject whose key was destroyed. Raises as `find`.
        """
        return frozenset(
            subject for shard in _SHARDS for subject, known in self._current(shard).items() if known is None
        )

    def _current(self, shard: str) -> _Lines:
        """Return what a file holds now; it is read again only if it is another one than before."""
        try:
            stat = os.stat(self.path / shard)  # noqa: PTH116  (called for every part; half as long as Path.stat)
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        except FileNotFoundError:
            seen = (0, 0, 0)
        except OSError as error:
            raise self._unusable(shard, error) from error
        known = self._files.get(shard)
        if known is None or known[0] != seen:
            with self._locked(fcntl.LOCK_SH):
                lines = self._read(shard)
            self._forget(known[1] if known else {}, lines)
            self._files[shard] = known = (seen, lines)
        return known[1]

    def _forget(self, before: _Lines, after: _Lines) -> None:
        for subject, wrapped in before.items():
            if wrapped is not None and after.get(subject) != wrapped:
                self._opened.pop(wrapped.id, None)

    def _open(self, subject: str, wrapped: _Wrapped) -> DataKey:
        with self._turn:
            if (opened := self._opened.get(wrapped.id)) is not None:
                self._opened.move_to_end(wrapped.id)
                return opened
            if wrapped.kek != self._encryption.id:
                raise SubjectKeysError(
                    f"{self.path} holds keys wrapped with {wrapped.kek}, the key-encryption key here is "
                    f"{self._encryption.id}: name the right one (LAKEPROOF_KEY_ENCRYPTION_KEY)"
                )
            key = self._encryption.unwrap(wrapped.wrapped, context=_context(subject, wrapped.id))
            opened = self._opened[wrapped.id] = DataKey(wrapped.id, key)
            if len(self._opened) > OPENED_MAX:
                self._opened.popitem(last=False)
            return opened

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Hold the folder against other processes; released by the kernel, whatever becomes of this one."""
        try:
            descriptor = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(LOCK_FILE, error) from error
        try:
            try:
                fcntl.flock(descriptor, how)
            except OSError as error:
                raise self._unusable(LOCK_FILE, error) from error
            yield
        finally:
            os.close(descriptor)

    def _read(self, shard: str) -> _Lines:
        try:
            return _parse(self.path / shard, (self.path / shard).read_text(encoding="ascii"))
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError as error:
            raise _damaged(self.path / shard) from error
        except OSError as error:
            raise self._unusable(shard, error) from error

    def _write(self, shard: str, lines: _Lines) -> None:
        """Replace a file, and overwrite the one that was there: nobody reads it, since the folder is held."""
        try:
            before = os.open(self.path / shard, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            before = None
        except OSError as error:
            raise self._unusable(shard, error) from error
        try:
            write_private(self.path / shard, _format(lines))
            if before is not None:
                os.pwrite(before, bytes(os.fstat(before).st_size), 0)
                os.fsync(before)
        except OSError as error:
            raise self._unusable(shard, error) from error
        finally:
            if before is not None:
                os.close(before)

    def _unusable(self, name: str, error: OSError) -> SubjectKeysError:
        return SubjectKeysError(
            f"{self.path / name} cannot be used ({error.strerror}): let this user read and write in {self.path}"
        )


def open_key_folder(path: Path, encryption: KeyEncryption, *, random: Random = os.urandom) -> KeyFolder:
    """
    Return the keys in the folder `path`, made there first if there is none.

    Raises:
        SubjectKeysError: if it cannot be used.
        KeyDirectoryError: if others may enter it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(path, mode=0o700)
        if not (path / ID_FILE).exists():
            with suppress(FileExistsError):  # another process was faster: its folder is the one
                create_private(path / ID_FILE, f"{UUID(bytes=random(16), version=4)}\n".encode())
    except OSError as error:
        raise SubjectKeysError(f"{path} cannot be used ({error.strerror}): make it writable for this user") from error
    return KeyFolder(path, encryption, random=random)


def _shard(subject: str) -> str:
    return subject[:2]


def _context(subject: str, key_id: UUID) -> bytes:
    return f"lakeproof/subject-key/v1\n{subject}\n{key_id}".encode()


def _format(lines: _Lines) -> bytes:
    return "".join(
        f"{subject} {_DESTROYED}\n"
        if known is None
        else f"{subject} {known.id} {known.kek} {format_base64(known.wrapped)}\n"
        for subject, known in sorted(lines.items())
    ).encode()


def _parse(path: Path, text: str) -> _Lines:
    """Return the keys of a file; it must be exactly what `_format` writes, so that nothing is lost by writing it."""
    lines: _Lines = {}
    try:
        for line in text.splitlines():
            subject, *members = line.split(" ")
            if members == [_DESTROYED]:
                lines[subject] = None
            else:
                key_id, kek, wrapped = members
                lines[subject] = _Wrapped(id=UUID(key_id), kek=kek, wrapped=parse_base64(wrapped, what="wrapped key"))
    except (FormatError, ValueError) as error:
        raise _damaged(path) from error
    if _format(lines).decode() != text:
        raise _damaged(path)
    return lines


def _damaged(path: Path) -> SubjectKeysError:
    return SubjectKeysError(f"{path} is damaged: restore the folder from its newest backup")
