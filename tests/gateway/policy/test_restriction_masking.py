# SPDX-License-Identifier: Apache-2.0
"""
The nine actions on values of every type: the specification's own examples, and the types that each is defined for.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Final

import pytest

from gateway.policy.restrictions.columns import Column, Kind
from gateway.policy.restrictions.masking import APPLICABLE, masked, masked_row, why_not
from gateway.policy.restrictions.values import format_value, parse_value
from ledger.format.events import MaskAction
from testkit.gateway.restrictions import EVERY_TYPE, TYPES, name_of, row_of, schema_of

SCHEMA: Final = schema_of(EVERY_TYPE)
SALT: Final = bytes(range(16))
ADDRESS: Final = "prashant010696@gmail.com"
"""The example of the specification (`MaskAlphanum`)."""


def column(name: str) -> Column:
    (found,) = SCHEMA.named(name)
    return found


def made(action: MaskAction, name: str, value: Any, *, salt: bytes = SALT) -> Any:
    """Return what an action makes of a value of a column, both in JSON."""
    type_ = column(name).type
    return format_value(type_, masked(action, type_, parse_value(type_, value, where=name), salt=salt))


@pytest.mark.parametrize(
    ("action", "name", "value", "expected"),
    [
        (MaskAction.MASK_ALPHANUM, "c_string", ADDRESS, "xxxxxxxxnnnnnn@xxxxx.xxx"),
        (MaskAction.MASK_ALPHANUM, "c_string", "(+49) 30, a-b_é٣", "(xnn)xnn,xx-xxxx"),
        (MaskAction.MASK_ALPHANUM, "c_string", "", ""),
        (MaskAction.SHOW_FIRST_4, "c_string", ADDRESS, "prasxxxxnnnnnn@xxxxx.xxx"),
        (MaskAction.SHOW_FIRST_4, "c_string", "abcd", "abcd"),
        (MaskAction.SHOW_FIRST_4, "c_string", "😀1234", "😀123n"),
        (MaskAction.SHOW_LAST_4, "c_string", "4111-1111-1111-4444", "nnnn-nnnn-nnnn-4444"),
        (MaskAction.SHOW_LAST_4, "c_string", "abc", "abc"),
        (MaskAction.SHOW_LAST_4, "c_string", "1abcd", "nabcd"),
        (MaskAction.TRUNCATE_TO_YEAR, "c_date", "2024-07-15", "2024-01-01"),
        (MaskAction.TRUNCATE_TO_MONTH, "c_date", "2024-07-15", "2024-07-01"),
        (MaskAction.TRUNCATE_TO_YEAR, "c_date", "1969-12-31", "1969-01-01"),
        (
            MaskAction.TRUNCATE_TO_MONTH,
            "c_timestamp",
            "1969-12-31T23:59:59.999999",
            "1969-12-01T00:00:00.000000",
        ),
        (
            MaskAction.TRUNCATE_TO_YEAR,
            "c_timestamptz",
            "2024-01-01T01:00:00+02:00",
            "2023-01-01T00:00:00.000000+00:00",
        ),
        (
            MaskAction.TRUNCATE_TO_MONTH,
            "c_timestamptz_ns",
            "2024-07-15T01:02:03.123456789Z",
            "2024-07-01T00:00:00.000000000+00:00",
        ),
        (
            MaskAction.TRUNCATE_TO_YEAR,
            "c_timestamp_ns",
            "2024-07-15T01:02:03.123456789",
            "2024-01-01T00:00:00.000000000",
        ),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_boolean", True, False),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_int", 7, 0),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_long", 7, 0),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_float", 7.5, 0.0),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_double", "-7.5", 0.0),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_decimal", "7.5", "0.00"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_string", "a", "XXXXXXXX"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_date", "2024-07-15", "1970-01-01"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_time", "13:00:00", "00:00:00.000000"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_timestamp", "2024-07-15T01:02:03", "1970-01-01T00:00:00.000000"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_timestamptz", None, "1970-01-01T00:00:00.000000+00:00"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_timestamp_ns", None, "1970-01-01T00:00:00.000000000"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_timestamptz_ns", None, "1970-01-01T00:00:00.000000000+00:00"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_uuid", None, "00000000-0000-0000-0000-000000000000"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_fixed", "78797A7B", "00000000"),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_binary", "78797A", ""),
        (MaskAction.MASK_TO_FIXED_VALUE, "c_variant", {"a": 1}, {}),
        (MaskAction.MASK_TO_FIXED_VALUE, "tags", ["a"], []),
        (MaskAction.MASK_TO_FIXED_VALUE, "prices", {"keys": ["a"], "values": ["1"]}, {"keys": [], "values": []}),
        (
            MaskAction.MASK_TO_FIXED_VALUE,
            "address",
            {"city": "Berlin", "zip code": "10115"},
            {"city": "XXXXXXXX", "zip code": "XXXXXXXX"},
        ),
        (MaskAction.REPLACE_WITH_NULL, "c_string", "a", None),
        (MaskAction.REPLACE_WITH_NULL, "tags", ["a"], None),
        # FIPS 180-4: SHA-256("abc").
        (
            MaskAction.SHA_256_GLOBAL,
            "c_string",
            "abc",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            MaskAction.SHA_256_GLOBAL,
            "c_binary",
            "616263",
            "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
        ),
    ],
)
def test_an_action_makes_this_of_a_value(action: MaskAction, name: str, value: Any, expected: Any) -> None:
    assert why_not(action, column(name)) is None
    assert made(action, name, value) == expected


@pytest.mark.parametrize(("name", "form"), [("c_int", "<i"), ("c_long", "<q")])
@pytest.mark.parametrize("value", [0, 1, -1, 2**31 - 1, -(2**31)])
def test_integers_are_hashed_and_read_as_little_endian(name: str, form: str, value: int) -> None:
    encoded = struct.pack(form, value)
    for action, salt in ((MaskAction.SHA_256_GLOBAL, b""), (MaskAction.SHA_256_QUERY_LOCAL, SALT)):
        digest = hashlib.sha256(salt + encoded).digest()
        assert made(action, name, value) == struct.unpack(form, digest[: len(encoded)])[0]


def test_a_hash_of_a_query_is_the_same_within_it_and_another_in_the_next() -> None:
    local, other = MaskAction.SHA_256_QUERY_LOCAL, bytes(16)
    assert made(local, "c_string", "abc") == hashlib.sha256(SALT + b"abc").hexdigest()
    assert made(local, "c_string", "abc") != made(local, "c_string", "abc", salt=other)
    assert made(MaskAction.SHA_256_GLOBAL, "c_string", "abc") == made(
        MaskAction.SHA_256_GLOBAL, "c_string", "abc", salt=other
    )


@pytest.mark.parametrize("action", MaskAction)
def test_null_stays_null_except_where_it_gets_the_fixed_value(action: MaskAction) -> None:
    for type_ in TYPES:
        name = name_of(type_)
        if why_not(action, column(name)) is None:
            is_null = made(action, name, None) is None
            assert is_null is (action is not MaskAction.MASK_TO_FIXED_VALUE), name


@pytest.mark.parametrize("action", MaskAction)
@pytest.mark.parametrize("type_", TYPES)
def test_an_action_is_only_for_the_types_that_it_is_defined_for(action: MaskAction, type_: str) -> None:
    name = name_of(type_)
    reason = why_not(action, column(name))
    assert (reason is None) == (column(name).type.kind in APPLICABLE[action])
    if reason is not None:
        assert f"{action.value} is not for a {type_}" in reason


def test_the_table_of_types_is_the_specifications() -> None:
    texts, hashed = {Kind.STRING}, {Kind.STRING, Kind.INT, Kind.LONG, Kind.BINARY}
    dates = {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ, Kind.TIMESTAMP_NS, Kind.TIMESTAMPTZ_NS}
    assert {
        MaskAction.MASK_ALPHANUM: texts,
        MaskAction.SHOW_FIRST_4: texts,
        MaskAction.SHOW_LAST_4: texts,
        MaskAction.TRUNCATE_TO_YEAR: dates,
        MaskAction.TRUNCATE_TO_MONTH: dates,
        MaskAction.SHA_256_GLOBAL: hashed,
        MaskAction.SHA_256_QUERY_LOCAL: hashed,
        MaskAction.REPLACE_WITH_NULL: set(Kind),
        MaskAction.MASK_TO_FIXED_VALUE: set(Kind) - {Kind.UNKNOWN, Kind.GEOMETRY, Kind.GEOGRAPHY},
    } == APPLICABLE


@pytest.mark.parametrize(
    ("action", "name", "words"),
    [
        (MaskAction.REPLACE_WITH_NULL, "id", "id is required, so that it cannot be null: use mask-to-fixed-value"),
        (MaskAction.REPLACE_WITH_NULL, "address.zip code", "is required"),
        (MaskAction.MASK_ALPHANUM, "prices.key", "prices.key is the key of a map"),
        (MaskAction.MASK_TO_FIXED_VALUE, "prices.key", "prices.key is the key of a map"),
        (
            MaskAction.MASK_ALPHANUM,
            "address",
            "mask-alphanum is not for a struct; address can have mask-to-fixed-value",
        ),
    ],
)
def test_what_no_reader_could_do_is_refused(action: MaskAction, name: str, words: str) -> None:
    assert words in (why_not(action, column(name)) or "")


def test_a_struct_with_a_type_that_has_no_fixed_value_has_none() -> None:
    place = {
        "fields": [
            {
                "id": 1,
                "name": "place",
                "required": False,
                "type": {
                    "type": "struct",
                    "fields": [{"id": 2, "name": "at", "required": False, "type": "geometry(srid:4326)"}],
                },
            }
        ]
    }
    (field,) = schema_of(place).fields
    assert "have no fixed value" in (why_not(MaskAction.MASK_TO_FIXED_VALUE, field) or "")
    assert why_not(MaskAction.REPLACE_WITH_NULL, field) is None


def test_fields_within_structs_lists_and_maps_are_masked_in_place() -> None:
    row = row_of(
        SCHEMA,
        id=1,
        address={"city": "Berlin", "zip code": "10115"},
        tags=["a1", None, "b2"],
        prices={"keys": ["x", "y"], "values": ["1.5", None]},
    )
    actions = {
        column("address.zip code").id: MaskAction.MASK_ALPHANUM,
        column("tags.element").id: MaskAction.MASK_ALPHANUM,
        column("prices.value").id: MaskAction.MASK_TO_FIXED_VALUE,
    }
    shown = masked_row(SCHEMA.fields, row, actions, salt=SALT)
    assert shown["address"] == {"city": "Berlin", "zip code": "nnnnn"}
    assert shown["tags"] == ["xn", None, "xn"]
    assert format_value(column("prices").type, shown["prices"]) == {"keys": ["x", "y"], "values": ["0.00", "0.00"]}
    assert {name: value for name, value in shown.items() if name not in {"address", "tags", "prices"}} == {
        name: value for name, value in row.items() if name not in {"address", "tags", "prices"}
    }
    absent = masked_row(SCHEMA.fields, row_of(SCHEMA, id=1), actions, salt=SALT)
    assert (absent["address"], absent["tags"], absent["prices"]) == (None, None, None)
