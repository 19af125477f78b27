"""
Checkpoints: what a log signs about itself, origin, size and root hash (C2SP tlog-checkpoint).

Guarantee: `open_checkpoint` returns a checkpoint only if a key of the very log that it speaks of has signed it.

The last part matters because one caller may know the keys of many logs and witnesses: a note of log A signed by the key
of log B, or by a witness alone, says nothing about A. A key belongs to the log whose origin is its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledger.errors import BrokenError, Fault, FormatError
from ledger.merkle import HASH_SIZE_BYTES
from ledger.note import VerifierKey, format_base64, open_note, parse_base64

SIZE_MAX = 2**63 - 1
"""Sizes and indexes fit a signed 64-bit integer, as in PostgreSQL and in every implementation of these formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The tree of the log `origin` at `size` entries; `extensions` are opaque lines, which we never write."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if any(not line or "\n" in line for line in (self.origin, *self.extensions)):
            raise FormatError("checkpoint", expected="origin and extensions as lines that are not empty", found=self)
        if not 0 <= self.size <= SIZE_MAX:
            raise FormatError("checkpoint", expected="a size from 0 to 2^63 - 1", found=self.size)
        if len(self.root) != HASH_SIZE_BYTES:
            raise FormatError("checkpoint", expected="a root hash of 32 bytes", found=self.root)


def format_checkpoint(checkpoint: Checkpoint) -> str:
    """
    Return the note text of a checkpoint: a line each for origin, size in decimal, root in base64, and each extension.
    """
    lines = (
        checkpoint.origin,
        str(checkpoint.size),
        format_base64(checkpoint.root),
        *checkpoint.extensions,
    )
    return "".join(line + "\n" for line in lines)


def parse_checkpoint(text: str) -> Checkpoint:
    """
    Return the checkpoint that a note's text holds; who signed it is for `open_checkpoint` to say.

    Raises:
        FormatError: if `text` is not exactly as `format_checkpoint` writes it.
    """
    match text.removesuffix("\n").split("\n"):
        case [origin, size, root, *extensions]:
            checkpoint = Checkpoint(
                origin=origin,
                size=parse_decimal(size, what="checkpoint size"),
                root=parse_base64(root, what="checkpoint root"),
                extensions=tuple(extensions),
            )
            if format_checkpoint(checkpoint) == text:
                return checkpoint
    raise FormatError("checkpoint", expected="lines of origin, size and root hash, each ended by a newline", found=text)


def open_checkpoint(note: bytes, keys: Sequence[VerifierKey], *, origin: str | None = None) -> Checkpoint:
    """
    Return the checkpoint in `note`, if a key of its own log is among `keys` and has signed it.

    Other `keys` (witnesses, other logs) may be among them: their lines must verify, but do not stand in for the log's.
    With `origin`, the checkpoint must be of that log.

    Raises:
        FormatError: if `note` is not a signed note, or its text is not a checkpoint.
        BrokenError: `Fault.SIGNATURE` if a known key's signature is bad or no key of the log signed; `Fault.CHECKPOINT`
            if it is another log's than `origin`.
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


def parse_decimal(text: str, *, what: str) -> int:
    """
    Return the number from 0 to 2^63 - 1 that `text` spells in ASCII decimal; `what` names it in the error.

    Raises:
        FormatError: if `text` is any other spelling (leading zeros, signs, digits of other scripts) or too large.
    """
    # Bounded before it becomes a number: Python refuses to read very long ones, with an error that is not ours.
    if text.isascii() and text.isdigit() and len(text) <= len(str(SIZE_MAX)):
        number = int(text)
        if number <= SIZE_MAX and str(number) == text:
            return number
    raise FormatError(what, expected="a decimal number from 0 to 2^63 - 1 without leading zeros", found=text)
