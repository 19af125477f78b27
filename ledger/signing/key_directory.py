"""
The signer's directory: the one private key of an installation, and the last note of each log, outside the database.

    signing-key     the Ed25519 seed, base64, 0600
    last-notes      what was signed last for each log, canonical JSON, 0600

Guarantee: once `keep_notes` has returned, the notes survive a crash of process and machine; if it raises, or the
machine stops in the middle, the file holds all of the old notes or all of the new ones. A directory that others may
enter is refused. Back it up: who has the key can speak for every log, and without it none can go on.

Why outside the database: a database that is restored from a backup must not be signed as if nothing had been signed
since, and it cannot know by itself that it was restored.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from ledger import canonical
from ledger.canonical import Json
from ledger.checkpoint import Checkpoint, open_checkpoint
from ledger.errors import BrokenError, FormatError, LedgerError
from ledger.note import Ed25519Signer, VerifierKey, format_base64, parse_base64

KEY_FILE: Final = "signing-key"
NOTES_FILE: Final = "last-notes"
SEED_SIZE_BYTES: Final = 32

_FRESH_NOTES: Final = "last-notes.new"
_OTHERS: Final = 0o077


class KeyDirectoryError(LedgerError):
    """The signer's directory, its key or its notes cannot be used; says what to do."""


class BusyKeyDirectoryError(KeyDirectoryError):
    """Another process is signing with this directory right now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedNote:
    """A signed checkpoint as it left, or is about to leave."""

    checkpoint: Checkpoint
    note: bytes


class KeyDirectory:
    """The directory of one signer; reads the key when it is made, the notes whenever they are asked for."""

    def __init__(self, path: Path, seed: bytes) -> None:
        self.path = path
        self._seed = seed
        self._read: tuple[bytes, dict[str, SignedNote]] = (b"", {})  # the notes file as it was read last, and its notes

    def __repr__(self) -> str:
        return f"KeyDirectory({str(self.path)!r})"

    def signer(self, origin: str) -> Ed25519Signer:
        """
        Return the signer of one log: the installation's key under the log's origin as its name.
        """
        return Ed25519Signer.from_seed(name=origin, seed=self._seed)

    def verifier_key(self, origin: str) -> VerifierKey:
        """
        Return the verifier key of one log, to be handed to those who verify it.
        """
        return self.signer(origin).verifier_key

    @contextmanager
    def locked(self) -> Iterator[None]:
        """
        Hold the directory for one round of signing, against every process on this machine, whatever its database.

        Raises:
            BusyKeyDirectoryError: at once, if another one holds it.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyKeyDirectoryError(f"{self.path} is in use by another signer: stop that one first") from error
            yield
        finally:
            os.close(descriptor)

    def read_notes(self) -> dict[str, SignedNote]:
        """
        Return the last note of each log, by origin, each with its signature checked; new notes only are checked again.

        Raises:
            KeyDirectoryError: if the file cannot be read, or holds anything but notes that this key has signed.
        """
        file = self.path / NOTES_FILE
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise KeyDirectoryError(f"{file} cannot be read ({error.strerror}): make it readable again") from error
        try:
            if data != self._read[0]:
                notes = {note.checkpoint.origin: note for note in map(self._open, _parse_notes(data))}
                self._read = (data, notes)
            return dict(self._read[1])
        except (FormatError, BrokenError) as error:
            raise KeyDirectoryError(
                f"{file} is damaged ({error}): restore it from a backup; without it a database that was set back would "
                "be signed"
            ) from error

    def keep_notes(self, notes: Mapping[str, SignedNote]) -> None:
        """
        Replace the last notes, by origin: temporary file, fsync, rename, fsync of the directory.

        Raises:
            OSError: if that fails; none of the notes may leave then.
        """
        fresh = self.path / _FRESH_NOTES
        data = _format_notes(notes)
        _write_synced(fresh, data)
        fresh.replace(self.path / NOTES_FILE)
        _sync_directory(self.path)
        self._read = (data, dict(notes))

    def _open(self, member: Json) -> SignedNote:
        note = _members(member, {"note", "origin", "root", "size"})
        text = note["note"]
        if not isinstance(text, str):
            raise FormatError("last note", expected="a text", found=text)
        checkpoint = _signed_by_us(text.encode(), self.verifier_key(str(note["origin"])))
        if (checkpoint.size, checkpoint.root.hex()) != (note["size"], note["root"]):
            raise FormatError("last note", expected="size and root as in its text", found=note)
        return SignedNote(checkpoint=checkpoint, note=text.encode())


