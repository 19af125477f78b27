# SPDX-License-Identifier: Apache-2.0
"""
Signed notes: text with signature lines under it (C2SP signed-note), and the keys that sign and verify them.

Guarantee: `open_note` returns a text only if a key that the caller gave has signed exactly that text, and every line of
such a key verifies. `open_checkpoint` returns a checkpoint only if a key of its own log has signed it. A caller may
hold the keys of many logs and witnesses: a note of log A signed by the key of log B, or by a witness alone, says
nothing about A. A key belongs to the log whose origin is its name.

A signature of an unknown key is kept and otherwise ignored: that is how witnesses add theirs and how keys are replaced.
`signature.py` defines what each type of signature signs, and holds the implementations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Protocol

from ledger.errors import BrokenError, Fault, FormatError
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.encoding import format_base64, parse_base64
from ledger.format.signature import (
    ED25519,
    ML_DSA_44_COSIGNATURE,
    NAME_SIZE_BYTES_MAX,
    TYPES,
    PrivateKey,
    check_signature,
    private_key,
)

KEY_ID_SIZE_BYTES = 4
SIGNATURES_MAX = 100
"""Signatures in one note; a verifier must accept 16 (signed-note, "Format"), and each costs a verification at most."""
NOTE_SIZE_BYTES_MAX = 1_000_000
"""Enough for a hundred post-quantum signatures and a long text."""
_DASH = "\N{EM DASH} "
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierKey:
    """
    A public key under a name; its text form is `<name>+<key id, 8 hex>+<base64 of algorithm and key>`.

    Name and key id together identify the key of a signature line; key id = SHA-256(name || 0x0A || algorithm ||
    public)[:4].
    """

    name: str
    key_id: bytes
    algorithm: int
    public: bytes

    def __post_init__(self) -> None:
        _check_name(self.name)
        kind = TYPES.get(self.algorithm)
        if kind is None or len(self.public) != kind.public_size_bytes:
            known = ", ".join(f"{number:#04x} ({t.public_size_bytes} bytes)" for number, t in TYPES.items())
            found = f"{self.algorithm:#04x} and {len(self.public)} bytes"
            raise FormatError("verifier key", expected=f"a type and a key of its size: {known}", found=found)
        if self.algorithm == ML_DSA_44_COSIGNATURE and len(self.name.encode()) > NAME_SIZE_BYTES_MAX:
            expected = f"a name of at most {NAME_SIZE_BYTES_MAX} bytes, which ML-DSA-44 signs along"
            raise FormatError("verifier key", expected=expected, found=self.name)
        if self.key_id != (key_id := _key_id(self.name, self.algorithm, self.public)):
            raise FormatError("verifier key", expected=f"the key id {key_id.hex()}", found=self.key_id.hex())

    @classmethod
    def of(cls, algorithm: int, *, name: str, public: bytes) -> VerifierKey:
        """
        Return the verifier key of a public key under `name`; `algorithm` is a type of `ledger.format.signature`.

        Raises:
            FormatError: if the name, the type, or the length of the key is not allowed.
        """
        _check_name(name)
        return cls(name=name, key_id=_key_id(name, algorithm, public), algorithm=algorithm, public=public)

    @classmethod
    def ed25519(cls, *, name: str, public: bytes) -> VerifierKey:
        """
        Return the verifier key of an Ed25519 public key (32 bytes, RFC 8032) under `name`.

        Raises:
            FormatError: if the name or the length of the key is not allowed.
        """
        return cls.of(ED25519, name=name, public=public)

    @classmethod
    def parse(cls, vkey: str) -> VerifierKey:
        """
        Return the verifier key that `format` writes as `vkey`.

        Raises:
            FormatError: if `vkey` is no verifier key, of an unknown type, or its key id is not that of name and key.
        """
        name, _, rest = vkey.partition("+")
        key_id, _, encoded = rest.partition("+")
        if not re.fullmatch("[0-9a-f]{8}", key_id):
            # The rest is not shown: Go's private keys begin like a verifier key and are easily passed by mistake.
            found = f"{name}+{key_id}+…"
            raise FormatError("verifier key", expected="<name>+<8 hex digits>+<base64>", found=found)
        typed = parse_base64(encoded, what="verifier key")
        if not typed:
            raise FormatError("verifier key", expected="an algorithm and a key after the key id", found=vkey)
        return cls(name=name, key_id=bytes.fromhex(key_id), algorithm=typed[0], public=typed[1:])

    def format(self) -> str:
        """Return the text form of the key, as verifiers get it."""
        return f"{self.name}+{self.key_id.hex()}+{format_base64(bytes([self.algorithm]) + self.public)}"

    def check(self, text: bytes, signature: bytes) -> None:
        """
        Check that `signature`, which is without the key id, is this key's over `text`.

        Raises:
            BrokenError: (`Fault.SIGNATURE`) if it is not.
        """
        check_signature(self.algorithm, name=self.name, public=self.public, text=text, signature=signature)


class Signer(Protocol):
    """Signs notes under a name; the private key may be anywhere."""

    @property
    def name(self) -> str: ...

    @property
    def verifier_key(self) -> VerifierKey: ...

    def sign(self, text: bytes) -> bytes:
        """Return the bare signature over `text`, without the key id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ed25519Signer:
    """Signs with an Ed25519 private key in memory; the key is in no text form of this object."""

    name: str
    private_key: PrivateKey = field(repr=False)
    verifier_key: VerifierKey = field(init=False)

    def __post_init__(self) -> None:
        key = VerifierKey.ed25519(name=self.name, public=self.private_key.public)
        object.__setattr__(self, "verifier_key", key)

    @classmethod
    def from_seed(cls, *, name: str, seed: bytes) -> Ed25519Signer:
        """
        Return the signer of the private key whose 32-byte seed (RFC 8032, section 5.1.5) is `seed`.

        Raises:
            FormatError: if the name is not allowed or the seed is not 32 bytes long; its bytes are not in the message.
        """
        return cls(name=name, private_key=private_key(ED25519, seed))

    def sign(self, text: bytes) -> bytes:
        """Return the 64-byte signature over `text`."""
        return self.private_key.sign(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature line of a note: the key that it claims, and the bare signature (1 byte or more, any algorithm)."""

    name: str
    key_id: bytes
    signature: bytes

    def __post_init__(self) -> None:
        _check_name(self.name)
        if len(self.key_id) != KEY_ID_SIZE_BYTES or not self.signature:
            found = f"{len(self.key_id)} and {len(self.signature)} bytes"
            raise FormatError("note signature", expected="a key id of 4 bytes and a signature", found=found)

    def format(self) -> str:
        """Return the signature line, with its newline."""
        return f"{_DASH}{self.name} {format_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note whose signatures were verified: its text, the keys that signed it, and the lines of unknown keys."""

    text: str
    verified: tuple[VerifierKey, ...]
    unverified: tuple[Signature, ...]


def sign_note(text: str, signers: Sequence[Signer]) -> bytes:
    """
    Return `text`, which ends in a newline, as a note signed by each of `signers`.

    Raises:
        FormatError: if the text cannot be that of a note, or there are no signers.
    """
    _check_text(text)
    message = text.encode()
    signatures = [Signature(name=s.name, key_id=s.verifier_key.key_id, signature=s.sign(message)) for s in signers]
    return format_note(text, signatures)


def open_note(note: bytes, keys: Sequence[VerifierKey]) -> Note:
    """
    Return the note if at least one of `keys` has signed it.

    A line belongs to a key if both name and key id match. Every such line must verify, or the whole note is refused.
    The keys of the result are in the order of their first lines, each once.

    Raises:
        FormatError: if `note` is not a signed note, or two different `keys` share name and key id.
        BrokenError: (`Fault.SIGNATURE`) if a line of one of `keys` does not verify, or none of `keys` signed.
    """
    text, signatures = parse_note(note)
    known: dict[tuple[str, bytes], VerifierKey] = {}
    for key in keys:
        if known.setdefault((key.name, key.key_id), key) != key:
            expected = "keys that differ in name or key id"
            raise FormatError("verifier keys", expected=expected, found=f"{key.name}+{key.key_id.hex()} twice")
    message = text.encode()
    verified: dict[VerifierKey, None] = {}
    unverified: list[Signature] = []
    for line in signatures:
        signer = known.get((line.name, line.key_id))
        if signer is None:
            unverified.append(line)
        else:
            signer.check(message, line.signature)
            verified[signer] = None
    if not verified:
        expected = (
            " or ".join(f"{name}+{key_id.hex()}" for name, key_id in known) or "one of no keys: name at least one"
        )
        found = ", ".join(f"{line.name}+{line.key_id.hex()}" for line in signatures)
        raise BrokenError(Fault.SIGNATURE, where="note", expected=f"a signature by {expected}", found=found)
    return Note(text=text, verified=tuple(verified), unverified=tuple(unverified))


def format_note(text: str, signatures: Sequence[Signature]) -> bytes:
    """
    Return the note of `text` and signature lines as they are; nothing is signed or checked.

    Raises:
        FormatError: if the text cannot be that of a note, there are no signatures, or something is too large.
    """
    _check_text(text)
    if not 1 <= len(signatures) <= SIGNATURES_MAX:
        raise FormatError("note", expected=f"1 to {SIGNATURES_MAX} signatures", found=len(signatures))
    note = (text + "\n" + "".join(line.format() for line in signatures)).encode()
    if len(note) > NOTE_SIZE_BYTES_MAX:
        raise FormatError("note", expected=f"at most {NOTE_SIZE_BYTES_MAX} bytes", found=f"{len(note)} bytes")
    return note


def parse_note(note: bytes) -> tuple[str, tuple[Signature, ...]]:
    """
    Return text and signature lines of a note, *unverified*: only `open_note` says who signed.

    Raises:
        FormatError: if `note` is not exactly as `format_note` writes it.
    """
    if len(note) > NOTE_SIZE_BYTES_MAX:
        raise FormatError("note", expected=f"at most {NOTE_SIZE_BYTES_MAX} bytes", found=f"{len(note)} bytes")
    try:
        whole = note.decode()
    except UnicodeDecodeError as error:
        raise FormatError("note", expected="UTF-8", found=note) from error
    # Signature lines are never empty, so the last empty line ends the text, which may hold others.
    text, border, lines = whole.rpartition("\n\n")
    if not border or not lines.endswith("\n"):
        raise FormatError("note", expected="a text, an empty line, and signature lines", found=whole)
    signatures = tuple(_parse_signature(line) for line in lines[:-1].split("\n", SIGNATURES_MAX))
    if format_note(text + "\n", signatures) != note:
        raise FormatError("note", expected="the one spelling of this note", found=whole)
    return text + "\n", signatures


def _parse_signature(line: str) -> Signature:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH):
        raise FormatError("note signature", expected="an em dash, a space, name, space, base64", found=line)
    data = parse_base64(encoded, what="note signature")
    return Signature(name=name, key_id=data[:KEY_ID_SIZE_BYTES], signature=data[KEY_ID_SIZE_BYTES:])


