# SPDX-License-Identifier: Apache-2.0
"""What is remembered of a schema's text: right for that text, and for no other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequestError
from gateway.metadata.columns import index_columns
from gateway.metadata.errors import InvalidUpdateError
from gateway.metadata.known_schemas import TEXT_SIZE_BYTES_MAX, columns_in, columns_of, known_text, sorted_text_of
from gateway.metadata.schemas import parse_schema
from gateway.metadata.shapes import DEPTH_MAX


def schema(*names: str, required: object = False) -> dict[str, Any]:
    fields = [{"id": n, "name": name, "required": required, "type": "long"} for n, name in enumerate(names, 1)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=5, unique=True))
def test_the_columns_of_a_schema_are_the_same_whether_it_is_new_or_known(names: list[str]) -> None:
    expected = index_columns(parse_schema(schema(*names), "schema"))
    assert columns_of(schema(*names)) == expected
    assert columns_of(schema(*names)) == expected


def test_a_schema_that_is_known_is_not_read_again() -> None:
    assert columns_of(schema("a", "b")) is columns_of(schema("a", "b"))


def test_a_schema_that_is_equal_in_python_alone_is_another_one() -> None:
    columns_of(schema("a", required=True))
    with pytest.raises(BadRequestError):
        columns_of(schema("a", required=1))  # equal to true, but no boolean


def test_a_schema_with_a_column_twice_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidUpdateError, match="multiple fields for name a"):
            columns_of(schema("a", "a"))


def test_a_schema_that_is_too_large_to_be_known_is_read_each_time() -> None:
    large = schema(*(f"{n:0100}" for n in range(TEXT_SIZE_BYTES_MAX // 100)))
    assert columns_of(large) == columns_of(large)
    assert columns_of(large) is not columns_of(large)


def test_the_columns_in_a_list_of_schemas_are_those_of_the_schema_with_the_id() -> None:
    listed = [schema("a"), {**schema("a", "b"), "schema-id": 7}]
    text = known_text(listed, sorted_text_of(listed), "schemas")
    assert text is not None
    assert columns_in(text, 0) == columns_of(listed[0])
    assert columns_in(text, 7) == columns_of(listed[1])
    assert columns_in(text, 0) != columns_in(text, 7)


def test_lists_of_schemas_with_the_same_text_share_it() -> None:
    texts = [known_text([one], sorted_text_of([one]), "schemas") for one in (schema("a"), schema("a"), schema("b"))]
    assert texts[0] is texts[1]
    assert texts[0] != texts[2]


def test_schemas_that_no_recursion_can_walk_are_refused_each_time() -> None:
    deep: Any = {}
    for _ in range(DEPTH_MAX):
        deep = {"more": deep}
    known_text([schema("a")], sorted_text_of([schema("a")]), "schemas")
    for _ in range(2):
        with pytest.raises(BadRequestError, match="nested deeper"):
            known_text([deep], sorted_text_of([deep]), "schemas")


@pytest.mark.parametrize("value", [2**64, "\ud800"])
def test_schemas_that_json_cannot_hold_are_refused_each_time(value: object) -> None:
    for _ in range(2):
        with pytest.raises(BadRequestError):
            known_text([{"doc": value}], sorted_text_of([{"doc": value}]), "schemas")
