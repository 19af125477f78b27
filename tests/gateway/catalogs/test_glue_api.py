# SPDX-License-Identifier: Apache-2.0
"""
The JSON API of AWS Glue, read and written: what an answer means, and a table as Glue is told of it.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import orjson
import pytest

from gateway.catalogs.catalog import Loaded
from gateway.catalogs.glue_api import (
    answer_of,
    check_name,
    columns,
    database_input,
    error_of,
    hive_type,
    is_iceberg,
    is_name,
    parse_database,
    parse_names,
    parse_table,
    properties_of,
    table_input,
)
from gateway.catalogs.glue_files import history_of
from gateway.catalogs.glue_options import login_options
from gateway.catalogs.replies import Answered, NeverSent, Unanswered, outcome_of
from gateway.catalogs.s3_objects import object_url
from gateway.errors import BadRequestError
from gateway.identifiers import Target
from gateway.mutations import Operation
from ledger.errors import FormatError
from ledger.format.events import CommitOutcome
from projections.lake.metadata_names import decision_of_file

ORDERS = Target(alias="far", namespace=("sales",), name="orders")
TABLE: dict[str, Any] = {
    "Name": "orders",
    "DatabaseName": "sales",
    "VersionId": "7",
    "CreateTime": 1_790_000_000,
    "Parameters": {"table_type": "iceberg", "metadata_location": "s3://b/orders/m/00006-x.metadata.json", "own": "1"},
    "StorageDescriptor": {"Columns": [], "Location": "s3://b/old", "Compressed": False},
}
METADATA: dict[str, Any] = {
    "location": "s3://b/orders",
    "current-schema-id": 1,
    "schemas": [
        {"schema-id": 0, "fields": []},
        {
            "schema-id": 1,
            "fields": [
                {"id": 1, "name": "id", "type": "long", "required": True, "doc": "the order"},
                {"id": 2, "name": "note", "type": "string", "required": False, "doc": "two\nlines"},
                {"id": 3, "name": "long", "type": "string", "doc": "ä" * 128},
            ],
        },
    ],
}


def glue_error(kind: object, **members: object) -> bytes:
    return orjson.dumps({"__type": kind, "message": "why", **members})


def answered(body: object, status: int = 200) -> Answered:
    return Answered(status=status, body=orjson.dumps(body))


# What Glue replies


@pytest.mark.parametrize(
    ("status", "kind", "outcome", "shown"),
    [
        (400, "ConcurrentModificationException", CommitOutcome.CONFLICTED, 409),
        (400, "com.amazonaws.glue#ConcurrentModificationException", CommitOutcome.CONFLICTED, 409),
        (400, "AlreadyExistsException", CommitOutcome.CONFLICTED, 409),
        (400, "EntityNotFoundException", CommitOutcome.REFUSED, 404),
        (400, "AccessDeniedException", CommitOutcome.REFUSED, 403),
        (403, "InvalidSignatureException", CommitOutcome.REFUSED, 401),
        (400, "ThrottlingException", CommitOutcome.REFUSED, 429),
        # These say nothing of what was done.
        (400, "OperationTimeoutException", CommitOutcome.UNKNOWN, None),
        (400, "FederationSourceRetryableException", CommitOutcome.UNKNOWN, None),
        (400, "GlueEncryptionException", CommitOutcome.UNKNOWN, None),
        (400, "ConcurrentModificationExceptionX", CommitOutcome.UNKNOWN, None),
        (500, "InternalServiceException", CommitOutcome.UNKNOWN, None),
        (500, "ConcurrentModificationException", CommitOutcome.UNKNOWN, None),
        (200, "ConcurrentModificationException", CommitOutcome.UNKNOWN, None),
        (400, ["ConcurrentModificationException"], CommitOutcome.UNKNOWN, None),
    ],
)
@pytest.mark.parametrize("operation", [Operation.TABLE_COMMIT, Operation.TABLE_DROP, Operation.NAMESPACE_UPDATE])
def test_an_error_says_that_nothing_was_done_only_if_it_is_known_to(
    status: int, kind: object, outcome: CommitOutcome, shown: int | None, operation: Operation
) -> None:
    reply = answer_of(Answered(status=status, body=glue_error(kind)), missing="NoSuchTableException")
    assert outcome_of(operation, reply).settled is outcome
    if shown is None:
        assert isinstance(reply, Unanswered)
    else:
        assert isinstance(reply, Answered)
        assert (reply.status, orjson.loads(reply.body)["error"]["code"]) == (shown, shown)


@pytest.mark.parametrize("body", [b"", b"{}", b" {}\n"])
def test_a_change_that_was_made_is_answered_with_nothing(body: bytes) -> None:
    reply = answer_of(Answered(status=200, body=body), missing="NoSuchTableException")
    assert outcome_of(Operation.TABLE_DROP, reply).settled is CommitOutcome.ACCEPTED


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b'{"Table":{}}', glue_error("X")])
def test_a_success_with_anything_else_is_none(body: bytes) -> None:
    reply = answer_of(Answered(status=200, body=body), missing="NoSuchTableException")
    assert outcome_of(Operation.TABLE_DROP, reply).settled is CommitOutcome.UNKNOWN


def test_what_was_never_sent_or_not_answered_stays_so() -> None:
    for reply in (NeverSent(cause="x"), Unanswered(cause="x")):
        assert answer_of(reply, missing="NoSuchTableException") is reply


def test_an_error_names_what_is_missing_as_the_protocol_does() -> None:
    reply = answer_of(
        Answered(status=400, body=glue_error("EntityNotFoundException")), missing="NoSuchNamespaceException"
    )
    assert isinstance(reply, Answered)
    assert orjson.loads(reply.body)["error"]["type"] == "NoSuchNamespaceException"


def test_the_text_of_an_error_is_bounded() -> None:
    name, message = error_of(Answered(status=400, body=glue_error("E" * 1_000, message="m" * 1_000)))
    assert (len(name), len(message)) == (100, 300)
    assert error_of(Answered(status=400, body=b"\xff")) == ("", "")


# Tables


def test_a_table_is_read_and_written_back_with_all_that_is_not_the_pointers() -> None:
    before = parse_table(answered({"Table": TABLE}), ORDERS)
    assert before is not None
    assert (before.metadata_location, before.version) == (TABLE["Parameters"]["metadata_location"], "7")
    written = table_input("orders", METADATA, location="s3://b/orders/m/00007-y.metadata.json", before=before)
    assert written["Parameters"] == {
        "own": "1",
        "table_type": "ICEBERG",
        "metadata_location": "s3://b/orders/m/00007-y.metadata.json",
        "previous_metadata_location": "s3://b/orders/m/00006-x.metadata.json",
    }
    assert written["StorageDescriptor"] == {
        "Columns": columns(METADATA),
        "Location": "s3://b/orders",
        "Compressed": False,
    }
    assert not {"VersionId", "CreateTime", "DatabaseName"} & written.keys(), "UpdateTable does not take them"
    assert before.table == TABLE, "what was read stays as it was"


def test_a_new_table_says_what_it_is_and_where() -> None:
    written = table_input("orders", METADATA, location="s3://b/m")
    assert written["Parameters"] == {"table_type": "ICEBERG", "metadata_location": "s3://b/m"}
    assert (written["Name"], written["TableType"]) == ("orders", "EXTERNAL_TABLE")


@pytest.mark.parametrize(
    "table",
    [
        {**TABLE, "Name": "ORDERS"},
        {**TABLE, "Name": None},
        {**TABLE, "VersionId": 7},
        {**TABLE, "VersionId": ""},
        {**TABLE, "StorageDescriptor": ["x"]},
        {**TABLE, "Parameters": {"table_type": "ICEBERG"}},
        {**TABLE, "Parameters": {"table_type": "ICEBERG", "metadata_location": ""}},
        {**TABLE, "Parameters": {"table_type": "ICEBERG", "metadata_location": "s3://b/\x00"}},
        {**TABLE, "Parameters": {"table_type": "ICEBERG", "metadata_location": "s3://b/" + "x" * 4_096}},
        [],
        None,
    ],
)
def test_what_is_no_answer_about_the_table_is_refused(table: object) -> None:
    with pytest.raises(FormatError):
        parse_table(answered({"Table": table}), ORDERS)


@pytest.mark.parametrize(
    "parameters", [None, {}, [], {"table_type": "HUDI"}, {"table_type": None}, {"table_type": ["ICEBERG"]}]
)
def test_a_table_of_another_kind_is_none(parameters: object) -> None:
    assert parse_table(answered({"Table": {**TABLE, "Parameters": parameters}}), ORDERS) is None
    assert not is_iceberg({"Parameters": parameters})


@pytest.mark.parametrize("page", [{}, {"TableList": None}, {"TableList": ["t"]}, {"TableList": [{"Name": 1}]}, []])
def test_what_is_no_page_is_refused(page: object) -> None:
    with pytest.raises(FormatError):
        parse_names(answered(page), "TableList")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("long", "bigint"),
        ("decimal(9, 2)", "decimal(9,2)"),
        ("fixed[16]", "binary"),
        ("uuid", "string"),
        ("time", "string"),
        ("timestamptz", "timestamp"),
        ("timestamp_ns", "string"),
        ("variant", "string"),
        ({"type": "list", "element-id": 2, "element": "int", "element-required": True}, "array<int>"),
        ({"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "double"}, "map<string,double>"),
        (
            {
                "type": "struct",
                "fields": [{"id": 2, "name": "a", "type": "int"}, {"id": 3, "name": "b", "type": "date"}],
            },
            "struct<a:int,b:date>",
        ),
        ({"type": "unheard-of"}, "string"),
        (None, "string"),
    ],
)
def test_a_type_is_written_as_hive_writes_it(kind: object, expected: str) -> None:
    assert hive_type(kind) == expected


def test_the_columns_are_those_of_the_current_schema_with_comments_that_glue_takes() -> None:
    assert columns(METADATA) == [
        {
            "Name": "id",
            "Type": "bigint",
            "Comment": "the order",
            "Parameters": {"iceberg.field.id": "1", "iceberg.field.optional": "false", "iceberg.field.current": "true"},
        },
        *(
            {
                "Name": name,
                "Type": "string",
                "Parameters": {
                    "iceberg.field.id": field_id,
                    "iceberg.field.optional": "true",
                    "iceberg.field.current": "true",
                },
            }
            for name, field_id in (("note", "2"), ("long", "3"))
        ),
    ]
    first_version = {"schema": {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "int", "required": True}]}}
    assert [each["Name"] for each in columns(first_version)] == ["id"]


def test_a_schema_that_another_client_has_written_in_any_way_stops_no_commit() -> None:
    nested: dict[str, Any] = {"type": "list", "element": "int"}
    for _ in range(2_000):
        nested = {"type": "list", "element": nested}
    wide = {"type": "struct", "fields": [{"id": n, "name": f"f{n}", "type": "int"} for n in range(10_000)]}
    odd = {"type": "struct", "fields": ["x", None, {"name": "a"}, {"type": "int"}]}
    fields = [
        7,
        {"name": 7},
        {"name": "bare"},
        *({"name": f"c{n}", "type": each} for n, each in enumerate((nested, wide, odd))),
    ]
    schema = {"schema-id": 0, "fields": fields}
    deep = f"{'array<' * 101}string{'>' * 101}"
    assert [(each["Name"], each["Type"]) for each in columns({"current-schema-id": 0, "schemas": [schema]})] == [
        ("bare", "string"),
        ("c0", deep),
        ("c1", "string"),
        ("c2", "struct<a:string>"),
    ]


# Databases


def test_a_database_is_read_and_written_back_with_all_that_is_no_property() -> None:
    database = {
        "Name": "sales",
        "Description": "all sales",
        "LocationUri": "s3://b/sales",
        "Parameters": {"owner": "ada"},
        "CreateTableDefaultPermissions": [{"Permissions": ["ALL"]}],
        "CreateTime": 1,
    }
    found = parse_database(answered({"Database": database}), "sales")
    assert properties_of(found) == {"owner": "ada", "comment": "all sales", "location": "s3://b/sales"}
    assert database_input("sales", properties_of(found), before=found) == {
        name: database[name] for name in database if name != "CreateTime"
    }
    assert database_input("sales", {"owner": "eve"}, before=found) == {
        "Name": "sales",
        "Parameters": {"owner": "eve"},
        "CreateTableDefaultPermissions": [{"Permissions": ["ALL"]}],
    }


@pytest.mark.parametrize("database", [None, [], {"Name": "SALES"}, {"Name": "sales", "Parameters": {"a": 1}}])
def test_what_is_no_answer_about_the_database_is_refused(database: object) -> None:
    with pytest.raises(FormatError):
        parse_database(answered({"Database": database}), "sales")


@pytest.mark.parametrize("name", ["orders", "orders_2", "2-orders", "x" * 255])
def test_a_name_that_stands_for_itself_is_known(name: str) -> None:
    assert is_name(name)
    check_name(name, field="name")


@pytest.mark.parametrize("name", ["", "Orders", "größe", "a.b", "a b", "orders\n", "x" * 256, "ﬁ"])
def test_any_other_name_is_refused(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(BadRequestError, match=r"^name: "):
        check_name(name, field="name")


# Files


DECISION = UUID("0190163d-8694-739b-aea5-966c26f8ad91")


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (f"s3://b/m/00003-{DECISION}.metadata.json", str(DECISION)),
        (f"s3://b/m/{DECISION}.metadata.json", str(DECISION)),
        (f"s3://b/m/00003-{str(DECISION).upper()}.metadata.json", None),
        (f"s3://b/m/00003-{DECISION.hex}.metadata.json", None),
        (f"s3://b/m/00003-{DECISION}.gz.metadata.json", None),
        (f"s3://b/{DECISION}/v3.metadata.json", None),
        ("", None),
    ],
)
def test_the_name_of_a_file_tells_its_decision(location: str, expected: str | None) -> None:
    assert decision_of_file(location) == expected


def test_the_files_that_a_table_names_are_its_history_newest_first() -> None:
    log = [{"metadata-file": f"s3://b/{name}", "timestamp-ms": 1_000 + int(name)} for name in "012"]
    found = Loaded(
        namespace_exists=True,
        metadata={"metadata-log": log, "last-updated-ms": 1_003},
        metadata_location=f"s3://b/00003-{DECISION}.metadata.json",
    )
    history = history_of(found)
    assert history.compares
    made = history.of(DECISION)
    assert made is not None
    assert made.metadata_location == found.metadata_location
    assert [commit.metadata_location for commit in history.commits[1:]] == ["s3://b/2", "s3://b/1", "s3://b/0"]


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"metadata-log": "x"},
        {"metadata-log": [{}]},
        {"metadata-log": [{"metadata-file": "f", "timestamp-ms": "x"}]},
        {"metadata-log": [{"metadata-file": "f", "timestamp-ms": 10**30}]},
        {"metadata-log": [7]},
    ],
)
def test_a_table_that_names_no_files_as_it_should_has_no_history(metadata: dict[str, Any] | None) -> None:
    location = None if metadata is None else "s3://b/m"
    history = history_of(Loaded(namespace_exists=True, metadata=metadata, metadata_location=location))
    assert (history.commits, history.compares) == ((), True)


def test_an_object_is_named_by_its_bucket_and_every_character_of_its_key() -> None:
    assert object_url("https://s3.example", "s3://b/a b/dt=1+2/ä%20.json") == (
        "https://s3.example/b/a%20b/dt%3D1%2B2/%C3%A4%2520.json"
    )
    assert object_url("https://s3.example", "s3a://b/k") == "https://s3.example/b/k"
    for location in ("file:///etc/passwd", "/etc/passwd", "gs://b/k", "s3://"):
        with pytest.raises(BadRequestError):
            object_url("https://s3.example", location)


def test_amazons_own_hosts_are_where_no_endpoint_says_otherwise() -> None:
    options = {
        f"{service}.{name}": "x" for service in ("glue", "s3") for name in ("access-key-id", "secret-access-key")
    }
    here = {**options, "glue.region": "eu-central-1", "s3.region": "eu-west-1"}
    assert login_options(here, "glue")["uri"] == "https://glue.eu-central-1.amazonaws.com"
    assert login_options(here, "s3")["uri"] == "https://s3.eu-west-1.amazonaws.com"
    assert login_options({**here, "glue.region": "cn-north-1"}, "glue")["uri"].endswith(".cn-north-1.amazonaws.com.cn")
    assert login_options({**here, "s3.endpoint": "http://minio:9000"}, "s3")["uri"] == "http://minio:9000"
