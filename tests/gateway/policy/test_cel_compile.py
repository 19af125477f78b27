# SPDX-License-Identifier: Apache-2.0
"""
Expressions that are refused when they are saved, and the position in the error.
"""

from __future__ import annotations

import itertools
from typing import Any

import lark
import pytest
from celpy import Environment as CelPython
from celpy import InterpretedRunner
from celpy.adapter import json_to_cel
from celpy.celparser import CELParser
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.cel.interruption import Interruption
from gateway.policy.cel.parse import DEPTH_MAX, parse
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, PolicyNotCompiledError
from gateway.policy.text import EXPRESSION_BYTES_MAX, NESTING_MAX, check_new_text
from projections.cel_grammar import open_parser


def refused(expression: str, *, kind: str = POLICY) -> PolicyNotCompiledError:
    with pytest.raises(PolicyNotCompiledError) as caught:
        Programs().check(expression, kind=kind)
    return caught.value


@pytest.mark.parametrize(
    ("expression", "place", "words"),
    [
        # syntax
        ("", (1, 1), "empty"),
        ("  \n ", (1, 1), "empty"),
        ("table.exists &&", (1, 16), "ends where more was expected"),
        ("true &&\n(table.exists", (2, 14), "ends where more was expected"),
        ("table.exists = true", (1, 14), "'=' cannot stand here"),
        ("true\n&& tru e", (2, 8), "'e' cannot stand here"),
        ("table..exists", (1, 7), "'.' cannot stand here"),
        ("true && € == 1", (1, 9), "'€' cannot stand here"),
        ("commit.name == 'abc", (1, 16), "not closed"),
        ("commit.name == '\ud800'", (1, 17), "surrogate"),
        # names
        ("tabel.exists", (1, 1), "unknown variable 'tabel' (did you mean 'table'?); known here: commit, findings"),
        ("true &&\n  (tabel.exists)", (2, 4), "unknown variable 'tabel'"),
        ("result.colums.size() == 0", (1, 8), "result has no field 'colums' (did you mean 'columns'?); it has columns"),
        ("!has(table.propertys.owner)", (1, 12), "table has no field 'propertys'"),
        ("table.snapshot.oper == 'append'", (1, 16), "table.snapshot has no field 'oper'"),
        ("[1].all(x, y == 1)", (1, 12), "unknown variable 'y'"),
        ("[1].all(x, x == 1) && x == 1", (1, 23), "unknown variable 'x'"),
        ("[x].all(x, x == 1)", (1, 2), "unknown variable 'x'"),
        ("op == 'CREATE_ENTITY'", (1, 1), "unknown variable 'op'"),
        (".table.exists", (1, 1), "cannot begin with a dot"),
        ("size == 1", (1, 1), "unknown variable 'size'"),
        ("google.protobuf.Int32Value{value: 1} == 1", (1, 1), "message literals"),
        # functions
        ("true && lenght(commit.name) == 1", (1, 9), "unknown function 'lenght'"),
        ("commit.name.upper() == 'A'", (1, 13), "unknown function 'upper'"),
        ("[1].reduce(r, i, 0, r + i) == 1", (1, 5), "unknown function 'reduce'"),
        ("[1].min() == 1", (1, 5), "unknown function 'min'"),
        ("size() == 1", (1, 1), "size takes 1 argument(s), found 0"),
        ("commit.name.startsWith() == true", (1, 13), "startsWith takes 1 argument(s), found 0"),
        ("[1].all(x)", (1, 5), "all takes 2 argument(s), found 1"),
        ("[1].map(x, x, x, x) == []", (1, 5), "map takes 2 or 3 argument(s), found 4"),
        ("[1].all(1, true)", (1, 9), "must be a name"),
        ("[1].all(x.y, true)", (1, 9), "must be a name"),
        ("startsWith(commit.name, 'a')", (1, 1), "called on a value"),
        ("commit.name.int() == 1", (1, 13), "called with its value in brackets"),
        ("has(table)", (1, 5), "has() takes one field"),
        ("has(table.refs['main'])", (1, 5), "has() takes one field"),
        ("timestamp('2026-01-01T00:00:00Z').getHours('Europe/Paris') == 0", (1, 35), "takes 0 argument(s)"),
        # literals
        ("1 == 9223372036854775808", (1, 6), "out of range"),
        ("1u == 18446744073709551616u", (1, 7), "out of range"),
        (r"commit.name == 'a\d'", (1, 16), "unknown escape"),
        ("commit.name == 'a\rb'", (1, 16), "line break"),
        (r"commit.name == 'a\'", (1, 16), "unknown escape"),
        (r"commit.name == '\ud83d'", (1, 16), "stands for no character"),
        (r"commit.name == r'\''", (1, 16), "ends at the first quote"),
        (r"bytes(commit.name) == b'\U0001F600'", (1, 23), "for strings, not for bytes"),
        ("1. == 1.0", (1, 1), "a digit after the point"),
        ("true && not true", (1, 13), "'true' cannot stand here"),
        ("[1].exists(for, for == 1)", (1, 12), "reserved word"),
        ("{'in': true}.in", (1, 14), "word of the language"),
        ("true &&\ncommit.name.matches('(')", (2, 21), "not an RE2 pattern"),
        ("commit.name.matches('(?=a)')", (1, 21), "not an RE2 pattern"),
        ("matches(commit.name, '(a{1000}){1000}')", (1, 22), "not an RE2 pattern"),
        # programs that cannot end in a boolean
        ("1", (1, 1), "no boolean"),
        ("'true'", (1, 1), "no boolean"),
        ("true ?\n 1 : 2", (2, 2), "no boolean"),
        ("size(commit.name)", (1, 1), "no boolean"),
        ("result.columns.map(c, c.name)", (1, 1), "no boolean"),
        ("[true]", (1, 1), "no boolean"),
        ("1 + 1", (1, 1), "no boolean"),
    ],
)
def test_a_refusal_names_line_and_column_from_1(expression: str, place: tuple[int, int], words: str) -> None:
    error = refused(expression)
    assert (error.line, error.column) == place
    assert words in error.reason
    assert str(error) == f"line {place[0]}, column {place[1]}: {error.reason}"


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        (POLICY, "true"),
        (POLICY, "result.properties.anything == table.refs.main.snapshot_id"),
        (POLICY, "commit.updates[0].anything.at.all && principal.roles.exists(r, r.x.y)"),
        (POLICY, "[1].all(op, op == 1)"),
        (POLICY, "table.snapshot.summary['added-records'] == '1'"),
        (ACCESS_RULE, "op == 'VIEW_REFERENCE' && role.startsWith('test_') && ref.startsWith('allowedBranch')"),
        (ACCESS_RULE, "op in ['VIEW_REFERENCE', 'DELETE_ENTITY'] && path.startsWith('dev.')"),
        (ACCESS_RULE, "api.apiName == 'Iceberg' && api.apiVersion == 1 && 'META_ADD_SCHEMA' in actions"),
        (ACCESS_RULE, "roles.exists(r, r == 'a') && contentType == 'ICEBERG_TABLE' && actor != ''"),
    ],
)
def test_what_programs_may_read_compiles(kind: str, expression: str) -> None:
    Programs().check(expression, kind=kind)


