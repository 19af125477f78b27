# SPDX-License-Identifier: Apache-2.0
"""Canonical JSON: three encoders agree on the profile, all else is refused, and decoding accepts one spelling."""

from __future__ import annotations

import json
import math
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import cast

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import FormatError, NotCanonicalError
from ledger.format import canonical
from ledger.format.canonical import DEPTH_MAX, INTEGER_MAX, Json

# Every code point but surrogates, ASCII controls and astral ones among them; names are ASCII, controls included.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = st.text(st.characters(max_codepoint=127), max_size=8)
INTEGERS = st.integers(min_value=-INTEGER_MAX, max_value=INTEGER_MAX)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)

FOREIGN = ["french.json", "structures.json", "values.json", "weird.json"]
"""Inputs outside the profile: names outside ASCII (french, weird), floats (structures has 56.0, values several)."""


class Colour(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Plain(Enum):
    A = "a"


class Text(str):
    __slots__ = ()


@dataclass
class Point:
    x: int = 1


def nested(levels: int, array: Callable[[Iterable[Json]], Json] = list) -> Json:
    value = array([])
    for _ in range(levels - 1):
        value = array([value])
    return value


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_three_encoders_write_the_same_bytes_and_decoding_returns_the_value(value: Json) -> None:
    data = canonical.encode(value)
    assert data == rfc8785.dumps(value)
    assert data == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert canonical.decode(data) == value


@settings(max_examples=50, deadline=None)
@given(VALUES, st.sampled_from([{"indent": 1}, {"separators": (", ", ":")}, {"ensure_ascii": True}, {}]))
def test_another_spelling_of_a_value_is_refused(value: Json, style: dict[str, object]) -> None:
    data = json.dumps(value, **{"ensure_ascii": False, "separators": (",", ":"), **style}).encode()  # type: ignore[arg-type]  # keywords of several types
    if data == canonical.encode(value):
        assert canonical.decode(data) == value
    else:
        with pytest.raises(FormatError):
            canonical.decode(data)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40) | TEXT.map(str.encode))
def test_arbitrary_bytes_are_canonical_or_a_format_error(data: bytes) -> None:
    try:
        value = canonical.decode(data)
    except FormatError:
        return
    assert canonical.encode(value) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" 1",
        b"1\n",
        b"-0",
        b"1.0",
        b"1e3",
        b"9007199254740992",
        b"1" * 5000,
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a": 1}',
        b'"\\u0041"',
        b'"\\/"',
        b'"\\u001F"',
        b'"\\ud800"',
        b'"\xed\xa0\x80"',
        b'"\xff"',
        '{"é":1}'.encode(),
        b"NaN",
        b"\xef\xbb\xbf1",
        b"[" * 100_000,
        b"[" * 300 + b"]" * 300,
    ],
)
def test_what_is_not_canonical_json_is_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError, match="canonical JSON"):
        canonical.decode(data)


@pytest.mark.parametrize(
    ("value", "path", "found"),
    [
        (1.0, "value", "float"),
        (math.nan, "value", "float"),
        ({"a": [1, {"b": -0.0}]}, "value.a[1].b", "float"),
        ((1, (2, 3.5)), "value[1][1]", "float"),
        ({"a": INTEGER_MAX + 1}, "value.a", "54 bits"),
        ([-INTEGER_MAX - 1], "value[0]", "54 bits"),
        ([10**30], "value[0]", "100 bits"),
        ({"a": {"é": 1}}, "value.a", "é"),
        ({"a": {1: 1}}, "value.a", "1"),
        ({Colour.RED: 1}, "value", "RED"),
        (["ok", "a\ud800"], "value[1]", "lone surrogate at character 1"),
        (b"bytes", "value", "bytes"),
        ([datetime(2026, 1, 1, tzinfo=UTC)], "value[0]", "datetime"),
        (uuid.UUID(int=0), "value", "UUID"),
        ([Point()], "value[0]", "Point"),
        ([Number.ONE], "value[0]", "Number"),
        ([Plain.A], "value[0]", "Plain"),
        ([Text("x")], "value[0]", "Text"),
        (OrderedDict(a=1), "value", "OrderedDict"),
        ({1, 2}, "value", "set"),
        (nested(DEPTH_MAX + 1, list), "value[0][0]", "found more"),
        (nested(DEPTH_MAX + 1, tuple), "value[0][0]", "found more"),
        (nested(100_000, tuple), "value[0][0]", "found more"),
    ],
)
def test_a_value_outside_the_profile_is_refused_with_its_path(value: object, path: str, found: str) -> None:
    with pytest.raises(NotCanonicalError) as caught:
        canonical.encode(cast("Json", value))
    assert str(caught.value).startswith(path)
    assert found in str(caught.value)


def test_a_cycle_is_refused() -> None:
    cycle: list[Json] = []
    cycle.append(cycle)
    with pytest.raises(NotCanonicalError, match="found more"):
        canonical.encode(cycle)


