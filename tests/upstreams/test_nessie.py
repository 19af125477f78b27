# SPDX-License-Identifier: Apache-2.0
"""
Project Nessie as a foreign catalog: what engines can do with it, its branches, and what becomes of a change whose
answer is lost.

It shows of a table its current snapshot alone. What a commit became that others have followed is in its log of commits,
which the reconciler reads.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from gateway.admin.application import OPERATOR
from gateway.control.aggregates import Catalog
from gateway.http.operations import endpoints as offered_by
from lakeproof.inspecting.upstreams import check_upstream
from lakeproof.services import Services
from ledger.format.events import CommitOutcome
from testkit.gateway.foreign_faults import (
    HAPPENINGS,
    LOSSES,
    UPSTREAM_ANSWERS,
    Case,
    Step,
    UpstreamAnswer,
    check_loss,
    check_mixture,
    check_other_changes,
    check_saying,
    check_view_changes,
    snapshot_of,
)
from testkit.gateway.foreign_tenant import ALIAS, ROOT, TABLES, UNKNOWN_STATUSES, VIEWS
from testkit.gateway.log_contents import read_stored, words
from testkit.gateway.nessie_tenant import NessieTenant, open_nessie_tenant
from testkit.gateway.sales import SCHEMA, error_of, properties
from testkit.gateway.shop_rows import SCHEMA as SHOP_SCHEMA
from testkit.gateway.shop_rows import rows
from testkit.gateway.table_requests import commit_to, transaction
from testkit.gateway.view_requests import view_created
from testkit.servers.chained import register, secrets_of
from testkit.servers.cloud import fresh_cloud
from testkit.servers.faulty_wire import Fault, Loss
from testkit.servers.loopback import serve_gateway
from testkit.servers.nessie import WAREHOUSE, Nessie, start_nessie

pytestmark = pytest.mark.asyncio(loop_scope="module")

DELEGATION = "X-Iceberg-Access-Delegation"
LEADS_ROUND = ("signer", "signing", "nessie.", "uri")
OPENS = ("access-key", "token")
"""Parts of the names of members that say where Nessie is, and of those that open its storage."""
NAMESPACE = "/v1/{prefix}/namespaces/{namespace}"
REGISTER = f"POST {NAMESPACE}/register"
NOT_THERE = {
    *(f"GET {NAMESPACE}/functions{one}" for one in ("", "/{function}")),
    f"POST {NAMESPACE}/register-view",
    f"POST {NAMESPACE}/tables/{{table}}/unregister",
}
"""What the specification got after this Nessie was made."""
UNREAD = "the gateway reads none of its files, so nothing is registered in it: its option location is not on S3"
TRANSACTION = f"/v1/iceberg/{ALIAS}/transactions/commit"


@pytest.fixture(scope="module")
def nessie(moto: str) -> Iterator[Nessie]:
    """A real server, empty at first."""
    with start_nessie(fresh_cloud(moto)) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(module_services: Services, nessie: Nessie) -> AsyncIterator[NessieTenant]:
    """A tenant whose catalog `far` is its branch `main`."""
    async with open_nessie_tenant(module_services, nessie) as far:
        yield far


@pytest_asyncio.fixture(loop_scope="module")
async def far(tenant: NessieTenant) -> NessieTenant:
    """The tenant, with a table of the test's own."""
    return await tenant.with_new_table()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def user(module_services: Services, nessie: Nessie) -> AsyncIterator[NessieTenant]:
    """Another tenant with the same catalog: it stages tables, and leaves decisions open."""
    async with open_nessie_tenant(module_services, nessie) as shop:
        yield shop


@pytest_asyncio.fixture(loop_scope="module")
async def shop(user: NessieTenant) -> NessieTenant:
    """That tenant, with a table of the test's own."""
    return await user.with_new_table()


