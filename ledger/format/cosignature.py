# SPDX-License-Identifier: Apache-2.0
"""
Cosignatures: a witness states when it saw a checkpoint, as a signature line under it (C2SP tlog-cosignature).

Guarantee: `open_cosignatures` returns a key only if it has cosigned exactly this checkpoint, at the time it gives.

There are two types. Ed25519 (0x04) signs the checkpoint's text. ML-DSA-44 (0x06) signs what the text says and the
witness's own name; `signature.py` has both messages. Subtrees that do not begin at the first leaf are not signed here.

A log may sign with ML-DSA-44, too, in addition to Ed25519 and never instead of it. C2SP tlog-checkpoint, "Signatures",
recommends it, and a quantum computer cannot forge it. Its line is a cosignature by the log itself: the name of the key
is the log's origin, the time is that of signing. A verifier that does not know the key ignores the line. One that has
pinned it need not trust Ed25519. The private half is always a file, because agents hold no such keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from ledger.errors import FormatError
from ledger.format.note import Signature, VerifierKey, format_note, parse_note
from ledger.format.signature import (
    ED25519_COSIGNATURE,
    ML_DSA_44_COSIGNATURE,
    TIME_MAX_S,
    TYPES,
    PrivateKey,
    cosigned_at,
    private_key,
    signed_message,
)

COSIGNATURE_TYPES: Final = (ED25519_COSIGNATURE, ML_DSA_44_COSIGNATURE)
_ANY_TEXT: Final = "\n"

PUBLIC_SIZE_BYTES: Final = TYPES[ML_DSA_44_COSIGNATURE].public_size_bytes


class Cosigner:
    """One key of a witness. Its text form does not show the private key."""

    def __init__(self, *, algorithm: int, name: str, key: PrivateKey) -> None:
        self._key = key
        self.verifier_key = VerifierKey.of(algorithm, name=name, public=key.public)

    @classmethod
    def from_seed(cls, algorithm: int, *, name: str, seed: bytes) -> Cosigner:
        """
        Return the cosigner of the private key with this seed; `algorithm` is one of `COSIGNATURE_TYPES`.

        Raises:
            FormatError: if the type or the name is not allowed, or the seed is not 32 bytes long.
        """
        if algorithm not in COSIGNATURE_TYPES:
            raise FormatError("cosigner", expected=f"a type of {COSIGNATURE_TYPES}", found=algorithm)
        return cls(algorithm=algorithm, name=name, key=private_key(algorithm, seed))

    def __repr__(self) -> str:
        return f"Cosigner({self.verifier_key.name!r}, {TYPES[self.verifier_key.algorithm].title})"

    def cosign(self, text: str, *, time_s: int) -> Signature:
        """
        Return the line that cosigns the checkpoint `text` as seen at `time_s`, POSIX seconds.

        Raises:
            FormatError: if `text` is no checkpoint, or the time is not after the epoch: with a time of zero, a
                cosignature would not say that the tree was the largest one seen.
        """
        if not 0 < time_s <= TIME_MAX_S:
            raise FormatError("cosignature", expected="a time from 1 to 2^63 - 1", found=time_s)
        key = self.verifier_key
        message = signed_message(key.algorithm, name=key.name, text=text.encode(), time_s=time_s)
        signature = time_s.to_bytes(8, "big") + self._key.sign(message)
        return Signature(name=key.name, key_id=key.key_id, signature=signature)


def open_cosignatures(text: str, lines: Sequence[Signature], keys: Sequence[VerifierKey]) -> dict[VerifierKey, int]:
    """
    Return those of `keys` that have cosigned the checkpoint `text` in `lines`, each with its time in POSIX seconds.

    Lines of unknown keys are ignored. If a key has several lines, all must verify, and the first one's time counts.
    Zero means no time: it is returned only if no line of the key has a time.

    Raises:
        BrokenError: (`Fault.SIGNATURE`) if a line of one of `keys` does not verify.
    """
    known = {(key.name, key.key_id): key for key in keys if key.algorithm in COSIGNATURE_TYPES}
    times: dict[VerifierKey, int] = {}
    for line in lines:
        if (key := known.get((line.name, line.key_id))) is not None:
            key.check(text.encode(), line.signature)
            times[key] = times.get(key) or cosigned_at(line.signature)
    return times


def format_cosignatures(lines: Sequence[Signature]) -> bytes:
    """
    Return signature lines as a witness responds with them (tlog-witness, "add-checkpoint").

    Raises:
        FormatError: if there are none, or more than a note may have.
    """
    return format_note(_ANY_TEXT, lines).removeprefix(f"{_ANY_TEXT}\n".encode())


def parse_cosignatures(data: bytes) -> tuple[Signature, ...]:
    """
    Return the signature lines of a witness's response, *unverified*.

    Raises:
        FormatError: if `data` is not exactly as `format_cosignatures` writes it.
    """
    text, lines = parse_note(f"{_ANY_TEXT}\n".encode() + data)
    if text != _ANY_TEXT:  # an empty line in between would make the lines before it part of the text
        raise FormatError("cosignatures", expected="signature lines only", found=data)
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class MlDsaKey:
    """A key whose seed was read from a file. The text form of this object does not show the seed."""

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
    """
    Signs checkpoints of the log `name` as made at `time_s`, POSIX seconds (implements `ledger.format.note.Signer`).
    """

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
    Return the id of the key, which also ends the name of its file: the first 8 bytes of its SHA-256, in hex.
    """
    return sha256(public).hexdigest()[:16]
