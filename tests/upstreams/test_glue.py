# SPDX-License-Identifier: Apache-2.0
"""
AWS Glue as a foreign catalog: what engines can do with it, and what becomes of a change whatever happens on the way.

Glue is moto's, with the versions that AWS checks (`testkit/servers/glue.py`). The other client is PyIceberg's, which
knows nothing of the gateway.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import orjson
import pytest
import pytest_asyncio
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from gateway.catalogs.judged_metadata import JUDGED_ON, file_judged, parse_judged
from gateway.control.aggregates import Catalog
from gateway.http.operations import endpoints as offered_by
from gateway.replaying.variables import Known
from lakeproof.inspecting.upstreams import check_upstream
from lakeproof.services import Services
from ledger.format.events import CommitOutcome
from testkit.gateway.foreign_faults import (
    KILLS,
    LOSSES,
    Case,
    ClientKnowledge,
    Kill,
    Step,
    UpstreamAnswer,
    check_kill,
    check_loss,
    check_mixture,
    check_saying,
    lose_answers,
    snapshot_of,
)
from testkit.gateway.foreign_tenant import ALIAS, ROOT, TABLES, UNKNOWN_STATUSES
from testkit.gateway.glue_tenant import SECRET, GlueTenant, open_glue_tenant, register_glue
from testkit.gateway.log_contents import read_stored, words
from testkit.gateway.replays import rebuilt
from testkit.gateway.sales import SCHEMA, error_of, new_key, properties
from testkit.gateway.shop_rows import SCHEMA as SHOP_SCHEMA
from testkit.gateway.shop_rows import rows
from testkit.gateway.view_requests import view_created
from testkit.servers.chained import secrets_of
from testkit.servers.cloud import fresh_cloud
from testkit.servers.faulty_wire import Fault, Loss, Replaced, Request, answer
from testkit.servers.glue import open_glue
from testkit.servers.loopback import serve_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def glue(moto: str) -> AsyncIterator[str]:
    """Where Glue is."""
    async with open_glue(moto) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services, glue: str, moto: str) -> AsyncIterator[GlueTenant]:
    """A tenant whose catalog `far` is Glue."""
    async with open_glue_tenant(module_services, glue, fresh_cloud(moto)) as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def far(tenant: GlueTenant) -> GlueTenant:
    """The tenant, with a table of the test's own."""
    return await tenant.with_new_table()


@pytest_asyncio.fixture(loop_scope="module")
async def shop(module_services: Services, glue: str, moto: str) -> AsyncIterator[GlueTenant]:
    """Another tenant: it leaves a decision open."""
    async with open_glue_tenant(module_services, glue, fresh_cloud(moto)) as shop:
        yield await shop.with_new_table()


def connect(url: str, far: GlueTenant, alias: str) -> RestCatalog:
    """Return PyIceberg as a user configures it who has keys of the store."""
    keys = {"s3.access-key-id": far.cloud.access_key_id, "s3.secret-access-key": far.cloud.secret_access_key}
    return RestCatalog("test", uri=url, warehouse=alias, token=far.gateway.acme.key.secret, **keys)


@contextmanager
def looking(far: GlueTenant, also: Callable[[Request], Awaitable[None]]) -> Iterator[None]:
    """Await `also` with each request to Glue before it arrives there."""
    before = far.wire.on_request

    async def both(request: Request) -> None:
        await before(request)
        await also(request)

    far.wire.on_request = both
    try:
        yield
    finally:
        far.wire.on_request = before


# Engines