def connect(url: str, shop: NessieTenant, alias: str = ALIAS) -> RestCatalog:
    """Return PyIceberg as a user configures it who has keys of the storage."""
    cloud = shop.nessie.cloud
    keys = {"s3.access-key-id": cloud.access_key_id, "s3.secret-access-key": cloud.secret_access_key}
    return RestCatalog("test", uri=url, warehouse=alias, token=shop.gateway.acme.key.secret, **keys)


def ids(catalog: RestCatalog, name: tuple[str, str]) -> list[int]:
    return sorted(catalog.load_table(name).scan().to_arrow()["id"].to_pylist())


def parts_in(config: Mapping[str, str], parts: Sequence[str]) -> set[str]:
    return {part for part in parts if any(part in name for name in config)}


# Engines


async def test_an_engine_works_with_it(shop: NessieTenant) -> None:
    orders, invoices = ("shops", shop.name), ("shops", f"{shop.name}-invoices")

    def engine(url: str) -> None:
        catalog = connect(url, shop)
        catalog.create_namespace("shops", {"owner": "ada"})
        assert catalog.load_namespace_properties("shops")["owner"] == "ada"
        table = catalog.create_table(orders, SHOP_SCHEMA)
        table.append(rows(0, 10))
        table.append(rows(10, 5))
        late = catalog.load_table(orders).update_schema().add_column("late", StringType())
        with table.update_schema() as schema:
            schema.add_column("channel", StringType())
        table.overwrite(rows(0, 5), overwrite_filter="id < 10")
        with pytest.raises(CommitFailedException, match="Requirement failed: current schema changed"):
            late.commit()
        assert ids(catalog, orders) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
        with catalog.create_table_transaction(("shops", "staged"), SHOP_SCHEMA) as staged:
            staged.append(rows(0, 3))
        assert ids(catalog, ("shops", "staged")) == [0, 1, 2]
        catalog.rename_table(orders, invoices)
        assert not catalog.table_exists(orders)
        assert ids(catalog, invoices) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
        place = catalog.load_table(invoices).location().partition(f"{shop.nessie.cloud.bucket}/")[2]
        catalog.drop_table(("shops", "staged"))
        catalog.purge_table(invoices)
        there = shop.nessie.cloud.client("s3").list_objects_v2(Bucket=shop.nessie.cloud.bucket, Prefix=f"{place}/data/")
        assert there["KeyCount"] >= 3, "files are left to Nessie's garbage collection"
        assert catalog.list_tables("shops") == []
        catalog.drop_namespace("shops")
        assert ("shops",) not in catalog.list_namespaces()

    async with serve_gateway(shop.gateway.app) as url:
        await asyncio.to_thread(engine, url)
    told = await words(shop.services, shop.log_id, after=shop.first, key=f"table:{ALIAS}/shops/{shop.name}")
    assert set(told) == {"approved", "accepted", "conflicted"}


async def test_it_has_all_of_its_kind_but_functions_and_names_no_other_way_in(
    shop: NessieTenant,
) -> None:
    config = (await shop.gateway.http.get("/v1/config", params={"warehouse": ALIAS})).json()
    assert set(config["endpoints"]) == set(offered_by("rest")) - NOT_THERE - {REGISTER}
    assert parts_in(config["defaults"] | config["overrides"], LEADS_ROUND) == set()


@pytest.mark.parametrize("asked", [None, "remote-signing", "vended-credentials,remote-signing"])
async def test_engines_are_given_neither_its_signer_nor_keys_they_did_not_ask_for(
    shop: NessieTenant, asked: str | None
) -> None:
    http, headers = shop.gateway.http, {} if asked is None else {DELEGATION: asked}
    there = (await shop.direct.get(shop.upstream_path, headers=headers)).json()
    assert parts_in(there["config"], (*LEADS_ROUND, *OPENS)), "Nessie itself gives them"
    staged = {"name": f"{shop.name}-staged", "schema": SCHEMA, "stage-create": True}
    for answer in (
        await http.post(TABLES, json=staged, headers=headers),
        await http.get(shop.orders, headers=headers),
        await http.post(shop.orders, json=await shop.next_append(), headers=headers),
    ):
        assert answer.status_code == 200, answer.text
        assert not any(url.partition("//")[2] in answer.text for url in (shop.nessie.url, shop.wire.url))
        told = answer.json()
        assert parts_in(told.get("config", {}), LEADS_ROUND) == set()
        if asked is None or asked == "remote-signing":
            assert parts_in(told.get("config", {}), OPENS) == set()
            assert not told.get("storage-credentials")
    loaded = (await http.get(shop.orders, headers=headers)).json()
    assert loaded["config"]["s3.endpoint"] == shop.nessie.cloud.endpoint
    assert bool(loaded["storage-credentials"]) is (asked == "vended-credentials,remote-signing")


