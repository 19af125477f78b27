# SPDX-License-Identifier: Apache-2.0
"""
The directory of a witness: its keys, the logs it knows, and what it has cosigned last of each.

    name                          the witness's name
    ed25519-key, ml-dsa-44-key    seeds, base64, 0600 (one of them or both)
    logs/<hash>.log               a log's origin and its trusted keys, a line each
    logs/<hash>.checkpoint        the checkpoint cosigned last, cosignatures included; empty until there is one

`<hash>` is SHA-256 of the origin in hex (tlog-witness, "Monitor Retrieval Mechanism").

Guarantee: once `keep` has returned, the checkpoint survives a crash of process and machine. If it raises, or the
machine stops in the middle, the file holds all of the old one or all of the new one. Until it has returned, a power cut
may leave either, so monitors are shown the old one (`last_by_hash`): a cosignature that is shown counts as sent. A log
whose checkpoint file is missing or does not open is not treated as never cosigned: it is refused until the file is
restored.

The keys are made once, all together: a directory exists with name, keys and no log, or it does not exist. Back it up
with what it has cosigned: a witness that forgets either is another witness.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from ledger.errors import FormatError, LedgerError
from ledger.files.atomic import Disk, replace_file, sync_directory
from ledger.files.private_files import mode_for_others
from ledger.format.cosignature import Cosigner
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.note import NOTE_SIZE_BYTES_MAX, VerifierKey
from ledger.format.signature import ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE, NAME_SIZE_BYTES_MAX, SEED_SIZE_BYTES

LOGS: Final = "logs"
LOG_KEYS_MAX: Final = 16

NAME_FILE: Final = "name"
KEY_FILES: Final = {ED25519_COSIGNATURE: "ed25519-key", ML_DSA_44_COSIGNATURE: "ml-dsa-44-key"}


class WitnessStoreError(LedgerError):
    """The directory of a witness cannot be used, or what it holds is damaged; says what to do."""


class WitnessStore:
    """
    The logs of one witness.

    A process that cosigns holds `locked` all the time, and a lock for each log around `last` and `keep`.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._before: dict[str, bytes | None] = {}
        """
        By hash of the origin, what was on the disk before a `keep` that has not returned, or has failed. Changed by the
        thread that holds that log's lock (`Witness`); any thread may read it.
        """

    @contextmanager
    def locked(self) -> Iterator[None]:
        """
        Hold the directory for a server, against every other process on this machine; what it shows is synced to the
        disk first.

        Raises:
            WitnessStoreError: at once, if another process holds it, it does not exist, or the disk fails.
        """
        with _flock(self.path, "another server cosigns with it: stop that one first"):
            logs = self.path / LOGS
            try:
                self._disk.sync_directory(logs)  # a killed server may have renamed a file without syncing the directory
            except OSError as error:
                raise WitnessStoreError(f"{logs} cannot be forced to the disk ({error.strerror}): repair it") from error
            yield

    def keys_of(self, origin: str) -> tuple[VerifierKey, ...] | None:
        """
        Return the trusted keys of a log, None if it is unknown.

        Raises:
            WitnessStoreError: if the file is damaged.
        """
        file = self._file(origin, "log")
        found = _read(file)
        if found is None:
            return None
        try:
            return _parse_log(origin, found)
        except (FormatError, UnicodeDecodeError) as error:
            raise WitnessStoreError(f"{file} is damaged ({error}): restore it from a backup") from error

    def origins(self) -> list[str]:
        """Return the origins of the known logs, sorted."""
        files = sorted((self.path / LOGS).glob("*.log"))
        return sorted((_read(file) or b"").decode(errors="replace").partition("\n")[0] for file in files)

    def last(self, origin: str) -> bytes | None:
        """
        Return the checkpoint of a known log that was cosigned last, None if there is none yet.

        Raises:
            WitnessStoreError: if its file is missing.
        """
        file = self._file(origin, "checkpoint")
        found = _read(file)
        if found is None:
            raise WitnessStoreError(f"{file} is missing, and with it what was cosigned of {origin}: restore it")
        return found or None

    def last_by_hash(self, origin_hash: str) -> bytes | None:
        """
        Return the checkpoint of the log with this hash (64 lower-case hex digits) that was cosigned last, None if none.

        Only what a power cut cannot undo: during a `keep`, or after a failed one, it is the one before.
        """
        found = _read(self.path / LOGS / f"{origin_hash}.checkpoint")
        # In this order: a `keep` that wrote what was just read is in `_before`, unless it has returned.
        return self._before.get(origin_hash, found) or None

    def keep(self, origin: str, note: bytes) -> None:
        """
        Replace what was cosigned last: temporary file, fsync, rename, fsync of the directory.

        Raises:
            WitnessStoreError: if that fails; no cosignature may be sent then, although the file may show `note`.
        """
        file, hashed = self._file(origin, "checkpoint"), origin_hash(origin)
        if hashed not in self._before:  # otherwise an earlier one failed, and the file's content may not be on the disk
            self._before[hashed] = _read(file)
        try:
            replace_file(file, note, disk=self._disk)
        except OSError as error:
            raise WitnessStoreError(f"{file} cannot be written ({error.strerror}): nothing is cosigned") from error
        del self._before[hashed]

    def add_log(self, origin: str, keys: Sequence[VerifierKey]) -> None:
        """
        Add a log, or add keys to a known one; a running server uses them at once.

        Raises:
            FormatError: if no log that a witness cosigns can have this origin.
            WitnessStoreError: if the directory cannot be written, or the log would have too many keys.
        """
        logs = self.path / LOGS
        if len(origin.encode()) > NAME_SIZE_BYTES_MAX or not origin or "\n" in origin:
            raise FormatError("origin", expected=f"a line of 1 to {NAME_SIZE_BYTES_MAX} bytes", found=origin)
        with _flock(logs, "another command changes it: try again"):
            known = self.keys_of(origin)
            merged = tuple(dict.fromkeys((*(known or ()), *keys)))
            if not 1 <= len(merged) <= LOG_KEYS_MAX:
                raise WitnessStoreError(f"log {origin}: expected 1 to {LOG_KEYS_MAX} keys, found {len(merged)}")
            try:
                if known is None and not self._file(origin, "checkpoint").exists():
                    # Before the log itself: a log without this file counts as damaged.
                    replace_file(self._file(origin, "checkpoint"), b"", disk=self._disk)
                replace_file(self._file(origin, "log"), _format_log(origin, merged), disk=self._disk)
            except OSError as error:
                raise WitnessStoreError(f"{logs} cannot be written ({error.strerror}): the log is not added") from error

    def _file(self, origin: str, kind: str) -> Path:
        return self.path / LOGS / f"{origin_hash(origin)}.{kind}"


