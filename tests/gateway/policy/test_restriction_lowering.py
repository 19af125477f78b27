# SPDX-License-Identifier: Apache-2.0
"""
A filter that is made into a predicate shows exactly the rows for which it is true; what cannot be made into one is
refused at its place.
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.policy.engine import PolicyNotCompiledError
from gateway.policy.frames import FrameError
from gateway.policy.restrictions.evaluation import holds, shown_row, values_by_id
from gateway.policy.restrictions.form import (
    DEPTH_MAX,
    ELEMENTS_MAX,
    NO_ROW,
    Predicate,
    Projection,
    ReadRestrictions,
    RestrictionTooLargeError,
    depth_of,
    format_predicate,
)
from gateway.policy.restrictions.lowering import check_filter, decide, lower_filter
from gateway.policy.restrictions.written import MASK_CONDITION, format_written, parse_written
from ledger.format.events import MaskAction
from testkit.gateway.restrictions import EVERY_TYPE, ORDERS, caller, meaning, read, row_of, schema_of

SCHEMA: Final = schema_of(
    {
        "fields": [
            {"id": 1, "name": "a", "required": False, "type": "string"},
            {"id": 2, "name": "n", "required": False, "type": "long"},
            {"id": 3, "name": "f", "required": False, "type": "boolean"},
            {
                "id": 4,
                "name": "s",
                "required": False,
                "type": {"type": "struct", "fields": [{"id": 5, "name": "in", "required": False, "type": "string"}]},
            },
        ]
    }
)
ROWS: Final = [
    row_of(SCHEMA, a=a, n=n, f=f, s=s)
    for a, n, f, s in product((None, "", "EU", "EUR", "x"), (None, -1, 0, 1), (None, True, False), (None, {"in": "EU"}))
]
CALLERS: Final = (
    caller(),
    caller(email="ada@acme.example", roles=("EU", "x"), groups=("g",), attributes={"region": "EU", "none": ""}),
    caller(email="EU", roles=(), groups=("EU", "EUR"), attributes={"none": "x"}),
)

TESTS: Final = (
    *("row.a == 'EU'", "row.a != 'EU'", "'EU' <= row.a", "row.a < 'EU'", "row.a > 'EU'", "row.a >= 'EUR'"),
    *("row.a == null", "null != row.a", "has(row.a)", "row.a.startsWith('EU')", "row.a.startsWith('')"),
    *("row.a in ['EU', 'x']", "row.a in ['EU']", "row.a in []", "row['a'] in ['EU', 'EU', 'x']"),
    *(
        "row.n == 0",
        "row.n != -1",
        "row.n < 1",
        "0 >= row.n",
        "row.n > -1",
        "row.n in [0, 1]",
        "row.f",
        "row.f == false",
    ),
    *("row.s['in'] == 'EU'", "has(row.s)", "true", "false"),
    *("row.a == principal.email", "row.a in principal.groups", "row.a in principal.roles"),
    *("row.a == principal.attributes.region", "row.a in ['x', principal.attributes.region]"),
    *("row.a.startsWith(principal.attributes['region'])", "row.a < principal.email"),
    *("'x' in principal.roles", "principal.email in principal.groups", "principal.email == 'EU'"),
    *("principal.attributes.region != 'EU'", "'region' in principal.attributes", "has(principal.attributes.none)"),
    *("principal.email.endsWith('@acme.example')", "principal.attributes.region.startsWith('E')"),
    *("principal.attributes.region in ['EU', 'US']", "'EU' in ['x', principal.attributes.none]"),
)
"""Every form that a test may have."""

_filters = st.recursive(
    st.sampled_from(TESTS),
    lambda inner: st.one_of(
        inner.map(lambda one: f"!({one})"),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: "(" + " && ".join(some) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: "(" + " || ".join(some) + ")"),
    ),
    max_leaves=8,
)


def check_shows_what_is_true(expression: str) -> None:
    written = read(expression)
    try:
        check_filter(written, SCHEMA)
    except RestrictionTooLargeError:
        return
    for who in CALLERS:
        predicate = lower_filter(written, SCHEMA, who)
        for row in ROWS:
            is_true = meaning(written, row, who) is True
            assert holds(predicate, values_by_id(SCHEMA, row)) == is_true, (expression, who, row, predicate)


@pytest.mark.parametrize("negated", ["{}", "!({})", "!!({})"])
@pytest.mark.parametrize("test", TESTS)
def test_a_test_shows_exactly_the_rows_for_which_it_is_true(test: str, negated: str) -> None:
    check_shows_what_is_true(negated.format(test))


@settings(deadline=None)
@given(_filters)
@example("!(row.n < 1) && !(row.a == 'EU' || row.f)")
@example("!(row.a == principal.attributes.region) || row.n != 0")
def test_a_filter_shows_exactly_the_rows_for_which_it_is_true(expression: str) -> None:
    check_shows_what_is_true(expression)


@given(_filters)
def test_what_fits_for_every_caller_fits_for_each(expression: str) -> None:
    written = read(expression)
    try:
        check_filter(written, SCHEMA)
    except RestrictionTooLargeError:
        return
    for who in CALLERS:
        assert depth_of(lower_filter(written, SCHEMA, who)) <= DEPTH_MAX


@given(_filters)
def test_what_is_written_comes_back_over_the_pipe(expression: str) -> None:
    written = read(expression)
    assert parse_written(format_written(written)) == written


@pytest.mark.parametrize("sent", [{"is": "Always"}, {"is": "Nothing", "at": None}, 1.5, {"at": None}])
def test_what_was_not_sent_by_a_worker_is_refused(sent: Any) -> None:
    with pytest.raises(FrameError):
        parse_written(sent)


@pytest.mark.parametrize("op", ["!=", "<", "<="])
def test_a_row_without_a_value_is_not_shown_although_iceberg_would(op: str) -> None:
    who, null = caller(), row_of(SCHEMA)
    predicate = lower_filter(read(f"row.a {op} 'EU'"), SCHEMA, who)
    shown: Any = format_predicate(predicate)
    assert shown["type"] == "and"
    bare, guard = sorted((shown["left"], shown["right"]), key=lambda one: one["type"] == "not-null")
    assert guard == {"type": "not-null", "child": {"type": "reference", "id": 1}}
    assert bare["type"] in {"not-eq", "lt", "lt-eq"}
    assert not holds(predicate, values_by_id(SCHEMA, null))


def test_a_caller_who_is_known_is_evaluated_away() -> None:
    written = read("'admin' in principal.roles || row.a in principal.groups")
    assert format_predicate(lower_filter(written, SCHEMA, caller(roles=("admin",)))) is True
    assert lower_filter(written, SCHEMA, caller()) == NO_ROW
    assert format_predicate(lower_filter(written, SCHEMA, caller(groups=("EU", "US")))) == {
        "type": "in",
        "child": {"type": "reference", "id": 1},
        "values": ["EU", "US"],
    }


def test_a_caller_with_more_groups_than_a_list_takes_sees_nothing_but_an_error() -> None:
    written = read("row.a in principal.groups")
    most = caller(groups=tuple(f"g{number}" for number in range(ELEMENTS_MAX)))
    lower_filter(written, SCHEMA, most)
    with pytest.raises(RestrictionTooLargeError, match="elements of lists"):
        lower_filter(written, SCHEMA, caller(groups=(*most.groups, "one more")))


def test_who_has_no_address_owns_no_row() -> None:
    written = read("row.a == principal.email")
    assert lower_filter(written, SCHEMA, caller()) == NO_ROW
    assert lower_filter(read("row.a != principal.email"), SCHEMA, caller()) == NO_ROW
    assert holds(lower_filter(written, SCHEMA, caller(email="EU")), values_by_id(SCHEMA, row_of(SCHEMA, a="EU")))


def test_many_comparisons_are_few_levels() -> None:
    many = " || ".join(f"row.n == {number}" for number in range(128))
    assert depth_of(lower_filter(read(many), SCHEMA, caller())) == DEPTH_MAX
    with pytest.raises(RestrictionTooLargeError, match="compare with a list"):
        lower_filter(read(f"{many} || row.n == -1"), SCHEMA, caller())


ALLOWED: Final = "allowed are"


@pytest.mark.parametrize(
    ("expression", "line", "column", "words"),
    [
        ("row.a == row.b", 1, 1, "two columns cannot be compared"),
        ("true &&\n  row.a.matches('x')", 2, 3, "matches cannot become a filter"),
        ("row.a.endsWith('x')", 1, 1, "not for how it ends"),
        ("row.a + 'x' == 'y'", 1, 1, "expected a literal"),
        ("row.n + 1 == 2", 1, 1, "expected a literal"),
        ("size(row.a) == 2", 1, 1, "expected a literal"),
        ("row.a == 'x' ? true : false", 1, 1, "write (a && b) || (!a && c)"),
        ("row == 'x'", 1, 1, "found the whole row"),
        ("row[principal.email] == 'x'", 1, 5, "as a text in quotes"),
        ("result.columns.exists(c, c.name == 'x')", 1, 1, "exists cannot become a filter"),
        ("table.exists", 1, 1, "no test that can become a filter"),
        ("1 == 1", 1, 1, "neither a column nor the caller"),
        ("'a' in ['a']", 1, 1, "neither a column nor the caller"),
        ("'x' in row.a", 1, 8, "expected a list of literals"),
        ("row.a in [null]", 1, 11, "null can only be compared"),
        ("row.a in [row.n]", 1, 11, "a column cannot stand here"),
        ("row.a < null", 1, 9, "only be compared with == and !="),
        ("row.n == 1.5", 1, 10, "write a decimal as a text"),
        ("row.n == 1u", 1, 10, "without u"),
        ("principal.sub == 'x'", 1, 1, "principal.sub cannot stand here"),
        ("principal.roles == ['x']", 1, 1, "principal.roles cannot stand here"),
        ("principal.email < 'x'", 1, 1, "only be compared with == and !="),
        ("principal.roles.contains('x')", 1, 1, "write it as 'x' in principal.roles"),
        ("principal.email == 1", 1, 20, "expected a text"),
        ("has(principal.email)", 1, 1, "has() takes a column or an attribute"),
        ("'x'", 1, 1, "no test that can become a filter"),
        ("principal.email", 1, 1, "no test that can become a filter"),
        ("row.a == 'x' &&", 1, 16, "ends where more was expected"),
        ("row.a == '\\q'", 1, 10, "unknown escape"),
        ("now() == row.a", 1, 1, "expected a literal"),
    ],
)
def test_what_cannot_become_a_filter_is_refused_at_its_place(
    expression: str, line: int, column: int, words: str
) -> None:
    with pytest.raises(PolicyNotCompiledError) as refused:
        read(expression)
    assert words in refused.value.reason
    assert (refused.value.line, refused.value.column) == (line, column), refused.value


def test_what_is_refused_says_what_is_allowed() -> None:
    for expression, kind in (("row.a == row.b", "row_filter"), ("row.a == 'x'", MASK_CONDITION)):
        with pytest.raises(PolicyNotCompiledError, match=ALLOWED):
            read(expression, kind=kind)


@pytest.mark.parametrize(
    ("expression", "line", "column", "words"),
    [
        ("row.region == 'EU' && row.regoin == 'x'", 1, 23, "no column 'regoin'; the nearest is 'region'"),
        ("row.id == 'x'", 1, 11, "id is a long: expected int, found string"),
        ("row.id == 9223372036854775808", 1, 11, "out of range"),
        ("row.amount == '1.001'", 1, 15, "decimal(10,2), without rounding"),
        ("row.amount == '100000000.00'", 1, 15, "decimal(10,2)"),
        ("row.amount == principal.email", 1, 15, "compared with columns of strings alone"),
        ("row.id in principal.groups", 1, 11, "compared with columns of strings alone"),
        ("row.id.startsWith('1')", 1, 1, "only a string begins with a text"),
        ("row.id", 1, 1, "expected int, found bool"),
        ("row.region == true", 1, 15, "region is a string: expected string, found bool"),
    ],
)
def test_what_does_not_fit_the_table_is_refused_at_its_place(
    expression: str, line: int, column: int, words: str
) -> None:
    with pytest.raises(PolicyNotCompiledError) as refused:
        check_filter(read(expression), schema_of(ORDERS))
    assert words in refused.value.reason
    assert (refused.value.line, refused.value.column) == (line, column), refused.value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("row.c_double == '1.5'", "readers differ on NaN"),
        ("row.c_float in ['1.5']", "readers differ on NaN"),
        ("row.c_uuid < 'eb26bdb1-a1d8-4aa6-990e-da940875492c'", "only be compared with == and !="),
        ("row.c_binary < b'a'", "only be compared with == and !="),
        ("row.c_boolean < true", "only be compared with == and !="),
        ("row.c_fixed == b'abc'", "4 bytes in hexadecimal"),
        ("row.c_date == '2026-02-30'", "a date in a text"),
        ("row.c_time == '25:00:00'", "a time of day in a text"),
        ("row.c_timestamp == '2026-01-31T13:00:00Z'", "without an offset"),
        ("row.c_timestamp == timestamp('2026-01-31T13:00:00Z')", "expected string, found timestamp"),
        ("row.c_timestamptz == '2026-01-31T13:00:00'", "with its offset"),
        ("row.c_timestamptz == '2026-01-31T13:00:00.1234567Z'", "to the microsecond"),
        ("row.c_variant == 'x'", "only be compared with null"),
        ("row.address == 'x'", "only be compared with null"),
        ("row.tags.element == 'x'", "within a list or a map"),
        ("row.prices.value == '1'", "within a list or a map"),
        ("row.c_string == '" + "x" * 4_097 + "'", "at most 4,096 bytes"),
    ],
)
def test_a_type_takes_only_what_all_readers_agree_on(expression: str, words: str) -> None:
    with pytest.raises(PolicyNotCompiledError) as refused:
        check_filter(read(expression), schema_of(EVERY_TYPE))
    assert words in refused.value.reason


def test_a_filter_is_bounded_before_it_is_made_into_anything() -> None:
    deep = "row.a == 'x'"
    for _ in range(DEPTH_MAX - 1):
        deep = f"!({deep})"
    read(deep)
    with pytest.raises(PolicyNotCompiledError, match="more than 8 levels"):
        read(f"!({deep})")
    many = " || ".join(["row.f"] * 255)
    read(many)
    with pytest.raises(PolicyNotCompiledError, match="more than 256 tests"):
        read(f"{many} || row.f")
    elements = ", ".join(map(str, range(ELEMENTS_MAX)))
    read(f"row.n in [{elements}]")
    with pytest.raises(PolicyNotCompiledError, match="at most 256 elements"):
        read(f"row.n in [{elements}, 256]")


@pytest.mark.parametrize(
    ("condition", "who", "expected"),
    [
        ("'support' in principal.groups", caller(groups=("support",)), True),
        ("'support' in principal.groups", caller(), False),
        ("principal.attributes.level == '3'", caller(), None),
        ("!(principal.attributes.level == '3')", caller(), None),
        ("principal.attributes.level == '3' || true", caller(), True),
        ("principal.attributes.level == '3' && false", caller(), False),
        ("principal.attributes.level == '3' || false", caller(), None),
        ("principal.attributes.level == '3' && true", caller(attributes={"level": "3"}), True),
        ("has(principal.attributes.level) && principal.attributes.level == '3'", caller(), False),
    ],
)
def test_the_condition_of_a_mask_is_decided_for_a_caller(condition: str, who: Any, expected: bool | None) -> None:
    assert decide(read(condition, kind=MASK_CONDITION), who) is expected


def test_the_condition_of_a_mask_cannot_read_the_row() -> None:
    with pytest.raises(PolicyNotCompiledError, match="cannot read the row"):
        read("'x' in principal.roles || row.a == 'x'", kind=MASK_CONDITION)
    with pytest.raises(PolicyNotCompiledError, match="cannot read the row"):
        decide(read("row.a == 'x'"), caller())


def test_the_filter_sees_what_is_masked_afterwards() -> None:

    predicate: Predicate = lower_filter(read("row.a == 'EU'"), SCHEMA, caller())
    masked = Projection(field_id=1, action=MaskAction.MASK_TO_FIXED_VALUE)
    restrictions = ReadRestrictions(row_filter=predicate, projections=(masked,))
    salt = bytes(16)
    assert shown_row(restrictions, SCHEMA, row_of(SCHEMA, a="EU"), salt=salt) == {
        **row_of(SCHEMA, a="EU"),
        "a": "XXXXXXXX",
    }
    assert shown_row(restrictions, SCHEMA, row_of(SCHEMA, a="XXXXXXXX"), salt=salt) is None
