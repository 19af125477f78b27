# SPDX-License-Identifier: Apache-2.0
"""
The signature types of notes: the message of each, and the code that signs and verifies (C2SP signed-note,
tlog-cosignature).

    0x01  Ed25519 over the note's text
    0x04  Ed25519 over a header, a time and the text of a checkpoint; the time stands before the signature
    0x06  ML-DSA-44 over signer's name, time, origin, size and root of a checkpoint; the time stands before it, too

Guarantee: `check_signature` returns only if the key signed what the note says, under this name where the type binds it.
This is the only module that calls an implementation of Ed25519 (RFC 8032) or ML-DSA-44 (FIPS 204).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint, parse_checkpoint

ED25519: Final = 0x01
ED25519_COSIGNATURE: Final = 0x04
ML_DSA_44_COSIGNATURE: Final = 0x06
"""Signature type identifiers (signed-note, "Signature types")."""

SEED_SIZE_BYTES: Final = 32
"""Of the private keys of both algorithms (RFC 8032, section 5.1.5; FIPS 204, algorithm 1)."""

TIME_MAX_S: Final = 2**63 - 1
"""The latest time of a cosignature, POSIX seconds (tlog-cosignature, "Format")."""

NAME_SIZE_BYTES_MAX: Final = 255
"""Of signer and origin in the message of ML-DSA-44: a vector with one byte of length (tlog-cosignature)."""

_TIME: Final = struct.Struct(">Q")
_LABEL: Final = b"subtree/v1\n\0"

SignatureCheck = Callable[[bytes, bytes, bytes], None]
"""Checks (public key, signature, message); raises InvalidSignature or ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureType:
    """A type of signatures: its sizes in bytes, with the time before the signature proper if it `is_timed`."""

    title: str
    public_size_bytes: int
    signature_size_bytes: int
    is_timed: bool
    check: SignatureCheck


def _check_ed25519(public: bytes, signature: bytes, message: bytes) -> None:
    Ed25519PublicKey.from_public_bytes(public).verify(signature, message)


def _check_ml_dsa_44(public: bytes, signature: bytes, message: bytes) -> None:
    MLDSA44PublicKey.from_public_bytes(public).verify(signature, message)


TYPES: Final = {
    ED25519: SignatureType(
        title="Ed25519", public_size_bytes=32, signature_size_bytes=64, is_timed=False, check=_check_ed25519
    ),
    ED25519_COSIGNATURE: SignatureType(
        title="Ed25519 cosignature", public_size_bytes=32, signature_size_bytes=72, is_timed=True, check=_check_ed25519
    ),
    ML_DSA_44_COSIGNATURE: SignatureType(
        title="ML-DSA-44 cosignature",
        public_size_bytes=1312,
        signature_size_bytes=2428,
        is_timed=True,
        check=_check_ml_dsa_44,
    ),
}


def check_signature(algorithm: int, *, name: str, public: bytes, text: bytes, signature: bytes) -> None:
    """
    Check that `signature`, without its key id, is over `text` by the key `public` under `name`.

    Raises:
        BrokenError: (`Fault.SIGNATURE`) if it is not, or the text cannot be what this type signs.
    """
    kind = TYPES[algorithm]
    expected = f"a signature by {name} ({kind.title}, {kind.signature_size_bytes} bytes) over this text"
    if len(signature) != kind.signature_size_bytes:
        raise BrokenError(Fault.SIGNATURE, where="note", expected=expected, found=signature.hex())
    try:
        time_s = cosigned_at(signature) if kind.is_timed else 0
        message = signed_message(algorithm, name=name, text=text, time_s=time_s)
        kind.check(public, signature[_TIME.size :] if kind.is_timed else signature, message)
    except (InvalidSignature, ValueError, FormatError) as error:  # ValueError: the bytes are no public key
        raise BrokenError(Fault.SIGNATURE, where="note", expected=expected, found=signature.hex()) from error


def cosigned_at(signature: bytes) -> int:
    """Return the time of a cosignature (0x04 or 0x06, without key id) in POSIX seconds."""
    time_s: int = _TIME.unpack_from(signature)[0]
    return time_s


def signed_message(algorithm: int, *, name: str, text: bytes, time_s: int) -> bytes:
    """
    Return the message that a key signs for a note's `text`; `name` and `time_s` (POSIX seconds) matter where the type
    binds them.

    Raises:
        FormatError: if the type signs checkpoints and `text` is none, or a name or the time is too long for it.
        UnicodeDecodeError: if `text` is not UTF-8, which the text of a note is.
    """
    if algorithm == ED25519:
        return text
    checkpoint = parse_checkpoint(text.decode())
    if not 0 <= time_s <= TIME_MAX_S:
        raise FormatError("cosignature", expected="a time from 0 to 2^63 - 1", found=time_s)
    if algorithm == ED25519_COSIGNATURE:
        return b"cosignature/v1\ntime %d\n%b" % (time_s, text)
    return _cosigned_message(name=name, checkpoint=checkpoint, time_s=time_s)


def _cosigned_message(*, name: str, checkpoint: Checkpoint, time_s: int) -> bytes:
    """Return the `cosigned_message` of a whole tree (tlog-cosignature, "ML-DSA-44 signed message")."""
    return b"".join(
        (
            _LABEL,
            _vector(name),
            _TIME.pack(time_s),
            _vector(checkpoint.origin),
            _TIME.pack(0),  # start: a checkpoint covers the tree from its first leaf
            _TIME.pack(checkpoint.size),
            checkpoint.root,
        )
    )


def _vector(text: str) -> bytes:
    """Return opaque<1..2^8-1> (RFC 8446, section 3.4)."""
    data = text.encode()
    if not 1 <= len(data) <= NAME_SIZE_BYTES_MAX:
        raise FormatError("cosignature", expected=f"a name of 1 to {NAME_SIZE_BYTES_MAX} bytes", found=text)
    return bytes([len(data)]) + data


class PrivateKey:
    """A private key in memory. The text form of this object does not show it."""

    def __init__(self, key: Ed25519PrivateKey | MLDSA44PrivateKey) -> None:
        self._key = key

    @property
    def public(self) -> bytes:
        """The public key, raw."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return the bare signature over `message`."""
        return self._key.sign(message)


def private_key(algorithm: int, seed: bytes) -> PrivateKey:
    """
    Return the private key whose seed is `seed`.

    Raises:
        FormatError: if the seed is not 32 bytes long; its bytes are not in the message.
    """
    if len(seed) != SEED_SIZE_BYTES:
        raise FormatError("signing key", expected=f"a seed of {SEED_SIZE_BYTES} bytes", found=f"{len(seed)} bytes")
    if algorithm == ML_DSA_44_COSIGNATURE:
        return PrivateKey(MLDSA44PrivateKey.from_seed_bytes(seed))
    return PrivateKey(Ed25519PrivateKey.from_private_bytes(seed))