def create_key_directory(path: Path, *, random: Callable[[int], bytes] = os.urandom) -> KeyDirectory:
    """
    Make the directory and a new private key in it; `random` gives that many random bytes.

    Raises:
        KeyDirectoryError: if it holds a key or notes already, or cannot be written.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(path, "700")
        for name in (KEY_FILE, NOTES_FILE):
            if (path / name).exists():
                raise KeyDirectoryError(
                    f"{path} holds a {name} already, and a new key could not go on with the logs that were signed with "
                    "the old one: use it, or name another directory"
                )
        fresh = path / f"{KEY_FILE}.{os.getpid()}"
        _write_synced(fresh, (format_base64(random(SEED_SIZE_BYTES)) + "\n").encode())
        os.link(fresh, path / KEY_FILE)  # fails where a rename would replace the key that another process has just made
        fresh.unlink()
        _sync_directory(path)
    except OSError as error:
        raise KeyDirectoryError(f"no key can be made in {path} ({error.strerror}): make it writable") from error
    return open_key_directory(path)


def open_key_directory(path: Path) -> KeyDirectory:
    """
    Return the signer's directory at `path`.

    Raises:
        KeyDirectoryError: if there is no key, it cannot be read or is damaged, or others may read it.
    """
    file = path / KEY_FILE
    try:
        _check_private(path, "700")
        _check_private(file, "600")
        text = file.read_bytes()
    except FileNotFoundError as error:
        raise KeyDirectoryError(
            f"{file} is not there: restore it from a backup, or make a new key if this installation has never signed"
        ) from error
    except OSError as error:
        raise KeyDirectoryError(f"{file} cannot be read ({error.strerror}): make it readable for this user") from error
    try:
        seed = parse_base64(text.decode("ascii").removesuffix("\n"), what="signing key")
    except (UnicodeDecodeError, FormatError):
        seed = b""
    if len(seed) != SEED_SIZE_BYTES:  # and nothing of it in the message
        raise KeyDirectoryError(
            f"{file} is damaged: expected {SEED_SIZE_BYTES} bytes in base64; restore it from a backup"
        )
    return KeyDirectory(path, seed)


def _signed_by_us(note: bytes, key: VerifierKey) -> Checkpoint:
    return open_checkpoint(note, [key], origin=key.name)


def _format_notes(notes: Mapping[str, SignedNote]) -> bytes:
    members: list[Json] = [
        {
            "note": notes[origin].note.decode(),
            "origin": origin,
            "root": notes[origin].checkpoint.root.hex(),
            "size": notes[origin].checkpoint.size,
        }
        for origin in sorted(notes)
    ]
    return canonical.encode({"notes": members, "version": 1})


def _parse_notes(data: bytes) -> list[Json]:
    file = _members(canonical.decode(data), {"notes", "version"})
    notes = file["notes"]
    if file["version"] != 1 or not isinstance(notes, list):
        raise FormatError("last notes", expected="version 1 and a list of notes", found=data)
    return notes


def _members(value: Json, names: set[str]) -> dict[str, Json]:
    if not isinstance(value, dict) or value.keys() != names:
        raise FormatError("last notes", expected=f"an object of {sorted(names)}", found=value)
    return cast("dict[str, Json]", value)


def _check_private(path: Path, wanted: str) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise KeyDirectoryError(
            f"{path} has mode {mode:03o}, so that others may use the key: run chmod {wanted} {path}"
        )


def _write_synced(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on the disk: a rename is lost without it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