async def test_a_table_is_created_also_by_an_engine_that_does_not_say_it_is_not_staged(shop: NessieTenant) -> None:
    name = f"{shop.name}-plain"
    made = await shop.gateway.http.post(TABLES, json={"name": name, "schema": SCHEMA})
    assert made.status_code == 200, made.text
    assert (await shop.gateway.http.head(f"{TABLES}/{name}")).status_code == 204
    again = await shop.gateway.http.post(TABLES, json={"name": name, "schema": SCHEMA})
    assert (again.status_code, error_of(again)["type"]) == (409, "AlreadyExistsException")


async def test_a_commit_to_a_state_that_has_passed_conflicts(shop: NessieTenant) -> None:
    first, second = await shop.next_append(), await shop.next_append()
    assert (await shop.gateway.http.post(shop.orders, json=first)).status_code == 200
    late = await shop.gateway.http.post(shop.orders, json=second)
    assert (late.status_code, error_of(late)["type"]) == (409, "CommitFailedException")
    assert "Requirement failed" in error_of(late)["message"]
    assert await shop.words() == ["approved", "accepted", "conflicted"]
    assert await shop.snapshots() == {snapshot_of(first)}


async def test_what_is_said_of_a_scan_is_kept(shop: NessieTenant) -> None:
    report = {
        "report-type": "scan-report",
        "table-name": f"sales.{shop.name}",
        "snapshot-id": 1,
        "filter": True,
        "schema-id": 0,
        "projected-field-ids": [1],
        "projected-field-names": ["id"],
        "metrics": {},
    }
    answer = await shop.gateway.http.post(f"{shop.orders}/metrics", json=report)
    assert answer.status_code == 204, answer.text


@pytest.mark.parametrize(
    "update",
    [
        {"action": "set-snapshot-ref", "ref-name": "audit", "type": "branch"},
        {"action": "set-snapshot-ref", "ref-name": "v1", "type": "tag"},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"},
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        {"action": "remove-snapshots", "snapshot-ids": []},
    ],
    ids=lambda update: f"{update['action']} {update.get('type', '')} {update.get('ref-name', '')}",
)
async def test_what_it_cannot_do_with_snapshots_is_refused_before_it_is_sent(
    shop: NessieTenant, update: Mapping[str, Any]
) -> None:
    for _ in range(2):
        assert (await shop.gateway.http.post(shop.orders, json=await shop.next_append())).status_code == 200
    first, last = sorted(await shop.snapshots())
    chosen = first if update.get("ref-name") == "main" else last
    whole = {**update, "snapshot-id": int(chosen)} if update["action"] == "set-snapshot-ref" else update
    sent = len(shop.wire.seen)
    answer = await shop.gateway.http.post(shop.orders, json={"requirements": [], "updates": [whole]})
    assert (answer.status_code >= 400, answer.status_code < 500) == (True, True), answer.text
    if chosen == last:
        assert (answer.status_code, error_of(answer)["type"]) == (406, "UnsupportedOperationException")
        assert "make a branch or a tag in Nessie" in error_of(answer)["message"]
    assert not any(seen.is_mutation for seen in shop.wire.seen[sent:])
    assert await shop.open_decisions() == set()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{ROOT}/sales/register", {"name": "x", "metadata-location": "s3://b/m.json"}),
        (f"{ROOT}/sales/register-view", {"name": "x", "metadata-location": "s3://b/m.json"}),
    ],
)
async def test_without_its_storage_nothing_is_registered_in_it(
    shop: NessieTenant, path: str, body: Mapping[str, Any]
) -> None:
    sent = len(shop.wire.seen)
    answer = await shop.gateway.http.post(path, json=body)
    assert (answer.status_code, error_of(answer)["type"]) == (406, "UnsupportedOperationException"), answer.text
    assert not any(seen.is_mutation for seen in shop.wire.seen[sent:])