async def test_an_engine_works_with_it_and_its_tables_are_those_of_other_clients_of_glue(far: GlueTenant) -> None:
    alias = f"{far.name}-shop"
    await register_glue(far.gateway, alias, far.glue, far.cloud)
    orders = ("shops", "orders")

    def ids(catalog: Any, name: tuple[str, str]) -> list[int]:
        return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())

    def engine(url: str) -> None:
        catalog, other = connect(url, far, alias), far.client
        catalog.create_namespace("shops", {"owner": "ada", "comment": "all shops"})
        assert catalog.load_namespace_properties("shops") == {"owner": "ada", "comment": "all shops"}
        catalog.update_namespace_properties("shops", removals={"owner"}, updates={"team": "data"})
        assert other.load_namespace_properties("shops") == {"team": "data", "Description": "all shops"}
        table = catalog.create_table(orders, SHOP_SCHEMA)
        table.append(rows(0, 10))
        other.load_table(orders).append(rows(10, 5))
        late = catalog.load_table(orders).update_schema().add_column("late", StringType())
        with catalog.load_table(orders).update_schema() as schema:
            schema.add_column("channel", StringType())
        with pytest.raises(CommitFailedException, match="Requirement failed: current schema"):
            late.commit()
        catalog.load_table(orders).overwrite(rows(0, 5), overwrite_filter="id < 10")
        assert ids(catalog, orders) == ids(other, orders) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
        with catalog.create_table_transaction(("shops", "staged"), SHOP_SCHEMA) as staged:
            staged.append(rows(0, 3))
        assert ids(other, ("shops", "staged")) == [0, 1, 2]
        assert sorted(catalog.list_tables("shops")) == [orders, ("shops", "staged")]
        columns = far.cloud.client("glue").get_table(DatabaseName="shops", Name="orders")["Table"]["StorageDescriptor"]
        assert [each["Name"] for each in columns["Columns"]][-1] == "channel"
        for name in (orders, ("shops", "staged")):
            catalog.drop_table(name)
        assert not catalog.table_exists(orders)
        catalog.drop_namespace("shops")
        assert ("shops",) not in catalog.list_namespaces()
        assert not catalog.namespace_exists("shops")

    async with serve_gateway(far.gateway.app) as url:
        await asyncio.to_thread(engine, url)
    told = await words(far.services, far.log_id, after=far.first, key=f"table:{alias}/shops/orders")
    assert set(told) == {"approved", "accepted", "conflicted"}


async def test_its_configuration_names_what_it_has_and_no_other_way_in(far: GlueTenant) -> None:
    config = (await far.gateway.http.get("/v1/config", params={"warehouse": ALIAS})).json()
    assert set(config["endpoints"]) == set(offered_by("glue"))
    for missing in ("views", "functions", "rename", "transactions", "register"):
        assert missing not in str(config["endpoints"])
    assert far.wire.url not in str(config)


async def test_engines_are_told_where_the_store_is_and_no_keys(far: GlueTenant) -> None:
    created = await far.gateway.http.post(TABLES, json={"name": f"{far.name}-new", "schema": SCHEMA})
    committed = await far.gateway.http.post(far.orders, json=properties(color="red"))
    loaded = await far.gateway.http.get(far.orders)
    for shown in (created, committed, loaded):
        assert shown.json()["config"] == {"s3.endpoint": far.store_wire.url, "s3.region": far.cloud.region}
        assert far.cloud.secret_access_key not in shown.text
    assert loaded.json()["metadata"] == committed.json()["metadata"] == (await far.table())["metadata"]


async def test_engines_may_ask_for_the_snapshots_of_branches_alone(far: GlueTenant) -> None:
    for _ in range(2):
        assert (await far.gateway.http.post(far.orders, json=await far.next_append())).status_code == 200
    referenced = await far.gateway.http.get(far.orders, params={"snapshots": "refs"})
    snapshots = referenced.json()["metadata"]["snapshots"]
    assert [str(one["snapshot-id"]) for one in snapshots] == [max(await far.snapshots())]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", f"{ROOT}/sales/register", {"name": "x", "metadata-location": "s3://b/m.json"}),
        ("POST", f"{ROOT}/sales/views", view_created("x")),
        ("GET", f"{ROOT}/sales/views", None),
        ("GET", f"{ROOT}/sales/views/x", None),
        ("GET", f"{ROOT}/sales/functions", None),
        ("GET", f"{ROOT}/sales/functions/f", None),
        ("POST", ROOT, {"namespace": ["sales", "eu"]}),
        ("POST", f"{ROOT}/sales/tables/{{name}}/unregister", None),
        ("DELETE", f"{ROOT}/sales/tables/{{name}}?purgeRequested=true", None),
        (
            "POST",
            f"/v1/iceberg/{ALIAS}/tables/rename",
            {
                "source": {"namespace": ["sales"], "name": "{name}"},
                "destination": {"namespace": ["sales"], "name": "elsewhere"},
            },
        ),
        (
            "POST",
            f"/v1/iceberg/{ALIAS}/transactions/commit",
            {"table-changes": [{"identifier": {"namespace": ["sales"], "name": "{name}"}, **properties(a="b")}]},
        ),
    ],
)
async def test_what_it_does_not_have_is_refused_before_anything_is_sent(
    far: GlueTenant, method: str, path: str, body: Mapping[str, Any] | None
) -> None:
    sent = len(far.wire.seen)
    content = None if body is None else orjson.dumps(body).replace(b"{name}", far.name.encode())
    refused = await far.gateway.http.request(method, path.format(name=far.name), content=content)
    assert (refused.status_code, error_of(refused)["type"]) == (406, "UnsupportedOperationException"), refused.text
    assert not any(seen.is_mutation for seen in far.wire.seen[sent:])
    assert await far.words() == []


