# SPDX-License-Identifier: Apache-2.0
"""
On which metadata a commit to a foreign catalog was judged: where it was, and its SHA-256, as the log records them.

The metadata itself is not copied: it is as large as its table is old, and a commit would write it once more. Whoever
judges a decision again reads the file at that location, or what the catalog answers now, and knows by the digest
whether that is what was judged. Of a built-in catalog the log has both already, in `commit.settled`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import orjson

from gateway.metadata import to_sorted_json
from ledger.errors import FormatError
from ledger.format.json_object import parse_object
from ledger.values import value_class

JUDGED_ON: Final = "judged_on"
"""The payload part of a `commit.decided` of a foreign catalog with the metadata that it was judged on."""
_SHA256_DIGITS: Final = 64


class DigestOf(StrEnum):
    """What a digest is of."""

    FILE = "file"
    """The bytes of a file that the gateway has read."""
    ANSWER = "answer"
    """The member `metadata` of a catalog's answer, as `answer_bytes` writes it."""


@value_class
class JudgedMetadata:
    """Metadata that was judged: the location of its file, and its SHA-256 (hex)."""

    location: str
    of: DigestOf
    sha256: str


def file_judged(location: str, stored: bytes) -> JudgedMetadata:
    """
    Return what is recorded of a metadata file that was read; `stored` are its bytes, compressed if they are.
    """
    return JudgedMetadata(location=location, of=DigestOf.FILE, sha256=hashlib.sha256(stored).hexdigest())


def answer_judged(location: str, metadata: Mapping[str, Any]) -> JudgedMetadata:
    """
    Return what is recorded of metadata that a catalog has answered with the location of its file.

    Raises:
        TypeError: if JSON cannot hold it: it is read from 1,024 levels, and written to 254.
    """
    sha256 = hashlib.sha256(answer_bytes(metadata)).hexdigest()
    return JudgedMetadata(location=location, of=DigestOf.ANSWER, sha256=sha256)


def answer_bytes(metadata: Mapping[str, Any]) -> bytes:
    """
    Return metadata as JSON that does not depend on how it was written: UTF-8, no white space, members sorted.

    Not canonical JSON as the log has it: metadata has numbers and names that this does not allow.
    """
    return to_sorted_json(metadata)


def is_judged(judged: JudgedMetadata, *, stored: bytes, metadata: Mapping[str, Any]) -> bool:
    """
    Return whether a file with the bytes `stored`, which say `metadata`, has what was judged.
    """
    if judged.of is DigestOf.FILE:
        return file_judged(judged.location, stored) == judged
    return answer_judged(judged.location, metadata) == judged


def format_judged(judged: JudgedMetadata) -> bytes:
    """
    Return the payload of the part `judged_on`.
    """
    members = {"location": judged.location, "of": judged.of, "sha256": judged.sha256}
    return orjson.dumps(members, option=orjson.OPT_SORT_KEYS)


def parse_judged(payload: bytes) -> JudgedMetadata:
    """
    Return what a part `judged_on` says.

    Raises:
        FormatError: if it is no such part.
    """
    members = parse_object(payload, what=f"part {JUDGED_ON}")
    match members:
        case {"location": str(location), "of": str(of), "sha256": str(sha256)} if (
            len(members) == 3 and of in set(DigestOf) and len(sha256) == _SHA256_DIGITS
        ):
            return JudgedMetadata(location=location, of=DigestOf(of), sha256=sha256)
    raise FormatError(f"part {JUDGED_ON}", expected="location, of and sha256", found=payload[:200])