def test_an_access_rule_may_not_read_the_variables_of_policies() -> None:
    error = refused("table.exists", kind=ACCESS_RULE)
    assert "known here: actions, actor, api, catalog, contentType, grant, op, path, ref, role, roles" in error.reason


def test_an_expression_may_have_as_many_bytes_as_allowed_and_not_one_more() -> None:
    longest = "true //" + "é" * ((EXPRESSION_BYTES_MAX - 7) // 2)
    longest += "x" * (EXPRESSION_BYTES_MAX - len(longest.encode()))
    Programs().check(longest, kind=POLICY)
    assert f"{EXPRESSION_BYTES_MAX + 1} bytes" in refused(longest + "x").reason


@pytest.mark.parametrize(
    "deep",
    [
        "!(" * 1300 + "true" + ")" * 1300,
        "!" * 8000 + "true",
        "true ? false : " * 400 + "true",
        "1" + " + 1" * 1500 + " > 0",
        "[" * 2000 + "]" * 2000 + " == []",
        "commit" + ".name" * 1600 + " == ''",
        "size(" * 1000 + "[]" + ")" * 1000 + " == 1",
        "".join(f"[1].all(x{n}, " for n in range(400)) + "true" + ")" * 400,
    ],
    ids=lambda text: text[:12],
)
def test_deep_nesting_is_refused(deep: str) -> None:
    assert "nested too deeply" in refused(deep).reason


@pytest.mark.parametrize(
    ("before", "after", "levels"),
    [
        ("!", "", 1),
        ("true ? false : ", "", 1),
        ("[1].all(x, ", ")", 2),
        ("[1].exists(x, true && ", ")", 3),
        ("{'a': ", "}.a", 3),
        ("[[", "]][0][0]", 6),
        ("size([", "]) == 1", 6),
    ],
)
def test_the_deepest_expression_that_compiles_can_be_judged(before: str, after: str, levels: int) -> None:
    """Nothing that passes the check can exhaust the stack: the deepest that is not refused is evaluated."""
    count = DEPTH_MAX // levels
    while not _compiles(before * count + "true" + after * count):
        count -= 1
    assert count > 0
    (result,) = Programs().judge([(POLICY, before * count + "true" + after * count)], {}, log_id=1)
    assert "nested" not in result.detail
    assert not _compiles(before * (count + DEPTH_MAX) + "true" + after * (count + DEPTH_MAX))


@pytest.mark.parametrize("opening", ["(", "[", "size([", "[1].all(x, "])
def test_a_new_expression_may_have_32_open_brackets_and_not_one_more(opening: str) -> None:
    brackets = sum(map(opening.count, "([")) - opening.count("]")
    closing = {"(": ")", "[": "]", "size([": "])", "[1].all(x, ": ")"}[opening]
    allowed = NESTING_MAX // brackets
    check_new_text(opening * allowed + "1" + closing * allowed)
    with pytest.raises(PolicyNotCompiledError, match="more than 32 open brackets") as caught:
        check_new_text(opening * (allowed + 1) + "1" + closing * (allowed + 1))
    assert caught.value.line == 1
    assert len(opening) * allowed < caught.value.column <= len(opening) * (allowed + 1)


@pytest.mark.parametrize(("text", "place"), [("a\x00", (1, 2)), ("true &&\n 'x\x1b' == ''", (2, 4)), ("\x7f", (1, 1))])
def test_a_new_expression_has_no_control_characters(text: str, place: tuple[int, int]) -> None:
    with pytest.raises(PolicyNotCompiledError, match="control character") as caught:
        check_new_text(text)
    assert (caught.value.line, caught.value.column) == place
    check_new_text("true\t&&\r\n'é' != 'x'")


@pytest.mark.parametrize(
    ("expression", "place", "words"),
    [
        ("1 == 1.0", (1, 6), "compares int with double"),
        ("true &&\n  size(commit.name) > 1.5", (2, 23), "compares int with double"),
        ("result.format_version >= 2.0", (1, 26), "compares int with double"),
        ("2.0 <= table.format_version", (1, 8), "compares double with int"),
        ("size(commit.name) == 1u", (1, 22), "compares int with uint"),
        ("commit.name.indexOf('a') != -1.0", (1, 29), "compares int with double"),
        ("1 in [2, 1.0]", (1, 10), "compares int with double"),
        ("commit.actions.all(a, size(a) + 1.0 > 2.0)", (1, 33), "computes int with double"),
        ("math.floor(1.5) * 2 == 2.0", (1, 19), "computes double with int"),
        ("double(size(commit.name)) / 2 > 1.0", (1, 29), "computes double with int"),
        ("1 + size(commit.name) > 2.0", (1, 25), "compares int with double"),
    ],
)
def test_numbers_of_two_types_are_refused_on_save(expression: str, place: tuple[int, int], words: str) -> None:
    error = refused(expression)
    assert (error.line, error.column) == place
    assert words in error.reason
    # One that is in force already keeps its meaning.
    (result,) = Programs().judge([(POLICY, expression)], {}, log_id=1)
    assert "compile" not in result.detail


@pytest.mark.parametrize(
    "expression",
    [
        "1 == 1 && 1.0 < 2.5 && 1u == 1u",
        "result.format_version >= 2 && double(size(commit.name)) > 1.5",
        "commit.snapshots.all(s, int(s.summary['added-records']) < 1000)",
        "commit.actions == [] || 1 in [1, 2] || 'a' in ['a', 1]",
        "dyn(1) == 1.0",
        "int(1.5) == 1 && uint(1) + 1u == 2u",
    ],
)
def test_numbers_of_one_type_or_of_an_unknown_one_are_not_refused(expression: str) -> None:
    Programs().check(expression, kind=POLICY)


def _compiles(expression: str) -> bool:
    try:
        Programs().check(expression, kind=POLICY)
    except PolicyNotCompiledError:
        return False
    return True


def test_brackets_and_long_chains_of_conditions_are_not_nesting() -> None:
    Programs().check("(" * 2000 + "true" + ")" * 2000, kind=POLICY)
    chain = " || ".join(f"commit.name == 't{number}'" for number in range(300))
    (result,) = Programs().judge([(POLICY, chain)], {"commit": {"name": "t299"}}, log_id=1)
    assert result.outcome is Outcome.ALLOW


@given(st.text(alphabet="abU.()[]{}'\"\\rxu01e \n&|!?:+-,/=<€", max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_compiles_or_is_refused_with_a_place_within_it(text: str) -> None:
    lines = text.split("\n")
    if not _compiles(text):
        error = refused(text)
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1


names = st.sampled_from(["a", "b", "c"])
expressions = st.recursive(
    st.one_of(names, st.sampled_from(["1", "2", "'x'", "[1, 2]", "{'k': 1}", "true"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "<", "<=", "&&", "||"]), inner).map(" ".join),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]}) ? ({parts[1]}) : {parts[2]}"),
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"[{one}]"),
        inner.map(lambda one: f"-{one}"),
        inner.map(lambda one: f"size({one})"),
    ),
    max_leaves=8,
)