@pytest.mark.parametrize("namespace", ["sales%1Feu", "SALES", "no_such"])
async def test_what_is_not_in_glue_under_that_very_name_is_not_there(far: GlueTenant, namespace: str) -> None:
    """Glue itself would take `SALES` for `sales`: access rules for one name would not hold for the other."""
    http = far.gateway.http
    assert (await http.get(f"{ROOT}/{namespace}")).status_code == 404
    assert (await http.get(f"{ROOT}/{namespace}/tables")).status_code == 404
    assert (await http.get(f"{ROOT}/{namespace}/tables/{far.name}")).status_code == 404
    assert (await http.get(f"{TABLES}/{far.name.upper()}")).status_code == 404
    created = await http.post(f"{ROOT}/{namespace}/tables", json={"name": "x", "schema": SCHEMA})
    assert created.status_code == 404


@pytest.mark.parametrize("name", ["Orders", "größe", "a b", "x" * 256])
async def test_a_name_that_glue_would_change_is_refused(far: GlueTenant, name: str) -> None:
    created = await far.gateway.http.post(TABLES, json={"name": name, "schema": SCHEMA})
    assert created.status_code == 400, created.text
    made = await far.gateway.http.post(ROOT, json={"namespace": [name]})
    assert made.status_code == 400, made.text


async def test_a_table_that_is_not_icebergs_is_not_there_and_keeps_its_name(far: GlueTenant) -> None:
    http, name = far.gateway.http, f"{far.name}-hive"
    glue = replace(far.cloud, endpoint=far.glue).client("glue")
    hive = {"Name": name, "TableType": "EXTERNAL_TABLE", "Parameters": {"classification": "parquet"}}
    await asyncio.to_thread(glue.create_table, DatabaseName="sales", TableInput=hive)
    assert (await http.get(f"{TABLES}/{name}")).status_code == 404
    assert (await http.head(f"{TABLES}/{name}")).status_code == 404
    assert (await http.delete(f"{TABLES}/{name}")).status_code == 404
    listed = {one["name"] for one in (await http.get(TABLES)).json()["identifiers"]}
    assert (name in listed, far.name in listed) == (False, True)
    created = await http.post(TABLES, json={"name": name, "schema": SCHEMA})
    assert (created.status_code, error_of(created)["type"]) == (409, "AlreadyExistsException")
    key = f"table:{ALIAS}/sales/{name}"
    assert await words(far.services, far.log_id, after=far.first, key=key) == ["approved", "conflicted"]
    there = await asyncio.to_thread(glue.get_table, DatabaseName="sales", Name=name)
    assert there["Table"]["Parameters"] == hive["Parameters"]


async def test_what_glue_has_of_a_table_besides_its_pointer_stays(far: GlueTenant) -> None:
    glue = replace(far.cloud, endpoint=far.glue).client("glue")
    entry = await asyncio.to_thread(far.entry)
    kept = {
        "Name": far.name,
        "Description": "all orders",
        "Owner": "ada",
        "Retention": 7,
        "Parameters": {**entry["Parameters"], "classification": "iceberg"},
        "StorageDescriptor": {**entry["StorageDescriptor"], "Compressed": True},
    }
    await asyncio.to_thread(glue.update_table, DatabaseName="sales", TableInput=kept)
    before = (await far.table())["metadata-location"]
    assert (await far.gateway.http.post(far.orders, json=properties(color="red"))).status_code == 200
    after = await asyncio.to_thread(far.entry)
    parameters = after["Parameters"]
    assert (after["Description"], after["Owner"], after["Retention"]) == ("all orders", "ada", 7)
    assert (parameters["classification"], parameters["previous_metadata_location"]) == ("iceberg", before)
    assert after["StorageDescriptor"]["Compressed"]
    decision = (await read_stored(far.services, far.log_id, after=far.first, key=far.key))[0].entry.group_id
    assert parameters["metadata_location"].endswith(f"/00001-{decision}.metadata.json")


