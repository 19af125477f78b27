# SPDX-License-Identifier: Apache-2.0
"""
The variables of policies: from raw metadata and requests to fixed fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import BadRequestError
from gateway.metadata.draft import TableMetadata
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import POLICY, Outcome
from gateway.policy.table import DEPTH_MAX, INTEGER_MAX, UnreadableMetadataError, plain_json, snapshot_of, table_of
from gateway.policy.variables import (
    AS_REQUESTED,
    CLIENT_CHARACTERS_MAX,
    CommitView,
    PrincipalView,
    RequestView,
    activation,
)
from gateway.policy.vocabulary import ON_DEMAND, Fields, variables_of

SNAPSHOT_ID = 993863745535017463  # of a captured commit; beyond 2^53, as most are
METADATA: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "c37b2f7d-74f1-4084-a4bf-1fd6a3b975c7",
    "location": "file:///warehouse/wh/db/t",
    "current-schema-id": 1,
    "schemas": [
        {"schema-id": 0, "type": "struct", "fields": [{"id": 1, "name": "old", "required": True, "type": "long"}]},
        {
            "schema-id": 1,
            "type": "struct",
            "fields": [
                {"id": 1, "name": "id", "required": True, "type": "long"},
                {"id": 2, "name": "tenant_id", "required": False, "type": "string", "doc": "owner of the row"},
                {
                    "id": 3,
                    "name": "tags",
                    "required": False,
                    "type": {"type": "list", "element-id": 4, "element": "string", "element-required": False},
                },
                {
                    "id": 5,
                    "name": "place",
                    "required": False,
                    "type": {
                        "type": "struct",
                        "fields": [{"id": 6, "name": "city", "required": False, "type": "string"}],
                    },
                },
            ],
        },
    ],
    "default-spec-id": 1,
    "partition-specs": [
        {"spec-id": 0, "fields": []},
        {
            "spec-id": 1,
            "fields": [
                {"name": "city", "transform": "identity", "source-id": 6, "field-id": 1000},
                {"name": "gone", "transform": "bucket[4]", "source-id": 9, "field-id": 1001},
            ],
        },
    ],
    "default-sort-order-id": 1,
    "sort-orders": [
        {"order-id": 0, "fields": []},
        {
            "order-id": 1,
            "fields": [{"transform": "identity", "source-id": 2, "direction": "asc", "null-order": "nulls-first"}],
        },
    ],
    "properties": {"owner": "root", "größe": "1"},
    "current-snapshot-id": SNAPSHOT_ID,
    "snapshots": [{"snapshot-id": SNAPSHOT_ID, "summary": {"operation": "append", "added-records": "3"}}],
    "refs": {"main": {"snapshot-id": SNAPSHOT_ID, "type": "branch"}, "v1": {"snapshot-id": 7, "type": "tag"}},
}
COMMIT = CommitView(catalog="lake", namespace=("db",), name="t", kind="table", operation="table.commit")
PRINCIPAL = PrincipalView(actor="0" * 32, source="api_key", sub="ann", roles=("data-eng",))
NOTHING: Mapping[str, frozenset[str]] = {}
REQUEST = RequestView(method="POST", path="/v1/iceberg/lake/namespaces/db/tables/t")


def variables(
    *,
    table: Mapping[str, Any] | None = None,
    result: Mapping[str, Any] | None = None,
    commit: CommitView = COMMIT,
    request: RequestView = REQUEST,
    demanded: Mapping[str, frozenset[str]] = NOTHING,
) -> Any:
    return activation(
        table=table, result=result, commit=commit, principal=PRINCIPAL, request=request, demanded=demanded
    )


def has_exactly(value: Any, fields: Fields | None) -> bool:
    if fields is None:
        return True
    return set(value) == set(fields) and all(has_exactly(value[name], below) for name, below in fields.items())


def test_a_table_is_shown_by_its_current_schema_spec_order_and_snapshot() -> None:
    assert table_of(METADATA) == {
        "exists": True,
        "uuid": "c37b2f7d-74f1-4084-a4bf-1fd6a3b975c7",
        "location": "file:///warehouse/wh/db/t",
        "format_version": 2,
        "columns": [
            {"id": 1, "name": "id", "type": "long", "required": True, "doc": ""},
            {"id": 2, "name": "tenant_id", "type": "string", "required": False, "doc": "owner of the row"},
            {
                "id": 3,
                "name": "tags",
                "type": '{"element":"string","element-id":4,"element-required":false,"type":"list"}',
                "required": False,
                "doc": "",
            },
            {
                "id": 5,
                "name": "place",
                "type": '{"fields":[{"id":6,"name":"city","required":false,"type":"string"}],"type":"struct"}',
                "required": False,
                "doc": "",
            },
        ],
        "partition_fields": [
            {"name": "city", "transform": "identity", "source_id": 6, "source": "place.city"},
            {"name": "gone", "transform": "bucket[4]", "source_id": 9, "source": ""},
        ],
        "sort_fields": [
            {
                "transform": "identity",
                "direction": "asc",
                "null_order": "nulls-first",
                "source_id": 2,
                "source": "tenant_id",
            }
        ],
        "properties": {"owner": "root", "größe": "1"},
        "refs": {
            "main": {"type": "branch", "snapshot_id": "993863745535017463"},
            "v1": {"type": "tag", "snapshot_id": "7"},
        },
        "snapshot": {
            "id": "993863745535017463",
            "operation": "append",
            "summary": {"operation": "append", "added-records": "3"},
        },
        "queries": {},
    }


CHANGED_TABLES: list[dict[str, Any]] = [
    {},
    {"properties": {"owner": "eve"}},
    {"current-schema-id": 0, "sort-orders": [], "default-sort-order-id": 0},
    {"location": "file:///elsewhere", "format-version": 3},
    {"current-snapshot-id": None, "refs": {}},
]


@pytest.mark.parametrize("change", CHANGED_TABLES, ids=str)
def test_a_table_is_shown_alike_whatever_is_known_of_the_one_before(change: dict[str, Any]) -> None:
    before = TableMetadata(METADATA)
    for after in (TableMetadata(before | change), {**METADATA, **change}):
        expected = table_of(json.loads(json.dumps(after)))
        assert table_of(after, before=before) == expected, "nothing was known"
        table_of(before)
        again = TableMetadata(after) if isinstance(after, TableMetadata) else dict(after)
        assert table_of(again, before=before) == expected
        assert table_of(again, before=None) == expected
        assert table_of(again, before=TableMetadata(METADATA)) == expected
    shown = table_of(before)
    assert (table_of(before) is shown, table_of(METADATA) == shown) == (True, True)


def test_another_schema_of_the_same_id_is_shown() -> None:
    before = TableMetadata(METADATA)
    table_of(before)
    schemas = json.loads(json.dumps(METADATA["schemas"]))
    schemas[1]["fields"][0]["name"] = "other"
    columns = table_of(TableMetadata({**METADATA, "schemas": schemas}), before=before)["columns"]
    assert columns == table_of({**METADATA, "schemas": schemas})["columns"] != table_of(before)["columns"]


def test_a_table_that_does_not_exist_has_every_field_with_its_zero() -> None:
    assert table_of(None) == {
        "exists": False,
        "uuid": "",
        "location": "",
        "format_version": 0,
        "columns": [],
        "partition_fields": [],
        "sort_fields": [],
        "properties": {},
        "refs": {},
        "snapshot": {"id": "", "operation": "", "summary": {}},
        "queries": {},
    }


def test_metadata_of_version_1_has_one_schema_one_spec_and_an_implied_main() -> None:
    shown: Any = table_of(
        {
            "format-version": 1,
            "location": "s3://b/t",
            "schema": {"type": "struct", "fields": [{"id": 1, "name": "day", "required": True, "type": "date"}]},
            "partition-spec": [{"name": "day", "transform": "identity", "source-id": 1, "field-id": 1000}],
            "current-snapshot-id": 5,
            "snapshots": [{"snapshot-id": 5}],
        }
    )
    assert [column["name"] for column in shown["columns"]] == ["day"]
    assert [field["source"] for field in shown["partition_fields"]] == ["day"]
    assert shown["refs"] == {"main": {"type": "branch", "snapshot_id": "5"}}
    assert shown["snapshot"] == {"id": "5", "operation": "", "summary": {}}


def test_what_only_views_have_hides_nothing_of_a_table() -> None:
    view = {
        "schemas": [*METADATA["schemas"], {"schema-id": 2, "type": "struct", "fields": []}],
        "versions": [{"version-id": 1, "schema-id": 2, "representations": []}],
        "current-version-id": 1,
    }
    assert table_of({**METADATA, **view})["columns"] == table_of(METADATA)["columns"]
    # Of what could be both, nobody can say which schema is in force.
    with pytest.raises(UnreadableMetadataError, match="view-uuid"):
        table_of({**METADATA, **view, "view-uuid": METADATA["table-uuid"]})


def test_a_view_is_shown_by_the_schema_of_its_current_version() -> None:
    shown: Any = table_of(
        {
            "view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385",
            "format-version": 1,
            "location": "s3://b/v",
            "current-version-id": 2,
            "versions": [
                {"version-id": 1, "schema-id": 0, "representations": [{"sql": "SELECT 0", "dialect": "hive"}]},
                {
                    "version-id": 2,
                    "schema-id": 1,
                    "representations": [
                        {"type": "sql", "sql": "SELECT 1", "dialect": "Spark"},
                        {"type": "sql", "sql": "SELECT 2", "dialect": "trino"},
                    ],
                },
            ],
            "schemas": METADATA["schemas"],
        }
    )
    assert shown["queries"] == {"spark": "SELECT 1", "trino": "SELECT 2"}
    assert shown["uuid"] == "fa6506c3-7681-40c8-86dc-e36561f83385"
    assert [column["name"] for column in shown["columns"]] == ["id", "tenant_id", "tags", "place"]


@pytest.mark.parametrize("current", [None, -1])
def test_a_table_without_snapshots_has_an_empty_one(current: int | None) -> None:
    shown: Any = table_of(METADATA | {"current-snapshot-id": current, "snapshots": [], "refs": {}})
    assert shown["snapshot"] == {"id": "", "operation": "", "summary": {}}
    assert shown["refs"] == {}


def test_a_partition_field_of_several_columns_shows_the_first() -> None:
    fields = [{"name": "x", "transform": "bucket[4]", "source-ids": [2, 1], "field-id": 1000}]
    shown: Any = table_of(METADATA | {"default-spec-id": 0, "partition-specs": [{"spec-id": 0, "fields": fields}]})
    assert [field["source"] for field in shown["partition_fields"]] == ["tenant_id"]


def test_properties_that_a_catalog_writes_bare_are_shown_as_json_spells_them() -> None:
    shown: Any = table_of(METADATA | {"properties": {"a": True, "b": 5, "c": 1.5, "d": None, "e": 2**60, "f": "x"}})
    assert shown["properties"] == {"a": "true", "b": "5", "c": "1.5", "d": "", "e": str(2**60), "f": "x"}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"current-schema-id": 9}, "current-schema-id"),
        ({"current-schema-id": None}, "current-schema-id"),
        ({"current-schema-id": "1"}, "current-schema-id"),
        ({"schemas": {}}, "schemas"),
        ({"schemas": [7]}, "schemas"),
        ({"default-spec-id": 9}, "default-spec-id"),
        ({"default-spec-id": None}, "default-spec-id"),
        ({"default-sort-order-id": 9}, "default-sort-order-id"),
        ({"current-snapshot-id": 8}, "current-snapshot-id"),
        ({"properties": []}, "properties"),
        ({"properties": {"a": []}}, "properties"),
        ({"format-version": "2"}, "format-version"),
        ({"format-version": True}, "format-version"),
        ({"format-version": 2**53}, "format-version"),
        ({"location": 1}, "location"),
        ({"refs": {"main": 1}}, "main"),
        ({"refs": {"main": {"snapshot-id": "1"}}}, "snapshot-id"),
    ],
)
def test_metadata_that_contradicts_the_specification_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(UnreadableMetadataError, match=named) as caught:
        table_of(METADATA | change)
    assert caught.value.status == 503


def test_the_variables_are_those_of_the_vocabulary() -> None:
    for table, result in [(None, None), (None, METADATA), (METADATA, None), (METADATA, METADATA)]:
        shown = variables(table=table, result=result, demanded=ON_DEMAND)
        assert has_exactly(shown, variables_of(POLICY))


def test_a_commit_shows_its_updates_and_the_snapshots_they_add() -> None:
    update = {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": SNAPSHOT_ID,
            "parent-snapshot-id": 7,
            "sequence-number": 1,
            "timestamp-ms": 1795173691186,
            "summary": {"operation": "append", "added-records": "3"},
        },
    }
    requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    commit = CommitView(
        catalog="lake",
        namespace=["db", "sub"],
        name="t",
        kind="table",
        operation="table.commit",
        actions=["META_ADD_SNAPSHOT"],
        updates=[update, {"action": "remove-snapshots", "snapshot-ids": [1, SNAPSHOT_ID]}],
        requirements=[requirement],
    )
    seen = variables(commit=commit)["commit"]
    assert {**seen, **{field: plain_json(seen[field]) for field in AS_REQUESTED["commit"]}} == {
        "catalog": "lake",
        "namespace": ["db", "sub"],
        "name": "t",
        "kind": "table",
        "operation": "table.commit",
        "actions": ["META_ADD_SNAPSHOT"],
        "purge": False,
        "updates": [
            {
                "action": "add-snapshot",
                "snapshot": {
                    "snapshot-id": "993863745535017463",
                    "parent-snapshot-id": "7",
                    "sequence-number": 1,
                    "timestamp-ms": 1795173691186,
                    "summary": {"operation": "append", "added-records": "3"},
                },
            },
            {"action": "remove-snapshots", "snapshot-ids": ["1", "993863745535017463"]},
        ],
        "requirements": [requirement],
        "snapshots": [
            {
                "id": "993863745535017463",
                "operation": "append",
                "summary": {"operation": "append", "added-records": "3"},
            }
        ],
    }
    policy = (
        f"commit.updates[0].snapshot['snapshot-id'] == '{SNAPSHOT_ID}'"
        f" && commit.updates[1]['snapshot-ids'] == ['1', commit.snapshots[0].id]"
        f" && commit.requirements[0]['snapshot-id'] == null"
    )
    for expression in (policy, f"[commit].all(commit, {policy})"):  # some fields of it, and the whole
        (result,) = Programs().judge([(POLICY, expression)], variables(commit=commit), log_id=1)
        assert result.outcome is Outcome.ALLOW, result


@pytest.mark.parametrize(
    "update",
    [
        {"action": "add-snapshot"},
        {"action": "add-snapshot", "snapshot": 7},
        {"action": "add-snapshot", "snapshot": {"snapshot-id": 1, "summary": []}},
        {"action": "add-snapshot", "snapshot": {"snapshot-id": "1"}},
    ],
)
def test_updates_that_cannot_be_shown_are_a_bad_request(update: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError, match="updates"):
        variables(commit=CommitView(catalog="l", namespace=(), name="t", kind="table", operation="o", updates=[update]))


@pytest.mark.parametrize(
    ("request_view", "client"),
    [
        (RequestView(method="POST", path="/"), ""),
        (RequestView(method="POST", path="/", user_agent="PyIceberg/0.12.0"), "PyIceberg/0.12.0"),
        (
            RequestView(method="POST", path="/", client_version="Apache Iceberg 1.12.0", user_agent="Java"),
            "Apache Iceberg 1.12.0",
        ),
        (RequestView(method="POST", path="/", client_version="x" * 5000), "x" * CLIENT_CHARACTERS_MAX),
    ],
)
def test_a_client_is_named_by_its_version_header_or_else_by_its_user_agent(
    request_view: RequestView, client: str
) -> None:
    assert variables(request=request_view)["request"]["client"] == client


def test_the_principal_is_shown_without_what_is_unknown() -> None:
    expected = {"actor": "0" * 32, "sub": "ann", "email": "", "roles": ["data-eng"], "source": "api_key"}
    assert variables()["principal"] == expected


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (INTEGER_MAX, INTEGER_MAX),
        (INTEGER_MAX + 1, "9007199254740992"),
        (-INTEGER_MAX - 1, "-9007199254740992"),
        (True, True),
        (0.1, "0.1"),
        ({"snapshot-id": 1}, {"snapshot-id": "1"}),
        ({"snapshot-id": None}, {"snapshot-id": None}),
        ({"snapshot-ids": [1, 2]}, {"snapshot-ids": ["1", "2"]}),
        ({"source-id": 1, "x": [None, "a", [2**60]]}, {"source-id": 1, "x": [None, "a", [str(2**60)]]}),
    ],
)
def test_numbers_that_readers_disagree_about_become_strings(value: Any, plain: Any) -> None:
    assert plain_json(value) == plain


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_json_may_be_nested_as_deep_as_allowed_and_no_deeper() -> None:
    assert plain_json(nested(DEPTH_MAX)) == nested(DEPTH_MAX)
    with pytest.raises(UnreadableMetadataError, match="levels"):
        plain_json(nested(DEPTH_MAX + 1))


@pytest.mark.parametrize("value", [b"x", {1}, object()])
def test_what_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(UnreadableMetadataError, match="expected JSON"):
        plain_json([value])


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=4))
json_values = st.recursive(
    st.one_of(scalars, st.sampled_from([0, 1, "main", "struct"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "id",
                    "name",
                    "type",
                    "fields",
                    "schema-id",
                    "spec-id",
                    "snapshot-id",
                    "summary",
                    "source-ids",
                    "element-id",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
any_metadata = st.dictionaries(
    st.sampled_from([*METADATA, "schema", "partition-spec", "versions", "current-version-id", "view-uuid"]),
    json_values,
    max_size=8,
)


def holds_wide_integer(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(holds_wide_integer(item) for item in value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(holds_wide_integer(item) for item in value)
    return isinstance(value, float) or (isinstance(value, int) and abs(value) > INTEGER_MAX)


@given(st.one_of(any_metadata, any_metadata.map(lambda change: METADATA | change)))
@settings(max_examples=50, deadline=None)
def test_any_metadata_has_all_fields_or_is_refused(metadata: dict[str, Any]) -> None:
    try:
        shown = table_of(metadata, demanded=ON_DEMAND["table"])
    except UnreadableMetadataError:
        return
    assert has_exactly(shown, variables_of(POLICY)["table"])
    assert not holds_wide_integer(shown)
    assert orjson.loads(orjson.dumps(shown)) == shown


@given(json_values)
@settings(max_examples=100, deadline=None)
def test_plain_json_is_json_without_wide_numbers_and_stays_as_it_is(value: Any) -> None:
    plain = plain_json(value)
    assert not holds_wide_integer(plain)
    assert plain_json(plain) == plain


def test_captured_commits_are_shown_and_judged(shared_data: Path) -> None:
    """Real requests of Spark, with the table that some of them left behind: all fields are there, and can be judged."""
    policy = [
        (
            POLICY,
            "result.exists && size(result.columns) > 0 && result.uuid != '' && result.format_version in [1, 2, 3]",
        ),
        (POLICY, "commit.updates.all(u, u.action != '') && commit.requirements.all(r, r.type.startsWith('assert-'))"),
        (POLICY, "commit.snapshots.all(s, s.id != '' && s.operation in ['append', 'overwrite', 'delete', 'replace'])"),
    ]
    programs, judged = Programs(), 0
    for path in sorted((shared_data / "spark-commits").glob("commit_*.json")):
        captured = json.loads(path.read_bytes())
        metadata = (captured.get("resp") or {}).get("metadata", METADATA)
        commit = CommitView(
            catalog="lake",
            namespace=("db",),
            name="t",
            kind="table",
            operation="table.commit",
            updates=captured["req"]["updates"],
            requirements=captured["req"]["requirements"],
        )
        shown = variables(result=metadata, commit=commit, demanded=ON_DEMAND)
        assert has_exactly(shown, variables_of(POLICY)), path.name
        assert {result.outcome for result in programs.judge(policy, shown, log_id=1)} == {Outcome.ALLOW}, path.name
        judged += 1
    assert judged > 10


def test_a_snapshot_without_a_summary_has_an_empty_one() -> None:
    assert snapshot_of({"snapshot-id": 1}) == {"id": "1", "operation": "", "summary": {}}
