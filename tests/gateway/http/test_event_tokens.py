# SPDX-License-Identifier: Apache-2.0
"""
Continuation tokens of events, and filters: what is made is read again, and nothing else is.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequestError
from gateway.http.events.query import (
    FILTERED_MAX,
    FILTERS_SIZE_BYTES_MAX,
    TOKEN_LENGTH_MAX,
    EventFilters,
    ObjectType,
    QueryEventsBody,
    parse_query,
)
from gateway.http.events.tokens import Position, format_token, parse_token
from gateway.http.sealed_texts import IV_SIZE_BYTES

KEY = bytes(range(32))
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=20)
LEVELS = NAMES.filter(lambda name: name not in {".", ".."})


def some(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A filter, or none."""
    return st.none() | st.frozensets(elements, min_size=1, max_size=5)


FILTERS = st.builds(
    EventFilters,
    types=some(st.text(st.characters(codec="ascii"), min_size=1, max_size=20)),
    names=some(st.lists(LEVELS, min_size=1, max_size=4).map(tuple)),
    uuids=some(st.uuids().map(str)),
    objects=some(st.sampled_from(ObjectType)),
)


@given(index=st.integers(0, 2**53 - 1), filters=FILTERS)
def test_a_token_is_read_as_the_position_that_it_was_made_of(index: int, filters: EventFilters) -> None:
    position = Position(index=index, filters=filters)
    assert parse_token(KEY, format_token(KEY, position, alias="lake"), alias="lake") == position


@given(filters=FILTERS, at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_token_with_a_changed_bit_is_refused(filters: EventFilters, at: int, bit: int) -> None:
    token = format_token(KEY, Position(index=7, filters=filters), alias="lake")
    data = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    data[at % len(data)] ^= 1 << bit
    with pytest.raises(BadRequestError, match="continuation-token: expected a token of an earlier answer"):
        parse_token(KEY, base64.urlsafe_b64encode(data).rstrip(b"=").decode(), alias="lake")


@given(text=st.text(max_size=100) | st.text("ABCabc_-09", max_size=100))
def test_a_made_up_token_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError):
        parse_token(KEY, text, alias="lake")


def test_a_token_is_for_one_tenant_and_one_catalog() -> None:
    token = format_token(KEY, Position(index=7, filters=EventFilters()), alias="lake")
    for key, alias in ((KEY, "lak"), (KEY, "lake2"), (KEY[::-1], "lake"), (bytes(32), "lake")):
        with pytest.raises(BadRequestError):
            parse_token(key, token, alias=alias)


def test_the_token_of_this_position_stays_this_one() -> None:
    filters = EventFilters(objects=frozenset({ObjectType.VIEW, ObjectType.TABLE}))
    token = format_token(KEY, Position(index=156, filters=filters), alias="lake")
    assert token == "y2LwpN4jClGPlBmqSqGCnW_GxPnrVZnRSulC8yQkKrRyVFyuRMyObjnyDipnB098UcOAmlyLBg"


def test_the_largest_filters_fit_a_token() -> None:
    largest = frozenset((f"{number:03}" * 85,) for number in range(FILTERED_MAX))
    filters = EventFilters(names=largest)
    token = format_token(KEY, Position(index=2**53, filters=filters), alias="a" * 64)
    assert len(token) < TOKEN_LENGTH_MAX
    assert (FILTERS_SIZE_BYTES_MAX + IV_SIZE_BYTES + 100) * 4 / 3 < TOKEN_LENGTH_MAX
    assert parse_token(KEY, token, alias="a" * 64).filters == filters


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=4).map(tuple), path=st.lists(LEVELS, min_size=1, max_size=6).map(tuple)
)
def test_a_name_matches_itself_and_what_is_below_it(levels: tuple[str, ...], path: tuple[str, ...]) -> None:
    filters = EventFilters(names=frozenset({levels}))
    for one in (path, levels + path, levels):
        admitted = filters.admits(operation_type="drop-table", paths=[one], uuid=None, kind=ObjectType.TABLE)
        assert admitted == (one[: len(levels)] == levels)


MEMBERS = [*(member.alias or "" for member in QueryEventsBody.model_fields.values()), "page-token"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(), below, max_size=3),
    max_leaves=6,
)


@given(body=st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=3).map(json.dumps) | st.text())
def test_whatever_a_body_is_it_is_parsed_or_refused(body: str) -> None:
    try:
        query = parse_query(body.encode(errors="surrogatepass"))
    except BadRequestError:
        return
    assert query.page_size >= 1


def test_no_filters_are_the_same_as_none() -> None:
    assert parse_query(b"{}").filters is None
    assert parse_query(b'{"operation-types": null, "custom-filters": {}, "continuation-token": null}').filters is None
    assert parse_query(b'{"object-types": ["view"]}').filters == EventFilters(objects=frozenset({ObjectType.VIEW}))
