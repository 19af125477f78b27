# SPDX-License-Identifier: Apache-2.0
"""
Compiled expressions mean what the interpreter makes of them, and nothing that Python would.

Random expressions on random values are judged twice: compiled, and by cel-python's interpreter with our operators
(`testkit/gateway/cel_interpreter.py`), which shares no way of computing with them.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from celpy.evaluation import CELEvalError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.policy.cel.compile import CHECKED_EVERY, UNKNOWN, NoValueError, compile_tree
from gateway.policy.cel.functions import TIME_PARTS
from gateway.policy.cel.interruption import Interruption, JudgingStopped
from gateway.policy.cel.natives import FAILURES, equal, plain, wrapped
from gateway.policy.cel.parse import parse
from testkit.gateway.cel_interpreter import evaluate

ERROR: Final = "an error"
NAMES: Final = ("a", "b", "id", "name")
VARIABLES: Final = ("table", "result", "commit")
MACROS: Final = ("all", "exists", "exists_one", "filter", "map")
METHODS: Final = ("contains", "startsWith", "endsWith", "matches")
LIBRARY: Final = (
    *("({0}).charAt({1})", "({0}).indexOf({1})", "({0}).indexOf({1}, {2})", "({0}).lastIndexOf({1}, {2})"),
    *("({0}).join()", "({0}).join({1})", "({0}).lowerAscii()", "({0}).upperAscii()", "({0}).trim()", "({0}).reverse()"),
    *("({0}).replace({1}, {2})", "({0}).split({1})", "({0}).split({1}, {2})", "({0}).substring({1}, {2})"),
    *("strings.quote({0})", "regex.extract({0}, {1})", "regex.extractAll({0}, {1})", "regex.replace({0}, {1}, {2})"),
    *("math.abs({0})", "math.sign({0})", "math.round({0})", "math.greatest({0}, {1}, {2})", "math.least({0})"),
    *("has_column({0}, {1})", "column_type({0}, {1})", "has_partition({0}, {1})", "is_narrowed({0}, {1})"),
    "classification_satisfied({0}, {1})",
    *("region({0})", "age({0})"),
)
"""Calls of functions that both ways share: what they are given, and what becomes of what they give."""

_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**63 - 1, -(2**63)]),
    st.sampled_from(["", "a", "ab", "B", "é", "1"]),
)
_json = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
_any_literals = st.sampled_from(
    [
        *("true", "false", "null", "0", "1", "-1", "1u", "0.0", "1.0", "2.5", "''", "'a'", "'ab'", "b'a'", "[]", "{}"),
        *("9223372036854775807", "'1'", "{'a': 1}", "{1: 'a'}", "[1, 'a', true]", "int", "string", "type(1)"),
        *("duration('3s')", "timestamp('2026-01-02T03:04:05Z')", "(0.0 / 0.0)", "-1e308", "18446744073709551615u"),
        *(
            "{1: 'a', true: 'b', 2u: 3, 'a': 4}",
            "{1u: 1, false: 2}",
            "'1h1ms'",
            "'NaN'",
            "'2026-01-02T03:04:05.6+07:00'",
        ),
    ]
)


def _mixed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return expressions made of others, of whatever type: most have no value."""
    two = st.tuples(inner, inner)
    operators = st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "%", "&&", "||"])
    methods = st.sampled_from(METHODS)
    functions = st.sampled_from(
        ["size", "type", "string", "int", "uint", "double", "bool", "bytes", "dyn", "duration", "timestamp", "!", "-"]
    )
    return st.one_of(
        st.builds(lambda pair, sign: f"({pair[0]} {sign} {pair[1]})", two, operators),
        st.builds(lambda pair, third: f"({pair[0]} ? {pair[1]} : {third})", two, inner),
        st.builds(lambda pair, name: f"({pair[0]}).{name}({pair[1]})", two, methods),
        st.builds(lambda name, one: f"{name}({one})", functions, inner),
        st.builds(lambda one, name: f"({one}).{name}", inner, st.sampled_from(NAMES)),
        st.builds(lambda one, name: f"({one}).{name}()", inner, st.sampled_from(TIME_PARTS)),
        st.builds(lambda one, name: f"has(({one}).{name})", inner, st.sampled_from(NAMES)),
        st.builds(lambda pair: f"({pair[0]})[{pair[1]}]", two),
        st.builds(lambda pair: f"{{{pair[0]}: {pair[1]}}}", two),
        st.builds(lambda pair, macro: f"({pair[0]}).{macro}(x, {pair[1]})", two, st.sampled_from(MACROS)),
        st.builds(lambda pair, third: f"({pair[0]}).map(x, {pair[1]}, {third})", two, inner),
        st.builds(lambda form, pair, third: form.format(*pair, third), st.sampled_from(LIBRARY), two, inner),
    )