# Branches


async def test_each_branch_is_an_alias_and_sees_its_own_state(shop: NessieTenant) -> None:
    http, name, location = shop.gateway.http, shop.name, shop.nessie.cloud.warehouse
    branch = f"etl/{name}"
    await asyncio.to_thread(shop.nessie.make_branch, branch)
    uri = shop.nessie.catalog(branch.replace("/", "%2F"))
    await register(shop.gateway, name, uri, warehouse=WAREHOUSE, location=location)
    there = f"/v1/iceberg/{name}/namespaces/sales/tables/{name}"
    assert (await http.get(there)).json()["metadata"]["table-uuid"] == (await shop.table())["metadata"]["table-uuid"]
    first, second = await shop.next_append(), await shop.next_append()
    assert (await http.post(there, json=first)).status_code == 200
    assert await shop.snapshots() == set(), "main has not changed"
    assert (await http.post(shop.orders, json=second)).status_code == 200
    states = [(await http.get(path)).json()["metadata"] for path in (there, shop.orders)]
    assert [str(state["current-snapshot-id"]) for state in states] == [snapshot_of(first), snapshot_of(second)]
    assert [state["properties"]["nessie.commit.ref"] for state in states] == [branch, "main"]
    body = {"name": f"{name}-more", "schema": SCHEMA}
    made = await http.post(there.rpartition("/")[0], json=body)
    assert made.status_code == 200, made.text
    assert (await http.get(f"{shop.orders}-more")).status_code == 404
    outside = await http.post(there.rpartition("/")[0], json={**body, "name": "x", "location": "s3://other/x"})
    assert outside.status_code == 400
    # The log says which of them it was.
    key = f"table:{name}/sales/{name}"
    assert await words(shop.services, shop.log_id, after=shop.first, key=key) == ["approved", "accepted"]
    told = {one.decided.snapshots for one in await stored(shop, key) if one.words == "approved"}
    assert told == {(snapshot_of(first),)}
    assert await shop.words() == ["approved", "accepted"]


@pytest.mark.parametrize("suffix", ["@main", "#", "@main#2026-11-26T00:00:00Z"])
async def test_a_name_leads_to_no_other_branch_than_that_of_the_alias(shop: NessieTenant, suffix: str) -> None:
    http, alias = shop.gateway.http, f"{shop.name}-{len(suffix)}"
    await asyncio.to_thread(shop.nessie.make_branch, alias)
    await register(shop.gateway, alias, shop.nessie.catalog(alias), warehouse=WAREHOUSE)
    root = f"/v1/iceberg/{alias}"
    tables = f"{root}/namespaces/sales/tables"
    elsewhere = f"{shop.name}{suffix}"
    there = f"{tables}/{quote(elsewhere, safe='')}"
    append = await shop.next_append()
    source = {"namespace": ["sales"], "name": shop.name}
    answers = [
        await http.get(there),
        await http.head(there),
        await http.delete(there),
        await http.post(there, json=append),
        await http.post(tables, json={"name": elsewhere, "schema": SCHEMA}),
        await http.post(f"{root}/tables/rename", json={"source": source, "destination": {**source, "name": elsewhere}}),
        await http.post(f"{root}/transactions/commit", json=transaction(commit_to(elsewhere, append))),
    ]
    assert [answer.status_code for answer in answers] == [400] * len(answers), [answer.text for answer in answers]
    assert "use the alias of that branch" in error_of(answers[0])["message"]
    assert await shop.snapshots() == set(), "main has not changed"
    assert await words(shop.services, shop.log_id, after=shop.first, key=f"table:{alias}/sales/{elsewhere}") == []
    assert (await http.get(f"{tables}/{shop.name}")).status_code == 200