@settings(max_examples=40, deadline=None)
@given(st.lists(VALUES, max_size=3), st.floats() | st.binary() | st.integers(min_value=INTEGER_MAX + 1), st.booleans())
def test_one_misfit_anywhere_refuses_the_whole_value(rest: list[Json], misfit: object, named: bool) -> None:
    value = cast("Json", {"rest": rest, "x": {"y": misfit} if named else [misfit]})
    with pytest.raises(NotCanonicalError, match=r"^value\.x"):
        canonical.encode(value)


def test_limits_of_the_profile_are_inside_it() -> None:
    assert canonical.encode([INTEGER_MAX, -INTEGER_MAX]) == b"[9007199254740991,-9007199254740991]"
    deepest = canonical.encode(nested(DEPTH_MAX))
    assert deepest == b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert canonical.decode(deepest) == nested(DEPTH_MAX)


def test_tuples_are_arrays_and_members_of_a_string_enum_are_their_strings() -> None:
    assert canonical.encode({"b": (1, (), Colour.RED), "a": True, "c": None}) == b'{"a":true,"b":[1,[],"red"],"c":null}'


@pytest.mark.parametrize("name", ["arrays.json", "unicode.json"])
def test_jcs_vectors_within_the_profile_are_byte_equal(shared_data: Path, name: str) -> None:
    value = json.loads((shared_data / "jcs/input" / name).read_bytes())
    expected = (shared_data / "jcs/output" / name).read_bytes()
    assert canonical.encode(value) == expected
    assert expected == bytes.fromhex((shared_data / "jcs/outhex" / name).with_suffix(".txt").read_text())
    assert canonical.decode(expected) == value


@pytest.mark.parametrize("name", FOREIGN)
def test_jcs_vectors_outside_the_profile_are_refused(shared_data: Path, name: str) -> None:
    with pytest.raises(NotCanonicalError):
        canonical.encode(json.loads((shared_data / "jcs/input" / name).read_bytes()))


def test_every_jcs_vector_is_read_and_every_output_decodes_or_is_outside_the_profile(shared_data: Path) -> None:
    outputs = {path.name: path.read_bytes() for path in (shared_data / "jcs/output").iterdir()}
    assert sorted(outputs) == sorted(["arrays.json", "unicode.json", *FOREIGN])
    # JCS writes the float 56.0 as 56, so that the canonical form of `structures` is one of ours too.
    for name in ["arrays.json", "unicode.json", "structures.json"]:
        assert canonical.encode(canonical.decode(outputs[name])) == outputs[name]
    for name in ["french.json", "values.json", "weird.json"]:
        with pytest.raises(FormatError):
            canonical.decode(outputs[name])


@given(st.datetimes(timezones=st.just(UTC)))
@settings(max_examples=30, deadline=None)
def test_a_time_is_read_as_it_was_written(t: datetime) -> None:
    text = canonical.format_time(t)
    assert canonical.parse_time(text) == t
    assert len(text) == len("2026-11-20T13:28:00.000000Z")


def test_times_have_one_form() -> None:
    assert canonical.format_time(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02T03:04:05.000000Z"
    assert canonical.format_time(datetime(1, 1, 1, tzinfo=timezone(timedelta(0)))) == "0001-01-01T00:00:00.000000Z"
    assert canonical.parse_time("2026-01-02T03:04:05.000006Z").tzinfo is UTC


@pytest.mark.parametrize(
    "t",
    [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))],  # noqa: DTZ001  a naive time is the point
)
def test_a_time_that_is_naive_or_not_in_utc_is_not_formatted(t: datetime) -> None:
    with pytest.raises(NotCanonicalError, match="UTC"):
        canonical.format_time(t)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Z",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05.000Z",
        "2026-01-02T03:04:05.000000",
        "2026-01-02T03:04:05.000000ZZ",
        "2026-01-02T03:04:05.000000+00:00",
        "2026-01-02T03:04:05.000000+00:00Z",
        "2026-01-02 03:04:05.000000Z",
        "2026-01-02t03:04:05.000000z",
        "2026-02-30T03:04:05.000000Z",
        "2026-01-02T03:04:60.000000Z",
        "2026-01-02T24:00:00.000000Z",
        "2026-W01-1T03:04:05.000000Z",
        "\uff12026-01-02T03:04:05.000000Z",
        "2026-01-02\ud80003:04:05.000000Z",
    ],
)
def test_any_other_spelling_of_a_time_is_a_format_error(text: str) -> None:
    with pytest.raises(FormatError):
        canonical.parse_time(text)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=30))
def test_arbitrary_text_is_a_time_or_a_format_error(text: str) -> None:
    try:
        t = canonical.parse_time(text)
    except FormatError:
        return
    assert canonical.format_time(t) == text
