# SPDX-License-Identifier: Apache-2.0
"""
What expressions mean. The expected values follow the CEL language definition (google/cel-spec, doc/langdef.md); where
cel-python by itself gives others is said in `functions.py` and `evaluate.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.policy.cel.programs import COMPILED_CHARACTERS_MAX, COMPILED_MAX, Programs, Result
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome

COLUMNS = [
    {"id": 1, "name": "id", "type": "long", "required": True, "doc": ""},
    {"id": 2, "name": "tenant_id", "type": "string", "required": False, "doc": "who owns the row"},
]
ACTIVATION: dict[str, Any] = {
    "table": {"exists": False, "columns": [], "properties": {}},
    "result": {
        "exists": True,
        "columns": COLUMNS,
        "properties": {"owner": "ann", "history.expire.max-snapshot-age-ms": "604800000", "odd": "1_0"},
        "snapshot": {"id": "993863745535017463", "operation": "append", "summary": {"added-records": "3"}},
    },
    "commit": {
        "namespace": ["finance", "eu"],
        "name": "orders",
        "actions": [],
        "updates": [{"action": "set-properties", "updates": {"a": None}, "sequence-number": 7}],
    },
    "principal": {"roles": ["data-eng", "reader"], "email": "", "sub": "ann"},
    "request": {"method": "POST"},
}
ALLOW, DENY, ERROR = Outcome.ALLOW, Outcome.DENY, Outcome.ERROR


def judged(expression: str, activation: dict[str, Any] = ACTIVATION, *, kind: str = POLICY) -> Result:
    (result,) = Programs().judge([(kind, expression)], activation, log_id=1)
    return result


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [
        # what policies are written for
        ("result.columns.exists(c, c.name == 'tenant_id')", ALLOW),
        ("result.columns.exists(c, c.name == 'tenant')", DENY),
        ("commit.namespace[0] != 'finance' || 'data-eng' in principal.roles", ALLOW),
        ("commit.namespace[0] != 'finance' || 'admin' in principal.roles", DENY),
        ("int(result.properties['history.expire.max-snapshot-age-ms']) >= 604800000", ALLOW),
        ("!('owner' in table.properties) && result.properties.owner == 'ann'", ALLOW),
        ("!table.exists && result.exists", ALLOW),
        ("int(result.snapshot.summary['added-records']) > 3", DENY),
        ("commit.updates.all(u, u.action in ['add-snapshot', 'set-snapshot-ref'])", DENY),
        ("size(table.columns) == 0 ? true : false", ALLOW),
        # equality: heterogeneous, numbers on one line
        ("5 == 5.0 && 5 == 5u && 1 != 2", ALLOW),
        ("true == 1", DENY),
        ("1 == true", DENY),
        ("'1' == 1", DENY),
        ("null == null && 'a' != null && 1 != null", ALLOW),
        ("[1, 'a', null] == [1.0, 'a', null]", ALLOW),
        ("[1, 2] == [1]", DENY),
        ("{'a': [1]} == {'a': [1.0]}", ALLOW),
        ("{'a': 1} == {'b': 1}", DENY),
        ("type(1) == int && type('a') == string && type(null) == null_type", ALLOW),
        ("type(type(1)) == type", ALLOW),
        # order
        ("1 < 1.5 && 2 >= 2u && 'a' < 'b' && false < true", ALLOW),
        ("timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-01T00:00:00-01:00')", ALLOW),
        ("timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')", ALLOW),
        ("timestamp('2026-11-20T13:30:00Z').getFullYear() == 2026", ALLOW),
        # membership
        ("'b' in [1, 'b']", ALLOW),
        ("'b' in [1, 'a']", DENY),
        ("'owner' in result.properties", ALLOW),
        ("[1, 2].contains(2.0) && 'abc'.contains('bc')", ALLOW),
        # logic absorbs errors on either side
        ("1 / 0 > 0 || true", ALLOW),
        ("true || 1 / 0 > 0", ALLOW),
        ("1 / 0 > 0 && false", DENY),
        ("[0, 1].exists(x, 1 / x == 1)", ALLOW),
        ("[0].map(x, 1 / x).size() > 0 || true", ALLOW),
        ("[1, 0].all(x, 1 / x > 1)", DENY),
        ("table.exists ? table.properties['none'] == '' : true", ALLOW),
        # macros
        ("[].all(x, false) && ![].exists(x, true)", ALLOW),
        ("[1, 2, 3].filter(x, x > 1) == [2, 3]", ALLOW),
        ("[1, 2, 3].map(x, x * 2) == [2, 4, 6]", ALLOW),
        ("[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]", ALLOW),
        ("[1, 2, 2].exists_one(x, x == 1) && ![1, 2, 2].exists_one(x, x == 2)", ALLOW),
        ("{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])", ALLOW),
        ("[1, 2].all(x, [3, 4].all(y, x < y))", ALLOW),
        ("[1].all(x, [2].all(x, x == 2) && x == 1)", ALLOW),
        ("[3].all(table, table == 3)", ALLOW),
        ("has(result.properties.owner) && !has(result.properties.none)", ALLOW),
        # arithmetic and conversions
        ("7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1 && 2 - 1 == 1", ALLOW),
        ("'a' + 'b' == 'ab' && [1] + [2] == [1, 2] && size([1] + [2]) == 2", ALLOW),
        ("string(1) == '1' && string(true) == 'true' && int('-5') == -5 && double('1.5') == 1.5", ALLOW),
        ("bool('true') && !bool('false')", ALLOW),
        ("size('é€') == 2 && 'é€'.size() == 2 && size(b'é') == 2", ALLOW),
        # patterns: RE2, found anywhere, ASCII classes
        (r"'tenant_id'.matches('^[a-z_]+$') && matches('abc', 'b')", ALLOW),
        (r"'é'.matches('^\\w$')", DENY),
        (r"'aé'.matches(r'a\b')", ALLOW),
        (r"'٣'.matches(r'\d')", DENY),
        (r"'a\u00a0b'.matches(r'a\sb')", DENY),
        # syntax
        ("// a comment\n  true // another", ALLOW),
        (r"'\u0061\x62\103' == 'abC' && r'\n' == '\\n'", ALLOW),
        ("!!true && --1 == 1 && !(false)", ALLOW),
        ("true ? false : true ? true : true", DENY),
        ("false || false || false || true", ALLOW),
    ],
)
def test_an_expression_means_what_the_language_definition_says(expression: str, outcome: Outcome) -> None:
    assert judged(expression) == Result(outcome)


@pytest.mark.parametrize(
    "expression",
    [
        # values that Python takes for true
        "dyn(1)",
        "dyn('true')",
        "result.properties",
        "result.columns",
        "principal.sub",
        "true ? 'yes' : 'no'",
        "int",
        "dyn(1.0)",
        "dyn(null)",
        "1 && true",
        "'yes' && true",
        "1 || false",
        # errors
        "1 / 0 == 1",
        "result.properties.none == 'x'",
        "result.properties['none'] == 'x'",
        "principal.roles[2] == 'x'",
        "principal.roles[-1] == 'reader'",
        "result.columns.all(c, c.missing)",
        "9223372036854775807 + 1 > 0",
        "int(result.properties.odd) == 10",
        "timestamp('now') > timestamp('2000-01-01T00:00:00Z')",
        "timestamp('12:00') > timestamp('2000-01-01T00:00:00Z')",
        "duration('forever') > duration('1s')",
        "'a'.matches(principal.sub + '(')",
        # operations that Python has and CEL has not
        "'an' in 'ann'",
        "'a' in principal.sub",
        "size(null) == 0",
        "size(commit.updates[0].updates.a) == 0",
        "'abc'[0] == 'a'",
        "'ab' * 2 == 'abab'",
        "'%s' % 1 == '1'",
        "[1] * 2 == [1, 1]",
        "true + true == 2",
        "-true == -1",
        "true < 2",
        "1 + 1.5 == 2.5",
        "'a' < 1",
        "[1] < [2]",
        "!1",
        "!''",
        "null ? true : true",
        "bool(2)",
        "bool('yes')",
        "int('1_0') == 10",
        "int(' 1') == 1",
        "int('٣') == 3",
        "string([1]) == '[1]'",
        "string(null) == 'None'",
        # macros on what is no list, and predicates that are no booleans
        "''.all(c, false)",
        "'aaa'.all(c, c == 'a')",
        "null.all(c, false)",
        "[1, 2].filter(x, x).size() == 2",
        "[1].exists_one(x, x)",
        "[1].all(x, x)",
        "[1].exists(x, 'yes')",
        "[1, 2].map(x, x, x) == [1, 2]",
        "[0].filter(x, 1 / x > 0).size() == 0",
        "[0].map(x, 1 / x).size() == 1",
        # has() is about the field alone
        "!has(result.snapshot.id.none)",
        "!has(result.properties.none.more)",
        "!has(principal.roles[9].name)",
        # an error does not hide in a literal
        "size([1 / 0]) == 1",
        "size({'a': 1 / 0}) == 1",
        "size({1 / 0: 'a'}) == 1",
        "{'a': 1, 'a': 2}.a == 2",
        "{1.5: 2}.size() == 1",
    ],
)
def test_what_is_not_exactly_true_or_false_is_an_error(expression: str) -> None:
    result = judged(expression)
    assert result.outcome is ERROR
    assert result.detail


@pytest.mark.parametrize(
    ("expression", "detail"),
    [
        ("true &&\n  1 / 0 == 1", "divides by zero (line 2, column 3)"),
        (
            "result.properties.none == ''",
            "reads a field or key that does not exist (line 1, column 1)",
        ),
        (
            "principal.sub.all(c, true)",
            "uses an operation on a type that does not have it (line 1, column 1)",
        ),
        ("[1][5] == 1", "takes an element outside of a list (line 1, column 1)"),
        ("principal.sub", "gives something other than true or false"),
    ],
)
def test_a_detail_says_what_went_wrong_and_where(expression: str, detail: str) -> None:
    assert judged(expression).detail == detail


@pytest.mark.parametrize("expression", ["principal.email.x == 'y'", "int(principal.email) == 1", "principal.email"])
def test_a_detail_never_quotes_a_value_of_the_commit(expression: str) -> None:
    activation = ACTIVATION | {"principal": {"email": "zoe@example.org"}}
    result = judged(expression, activation)
    assert result.outcome is ERROR
    assert "zoe" not in result.detail


def test_a_variable_that_was_not_given_is_an_error() -> None:
    assert judged("request.method == 'POST'", {}).outcome is ERROR


def test_an_integer_beyond_64_bits_is_an_error_only_to_programs_that_read_it() -> None:
    activation = {"table": {"uuid": 2**64, "exists": True}}
    programs = [(POLICY, "table.uuid == 1"), (POLICY, "table.exists")]
    first, second = Programs().judge(programs, activation, log_id=1)
    assert first.outcome is ERROR
    assert second.outcome is ERROR  # `table` is converted once, with the fields of both
    assert judged("table.exists", activation).outcome is ALLOW


def test_each_program_is_judged_whatever_the_others_do() -> None:
    programs = [(POLICY, text) for text in ("true", "1 / 0 == 1", "false", "(", "dyn(1)", "true")]
    outcomes = [result.outcome for result in Programs().judge(programs, ACTIVATION, log_id=1)]
    assert outcomes == [ALLOW, ERROR, DENY, ERROR, ERROR, ALLOW]


def test_access_rules_see_their_own_variables_and_no_others() -> None:
    activation = ACTIVATION | {"op": "CREATE_ENTITY", "path": "sales.orders", "roles": ["writer"]}
    rule = "op in ['CREATE_ENTITY', 'UPDATE_ENTITY'] && path.startsWith('sales.') && 'writer' in roles"
    assert judged(rule, activation, kind=ACCESS_RULE).outcome is ALLOW
    assert judged(rule, activation, kind=POLICY).outcome is ERROR
    assert judged("table.exists", activation, kind=ACCESS_RULE).outcome is ERROR
    assert judged("true", activation, kind="plugin").outcome is ALLOW
    assert judged("op == ''", activation, kind="plugin").outcome is ERROR


def test_programs_beyond_what_is_kept_are_compiled_again() -> None:
    programs = Programs()
    asked = [(POLICY, f"{number} >= 0 // {'x' * 8000}") for number in range(40)]
    for _ in range(2):
        assert {result.outcome for result in programs.judge(asked, {}, log_id=1)} == {ALLOW}
        assert 0 < programs._kept[1].characters <= COMPILED_CHARACTERS_MAX
        assert 0 < len(programs._kept[1].compiled) < len(asked)
    few = [(POLICY, f"{number} >= 0") for number in range(COMPILED_MAX + 1)]
    assert {result.outcome for result in programs.judge(few, {}, log_id=1)} == {ALLOW}
    assert len(programs._kept[1].compiled) == COMPILED_MAX
    assert programs._kept[1].characters == sum(len(text) for _, text, _ in programs._kept[1].compiled)


def test_a_tenant_with_many_programs_drives_out_none_of_another() -> None:
    programs = Programs(compiled_max=10, compiled_characters_max=1000)
    own = [(POLICY, f"{number} == 0") for number in range(4)]
    assert len(list(programs.judge(own, {}, log_id=1))) == len(own)
    kept = dict(programs._kept[1].compiled)
    for text in ("'a' == '{}'", f"'{'a' * 300}' == '{{}}'"):
        for number in range(30):
            list(programs.judge([(POLICY, text.format(number))], {}, log_id=2))
            assert dict(programs._kept[1].compiled) == kept
        assert len(programs._kept[2].compiled) in {6, 3}, "as many as there is room for"
    many = [(POLICY, f"{number} == 1") for number in range(10)]
    list(programs.judge(many, {}, log_id=1))
    assert len(programs._kept[1].compiled) <= 10, "a tenant that has most gives up its own"


Modelled = tuple[str, bool | None]
"""An expression, and what it gives; None stands for an error, and for what is no boolean."""


def _joined(parts: tuple[Modelled, bool, Modelled]) -> Modelled:
    (left, x), settling, (right, y) = parts
    value = settling if settling in {x, y} else None if None in {x, y} else not settling
    return f"({left} {'||' if settling else '&&'} {right})", value


def _negated(part: Modelled) -> Modelled:
    text, value = part
    return f"!({text})", None if value is None else not value


def _chosen(parts: tuple[Modelled, Modelled, Modelled]) -> Modelled:
    (condition, known), (left, x), (right, y) = parts
    return f"({condition} ? {left} : {right})", None if known is None else x if known else y


modelled = st.recursive(
    st.sampled_from([("true", True), ("false", False), ("1 / 0 == 1", None), ("dyn(1)", None)]),
    lambda inner: st.one_of(
        st.tuples(inner, st.booleans(), inner).map(_joined),
        inner.map(_negated),
        st.tuples(inner, inner, inner).map(_chosen),
    ),
    max_leaves=12,
)


@given(modelled)
@settings(max_examples=50, deadline=None)
def test_logic_is_that_of_three_values(case: Modelled) -> None:
    expression, value = case
    assert judged(expression).outcome is {True: ALLOW, False: DENY, None: ERROR}[value]