async def test_a_namespace_with_any_table_is_not_dropped(far: GlueTenant) -> None:
    http, name = far.gateway.http, f"{far.name}-full"
    assert (await http.post(ROOT, json={"namespace": [name]})).status_code == 200
    glue = replace(far.cloud, endpoint=far.glue).client("glue")
    await asyncio.to_thread(glue.create_table, DatabaseName=name, TableInput={"Name": "hive"})
    dropped = await http.delete(f"{ROOT}/{name}")
    assert (dropped.status_code, error_of(dropped)["type"]) == (409, "NamespaceNotEmptyException")
    await asyncio.to_thread(glue.get_table, DatabaseName=name, Name="hive")
    await asyncio.to_thread(glue.delete_table, DatabaseName=name, Name="hive")
    assert (await http.delete(f"{ROOT}/{name}")).status_code == 204
    key = f"namespace:{ALIAS}/{name}"
    told = await words(far.services, far.log_id, after=far.first, key=key)
    assert told == ["approved", "accepted", "conflicted", "approved", "accepted"]


async def test_lists_are_given_whole_or_in_pages(far: GlueTenant) -> None:
    http, name = far.gateway.http, f"{far.name}-pages"
    glue = replace(far.cloud, endpoint=far.glue).client("glue")

    def fill() -> None:
        glue.create_database(DatabaseInput={"Name": name})
        iceberg = {"table_type": "iceberg", "metadata_location": f"{far.cloud.warehouse}/m.json"}
        for number in range(103):
            kind = {} if number % 2 else iceberg
            glue.create_table(DatabaseName=name, TableInput={"Name": f"t{number:03}", "Parameters": kind})

    await asyncio.to_thread(fill)
    expected = [f"t{number:03}" for number in range(0, 103, 2)]
    whole = (await http.get(f"{ROOT}/{name}/tables")).json()
    assert [one["name"] for one in whole["identifiers"]] == expected
    found, token, pages = list[str](), "", 0
    while token is not None:
        page = (await http.get(f"{ROOT}/{name}/tables", params={"pageToken": token, "pageSize": 40})).json()
        found, token, pages = (
            [*found, *(one["name"] for one in page["identifiers"])],
            page.get("next-page-token"),
            pages + 1,
        )
    assert (found, pages) == (expected, 3)
    assert [name] in (await http.get(ROOT)).json()["namespaces"]
    assert (await http.get(ROOT, params={"parent": name})).json()["namespaces"] == []
    assert (await http.get(ROOT, params={"parent": "no_such"})).status_code == 404


async def test_a_metadata_file_that_another_client_has_compressed_is_read(far: GlueTenant) -> None:
    found = await far.table()
    location = found["metadata-location"].replace(".metadata.json", ".gz.metadata.json")
    data = gzip.compress(orjson.dumps(found["metadata"]))
    glue, s3 = replace(far.cloud, endpoint=far.glue).client("glue"), far.cloud.client("s3")
    key = location.removeprefix(f"s3://{far.cloud.bucket}/")
    await asyncio.to_thread(s3.put_object, Bucket=far.cloud.bucket, Key=key, Body=data)
    parameters = {"table_type": "ICEBERG", "metadata_location": location}
    named = {"Name": far.name, "Parameters": parameters}
    await asyncio.to_thread(glue.update_table, DatabaseName="sales", TableInput=named)
    assert (await far.gateway.http.get(far.orders)).json()["metadata"] == found["metadata"]
    assert (await far.gateway.http.post(far.orders, json=properties(color="red"))).status_code == 200
    assert (await far.table())["metadata"]["properties"]["color"] == "red"
    decided = [one for one in await read_stored(far.services, far.log_id, key=far.key) if JUDGED_ON in one.parts][-1]
    assert parse_judged(decided.parts[JUDGED_ON]) == file_judged(location, data)
    variables = next(known for decision, known in await rebuilt(far.gateway) if decision.index == decided.entry.index)
    assert isinstance(variables["table"], Known), "it is read again, as it was judged"
    assert isinstance(variables["result"], Known)
    assert variables["result"].members["properties"] == {**found["metadata"]["properties"], "color": "red"}


# Places


