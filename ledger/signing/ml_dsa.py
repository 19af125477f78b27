"""
ML-DSA-44 keys of a signer: each adds a line to every checkpoint, beside those of Ed25519 and never instead of them.

Why: a log should sign with ML-DSA-44 (C2SP tlog-checkpoint, "Signatures"), which a quantum computer does not forge. The
line is a cosignature by the log itself (C2SP tlog-cosignature, type 0x06): the name of its key is the log's origin, the
time is that of signing. Who does not know the key ignores the line, and who has pinned it need not believe Ed25519.

The private half is always a file: agents hold no such keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from ledger.note import VerifierKey
from ledger.signature import ML_DSA_44_COSIGNATURE, TYPES, PrivateKey, private_key
from ledger.witness.cosignature import Cosigner

PUBLIC_SIZE_BYTES: Final = TYPES[ML_DSA_44_COSIGNATURE].public_size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MlDsaKey:
    """A key whose seed was read from a file; the seed is in no text form of this object."""

    public: bytes
    private: PrivateKey = field(repr=False, compare=False)

    @classmethod
    def from_seed(cls, seed: bytes) -> MlDsaKey:
        """
        Return the key of a 32-byte seed (FIPS 204, algorithm 1).

        Raises:
            FormatError: if it is not 32 bytes long; its bytes are not in the message.
        """
        private = private_key(ML_DSA_44_COSIGNATURE, seed)
        return cls(public=private.public, private=private)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCosigner:
    """Signs checkpoints of the log `name` as made at `time_s`, POSIX seconds (implements `ledger.note.Signer`)."""

    name: str
    key: MlDsaKey
    time_s: int

    @property
    def verifier_key(self) -> VerifierKey:
        """The verifier key of that name."""
        return ml_dsa_verifier_key(self.name, self.key.public)

    def sign(self, text: bytes) -> bytes:
        """
        Return the time in 8 bytes and the signature over the checkpoint `text`.

        Raises:
            FormatError: if `text` is no checkpoint, or the time is not after the epoch.
        """
        cosigner = Cosigner(algorithm=ML_DSA_44_COSIGNATURE, name=self.name, key=self.key.private)
        return cosigner.cosign(text.decode(), time_s=self.time_s).signature


def ml_dsa_verifier_key(origin: str, public: bytes) -> VerifierKey:
    """
    Return an ML-DSA-44 public key as verifier key of one log.
    """
    return VerifierKey.of(ML_DSA_44_COSIGNATURE, name=origin, public=public)


def ml_dsa_key_id(public: bytes) -> str:
    """
    Return the id by which people name the key, the end of its file's name: the first 8 bytes of its SHA-256, in hex.
    """
    return sha256(public).hexdigest()[:16]
