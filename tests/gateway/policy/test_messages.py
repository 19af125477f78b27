# SPDX-License-Identifier: Apache-2.0
"""
Messages of policies with values of the commit in them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequestError
from gateway.policy.examples import EMPTY, variables_given
from gateway.policy.messages import FIELDS, FILLED_LENGTH_MAX, VALUE_LENGTH_MAX, check_message, fill

COMMIT: Any = variables_given(
    {
        "commit": {"name": "orders", "catalog": "lake"},
        "principal": {"sub": "ann"},
        "result": {"location": "s3://lake/orders", "format_version": 2, "snapshot": {"id": "7"}},
    }
)


@pytest.mark.parametrize(
    ("message", "filled"),
    [
        ("no", "no"),
        ("{commit.name} of {commit.catalog}", "orders of lake"),
        ("{principal.sub}: {result.location}", "ann: s3://lake/orders"),
        ("version {result.format_version}, snapshot {result.snapshot.id}", "version 2, snapshot 7"),
        ("{{commit.name}} {{}} }}{{", "{commit.name} {} }{"),
        ("{{{commit.name}}}", "{orders}"),
        ("before: {table.location}.", "before: ."),
    ],
)
def test_fields_in_braces_stand_for_their_values(message: str, filled: str) -> None:
    check_message(message)
    assert fill(message, COMMIT) == filled


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "{commit.nam}",
            "character 1: expected a field that is a text or a number, found 'commit.nam'; the nearest is commit.name",
        ),
        ("no {}", "character 4"),
        ("{ commit.name}", "the nearest is commit.name"),
        ("{commit.name!r}", "the nearest is commit.name"),
        ("{commit.namespace}", "a text or a number"),
        ("{commit.purge}", "a text or a number"),
        ("{result.properties.owner}", "a text or a number"),
        ("{result.columns[0].name}", "a text or a number"),
        ("{commit}", "a text or a number"),
        ("a { b", "character 3: expected a field between { and }, as in {commit.name}, found a brace alone: write {{"),
        ("a } b", "write }} for a brace"),
        ("{commit.name}}", "write }} for a brace"),
        ("{commit.{name}}", "a brace alone"),
    ],
)
def test_any_other_brace_is_refused_with_its_place(message: str, found: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        check_message(message)
    assert refused.value.field == "message"
    assert found in str(refused.value)


def test_every_field_is_a_text_or_a_number_of_every_commit() -> None:
    assert "commit.name" in FIELDS
    message = " ".join(f"{{{name}}}" for name in FIELDS)
    check_message(message)
    assert fill(message, EMPTY).split(" ") == [str(value_of(name)) for name in FIELDS]


def value_of(name: str) -> Any:
    value: Any = EMPTY
    for field in name.split("."):
        value = value[field]
    assert isinstance(value, str | int)
    return value


def test_values_that_do_not_print_are_escaped() -> None:
    hostile = variables_given({"commit": {"name": "a\nb\x1b[31m\u202ec\u2028größe"}})
    assert fill("{commit.name}", hostile) == "a\\u000ab\\u001b[31m\\u202ec\\u2028größe"


@given(st.text(max_size=300), st.integers(1, 8))
def test_a_message_with_its_values_is_bounded_and_one_line(name: str, times: int) -> None:
    variables = {**EMPTY, "commit": {"name": name}}
    filled = fill("x" + "{commit.name}" * times, variables)
    assert filled.isprintable()
    assert len(filled) <= FILLED_LENGTH_MAX
    if len(name) <= VALUE_LENGTH_MAX and name.isprintable() and len(name) * times < FILLED_LENGTH_MAX:
        assert filled == "x" + name * times