async def test_a_branch_that_is_not_there_is_said_to_be_missing(shop: NessieTenant) -> None:
    alias = f"{shop.name}-gone"
    await register(shop.gateway, alias, shop.nessie.catalog("nosuch"))
    answer = await shop.gateway.http.get(f"/v1/iceberg/{alias}/namespaces")
    assert answer.status_code == 400
    assert error_of(answer)["message"] == "Named reference 'nosuch' not found"


async def test_what_is_behind_an_alias_is_told_by_the_check(shop: NessieTenant) -> None:
    owner, installation = shop.gateway.acme.tenant, shop.services.installation
    for uri, options, trouble, notes in (
        (shop.nessie.iceberg, {}, "", [UNREAD, "it is branch main of a Nessie, whose log of commits is used"]),
        (shop.nessie.iceberg, {"warehouse": "nosuch"}, "Warehouse 'nosuch' is not known", []),
        (shop.nessie.catalog("nosuch"), {}, "Named reference 'nosuch' not found", []),
    ):
        catalog = Catalog(id="looked-at", version=1, kind="rest", options={"uri": uri, **options})
        found = await check_upstream(installation, owner, catalog)
        assert (list(found.notes), trouble in found.trouble, bool(found.trouble)) == (notes, True, bool(trouble))
        if not trouble:
            assert set(found.missing) == NOT_THERE
            assert "POST /v1/{prefix}/transactions/commit" in (found.endpoints or ())


# What becomes of a change


@dataclass(frozen=True, slots=True, kw_only=True)
class Registering:
    """A tenant whose catalog `alias` is to register the table of `shop`, whose last metadata is at `location`."""

    shop: NessieTenant
    alias: str
    location: str

    @property
    def key(self) -> str:
        """The table's key in the log, under the alias."""
        return f"table:{self.alias}/sales/{self.shop.name}"

    async def register(self, location: str | None = None) -> httpx.Response:
        """Register it through the gateway."""
        body = {"name": self.shop.name, "metadata-location": location or self.location}
        return await self.shop.gateway.http.post(f"/v1/iceberg/{self.alias}/namespaces/sales/register", json=body)

    async def words(self) -> list[str]:
        """What the log says of the table under the alias."""
        return await words(self.shop.services, self.shop.log_id, key=self.key)


async def lose(shop: NessieTenant, loss: Loss, body: Mapping[str, Any]) -> None:
    """Commit to the table, and let the request or its answer be lost."""
    shop.wire.fault = Fault(happens=loss, path=shop.path)
    lost = await shop.gateway.http.post(shop.orders, json=body)
    assert lost.status_code in UNKNOWN_STATUSES, lost.text


async def stored(shop: NessieTenant, key: str) -> list[Any]:
    return await read_stored(shop.services, shop.log_id, after=shop.first, key=key)


async def reconciled(shop: NessieTenant, key: str | None = None) -> list[CommitOutcome]:
    """Reconcile; return the outcomes of the decisions that were open on the table, or on another key."""
    return [each.outcome for each in await shop.reconcile() if each.key == (key or shop.key)]


async def files_of_outcomes(shop: NessieTenant) -> dict[tuple[str, ...], str | None]:
    """Return the metadata file in the accepted outcome of each commit, by the snapshots that it adds."""
    told = [one.settled for one in await stored(shop, shop.key) if one.words == "accepted"]
    return {outcome.snapshots: outcome.metadata_location for outcome in told}


