# SPDX-License-Identifier: Apache-2.0
"""
The rules of a witness: what it cosigns, and how it refuses the rest (C2SP tlog-witness, "add-checkpoint"). Pure.

    old 20852014
    PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=      the consistency proof, a hash a line

    example.com/behind-the-sofa                       the checkpoint, a signed note
    …

That is a request. The last cosigned checkpoint of a log is an argument, and storing it is the caller's task. The rules
are in the order of the specification, which is the order in which a client learns what is wrong. `open_request` needs
to know only which logs exist. `check_growth` must run, and its outcome be stored, while nobody else does the same for
this log. Otherwise two requests could each be right and together roll the log back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from ledger.errors import BrokenError, FormatError, LedgerError
from ledger.format.checkpoint import Checkpoint, parse_checkpoint
from ledger.format.encoding import SIZE_MAX, format_base64, parse_base64, parse_decimal
from ledger.format.merkle import EMPTY_ROOT, HASH_SIZE_BYTES, check_consistency
from ledger.format.note import Signature, VerifierKey, open_note, parse_note

HASHES_MAX: Final = 63
"""Lines of a consistency proof in a request."""
REQUEST_SIZE_BYTES_MAX: Final = 262_144
"""Room for a proof and for a note with over 16 signatures of post-quantum kinds, each at most 7 kB in base64."""
SIZE_CONTENT_TYPE: Final = "text/x.tlog.size"
"""Of the response to a request that starts from another size than the witness."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddCheckpoint:
    """A request, unchecked: the size that the proof starts from, the proof, and the signed checkpoint."""

    old_size: int
    proof: tuple[bytes, ...]
    note: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.old_size <= SIZE_MAX:
            raise FormatError("witness request", expected="an old size from 0 to 2^63 - 1", found=self.old_size)
        if len(self.proof) > HASHES_MAX or any(len(h) != HASH_SIZE_BYTES for h in self.proof):
            expected = f"at most {HASHES_MAX} hashes of {HASH_SIZE_BYTES} bytes"
            raise FormatError("witness request", expected=expected, found=[len(h) for h in self.proof])
        if not self.note.endswith(b"\n"):
            raise FormatError("witness request", expected="a checkpoint that ends in a newline", found=self.note)


def format_request(request: AddCheckpoint) -> bytes:
    """
    Return the body of a request.

    Raises:
        FormatError: if it would be too large to be read again.
    """
    lines = [f"old {request.old_size}", *(format_base64(h) for h in request.proof)]
    data = "\n".join(lines).encode() + b"\n\n" + request.note
    if len(data) > REQUEST_SIZE_BYTES_MAX:
        expected = f"at most {REQUEST_SIZE_BYTES_MAX} bytes"
        raise FormatError("witness request", expected=expected, found=f"{len(data)} bytes")
    return data


def parse_request(data: bytes) -> AddCheckpoint:
    """
    Return the request whose body is `data`; nothing about its checkpoint is checked.

    Raises:
        FormatError: if `data` is not exactly as `format_request` writes it.
    """
    if len(data) > REQUEST_SIZE_BYTES_MAX:
        expected = f"at most {REQUEST_SIZE_BYTES_MAX} bytes"
        raise FormatError("witness request", expected=expected, found=f"{len(data)} bytes")
    head, _, note = data.partition(b"\n\n")
    try:
        old, *hashes = head.decode("ascii").split("\n", HASHES_MAX + 1)
    except UnicodeDecodeError as error:
        raise FormatError("witness request", expected="ASCII before the checkpoint", found=head) from error
    request = AddCheckpoint(
        old_size=parse_decimal(old.removeprefix("old "), what="witness request: old size"),
        proof=tuple(parse_base64(h, what="witness request: proof") for h in hashes),
        note=note,
    )
    if format_request(request) != data:
        expected = "lines 'old <size>', hashes, an empty line, a checkpoint"
        raise FormatError("witness request", expected=expected, found=data)
    return request


