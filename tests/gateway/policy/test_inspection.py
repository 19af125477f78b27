# SPDX-License-Identifier: Apache-2.0
"""
What is found in an expression for its author: its text, what it reads, remarks, branches and mutants.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.mutants import MUTANTS_MAX
from gateway.policy.cel.parse import parse
from gateway.policy.cel.printing import text_of
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import POLICY, Outcome, PolicyNotCompiledError
from gateway.policy.examples import EMPTY, variables_given
from gateway.policy.inspected import Branch, Inspection, Rule, format_inspection, parse_inspection
from gateway.policy.pool import WorkerEngine
from testkit.servers.forked_workers import fork_worker

PROGRAMS = Programs()


def inspected(expression: str) -> Inspection:
    return PROGRAMS.inspect(expression, kind=POLICY, zero=EMPTY)


def covered(expression: str, *given: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return by the text of each branch which values it never took."""
    variables = [variables_given(one) for one in given]
    return {branch.text: branch.missing for branch in PROGRAMS.cover(expression, variables, kind=POLICY)}


def remarks(expression: str) -> list[tuple[Rule, int, str]]:
    return [(remark.rule, remark.column, remark.words) for remark in inspected(expression).remarks]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("a.b.c(d)[1].e({'x':[]})", "a.b.c(d)[1].e({'x': []})"),
        ("a?b:c?d:e", "(a ? b : (c ? d : e))"),
        ("a||b&&!c // why", "(a || (b && !c))"),
        ("!!a", "!!a"),
        ("-(1+2)-3*x.y%4", "((-(1 + 2) - ((3 * x.y) % 4)))"[1:-1]),
        ("(1).size()==0", "((1).size() == 0)"),
        ("(-x).f()", "(-x).f()"),
        ("x.map(y, z, w)==[1u, 2.5, b'a', null, r'\\d']", "(x.map(y, z, w) == [1u, 2.5, b'a', null, r'\\d'])"),
        ("has(a.b)", "has(a.b)"),
    ],
)
def test_a_tree_is_printed_with_all_brackets_and_reads_back_as_itself(expression: str, text: str) -> None:
    printed = text_of(parse(expression, Interruption()))

    assert printed == text
    assert text_of(parse(printed, Interruption())) == text


names = st.sampled_from(["table.exists", "commit.purge", "commit.name == 'a'", "'a' in principal.roles", "true"])
expressions = st.recursive(
    names,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from([" && ", " || ", " == ", " != "]), inner).map(lambda t: f"({''.join(t)})"),
        inner.map(lambda text: f"!({text})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
        inner.map(lambda text: f"result.columns.exists(c, c.id < 2 || {text})"),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=60)
@given(expression=expressions, name=st.sampled_from(["a", "b"]), purge=st.booleans())
def test_the_printed_text_means_what_the_expression_means(expression: str, name: str, purge: bool) -> None:
    columns = [{"id": 1, "name": "x", "type": "long"}]
    given: dict[str, Any] = {"commit": {"name": name, "purge": purge}, "result": {"columns": columns}}
    programs = [(POLICY, expression), (POLICY, inspected(expression).text)]

    first, second = PROGRAMS.judge(programs, variables_given(given), log_id=0)

    assert first.outcome is second.outcome


@settings(deadline=None, max_examples=40)
@given(expression=expressions)
def test_every_mutant_compiles_and_differs(expression: str) -> None:
    found = inspected(expression)

    assert len({found.text, *(mutant.expression for mutant in found.mutants)}) == len(found.mutants) + 1
    for mutant in found.mutants[:10]:
        PROGRAMS.check(mutant.expression, kind=POLICY)


def test_the_mutants_of_an_expression_are_these() -> None:
    found = inspected("commit.purge && size(commit.name) < 3 || !('x' in principal.roles)")

    assert [(mutant.words, mutant.expression) for mutant in found.mutants if mutant.column > 13] == [
        ("operand of && negated", "((commit.purge && !((size(commit.name) < 3))) || !('x' in principal.roles))"),
        ("< changed to <=", "((commit.purge && (size(commit.name) <= 3)) || !('x' in principal.roles))"),
        ("3 changed to 4", "((commit.purge && (size(commit.name) < 4)) || !('x' in principal.roles))"),
        ("a negation dropped", "((commit.purge && (size(commit.name) < 3)) || ('x' in principal.roles))"),
        ("'x' changed to 'x~'", "((commit.purge && (size(commit.name) < 3)) || !('x~' in principal.roles))"),
    ]
    of_chains = {mutant.words for mutant in found.mutants}
    assert {"|| changed to &&", "&& changed to ||", "the operand commit.purge of && dropped"} <= of_chains


def test_macros_and_conditions_have_mutants_too() -> None:
    words = [one.words for one in inspected("commit.purge ? table.columns.all(c, c.required) : true").mutants]

    assert {"all changed to exists", "predicate of all negated", "the branches of ? : swapped"} <= set(words)
    assert "true changed to false" in words


def test_an_expression_has_a_bounded_number_of_mutants() -> None:
    chain = " || ".join(f"commit.name == 'n{number}'" for number in range(300))

    assert MUTANTS_MAX // 2 < len(inspected(chain).mutants) <= MUTANTS_MAX


