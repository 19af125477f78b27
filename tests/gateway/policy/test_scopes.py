# SPDX-License-Identifier: Apache-2.0
"""
Scopes of policies: what is parsed, what is refused, and which commits they cover.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequestError
from gateway.mutations import Operation
from gateway.policy.access import content_path
from gateway.policy.scopes import (
    EVERYTHING,
    ITEMS_MAX,
    KINDS,
    NAME_LENGTH_MAX,
    NAMES_SIZE_BYTES_MAX,
    OPERATIONS,
    PROPERTIES_SIZE_BYTES_MAX,
    UUIDS_MAX,
    Scope,
    covers,
    format_scope,
    parse_scope,
    tag_of,
)
from gateway.policy.variables import CommitView

UUIDS = ("0c8f3bd0-6c2b-4d7e-9f35-2f1c8b6e7a10", "00000000-0000-4000-8000-000000000001")


def view(path: str, *, catalog: str = "lake", operation: str = "table.commit") -> CommitView:
    kind = operation.partition(".")[0]
    levels = path.split("/")
    namespace, name = (levels, "") if kind == "namespace" else (levels[:-1], levels[-1])
    return CommitView(catalog=catalog, namespace=namespace, name=name, kind=kind, operation=operation)


def test_a_scope_knows_the_operations_that_policies_judge() -> None:
    assert tuple(operation.value for operation in Operation) == OPERATIONS
    assert {operation.partition(".")[0] for operation in OPERATIONS} == set(KINDS)


@pytest.mark.parametrize("value", [None, {}])
def test_without_members_a_scope_covers_every_commit(value: Any) -> None:
    assert parse_scope(value) == EVERYTHING
    for operation in OPERATIONS:
        assert covers(EVERYTHING, view("a/b", operation=operation))


@pytest.mark.parametrize(
    ("name", "covered", "not_covered"),
    [
        (
            "sales.orders",
            ["sales/orders"],
            ["sales/orders2", "sales", "eu/sales/orders", "sales/orders/x", "Sales/orders"],
        ),
        ("sales.*", ["sales/orders", "sales/items"], ["sales/eu/orders", "sales", "sales2/orders", "eu/sales/orders"]),
        ("sales.**", ["sales/orders", "sales/eu/orders"], ["sales", "sales2/orders", "eu/sales/orders"]),
        ("sales.eu.*", ["sales/eu/orders"], ["sales/orders", "sales/eu/x/orders", "sales.eu/orders"]),
        ("a\x1db.t", ["a.b/t"], ["a/b/t", "a/b"]),
        ("sales.*", ["sales/a.b"], []),
    ],
)
def test_names_cover_a_table_a_namespace_or_all_below_it(name: str, covered: list[str], not_covered: list[str]) -> None:
    scope = parse_scope({"names": [name]})
    assert all(covers(scope, view(path)) for path in covered)
    assert not any(covers(scope, view(path)) for path in not_covered)


def test_two_asterisks_cover_the_namespace_itself_and_one_does_not() -> None:
    drop = view("sales", operation="namespace.drop")
    assert covers(parse_scope({"names": ["sales.**"]}), drop)
    assert covers(parse_scope({"names": ["sales"]}), drop)
    assert not covers(parse_scope({"names": ["sales.*"]}), drop)
    assert covers(parse_scope({"names": ["sales.*"]}), view("sales/eu", operation="namespace.drop"))


def test_each_member_restricts_and_all_of_them_must_cover() -> None:
    scope = parse_scope(
        {
            "catalogs": ["lake"],
            "names": ["sales.orders", "hr.**"],
            "kinds": ["table"],
            "operations": ["table.commit", "table.drop"],
        }
    )
    assert covers(scope, view("sales/orders"))
    assert covers(scope, view("hr/eu/people", operation="table.drop"))
    assert not covers(scope, view("sales/orders", catalog="other"))
    assert not covers(scope, view("sales/items"))
    assert not covers(scope, view("sales/orders", operation="table.create"))
    assert not covers(parse_scope({"kinds": ["view"]}), view("sales/orders"))


def test_without_catalogs_a_scope_covers_a_name_under_every_alias() -> None:
    scope = parse_scope({"names": ["sales.orders"]})
    assert covers(scope, view("sales/orders", catalog="lake"))
    assert covers(scope, view("sales/orders", catalog="other"))


@pytest.mark.parametrize(
    ("value", "field", "found"),
    [
        ("sales.*", "scope", "an object"),
        ([], "scope", "an object"),
        ({"name": ["a.b"]}, "scope", "the nearest is names"),
        ({"names": []}, "scope.names", "leave it out"),
        ({"names": "a.b"}, "scope.names", "a list"),
        ({"names": None}, "scope.names", "a list"),
        ({"names": ["a.b", 1]}, "scope.names[1]", "a text"),
        ({"names": ["*"]}, "scope.names[0]", "of a namespace with"),
        ({"names": ["**"]}, "scope.names[0]", "of a namespace with"),
        ({"names": ["sales.ord*"]}, "scope.names[0]", "of a namespace with"),
        ({"names": ["*.orders"]}, "scope.names[0]", "of a namespace with"),
        ({"names": ["sales.***"]}, "scope.names[0]", "of a namespace with"),
        ({"names": ["sales..orders"]}, "scope.names[0]", "of a namespace with"),
        ({"names": ["sales."]}, "scope.names[0]", "of a namespace with"),
        ({"names": [".*"]}, "scope.names[0]", "of a namespace with"),
        ({"names": ["sales.a\nb"]}, "scope.names[0]", "U+000A"),
        ({"names": ["sales.a\ud800"]}, "scope.names[0]", "U+D800"),
        ({"names": [""]}, "scope.names[0]", "1 to 500"),
        ({"names": ["a" * (NAME_LENGTH_MAX + 1)]}, "scope.names[0]", "501"),
        ({"names": [f"{position:02}{'a' * 198}" for position in range(41)]}, "scope.names", "at most 8,192"),
        ({"names": [f"a.t{position}" for position in range(ITEMS_MAX + 1)]}, "scope.names", "at most 100"),
        ({"kinds": ["tables"]}, "scope.kinds[0]", "the nearest is table"),
        ({"kinds": ["function"]}, "scope.kinds[0]", "table, view, namespace"),
        ({"operations": ["table.comit"]}, "scope.operations[0]", "the nearest is table.commit"),
        ({"catalogs": ["a/b"]}, "scope.catalogs[0]", "letters"),
        ({"properties": {"a": "b"}}, "scope.properties", "a list"),
        ({"properties": []}, "scope.properties", "leave it out"),
        ({"properties": [""]}, "scope.properties[0]", "a property of a table"),
        ({"properties": ["=pii"]}, "scope.properties[0]", "a property of a table"),
        ({"properties": [".*"]}, "scope.properties[0]", "a property of a table"),
        ({"properties": ["*"]}, "scope.properties[0]", "a property of a table"),
        ({"properties": ["class*"]}, "scope.properties[0]", "a property of a table"),
        ({"properties": ["a.*.b=c"]}, "scope.properties[0]", "a property of a table"),
        ({"properties": ["a=b\n"]}, "scope.properties[0]", "printable"),
        ({"properties": ["a=\ud800"]}, "scope.properties[0]", "printable"),
        ({"properties": [f"p{position}" for position in range(ITEMS_MAX + 1)]}, "scope.properties", "at most 100"),
        ({"properties": ["a" * PROPERTIES_SIZE_BYTES_MAX]}, "scope.properties", "at most 2,048"),
        ({"uuids": [UUIDS[0].upper()]}, "scope.uuids[0]", f"write {UUIDS[0]}"),
        ({"uuids": [UUIDS[0], UUIDS[1].replace("-", "")]}, "scope.uuids[1]", f"write {UUIDS[1]}"),
        ({"uuids": [f"{{{UUIDS[0]}}}"]}, "scope.uuids[0]", "in lower case with hyphens"),
        ({"uuids": ["sales.orders"]}, "scope.uuids[0]", "the uuid of a table or view"),
        ({"uuids": [""]}, "scope.uuids[0]", "the uuid of a table or view"),
        ({"uuids": []}, "scope.uuids", "leave it out"),
        ({"uuids": [str(UUID(int=number)) for number in range(UUIDS_MAX + 1)]}, "scope.uuids", "at most 50"),
    ],
)
def test_what_is_no_scope_is_refused_with_its_field(value: Any, field: str, found: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_scope(value)
    assert refused.value.field == field
    assert found in str(refused.value)


def test_the_bound_of_names_is_inclusive() -> None:
    names = [f"{position:02}{'a' * 198}" for position in range(40)]
    names.append("b" * (NAMES_SIZE_BYTES_MAX - len(orjson.dumps([*names, ""]))))
    assert parse_scope({"names": names}).names == tuple(names)
    with pytest.raises(BadRequestError):
        parse_scope({"names": [*names[:-1], names[-1] + "b"]})


PII = {"classification": "pii", "owner": "ada"}


def tagged(properties: dict[str, Any]) -> dict[str, Any]:
    return {"table-uuid": "u", "properties": properties}


@pytest.mark.parametrize(
    ("item", "covered", "not_covered"),
    [
        (
            "classification=pii",
            [PII],
            [
                {"classification": "public"},
                {"classification": "pii2"},
                {"Classification": "pii"},
                {"pii": "classification"},
            ],
        ),
        ("classification", [PII, {"classification": ""}], [{"owner": "ada"}, {"classification.email": "email"}]),
        ("classification=", [{"classification": ""}], [PII]),
        ("a=b=c", [{"a": "b=c"}], [{"a": "b"}, {"a=b": "c"}]),
        (
            "classification.*=email",
            [{"classification.mail": "email"}, {"classification.a.b": "email"}],
            [{"classification.mail": "phone"}, {"classification": "email"}, {"classifications.mail": "email"}],
        ),
        ("classification.*", [{"classification.mail": "phone"}], [{"classification": "email"}]),
    ],
)
def test_a_property_covers_what_has_it(
    item: str, covered: list[dict[str, str]], not_covered: list[dict[str, str]]
) -> None:
    scope = parse_scope({"properties": [item]})
    for properties in covered:
        assert covers(scope, view("a/t"), table=tagged(properties))
    for properties in not_covered:
        assert not covers(scope, view("a/t"), table=tagged(properties), result=tagged(properties))


def test_a_property_counts_before_the_commit_and_after_it() -> None:
    scope = parse_scope({"properties": ["classification=pii"]})
    assert covers(scope, view("a/t"), table=tagged(PII), result=tagged({})), "the commit removes it"
    assert covers(scope, view("a/t"), table=tagged({}), result=tagged(PII)), "the commit sets it"
    assert covers(scope, view("a/t", operation="table.create"), result=tagged(PII))
    assert covers(scope, view("a/t", operation="table.drop"), table=tagged(PII))
    assert not covers(scope, view("a/t"), table=tagged({}), result=tagged({}))
    assert not covers(scope, view("a", operation="namespace.update"))


def test_one_of_several_properties_is_enough_and_the_other_members_restrict_all_the_same() -> None:
    scope = parse_scope({"properties": ["classification=pii", "retention"], "names": ["hr.**"]})
    for properties in (PII, {"retention": "7y"}):
        assert covers(scope, view("hr/t"), table=tagged(properties))
        assert not covers(scope, view("sales/t"), table=tagged(properties))


@pytest.mark.parametrize("properties", ["text", [1], 7])
def test_properties_that_cannot_be_read_are_covered(properties: Any) -> None:
    assert covers(parse_scope({"properties": ["a"]}), view("a/t"), table={"properties": properties})


UUID_SCOPE = {"uuids": [*UUIDS]}


def test_a_uuid_covers_a_table_or_view_by_whatever_name() -> None:
    scope = parse_scope(UUID_SCOPE)
    for uuid in (*UUIDS, UUIDS[0].upper(), UUIDS[0].replace("-", "")):
        for catalog, path in (("lake", "sales/orders"), ("other", "hr/people")):
            assert covers(scope, view(path, catalog=catalog), table={"table-uuid": uuid}, result={"table-uuid": uuid})
    assert covers(scope, view("a/v", operation="view.replace"), table={"view-uuid": UUIDS[0]})
    assert covers(scope, view("a/t", operation="table.drop"), table={"table-uuid": UUIDS[0]})
    assert covers(scope, view("a/t", operation="table.create"), result={"table-uuid": UUIDS[0]})
    other = {"table-uuid": str(UUID(int=7))}
    assert not covers(scope, view("sales/orders"), table=other, result=other)


def test_a_uuid_counts_before_the_commit_and_after_it() -> None:
    scope, other = parse_scope(UUID_SCOPE), {"table-uuid": str(UUID(int=7))}
    assert covers(scope, view("a/t"), table={"table-uuid": UUIDS[0]}, result=other)
    assert covers(scope, view("a/t"), table=other, result={"table-uuid": UUIDS[0]})


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"table-uuid": ""},
        {"table-uuid": None},
        {"table-uuid": "orders"},
        {"uuid": str(UUID(int=7))},
        {"table-uuid": 7},
    ],
)
def test_metadata_whose_uuid_is_not_known_is_covered(metadata: dict[str, Any]) -> None:
    scope = parse_scope(UUID_SCOPE)
    assert covers(scope, view("a/t"), table=metadata)
    assert covers(scope, view("a/t", operation="table.create"), result=metadata)


def test_what_is_no_table_or_view_has_no_uuid_and_the_other_members_restrict_all_the_same() -> None:
    assert not covers(parse_scope(UUID_SCOPE), view("a", operation="namespace.update"))
    named = parse_scope({**UUID_SCOPE, "names": ["hr.**"], "properties": ["tag"]})
    table = {"table-uuid": UUIDS[0], "properties": {"tag": "x"}}
    assert covers(named, view("hr/t"), table=table)
    assert not covers(named, view("sales/t"), table=table)
    assert not covers(named, view("hr/t"), table={**table, "properties": {}})


def test_a_tag_includes_those_that_say_more() -> None:
    for wide, narrow in (("a", "a=b"), ("a.*", "a.b"), ("a.*", "a.b=c"), ("a.*", "a.b.*"), ("a.*=c", "a.b=c")):
        assert tag_of(wide).includes(tag_of(narrow))
        assert not tag_of(narrow).includes(tag_of(wide))
    assert not tag_of("a=b").includes(tag_of("a=c"))
    assert not tag_of("a.*").includes(tag_of("a"))


LEVEL = st.text("ab.", min_size=1, max_size=3).filter(lambda name: name not in {".", ".."})
SCOPES = st.builds(
    Scope,
    catalogs=st.lists(st.sampled_from(["lake", "other"]), unique=True).map(tuple),
    names=st.lists(st.sampled_from(["a", "a.b", "a.*", "a.**", "a.b.*", "b\x1da.**"]), unique=True).map(tuple),
    kinds=st.lists(st.sampled_from(KINDS), unique=True).map(tuple),
    operations=st.lists(st.sampled_from(OPERATIONS), unique=True).map(tuple),
    properties=st.lists(st.sampled_from(["a", "a=", "a=b", "a.*", "a.*=b=c"]), unique=True).map(tuple),
    uuids=st.lists(st.sampled_from(UUIDS), unique=True).map(tuple),
)


@given(SCOPES)
def test_what_is_formatted_is_parsed_again(scope: Scope) -> None:
    written = format_scope(scope)
    assert parse_scope(written) == scope
    assert format_scope(parse_scope(written)) == written


@given(st.lists(LEVEL, min_size=2, max_size=5))
def test_the_path_of_a_table_and_its_namespaces_cover_it(levels: list[str]) -> None:
    table = CommitView(catalog="lake", namespace=levels[:-1], name=levels[-1], kind="table", operation="table.commit")
    path = content_path(table)
    *above, _ = path.split(".")
    assert covers(parse_scope({"names": [path]}), table)
    assert covers(parse_scope({"names": [".".join(above) + ".*"]}), table)
    for depth in range(1, len(above) + 1):
        namespace = ".".join(above[:depth])
        assert covers(parse_scope({"names": [f"{namespace}.**"]}), table)
        assert covers(parse_scope({"names": [f"{namespace}.*"]}), table) is (depth == len(above))
        assert not covers(parse_scope({"names": [namespace]}), table)
