# SPDX-License-Identifier: Apache-2.0
"""
What is fuzzed besides the log's own formats: files that lie next to it, and what an authority answers.

As in `targets.py`, which joins both: a parser may return, or raise its own errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from cryptography.x509 import Certificate

from ledger.anchoring.cms import grant
from ledger.anchoring.stamping import Authority, NoStampError, open_response
from ledger.erasing.execution import parse_erasure
from ledger.erasing.key_files import WrappedKey, format_key_lines, parse_key_lines
from ledger.errors import BrokenError, FormatError, LimitExceededError
from ledger.files.directory import format_parts, parse_parts
from ledger.format import canonical
from ledger.format.entry import FIRST_PREVIOUS, Branch, format_entry
from ledger.format.event import Part
from ledger.format.note import VerifierKey, open_checkpoint
from ledger.signing.key_directory import SignedNote, format_notes, parse_notes
from ledger.signing.key_ring import KeyLife, KeyRecord, KeyRing, KeySource, open_ring, sign_ring
from ledger.signing.keys import FileKey

Run = Callable[[bytes], object]

SEEDS: Final = Path(__file__).parent / "seeds"
"""A time stamp over `SIGNED` of `targets.py` by an authority of `openssl ts`, and its root."""
_NONCE: Final = 0x80000000000000000000000000000005
_STAMPED_AT: Final = datetime(2026, 11, 22, 5, 51, 6, tzinfo=UTC)

ORIGIN: Final = "example.com/log"
PARTS: Final = format_parts(67, [Part(name="inputs", payload=b"p" * 5, salt=b"s" * 32)])
KEY: Final = FileKey.from_seed(b"k" * 32)
RING: Final = sign_ring(
    KeyRing(records=(KeyRecord(public=KEY.public_key, life=KeyLife.ACTIVE, source=KeySource.FILE),)), KEY
)
SUBJECT_KEYS: Final = format_key_lines(
    {"a" * 32: WrappedKey(id=UUID(int=1, version=4), kek="file", wrapped=b"w" * 60), "b" * 32: None}
)


def entry_of(event: bytes, *, index: int) -> bytes:
    """Return an entry of the log `ORIGIN` with this prepared event, half of a group of two."""
    return format_entry(
        event,
        log=ORIGIN,
        index=index,
        previous=FIRST_PREVIOUS,
        recorded_at=canonical.format_time(datetime(2026, 1, 2, 3, 4, 5, index, tzinfo=UTC)),
        group_id=UUID(int=index),
        branch=Branch.THEN,
        of=2,
        position=index % 2,
    )


ERASURE: Final = entry_of(
    canonical.encode(
        {
            "actor": "system",
            "data": {"before": 7, "index": None, "name": None, "reason": "retention", "subject": None, "type": None},
            "key": "log:self",
            "occurred_at": "2026-01-02T03:04:05.000006Z",
            "parts": [],
            "type": "payload.erased",
            "version": 1,
        }
    ),
    index=9,
)


def stamp_response() -> bytes:
    """Return what an authority answers that grants the time stamp among the seeds."""
    return grant((SEEDS / "stamp.der").read_bytes())


def last_notes(signed: bytes, keys: list[VerifierKey]) -> bytes:
    """Return the file of the last note of one log."""
    checkpoint = open_checkpoint(signed, keys)
    return format_notes({checkpoint.origin: SignedNote(checkpoint=checkpoint, note=signed)})


def parsers(
    signed: bytes, keys: list[VerifierKey], roots: Callable[[], tuple[Certificate, ...]]
) -> Mapping[str, tuple[Run, tuple[bytes, ...]]]:
    """Return parsers whose answer is not written again, with their seeds, by name."""

    def open_notes(data: bytes) -> object:
        return parse_notes(data, lambda note, origin: open_checkpoint(note, keys, origin=origin))

    def response(data: bytes) -> object:
        authority = Authority(url="https://tsa.example", roots=roots())
        return open_response(data, signed, authority, nonce=_NONCE, now=_STAMPED_AT)

    return {
        "key_ring": (open_ring, (RING,)),
        "last_notes": (open_notes, (last_notes(signed, keys),)),
        "erasure": (parse_erasure, (ERASURE,)),
        "stamp_response": (response, (stamp_response(),)),
    }


def refuses(parse: Run) -> Callable[[bytes], None]:
    """Return the run of such a parser: its own errors are the answer no."""

    def run(data: bytes) -> None:
        with suppress(FormatError, BrokenError, LimitExceededError, NoStampError):
            parse(data)

    return run


WRITTEN_AGAIN: Final = {
    "parts_file": (parse_parts, lambda file: format_parts(*file), (PARTS,)),
    "subject_keys": (parse_key_lines, format_key_lines, (SUBJECT_KEYS,)),
}
