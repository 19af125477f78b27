# SPDX-License-Identifier: Apache-2.0
"""
What is recorded of metadata that was judged: the same however it was written, and another if anything in it is.
"""

from __future__ import annotations

import gzip
import hashlib
import json

import pytest

from gateway.catalogs.judged_metadata import (
    DigestOf,
    JudgedMetadata,
    answer_bytes,
    answer_judged,
    file_judged,
    format_judged,
    is_judged,
    parse_judged,
)
from ledger.errors import FormatError

LOCATION = "s3://store/t/metadata/00001.metadata.json"
METADATA = {"table-uuid": "u", "z": [1, {"b": 2, "a": None}], "a": 1.5, "name": "Größe"}
JUDGED = answer_judged(LOCATION, METADATA)


def test_of_an_answer_the_digest_is_of_json_without_blanks_whose_members_are_sorted() -> None:
    expected = '{"a":1.5,"name":"Größe","table-uuid":"u","z":[1,{"a":null,"b":2}]}'.encode()
    assert answer_bytes(METADATA) == expected
    assert JUDGED.sha256 == hashlib.sha256(expected).hexdigest()


def test_it_does_not_depend_on_how_the_answer_was_written() -> None:
    again = json.loads(json.dumps(dict(reversed(METADATA.items())), indent=4))
    assert answer_judged(LOCATION, again) == JUDGED
    assert is_judged(JUDGED, stored=json.dumps(again).encode(), metadata=again)


def test_of_a_file_it_is_of_the_stored_bytes() -> None:
    plain = json.dumps(METADATA).encode()
    packed = gzip.compress(plain)
    judged = file_judged(LOCATION, packed)
    assert judged.sha256 == hashlib.sha256(packed).hexdigest()
    assert is_judged(judged, stored=packed, metadata=METADATA)
    assert not is_judged(judged, stored=plain, metadata=METADATA)


@pytest.mark.parametrize("name", METADATA)
def test_metadata_of_which_anything_is_other_is_not_what_was_judged(name: str) -> None:
    other = {**METADATA, name: "other"}
    assert not is_judged(JUDGED, stored=b"", metadata=other)


def test_a_part_is_read_as_it_was_written() -> None:
    for judged in (JUDGED, file_judged(LOCATION, b"{}")):
        assert parse_judged(format_judged(judged)) == judged


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'{"location":"s3://a","of":"file"}',
        format_judged(JUDGED).replace(b'"answer"', b'"copy"'),
        format_judged(JUDGED).replace(b'"sha256"', b'"sha512"'),
        format_judged(JUDGED)[:-1] + b',"more":1}',
        format_judged(JudgedMetadata(location=LOCATION, of=DigestOf.FILE, sha256="ab")),
    ],
)
def test_what_is_no_such_part_is_refused(payload: bytes) -> None:
    with pytest.raises(FormatError):
        parse_judged(payload)
