# SPDX-License-Identifier: Apache-2.0
"""
Checkpoints: what a log signs about itself: origin, size and root hash, a line each (C2SP tlog-checkpoint, "Note text").

`open_checkpoint` in `note.py` verifies the note around it. It imports the signatures, and they import this module,
because some types sign what a checkpoint says rather than its text (`signature.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.errors import FormatError
from ledger.format.encoding import SIZE_MAX, format_base64, parse_base64, parse_decimal
from ledger.format.merkle import HASH_SIZE_BYTES


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
    Return the checkpoint in a note's text; `open_checkpoint` verifies who signed it.

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