async def test_a_table_outside_the_place_of_the_alias_is_neither_read_nor_written(far: GlueTenant) -> None:
    alias = f"{far.name}-eu"
    await register_glue(far.gateway, alias, far.glue, far.cloud, location=f"{far.cloud.warehouse}/eu")
    there = f"/v1/iceberg/{alias}/namespaces/sales/tables"
    assert (await far.gateway.http.head(f"{there}/{far.name}")).status_code == 406
    assert far.name not in (await far.gateway.http.get(there)).text
    for refused in (
        await far.gateway.http.get(f"{there}/{far.name}"),
        await far.gateway.http.post(f"{there}/{far.name}", json=properties(a="b")),
    ):
        assert (refused.status_code, error_of(refused)["type"]) == (406, "UnsupportedOperationException")
        assert "register a catalog whose location is that place" in error_of(refused)["message"]
    outside = {"name": "x", "schema": SCHEMA, "location": f"{far.cloud.warehouse}/us/x"}
    assert (await far.gateway.http.post(there, json=outside)).status_code == 400
    moved = {"name": "x", "schema": SCHEMA, "properties": {"write.metadata.path": f"s3://{far.cloud.bucket}/other"}}
    assert (await far.gateway.http.post(there, json=moved)).status_code == 400
    inside = {
        "name": f"{far.name}-in",
        "schema": SCHEMA,
        "properties": {"write.metadata.path": f"{far.cloud.warehouse}/eu/m"},
    }
    created = await far.gateway.http.post(there, json=inside)
    assert created.status_code == 200, created.text
    assert created.json()["metadata-location"].startswith(f"{far.cloud.warehouse}/eu/m/00000-")
    assert created.json()["metadata"]["location"].startswith(f"{far.cloud.warehouse}/eu/sales/{far.name}-in-")


# What becomes of a change


async def test_a_commit_that_others_have_followed_is_found_by_the_name_of_its_file(far: GlueTenant) -> None:
    ours = properties(color="red")
    far.wire.fault = Fault(happens=Loss.ANSWER, path=far.path)
    assert (await far.gateway.http.post(far.orders, json=ours)).status_code in UNKNOWN_STATUSES
    made = (await far.table())["metadata-location"]
    await far.commit_behind(properties(color="blue"))
    await far.commit_behind(await far.next_append())
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.ACCEPTED]
    outcome = (await read_stored(far.services, far.log_id, after=far.first, key=far.key))[-1].settled
    assert outcome.metadata_location == made
    assert await far.words() == ["approved", "unknown", "accepted"]


async def test_files_that_cannot_be_read_leave_open_what_they_would_have_told(far: GlueTenant) -> None:
    far.wire.fault = Fault(happens=Loss.ANSWER, path=far.path)
    assert (await far.gateway.http.post(far.orders, json=properties(color="red"))).status_code in UNKNOWN_STATUSES

    async def fail_the_next(_: Request) -> None:
        far.store_wire.on_request = before
        far.store_wire.fault = Fault(happens=Loss.REQUEST, path=".metadata.json", methods=frozenset({"GET"}))

    before, far.store_wire.on_request = far.store_wire.on_request, fail_the_next
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.UNKNOWN]
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.ACCEPTED]


async def test_a_commit_that_was_not_made_is_open_until_another_is(far: GlueTenant) -> None:
    far.wire.fault = Fault(happens=Loss.REQUEST, path=far.path)
    assert (await far.gateway.http.post(far.orders, json=properties(color="red"))).status_code in UNKNOWN_STATUSES
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.UNKNOWN], "it may still arrive"
    # As ours would have made it, by another client: the state proves nothing, the name of the file does.
    await far.commit_behind(properties(color="red"))
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.FAILED]
    assert await far.words() == ["approved", "unknown", "failed"]


async def test_a_commit_that_arrives_after_another_is_refused_by_glue(far: GlueTenant) -> None:
    fault = far.wire.fault = Fault(happens=Loss.LATE, path=far.path)
    catalogs = far.services.gateway.catalogs
    hasty = replace(catalogs, upstreams=replace(catalogs.upstreams, timeout_s=1))
    async with far.gateway.through(catalogs=hasty) as client:
        assert (await client.post(far.orders, json=properties(color="red"))).status_code in UNKNOWN_STATUSES
    await far.commit_behind(properties(color="blue"))
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.FAILED]
    fault.deliver.set()
    await fault.delivered.wait()
    assert (await far.table())["metadata"]["properties"]["color"] == "blue"


async def test_a_table_that_replaced_another_proves_nothing_about_a_commit_to_that(shop: GlueTenant) -> None:
    shop.wire.fault = Fault(happens=Loss.REQUEST, path=shop.path)
    await shop.gateway.http.post(shop.orders, json=properties(color="red"))
    await shop.make_table()
    assert [each.outcome for each in await shop.reconcile()] == [CommitOutcome.UNKNOWN], "its versions begin anew"


