# SPDX-License-Identifier: Apache-2.0
"""JSON objects of others: whatever the bytes are, the object or one kind of error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import FormatError
from ledger.format.json_object import parse_object


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b'{"a":1} ?', "JSON"),
        (b"\xff", "JSON"),
        (b'{"a":NaN}', "JSON"),
        ('{"a":"\ud800"}', "JSON"),
        (b'{"a":' * 100_000, "JSON"),
        (b"[]", "a JSON object"),
        (b"null", "a JSON object"),
        (b'"text"', "a JSON object"),
        (b'{"secret":"hunter2"}' + b" " * 100, "at most 99 bytes"),
        ("{}" + "é" * 49, "at most 99 bytes"),
    ],
)
def test_what_is_no_bounded_object_is_refused_without_its_contents(data: bytes | str, expected: str) -> None:
    limit = 99 if expected.startswith("at most") else None
    with pytest.raises(FormatError, match=f"^body: expected {expected}, found ") as caught:
        parse_object(data, what="body", size_bytes_max=limit)
    assert caught.value.expected == expected
    assert "hunter2" not in str(caught.value)


def test_an_object_of_exactly_the_limit_is_taken() -> None:
    assert parse_object(b'{"a":1}', what="body", size_bytes_max=7) == {"a": 1}
    assert parse_object(' {"a":{"b":[]},"a":2}', what="body") == {"a": 2}


@given(st.binary(max_size=64) | st.text(max_size=64))
def test_no_input_raises_anything_else(data: bytes | str) -> None:
    with suppress(FormatError):
        assert isinstance(parse_object(data, what="body", size_bytes_max=64), dict)