@given(expressions)
@settings(max_examples=50, deadline=None)
def test_folding_keeps_the_meaning_that_cel_python_gives(expression: str) -> None:
    """cel-python's own interpreter on the folded and on the full tree: the same value, or an error in both."""
    activation = json_to_cel({"a": 1, "b": True, "c": [1, "x"]})
    folded = _by_cel_python(parse(expression, Interruption()), activation)
    assert folded == _by_cel_python(CELParser().parse(expression), activation)


# Made here, since it raises the recursion limit, which Hypothesis wants to find as it left it.
CEL_PYTHON = CelPython(runner_class=InterpretedRunner)


def _by_cel_python(tree: lark.Tree[Any], activation: Any) -> str:
    try:
        return repr(CEL_PYTHON.program(_binary(tree)).evaluate(activation))
    except Exception:  # noqa: BLE001  whatever cel-python raises is the same as an error that it returns
        return "error"


def _binary(tree: lark.Tree[Any]) -> lark.Tree[Any]:
    """Take chains apart again, which cel-python's interpreter knows with two operands only."""
    for node in tree.iter_subtrees():
        node.children = [_nested(child) if isinstance(child, lark.Tree) else child for child in node.children]
    return _nested(tree)


def _nested(tree: lark.Tree[Any]) -> lark.Tree[Any]:
    if tree.data not in {"conditionalor", "conditionaland"} or len(tree.children) < 3:
        return tree
    first, second, *rest = tree.children
    for operand in rest:
        first, second = lark.Tree(tree.data, [first, second], tree.meta), operand
    return lark.Tree(tree.data, [first, second], tree.meta)


def _tokens(parser: lark.Lark, text: str) -> list[tuple[str, str]] | None:
    try:
        return [(token.type, str(token)) for token in parser.parse(text).scan_values(lambda _: True)]
    except lark.exceptions.LarkError:
        return None


@pytest.mark.parametrize(
    ("before", "letters", "length_max"), [("", "\\\"'a\n", 5), ('r"""', '\\"a\n', 6), ("b'", "\\'n0", 4)]
)
def test_strings_are_read_as_cel_python_reads_them(before: str, letters: str, length_max: int) -> None:
    """Every short text: our patterns have one way to read it, and it is the one that theirs end up with."""
    CELParser()  # makes its parser
    theirs = CELParser.CEL_PARSER
    assert theirs is not None
    read = 0
    for length in range(1, length_max + 1):
        for rest in itertools.product(letters, repeat=length):
            text = before + "".join(rest)
            tokens = _tokens(theirs, text)
            assert _tokens(open_parser(), text) == tokens, text
            read += tokens is not None
    assert read > 10