class Refusal(IntEnum):
    """Why a checkpoint is not cosigned, as the HTTP status that says so."""

    BAD_REQUEST = 400  # not a request, or the old size is over the checkpoint's
    NOT_SIGNED = 403  # no signature of a trusted key, or a bad one
    UNKNOWN_ORIGIN = 404
    CONFLICT = 409  # the old size is not that of the checkpoint cosigned last
    INCONSISTENT = 422  # the tree does not extend the one cosigned last


class RefusedError(LedgerError):
    """A checkpoint is not cosigned; `size` is that of the checkpoint cosigned last, and known for a conflict only."""

    def __init__(self, refusal: Refusal, text: str, *, size: int | None = None) -> None:
        super().__init__(text)
        self.refusal = refusal
        self.size = size


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRequest:
    """
    A request whose checkpoint a trusted key has signed: `text` is the note's, `lines` are the first of each trusted
    key.

    Repeated lines of a key are dropped: they would take the space of the cosignatures.
    """

    old_size: int
    proof: tuple[bytes, ...]
    text: str
    checkpoint: Checkpoint
    lines: tuple[Signature, ...]


def open_request(body: bytes, keys_of: Callable[[str], Sequence[VerifierKey] | None]) -> OpenedRequest:
    """
    Return the content of a request, if a trusted key of its log has signed the checkpoint.

    `keys_of` gives the trusted keys of a log by its origin, None if the log is unknown.

    Raises:
        RefusedError: if the body is no such request (400), the origin is unknown (404), no trusted key has signed or
            its signature is bad (403), or the old size is over the checkpoint's (400).
    """
    try:
        request = parse_request(body)
        text, lines = parse_note(request.note)
        checkpoint = parse_checkpoint(text)
    except FormatError as error:
        raise RefusedError(Refusal.BAD_REQUEST, str(error)) from error
    keys = keys_of(checkpoint.origin)
    if keys is None:
        raise RefusedError(Refusal.UNKNOWN_ORIGIN, f"unknown log: {checkpoint.origin}")
    try:
        verified = {(key.name, key.key_id) for key in open_note(request.note, keys).verified}  # every line of each
    except BrokenError as error:
        raise RefusedError(Refusal.NOT_SIGNED, str(error)) from error
    first: dict[tuple[str, bytes], Signature] = {}
    for line in lines:
        first.setdefault((line.name, line.key_id), line)
    if request.old_size > checkpoint.size:
        raise RefusedError(
            Refusal.BAD_REQUEST, f"old size {request.old_size} is over the checkpoint's {checkpoint.size}"
        )
    return OpenedRequest(
        old_size=request.old_size,
        proof=request.proof,
        text=text,
        checkpoint=checkpoint,
        lines=tuple(line for key, line in first.items() if key in verified),
    )


def check_growth(request: OpenedRequest, last: Checkpoint | None) -> None:
    """
    Check that a checkpoint extends the one of its log that was cosigned `last`, None if there is none.

    Raises:
        RefusedError: if the old size is another one (409); if an empty tree has a root of entries, a proof from the
            empty tree is not empty, or the proof does not lead from the last root to the new one (422).
    """
    new = request.checkpoint
    old_size, old_root = (last.size, last.root) if last else (0, EMPTY_ROOT)
    if request.old_size != old_size:
        text = f"old size {request.old_size} is not that of the checkpoint cosigned last, {old_size}"
        raise RefusedError(Refusal.CONFLICT, text, size=old_size)
    if new.size == 0 and new.root != EMPTY_ROOT:
        raise RefusedError(Refusal.INCONSISTENT, "the root of an empty tree is the hash of the empty string")
    if old_size == 0 and request.proof:
        raise RefusedError(Refusal.INCONSISTENT, "a proof from the empty tree is empty")
    if old_size == 0 < new.size:
        return  # the empty tree is consistent with any tree
    try:
        check_consistency(size1=old_size, size2=new.size, root1=old_root, root2=new.root, proof=request.proof)
    except BrokenError as error:
        raise RefusedError(Refusal.INCONSISTENT, str(error)) from error