def _key_id(name: str, algorithm: int, public: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + bytes([algorithm]) + public).digest()[:KEY_ID_SIZE_BYTES]


def _check_name(name: str) -> None:
    if not name or any(c == "+" or c < " " or c.isspace() or "\ud800" <= c <= "\udfff" for c in name):
        raise FormatError("key name", expected="a name without spaces, control characters and plus", found=name)


def _check_text(text: str) -> None:
    if not text.endswith("\n") or _CONTROL.search(text):
        raise FormatError("note", expected="a text that ends in a newline, its only control character", found=text)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FormatError("note", expected="text with a UTF-8 form", found=text) from error


def open_checkpoint(note: bytes, keys: Sequence[VerifierKey], *, origin: str | None = None) -> Checkpoint:
    """
    Return the checkpoint in `note`, if a key of its own log is among `keys` and has signed it.

    `keys` may hold other keys (of witnesses, other logs): their lines must verify, but do not replace the log's. With
    `origin`, the checkpoint must be of that log.

    Raises:
        FormatError: if `note` is not a signed note, or its text is not a checkpoint.
        BrokenError: `Fault.SIGNATURE` if a known key's signature is bad or no key of the log signed; `Fault.CHECKPOINT`
            if it is of another log than `origin`.
    """
    opened = open_note(note, keys)
    checkpoint = parse_checkpoint(opened.text)
    if origin is not None and checkpoint.origin != origin:
        raise BrokenError(Fault.CHECKPOINT, where="checkpoint", expected=origin, found=checkpoint.origin)
    names = [key.name for key in opened.verified]
    if checkpoint.origin not in names:
        expected = f"a signature by a key named {checkpoint.origin}"
        raise BrokenError(Fault.SIGNATURE, where="checkpoint", expected=expected, found=", ".join(names))
    return checkpoint
