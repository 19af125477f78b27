# SPDX-License-Identifier: Apache-2.0
"""
Examples of policies: what may be given in one, what is refused, and what the real engine says about them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import orjson
import pytest
import pytest_asyncio

from gateway.errors import BadRequestError
from gateway.policy.engine import POLICY, Outcome
from gateway.policy.examples import (
    EMPTY,
    EXAMPLES_MAX,
    EXAMPLES_SIZE_BYTES_MAX,
    NAME_LENGTH_MAX,
    Example,
    failing,
    format_examples,
    given_text,
    parse_examples,
    stored_size_bytes,
    variables_given,
)
from gateway.policy.judging import Evaluate
from gateway.policy.pool import WorkerEngine
from gateway.policy.table import DEPTH_MAX, INTEGER_MAX
from gateway.policy.vocabulary import variables_of

KEEP_TENANT = 'result.columns.exists(c, c.name == "tenant_id")'
TENANT: Any = {"id": 1, "name": "tenant_id", "type": "string"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def evaluate() -> AsyncIterator[Evaluate]:
    async with WorkerEngine() as engine:
        yield partial(engine.judge, log_id=1)


def example(expect: str, **given: Any) -> dict[str, Any]:
    return {"expect": expect, "given": given}


def test_nothing_given_is_the_empty_commit_with_every_variable() -> None:
    assert variables_given({}) == EMPTY
    assert set(EMPTY) == set(variables_of(POLICY))


def test_objects_are_laid_over_member_by_member_and_the_rest_replaces() -> None:
    found: Any = variables_given(
        {
            "result": {"exists": True, "properties": {"größe": "1"}, "snapshot": {"id": "7"}},
            "principal": {"roles": ["a"]},
        }
    )
    empty: Any = EMPTY
    assert found["result"] == {
        **empty["result"],
        "exists": True,
        "properties": {"größe": "1"},
        "snapshot": {**empty["result"]["snapshot"], "id": "7"},
    }
    assert found["principal"] == {**empty["principal"], "roles": ["a"]}
    assert found["table"] == empty["table"]


def test_elements_of_a_list_are_completed_to_the_fields_that_a_commit_has() -> None:
    found: Any = variables_given(
        {
            "result": {"columns": [{"name": "a"}], "partition_fields": [{"source": "a"}], "refs": {"dev": {}}},
            "commit": {"snapshots": [{"id": "7"}]},
        }
    )
    assert found["result"]["columns"][0]["name"] == "a"
    assert found["result"]["columns"][0]["doc"] == ""
    assert found["result"]["columns"][0]["required"] is False
    assert found["result"]["partition_fields"][0]["transform"] == ""
    assert found["result"]["refs"] == {"dev": {"type": "", "snapshot_id": ""}}
    assert found["commit"]["snapshots"] == [{"id": "7", "operation": "", "summary": {}}]


def test_updates_and_requirements_are_what_a_client_sends() -> None:
    found: Any = variables_given({"commit": {"updates": [{"action": "set-properties", "updates": {"a": "b"}}, 1]}})
    assert found["commit"]["updates"] == [{"action": "set-properties", "updates": {"a": "b"}}, 1]


@pytest.mark.parametrize(
    ("given", "field", "found"),
    [
        ({"reslt": {}}, "given", "the nearest is result"),
        ({"result": {"column": []}}, "given.result", "the nearest is columns"),
        ({"result": {"snapshot": {"summry": {}}}}, "given.result.snapshot", "the nearest is summary"),
        ({"result": {"columns": [{"nmae": "a"}]}}, "given.result.columns[0]", "the nearest is name"),
        ({"commit": {"snapshots": [{"summary": {}, "ids": "1"}]}}, "given.commit.snapshots[0]", "the nearest is id"),
        ({"commit": {"added_columns": [{"pth": "a"}]}}, "given.commit.added_columns[0]", "the nearest is path"),
        ({"commit": {"removed_columns": [{"pth": "a"}]}}, "given.commit.removed_columns[0]", "the nearest is path"),
        ({"commit": {"changed_columns": [{"old": "a"}]}}, "given.commit.changed_columns[0]", "the nearest is old_doc"),
        ({"commit": {"removed_snapshots": [{"keep": 1}]}}, "given.commit.removed_snapshots[0]", "some of id,"),
        ({"result": {"statistics": [{"size": 1}]}}, "given.result.statistics[0]", "the nearest is size_bytes"),
        ({"lineage": {"upstream": [{"kinds": [{"knd": "a"}]}]}}, "given.lineage.upstream[0].kinds[0]", "is kind"),
        ({"principal": {"groups": [1]}}, "given.principal.groups[0]", "expected a text"),
        ({"result": {"queries": {"spark": 1}}}, "given.result.queries.spark", "expected a text"),
        ({"result": []}, "given.result", "expected an object"),
        ({"result": {"columns": {}}}, "given.result.columns", "expected a list"),
        ({"result": {"columns": ["a"]}}, "given.result.columns[0]", "expected an object"),
        ({"result": {"columns": [{"id": "1"}]}}, "given.result.columns[0].id", "expected an integer"),
        ({"result": {"columns": [{"id": True}]}}, "given.result.columns[0].id", "expected an integer"),
        ({"result": {"exists": 1}}, "given.result.exists", "expected true or false"),
        ({"result": {"exists": None}}, "given.result.exists", "expected true or false"),
        ({"result": {"snapshot": {"id": 7}}}, "given.result.snapshot.id", "expected a text"),
        ({"result": {"properties": {"a": 1}}}, "given.result.properties.a", "expected a text"),
        ({"result": {"properties": {1: "a"}}}, "given.result.properties", "in quotes"),
        ({"principal": {"roles": [1]}}, "given.principal.roles[0]", "expected a text"),
        ({"commit": {"updates": [{"a": 1.5}]}}, "given.commit.updates[0].a", "found 1.5"),
        ({"commit": {"updates": [INTEGER_MAX + 1]}}, "given.commit.updates[0]", "53 bits"),
        ({"commit": {"name": "a\ud800"}}, "given.commit.name", "surrogates"),
        ({"result": {"properties": {"a\ud800": "b"}}}, "given.result.properties", "surrogates"),
    ],
)
def test_what_no_commit_has_is_refused_with_its_place(given: Any, field: str, found: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        variables_given(given)
    assert refused.value.field == field
    assert found in str(refused.value)
    second: Any = {"expect": "allow", "given": given}
    with pytest.raises(BadRequestError) as refused:
        parse_examples([example("deny"), second])
    assert refused.value.field == f"examples[1].{field}"


def test_updates_may_not_be_nested_without_end() -> None:
    deep: Any = "x"
    for _ in range(DEPTH_MAX):
        deep = [deep]
    assert variables_given({"commit": {"updates": [deep]}})
    with pytest.raises(BadRequestError, match="levels"):
        variables_given({"commit": {"updates": [[deep]]}})


@pytest.mark.parametrize(
    ("value", "field", "found"),
    [
        ({}, "examples", "a list"),
        ("allow", "examples", "a list"),
        (["allow"], "examples[0]", "an object"),
        ([{}], "examples[0].expect", "allow or deny"),
        ([{"expect": "error"}], "examples[0].expect", "allow or deny"),
        ([{"expect": True}], "examples[0].expect", "allow or deny"),
        ([{"expects": "allow"}], "examples[0]", "the nearest is expect"),
        ([{"expect": "allow", "given": []}], "examples[0].given", "an object"),
        ([{"expect": "allow", "name": "a\nb"}], "examples[0].name", "printable"),
        ([{"expect": "allow", "name": "a" * (NAME_LENGTH_MAX + 1)}], "examples[0].name", "at most 200"),
        ([example("allow")] * (EXAMPLES_MAX + 1), "examples", "at most 50 examples, found 51"),
        ([example("allow", commit={"name": "a" * EXAMPLES_SIZE_BYTES_MAX})], "examples", "bytes of examples"),
    ],
)
def test_what_is_no_list_of_examples_is_refused_with_its_place(value: Any, field: str, found: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_examples(value)
    assert refused.value.field == field
    assert found in str(refused.value)


def test_what_is_formatted_is_parsed_again() -> None:
    written: Any = [
        {"name": "with it", "expect": "allow", "given": {"result": {"columns": [TENANT]}}},
        {"expect": "deny", "given": {}},
    ]
    examples = parse_examples(written)
    assert examples == (
        Example(name="with it", expect=Outcome.ALLOW, given={"result": {"columns": [TENANT]}}),
        Example(name="", expect=Outcome.DENY, given={}),
    )
    assert format_examples(examples) == written
    assert parse_examples(None) == parse_examples([]) == ()


def test_the_text_of_what_is_given_does_not_depend_on_the_order_of_writing() -> None:
    one, other = parse_examples(
        [
            example("allow", result={"properties": {"größe": "1", "b": "2"}, "exists": True}, commit={"name": "a"}),
            example("allow", commit={"name": "a"}, result={"exists": True, "properties": {"b": "2", "größe": "1"}}),
        ]
    )
    assert given_text(one) == given_text(other)
    assert orjson.loads(given_text(one)) == one.given
    assert stored_size_bytes((one, other)) == 2 * stored_size_bytes((one,)) > len(given_text(one))


@pytest.mark.asyncio(loop_scope="module")
async def test_examples_that_hold_say_nothing(evaluate: Evaluate) -> None:
    examples = parse_examples([example("allow", result={"columns": [TENANT]}), example("deny")])
    assert await failing(evaluate, KEEP_TENANT, examples, timeout_s=10) == ()
    assert await failing(evaluate, KEEP_TENANT, (), timeout_s=10) == ()


@pytest.mark.asyncio(loop_scope="module")
async def test_each_example_that_does_not_hold_is_a_sentence(evaluate: Evaluate) -> None:
    with_it: Any = {**example("deny", result={"columns": [TENANT]}), "name": "with it"}
    examples = parse_examples([with_it, example("deny"), example("allow")])
    assert await failing(evaluate, KEEP_TENANT, examples, timeout_s=10) == (
        "example 1 (with it): expected deny, found allow",
        "example 3: expected allow, found deny",
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_an_expression_that_cannot_be_evaluated_holds_for_no_example(evaluate: Evaluate) -> None:
    examples = parse_examples([example("deny"), example("allow")])
    first, second = await failing(evaluate, 'result.properties["owner"] == "a"', examples, timeout_s=10)
    assert first.startswith("example 1: expected deny, found error: ")
    assert second.startswith("example 2: expected allow, found error: ")
