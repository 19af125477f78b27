# SPDX-License-Identifier: Apache-2.0
"""The page of what policies may name says what the code knows, and each of its examples is a policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from gateway.policy import reference
from gateway.policy.cel.check import FUNCTIONS, MACROS, METHODS
from gateway.policy.cel.library import ELEMENTS_MAX, TEXT_CHARACTERS_MAX
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import POLICY, Outcome
from gateway.policy.reference import Described
from gateway.policy.text import EXPRESSION_BYTES_MAX, NESTING_MAX, TOKENS_MAX, check_new_text
from gateway.policy.variables import (
    ClassifiedView,
    CommitView,
    FindingsView,
    FindingView,
    LineageView,
    PrincipalView,
    RequestView,
    UpstreamView,
    activation,
)
from gateway.policy.vocabulary import Fields, variables_of
from testkit.policy_variables_page import BOUNDS, HEAD, PAGE, page

PROGRAMS: Final = Programs()
SNAPSHOTS: Final = [
    {"snapshot-id": 1, "timestamp-ms": 1_767_225_600_000, "summary": {"operation": "append"}},
    {"snapshot-id": 2, "parent-snapshot-id": 1, "timestamp-ms": 1_767_312_000_000, "summary": {"operation": "append"}},
]
TABLE: Final[dict[str, Any]] = {
    "format-version": 2,
    "table-uuid": "c37b2f7d-74f1-4084-a4bf-1fd6a3b975c7",
    "location": "s3://lake/sales/orders",
    "current-schema-id": 0,
    "schemas": [
        {
            "schema-id": 0,
            "type": "struct",
            "fields": [
                {"id": 1, "name": "ordered_at", "required": True, "type": "timestamptz", "doc": "when"},
                {"id": 2, "name": "note", "required": False, "type": "string", "doc": "by whom"},
            ],
        }
    ],
    "default-spec-id": 0,
    "partition-specs": [
        {"spec-id": 0, "fields": [{"name": "day", "transform": "day", "source-id": 1, "field-id": 1000}]}
    ],
    "default-sort-order-id": 1,
    "sort-orders": [
        {
            "order-id": 1,
            "fields": [{"transform": "identity", "source-id": 1, "direction": "asc", "null-order": "nulls-last"}],
        }
    ],
    "properties": {"owner": "ada@acme.example"},
    "current-snapshot-id": 2,
    "snapshots": SNAPSHOTS,
    "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
    "statistics": [
        {
            "snapshot-id": 2,
            "statistics-path": "s3://lake/sales/orders/2.puffin",
            "blob-metadata": [{"type": "apache-x"}],
        }
    ],
}
RESULT: Final[dict[str, Any]] = {
    **TABLE,
    "current-schema-id": 1,
    "schemas": [
        {
            "schema-id": 1,
            "type": "struct",
            "fields": [
                {"id": 1, "name": "at", "required": True, "type": "timestamptz", "doc": "when"},
                {"id": 3, "name": "place", "required": False, "type": "string"},
            ],
        }
    ],
    "current-snapshot-id": 1,
    "refs": {"main": {"snapshot-id": 1, "type": "branch"}},
}


def variables() -> Any:
    return activation(
        table=TABLE,
        result=RESULT,
        commit=CommitView(
            catalog="lake",
            namespace=("sales",),
            name="orders",
            kind="table",
            operation="table.commit",
            actions=("META_SET_SNAPSHOT_REF",),
            updates=({"action": "add-snapshot", "snapshot": SNAPSHOTS[0]},),
            requirements=({"type": "assert-table-uuid"},),
        ),
        principal=PrincipalView(actor="0" * 32, source="jwt", groups=("a",), attributes=(("country", "DE"),)),
        request=RequestView(method="POST", path="/v1/x", time="2026-01-31T00:00:00.000000Z", address="192.0.2.7"),
        findings=FindingsView(
            columns=(
                FindingView(
                    column="note",
                    field_id=2,
                    kind="email",
                    confidence=55,
                    matches=9,
                    values=10,
                    snapshot="2",
                    found_at="2026-01-30T00:00:00.000000Z",
                ),
            ),
            scanned_at="2026-01-30T00:00:00.000000Z",
            scanned_snapshot="2",
            as_of=7,
        ),
        lineage=LineageView(
            upstream=(
                UpstreamView(
                    catalog="lake", namespace=("crm",), name="people", uuid="u", hops=1, kinds=(("email", 92),)
                ),
            ),
            classified=(
                ClassifiedView(
                    catalog="lake",
                    namespace=("crm",),
                    name="people",
                    uuid="u",
                    hops=1,
                    is_known=True,
                    classifications=("email",),
                ),
            ),
            as_of=7,
        ),
    )


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m testkit.policy_variables_page`"


def test_another_description_is_another_page(monkeypatch: pytest.MonkeyPatch) -> None:
    before = page()
    changed = [reference.COMMIT[0]._replace(words="something else"), *reference.COMMIT[1:]]
    monkeypatch.setattr("testkit.policy_variables_page.COMMIT", changed)
    assert page() != before


def test_every_variable_and_every_field_is_described() -> None:
    known = set(_leaves(variables_of(POLICY)))
    described = [row.name for row in reference.VARIABLES if "[]" not in row.name]
    described += [name.replace("table.", "result.", 1) for name in described if name.startswith("table.")]
    assert sorted(described) == sorted(known)


def _leaves(fields: Fields, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all fields; a variable alone is none."""
    for name, below in fields.items():
        if prefix:
            yield prefix + name
        yield from _leaves(below or {}, f"{prefix}{name}.")


def test_every_member_of_a_list_is_described() -> None:
    shown = variables()
    members: dict[str, set[str]] = {}
    for row in reference.VARIABLES:
        place, is_member, member = row.name.rpartition("[].")
        if is_member:
            members.setdefault(place, set()).add(member)
    for place, described in members.items():
        elements: Any = shown
        for step in place.split("."):
            elements = elements[step.removesuffix("[]")][0] if step.endswith("[]") else elements[step]
        field = place.rpartition(".")[2]
        assert elements, place
        also = {"changed_columns": "fields", "removed_snapshots": "snapshots"}.get(field)
        more = members[f"table.{also}"] if also else set()
        assert set(elements[0]) == described | more, place


def test_every_function_and_macro_is_described() -> None:
    described = [row.name for row in reference.FUNCTIONS]
    assert sorted(described) == sorted({*FUNCTIONS, *METHODS, *MACROS})


@pytest.mark.parametrize("row", [*reference.VARIABLES, *reference.FUNCTIONS], ids=lambda row: str(row.name))
def test_an_example_is_a_policy_that_can_be_judged(row: Described) -> None:
    check_new_text(row.example)
    PROGRAMS.check(row.example, kind=POLICY)
    (result,) = PROGRAMS.judge([(POLICY, row.example)], variables(), log_id=1)
    assert result.outcome is not Outcome.ERROR, result.detail
    variable, _, rest = row.name.partition(".")
    name = rest.rpartition("[].")[2] if variable in variables_of(POLICY) else row.name
    assert name.rpartition(".")[2] in row.example


def test_the_bounds_on_the_page_are_those_of_the_code() -> None:
    assert f"{TEXT_CHARACTERS_MAX:,} characters" in BOUNDS
    assert f"{ELEMENTS_MAX:,} elements" in BOUNDS.replace("\n", " ")
    head = HEAD.replace("\n ", "")
    assert f"at most {EXPRESSION_BYTES_MAX // 1024} KiB" in head
    assert f"{TOKENS_MAX:,} names, values and signs, and {NESTING_MAX} brackets" in head
