# SPDX-License-Identifier: Apache-2.0
"""
The fields of policies' variables that are made only where a policy reads them, and what they say.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from gateway.metadata.draft import TableMetadata
from gateway.policy import table as tables
from gateway.policy.cel.programs import Programs
from gateway.policy.engine import POLICY, Outcome
from gateway.policy.table import PATHS_CHARACTERS_MAX, UnreadableMetadataError, table_of
from gateway.policy.variables import CommitView, PrincipalView, RequestView, activation
from gateway.policy.vocabulary import ON_DEMAND, variables_of
from gateway.policy.words import on_demand, reads

T0_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
DAY_MS = 86_400_000
NESTED: list[dict[str, Any]] = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {
        "id": 2,
        "name": "address",
        "required": False,
        "doc": "where it goes",
        "type": {
            "type": "struct",
            "fields": [
                {"id": 3, "name": "city", "required": True, "type": "string", "doc": "without the state"},
                {
                    "id": 4,
                    "name": "lines",
                    "required": False,
                    "type": {"type": "list", "element-id": 5, "element": "string", "element-required": True},
                },
            ],
        },
    },
    {
        "id": 6,
        "name": "prices",
        "required": False,
        "type": {
            "type": "map",
            "key-id": 7,
            "key": "string",
            "value-id": 8,
            "value-required": False,
            "value": {
                "type": "struct",
                "fields": [{"id": 9, "name": "amount", "required": True, "type": "decimal(9, 2)"}],
            },
        },
    },
]


def schema(fields: list[dict[str, Any]], schema_id: int = 0) -> dict[str, Any]:
    return {"schema-id": schema_id, "type": "struct", "fields": fields}


def metadata(fields: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "format-version": 2,
        "table-uuid": "c37b2f7d-74f1-4084-a4bf-1fd6a3b975c7",
        "location": "s3://acme-eu-central-1/t",
        "current-schema-id": 0,
        "schemas": [schema(NESTED if fields is None else fields)],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
    }


def snapshot(number: int, parent: int | None = None, *, operation: str = "append") -> dict[str, Any]:
    shown: dict[str, Any] = {
        "snapshot-id": number,
        "timestamp-ms": T0_MS + number * DAY_MS,
        "summary": {"operation": operation},
    }
    return shown if parent is None else {**shown, "parent-snapshot-id": parent}


CHAIN = [snapshot(1), snapshot(2, 1), snapshot(3, 2), snapshot(4, 3)]


def with_snapshots(snapshots: list[dict[str, Any]], **refs: int) -> dict[str, Any]:
    named = {name: {"snapshot-id": number, "type": "tag"} for name, number in refs.items() if name != "main"}
    main = {"main": {"snapshot-id": refs["main"], "type": "branch"}} if "main" in refs else {}
    members = {"snapshots": snapshots, "current-snapshot-id": refs.get("main", -1), "refs": {**main, **named}}
    return {**metadata(), **members}


def variables(
    table: dict[str, Any] | None, result: dict[str, Any] | None, *, operation: str = "table.commit", purge: bool = False
) -> Any:
    return activation(
        table=table,
        result=result,
        commit=CommitView(
            catalog="lake", namespace=("sales",), name="t", kind="table", operation=operation, purge=purge
        ),
        principal=PrincipalView(
            actor="0" * 32, source="jwt", groups=("analysts",), attributes=(("department", "risk"),)
        ),
        request=RequestView(method="POST", path="/", time="2026-01-31T00:00:00.000000Z", address="192.0.2.7"),
    )


def holds(expression: str, shown: dict[str, Any]) -> Outcome:
    programs = Programs()
    programs.check(expression, kind=POLICY)
    (result,) = programs.judge([(POLICY, expression)], shown, log_id=1)
    return result.outcome


def test_fields_are_the_columns_of_every_level_with_their_paths() -> None:
    shown: Any = table_of(metadata(), demanded=frozenset({"fields"}))["fields"]
    assert shown[0] == {"path": "id", "id": 1, "name": "id", "type": "long", "required": True, "doc": ""}
    assert [(one["path"], one["id"], one["type"], one["required"], one["doc"]) for one in shown] == [
        ("id", 1, "long", True, ""),
        ("address", 2, "struct", False, "where it goes"),
        ("address.city", 3, "string", True, "without the state"),
        ("address.lines", 4, "list", False, ""),
        ("address.lines.element", 5, "string", True, ""),
        ("prices", 6, "map", False, ""),
        ("prices.key", 7, "string", True, ""),
        ("prices.value", 8, "struct", False, ""),
        ("prices.value.amount", 9, "decimal(9, 2)", True, ""),
    ]


def test_paths_are_bounded_in_all() -> None:
    name = "n" * (PATHS_CHARACTERS_MAX // 1_000)
    inner = [{"id": number, "name": "x", "required": False, "type": "int"} for number in range(2, 1_002)]
    deep = [{"id": 1, "name": name, "required": False, "type": {"type": "struct", "fields": inner}}]
    with pytest.raises(UnreadableMetadataError, match="paths of at most"):
        table_of(metadata(deep), demanded=frozenset({"fields"}))


@pytest.mark.parametrize("name", sorted(ON_DEMAND["table"]))
def test_only_what_is_demanded_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(one: str, _: object) -> list[Any]:
        made.append(one)
        return []

    monkeypatch.setattr(tables, "_ON_DEMAND", {one: partial(make, one) for one in ON_DEMAND["table"]})
    kept = TableMetadata(metadata())
    assert name not in table_of(kept)
    assert made == []
    assert table_of(kept, demanded=frozenset({name}))[name] == []
    assert table_of(kept, demanded=frozenset({name}))[name] == []
    assert made == [name]  # once for metadata that does not change
    assert name not in table_of(kept)


def test_the_same_schema_has_the_same_fields() -> None:
    before = metadata()
    after = {**before, "properties": {"a": "b"}}
    kept, next_one, demanded = TableMetadata(before), TableMetadata(after), frozenset({"fields"})
    fields = table_of(kept, demanded=demanded)["fields"]
    assert table_of(next_one, before=kept, demanded=demanded)["fields"] is fields


def test_a_table_that_does_not_exist_has_empty_lists() -> None:
    shown = table_of(None, demanded=ON_DEMAND["table"])
    assert {name: shown[name] for name in ON_DEMAND["table"]} == {name: [] for name in ON_DEMAND["table"]}


def test_snapshots_have_their_times_and_whether_a_ref_leads_to_them() -> None:
    shown: Any = table_of(with_snapshots([*CHAIN, snapshot(9)], main=3), demanded=frozenset({"snapshots"}))
    assert shown["snapshots"][1] == {
        "id": "2",
        "operation": "append",
        "summary": {"operation": "append"},
        "parent_id": "1",
        "timestamp": "2026-01-03T00:00:00.000Z",
        "referenced": True,
    }
    assert [(one["id"], one["referenced"]) for one in shown["snapshots"]] == [
        ("1", True),
        ("2", True),
        ("3", True),
        ("4", False),
        ("9", False),
    ]


@pytest.mark.parametrize("parent", [1, 2])
def test_snapshots_whose_parents_go_round_in_a_circle_have_an_end(parent: int) -> None:
    circle = [snapshot(1, 2), snapshot(2, parent)]
    shown: Any = table_of(with_snapshots(circle, main=2), demanded=frozenset({"snapshots"}))
    assert all(one["referenced"] for one in shown["snapshots"] if one["id"] == "2")


def test_a_time_that_is_none_is_refused_and_one_that_is_missing_is_empty() -> None:
    wrong = {**snapshot(1), "timestamp-ms": 2**62}
    with pytest.raises(UnreadableMetadataError, match="timestamp-ms"):
        table_of(with_snapshots([wrong], main=1), demanded=frozenset({"snapshots"}))
    missing = {name: value for name, value in snapshot(1).items() if name != "timestamp-ms"}
    shown: Any = table_of(with_snapshots([missing], main=1), demanded=frozenset({"snapshots"}))
    assert shown["snapshots"][0]["timestamp"] == ""


def test_refs_have_what_they_keep_and_statistics_their_files() -> None:
    shown: Any = table_of(
        {
            **with_snapshots(CHAIN, main=4),
            "refs": {
                "main": {"snapshot-id": 4, "type": "branch", "min-snapshots-to-keep": 3, "max-snapshot-age-ms": DAY_MS},
                "v1": {"snapshot-id": 2, "type": "tag", "max-ref-age-ms": 7 * DAY_MS},
            },
            "statistics": [
                {
                    "snapshot-id": 4,
                    "statistics-path": "s3://b/t/4.puffin",
                    "file-size-in-bytes": 413,
                    "blob-metadata": [{"type": "apache-datasketches-theta-v1"}],
                }
            ],
            "partition-statistics": [{"snapshot-id": 4, "statistics-path": "s3://b/t/4.parquet"}],
        },
        demanded=frozenset({"ref_list", "statistics"}),
    )
    assert shown["ref_list"] == [
        {
            "name": "main",
            "type": "branch",
            "snapshot_id": "4",
            "timestamp": "2026-01-05T00:00:00.000Z",
            "max_ref_age_ms": 0,
            "max_snapshot_age_ms": DAY_MS,
            "min_snapshots_to_keep": 3,
        },
        {
            "name": "v1",
            "type": "tag",
            "snapshot_id": "2",
            "timestamp": "2026-01-03T00:00:00.000Z",
            "max_ref_age_ms": 7 * DAY_MS,
            "max_snapshot_age_ms": 0,
            "min_snapshots_to_keep": 0,
        },
    ]
    assert shown["statistics"] == [
        {
            "kind": "table",
            "snapshot_id": "4",
            "path": "s3://b/t/4.puffin",
            "size_bytes": 413,
            "blob_types": ["apache-datasketches-theta-v1"],
        },
        {"kind": "partition", "snapshot_id": "4", "path": "s3://b/t/4.parquet", "size_bytes": 0, "blob_types": []},
    ]


# Columns that change


def test_columns_are_the_same_by_their_ids() -> None:
    after = [
        {"id": 1, "name": "key", "required": True, "type": "long"},  # another name
        {
            "id": 2,
            "name": "address",
            "required": False,
            "doc": "where it goes",
            "type": {"type": "struct", "fields": []},
        },
        {"id": 10, "name": "prices", "required": True, "type": "string"},  # another column of the name
    ]
    commit = variables(metadata(), metadata(after))["commit"]
    assert [one["path"] for one in commit["added_columns"]] == ["prices"]
    assert [one["path"] for one in commit["removed_columns"]] == [
        *("address.city", "address.lines", "address.lines.element"),
        *("prices", "prices.key", "prices.value", "prices.value.amount"),
    ]
    assert commit["changed_columns"] == [
        {
            "path": "key",
            "id": 1,
            "name": "key",
            "type": "long",
            "required": True,
            "doc": "",
            "old_path": "id",
            "old_type": "long",
            "old_required": True,
            "old_doc": "",
        }
    ]


@pytest.mark.parametrize(
    ("change", "old"),
    [
        ({"type": "string"}, {"old_type": "long"}),
        ({"required": False}, {"old_required": True}),
        ({"doc": "the key"}, {"old_doc": ""}),
    ],
)
def test_a_column_changes_with_its_type_its_doc_and_whether_it_is_required(
    change: dict[str, Any], old: dict[str, Any]
) -> None:
    after = [{**NESTED[0], **change}, *NESTED[1:]]
    (changed,) = variables(metadata(), metadata(after))["commit"]["changed_columns"]
    assert {**changed, **change, **old} == changed


def test_all_columns_of_a_created_table_are_added_and_all_of_a_dropped_one_removed() -> None:
    created, dropped = variables(None, metadata())["commit"], variables(metadata(), None)["commit"]
    assert len(created["added_columns"]) == len(dropped["removed_columns"]) == 9
    assert created["removed_columns"] == created["changed_columns"] == dropped["added_columns"] == []


def test_no_column_changes_without_another_schema() -> None:
    before = metadata()
    commit = variables(TableMetadata(before), TableMetadata({**before, "properties": {"a": "b"}}))["commit"]
    assert commit["added_columns"] == commit["removed_columns"] == commit["changed_columns"] == []


# Snapshots that are removed

P3 = "commit.removed_snapshots.all(s, age(s.timestamp) >= duration('648h'))"  # 27 days
"""On 31 January, snapshots 1 to 4 are 29, 28, 27 and 26 days old."""


@pytest.mark.parametrize(
    ("result", "removed", "outcome"),
    [
        (with_snapshots(CHAIN, main=4, v=1), [], Outcome.ALLOW),
        (with_snapshots([*CHAIN, snapshot(5, 4)], main=5, v=1), [], Outcome.ALLOW),  # an append
        (with_snapshots([*CHAIN, snapshot(5, 4, operation="overwrite")], main=5, v=1), [], Outcome.ALLOW),
        (with_snapshots(CHAIN[1:], main=4), [("1", False)], Outcome.ALLOW),  # remove-snapshots
        (with_snapshots(CHAIN[2:], main=4), [("1", False), ("2", False)], Outcome.ALLOW),
        (with_snapshots(CHAIN[3:], main=4), [("1", False), ("2", False), ("3", False)], Outcome.ALLOW),
        (with_snapshots(CHAIN, main=3, v=1), [("4", True)], Outcome.DENY),  # set back
        (with_snapshots(CHAIN[:3], main=3, v=1), [("4", False)], Outcome.DENY),
        (with_snapshots([*CHAIN, snapshot(5)], main=5, v=1), [("2", True), ("3", True), ("4", True)], Outcome.DENY),
        (with_snapshots(CHAIN, v=1), [("2", True), ("3", True), ("4", True)], Outcome.DENY),  # remove-snapshot-ref
    ],
)
def test_snapshots_are_removed_when_they_are_gone_or_no_ref_leads_to_them(
    result: dict[str, Any], removed: list[tuple[str, bool]], outcome: Outcome
) -> None:
    shown = variables(with_snapshots(CHAIN, main=4, v=1), result)
    found = shown["commit"]["removed_snapshots"]
    assert [(one["id"], one["kept"]) for one in found] == removed
    assert all(one["referenced"] for one in found)
    assert holds(P3, shown) is outcome


def test_a_snapshot_that_no_ref_led_to_is_removed_only_with_its_metadata() -> None:
    table = with_snapshots([*CHAIN, snapshot(9)], main=4)
    assert variables(table, with_snapshots([*CHAIN, snapshot(9)], main=4))["commit"]["removed_snapshots"] == []
    (gone,) = variables(table, with_snapshots(CHAIN, main=4))["commit"]["removed_snapshots"]
    assert (gone["id"], gone["referenced"], gone["kept"]) == ("9", False, False)


@pytest.mark.parametrize(("purge", "count", "outcome"), [(True, 4, Outcome.DENY), (False, 0, Outcome.ALLOW)])
def test_a_drop_removes_snapshots_only_if_it_purges(purge: bool, count: int, outcome: Outcome) -> None:
    shown = variables(with_snapshots(CHAIN, main=4), None, operation="table.drop", purge=purge)
    assert len(shown["commit"]["removed_snapshots"]) == count
    assert holds(P3, shown) is outcome


def test_a_created_table_removes_nothing() -> None:
    assert variables(None, with_snapshots(CHAIN, main=4))["commit"]["removed_snapshots"] == []


# Who asks, and when


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [
        ("'analysts' in principal.groups", Outcome.ALLOW),
        ("'traders' in principal.groups", Outcome.DENY),
        ("principal.attributes.department == 'risk'", Outcome.ALLOW),
        ("principal.attributes.country == 'DE'", Outcome.ERROR),
        ("'country' in principal.attributes", Outcome.DENY),
        ("request.address.startsWith('192.0.2.')", Outcome.ALLOW),
        ("timestamp(request.time).getFullYear() == 2026", Outcome.ALLOW),
        ("timestamp(request.time).getDayOfWeek() == 6", Outcome.ALLOW),  # a Saturday
        ("age('2026-01-30T12:00:00Z') == duration('12h')", Outcome.ALLOW),
        ("age(timestamp('2026-02-01T00:00:00Z')) < duration('0s')", Outcome.ALLOW),
        ("age('') < duration('1h')", Outcome.ERROR),
        ("age('yesterday') < duration('1h')", Outcome.ERROR),
        ("age(1) > duration('1h')", Outcome.ALLOW),  # a second after 1970
    ],
)
def test_policies_see_who_asks_and_when(expression: str, outcome: Outcome) -> None:
    assert holds(expression, variables(None, None)) is outcome


def test_without_a_time_there_is_no_age() -> None:
    shown = variables(None, None)
    del shown["request"]["time"]
    assert holds("age('2026-01-30T12:00:00Z') == duration('12h')", shown) is Outcome.ERROR


# What is demanded


@pytest.mark.parametrize(
    ("expressions", "demanded"),
    [
        ([], {}),
        (["result.columns.all(c, c.doc != '')", "principal.roles == [] && request.method == 'POST'"], {}),
        (["result.fields.all(c, c.doc != '')"], {"result": {"fields"}}),
        (
            ["commit.added_columns == []", "commit.removed_snapshots == []"],
            {"commit": {"added_columns", "removed_snapshots"}},
        ),
        (["has_column(table, 'x')", "region(result) != ''"], {"table": {"fields"}}),
        (["has_partition(result, 'x')"], {}),
        (["is_narrowed(table, result)"], {"table": {"fields"}, "result": {"fields"}}),
        (["is_narrowed( table , result )"], {"table": {"fields"}, "result": {"fields"}}),
        (["age('2026-01-30T12:00:00Z') > duration('1h')"], {"request": {"time"}}),
        (["age // (\n (commit.name) > duration('1h')"], {"request": {"time"}}),
        (["age // a\n\n // (\n (commit.name) > duration('1h')"], {"request": {"time"}}),
        (["commit.name == 'age'"], {}),
        (["true //" + "age// " * 2_000], {}),  # quickly
        (["principal.groups == []", "request.address == ''"], {"principal": {"groups"}, "request": {"address"}}),
        (["findings.columns == [] && findings.as_of > 0"], {"findings": {"columns", "as_of"}}),
        (["findings.columns == []", "'findings-open' in table.properties"], {"findings": {"columns"}}),
        (["commit.name != 'findings.columns' // findings.columns"], {}),
        (["table.columns.all(c, c.findings == 'x')"], {}),
        (["commit.name != 'it\\'s' // findings"], {"findings": ON_DEMAND["findings"]}),
        (["size(findings) > 0"], {"findings": ON_DEMAND["findings"]}),
        (["lineage.upstream == []", "commit.name != 'lineage'"], {"lineage": {"upstream"}}),
    ],
)
def test_what_is_demanded_is_what_policies_name(expressions: list[str], demanded: dict[str, set[str]]) -> None:
    assert on_demand(expressions) == demanded


def test_a_table_as_a_whole_demands_all_of_it() -> None:
    assert on_demand(("table == result",)) == {name: ON_DEMAND[name] for name in ("table", "result")}


@pytest.mark.parametrize(
    "expression",
    [
        "table == // has_column(\n table",
        "(table == // has_column(\n table)",
        "x.has_column(table, 'a')",
        "f(table, 'a')",
        "has_column(b ? table : result, 'a')",
        "has_column(table == result, 'a')",
        "has_column(table) == // \n (table)",
    ],
)
def test_only_a_function_of_tables_reads_less_than_a_whole_table(expression: str) -> None:
    assert reads(expression, variables_of(POLICY))["table"] is None