@pytest.mark.parametrize("loss", [None, Loss.ANSWER, Loss.REQUEST])
async def test_a_transaction_is_one_commit_of_the_branch_and_found_there(
    shop: NessieTenant, user: NessieTenant, loss: Loss | None
) -> None:
    other = await user.with_new_table()
    body = {
        "table-changes": [
            {"identifier": {"namespace": ["sales"], "name": each.name}, **await each.next_append()}
            for each in (shop, other)
        ]
    }
    shop.wire.fault = None if loss is None else Fault(happens=loss, path="/transactions/commit")
    answer = await shop.gateway.http.post(TRANSACTION, json=body)
    assert (answer.status_code in UNKNOWN_STATUSES) if loss else answer.status_code == 204, answer.text
    await shop.reconcile()
    lands = loss is not Loss.REQUEST
    expected = ["approved", *(["unknown"] if loss else []), *(["accepted"] if lands else [])]
    for each in (shop, other):
        assert await each.words() == expected
        assert len(await each.snapshots()) == int(lands)
    newest = [(await asyncio.to_thread(shop.nessie.history, f"sales.{each.name}"))[0] for each in (shop, other)]
    assert (newest[0]["commitMeta"]["hash"] == newest[1]["commitMeta"]["hash"]) == lands
    for each in (shop, other):
        outcomes = [one.settled for one in await stored(each, each.key) if one.words == "accepted"]
        files = [outcome.metadata_location for outcome in outcomes]
        assert files == ([(await each.states())[0]["metadataLocation"]] if lands else [])


@pytest_asyncio.fixture(loop_scope="module")
async def stocked(user: NessieTenant) -> AsyncIterator[Registering]:
    """The tenant, with a table that is in the catalog no more, and an alias whose files the gateway reads on S3."""
    shop, cloud = await user.with_new_table(), user.nessie.cloud
    await shop.commit_behind(await shop.next_append())
    location = (await shop.table())["metadata-location"]
    (await shop.direct.delete(shop.upstream_path)).raise_for_status()
    shop = replace(shop, name=f"{shop.name}-again")
    secrets_of(shop.services).write(shop.gateway.acme.tenant, "store", cloud.secret_access_key)
    alias = f"stocked-{shop.name}"
    options = {
        **cloud.engine_properties(),
        "uri": f"{shop.wire.url}/iceberg",
        "location": cloud.warehouse,
        "s3.secret-access-key": "secret:store",
    }
    await shop.services.gateway.admin.create_catalog(shop.log_id, OPERATOR, alias=alias, kind="rest", options=options)
    yield Registering(shop=shop, alias=alias, location=location)


@pytest.mark.parametrize("loss", [None, Loss.ANSWER])
async def test_a_table_is_registered_with_a_file_on_s3_that_was_judged(stocked: Registering, loss: Loss | None) -> None:
    shop = stocked.shop
    shop.wire.fault = None if loss is None else Fault(happens=loss, path="/register")
    answer = await stocked.register()
    assert (answer.status_code in UNKNOWN_STATUSES) if loss else answer.status_code == 200, answer.text
    await shop.reconcile()
    assert await stocked.words() == ["approved", *(["unknown"] if loss else []), "accepted"]
    (newest, *_) = await shop.states()
    assert newest["metadataLocation"] == stocked.location
    decided, *_, settled = await stored(shop, stocked.key)
    assert settled.settled.metadata_location == stocked.location
    assert decided.decided.snapshots == settled.settled.snapshots == (str(newest["snapshotId"]),)
    offered = (await shop.gateway.http.get("/v1/config", params={"warehouse": stocked.alias})).json()["endpoints"]
    assert REGISTER in offered


async def test_a_registration_that_was_not_made_is_open_and_has_failed_once_another_table_is_there(
    stocked: Registering,
) -> None:
    shop = stocked.shop
    shop.wire.fault = Fault(happens=Loss.REQUEST, path="/register")
    assert (await stocked.register()).status_code in UNKNOWN_STATUSES
    assert await reconciled(shop, stocked.key) == [CommitOutcome.UNKNOWN], "it may still arrive"
    path = f"/v1/iceberg/{stocked.alias}/namespaces/sales/tables"
    assert (await shop.gateway.http.post(path, json={"name": shop.name, "schema": SCHEMA})).status_code == 200
    assert await reconciled(shop, stocked.key) == [CommitOutcome.FAILED]


