# SPDX-License-Identifier: Apache-2.0
"""
The JSON of restrictions is that of the Iceberg REST specification, and the form is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import jsonschema_rs
import orjson
import pytest
import yaml

from gateway.policy.restrictions.columns import ColumnType, Kind
from gateway.policy.restrictions.form import (
    DEPTH_MAX,
    ELEMENTS_MAX,
    EVERY_ROW,
    NO_ROW,
    Comparing,
    Comparison,
    Joined,
    Joining,
    Member,
    Membership,
    Not,
    Nullness,
    NullTest,
    Predicate,
    Projection,
    ReadRestrictions,
    RestrictionTooLargeError,
    check_size,
    format_predicate,
    format_restrictions,
)
from gateway.policy.restrictions.lowering import lower_filter
from ledger.format.events import MaskAction
from testkit.environment import PROJECT, missing
from testkit.gateway.restrictions import EVERY_TYPE, caller, read, schema_of

SPECIFICATION = PROJECT.parent / "shared" / "spec" / "iceberg-rest-catalog-open-api.yaml"
STRING: Final = ColumnType(kind=Kind.STRING)
LONG: Final = ColumnType(kind=Kind.LONG)
EU: Final = Comparison(op=Comparing.EQ, field_id=1, type=STRING, literal="EU")

FILTERS: Final = (
    "true",
    "false",
    "row.c_string == 'EU' && row.c_long != 5 && row.c_int < -1 && row.c_int <= 1",
    "row.c_string > 'a' || row.c_string >= 'b' || row.c_string.startsWith('x') || !row.c_string.startsWith('y')",
    "row.c_string in ['a', 'b'] && !(row.c_long in [1, 2, 9223372036854775807])",
    "row.c_double == null || has(row.address.city) || row.address['zip code'] == '1'",
    "row.c_boolean && !row.c_boolean",
    "row.c_decimal > '12.5' && row.c_decimal < 13",
    "row.c_date >= '2026-01-31' && row.c_time < '13:00:00' && row.c_timestamp == '2026-01-31T13:00:00'",
    "row.c_timestamptz < timestamp('2026-01-31T13:00:00Z') && row.c_timestamptz_ns != '2026-01-31T13:00:00.123456789Z'",
    "row.c_uuid == 'EB26BDB1-a1d8-4aa6-990e-da940875492c' && row.c_binary != b'xyz' && row.c_fixed == b'\\x00abc'",
)


@cache
def predicate_validator() -> jsonschema_rs.Draft202012Validator:
    """
    Return what validates a `Predicate` of the specification.

    A primitive value is one of several types there that JSON cannot tell apart (42 is an integer, a long and a number),
    so "exactly one" of them is read as "at least one".
    """
    if not SPECIFICATION.is_file():
        missing(f"the specification {SPECIFICATION} is not here")
    document = yaml.safe_load(SPECIFICATION.read_text(encoding="utf-8"))
    schemas = document["components"]["schemas"]
    schemas["PrimitiveTypeValue"]["anyOf"] = schemas["PrimitiveTypeValue"].pop("oneOf")
    known = orjson.loads(orjson.dumps(schemas).replace(b"#/components/schemas/", b"#/$defs/"))
    return jsonschema_rs.Draft202012Validator({"$ref": "#/$defs/Predicate", "$defs": known})


@pytest.mark.parametrize("expression", FILTERS)
def test_a_filter_is_a_predicate_of_the_specification(expression: str) -> None:
    predicate = lower_filter(read(expression), schema_of(EVERY_TYPE), caller())
    predicate_validator().validate(format_predicate(predicate))


@pytest.mark.parametrize(
    "corrupted",
    [
        {"type": "eq", "left": {"type": "reference", "id": "1"}, "right": {"type": "literal", "value": "EU"}},
        {"type": "eq", "left": {"type": "reference"}, "right": {"type": "literal", "value": "EU"}},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "right": {"type": "literal"}},
        {"type": "eq", "left": {"type": "reference", "id": 1}, "value": "EU", "more": 1},
        {"type": "between", "left": {"type": "reference", "id": 1}, "right": {"type": "literal", "value": "EU"}},
        {"type": "in", "child": {"type": "reference", "id": 1}},
        {"type": "and", "left": True},
        {"type": "not"},
        "true",
        None,
    ],
)
def test_what_is_no_predicate_is_refused_by_the_same_schema(corrupted: Any) -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        predicate_validator().validate(corrupted)


def test_each_predicate_has_this_json() -> None:
    one = {"type": "reference", "id": 1}
    assert format_predicate(EU) == {"type": "eq", "left": one, "right": {"type": "literal", "value": "EU"}}
    assert format_predicate(EVERY_ROW) is True
    assert format_predicate(NO_ROW) is False
    is_in = Membership(op=Member.NOT_IN, field_id=1, type=LONG, literals=(1, 2))
    assert format_predicate(is_in) == {"type": "not-in", "child": one, "values": [1, 2]}
    is_null = NullTest(op=Nullness.IS_NULL, field_id=1)
    assert format_predicate(is_null) == {"type": "is-null", "child": one}
    assert format_predicate(Not(child=is_null)) == {"type": "not", "child": {"type": "is-null", "child": one}}
    both = Joined(op=Joining.AND, left=EVERY_ROW, right=is_null)
    assert format_predicate(both) == {"type": "and", "left": True, "right": {"type": "is-null", "child": one}}
    for predicate in (EU, is_in, is_null, Not(child=is_null), both):
        predicate_validator().validate(format_predicate(predicate))


def test_restrictions_have_this_json_and_an_empty_object_restricts_nothing() -> None:
    projections = tuple(Projection(field_id=number, action=action) for number, action in enumerate(MaskAction))
    assert format_restrictions(ReadRestrictions()) == {}
    assert format_restrictions(ReadRestrictions(row_filter=NO_ROW)) == {"required-row-filter": False}
    shown = format_restrictions(ReadRestrictions(row_filter=EU, projections=projections))
    assert shown["required-row-filter"] == format_predicate(EU)
    assert shown["required-column-projections"] == [
        {"field-id": number, "action": action}
        for number, action in enumerate(
            (
                *("mask-alphanum", "mask-to-fixed-value", "replace-with-null", "show-first-4", "show-last-4"),
                *("truncate-to-year", "truncate-to-month", "sha-256-global", "sha-256-query-local"),
            )
        )
    ]


def test_literals_are_written_as_the_specification_writes_values() -> None:
    columns = schema_of(EVERY_TYPE)

    def literal(expression: str) -> Any:
        shown: Any = format_predicate(lower_filter(read(expression), columns, caller()))
        return shown["right"]["value"]

    assert literal("row.c_decimal == '12.5'") == "12.50"
    assert literal("row.c_decimal == -3") == "-3.00"
    assert literal("row.c_date == '2026-01-31'") == "2026-01-31"
    assert literal("row.c_time == '13:00:00.5'") == "13:00:00.500000"
    assert literal("row.c_timestamp == '2026-01-31T13:00:00'") == "2026-01-31T13:00:00.000000"
    assert literal("row.c_timestamptz == '2026-01-31T13:00:00+02:00'") == "2026-01-31T11:00:00.000000+00:00"
    assert literal("row.c_timestamp_ns == '1969-12-31 23:59:59.999999999'") == "1969-12-31T23:59:59.999999999"
    assert literal("row.c_uuid == 'EB26BDB1-A1D8-4AA6-990E-DA940875492C'") == "eb26bdb1-a1d8-4aa6-990e-da940875492c"
    assert literal("row.c_binary == b'xyz'") == "78797A"
    assert literal("row.c_long == 9223372036854775807") == 9223372036854775807


def chain(length: int) -> Predicate:
    predicate: Predicate = EU
    for _ in range(length - 1):
        predicate = Not(child=predicate)
    return predicate


def members(count: int) -> Predicate:
    return Membership(op=Member.IN, field_id=1, type=LONG, literals=tuple(range(count)))


@pytest.mark.parametrize(
    ("make", "most", "words"),
    [(chain, DEPTH_MAX, "levels"), (members, ELEMENTS_MAX, "elements of lists")],
)
def test_a_predicate_of_the_largest_size_is_accepted_and_a_larger_one_is_not(
    make: Callable[[int], Predicate], most: int, words: str
) -> None:
    check_size(make(most))
    with pytest.raises(RestrictionTooLargeError, match=f"at most {most} {words}, found {most + 1}"):
        check_size(make(most + 1))