def origin_hash(origin: str) -> str:
    """Return SHA-256 of an origin in lower-case hex, as in the path of a witness's checkpoint."""
    return sha256(origin.encode()).hexdigest()


def check_private(path: Path, mode_advised: str) -> None:
    """
    Check that no other user may use a file or directory; `mode_advised` is the mode that the error recommends.

    Raises:
        WitnessStoreError: if others may, or it does not exist.
    """
    try:
        mode = mode_for_others(path)
    except OSError as error:
        raise WitnessStoreError(f"{path} cannot be read ({error.strerror}): name a witness's directory") from error
    if mode is not None:
        raise WitnessStoreError(
            f"{path} has mode {mode:03o}, so that others may use it: run chmod {mode_advised} {path}"
        )


@contextmanager
def _flock(path: Path, otherwise: str) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise WitnessStoreError(f"{path} cannot be opened ({error.strerror}): name a witness's directory") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WitnessStoreError(f"{path} is in use: {otherwise}") from error
        yield
    finally:
        os.close(descriptor)


def _format_log(origin: str, keys: Sequence[VerifierKey]) -> bytes:
    return "".join(f"{line}\n" for line in (origin, *(key.format() for key in keys))).encode()


def _parse_log(origin: str, data: bytes) -> tuple[VerifierKey, ...]:
    keys = tuple(VerifierKey.parse(vkey) for vkey in data.decode().removesuffix("\n").split("\n")[1:])
    if not keys or _format_log(origin, keys) != data:
        raise FormatError("log of a witness", expected=f"{origin} and its keys, a line each", found=data)
    return keys


def _read(file: Path) -> bytes | None:
    try:
        with file.open("rb") as opened:
            data = opened.read(NOTE_SIZE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WitnessStoreError(f"{file} cannot be read ({error.strerror}): make it readable for this user") from error
    if len(data) > NOTE_SIZE_BYTES_MAX:
        raise WitnessStoreError(f"{file} is damaged: over {NOTE_SIZE_BYTES_MAX} bytes; restore it from a backup")
    return data


def create_witness(
    path: Path, *, name: str, algorithms: Sequence[int], random: Callable[[int], bytes] = os.urandom
) -> list[Cosigner]:
    """
    Make the directory of a witness with a new key of each of these types, and return its cosigners.

    Each type has a key of its own: one Ed25519 key must not be used by two cosigners (tlog-cosignature), and a public
    key should not serve two types (signed-note).

    Raises:
        FormatError: if no key can have that name.
        WitnessStoreError: if there is something at `path` already, or it cannot be written.
    """
    seeds = {algorithm: random(SEED_SIZE_BYTES) for algorithm in algorithms}
    for algorithm, seed in seeds.items():
        Cosigner.from_seed(algorithm, name=name, seed=seed)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        (fresh / LOGS).mkdir(mode=0o700, parents=True)
        fresh.chmod(0o700)
        replace_file(fresh / NAME_FILE, f"{name}\n".encode())
        for algorithm, seed in seeds.items():
            replace_file(fresh / KEY_FILES[algorithm], f"{format_base64(seed)}\n".encode())
        sync_directory(fresh)
        fresh.rename(path)  # fails if something is there, unless it is an empty directory
        sync_directory(path.parent)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise WitnessStoreError(f"no witness can be made at {path} ({error.strerror}): name a new directory") from error
    return open_cosigners(path)


def open_cosigners(path: Path) -> list[Cosigner]:
    """
    Return the cosigners of the witness whose directory is `path`, Ed25519 before ML-DSA-44.

    Raises:
        WitnessStoreError: if there is no key, one cannot be read or is damaged, or others may read it.
    """
    check_private(path, "700")
    files = {algorithm: path / file for algorithm, file in KEY_FILES.items() if (path / file).exists()}
    if not files:
        raise WitnessStoreError(f"{path} holds no key of a witness: make one with `witness init`, or restore it")
    try:
        name = (path / NAME_FILE).read_bytes().decode().removesuffix("\n")
        return [Cosigner.from_seed(algorithm, name=name, seed=_seed(file)) for algorithm, file in files.items()]
    except (OSError, UnicodeDecodeError, FormatError) as error:
        raise WitnessStoreError(f"{path} is damaged ({error}): restore it from a backup") from error


def _seed(file: Path) -> bytes:
    check_private(file, "600")
    try:
        return parse_base64(file.read_bytes().decode("ascii").removesuffix("\n"), what="key of a witness")
    except (UnicodeDecodeError, FormatError):
        raise WitnessStoreError(f"{file} is damaged: restore it from a backup") from None  # without its content
