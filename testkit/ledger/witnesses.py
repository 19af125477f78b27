# SPDX-License-Identifier: Apache-2.0
"""Logs to be witnessed, their forks, and witnesses in a directory: what the tests of `ledger.witness` share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ledger.files.atomic import Disk, RealDisk
from ledger.format.checkpoint import Checkpoint, format_checkpoint
from ledger.format.cosignature import COSIGNATURE_TYPES, Cosigner
from ledger.format.merkle import leaf_hash, prove_consistency, root_of
from ledger.format.note import Ed25519Signer, Signature, sign_note
from ledger.format.signature import ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE, signed_message
from ledger.witness.rules import AddCheckpoint, format_request
from ledger.witness.store import KEY_FILES, WitnessStore, create_witness
from ledger.witness.witness import Witness, open_witness

ORIGIN: Final = "log.example/orders"
LOG: Final = Ed25519Signer.from_seed(name=ORIGIN, seed=b"l" * 32)
OTHER_LOG: Final = Ed25519Signer.from_seed(name="log.example/other", seed=b"o" * 32)
NAME: Final = "witness.example/w1"
TIME_S: Final = 1_679_315_147
SIZE: Final = 40


class History:
    """What a log has held, or holds on one side of a fork: the leaves, and what the log says of them at each size."""

    def __init__(self, leaves: Sequence[bytes], log: Ed25519Signer = LOG) -> None:
        self.leaves = list(leaves)
        self.log = log

    def read(self, level: int, index: int) -> bytes:
        return root_of(self.leaves[index << level : (index + 1) << level])

    def checkpoint(self, size: int) -> Checkpoint:
        return Checkpoint(origin=self.log.name, size=size, root=root_of(self.leaves[:size]))

    def text(self, size: int) -> str:
        return format_checkpoint(self.checkpoint(size))

    def note(self, size: int) -> bytes:
        return sign_note(self.text(size), [self.log])

    def proof(self, old_size: int, size: int) -> list[bytes]:
        return prove_consistency(size1=old_size, size2=size, read=self.read) if 0 < old_size < size else []

    async def prove(self, old_size: int, size: int) -> list[bytes]:
        return self.proof(old_size, size)

    def request(self, old_size: int, size: int) -> bytes:
        proof = tuple(self.proof(old_size, size))
        return format_request(AddCheckpoint(old_size=old_size, proof=proof, note=self.note(size)))


def leaves(count: int, *, side: str = "") -> list[bytes]:
    return [leaf_hash(f"{side}{number}".encode()) for number in range(count)]


def forked(history: History, at: int) -> History:
    """Return a history of the same log that shares the first `at` leaves only."""
    return History([*history.leaves[:at], *leaves(len(history.leaves) - at, side="fork")], history.log)


GENUINE: Final = History(leaves(SIZE))


def cosigners(name: str = NAME, seed: bytes = b"w" * 32) -> tuple[Cosigner, Cosigner]:
    """Return a witness's two keys, Ed25519 and ML-DSA-44."""
    ed25519, ml_dsa_44 = (Cosigner.from_seed(kind, name=name, seed=seed) for kind in COSIGNATURE_TYPES)
    return ed25519, ml_dsa_44


def timeless(cosigner: Cosigner, text: str) -> Signature:
    """Return a line with the time zero, as an ML-DSA-44 cosigner may write it (tlog-cosignature, "timestamp")."""
    key = cosigner.verifier_key
    message = signed_message(key.algorithm, name=key.name, text=text.encode(), time_s=0)
    return Signature(name=key.name, key_id=key.key_id, signature=bytes(8) + cosigner._key.sign(message))


def make_witness(
    path: Path,
    *,
    name: str = NAME,
    logs: Sequence[Ed25519Signer] = (LOG,),
    algorithms: Sequence[int] = (ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE),
) -> Path:
    """Make the directory of a witness that knows these logs."""
    create_witness(path, name=name, algorithms=algorithms)
    for log in logs:
        WitnessStore(path, RealDisk()).add_log(log.name, [log.verifier_key])
    return path


@contextmanager
def opened(path: Path, disk: Disk | None = None, *, time_s: int = TIME_S) -> Iterator[Witness]:
    with open_witness(path, clock=lambda: time_s, disk=disk) as witness:
        yield witness


def key_files(path: Path) -> list[Path]:
    return [path / name for name in KEY_FILES.values()]
