# SPDX-License-Identifier: Apache-2.0
"""Fields of the elements of lists and maps: a new expression that misspells one is refused, and one in force is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gateway.policy.cel.programs import Programs
from gateway.policy.engine import ACCESS_RULE, POLICY, Outcome, PolicyNotCompiledError
from gateway.policy.examples import EMPTY, variables_given
from gateway.policy.reference import VARIABLES
from gateway.policy.vocabulary import ListOf, MapOf, Number, Shape, shapes_of


def refusal(expression: str, kind: str = POLICY) -> PolicyNotCompiledError:
    with pytest.raises(PolicyNotCompiledError) as caught:
        Programs().check(expression, kind=kind)
    return caught.value


@pytest.mark.parametrize(
    ("expression", "column", "words"),
    [
        ("result.columns.all(c, c.nmae == 'x')", 25, "c has no field 'nmae' (did you mean 'name'?)"),
        ("result.columns.all(c, !has(c.docs))", 30, "c has no field 'docs' (did you mean 'doc'?)"),
        ("result.columns.all(c, c['nmae'] == 'x')", 25, "c has no field 'nmae' (did you mean 'name'?)"),
        ("result.columns.all(c, 'docs' in c)", 23, "c has no field 'docs' (did you mean 'doc'?)"),
        ("result.columns[0].nmae == 'x'", 19, "result.columns[0] has no field 'nmae'"),
        ("result.columns.filter(c, c.required)[0].nmae == 'x'", 41, "has no field 'nmae'"),
        ("result.columns.map(c, c).all(n, n.nmae == 'x')", 35, "n has no field 'nmae'"),
        ("(table.fields + result.fields).all(f, f.pth == 'x')", 41, "f has no field 'pth' (did you mean 'path'?)"),
        ("[table, result].all(t, t.exsts)", 26, "t has no field 'exsts' (did you mean 'exists'?)"),
        ("(commit.purge ? table : result).exsts", 33, "has no field 'exsts' (did you mean 'exists'?)"),
        ("result.refs.main.snapshot == '1'", 18, "result.refs.main has no field 'snapshot'"),
        ("result.refs.all(name, result.refs[name].typ == 'tag')", 41, "result.refs[name] has no field 'typ'"),
        ("lineage.upstream.all(t, t.kinds.all(k, k.knd == 'email'))", 42, "k has no field 'knd'"),
        ("commit.changed_columns.all(c, c.old_typ == c.type)", 33, "(did you mean 'old_type'?)"),
        ("result['propertes'] == {}", 8, "result has no field 'propertes' (did you mean 'properties'?)"),
    ],
)
def test_a_field_that_no_element_has_is_refused_with_its_place_and_the_nearest(
    expression: str, column: int, words: str
) -> None:
    error = refusal(expression)
    assert (error.line, error.column) == (1, column)
    assert words in str(error)


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("findings.columns.all(f, f.confidence < 0.9)", 40),
        ("result.columns.exists(c, c.id in [1.0])", 35),
        ("result.ref_list.all(r, r.max_ref_age_ms > 1u)", 43),
        ("findings.as_of + 1.0 > 2.0", 18),
        ("result.columns[0].id == 1.0", 25),
    ],
)
def test_a_number_of_an_element_is_not_compared_with_one_of_another_type(expression: str, column: int) -> None:
    error = refusal(expression)
    assert (error.line, error.column) == (1, column)
    assert "with double" in str(error) or "with uint" in str(error)


def test_a_rule_compares_the_version_of_an_api_with_an_integer() -> None:
    assert "compares int with double" in str(refusal("api.apiVersion == 1.0", ACCESS_RULE))
    Programs().check("api.apiVersion == 1", kind=ACCESS_RULE)


@pytest.mark.parametrize(
    "expression",
    [
        "result.columns.all(c, c.name != c['doc'] && c.id > 0)",
        "commit.updates.all(u, u.whatever == 'x')",
        "result.properties.whatever == 'x' && 'owner' in result.properties",
        "result.snapshot.summary.whatever == 'x'",
        "result.refs.all(name, name != 'x' && result.refs[name].type == 'branch')",
        "result.columns.all(result, result.name == 'x')",
        "principal.attributes.country == 'DE'",
        "[{'a': 1}].all(x, x.b == 1)",
        "commit.namespace.map(level, level).all(level, level != '')",
    ],
)
def test_names_that_users_choose_are_not_checked(expression: str) -> None:
    Programs().check(expression, kind=POLICY)


def test_what_is_in_force_keeps_its_meaning() -> None:
    expression = "result.columns.all(c, !has(c.docs))"
    refusal(expression)
    (result,) = Programs().judge([(POLICY, expression)], EMPTY, log_id=1)
    assert result.outcome is Outcome.ALLOW


def test_contracts_are_refused_and_the_reason_is_said() -> None:
    error = refusal("contract.owner == 'x'")
    assert (error.line, error.column) == (1, 1)
    assert "there are no data contracts yet" in str(error)


def _paths(shape: Shape, path: str) -> Iterator[str]:
    """Yield the fields of elements below `path`, as the page of variables names them."""
    match shape:
        case ListOf(element) | MapOf(element):
            if isinstance(element, Mapping):
                for name, below in element.items():
                    yield f"{path}[].{name}"
                    yield from _paths(below, f"{path}[].{name}")
        case Mapping():
            for name, below in shape.items():
                yield from _paths(below, f"{path}.{name}")


def test_the_fields_of_elements_are_those_of_the_page_of_variables() -> None:
    checked = {path for name, shape in shapes_of(POLICY).items() for path in _paths(shape, name)}
    checked = {path for path in checked if not path.startswith("result.")}
    described = {each.name: each.type for each in VARIABLES}
    listed = {name for name in described if "[]." in name}
    whole = {f"{name}[]." for name in ("commit.added_columns", "commit.removed_columns", "commit.removed_snapshots")}
    whole |= {"commit.changed_columns[].", "table.refs[]."}
    assert listed <= checked
    assert {path for path in checked - listed if not path.startswith(tuple(whole))} == set()


def _zeros(shape: Shape) -> Any:
    match shape:
        case ListOf(element):
            return [_zeros(element)]
        case MapOf(value):
            return {"main": _zeros(value)}
        case Mapping():
            return {name: _zeros(below) for name, below in shape.items() if below is not None}
        case _:
            return 7


def test_examples_complete_elements_to_the_fields_that_expressions_may_read() -> None:
    given = variables_given(_zeros(shapes_of(POLICY)))
    for name, shape in shapes_of(POLICY).items():
        _check(given[name], shape, name)


def _check(value: Any, shape: Shape, where: str) -> None:
    match shape:
        case Number():
            assert value == 7, where
        case ListOf(element):
            for one in value:
                _check(one, element, where)
        case MapOf(element):
            for one in value.values():
                _check(one, element, where)
        case Mapping():
            assert set(value) == set(shape), where
            for name, below in shape.items():
                _check(value[name], below, f"{where}.{name}")