def test_what_an_expression_reads_and_calls_and_costs() -> None:
    found = inspected("table.columns.all(c, result.columns.exists(r, r.id == c.id)) && size(commit) > 0")

    assert found.reads == {"table": ("columns",), "result": ("columns",), "commit": None}
    assert found.functions == ("all", "exists", "size")
    assert (found.loops, found.cost) == (2, "quadratic")
    assert inspected("commit.purge").cost == "constant"
    assert inspected("table.columns.filter(c, c.required).all(c, c.id > 0)").cost == "linear"
    four = "[1].all(a, [1].all(b, [1].all(c, [1].all(d, commit.purge))))"
    assert inspected(four).cost == "4 nested loops"


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("true", [(Rule.CONSTANT, 1, "the expression is constant: true reads nothing of the commit")]),
        ("commit.purge || 1 == 2",
         [(Rule.CONSTANT, 17, "operand of || is constant: (1 == 2) reads nothing of the commit")]),
        ("commit.purge && [1].all(x, x == 1)",
         [(Rule.CONSTANT, 17, "operand of && is constant: [1].all(x, (x == 1)) reads nothing of the commit")]),
        ("commit.purge || table.exists || commit.purge",
         [(Rule.DUPLICATE, 33, "commit.purge is an operand of the same || already")]),
        ("table.exists != table.exists", [(Rule.DUPLICATE, 1, "both sides of != are table.exists")]),
        ("table.exists ? commit.purge : commit.purge", [(Rule.DUPLICATE, 1, "both branches of ? : are commit.purge")]),
        ("table.columns.all(commit, commit.required)",
         [(Rule.SHADOWED, 19, "the name commit for an element of all hides a variable of that name")]),
        ("table.columns.all(c, table.refs.exists(c, c == ''))",
         [(Rule.SHADOWED, 40, "the name c for an element of exists hides a variable of that name")]),
        ("commit.name == 3", [(Rule.TYPES, 1, "== compares a string with a number, which are never equal")]),
        ("size(table.columns) != '3'", [(Rule.TYPES, 1, "!= compares a number with a string, which are never equal")]),
        ("table.format_version < '2'", [(Rule.TYPES, 1, "< compares a number with a string: it always fails")]),
        ("'a' in commit.name",
         [(Rule.TYPES, 1, "in looks into a list or a map, and this is a string: it always fails")]),
        ("commit.kind in [1, 2]", [(Rule.TYPES, 1, "a string is never in a list of numbers")]),
        # nothing is said of these
        ("commit.purge && table.format_version >= 2 && 'owner' in table.properties", []),
        ("table.properties['a'] == 'b' && commit.name in ['a', 'b'] && commit.name in principal.roles", []),
        ("table.columns.all(c, result.columns.exists(r, r.id == c.id && r.type == c.type))", []),
        ("timestamp('2026-01-01T00:00:00Z') < timestamp(table.properties['t'])", []),
    ],
)  # fmt: skip
def test_what_looks_wrong_is_said_with_its_place_and_nothing_else_is(
    expression: str, found: list[tuple[Rule, int, str]]
) -> None:
    assert remarks(expression) == found


def test_a_branch_is_covered_in_the_directions_that_it_took() -> None:
    expression = "commit.purge ? 'admin' in principal.roles : table.exists || commit.kind == 'view'"
    purge, plain = {"commit": {"purge": True}}, {"table": {"exists": True}}

    assert covered(expression, purge) == {
        "(commit.purge ? ('admin' in principal.roles) : (table.exists || (commit.kind == 'view')))": ("true",),
        "commit.purge": ("false",),
        "table.exists": ("true", "false"),
        "(commit.kind == 'view')": ("true", "false"),
    }
    assert covered(expression, purge, plain) == {
        "(commit.purge ? ('admin' in principal.roles) : (table.exists || (commit.kind == 'view')))": (),
        "commit.purge": (),
        "table.exists": ("false",),
        "(commit.kind == 'view')": ("true", "false"),  # not reached: the operand before it settled the matter
    }


def test_the_predicate_of_a_macro_is_a_branch_and_an_error_is_neither_direction() -> None:
    column = {"id": 1, "name": "a", "type": "long"}

    assert covered("table.columns.all(c, c.required)")["c.required"] == ("true", "false")
    assert covered("table.columns.all(c, c.required)", {"table": {"columns": [column]}})["c.required"] == ("true",)
    assert covered("table.properties['a'] == 'b' || commit.purge", {})["(table.properties['a'] == 'b')"] == (
        "true",
        "false",
    )


async def test_the_worker_inspects_and_covers_and_refuses_with_a_place() -> None:
    async with WorkerEngine(spawn=fork_worker) as engine:
        found = await engine.inspect("commit.purge || 1 == 2", zero=EMPTY, timeout_s=10)
        branches = await engine.cover("commit.purge", [EMPTY], timeout_s=10)
        with pytest.raises(PolicyNotCompiledError) as inspecting:
            await engine.inspect("true &&\n comit.purge", zero=EMPTY, timeout_s=10)
        with pytest.raises(PolicyNotCompiledError) as covering:
            await engine.cover("commit.purg", [EMPTY], timeout_s=10)

    assert found == inspected("commit.purge || 1 == 2")
    assert branches == (
        Branch(role="the expression", text="commit.purge", line=1, column=1, was_true=False, was_false=True),
    )
    assert (inspecting.value.line, inspecting.value.column) == (2, 2)
    assert "purg" in covering.value.reason


def test_an_inspection_is_read_back_as_it_was_sent() -> None:
    found = inspected("table.columns.all(commit, commit.required) && size(result) > 1")

    assert parse_inspection(format_inspection(found)) == found


def test_an_inspected_expression_still_judges_alike() -> None:
    (result,) = PROGRAMS.judge([(POLICY, "commit.purge")], EMPTY, log_id=0)

    assert result.outcome is Outcome.DENY
