# SPDX-License-Identifier: Apache-2.0
"""
The names and strings of an expression, found without its parser.
"""

from __future__ import annotations

import pytest

from gateway.policy.cel.check import check
from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.parse import parse
from gateway.policy.engine import ACCESS_RULE
from gateway.policy.words import compared_with, fields_named, mentions, texts_in, texts_near

NAMED = [
    ("grant.roles.all(r, r == 'x')", {"roles"}),
    ("has(grant.identity) && has( grant . roles )", {"identity", "roles"}),
    ("!grant.roles\n  .exists(r, r != 'it\\'s')", {"roles"}),
    ("actor == 'a' || grant.identity == r'a\\'b' || 'b' == '''grant.roles'''", {"identity"}),
    ("'grant.roles' != \"grant.identity\" // grant.roles", set()),
    ("role == 'a' // it's\n && 'b' != grant.identity", {"identity"}),
    ("api.apiName == 'grant' && roles == []", set()),
]


@pytest.mark.parametrize(("expression", "fields"), NAMED)
def test_fields_are_found_where_the_parser_finds_them(expression: str, fields: set[str]) -> None:
    assert fields_named(expression, "grant") == fields
    assert (check(parse(expression, Interruption()), kind=ACCESS_RULE).get("grant") or set()) == fields


def test_a_field_of_another_thing_is_none_of_the_variable() -> None:
    assert fields_named("x.grant.roles == api.apiName", "grant") == set()
    assert fields_named("grants.roles == grant_.roles", "grant") == set()


def test_a_name_is_mentioned_wherever_it_stands() -> None:
    names = ("path", "ref", "contentType")
    assert mentions("path == 'ref' // contentType", names) == set(names)
    assert mentions("paths == xref && content.Type", names) == set()


def test_texts_belong_to_the_name_that_they_are_compared_with() -> None:
    expression = "catalog == 'a' && path.startsWith('b') && 'c' == ref && 'd' in roles // path == 'e'"
    names = frozenset({"catalog", "path", "ref", "roles", "op"})
    near = texts_near(expression, names)
    assert near["catalog"] == ("a",)
    assert near["path"] == ("b", "c")
    assert near["ref"] == ("c", "d")
    assert near["roles"] == ("d",)
    assert texts_near("op in ['x', 'y'] && api.path == 'z'", names) == {"op": ("x", "y", "z")}


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("path == 'a' && path != \"b\" || path == 'a'", ("a", "b")),
        ("path == '''it's''' // 'c'", ("it's",)),
        ("path == 'it\\'s'", ("it's",)),
        ("roles == []", ()),
    ],
)
def test_texts_are_those_of_strings(expression: str, texts: tuple[str, ...]) -> None:
    assert texts_in(expression) == texts


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        ("op == 'a' && 'b' in roles", ("a",)),
        ("'a' == op || op != \"b\" || 'c' != op", ("a", "b", "c")),
        ("op in ['a', 'b'] && 'c' == role", ("a", "b")),
        ("op in [] || op in [path]", ()),
        ("op.startsWith('a') && op . endsWith ( 'b' )", ("a", "b")),
        ("'a' in op", ("a",)),
        ("'a' in op.map(o, o) || 'b' == op.trim()", ()),
        ("api.op == 'a' || 'b' == api.op // op == 'c'", ()),
        ("ops == 'a' && 'op' == path", ()),
        ("op", ()),
        ("op ==", ()),
    ],
)
def test_a_text_is_compared_with_a_variable_only_where_both_stand_in_one_operation(
    expression: str, texts: tuple[str, ...]
) -> None:
    assert tuple(compared_with(expression, "op")) == texts


def test_a_text_that_a_method_takes_is_a_part_of_what_is_looked_for() -> None:
    assert compared_with("op == 'a' || op.startsWith('b')", "op") == {"a": True, "b": False}
    assert compared_with("op.startsWith('a') || op == 'a' || op.endsWith('a')", "op") == {"a": True}
