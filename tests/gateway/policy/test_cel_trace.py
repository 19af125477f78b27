# SPDX-License-Identifier: Apache-2.0
"""A traced evaluation gives the result of an untraced one, and the values of the parts, within bounds."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.policy.cel.programs import Programs
from gateway.policy.cel.trace import ITEMS_MAX, STEPS_MAX, TEXT_MAX
from gateway.policy.engine import POLICY, Outcome
from testkit.gateway.recorded_commits import EXPRESSIONS, VARIABLES


def traced(expression: str, variables: dict[str, Any] | None = None) -> tuple[Outcome, list[dict[str, Any]]]:
    result, steps = Programs().trace(POLICY, expression, VARIABLES if variables is None else variables)
    return result.outcome, steps


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_tracing_changes_no_result(expression: str) -> None:
    (plain,) = Programs().judge([(POLICY, expression)], VARIABLES, log_id=1)
    outcome, steps = traced(expression)
    assert outcome is plain.outcome
    if expression not in {"true", "false"}:  # a literal is its own value
        assert steps[0]["text"] == " ".join(expression.split())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_tracing_changes_no_result_where_a_variable_is_not_known(expression: str) -> None:
    for left_out in VARIABLES:
        some = {name: value for name, value in VARIABLES.items() if name != left_out}
        (plain,) = Programs().judge([(POLICY, expression)], some, log_id=1)
        assert traced(expression, some)[0] is plain.outcome


def test_each_part_that_was_evaluated_has_its_value_and_its_place() -> None:
    _, steps = traced("commit.kind == 'view' ||\n  size(table.columns) > 1")
    assert [(one["text"], one["value"], one["line"], one["column"], one["depth"]) for one in steps] == [
        ("commit.kind == 'view' || size(table.columns) > 1", "true", 1, 1, 0),
        ("commit.kind == 'view'", "false", 1, 1, 1),
        ("commit.kind", '"table"', 1, 1, 2),
        ("size(table.columns) > 1", "true", 2, 3, 1),
        ("size(table.columns)", "2", 2, 3, 2),
        ("table.columns", steps[-1]["value"], 2, 8, 3),
    ]


def test_what_was_not_evaluated_has_no_value() -> None:
    _, steps = traced("commit.kind == 'table' || commit.name == 'orders'")
    assert "commit.name" not in [one["text"] for one in steps]


def test_a_part_of_a_macro_has_its_last_value_and_how_often_it_was_evaluated() -> None:
    _, steps = traced("table.columns.exists(c, c.name == 'tenant_id')")
    (compared,) = [one for one in steps if one["text"] == "c.name == 'tenant_id'"]
    assert (compared["times"], compared["value"]) == (2, "true")


def test_both_sides_of_a_comparison_of_fields_are_shown() -> None:
    _, steps = traced("table.columns.all(c, result.columns.exists(r, r.id == c.id))")
    assert {"r.id", "c.id"} <= {one["text"] for one in steps}


def test_a_part_that_fails_says_so() -> None:
    outcome, steps = traced("table.properties.nobody == 'x'")
    assert outcome is Outcome.ERROR
    assert [one.get("error") for one in steps] == ["KeyError", "KeyError", None]


def test_parts_and_values_are_cut() -> None:
    many = {**VARIABLES, "table": {**VARIABLES["table"], "properties": {f"p{n}": "x" * 900 for n in range(900)}}}
    _, steps = traced("||".join(["size(table.properties)==1"] * 200), many)
    assert len(steps) == STEPS_MAX
    assert all(len(one["text"]) <= TEXT_MAX and len(one["value"]) <= TEXT_MAX for one in steps)
    _, (_, shown, *_) = traced("[1,2,3,4,5,6,7,8,9,10] == [1]")
    assert shown["value"].count(",") == ITEMS_MAX
    assert shown["value"].endswith("10 in all]")


def test_cases_are_judged_as_each_alone_would_be() -> None:
    programs = [(POLICY, expression) for expression in EXPRESSIONS]
    values = list(VARIABLES.values())
    whole = {name: place for place, name in enumerate(VARIABLES)}
    found = list(Programs().judge_cases(programs, values, [(n, whole) for n in range(len(programs))], log_id=1))
    assert found == list(Programs().judge(programs, VARIABLES, log_id=1))


def test_a_case_may_have_some_fields_of_a_variable_alone() -> None:
    (found,) = Programs().judge_cases(
        [(POLICY, "commit.kind == 'table'")], ["table"], [(0, {"commit": {"kind": 0}})], log_id=1
    )
    assert found.outcome is Outcome.ALLOW
