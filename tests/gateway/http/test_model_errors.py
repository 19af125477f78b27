# SPDX-License-Identifier: Apache-2.0
"""
A value that is not as its model has it: what was expected, what was found, in our words, in few characters, no secret.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from gateway.errors import BadRequestError
from gateway.http.model_errors import NAME_LENGTH_MAX, QUOTED_MAX, first_of, not_of_model

SECRET: Final = "lp_0123456789abcdef"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=False)

    text: str = ""
    short: Annotated[str, Field(min_length=2, max_length=3)] = "ab"
    matching: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    number: int = 0
    bounded: Annotated[int, Field(ge=1, le=5)] = 1
    real: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.5
    flag: bool = False
    items: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    members: dict[str, int] = {}
    inner: Inner | None = None
    nothing: None = None
    either: str | int | bool | None = None
    literal: Literal["nessie", "cedar"] = "cedar"
    colour: Colour = Colour.RED
    since: Annotated[str, Field(alias="from")] = ""
    options: dict[str, str] = {}
    client_secret: int = 0
    own: str = ""

    @field_validator("own")
    @classmethod
    def _check_own(cls, value: str) -> str:
        if value:
            raise ValueError("expected nothing, found something")
        return value


class Whole(BaseModel):
    needed: str


KINDS: list[tuple[dict[str, Any], str]] = [
    ({"text": None}, "text: expected a text, found null"),
    ({"text": 5}, "text: expected a text, found 5"),
    ({"text": ["a"]}, "text: expected a text, found a list"),
    ({"text": {"a": 1}}, "text: expected a text, found an object"),
    ({"short": "a"}, "short: expected at least 2 characters, found fewer"),
    ({"short": "abcd"}, "short: expected at most 3 characters, found more"),
    ({"matching": "A"}, "matching: expected a text that matches ^[a-z]+$, found 'A'"),
    ({"number": "1"}, "number: expected a whole number, found '1'"),
    ({"number": 1.5}, "number: expected a whole number, found 1.5"),
    ({"number": True}, "number: expected a whole number, found true"),
    ({"bounded": 0}, "bounded: expected at least 1, found 0"),
    ({"bounded": 6}, "bounded: expected at most 5, found 6"),
    ({"real": "x"}, "real: expected a number, found 'x'"),
    ({"real": 0}, "real: expected more than 0.0, found 0"),
    ({"real": 1.0}, "real: expected less than 1.0, found 1.0"),
    ({"flag": "yes"}, "flag: expected true or false, found 'yes'"),
    ({"items": "a"}, "items: expected a list, found 'a'"),
    ({"items": []}, "items: expected at least 1 items, found 0"),
    ({"items": ["a", "b", "c"]}, "items: expected at most 2 items, found 3"),
    ({"items": ["a", 1]}, "items.1: expected a text, found 1"),
    ({"members": []}, "members: expected an object, found a list"),
    ({"members": {"a": "1"}}, "members.a: expected a whole number, found '1'"),
    ({"inner": "a"}, "inner: expected an object, found 'a'"),
    ({"inner": {}}, "inner.name: expected a value, found none"),
    ({"inner": {"name": "a", "b": 1}}, "inner.b: expected no member of this name, found one"),
    ({"nothing": 1}, "nothing: expected null, found 1"),
    ({"either": [1]}, "either: expected a text, a whole number or true or false, found a list"),
    ({"literal": "sql"}, "literal: expected 'nessie' or 'cedar', found 'sql'"),
    ({"colour": "green"}, "colour: expected 'red' or 'blue', found 'green'"),
    ({"from": 1}, "from: expected a text, found 1"),
    ({"own": "x"}, "own: expected nothing, found something"),
    ({"options": {"password": 5}}, "options.password: expected a text, found a number"),
    ({"client_secret": SECRET}, "client_secret: expected a whole number, found a text"),
    ({"number": "x" * 1_000}, f"number: expected a whole number, found '{'x' * QUOTED_MAX}'…"),
]
FOREIGN: Final = ("Input", "should", "valid", "pydantic", "unable to", "https://")


def refused(model: type[BaseModel], body: str | bytes) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate_json(body)
    error = not_of_model(caught.value, whole="body", model=model)
    assert isinstance(error, BadRequestError)
    return str(error)


@pytest.mark.parametrize(("body", "words"), KINDS, ids=[words for _, words in KINDS])
def test_each_kind_of_error_says_what_was_expected_and_what_was_found(body: dict[str, Any], words: str) -> None:
    assert refused(Model, json.dumps(body)) == words
    assert not any(each in words for each in FOREIGN)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "body: expected JSON, found text that is none: EOF while parsing an object at line 1 column 1"),
        ("", "body: expected JSON, found text that is none: EOF while parsing a value at line 1 column 0"),
        (b"\xff", "body: expected JSON, found text that is none: "),
        ("[]", "body: expected an object, found a list"),
        (f'"{SECRET}', "body: expected JSON, found text that is none: "),
        ("null", "body: expected an object, found null"),
        ("{}", "needed: expected a value, found none"),
    ],
)
def test_a_body_that_is_none_is_told_as_a_whole_and_never_quoted(body: str | bytes, words: str) -> None:
    told = refused(Whole, body)
    assert told.startswith(words)
    assert SECRET not in told


def test_an_unknown_member_is_refused_with_those_that_there_are_and_its_name_is_bounded() -> None:
    told = refused(Inner, json.dumps({"nam": "a", "name": "a"}))
    assert told == "nam: expected members of name, found another"
    assert "text, short" in refused(Model, json.dumps({"x": 1}))
    assert "from, options" in refused(Model, json.dumps({"since": "a"})), "a member has the name that it is sent by"
    for name in ("x" * 10_000, "a\n<b>\x00"):
        told = refused(Inner, json.dumps({name: SECRET, "name": "a"}))
        assert len(told.partition(": expected")[0]) <= NAME_LENGTH_MAX
        assert told.isprintable()
        assert SECRET not in told


def test_an_error_of_an_unknown_kind_has_our_words_too() -> None:
    error = {"type": "moon_phase", "loc": ("query", "at"), "msg": "Input should be full", "input": 5}
    assert str(first_of([error], whole="body", skipped=("query",))) == "at: expected another value, found 5"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from([*Model.model_fields, "from"]), JSON)
def test_whatever_is_sent_the_answer_is_short_and_ours(name: str, value: Any) -> None:
    try:
        Model.model_validate_json(json.dumps({name: value}))
    except ValidationError as error:
        told = str(not_of_model(error, whole="body", model=Model))
        assert ": expected " in told
        assert len(told) < 800
        assert not any(each in told.partition(", found ")[0] for each in FOREIGN)
