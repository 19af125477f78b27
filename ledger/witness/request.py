"""
A request to cosign a checkpoint (C2SP tlog-witness, "add-checkpoint").

    old 20852014
    PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=      the consistency proof, a hash a line

    example.com/behind-the-sofa                       the checkpoint, a signed note
    …
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.encoding import SIZE_MAX, format_base64, parse_base64, parse_decimal
from ledger.errors import FormatError
from ledger.merkle import HASH_SIZE_BYTES

HASHES_MAX: Final = 63
"""Lines of a consistency proof that a client may send."""

REQUEST_SIZE_BYTES_MAX: Final = 262_144
"""Room for a proof and for a note with over 16 signatures of post-quantum kinds, each at most 7 kB in base64."""

SIZE_CONTENT_TYPE: Final = "text/x.tlog.size"
"""Of the answer to a request that starts from another size than the witness does."""


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
