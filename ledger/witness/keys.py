"""
The keys of a witness, in its directory: made once, all together, read by whoever serves it.

Guarantee: a directory is there with name, keys and no log, or it is not there. Back it up with what it has cosigned: a
witness that forgets either is another witness.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ledger.encoding import format_base64, parse_base64
from ledger.errors import FormatError
from ledger.signature import ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE, SEED_SIZE_BYTES
from ledger.witness.cosignature import Cosigner
from ledger.witness.store import LOGS, RealDisk, WitnessStoreError, check_private

NAME_FILE: Final = "name"
KEY_FILES: Final = {ED25519_COSIGNATURE: "ed25519-key", ML_DSA_44_COSIGNATURE: "ml-dsa-44-key"}


def create_witness(
    path: Path, *, name: str, algorithms: Sequence[int], random: Callable[[int], bytes] = os.urandom
) -> list[Cosigner]:
    """
    Make the directory of a witness with a new key of each of these types, and return its cosigners.

    Each type has a key of its own: one Ed25519 key must not speak for two cosigners (tlog-cosignature), and a public
    key should not serve two types (signed-note).

    Raises:
        FormatError: if no key can have that name.
        WitnessStoreError: if there is something at `path` already, or it cannot be written.
    """
    disk = RealDisk()
    seeds = {algorithm: random(SEED_SIZE_BYTES) for algorithm in algorithms}
    for algorithm, seed in seeds.items():
        Cosigner.from_seed(algorithm, name=name, seed=seed)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        (fresh / LOGS).mkdir(mode=0o700, parents=True)
        fresh.chmod(0o700)
        disk.write(fresh / NAME_FILE, f"{name}\n".encode())
        for algorithm, seed in seeds.items():
            disk.write(fresh / KEY_FILES[algorithm], f"{format_base64(seed)}\n".encode())
        disk.sync_directory(fresh)
        fresh.rename(path)  # fails where something is already, unless it is an empty directory
        disk.sync_directory(path.parent)
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
        raise WitnessStoreError(f"{file} is damaged: restore it from a backup") from None  # nothing of it in the text