async def test_nothing_is_registered_with_a_file_that_is_not_there_or_elsewhere_on_s3(stocked: Registering) -> None:
    sent = len(stocked.shop.wire.seen)
    for location in (f"{stocked.location}.gone", stocked.location.replace("/warehouse/", "/elsewhere/")):
        no = await stocked.register(location)
        assert (no.status_code, error_of(no)["type"]) == (400, "BadRequestException")
    assert not any(seen.is_mutation for seen in stocked.shop.wire.seen[sent:])


async def test_a_commit_that_others_have_followed_is_found_in_the_log_of_commits(far: NessieTenant) -> None:
    ours = await far.next_append()
    await lose(far, Loss.ANSWER, ours)
    theirs = await far.next_append()
    await far.commit_behind(theirs)
    further = await far.next_append()
    assert (await far.gateway.http.post(far.orders, json=further)).status_code == 200
    assert snapshot_of(ours) not in json.dumps(await far.table()), "the table does not show it any more"
    assert await reconciled(far) == [CommitOutcome.ACCEPTED]
    files = {str(state["snapshotId"]): state["metadataLocation"] for state in await far.states()}
    assert (await files_of_outcomes(far))[snapshot_of(ours),] == files[snapshot_of(ours)], "its own metadata file"
    await far.check()


async def test_a_commit_that_was_not_made_is_open_until_it_cannot_be_made_any_more(shop: NessieTenant) -> None:
    ours = await shop.next_append()
    await lose(shop, Loss.REQUEST, ours)
    assert await reconciled(shop) == [CommitOutcome.UNKNOWN], "it may still arrive"
    await shop.commit_behind(await shop.next_append())
    await shop.commit_behind(properties(color="red"))
    # Nobody knows who has set the properties: gateways named no decision once.
    assert await reconciled(shop) == [CommitOutcome.UNKNOWN]


async def test_a_commit_that_was_not_made_has_failed_once_another_was(far: NessieTenant) -> None:
    ours = await far.next_append()
    await lose(far, Loss.REQUEST, ours)
    await far.commit_behind(await far.next_append())
    assert (await far.gateway.http.post(far.orders, json=await far.next_append())).status_code == 200
    assert await reconciled(far) == [CommitOutcome.FAILED]
    assert snapshot_of(ours) not in await far.snapshots()
    await far.check()


