# SPDX-License-Identifier: Apache-2.0
"""
A real engine through two real gateways: PyIceberg writes to a catalog whose upstream is another gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from fastapi import FastAPI
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.types import StringType

from gateway.admin.application import OPERATOR
from gateway.admin.policy_edits import PolicyText
from lakeproof.services import Services
from ledger.format.events import CommitOutcome
from testkit.gateway.log_contents import StoredEntry, check_agreement, check_log, read_stored, words
from testkit.gateway.sales import another_guest, before_each_append, properties
from testkit.gateway.shop_rows import SCHEMA, rows
from testkit.servers.chained import BEYOND, Chained, open_chain

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORDERS = ("sales", "orders")
ORDERS_KEY = "table:beyond/sales/orders"


def ids(catalog: Catalog) -> list[int]:
    found: list[int] = catalog.load_table(ORDERS).scan().to_arrow()["id"].to_pylist()
    return sorted(found)


def make_orders(catalog: Catalog) -> Table:
    catalog.create_namespace("sales")
    return catalog.create_table(ORDERS, SCHEMA)


async def stored_entries(chained: Chained, key: str = ORDERS_KEY) -> list[StoredEntry]:
    return await read_stored(chained.near.services, chained.near.acme.log_id, key=key)


async def open_decisions(chained: Chained) -> int:
    async with chained.near.services.gateway.database.as_role(
        chained.near.services.gateway.roles.auditor
    ) as connection:
        found = await connection.execute("SELECT count(*) FROM gateway.open_decisions")
        row = await found.fetchone()
    assert row is not None
    return int(row[0])


@pytest_asyncio.fixture(loop_scope="module")
async def chained(module_services: Services, module_app: FastAPI, module_url: str) -> AsyncIterator[Chained]:
    async with open_chain(module_services, module_app, module_url) as chained:
        yield chained


async def test_an_engine_writes_and_reads_through_two_gateways(chained: Chained) -> None:
    def engine() -> None:
        catalog = chained.connect()
        orders = make_orders(catalog)
        orders.append(rows(0, 100))
        orders.overwrite(rows(0, 10), overwrite_filter="id < 50")
        with orders.update_schema() as schema:
            schema.add_column("channel", StringType())
        with orders.update_spec() as spec:
            spec.add_identity("shop")
        with orders.manage_snapshots() as snapshots:
            snapshots.create_tag(orders.snapshots()[0].snapshot_id, "first")
        with orders.transaction() as transaction:
            transaction.set_properties({"owner": "ada"})
        expected = [*range(10), *range(50, 100)]
        assert ids(chained.connect()) == ids(chained.connect_directly()) == expected
        near, far = (each.load_table(ORDERS) for each in (chained.connect(), chained.connect_directly()))
        assert near.metadata == far.metadata
        assert near.metadata_location == far.metadata_location
        assert near.scan(snapshot_id=near.refs()["first"].snapshot_id).to_arrow().num_rows == 100

    await asyncio.to_thread(engine)
    told = await stored_entries(chained)
    assert [one.words for one in told] == ["approved", "accepted"] * (len(told) // 2)
    for decided, settled in zip(told[::2], told[1::2], strict=True):
        assert decided.entry.of == settled.entry.of == 1, "a decision stands alone, before the upstream is asked"
        assert settled.settled.decision == str(decided.entry.group_id)
        assert settled.settled.metadata_sha256 is None
        assert settled.settled.snapshots == decided.decided.snapshots
    far = await read_stored(chained.far.services, chained.far.acme.log_id, key="table:lake/sales/orders")
    accepted = [one.settled for one in far if one.words == "accepted"]
    assert [one.settled.metadata_location for one in told[1::2]] == [one.metadata_location for one in accepted]
    assert {one.settled.table_uuid for one in told[1::2]} == {one.table_uuid for one in accepted}
    assert await open_decisions(chained) == 0
    await check_agreement(chained.far.services, chained.far.acme.log_id)
    await check_log(chained.near.services, chained.near.acme.log_id)


async def test_what_an_upstream_refuses_reaches_the_engine_in_its_own_words(chained: Chained) -> None:
    def prepare() -> None:
        make_orders(chained.connect())

    await asyncio.to_thread(prepare)
    await chained.far.services.gateway.admin.create_policy(
        chained.far.acme.log_id,
        OPERATOR,
        policy_id="shops",
        text=PolicyText(
            expression="!result.exists || result.columns.exists(c, c.name == 'shop')", message="orders belong to a shop"
        ),
    )

    def engine() -> None:
        orders = chained.connect().load_table(ORDERS)
        with pytest.raises(ForbiddenError, match=r"orders belong to a shop \(policy shops, version 1\)"):  # noqa: SIM117 - the commit is at the end of the block
            with orders.update_schema(allow_incompatible_changes=True) as schema:
                schema.delete_column("shop")

    await asyncio.to_thread(engine)
    assert [one.words for one in await stored_entries(chained)] == ["approved", "accepted", "approved", "refused"]
    assert await open_decisions(chained) == 0


async def test_what_is_refused_here_never_reaches_the_upstream(chained: Chained) -> None:
    await asyncio.to_thread(lambda: make_orders(chained.connect()))
    before = await words(chained.far.services, chained.far.acme.log_id)
    await chained.near.services.gateway.admin.create_policy(
        chained.near.acme.log_id,
        OPERATOR,
        policy_id="frozen",
        text=PolicyText(expression="!table.exists", message="nothing changes"),
    )
    eve = await another_guest(chained.near)

    def engine() -> None:
        with pytest.raises(ForbiddenError, match="nothing changes"):
            chained.connect().load_table(ORDERS).append(rows(0, 3))
        assert ids(chained.connect()) == []
        with pytest.raises(ForbiddenError, match="no access rule permits this"):
            chained.connect(eve).load_table(ORDERS)

    await asyncio.to_thread(engine)
    assert [one.words for one in await stored_entries(chained)][2:] == ["rejected", "access.refused"]
    assert await words(chained.far.services, chained.far.acme.log_id) == before


async def test_a_table_is_created_in_one_commit_with_its_first_rows(chained: Chained) -> None:
    def engine() -> None:
        catalog = chained.connect()
        catalog.create_namespace("sales")
        with catalog.create_table_transaction(ORDERS, SCHEMA) as staged:
            staged.append(rows(0, 10))
        assert ids(chained.connect_directly()) == list(range(10))
        late = catalog.create_table_transaction(("sales", "late"), SCHEMA)
        chained.connect_directly().create_table(("sales", "late"), SCHEMA)
        with pytest.raises(CommitFailedException, match="table already exists"):
            late.commit_transaction()

    await asyncio.to_thread(engine)
    told = await stored_entries(chained)
    assert [one.words for one in told] == ["approved", "accepted"]
    assert told[0].decided.operation == "table.create"
    assert told[0].decided.table_uuid == told[1].settled.table_uuid
    late = await stored_entries(chained, "table:beyond/sales/late")
    assert [one.words for one in late] == ["conflicted"], "it conflicts here already, and is not sent"


async def test_namespaces_and_tables_are_what_an_engine_expects(chained: Chained) -> None:
    def engine() -> None:
        catalog = chained.connect()
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
        assert catalog.list_namespaces("sales") == [("sales", "with.dot / and space")]
        for name in ("ünï cödé", "a.b", "a/b", "%2F", 'say "x"'):
            catalog.create_table(("sales", name), SCHEMA).append(rows(0, 3))
            assert catalog.load_table(("sales", name)).scan().to_arrow().num_rows == 3
        assert len(catalog.list_tables("sales")) == 5
        assert catalog.table_exists(("sales", "a/b"))
        with pytest.raises(TableAlreadyExistsError):
            catalog.create_table(("sales", "a/b"), SCHEMA)
        with pytest.raises(NoSuchNamespaceError):
            catalog.create_table(("no", "orders"), SCHEMA)
        catalog.drop_table(("sales", "a/b"))
        assert not catalog.table_exists(("sales", "a/b"))
        with pytest.raises(NoSuchTableError):
            catalog.drop_table(("sales", "a/b"))
        catalog.purge_table(("sales", "a.b"))  # by the far gateway, whose catalog is built-in
        assert not catalog.table_exists(("sales", "a.b"))

    await asyncio.to_thread(engine)
    near = await words(chained.near.services, chained.near.acme.log_id)
    assert set(near) == {"approved", "accepted", "refused", "conflicted"}
    assert await open_decisions(chained) == 0
    await check_agreement(chained.far.services, chained.far.acme.log_id)


async def test_two_engines_race_through_two_gateways_and_no_row_is_lost(chained: Chained) -> None:
    commits = 3

    def racer(first: int) -> None:
        catalog = chained.connect()
        landed = 0
        while landed < commits:
            try:
                catalog.load_table(ORDERS).append(rows(first + 10 * landed, 10))
                landed += 1
            except CommitFailedException:
                continue

    await asyncio.to_thread(lambda: make_orders(chained.connect()))
    await asyncio.gather(*(asyncio.to_thread(racer, first) for first in (0, 1_000)))
    found = await asyncio.to_thread(lambda: ids(chained.connect_directly()))
    assert found == [*range(10 * commits), *range(1_000, 1_000 + 10 * commits)]
    told = await stored_entries(chained)
    outcomes = [one.settled.outcome for one in told if one.entry.type == "commit.settled"]
    assert outcomes.count(CommitOutcome.ACCEPTED) == 1 + 2 * commits
    assert set(outcomes) <= {CommitOutcome.ACCEPTED, CommitOutcome.CONFLICTED}
    assert await open_decisions(chained) == 0


async def test_a_commit_that_lost_by_what_the_gateway_required_alone_is_judged_again(chained: Chained) -> None:
    """A property may be set whatever else happens; the gateway pins main, moves on with it, and lands."""
    await asyncio.to_thread(lambda: make_orders(chained.connect()))
    count = 0

    async def append_meanwhile(number: int) -> None:
        nonlocal count
        count += 1
        if number == 0:
            await asyncio.to_thread(lambda: chained.connect_directly().load_table(ORDERS).append(rows(0, 5)))

    client = chained.near.through(append=before_each_append(chained.near, append_meanwhile))
    answer = await client.post(f"/v1/iceberg/{BEYOND}/namespaces/sales/tables/orders", json=properties(a="b"))
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["properties"]["a"] == "b"
    told = await stored_entries(chained)
    assert [one.words for one in told][2:] == ["approved", "conflicted", "approved", "accepted"]
    assert count == 4


async def test_upstream_requests_are_counted(chained: Chained) -> None:
    requests = "lakeproof_upstream_requests_total"
    names = [f'{requests}{{method="POST",outcome="2xx"}} ', f'{requests}{{method="GET",outcome="4xx"}} ']

    def counts() -> list[float]:
        lines = chained.measures.text().splitlines()
        return [sum(float(line.split()[-1]) for line in lines if name in line) for name in names]

    before = counts()
    await asyncio.to_thread(lambda: make_orders(chained.connect()))
    after = counts()
    assert after[0] == before[0] + 2
    assert after[1] > before[1]