def _typed() -> st.SearchStrategy[str]:
    """Return boolean expressions whose parts have the types that they should have, as far as the variables do."""
    booleans: st.SearchStrategy[str] = st.deferred(lambda: all_booleans)
    numbers: st.SearchStrategy[str] = st.deferred(lambda: all_numbers)
    texts: st.SearchStrategy[str] = st.deferred(lambda: all_texts)
    lists: st.SearchStrategy[str] = st.deferred(lambda: all_lists)
    element, order = st.sampled_from(["x", "y"]), st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    all_numbers = st.one_of(
        st.sampled_from(["0", "1", "2", "-1", "1.0", "2u", "table.n", "x.id", "y.id", "9223372036854775807"]),
        st.builds(lambda one: f"size({one})", lists | texts),
        st.builds(lambda a, b: f"{a}.indexOf({b})", texts, texts),
        st.builds(lambda a, b: f"math.greatest({a}, {b})", numbers, numbers),
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", numbers, st.sampled_from("+-*/%"), numbers),
    )
    all_texts = st.one_of(
        st.sampled_from(["''", "'a'", "'ab'", "table.s", "x.name", "y.name", "result.s"]),
        st.builds(lambda a, b: f"({a} + {b})", texts, texts),
        st.builds(lambda one: f"string({one})", numbers),
        st.builds(lambda a, b, name: f"{a}.{name}({b})", texts, numbers, st.sampled_from(["charAt", "substring"])),
        st.builds(lambda one, name: f"{one}.{name}()", texts, st.sampled_from(["upperAscii", "trim", "reverse"])),
        st.builds(lambda a, b, c: f"{a}.replace({b}, {c})", texts, texts, texts),
        st.builds(lambda a, b: f"{a}.split({b}).join('-')", texts, texts),
        st.builds(lambda a, b: f"regex.replace({a}, 'a', {b})", texts, texts),
        st.builds(lambda one: f"column_type(table, {one})", texts),
    )
    all_lists = st.one_of(
        st.sampled_from(["table.l", "result.l", "[]"]),
        st.builds(lambda one, x, each: f"{one}.filter({x}, {each})", lists, element, booleans),
        st.builds(lambda a, b: f"[{{'id': {a}, 'name': {b}}}]", numbers, texts),
        st.builds(lambda a, b: f"({a} + {b})", lists, lists),
    )
    all_booleans = st.one_of(
        st.sampled_from(["true", "false", "table.b", "has(table.s)", "has(table.nothing)", "table.nothing"]),
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", numbers, order, numbers),
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", texts, order, texts),
        st.builds(lambda a, b: f"({a} == {b})", lists, lists),
        st.builds(lambda a, b: f"{a} in {b}.map(x, x.name)", texts, lists),
        st.builds(lambda a, name, b: f"{a}.{name}({b})", texts, st.sampled_from(METHODS), texts),
        st.builds(lambda one: f"has_column(table, {one})", texts),
        st.sampled_from(["is_narrowed(table, result)", "age('2026-01-01T00:00:00Z') > duration('1h')"]),
        st.builds(lambda a, sign, b: f"({a} {sign} {b})", booleans, st.sampled_from(["&&", "||", "=="]), booleans),
        st.builds(lambda one: f"!({one})", booleans),
        st.builds(lambda a, b, c: f"({a} ? {b} : {c})", booleans, booleans, booleans),
        st.builds(
            lambda one, macro, x, each: f"{one}.{macro}({x}, {each})",
            lists,
            st.sampled_from(["all", "exists", "exists_one"]),
            element,
            booleans,
        ),
    )
    return booleans


