# SPDX-License-Identifier: Apache-2.0
"""
A real engine against the real server: PyIceberg, in threads, over HTTP, with Parquet in a local warehouse.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from threading import Barrier

import pyarrow as pa
import pytest
import pytest_asyncio
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    RESTError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ViewAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewVersion

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from testkit.gateway.log_contents import check_agreement, path_of, read_stored, words
from testkit.gateway.sales import another_guest, another_key
from testkit.gateway.view_requests import QUERY, version
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORDERS = ("sales", "orders")
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "shop", StringType()))
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("shop", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"id": numbers, "shop": [f"shop-{number % 7}" for number in numbers]}, schema=ARROW)


def ids(catalog: Catalog) -> list[int]:
    found: list[int] = catalog.load_table(ORDERS).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A gateway on a port."""

    gateway: Gateway
    url: str

    def connect(self, key: str | None = None, **properties: str) -> Catalog:
        """Return a new client, blocking as PyIceberg is."""
        token = key or self.gateway.acme.key.secret
        return RestCatalog("test", uri=self.url, warehouse="lake", token=token, **properties)

    async def words(self) -> list[str]:
        """What the log says of commits."""
        return await words(self.gateway.services, self.gateway.acme.log_id)


@pytest_asyncio.fixture(loop_scope="module")
async def served(shared_gateway: Gateway, module_url: str) -> Served:
    return Served(gateway=shared_gateway, url=module_url)


def make_orders(catalog: Catalog) -> Table:
    catalog.create_namespace("sales")
    return catalog.create_table(ORDERS, SCHEMA)


