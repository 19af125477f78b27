# SPDX-License-Identifier: Apache-2.0
"""
View metadata: what updates make of it, as the view specification and the reference implementation have it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import BadRequestError, GatewayError, RequirementFailedError
from gateway.metadata import CorruptMetadataError, InvalidUpdateError
from gateway.metadata.views import (
    apply_view_updates,
    check_view_metadata,
    check_view_requirements,
    create_view_updates,
    parse_view_requirements,
    parse_view_updates,
)
from testkit.gateway.sales import SCHEMA
from testkit.gateway.view_requests import version, view_created

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
OTHER_SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "total", "type": "long", "required": False}]}
NOW_MS = 1_800_000_000_000
CURRENT = {"action": "set-current-view-version", "view-version-id": -1}


def made(*queries: str, **properties: str) -> dict[str, Any]:
    """A view as its createView makes it."""
    body = view_created("report", *queries, properties=properties)
    updates = create_view_updates(body, view_uuid=UUID, location="file:///lake/report/")
    return apply_view_updates(None, updates, now_ms=NOW_MS)


def changed(view: Mapping[str, Any], *updates: dict[str, Any], now_ms: int = NOW_MS) -> dict[str, Any]:
    """The view after a commit; it must be a view, and `view` must be as it was."""
    before = copy.deepcopy(dict(view))
    after = apply_view_updates(view, parse_view_updates(list(updates)), now_ms=now_ms)
    assert view == before
    check_view_metadata(after)
    return after


def added(*queries: str, schema_id: int = 0, **dialects: str) -> dict[str, Any]:
    return {
        "action": "add-view-version",
        "view-version": version(*queries, version_id=1, schema_id=schema_id, **dialects),
    }


def test_a_new_view_has_the_version_of_its_request() -> None:
    view = made("SELECT 1", owner="ada")
    assert view == {
        "view-uuid": UUID,
        "format-version": 1,
        "location": "file:///lake/report",
        "schemas": [{**SCHEMA, "schema-id": 0}],
        "current-version-id": 1,
        "versions": [version("SELECT 1")],
        "version-log": [{"version-id": 1, "timestamp-ms": version()["timestamp-ms"]}],
        "properties": {"owner": "ada"},
    }
    check_view_metadata(view)


def test_another_query_gets_the_next_id_and_is_logged() -> None:
    view = changed(
        made("SELECT 1"), {"action": "add-schema", "schema": OTHER_SCHEMA}, added("SELECT 2", schema_id=-1), CURRENT
    )
    assert [each["schema-id"] for each in view["schemas"]] == [0, 1]
    assert [(each["version-id"], each["schema-id"]) for each in view["versions"]] == [(1, 0), (2, 1)]
    assert view["current-version-id"] == 2
    assert [each["version-id"] for each in view["version-log"]] == [1, 2]


def test_a_version_or_schema_that_is_there_keeps_its_id() -> None:
    view = changed(made("SELECT 1"), added("SELECT 2"), CURRENT)
    again = changed(
        view,
        {"action": "add-schema", "schema": {**SCHEMA, "schema-id": 7}},
        added("SELECT 1", schema_id=-1),
        CURRENT,
        now_ms=NOW_MS + 1,
    )
    assert again["schemas"] == view["schemas"]
    assert again["versions"] == view["versions"]
    assert again["current-version-id"] == 1
    # It was made current now, whenever it was written.
    assert again["version-log"][-1] == {"version-id": 1, "timestamp-ms": NOW_MS + 1}
    assert changed(again, added("SELECT 1"), CURRENT) == again


def test_queries_of_several_dialects_are_one_version() -> None:
    view = changed(made("SELECT 1"), added("SELECT 1", trino="SELECT 1 AS id"), CURRENT)
    assert [each["dialect"] for each in view["versions"][-1]["representations"]] == ["spark", "trino"]
    with pytest.raises(InvalidUpdateError, match="loss of view dialects"):
        changed(view, added("SELECT 3"), CURRENT)
    may_drop = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}}
    assert changed(view, may_drop, added("SELECT 3"), CURRENT)["current-version-id"] == 3


def test_old_versions_are_forgotten_with_the_log_before_them() -> None:
    view = made("SELECT 0", **{"version.history.num-entries": "2"})
    for number in range(1, 5):
        view = changed(view, added(f"SELECT {number}"), CURRENT)
    assert [each["version-id"] for each in view["versions"]] == [4, 5]
    assert [each["version-id"] for each in view["version-log"]] == [4, 5]
    back = changed(view, {"action": "set-current-view-version", "view-version-id": 4})
    assert [each["version-id"] for each in back["version-log"]] == [4, 5, 4]
    # The current one and those of the commit are kept, however many that are.
    many = changed(back, *(added(f"SELECT {number}") for number in range(10, 15)))
    assert {each["version-id"] for each in many["versions"]} == {4, 6, 7, 8, 9, 10}


def test_properties_and_location_change_no_version() -> None:
    view = made("SELECT 1", owner="ada")
    moved = changed(
        view,
        {"action": "set-location", "location": "file:///lake/elsewhere/"},
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-properties", "removals": ["owner", "nothing"]},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "assign-uuid", "uuid": UUID.upper()},
    )
    expected = {**view, "location": "file:///lake/elsewhere", "properties": {"a": "b"}}
    assert moved == expected
    assert changed(moved, {"action": "set-location", "location": "file:///lake/elsewhere"}) == moved


def test_members_that_nobody_knows_survive() -> None:
    view = {**made("SELECT 1"), "storage-table": {"name": "t"}}
    assert changed(view, added("SELECT 2"), CURRENT)["storage-table"] == {"name": "t"}
    newer = {**version("SELECT 3"), "hint": ["x"]}
    assert changed(view, {"action": "add-view-version", "view-version": newer})["versions"][-1]["hint"] == ["x"]


@pytest.mark.parametrize(
    ("update", "text"),
    [
        ({"action": "assign-uuid", "uuid": UUID.replace("9", "8")}, "Cannot reassign uuid"),
        ({"action": "upgrade-format-version", "format-version": 2}, "Unsupported format version: 2"),
        ({"action": "set-current-view-version", "view-version-id": 9}, "unknown version: 9"),
        (CURRENT, "Cannot set last version id"),
        (added("SELECT 1", schema_id=9), "unknown schema: 9"),
        (added("SELECT 1", schema_id=-1), "no schema has been added"),
        ({"action": "set-properties", "updates": {"version.history.num-entries": "0"}}, "must be positive but was 0"),
        ({"action": "set-properties", "updates": {"version.history.num-entries": "many"}}, "must have integer value"),
        (
            {
                "action": "set-properties",
                "updates": {"replace.drop-dialect.allowed": "true", "replace.append-dialect.allowed": "true"},
            },
            "Cannot set both",
        ),
        (
            {"action": "add-schema", "schema": {**SCHEMA, "fields": [*SCHEMA["fields"], *SCHEMA["fields"]]}},
            "id",
        ),
    ],
)
def test_what_does_not_fit_the_view_is_refused(update: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidUpdateError, match=text):
        changed(made("SELECT 1"), update)


@pytest.mark.parametrize(
    ("update", "field"),
    [
        ({"action": "add-snapshot"}, "action"),
        ({"action": "add-spec"}, "action"),
        ({"action": "replace-everything"}, "action"),
        ({"action": 1}, "action"),
        ("add-view-version", "updates[0]"),
        ({"action": "add-view-version"}, "view-version"),
        ({"action": "set-current-view-version"}, "view-version-id"),
        ({"action": "set-current-view-version", "view-version-id": "1"}, "view-version-id"),
        *(
            ({"action": "add-view-version", "view-version": {**version("SELECT 1"), **members}}, field)
            for members, field in (
                ({"version-id": "1"}, "version-id"),
                ({"timestamp-ms": None}, "timestamp-ms"),
                ({"schema-id": -2}, "schema-id"),
                ({"summary": {"a": 1}}, "summary.a"),
                ({"default-namespace": "sales"}, "default-namespace"),
                ({"default-namespace": [1]}, "default-namespace[0]"),
                ({"default-catalog": 1}, "default-catalog"),
                ({"representations": []}, "representations"),
                ({"representations": [{"type": "plan"}]}, "representations[0].type"),
                ({"representations": [{"type": "sql", "sql": "SELECT 1"}]}, "representations[0].dialect"),
                ({"representations": [{"type": "sql", "sql": "", "dialect": "spark"}]}, "representations[0].sql"),
                ({"representations": [{"type": "sql", "sql": "S", "dialect": "d"}] * 101}, "representations"),
            )
        ),
    ],
)
def test_a_malformed_update_is_refused_with_its_path(update: Any, field: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        parse_view_updates([update])
    assert field in str(refused.value)


def test_two_queries_of_one_dialect_are_refused_however_it_is_spelled() -> None:
    twice = version("SELECT 1", Spark="SELECT 2")
    with pytest.raises(InvalidUpdateError, match="Cannot add multiple queries for dialect spark"):
        parse_view_updates([{"action": "add-view-version", "view-version": twice}])


def test_a_view_requires_its_uuid_and_nothing_else() -> None:
    view = made("SELECT 1")
    check_view_requirements(view, parse_view_requirements(None))
    check_view_requirements(view, parse_view_requirements([{"type": "assert-view-uuid", "uuid": UUID.upper()}]))
    other = parse_view_requirements([{"type": "assert-view-uuid", "uuid": "8" + UUID[1:]}])
    with pytest.raises(RequirementFailedError, match="view UUID does not match"):
        check_view_requirements(view, other)
    for wrong in ({"type": "assert-create"}, {"type": "assert-table-uuid", "uuid": UUID}, {"type": "x"}, {}, "a"):
        with pytest.raises(BadRequestError, match=r"requirements\[0\]"):
            parse_view_requirements([wrong])


@pytest.mark.parametrize(
    "broken",
    [
        {"format-version": 2},
        {"view-uuid": None},
        {"location": None},
        {"versions": []},
        {"versions": [{**version("SELECT 1"), "schema-id": 3}]},
        {"versions": {}},
        {"current-version-id": 2},
        {"schemas": [{"schema-id": 0}]},
        {"version-log": [1]},
        {"properties": {"a": 1}},
    ],
)
def test_metadata_that_is_no_view_is_not_changed(broken: dict[str, Any]) -> None:
    with pytest.raises(CorruptMetadataError):
        apply_view_updates({**made("SELECT 1"), **broken}, [], now_ms=NOW_MS)


@pytest.mark.parametrize(
    "members", [{"schema": None}, {"view-version": None}, {"properties": {"a": 1}}, {"schema": []}]
)
def test_a_malformed_create_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError):
        create_view_updates(view_created(**members), view_uuid=UUID, location="file:///lake/report")


UPDATES = st.one_of(
    st.builds(added, st.sampled_from(["SELECT 1", "SELECT 2", "SELECT 3"]), schema_id=st.integers(-1, 2)),
    st.builds(lambda number: {"action": "set-current-view-version", "view-version-id": number}, st.integers(-1, 6)),
    st.sampled_from([{"action": "add-schema", "schema": schema} for schema in (SCHEMA, OTHER_SCHEMA)]),
    st.builds(
        lambda count: {"action": "set-properties", "updates": {"version.history.num-entries": str(count)}},
        st.integers(1, 3),
    ),
)


@given(st.lists(st.lists(UPDATES, max_size=4), max_size=6))
def test_whatever_is_committed_leaves_a_view(commits: list[list[dict[str, Any]]]) -> None:
    view = made("SELECT 0")
    for updates in commits:
        try:
            view = changed(view, *updates)
        except GatewayError:
            continue
        ids = [each["version-id"] for each in view["versions"]]
        assert len(ids) == len(set(ids))
        assert view["current-version-id"] in ids
        assert view["version-log"][-1]["version-id"] == view["current-version-id"]
        assert {each["version-id"] for each in view["version-log"]} <= set(ids)


@pytest.mark.parametrize("version_id", [[], {}, "1", None, -1, 2**31])
def test_a_log_of_versions_that_cannot_be_read_is_corrupt(version_id: object) -> None:
    view = made("SELECT 1")
    broken = {**view, "version-log": [{"version-id": version_id, "timestamp-ms": NOW_MS}]}
    with pytest.raises(CorruptMetadataError):
        check_view_metadata(broken)


@pytest.mark.parametrize(("name", "number"), [("versions", 1), ("schemas", 0)])
def test_two_definitions_under_one_id_are_corrupt(name: str, number: int) -> None:
    view = changed(made("SELECT 1"), {"action": "add-schema", "schema": OTHER_SCHEMA}, added("SELECT 2"))
    twice = [{**each, f"{name[:-1]}-id": number} for each in view[name]]
    with pytest.raises(CorruptMetadataError):
        check_view_metadata({**view, name: twice})


def test_there_is_no_schema_behind_the_last_id() -> None:
    view = made("SELECT 1")
    last = {**OTHER_SCHEMA, "schema-id": 2**31 - 1}
    another = {"type": "struct", "fields": [{"id": 1, "name": "third", "type": "long", "required": False}]}
    with pytest.raises(InvalidUpdateError, match="schema-id"):
        changed({**view, "schemas": [*view["schemas"], last]}, {"action": "add-schema", "schema": another})
