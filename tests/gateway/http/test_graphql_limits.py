# SPDX-License-Identifier: Apache-2.0
"""
What a GraphQL query may ask for: at each bound it is taken, and one beyond it refused, at its place in the text.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from graphql import GraphQLError, build_schema, validate
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.graphql import limits
from gateway.http.graphql.limits import check_cost, introspection_in, parse_query
from gateway.http.graphql.schema import SCHEMA

GRAPHQL = build_schema(SCHEMA.as_str())


def nested(depth: int) -> str:
    return "{ a " * depth + "}" * depth


AT_BOUNDS: dict[str, tuple[str, str, str]] = {
    "text": (
        "{ a }" + " " * (limits.TEXT_LENGTH_MAX - 5),
        "{ a }" + " " * (limits.TEXT_LENGTH_MAX - 4),
        "more than 16384",
    ),
    "tokens": (
        "{ a(b: [" + "1 " * (limits.TOKENS_MAX - 9) + "]) }",
        "{ a(b: [" + "1 " * (limits.TOKENS_MAX - 8) + "]) }",
        "tokens",
    ),
    "comments": (
        "#\n" * limits.COMMENTS_MAX + "{ a }",
        "#\n" * (limits.COMMENTS_MAX + 1) + "{ a }",
        "comments",
    ),
    "depth": (nested(limits.DEPTH_MAX), nested(limits.DEPTH_MAX + 1), "nested at most 12 deep"),
    "depth in fragments": (
        "{ ...F } fragment F on Q { ... { " + nested(limits.DEPTH_MAX)[1:] + " }",
        "{ x { ...F } } fragment F on Q { ... { " + nested(limits.DEPTH_MAX)[1:] + " }",
        "nested at most 12 deep",
    ),
    "depth of introspection": (
        "{ __schema " + nested(limits.INTROSPECTION_DEPTH_MAX - 1) + " }",
        "{ __schema " + nested(limits.INTROSPECTION_DEPTH_MAX) + " }",
        "nested at most 20 deep",
    ),
    "aliases": (
        "{ " + " ".join(f"a{n}: x" for n in range(limits.ALIASES_MAX)) + " }",
        "{ " + " ".join(f"a{n}: x" for n in range(limits.ALIASES_MAX + 1)) + " }",
        "at most 20 aliases",
    ),
    "fields": (
        "{ " + "x " * limits.FIELDS_MAX + "}",
        "{ " + "x " * (limits.FIELDS_MAX + 1) + "}",
        "at most 250 fields",
    ),
    "variables": (
        "query (" + " ".join(f"$v{n}: Int" for n in range(limits.VARIABLES_MAX)) + ") { a }",
        "query (" + " ".join(f"$v{n}: Int" for n in range(limits.VARIABLES_MAX + 1)) + ") { a }",
        "at most 30 variables",
    ),
    "numbers": (
        "{ a(limit: " + "9" * limits.NUMBER_LENGTH_MAX + ") }",
        "{ a(in: [{b: " + "9" * (limits.NUMBER_LENGTH_MAX + 1) + "}]) }",
        "expected a number of at most 20 digits, found 21",
    ),
    "numbers with a fraction": (
        'query ($a: Float = 1.5) { a(text: "' + "9" * 5_000 + '") }',
        "query ($a: Float = 1." + "5" * limits.NUMBER_LENGTH_MAX + ") { a }",
        "expected a number of at most 20 digits, found 22",
    ),
    "operations": ("query A { a }", "query A { a } query B { b }", "expected one operation, found 2"),
    "no operation": ("{ a }", "fragment F on Q { a }", "expected one operation, found 0"),
    "kind of operation": ("query { a }", "mutation { a }", "expected a query, found a mutation"),
    "cycles": (
        "{ ...A } fragment A on Q { ...B } fragment B on Q { b }",
        "{ ...A } fragment A on Q { ...B } fragment B on Q { x { ...A } }",
        "fragments that do not contain themselves",
    ),
}


@pytest.mark.parametrize("bound", AT_BOUNDS)
def test_a_query_is_taken_at_a_bound_and_refused_beyond_it(bound: str) -> None:
    taken, refused, words = AT_BOUNDS[bound]
    parse_query(taken)
    with pytest.raises(GraphQLError, match=words) as error:
        parse_query(refused)
    if bound not in {"text", "no operation"}:
        assert error.value.locations, "it says where"


def cost_taken(query: str, **variables: object) -> bool:
    """Whether the cost of a valid query is within its bound."""
    document = parse_query(query)
    assert validate(GRAPHQL, document) == []
    try:
        check_cost(document, GRAPHQL, variables)
    except GraphQLError as error:
        return "expected a query whose answer has at most 5000 fields" not in error.message
    return True


@pytest.mark.parametrize(
    ("query", "taken", "refused"),
    [
        # 1 + limit * (1 + 1) of the list, its items and one field of each
        ("query ($n: Int!) { tables(limit: $n) { items { key ITS } } }", 384, 385),
        ("query ($n: Int!) { t: tables(limit: $n) { ...F } } fragment F on Tables { items { key ITS } }", 384, 385),
        ("query ($n: Int!) { tables(limit: $n) { ... { items { ... on Table { key ITS } } } } }", 384, 385),
    ],
)
def test_fields_within_a_list_count_as_often_as_it_may_have_items(query: str, taken: int, refused: int) -> None:
    query = query.replace("ITS", "found { kind }")
    assert cost_taken(query, n=taken)
    assert not cost_taken(query, n=refused)


def test_lists_within_lists_multiply_and_a_limit_that_cannot_be_told_is_the_greatest() -> None:
    inner = "tables(limit: %s) { items { decisions(limit: %s) { items { index } } } }"
    assert cost_taken("{ " + inner % (40, 61) + " }")
    assert not cost_taken("{ " + inner % (41, 61) + " }")
    assert cost_taken("query ($n: Int! = 40) { " + inner % ("$n", 61) + " }")
    assert not cost_taken("query ($n: Int! = 41) { " + inner % ("$n", 61) + " }")
    assert not cost_taken("query ($n: Int! = 1) { " + inner % ("$n", 61) + " }", n=41)
    assert not cost_taken("query ($n: Int! = 1) { " + inner % ("$n", 61) + " }", n="many")
    assert cost_taken("{ " + inner % (-5, 500) + " }"), "it is refused when it is run"
    assert not cost_taken(
        "{ " + " ".join(f"a{n}: " + inner % (10, 61) for n in range(4)) + " a: " + inner % (1, 61) + " }"
    )


def test_what_asks_for_the_schema_is_found_wherever_it_stands() -> None:
    for query in (
        "{ __schema { a } }",
        "{ a: __type { a } }",
        "{ ... { ... { __schema { a } } } }",
        "{ ...F } fragment F on Q { x { __schema { a } } }",
        "{ x } fragment Unused on Q { __schema { a } }",
    ):
        assert introspection_in(parse_query(query)) is not None
    assert introspection_in(parse_query("{ __typename schema type }")) is None


_WORDS = st.sampled_from(
    [
        *("{", "}", "(", ")", "[", "]", ":", "$n", "=", "!", "...", "on", "@skip", "query", "fragment", "F", "tables"),
        *("items", "key", "limit", "1", "-1", '"x"', '"""x"""', "Table", "null", "true", "#c\n", "\x00"),
        "{ tables { items { key } } }",
    ]
)


@given(st.lists(_WORDS, max_size=40).map(" ".join) | st.text(max_size=200))
def test_whatever_the_text_it_is_a_document_or_an_error_of_graphql(text: str) -> None:
    with suppress(GraphQLError):
        document = parse_query(text)
        if not validate(GRAPHQL, document, hide_suggestions=True):
            check_cost(document, GRAPHQL, {})