async def test_a_commit_is_judged_again_if_another_client_was_first(far: GlueTenant) -> None:
    """The other client commits after Glue was asked for the version, and before the update arrives there."""
    interfered = 0

    async def interfere(request: Request) -> None:
        nonlocal interfered
        if request.is_mutation and request.target.endswith(far.path) and not interfered:
            interfered += 1
            await far.commit_behind(properties(color="blue"))

    with looking(far, interfere):
        answered = await far.gateway.http.post(far.orders, json=properties(size="xl"))
    assert (answered.status_code, interfered) == (200, 1), answered.text
    assert (await far.table())["metadata"]["properties"].items() >= {"color": "blue", "size": "xl"}.items()
    assert await far.words() == ["approved", "conflicted", "approved", "accepted"]


async def test_a_commit_whose_requirement_fails_meanwhile_is_the_engines_to_repeat(far: GlueTenant) -> None:
    ours, theirs = await far.next_append(), await far.next_append()

    async def interfere(request: Request) -> None:
        if request.is_mutation and snapshot_of(theirs) not in await far.snapshots():
            await far.commit_behind(theirs)

    with looking(far, interfere):
        answered = await far.gateway.http.post(far.orders, json=ours)
    assert (answered.status_code, error_of(answered)["type"]) == (409, "CommitFailedException"), answered.text
    assert await far.snapshots() == {snapshot_of(theirs)}
    assert await far.words() == ["approved", "conflicted"]
    await far.check()


async def test_of_many_writers_at_once_none_undoes_another(far: GlueTenant) -> None:
    async def behind(name: str) -> bool:
        try:
            await far.commit_behind(properties(**{name: "1"}))
        except CommitFailedException:
            return False
        return True

    async def through(name: str) -> bool:
        answered = await far.gateway.http.post(far.orders, json=properties(**{name: "1"}))
        assert answered.status_code in {200, 409}, answered.text
        return answered.status_code == 200

    names = [f"writer-{number}" for number in range(8)]
    made = await asyncio.gather(*((through if number % 2 else behind)(name) for number, name in enumerate(names)))
    there = (await far.table())["metadata"]["properties"]
    assert {name for name in names if name in there} == {
        name for name, is_made in zip(names, made, strict=True) if is_made
    }
    assert any(made[1::2])
    assert (await far.words()).count("accepted") == sum(made[1::2])
    assert await far.open_decisions() == set()


async def test_a_commit_that_changes_nothing_leaves_glue_as_it_is(far: GlueTenant) -> None:
    before, sent = await far.table(), len(far.wire.seen)
    answered = await far.gateway.http.post(far.orders, json={"requirements": [], "updates": []})
    assert (answered.status_code, answered.json()["metadata-location"]) == (200, before["metadata-location"])
    assert not any(seen.is_mutation for seen in far.wire.seen[sent:])
    assert await far.words() == ["approved", "accepted"]


async def test_a_table_is_dropped_as_it_was_judged_or_judged_again(far: GlueTenant) -> None:
    """The other client commits between the load and the look before the drop."""
    reads = 0

    async def interfere(request: Request) -> None:
        nonlocal reads
        reads += request.target.endswith(far.path) and not request.is_mutation
        if reads == 2:
            reads += 1
            await far.commit_behind(properties(color="blue"))

    with looking(far, interfere):
        assert (await far.gateway.http.delete(far.orders)).status_code == 204
    assert (await far.gateway.http.get(far.orders)).status_code == 404
    assert await far.words() == ["approved", "conflicted", "approved", "accepted"]


async def test_a_commit_that_is_sent_again_under_its_key_is_made_once_and_shown_as_it_was_made(far: GlueTenant) -> None:
    key, body = new_key(), properties(color="red")
    first = await far.gateway.http.post(far.orders, json=body, headers=key)
    await far.commit_behind(properties(color="blue"))
    again = await far.gateway.http.post(far.orders, json=body, headers=key)
    assert (first.status_code, again.status_code) == (200, 200), again.text
    assert first.json() == again.json()
    assert await far.words() == ["approved", "accepted"]
    assert (await far.table())["metadata"]["properties"]["color"] == "blue"


# Faults


@pytest.mark.parametrize(
    "case", [case for case in LOSSES if case.step is Step.FORWARD or case.loss is Loss.ANSWER], ids=str
)
async def test_what_is_lost_or_late_leaves_record_and_table_in_agreement(far: GlueTenant, case: Case) -> None:
    await check_loss(far, case)


def glue_error(kind: str) -> bytes:
    return orjson.dumps({"__type": f"com.amazonaws.glue#{kind}", "Message": f"{kind}!"})


