# SPDX-License-Identifier: Apache-2.0
"""
Expressions on many names at once: each result is the one that the name alone gets, and what has no such form has none.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.policy.cel.check import check
from gateway.policy.cel.columns import ByColumns, by_columns
from gateway.policy.cel.interruption import Interruption, JudgingStopped
from gateway.policy.cel.parse import parse
from gateway.policy.cel.programs import HOLDS, HOLDS_NOT, Programs
from gateway.policy.engine import ACCESS_RULE, Outcome

SHARED: dict[str, Any] = {
    "op": "READ_ENTITY_VALUE",
    "role": "reader",
    "roles": ["reader"],
    "catalog": "lake",
    "ref": "main",
    "contentType": "ICEBERG_TABLE",
    "type": "",
    "actions": [],
    "actor": "a" * 32,
    "api": {"apiName": "Iceberg", "apiVersion": 1},
    "grant": {"identity": "", "roles": []},
}
PATHS = ["sales.orders", "sales.t1", "sales", "hr.salaries", "", "a\x1db.c", "main", "lake.ü"]
OF_NAMES = (
    "path == 'sales.orders'",
    "'sales.t1' == path",
    "path != 'hr.salaries'",
    "path.startsWith('sales.')",
    "path.endsWith('s')",
    "path.contains('ales')",
    "path in ['sales', 'hr.salaries']",
    "path.matches('^sales')",
    "path.startsWith(catalog + '.')",
    "path == ref",
    "uuid == 'u1'",
    "!(path == 'sales')",
    "('reader' in roles ? path == 'sales' : path == 'hr.salaries')",
)
OF_ALL = ("'reader' in roles", "'writer' in roles", "op.startsWith('READ_')", "api.apiVersion == 1")
WITHOUT_FORM = (
    "roles[5] == path",
    "path == 3",
    "path in ['sales', 1]",
    "size(path) > 5",
    "path < 'm'",
    "roles.exists(r, path == r)",
    "path == uuid",
    "path.startsWith(path)",
    "path.matches(ref)",
    "(path == 'sales' ? true : false)",
)
PROGRAMS = Programs()


def form_of(expression: str) -> ByColumns | None:
    interruption = Interruption()
    tree = parse(expression, interruption)
    return by_columns(tree, list(check(tree, kind=ACCESS_RULE)), interruption)


conditions = st.sampled_from([*OF_NAMES, *OF_ALL, *WITHOUT_FORM])
expressions = st.recursive(
    conditions,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(lambda three: f"({' '.join(three)})")
        | inner.map(lambda one: f"!({one})")
    ),
    max_leaves=6,
)


@given(st.lists(expressions, min_size=1, max_size=4), st.lists(st.sampled_from(PATHS), min_size=1, max_size=6))
def test_names_together_are_judged_as_each_alone(texts: list[str], paths: list[str]) -> None:
    programs = [(ACCESS_RULE, text) for text in texts]
    rows = [{"path": path, "uuid": f"u{number % 3}"} for number, path in enumerate(paths)]
    together = list(PROGRAMS.judge_rows(programs, SHARED, rows, log_id=1))
    alone = [list(PROGRAMS.judge(programs, {**SHARED, **row}, log_id=1)) for row in rows]
    assert [[one.outcome for one in row] for row in together] == [[one.outcome for one in row] for row in alone]


@pytest.mark.parametrize("expression", OF_NAMES)
def test_a_comparison_of_a_name_has_a_form_that_tells_names_apart(expression: str) -> None:
    form = form_of(expression)
    assert form is not None
    columns = {"path": PATHS, "uuid": [f"u{number % 3}" for number in range(len(PATHS))]}
    held = form.judge(SHARED, columns)
    assert isinstance(held, list)
    assert set(held) == {True, False}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    judged = PROGRAMS.judge_rows([(ACCESS_RULE, expression)], SHARED, rows, log_id=1)
    assert [row[0] is HOLDS for row in judged] == held


@pytest.mark.parametrize("expression", WITHOUT_FORM)
def test_what_compares_names_otherwise_is_asked_row_by_row(expression: str) -> None:
    form = form_of(expression)
    assert form is None or form.judge(SHARED, {"path": PATHS, "uuid": PATHS}) is None


def test_an_expression_without_names_needs_no_form() -> None:
    assert form_of("'reader' in roles") is None


def test_what_is_settled_for_all_names_is_not_asked_of_each() -> None:
    form = form_of("'writer' in roles && path == 'x'")
    assert form is not None
    assert form.judge(SHARED, {"path": PATHS}) is False


def test_an_error_beside_a_name_is_left_to_the_logic_that_absorbs_it() -> None:
    text = "roles[5] == 'x' && path == 'sales'"
    form = form_of(text)
    assert form is not None
    assert form.judge(SHARED, {"path": PATHS}) is None
    rows = [{"path": path} for path in ("sales", "hr")]
    judged = [row[0] for row in PROGRAMS.judge_rows([(ACCESS_RULE, text)], SHARED, rows, log_id=1)]
    assert (judged[0].outcome, judged[1]) == (Outcome.ERROR, HOLDS_NOT)


def test_a_name_that_is_missing_in_one_row_is_an_error_there_alone() -> None:
    rows: list[dict[str, Any]] = [{"path": "sales", "uuid": "u1"}, {"path": "sales"}]
    judged = PROGRAMS.judge_rows([(ACCESS_RULE, "uuid == 'u1'")], SHARED, rows, log_id=1)
    assert [row[0].outcome for row in judged] == [Outcome.ALLOW, Outcome.ERROR]


def test_a_list_is_stopped_like_a_single_request() -> None:
    programs = Programs()
    programs.interruption.begin(7)
    programs.interruption.stop(7)
    with pytest.raises(JudgingStopped):
        list(programs.judge_rows([(ACCESS_RULE, "path == ref")], SHARED, [{"path": "a"}], log_id=1))
