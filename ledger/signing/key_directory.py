# SPDX-License-Identifier: Apache-2.0
"""
The signer's directory: the private keys of an installation, and the last note of each log, outside the database.

    signing-key             the Ed25519 seed of the first key, base64, 0600; of later ones, signing-key-<16 hex>
    keys                    all keys and the life of each (`key_ring.py`); missing until that first changes
    ml-dsa-44-key-<16 hex>  the seed of an ML-DSA-44 key, if one was added, base64, 0600
    retirement-<16 hex>     what a retired key has signed last (`format/key_history.py`)
    last-notes              what was signed last for each log, canonical JSON, 0600

Guarantee: once `keep_notes` or a change of the keys has returned, it survives a crash of process and machine. If it
raises, or the machine stops in the middle, either the old state is there or the new one. Notes are checked, signatures
included, before anything in them is used. A directory that other users may enter is refused. Back it up: the key signs
for every log, and without it no log can be signed further.

Why outside the database: a database that was restored from a backup must not be signed as if nothing had been signed
since, and it cannot know by itself that it was restored.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from ledger.errors import BrokenError, BusyKeyDirectoryError, FormatError, KeyDirectoryError
from ledger.files.atomic import replace_file
from ledger.files.private_files import check_private
from ledger.format import canonical
from ledger.format.canonical import Json
from ledger.format.checkpoint import Checkpoint
from ledger.format.cosignature import CheckpointCosigner, ml_dsa_verifier_key
from ledger.format.note import VerifierKey, open_note
from ledger.signing.key_ring import KeyRing, KeySource
from ledger.signing.keys import NoteSigner, generate_key_file
from ledger.signing.ssh_agent import AgentKey
from ledger.signing.stored_keys import KEY_FILE, RING_FILE, StoredKeys, read_stored_keys, ring_version, write_ring

NOTES_FILE: Final = "last-notes"
_POLL_S: Final = 0.02


class KeyDirectory:
    """
    The directory of one signer; reads the notes on each call.

    The keys are those of when it was opened or, if they have changed since, last locked. `agent` is the socket of the
    agent that holds the other keys.
    """

    def __init__(self, path: Path, keys: StoredKeys, *, agent: Path | None = None) -> None:
        self.path = path
        self.agent = agent
        self.keys = keys
        """Replaced as a whole by the holder of the lock (`locked`). Any thread may read it at any time."""
        self._read: tuple[bytes, dict[str, SignedNote]] = (b"", {})
        """The notes file as it was last read or written, and its notes. The pair is replaced as a whole."""

    def __repr__(self) -> str:
        return f"KeyDirectory({str(self.path)!r})"

    def signer(self, origin: str) -> NoteSigner:
        """
        Return the signer of one log: the active key under the log's origin as its name.
        """
        return self.signers(origin)[0]

    def signers(self, origin: str) -> tuple[NoteSigner, ...]:
        """
        Return the Ed25519 keys that sign for one log: the active one and, while it overlaps, the one before.
        """
        return tuple(NoteSigner(name=origin, key=key) for key in self.keys.signing)

    def checkpoint_signers(self, origin: str, *, time_s: int) -> tuple[NoteSigner | CheckpointCosigner, ...]:
        """
        Return everything that signs a checkpoint of one log at `time_s`, POSIX seconds: `signers`, then those of
        ML-DSA-44.
        """
        cosigners = (CheckpointCosigner(name=origin, key=key, time_s=time_s) for key in self.keys.ml_dsa)
        return (*self.signers(origin), *cosigners)

    def ml_dsa_verifier_keys(self, origin: str) -> tuple[VerifierKey, ...]:
        """
        Return the ML-DSA-44 keys that sign, as verifier keys of one log, the newest first; none unless one was added.
        """
        return tuple(ml_dsa_verifier_key(origin, key.public) for key in self.keys.ml_dsa)

    def verifier_key(self, origin: str) -> VerifierKey:
        """
        Return the verifier key of one log, for those who verify it.

        It is the active key's, unless that has not signed the newest checkpoint of the log because the log has not
        grown since the key became active. Then it is the newest key that has signed it.

        Raises:
            KeyDirectoryError: if the last notes cannot be read.
        """
        active = VerifierKey.ed25519(name=origin, public=self.keys.ring.active.public)
        data = self._notes_file() if len(self.keys.ring.records) > 1 else b""
        with self._reading_notes():
            noted = find_note(data, origin, self.open) if data else None
        if noted is None:
            return active
        keys = self.keys.history.keys_for(origin, noted.checkpoint.size)
        signed = open_note(noted.note, keys).verified
        return next(key for key in keys if key in signed)

    def verifier_keys(self, origin: str) -> tuple[VerifierKey, ...]:
        """
        Return the keys that have ever signed checkpoints, as verifier keys of one log, the newest first.

        `keys.history` knows which of them may have signed a checkpoint of a certain size.
        """
        terms = reversed(self.keys.history.terms)
        return tuple(VerifierKey.ed25519(name=origin, public=term.public) for term in terms)

    def first_verifier_key(self, origin: str) -> VerifierKey:
        """
        Return the verifier key of one log for the first key that this signer ever had.
        """
        return self.verifier_keys(origin)[-1]

    def open(self, note: bytes, origin: str) -> Checkpoint:
        """
        Return the checkpoint of that log in a note that a key entitled to sign it has signed.

        Raises:
            FormatError, BrokenError: if it is no such note.
        """
        return self.keys.history.open(note, origin=origin)

    @contextmanager
    def locked(self, *, timeout_s: float = 0.0) -> Iterator[None]:
        """
        Hold the directory for one round of signing, or one change of the keys, against every process on this machine.

        The keys are read again if another process has changed them.

        Raises:
            BusyKeyDirectoryError: if another process still holds it after `timeout_s` seconds.
            KeyDirectoryError: if the keys have become unusable.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lock(descriptor, timeout_s)
            self._refresh()
            yield
        finally:
            os.close(descriptor)

    def replace_ring(self, ring: KeyRing) -> None:
        """
        Replace the ring of keys. The caller holds the lock.

        Raises:
            KeyUnavailableError: if the key that is active in it does not sign now.
            OSError: if it cannot be written.
        """
        write_ring(self.path, ring, self.keys.held)
        self._refresh()

    def read_notes(self) -> dict[str, SignedNote]:
        """
        Return the last note of each log, by origin, each with its signature checked. Only changed files are checked
        again.

        Raises:
            KeyDirectoryError: if the file cannot be read, or holds anything but notes that our keys have signed.
        """
        data = self._notes_file()
        with self._reading_notes():
            if data != self._read[0]:
                self._read = (data, parse_notes(data, self.open) if data else {})
            return dict(self._read[1])

    def keep_notes(self, notes: Mapping[str, SignedNote]) -> None:
        """
        Replace the last notes, by origin: temporary file, fsync, rename, fsync of the directory.

        Raises:
            OSError: if that fails; none of the notes may be published then.
        """
        data = format_notes(notes)
        replace_file(self.path / NOTES_FILE, data)
        self._read = (data, dict(notes))

    def _notes_file(self) -> bytes:
        """Return the content of the notes file, nothing if there is none: then nothing has been signed yet."""
        file = self.path / NOTES_FILE
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise KeyDirectoryError(f"{file} cannot be read ({error.strerror}): make it readable again") from error
        if not data:
            raise KeyDirectoryError(_damaged(file, "it is empty"))
        return data

    @contextmanager
    def _reading_notes(self) -> Iterator[None]:
        try:
            yield
        except (FormatError, BrokenError) as error:
            raise KeyDirectoryError(_damaged(self.path / NOTES_FILE, str(error))) from error

    def _lock(self, descriptor: int, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() >= deadline_s:
                    raise BusyKeyDirectoryError(
                        f"{self.path} is in use by another signer: stop that one first"
                    ) from error
                time.sleep(_POLL_S)
            else:
                return

    def _refresh(self) -> None:
        if ring_version(self.path) != self.keys.version:
            self.keys = _read_keys(self.path, self.agent)


def _damaged(notes: Path, found: str) -> str:
    return (
        f"{notes} is damaged ({found}): restore it from a backup; without it a database that was set back would be "
        "signed"
    )


def holds_keys(path: Path) -> bool:
    """
    Return whether a signer's directory has been made at `path`.
    """
    return (path / KEY_FILE).exists() or (path / RING_FILE).exists()


def create_key_directory(path: Path, *, random: Callable[[int], bytes] = os.urandom) -> KeyDirectory:
    """
    Make the directory and a new private key in it; `random` gives that many random bytes.

    Raises:
        KeyDirectoryError: if it holds a key or notes already, or cannot be written.
    """
    with _making(path):
        generate_key_file(path / KEY_FILE, random=random)
    return open_key_directory(path)


def enter_agent_key(path: Path, key: AgentKey) -> KeyDirectory:
    """
    Make the directory with a first key that an agent holds.

    Raises:
        KeyDirectoryError: if it holds a key or notes already, or cannot be written.
        KeyUnavailableError: if the agent does not sign.
    """
    with _making(path):
        write_ring(path, KeyRing.of_first(key.public_key, KeySource.AGENT), {key.public_key: key})
    return open_key_directory(path, agent=key.socket)


def open_key_directory(path: Path, *, agent: Path | None = None) -> KeyDirectory:
    """
    Return the signer's directory at `path`; `agent` is the socket of the agent, for keys that it holds.

    Raises:
        KeyDirectoryError: if there is no key, it cannot be read or is damaged, or others may read it.
        KeyUnavailableError: if an agent holds a key and `agent` is not given.
    """
    return KeyDirectory(path, _read_keys(path, agent), agent=agent)


@contextmanager
def _making(path: Path) -> Iterator[None]:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_private(path, mode=0o700)
        for name in (KEY_FILE, RING_FILE, NOTES_FILE):
            if (path / name).exists():
                raise KeyDirectoryError(
                    f"{path} holds a {name} already, and a new key could not continue the logs that were signed with "
                    "the old one: use it, or name another directory"
                )
        yield
    except OSError as error:
        raise KeyDirectoryError(f"no key can be made in {path} ({error.strerror}): make it writable") from error


def _read_keys(path: Path, agent: Path | None) -> StoredKeys:
    try:
        return read_stored_keys(path, agent=agent)
    except FileNotFoundError as error:
        raise KeyDirectoryError(
            f"{path / KEY_FILE} is not there: restore it from a backup, or make a new key if this installation has "
            "never signed"
        ) from error
    except OSError as error:
        raise KeyDirectoryError(
            f"{error.filename or path} cannot be read ({error.strerror}): make it readable for this user"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedNote:
    """A signed checkpoint that is published, or about to be."""

    checkpoint: Checkpoint
    note: bytes


def format_notes(notes: Mapping[str, SignedNote]) -> bytes:
    """
    Return the file of these notes, by origin.
    """
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


def parse_notes(data: bytes, open_note: Callable[[bytes, str], Checkpoint]) -> dict[str, SignedNote]:
    """
    Return the notes of a file, by origin; `open_note` returns the checkpoint of a note of that log if it is signed.

    Raises:
        FormatError: if `data` is no such file.
        BrokenError: what `open_note` raises of a note that is not signed.
    """
    return {note.checkpoint.origin: note for note in (_parse(member, open_note) for member in _list(data))}


def find_note(data: bytes, origin: str, open_note: Callable[[bytes, str], Checkpoint]) -> SignedNote | None:
    """
    Return the note of one log in a file, or None; the signatures of the other notes are not checked.

    Raises:
        FormatError, BrokenError: as `parse_notes`.
    """
    for member in _list(data):
        if isinstance(member, dict) and member.get("origin") == origin:
            return _parse(member, open_note)
    return None


def _list(data: bytes) -> Sequence[Json]:
    file = _members(canonical.decode(data), {"notes", "version"})
    members = file["notes"]
    if file["version"] != 1 or not isinstance(members, list):
        raise FormatError("last notes", expected="version 1 and a list of notes", found=data)
    return members


def _parse(member: Json, open_note: Callable[[bytes, str], Checkpoint]) -> SignedNote:
    note = _members(member, {"note", "origin", "root", "size"})
    text = note["note"]
    if not isinstance(text, str):
        raise FormatError("last note", expected="a text", found=text)
    checkpoint = open_note(text.encode(), str(note["origin"]))
    if (checkpoint.size, checkpoint.root.hex()) != (note["size"], note["root"]):
        raise FormatError("last note", expected="size and root as in its text", found=note)
    return SignedNote(checkpoint=checkpoint, note=text.encode())


def _members(value: Json, names: set[str]) -> dict[str, Json]:
    if not isinstance(value, dict) or value.keys() != names:
        raise FormatError("last notes", expected=f"an object of {sorted(names)}", found=value)
    return cast("dict[str, Json]", value)