SAYINGS = (
    *(
        UpstreamAnswer(
            status=status,
            body=body,
            carried_out=carried_out,
            known=ClientKnowledge.UNKNOWN,
            then=("approved", "unknown"),
        )
        for status, body, carried_out in (
            (500, glue_error("InternalServiceException"), True),
            (503, b"", False),
            (400, glue_error("OperationTimeoutException"), True),
            (400, glue_error("FederationSourceRetryableException"), False),
            (409, b"", True),
            (404, b"<html>", True),
            (400, b'{"__type": 7}', False),
            (200, b"<html>welcome</html>", True),
            (200, glue_error("ConcurrentModificationException"), True),
            (302, b"", False),
        )
    ),
    *(
        UpstreamAnswer(
            status=400, body=glue_error(kind), carried_out=False, known=ClientKnowledge.NO, then=("approved", outcome)
        )
        for kind, outcome in (
            ("ConcurrentModificationException", "conflicted"),
            ("EntityNotFoundException", "refused"),
            ("AccessDeniedException", "refused"),
            ("InvalidInputException", "refused"),
            ("ThrottlingException", "refused"),
            ("UnrecognizedClientException", "refused"),
        )
    ),
)


@pytest.mark.parametrize("saying", SAYINGS, ids=str)
async def test_whatever_glue_says_record_and_table_agree(far: GlueTenant, saying: UpstreamAnswer) -> None:
    await check_saying(far, saying)


async def test_a_change_of_every_kind_is_found_if_its_answer_is_lost(far: GlueTenant) -> None:
    lines, stock = f"{far.name}-lines", f"{far.name}-stock"
    changes: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
        ("POST", TABLES, {"name": lines, "schema": SCHEMA, "properties": {"color": "red"}}),
        ("POST", f"{TABLES}/{lines}", properties(color="blue")),
        ("DELETE", f"{TABLES}/{lines}", None),
        ("POST", ROOT, {"namespace": [stock], "properties": {"owner": "ada", "comment": "stock"}}),
        ("POST", f"{ROOT}/{stock}/properties", {"updates": {"owner": "eve"}, "removals": ["comment"]}),
        ("DELETE", f"{ROOT}/{stock}", None),
    )
    await lose_answers(far, changes, of=f"table:{ALIAS}/sales/{lines}")


async def test_a_create_that_is_committed_after_it_was_staged_is_found_if_its_answer_is_lost(far: GlueTenant) -> None:
    name, sent = f"{far.name}-staged", len(far.wire.seen)
    staged = await far.gateway.http.post(TABLES, json={"name": name, "schema": SCHEMA, "stage-create": True})
    assert staged.status_code == 200
    assert "metadata-location" not in staged.json()
    assert not any(seen.is_mutation for seen in far.wire.seen[sent:])
    metadata = staged.json()["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}
    far.wire.fault = Fault(happens=Loss.ANSWER, path="/tables")
    assert (await far.gateway.http.post(f"{TABLES}/{name}", json=body)).status_code in UNKNOWN_STATUSES
    assert [each.outcome for each in await far.reconcile()] == [CommitOutcome.ACCEPTED]
    again = await far.gateway.http.post(f"{TABLES}/{name}", json=body)
    assert again.status_code == 409


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_in_whatever_order_record_and_table_agree(far: GlueTenant, seed: int) -> None:
    await check_mixture(far, Random(seed))  # noqa: S311 - chosen to be repeatable, not secret


@pytest.mark.parametrize("kill", [kill for kill in KILLS if kill.step is Step.FORWARD], ids=str)
async def test_a_process_that_dies_leaves_nothing_in_doubt_that_can_be_told(far: GlueTenant, kill: Kill) -> None:
    await check_kill(far, kill)


async def test_a_file_that_cannot_be_written_leaves_glue_unasked(far: GlueTenant) -> None:
    before, sent = await far.table(), len(far.wire.seen)
    happens = Replaced(answer=answer(500), carried_out=False)
    far.store_wire.fault = Fault(happens=happens, path=".metadata.json", methods=frozenset({"PUT"}))
    answered = await far.gateway.http.post(far.orders, json=properties(color="red"))
    assert answered.status_code == 503, answered.text
    assert not any(seen.is_mutation for seen in far.wire.seen[sent:])
    assert await far.words() == ["approved", "failed"]
    assert await far.table() == before
    assert (await far.gateway.http.post(far.orders, json=properties(color="red"))).status_code == 200


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [(404, b"", 503), (403, b"<Error/>", 403), (500, b"", 503), (200, b"{", 503), (200, b"[]", 503), (200, b"{}", 503)],
)
async def test_a_store_that_does_not_give_the_metadata_file_is_no_table_that_is_gone(
    far: GlueTenant, status: int, body: bytes, expected: int
) -> None:
    for method in ("GET", "POST", "DELETE"):
        happens = Replaced(answer=answer(status, body), carried_out=False)
        far.store_wire.fault = Fault(happens=happens, path=".metadata.json", methods=frozenset({"GET"}))
        content = orjson.dumps(properties(color="red")) if method == "POST" else None
        answered = await far.gateway.http.request(method, far.orders, content=content)
        assert answered.status_code == expected, answered.text
    assert await far.words() == []