async def test_a_commit_that_was_merged_is_that_of_its_own_branch(far: NessieTenant) -> None:
    ours, alias = await far.next_append(), f"{far.name}-merged"
    await lose(far, Loss.REQUEST, ours)
    await asyncio.to_thread(far.nessie.make_branch, alias)
    await register(far.gateway, alias, far.nessie.catalog(alias))
    theirs = await far.next_append()
    answer = await far.gateway.http.post(far.orders.replace(f"/{ALIAS}/", f"/{alias}/", 1), json=theirs)
    assert answer.status_code == 200, answer.text
    await asyncio.to_thread(far.nessie.merge, alias)
    assert await far.snapshots() == {snapshot_of(theirs)}
    assert await reconciled(far) == [CommitOutcome.FAILED]
    assert await far.words() == ["approved", "unknown", "failed"]


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER], ids=str)
async def test_a_commit_without_snapshots_is_known_by_its_decision(shop: NessieTenant, loss: Loss) -> None:
    await lose(shop, loss, properties(color="red"))
    # As ours would have made it, or undone: what the table is now tells nothing.
    for color in ("red", "blue"):
        assert (await shop.gateway.http.post(shop.orders, json=properties(color=color))).status_code == 200
    assert await reconciled(shop) == [CommitOutcome.ACCEPTED if loss is Loss.ANSWER else CommitOutcome.UNKNOWN]
    if loss is Loss.REQUEST:
        assert (await shop.gateway.http.post(shop.orders, json=await shop.next_append())).status_code == 200
        assert await reconciled(shop) == [CommitOutcome.FAILED], "its pins do not hold"


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.ANSWER], ids=str)
async def test_a_create_is_known_by_its_decision_and_not_by_what_it_would_have_made(
    shop: NessieTenant, loss: Loss
) -> None:
    name = f"{shop.name}-new"
    body = {"name": name, "schema": SCHEMA, "stage-create": False}
    shop.wire.fault = Fault(happens=loss, path="/tables")
    assert (await shop.gateway.http.post(TABLES, json=body)).status_code in UNKNOWN_STATUSES
    is_made = loss is Loss.ANSWER
    above = shop.upstream_path.rpartition("/")[0]
    if is_made:
        (await shop.direct.delete(f"{above}/{name}")).raise_for_status()
    (await shop.direct.post(above, json=body)).raise_for_status()
    found = [each for each in await shop.reconcile() if each.key.endswith(name)]
    assert [each.outcome for each in found] == [CommitOutcome.ACCEPTED if is_made else CommitOutcome.UNKNOWN]
    if is_made:
        outcome = (await stored(shop, found[0].key))[-1].settled
        assert outcome.metadata_location not in {
            None,
            (await shop.direct.get(f"{above}/{name}")).json()["metadata-location"],
        }
        assert outcome.table_uuid is None, "the table that is there is another's"


async def test_a_log_that_cannot_be_read_leaves_open_what_the_table_does_not_show(far: NessieTenant) -> None:
    await lose(far, Loss.ANSWER, await far.next_append())
    await far.commit_behind(await far.next_append())
    far.wire.fault = Fault(happens=Loss.REQUEST, path="/history", methods=frozenset({"GET"}))
    assert await reconciled(far) == [CommitOutcome.UNKNOWN]
    assert await reconciled(far) == [CommitOutcome.ACCEPTED]


async def test_a_view_is_shown_as_it_is_there_without_where_it_is(shop: NessieTenant) -> None:
    name = f"{shop.name}-report"
    made = await shop.gateway.http.post(VIEWS, json=view_created(name))
    assert made.status_code == 200, made.text
    shown = await shop.gateway.http.get(f"{VIEWS}/{name}")
    assert shown.json()["metadata"]["view-uuid"] == made.json()["metadata"]["view-uuid"]
    assert not [member for member in shown.json().get("config") or {} if "sign" in member or "nessie" in member]
    listed = (await shop.gateway.http.get(VIEWS)).json()["identifiers"]
    assert name in {each["name"] for each in listed}


# The fault tables of every upstream


@pytest.mark.parametrize(
    "case", [case for case in LOSSES if case.step is Step.FORWARD or case.loss is Loss.ANSWER], ids=str
)
async def test_what_is_lost_or_late_leaves_record_and_table_in_agreement(far: NessieTenant, case: Case) -> None:
    await check_loss(far, case)


@pytest.mark.parametrize(
    "saying", [saying for saying in UPSTREAM_ANSWERS if saying.carried_out and saying.status in {200, 500}], ids=str
)
async def test_whatever_the_upstream_says_record_and_table_agree(far: NessieTenant, saying: UpstreamAnswer) -> None:
    await check_saying(far, saying)


async def test_a_change_of_every_kind_is_found_if_its_answer_is_lost(far: NessieTenant) -> None:
    await check_other_changes(far)


async def test_a_change_of_every_kind_to_a_view_is_found_if_its_answer_is_lost(far: NessieTenant) -> None:
    await check_view_changes(far)


async def test_whatever_happens_in_whatever_order_record_and_table_agree(far: NessieTenant) -> None:
    happenings = [each for each in HAPPENINGS if each != "expire"]  # which Nessie does not offer
    await check_mixture(far, Random(0), happenings)  # noqa: S311 - chosen to be repeatable, not secret