async def test_an_engine_writes_and_reads(served: Served) -> None:
    def engine() -> None:
        catalog = served.connect()
        orders = make_orders(catalog)
        orders.append(rows(0, 1_000))
        orders.append(rows(1_000, 1_000))
        orders.overwrite(rows(0, 10), overwrite_filter="id < 100")
        orders.delete("shop == 'shop-6'")
        with orders.update_schema() as schema:
            schema.add_column("channel", StringType())
        with orders.update_spec() as spec:
            spec.add_identity("shop")
        with orders.manage_snapshots() as snapshots:
            snapshots.create_tag(orders.snapshots()[0].snapshot_id, "first")
        with orders.transaction() as transaction:
            transaction.set_properties({"owner": "ada", "gone": "soon"})
        with orders.transaction() as transaction:
            transaction.remove_properties("gone")
        expected = [number for number in (*range(10), *range(100, 2_000)) if number % 7 != 6]
        assert ids(served.connect()) == expected
        found = served.connect().load_table(ORDERS)
        assert found.metadata == orders.metadata
        assert found.properties["owner"] == "ada"
        assert "gone" not in found.properties
        assert "channel" in found.schema().column_names
        assert found.scan(snapshot_id=found.refs()["first"].snapshot_id).to_arrow().num_rows == 1_000

    await asyncio.to_thread(engine)
    found = await served.words()
    assert found == ["approved", "accepted"] * (len(found) // 2)
    services, log_id = served.gateway.services, served.gateway.acme.log_id
    live = await check_agreement(services, log_id)
    named = {told.settled.metadata_location for told in await read_stored(services, log_id) if told.words == "accepted"}
    ((_, location, _),) = live.tables.values()
    on_disk = {f"file://{path}" for path in path_of(location).parent.glob("*.metadata.json")}
    assert on_disk == named - {None}, "every metadata file is named by the log"


async def test_a_table_is_created_in_one_commit_with_its_first_rows(served: Served) -> None:
    def engine() -> None:
        catalog = served.connect()
        catalog.create_namespace("sales")
        with catalog.create_table_transaction(ORDERS, SCHEMA) as staged:
            staged.append(rows(0, 10))
        assert ids(catalog) == list(range(10))

    await asyncio.to_thread(engine)
    told = await read_stored(served.gateway.services, served.gateway.acme.log_id, key="table:lake/sales/orders")
    assert [(one.words, one.entry.of) for one in told] == [("approved", 2), ("accepted", 2)]
    assert told[0].decided.operation == "table.create"
    assert len(told[0].decided.snapshots) == 1


async def test_a_staged_create_that_loses_says_that_the_table_exists(served: Served) -> None:
    def engine() -> None:
        catalog = served.connect()
        catalog.create_namespace("sales")
        staged = catalog.create_table_transaction(ORDERS, SCHEMA)
        served.connect().create_table(ORDERS, SCHEMA)
        with pytest.raises(CommitFailedException, match="table already exists"):
            staged.commit_transaction()

    await asyncio.to_thread(engine)
    assert (await served.words())[-1] == "conflicted"


async def test_namespaces_are_what_an_engine_expects(served: Served) -> None:
    def engine() -> None:
        catalog = served.connect()
        catalog.create_namespace("sales", {"owner": "ada", "old": "1"})
        catalog.create_namespace(("sales", "eu"))
        catalog.create_namespace(("sales", "with.dot / and space"))
        with pytest.raises(NamespaceAlreadyExistsError):
            catalog.create_namespace("sales")
        with pytest.raises(RESTError, match="Namespace does not exist: no"):
            catalog.create_namespace(("no", "eu"))
        assert catalog.list_namespaces() == [("sales",)]
        assert sorted(catalog.list_namespaces("sales")) == [("sales", "eu"), ("sales", "with.dot / and space")]
        assert catalog.namespace_exists(("sales", "with.dot / and space"))
        assert not catalog.namespace_exists(("sales", "no"))
        summary = catalog.update_namespace_properties("sales", removals={"old", "never"}, updates={"owner": "eve"})
        assert (summary.updated, summary.removed, summary.missing) == (["owner"], ["old"], ["never"])
        assert catalog.load_namespace_properties("sales") == {"owner": "eve"}
        with pytest.raises(NoSuchNamespaceError):
            catalog.load_namespace_properties("no")
        with pytest.raises(NamespaceNotEmptyError):
            catalog.drop_namespace("sales")
        catalog.drop_namespace(("sales", "eu"))

    await asyncio.to_thread(engine)


async def test_tables_are_what_an_engine_expects(served: Served) -> None:
    def engine() -> None:
        catalog = served.connect()
        make_orders(catalog)
        assert catalog.table_exists(ORDERS)
        assert not catalog.table_exists(("sales", "no"))
        assert catalog.list_tables("sales") == [ORDERS]
        with pytest.raises(TableAlreadyExistsError, match=r"Table already exists: sales\.orders"):
            catalog.create_table(ORDERS, SCHEMA)
        with pytest.raises(NoSuchTableError):
            catalog.load_table(("sales", "no"))
        with pytest.raises(NoSuchNamespaceError):
            catalog.create_table(("no", "orders"), SCHEMA)
        catalog.create_table(("sales", "purged"), SCHEMA)
        catalog.purge_table(("sales", "purged"))
        assert catalog.list_tables("sales") == [ORDERS]
        with pytest.raises(BadRequestError, match="expected a plain location below"):
            catalog.create_table(("sales", "elsewhere"), SCHEMA, location="file:///elsewhere")
        for name in ("ünï cödé", "a.b", "a/b", "%2F", 'say "x"'):
            catalog.create_table(("sales", name), SCHEMA).append(rows(0, 3))
            assert catalog.load_table(("sales", name)).scan().to_arrow().num_rows == 3
        catalog.drop_table(ORDERS)
        assert not catalog.table_exists(ORDERS)
        with pytest.raises(NoSuchTableError):
            catalog.drop_table(ORDERS)

    await asyncio.to_thread(engine)
    await check_agreement(served.gateway.services, served.gateway.acme.log_id)


async def test_a_dropped_table_is_registered_again_with_its_rows(served: Served) -> None:
    def work() -> None:
        catalog = served.connect()
        make_orders(catalog).append(rows(0, 10))
        location = catalog.load_table(ORDERS).metadata_location
        with pytest.raises(TableAlreadyExistsError):
            catalog.register_table(ORDERS, location)
        catalog.drop_table(ORDERS)
        registered = catalog.register_table(ORDERS, location)
        assert registered.metadata_location == location
        assert ids(catalog) == list(range(10))
        registered.append(rows(10, 10))
        assert ids(catalog) == list(range(20))
        with pytest.raises(BadRequestError, match="metadata-location: expected a plain location below"):
            catalog.register_table(("sales", "more"), "s3://elsewhere/00000-x.metadata.json")
        with pytest.raises(RESTError, match="NoSuchNamespaceException"):  # PyIceberg knows no better one here
            catalog.register_table(("nowhere", "orders"), location)

    await asyncio.to_thread(work)
    await check_agreement(served.gateway.services, served.gateway.acme.log_id)


async def test_a_renamed_table_has_its_rows_and_takes_more(served: Served) -> None:
    def work() -> None:
        catalog = served.connect()
        old = make_orders(catalog)
        old.append(rows(0, 10))
        catalog.create_namespace("archive")
        renamed = catalog.rename_table(ORDERS, ("archive", "invoices"))
        assert renamed.name() == ("archive", "invoices")
        with pytest.raises(NoSuchTableError):
            catalog.load_table(ORDERS)
        with pytest.raises(RESTError, match="NoSuchTableException"):
            old.append(rows(10, 10))
        renamed.append(rows(10, 10))
        catalog.rename_table(("archive", "invoices"), ORDERS)
        assert ids(catalog) == list(range(20))
        with pytest.raises(TableAlreadyExistsError):
            catalog.rename_table(ORDERS, ORDERS)
        with pytest.raises(NoSuchTableError):
            catalog.rename_table(("sales", "nothing"), ("sales", "more"))

    await asyncio.to_thread(work)
    await check_agreement(served.gateway.services, served.gateway.acme.log_id)


async def test_a_view_is_created_listed_loaded_dropped_and_registered_again(served: Served) -> None:
    name = ("sales", "report")
    view_version = ViewVersion.model_validate(version(QUERY))

    def work() -> None:
        catalog = served.connect()
        schema = make_orders(catalog).schema()
        made = catalog.create_view(name, schema, view_version)
        assert catalog.list_views("sales") == [name]
        assert catalog.list_tables("sales") == [ORDERS]
        assert catalog.view_exists(name)
        assert not catalog.table_exists(name)
        loaded = catalog.load_view(name)
        assert loaded == made
        representation = loaded.sql_for("spark")
        assert representation is not None
        assert representation.sql == QUERY
        with pytest.raises(ViewAlreadyExistsError):
            catalog.create_view(name, schema, view_version)
        with pytest.raises(TableAlreadyExistsError):
            catalog.create_table(name, schema)
        location = f"{made.location()}/metadata"
        (file,) = path_of(location).iterdir()
        catalog.drop_view(name)
        with pytest.raises(NoSuchViewError):
            catalog.load_view(name)
        with pytest.raises(NoSuchViewError):
            catalog.drop_view(name)
        registered = catalog.register_view(name, f"{location}/{file.name}")
        assert registered.metadata == made.metadata

    await asyncio.to_thread(work)
    await check_agreement(served.gateway.services, served.gateway.acme.log_id)


async def test_two_engines_race_and_no_row_is_lost(served: Served) -> None:
    commits, start = 3, Barrier(2)

    def racer(first: int) -> int:
        catalog = served.connect()
        start.wait()
        landed = conflicts = 0
        while landed < commits:
            try:
                catalog.load_table(ORDERS).append(rows(first + 10 * landed, 10))
                landed += 1
            except CommitFailedException:
                conflicts += 1
        return conflicts

    await asyncio.to_thread(lambda: make_orders(served.connect()))
    conflicts = sum(await asyncio.gather(*(asyncio.to_thread(racer, first) for first in (0, 1_000))))
    found = await asyncio.to_thread(lambda: ids(served.connect()))
    assert found == [*range(10 * commits), *range(1_000, 1_000 + 10 * commits)]
    told = await served.words()
    assert told.count("accepted") == 2 + 2 * commits
    assert told.count("conflicted") >= conflicts, "every 409 has its entry; PyIceberg tries some of them again unasked"
    await check_agreement(served.gateway.services, served.gateway.acme.log_id)


async def test_a_refusal_reaches_the_user_with_its_reason(served: Served) -> None:
    admin, log_id = served.gateway.services.gateway.admin, served.gateway.acme.log_id

    def prepare() -> str:
        return make_orders(served.connect()).metadata_location

    location = await asyncio.to_thread(prepare)
    await admin.create_policy(
        log_id,
        OPERATOR,
        policy_id="shops",
        text=PolicyText(
            expression="!result.exists || result.columns.exists(c, c.name == 'shop')", message="orders belong to a shop"
        ),
    )

    def engine(eve_key: str) -> None:
        orders = served.connect().load_table(ORDERS)
        with pytest.raises(ForbiddenError, match=r"orders belong to a shop \(policy shops, version 1\)"):  # noqa: SIM117 - the commit is at the end of the block
            with orders.update_schema(allow_incompatible_changes=True) as schema:
                schema.delete_column("shop")
        orders.append(rows(0, 3))
        eve = served.connect(eve_key)
        with pytest.raises(ForbiddenError, match="no access rule permits this"):
            eve.load_table(ORDERS)
        with pytest.raises(ForbiddenError, match="no access rule permits this"):
            eve.create_namespace("eve")
        with pytest.raises(UnauthorizedError):
            served.connect("nobody")
        with pytest.raises(RESTError, match="Catalog does not exist: lake"):
            served.connect(nobodys_key)

    nobodys_key = await another_key(served.gateway, "mallory@acme.example")
    await asyncio.to_thread(engine, await another_guest(served.gateway))
    assert "rejected" in await served.words()
    told = await read_stored(served.gateway.services, log_id)
    (rejected,) = [one for one in told if one.words == "rejected" and one.entry.key == "table:lake/sales/orders"]
    assert rejected.decided.base == location


async def test_an_undecidable_commit_reaches_the_user_as_not_available(served: Served) -> None:
    admin, log_id = served.gateway.services.gateway.admin, served.gateway.acme.log_id
    await asyncio.to_thread(lambda: make_orders(served.connect()))
    expression = "commit.requirements[99].type == 'x'"
    await admin.create_policy(
        log_id, OPERATOR, policy_id="broken", text=PolicyText(expression=expression, message="never")
    )

    def engine() -> None:
        with pytest.raises(ServiceUnavailableError, match="could not be evaluated, so nothing was changed"):
            served.connect().load_table(ORDERS).append(rows(0, 3))
        assert ids(served.connect()) == []

    await asyncio.to_thread(engine)
    assert (await served.words())[-1] == "undecidable"


async def test_an_engine_keeps_to_its_tables_places_and_to_names_of_their_own(served: Served) -> None:
    parts, acme = served.gateway.services.gateway, served.gateway.acme
    root = f"{parts.catalogs.warehouse}/{acme.tenant.hex}/lake"

    def engine() -> None:
        catalog = served.connect()
        orders = make_orders(catalog)
        for name in ("write.data.path", "write.metadata.path", "write.object-storage.path"):
            with pytest.raises(BadRequestError, match="expected a plain location below"):
                catalog.create_table(("sales", "t"), SCHEMA, properties={name: "file:///etc"})
            with (
                pytest.raises(BadRequestError, match="expected a plain location below"),
                orders.transaction() as change,
            ):
                change.set_properties({name: "file:///etc"})
        with pytest.raises(BadRequestError, match="overlaps another table's"):
            catalog.create_table(("sales", "t"), SCHEMA, location=f"{orders.location()}/data")
        for name in ("Orders", "\u043erders", "0rders"):
            with pytest.raises(BadRequestError, match="expected a name unlike its siblings"):
                catalog.create_table(("sales", name), SCHEMA)
        with orders.transaction() as change:
            change.set_properties({"write.data.path": f"{root}/data of orders"})
        orders.append(rows(0, 10))
        assert ids(served.connect()) == list(range(10))
        (file,) = orders.inspect.files()["file_path"].to_pylist()
        assert file.startswith(f"{root}/data of orders/")

    await asyncio.to_thread(engine)
    await check_agreement(served.gateway.services, acme.log_id)