TABLE = {"Name": "orders", "Parameters": {"table_type": "ICEBERG"}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"Table": null}',
        orjson.dumps({"Table": {**TABLE, "Name": "other"}}),
        orjson.dumps({"Table": TABLE}),
        orjson.dumps({"Table": {"Name": "{name}", "Parameters": {"table_type": "ICEBERG"}}}),
        orjson.dumps({"Table": {"Name": "{name}", "Parameters": {"table_type": "ICEBERG", "metadata_location": 7}}}),
        orjson.dumps(
            {
                "Table": {
                    "Name": "{name}",
                    "VersionId": 7,
                    "Parameters": {"table_type": "ICEBERG", "metadata_location": "s3://b/m"},
                }
            }
        ),
    ],
)
async def test_an_answer_that_is_none_changes_nothing_and_is_no_table_that_is_gone(
    far: GlueTenant, body: bytes
) -> None:
    said = body.replace(b"{name}", far.name.encode())
    for method in ("GET", "POST", "DELETE"):
        happens = Replaced(answer=answer(200, said), carried_out=False)
        far.wire.fault = Fault(happens=happens, path=far.path, methods=frozenset({"GET"}))
        content = orjson.dumps(properties(color="red")) if method == "POST" else None
        answered = await far.gateway.http.request(method, far.orders, content=content)
        assert (answered.status_code, error_of(answered)["type"]) == (503, "ServiceUnavailableException"), answered.text
    assert await far.words() == []


async def test_a_glue_that_is_gone_changes_nothing(far: GlueTenant) -> None:
    alias = f"{far.name}-gone"
    await register_glue(far.gateway, alias, "http://127.0.0.1:9", far.cloud)
    there = f"/v1/iceberg/{alias}/namespaces"
    answers = [
        await far.gateway.http.get(there),
        await far.gateway.http.get(f"{there}/sales/tables/{far.name}"),
        await far.gateway.http.post(f"{there}/sales/tables/{far.name}", json=properties(a="b")),
        await far.gateway.http.post(there, json={"namespace": ["x"]}),
    ]
    assert [each.status_code for each in answers] == [503] * 4
    assert all("127.0.0.1" not in each.text for each in answers)


# Keys


async def test_keys_are_secrets_and_read_for_each_request(far: GlueTenant) -> None:
    alias, secret = f"{far.name}-keys", f"{SECRET}-own"
    options = {"glue__secret_access_key": f"secret:{secret}", "s3__secret_access_key": f"secret:{secret}"}
    await register_glue(far.gateway, alias, far.glue, far.cloud, **options)
    there = f"/v1/iceberg/{alias}/namespaces/sales/tables/{far.name}"
    missing = await far.gateway.http.get(there)
    assert (missing.status_code, f"secret:{secret} is not there" in missing.text) == (403, True)
    written = await far.gateway.http.post(there, json=properties(a="b"))
    assert written.status_code == 403
    secrets_of(far.services).write(far.gateway.acme.tenant, secret, far.cloud.secret_access_key)
    assert (await far.gateway.http.get(there)).status_code == 200
    listed = (await far.gateway.http.get("/v1/catalogs")).text
    assert far.cloud.secret_access_key not in listed


async def test_what_is_behind_an_alias_is_told_by_the_check(far: GlueTenant) -> None:
    owner, installation = far.gateway.acme.tenant, far.services.installation
    catalogs = {each.id: each for each in await far.services.gateway.admin.list_catalogs(far.log_id)}
    found = await check_upstream(installation, owner, catalogs[ALIAS])
    assert (found.answers, found.trouble, list(found.endpoints or ())) == (True, "", list(offered_by("glue")))
    options = {**catalogs[ALIAS].options, "glue.endpoint": "http://127.0.0.1:9"}
    gone = await check_upstream(installation, owner, Catalog(id="x", version=1, kind="glue", options=options))
    assert "does not answer as it should" in gone.trouble
    assert "glue.region, glue.endpoint and glue.id" in gone.advice