_expressions = st.recursive(st.one_of(_any_literals, st.sampled_from([*VARIABLES, "x", "y"])), _mixed, max_leaves=8)
_tables = st.fixed_dictionaries(
    {},
    optional={
        "b": st.booleans(),
        "n": st.integers(-2, 3),
        "s": st.sampled_from(["", "a", "ab", "é"]),
        "l": st.lists(
            st.fixed_dictionaries({"id": st.integers(-1, 3)}, optional={"name": st.sampled_from(["a", "b"])}),
            max_size=4,
        ),
        "exists": st.just(True),
        "fields": st.lists(
            st.fixed_dictionaries(
                {
                    "id": st.integers(1, 3),
                    "path": st.sampled_from(["a", "ab"]),
                    "type": st.sampled_from(["int", "long"]),
                    "required": st.booleans(),
                }
            ),
            max_size=3,
        ),
    },
)
_requests = st.sampled_from([{"time": "2026-01-01T01:00:01Z"}, {"time": "2026-01-01T00:00:00Z"}, {"time": ""}, {}])


def interpreted(tree: Any, variables: dict[str, Any]) -> Any:
    """Return what the interpreter gives, as a value of compiled expressions."""
    converted = {
        name: CELEvalError("not known", KeyError) if value is UNKNOWN else wrapped(value)
        for name, value in variables.items()
    }
    try:
        value = evaluate(tree, converted, Interruption())
    except FAILURES:  # it lets some errors pass
        return ERROR
    return ERROR if isinstance(value, CELEvalError) else plain(value)


def compiled(tree: Any, variables: dict[str, Any]) -> Any:
    try:
        return compile_tree(tree, list(variables), Interruption()).value(variables)
    except NoValueError:
        return ERROR


def check_same(expression: str, variables: dict[str, Any]) -> Any:
    """Check that both ways agree on what an expression gives; return that."""
    # Outside of a macro x and y are no variables: they are two more variables then, both unknown.
    known = {**variables, "x": UNKNOWN, "y": UNKNOWN}
    tree = parse(expression, Interruption())
    expected, found = interpreted(tree, known), compiled(tree, known)
    if expected is ERROR or found is ERROR:
        assert found is expected
    else:
        assert type(found) is type(expected)
        assert _same(found, expected)
    return found


@settings(deadline=None)  # the first one builds the parser
@given(expression=_expressions, variables=st.fixed_dictionaries({name: _json | st.just(UNKNOWN) for name in VARIABLES}))
@example(expression="([1, 1.0, 1u]).all(x, x == 1)", variables={"table": {}, "result": {}, "commit": {}})
@example(expression="(true == 1 || 1 == true)", variables={"table": {}, "result": {}, "commit": {}})
@example(expression="([1] == [true])", variables={"table": {}, "result": {}, "commit": {}})
@example(expression="((table).a || true)", variables={"table": UNKNOWN, "result": {}, "commit": {}})
@example(expression="[1, 2].all(x, [x].all(x, x > 0) && x > 0)", variables={"table": {}, "result": {}, "commit": {}})
def test_any_compiled_expression_gives_what_the_interpreter_gives(expression: str, variables: dict[str, Any]) -> None:
    check_same(expression, variables)


@settings(deadline=None)
@given(expression=_typed(), table=_tables, result=_tables, request=_requests)
@example(expression="[1].all(request, age('2026-01-01T00:00:00Z') > duration('1h'))", table={}, result={}, request={})
def test_a_compiled_predicate_gives_what_the_interpreter_gives(
    expression: str, table: dict[str, Any], result: dict[str, Any], request: dict[str, Any]
) -> None:
    check_same(expression, {"table": table, "result": result, "request": request})


def _same(a: Any, b: Any) -> bool:
    return equal(a, b) or repr(a) == repr(b)  # a NaN is not equal to itself


def test_a_macro_asks_whether_it_was_stopped() -> None:
    interruption = Interruption()
    tree = parse("table.l.all(x, x >= 0)", interruption)
    program = compile_tree(tree, ["table"], interruption)
    variables = {"table": {"l": list(range(10 * CHECKED_EVERY))}}
    interruption.begin(1)
    assert program.value(variables) is True
    interruption.stop(1)
    with pytest.raises(JudgingStopped):
        program.value(variables)


@pytest.mark.parametrize(
    "value", [True, 1, -(2**63), 1.5, "a", b"a", None, [1, "a"], {"a": [None]}, [{"b": {"c": False}}]]
)
def test_nothing_is_lost_between_the_classes_of_python_and_those_of_cel_python(value: Any) -> None:
    back = plain(wrapped(value))
    assert back == value
    assert type(back) is type(value)
