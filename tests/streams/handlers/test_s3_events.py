# SPDX-License-Identifier: Apache-2.0
"""S3's messages: what they say is taken or refused, and nothing in them breaks the parser; whose a location is."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote_plus
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.store.read import Log
from projections.relational.catalogs import CatalogRow
from streams.errors import PoisonError
from streams.handler import Message
from streams.handlers.catalog_locations import CatalogLocations
from streams.handlers.s3_messages import BODY_SIZE_BYTES_MAX, CreatedObject, FileKind, parse_s3_event, table_file
from streams.handlers.triggers import FILES_MAX, FILES_SIZE_BYTES_MAX, data_trigger, gather
from testkit.streams.answering import NOON

ACME = Log(log_id=2, origin="lp/acme", tenant=UUID(int=1 << 64), reader="acme")
BETA = Log(log_id=3, origin="lp/beta", tenant=UUID(int=2 << 64), reader="beta")
SYSTEM = Log(log_id=1, origin="lp/system", tenant=None, reader=None)
WAREHOUSE = "s3://ours/wh"
METADATA = "wh/sales/orders/metadata/00001-a.metadata.json"

# The example of the user guide, "Event message structure", version 2.1, with a versioned key.
EXAMPLE = r"""{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"us-west-2",
"eventTime":"1970-01-01T00:00:00.000Z","eventName":"ObjectCreated:Put",
"userIdentity":{"principalId":"AIDAJDPLRKLG7UEXAMPLE"},"requestParameters":{"sourceIPAddress":"172.16.0.1"},
"responseElements":{"x-amz-request-id":"C3D13FE58DE4C810","x-amz-id-2":"FMyUVURIY8/IgAtTv8xRjskZQpcIZ9KG4V5Wp6S7S"},
"s3":{"s3SchemaVersion":"1.0","configurationId":"testConfigRule","bucket":{"name":"amzn-s3-demo-bucket",
"ownerIdentity":{"principalId":"A3NL1KOZZKExample"},"arn":"arn:aws:s3:::amzn-s3-demo-bucket"},
"object":{"key":"HappyFace.jpg","size":1024,"eTag":"d41d8cd98f00b204e9800998ecf8427e",
"versionId":"096fKKXTRTtl3on89fVO.nfljtsv6qko","sequencer":"0055AED6DCD90281E5"}}}]}"""


def record(key: str = METADATA, *, name: str = "ObjectCreated:Put", bucket: str = "lake") -> dict[str, Any]:
    return {"eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": quote_plus(key)}}}


def direct(*records: object) -> str:
    return json.dumps({"Records": list(records)})


def through_sns(message: str) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "1", "TopicArn": "arn", "Message": message})


def message(body: str, id_: str = "sqs/1") -> Message:
    return Message(id=id_, log=SYSTEM, value=body.encode())


def rest(log: Log, alias: str, location: str) -> CatalogRow:
    return CatalogRow(log=log, alias=alias, kind="rest", options={"uri": "http://x", "location": location})


PLACES = CatalogLocations.of([rest(ACME, "lake", "s3://lake/wh")], warehouse=WAREHOUSE)


def test_the_example_of_the_user_guide_is_read() -> None:
    assert parse_s3_event(EXAMPLE) == (CreatedObject(bucket="amzn-s3-demo-bucket", key="HappyFace.jpg"),)


@pytest.mark.parametrize("wrap", [lambda body: body, through_sns, lambda body: body.encode()])
def test_a_message_is_the_same_through_a_topic_and_without_one(wrap: Any) -> None:
    created = parse_s3_event(wrap(direct(record(), record("wh/data/a.parquet"))))
    assert [each.location for each in created] == [f"s3://lake/{METADATA}", "s3://lake/wh/data/a.parquet"]


@pytest.mark.parametrize("key", ["a b/c", "a+b", "ü/ß", "a%20b", "x=1/y&z", "käse/東京/🧀"])
def test_keys_are_decoded_as_forms_are(key: str) -> None:
    assert parse_s3_event(direct(record(key)))[0].key == key


@pytest.mark.parametrize("wrap", [lambda body: body, through_sns])
def test_the_test_message_says_nothing(wrap: Any) -> None:
    test = {"Service": "Amazon S3", "Event": "s3:TestEvent", "Time": "2014-10-13T15:57:02.089Z", "Bucket": "lake"}
    assert parse_s3_event(wrap(json.dumps(test))) == ()


def test_other_events_beside_a_creation_are_passed_over() -> None:
    assert len(parse_s3_event(direct(record(name="ObjectRemoved:Delete"), record(name="s3:ObjectCreated:Copy")))) == 1


@pytest.mark.parametrize(
    "body",
    [
        "",
        "no json",
        "[]",
        "null",
        "{}",
        '{"Records": []}',
        '{"Records": {}}',
        '{"Records": [1]}',
        '{"Records": [{"eventName": 5}]}',
        '{"Records": [{"eventName": "ObjectCreated:Put"}]}',
        direct(record(name="ObjectRemoved:Delete")),
        direct(record(bucket="No Bucket")),
        direct(record("")),
        direct(record("a\nb")),
        direct(record("x" * 1_025)),
        direct({"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "lake"}, "object": {"key": "%ff"}}}),
        direct({"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "lake"}, "object": {"key": "\ud800"}}}),
        json.dumps({"Type": "Notification", "Message": 5}),
        json.dumps({"Type": "SubscriptionConfirmation", "Token": "t"}),
        through_sns("no json"),
        "[" * 100_000,
        '{"Records": ' + "9" * 5_000 + "}",
        " " * (BODY_SIZE_BYTES_MAX + 1),
        b"\xff\xfe",
    ],
)
def test_what_is_no_such_message_is_poison_with_a_reason(body: str | bytes) -> None:
    with pytest.raises(PoisonError, match="expected"):
        parse_s3_event(body)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["Records", "Message", "Type", "Event", "eventName", "s3", "bucket", "object", "key", "name"]
                )
                | st.text(),
                inner,
            )
        ),
    )
)
@settings(max_examples=40)
def test_nothing_else_leaves_the_parser(value: object) -> None:
    for body in (json.dumps(value), json.dumps({"Records": [value]}), through_sns(json.dumps(value))):
        with suppress(PoisonError):
            parse_s3_event(body)


@pytest.mark.parametrize(
    ("key", "kind", "table"),
    [
        (METADATA, FileKind.METADATA, "s3://lake/wh/sales/orders"),
        ("t/metadata/v3.gz.metadata.json", FileKind.METADATA, "s3://lake/t"),
        ("t/metadata/v3.metadata.json.gz", FileKind.METADATA, "s3://lake/t"),
        ("metadata/v1.metadata.json", FileKind.METADATA, "s3://lake"),
        ("t/data/day=2026-11-20/a.parquet", FileKind.DATA, "s3://lake/t"),
        ("t/data/0101/1100/a.orc", FileKind.DATA, "s3://lake/t"),
        ("data/orders/data/a.avro", FileKind.DATA, "s3://lake/data/orders"),
    ],
)
def test_files_that_say_something_about_a_table(key: str, kind: FileKind, table: str) -> None:
    file = table_file(CreatedObject(bucket="lake", key=key))
    assert file is not None
    assert (file.kind, file.table, file.location) == (kind, table, f"s3://lake/{key}")


@pytest.mark.parametrize(
    "key",
    [
        "t/metadata/snap-1-a.avro",
        "t/metadata/a-m0.avro",
        "t/metadata/x.stats",
        "t/metadata/deeper/v1.metadata.json",
        "t/v1.metadata.json",
        "t/metadatas/v1.metadata.json",
        "t/data/a.txt",
        "t/a.parquet",
        "t/data",
    ],
)
def test_files_that_say_nothing(key: str) -> None:
    assert table_file(CreatedObject(bucket="lake", key=key)) is None


def test_the_longest_folder_wins_at_the_boundary_of_a_path() -> None:
    places = CatalogLocations.of(
        [
            rest(ACME, "all", "s3://lake"),
            rest(ACME, "sales", "s3a://lake/sales/"),
            rest(BETA, "eu", "s3://lake/sales-eu"),
            CatalogRow(log=ACME, alias="here", kind="rest", options={"uri": "x", "location": "file:///lake/sales"}),
            CatalogRow(log=ACME, alias="nowhere", kind="rest", options={"uri": "x"}),
        ],
        warehouse="file:///wh",
    )
    assert places.find("s3://lake/sales/a").alias == "sales"
    assert places.find("s3://lake/sales-eu/a").alias == "eu"
    assert places.find("s3://lake/sale/a").alias == "all"
    for stranger in ("s3://lakes/sales/a", "s3://lake", "file:///lake/sales/a", "nothing"):
        with pytest.raises(PoisonError, match="expected a catalog"):
            places.find(stranger)


def test_a_folder_of_two_tenants_is_nobodys() -> None:
    places = CatalogLocations.of([rest(ACME, "a", "s3://lake/x"), rest(BETA, "b", "s3://lake/x/")], warehouse=WAREHOUSE)
    with pytest.raises(PoisonError, match="one tenant"):
        places.find("s3://lake/x/t")


def test_the_warehouse_of_this_installation_cannot_be_claimed_by_a_longer_folder() -> None:
    assert ACME.tenant is not None
    ours = f"{WAREHOUSE}/{ACME.tenant.hex}/lake"
    builtin = CatalogRow(log=ACME, alias="lake", kind="builtin", options={})
    places = CatalogLocations.of([builtin, rest(BETA, "thief", f"{ours}/sales")], warehouse=WAREHOUSE)
    assert places.find(f"{ours}/sales/t").log == ACME


def test_of_one_tenants_places_the_most_specific_wins_of_whatever_kind() -> None:
    assert ACME.tenant is not None
    ours = f"{WAREHOUSE}/{ACME.tenant.hex}/lake"
    builtin = CatalogRow(log=ACME, alias="lake", kind="builtin", options={})
    rows = [builtin, rest(ACME, "within", f"{ours}/sales"), rest(BETA, "thief", f"{ours}/sales/t")]
    places = CatalogLocations.of(rows, warehouse=WAREHOUSE)
    assert places.find(f"{ours}/sales/t").alias == "within"
    assert places.find(f"{ours}/stock/t").alias == "lake"


def test_metadata_files_come_one_by_one_and_data_files_together() -> None:
    first = direct(record(), record("wh/t/data/b.parquet"), record("wh/t/metadata/snap-1.avro"))
    second = direct(record("wh/t/data/a.parquet"), record("wh/u/data/a.parquet"))
    gathered = gather([message(first, "1"), message(second, "2")], PLACES, at=NOON)
    data = [json.loads(item.group.then[0].event)["data"] for item in gathered.groups]
    assert [item["metadata_location"] for item in data] == [f"s3://lake/{METADATA}", None, None]
    assert [item["files"] for item in data] == [
        [],
        ["s3://lake/wh/t/data/a.parquet", "s3://lake/wh/t/data/b.parquet"],
        ["s3://lake/wh/u/data/a.parquet"],
    ]
    assert [{each.id for each in item.messages} for item in gathered.groups] == [{"1"}, {"1", "2"}, {"2"}]
    assert gathered.dead == ()


def test_the_same_messages_lead_to_the_same_groups() -> None:
    batch = [message(direct(record()), "1"), message(direct(record("wh/t/data/a.parquet")), "2")]
    ids = [{item.group.id for item in gather(order, PLACES, at=NOON).groups} for order in (batch, batch[::-1])]
    assert ids[0] == ids[1]


def test_a_poison_message_holds_nobody_up() -> None:
    batch = [message("poison", "1"), message(direct(record()), "2"), message(direct(record(bucket="other")), "3")]
    gathered = gather(batch, PLACES, at=NOON)
    assert len(gathered.groups) == 1
    assert {dead.message.id for dead in gathered.dead} == {"1", "3"}
    assert "option `location`" in gathered.dead[1].reason


def test_a_message_is_dead_only_for_the_part_that_is_nobodys() -> None:
    gathered = gather([message(direct(record(bucket="other"), record()))], PLACES, at=NOON)
    assert (len(gathered.groups), len(gathered.dead)) == (1, 1)


@pytest.mark.parametrize("name", ["{:04}.parquet", "{:04}-" + "東" * 300 + ".parquet"])
def test_a_trigger_names_as_many_files_as_fit_and_counts_all(name: str) -> None:
    locations = [f"s3://lake/wh/t/data/{name.format(number)}" for number in range(3_000)]
    group = data_trigger(PLACES.find("s3://lake/wh/t/x"), "s3://lake/wh/t", locations, at=NOON)
    data = json.loads(group.then[0].event)["data"]
    assert data["file_count"] == 3_000
    assert data["files"] == locations[: len(data["files"])]
    assert 0 < len(data["files"]) <= FILES_MAX
    assert sum(len(location.encode()) for location in data["files"]) <= FILES_SIZE_BYTES_MAX
