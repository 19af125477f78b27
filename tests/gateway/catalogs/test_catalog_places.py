# SPDX-License-Identifier: Apache-2.0
"""
Places of foreign catalogs: the first tenant to register one holds it, and only the operator moves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.catalogs.catalog_places import read_contested
from gateway.catalogs.derived import fill_derived_rows
from gateway.errors import BadRequestError, ConflictError, PlaceTakenError
from lakeproof.services import Services
from lakeproof.tenants import Founded, found_tenant
from ledger.format.entry import parse_entry
from ledger.format.events import CatalogCreated
from testkit.gateway.sales import error_of
from testkit.servers.gateways import Gateway, app_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def other(shared_gateway: Gateway) -> AsyncIterator[Founded]:
    """A second tenant."""
    yield await found_tenant(shared_gateway.services, name="other", identity="ulf@other.example")


@pytest.fixture
def bucket() -> str:
    """A bucket that no other test uses."""
    return f"bucket-{uuid4().hex[:12]}"


async def register(services: Services, tenant: Founded, alias: str, location: str) -> None:
    options = {"uri": "https://far.example", "location": location}
    await services.gateway.admin.create_catalog(tenant.log_id, OPERATOR, alias=alias, kind="rest", options=options)


async def types_of(services: Services, tenant: Founded) -> list[str]:
    """What the tenant's log holds about catalogs and places."""
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        rows = await connection.execute(
            "SELECT entry FROM ledger.entries WHERE log_id = %s ORDER BY index", (tenant.log_id,)
        )
        entries = [parse_entry(bytes(entry)) for (entry,) in await rows.fetchall()]
    return [entry.type for entry in entries if entry.type.startswith(("catalog.", "place."))]


async def rows_of(services: Services, *tenants: Founded) -> list[tuple[Any, ...]]:
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        found = await connection.execute(
            "SELECT log_id, alias, place, held FROM gateway.catalog_places WHERE log_id = ANY(%s) ORDER BY 1, 2, 3",
            ([tenant.log_id for tenant in tenants],),
        )
        return await found.fetchall()


async def test_a_place_of_another_tenant_is_refused(shared_gateway: Gateway, other: Founded, bucket: str) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    await register(services, acme, "far", f"s3://{bucket}/lake/sales")
    for location in (
        f"s3://{bucket}/lake/sales",
        f"s3://{bucket}/lake/sales/",
        f"s3://{bucket}/lake//sales",
        f"s3://{bucket}/lake/%73ales",
        f"s3://{bucket}/lake/sales/orders",
        f"s3://{bucket}/lake",
        f"s3://{bucket}",
        f"s3://{bucket}/",
    ):
        with pytest.raises(PlaceTakenError, match=r"^options\.location: expected a place that no other") as told:
            await register(services, other, "far", location)
        assert acme.tenant.hex not in str(told.value), "whose it is is not told"
    await register(services, other, "far", f"s3://{bucket}/lake/sales2")
    await register(services, acme, "far-2", f"s3://{bucket}/lake/sales/orders")
    assert await types_of(services, other) == ["catalog.created"]


async def test_over_http_it_is_refused_too(shared_gateway: Gateway, other: Founded, bucket: str) -> None:
    await register(shared_gateway.services, shared_gateway.acme, "far", f"s3://{bucket}/lake")
    body = {"alias": "far", "kind": "rest", "options": {"uri": "https://x.example", "location": f"s3://{bucket}"}}
    async with shared_gateway.client(other.key.secret) as http:
        answer = await http.post("/v1/catalogs", json=body)
    assert (answer.status_code, error_of(answer)["type"]) == (400, "PlaceTakenException")


async def test_of_two_tenants_at_once_exactly_one_gets_it(shared_gateway: Gateway, other: Founded, bucket: str) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    for number in range(8):
        locations = (f"s3://{bucket}/{number}", f"s3://{bucket}/{number}/below")
        results = await asyncio.gather(
            *(
                register(services, tenant, f"far-{number}", location)
                for tenant, location in zip((acme, other), locations, strict=True)
            ),
            return_exceptions=True,
        )
        assert [type(result) for result in results if result is not None] == [PlaceTakenError], results
        held = [row for row in await rows_of(services, acme, other) if row[1] == f"far-{number}"]
        assert [row[3] for row in held] == [True], "whoever was refused has left nothing"


async def test_a_claim_that_comes_between_is_seen_by_the_guard(
    shared_gateway: Gateway, other: Founded, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    holding = services.gateway.admin._holding
    ask, asked = holding.check_free, 0

    async def ask_and_be_late(log_id: int, location: str) -> None:
        nonlocal asked
        asked += 1
        await ask(log_id, location)
        if asked == 1:
            await register(services, acme, "far", f"s3://{bucket}/lake")

    monkeypatch.setattr(holding, "check_free", ask_and_be_late)
    with pytest.raises(PlaceTakenError):
        await register(services, other, "far", f"s3://{bucket}/lake/below")
    assert asked == 3
    assert await types_of(services, other) == []


async def test_an_alias_that_is_taken_is_said_to_be_so(shared_gateway: Gateway, bucket: str) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    await register(services, acme, "far", f"s3://{bucket}/lake")
    with pytest.raises(ConflictError, match="catalog:far exists already"):
        await register(services, acme, "far", f"s3://{bucket}/lake")


async def test_the_warehouse_is_everybodys_but_for_ones_own_folder(shared_gateway: Gateway, other: Founded) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    warehouse = services.gateway.catalogs.warehouse
    for location in (warehouse, f"{warehouse}/{other.tenant.hex}/lake", f"{warehouse}/{other.tenant.hex}", "file:///"):
        with pytest.raises(PlaceTakenError):
            await register(services, acme, "far", location)
    await register(services, acme, "far", f"{warehouse}/{acme.tenant.hex}/elsewhere")


@pytest.mark.parametrize("location", ["s3://lake/../x", "s3://lake/%2e%2e/x", "file:///a%2Fb", "s3://lake/a%5Cb"])
async def test_what_is_no_place_is_refused(shared_gateway: Gateway, location: str) -> None:
    with pytest.raises(BadRequestError, match=r"^options\.location: expected "):
        await register(shared_gateway.services, shared_gateway.acme, "far", location)


async def test_the_operator_moves_a_place(shared_gateway: Gateway, other: Founded, bucket: str) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    admin, place = services.gateway.admin, f"s3://{bucket}/lake"
    move: dict[str, Any] = {"giver": acme.log_id, "taker": other.log_id, "by": OPERATOR}
    await register(services, acme, "far", f"{place}/sales")
    with pytest.raises(ConflictError, match="delete far first"):
        await admin.transfer_place(**move, place=place)
    await admin.retire_catalog(acme.log_id, OPERATOR, alias="far")
    with pytest.raises(PlaceTakenError):
        await register(services, other, "far", place)  # what was registered stays held, though its catalog is retired
    with pytest.raises(ConflictError, match="holds a larger place"):
        await admin.transfer_place(**move, place=f"{place}/sales/orders")
    with pytest.raises(BadRequestError, match="two tenants"):
        await admin.transfer_place(giver=acme.log_id, taker=acme.log_id, by=OPERATOR, place=place)
    await admin.transfer_place(**move, place=f"s3a://{bucket}/lake/")
    with pytest.raises(PlaceTakenError):
        await register(services, acme, "far-2", f"{place}/sales")
    await register(services, other, "far", f"{place}/sales")
    assert await types_of(services, acme) == ["catalog.created", "catalog.created", "catalog.retired", "place.released"]
    assert await types_of(services, other) == ["place.granted", "catalog.created"]
    await admin.retire_catalog(other.log_id, OPERATOR, alias="far")
    await admin.transfer_place(giver=other.log_id, taker=acme.log_id, by=OPERATOR, place=place)
    await admin.transfer_place(**move, place=place)
    assert [row[3] for row in await rows_of(services, acme, other)] == [False, False, True, False]


async def test_a_transfer_that_stopped_in_between_is_repeated(
    shared_gateway: Gateway, other: Founded, bucket: str
) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    admin, place = services.gateway.admin, f"s3://{bucket}/lake"
    await register(services, acme, "far", place)
    await admin.retire_catalog(acme.log_id, OPERATOR, alias="far")
    assert await admin.release_place(acme.log_id, OPERATOR, place=place)
    assert not await admin.release_place(acme.log_id, OPERATOR, place=place)
    await admin.transfer_place(giver=acme.log_id, taker=other.log_id, by=OPERATOR, place=place)
    with pytest.raises(PlaceTakenError):
        await register(services, acme, "far-2", place)
    with pytest.raises(ConflictError, match="changed by another edit"):
        await admin.grant_place(other.log_id, OPERATOR, place=place)


async def _register_as_before(gateway: Gateway, *registered: tuple[Founded, str, str]) -> None:
    """Register catalogs as an older version did: for whatever place, and without a row of it."""
    admin = gateway.services.gateway.admin
    for tenant, alias, location in registered:
        options = {"uri": "https://far.example", "location": location}
        event = CatalogCreated(id=alias, version=1, kind="rest", options=options)
        await admin._edits.create(tenant.log_id, OPERATOR, event)
    with psycopg.connect(gateway.services.installation.admin_dsn, autocommit=True) as owner:
        fill_derived_rows(owner)
        fill_derived_rows(owner)


async def contested(services: Services, warehouse: str | None = None) -> dict[Any, str]:
    async with services.gateway.database.as_role(services.gateway.roles.auditor) as connection:
        return await read_contested(connection, warehouse=warehouse or services.gateway.catalogs.warehouse)


async def test_of_registrations_from_before_the_first_is_served_and_the_others_are_named(
    shared_gateway: Gateway, other: Founded, bucket: str
) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    place = f"s3://{bucket}/lake"
    await _register_as_before(
        shared_gateway,
        (other, "first", f"{place}/sales"),
        (acme, "second", place),
        (acme, "apart", f"s3://{bucket}/apart"),
        (other, "odd", "file:///a%2Fb"),
    )
    assert [(row[1], row[3]) for row in await rows_of(services, acme)] == [("apart", True), ("second", False)]
    assert [(row[1], row[3]) for row in await rows_of(services, other)] == [("first", True)]
    found = await contested(services)
    assert {key for key in found if key[0] in {acme.tenant, other.tenant}} == {(acme.tenant, "second")}
    assert other.tenant.hex in found[acme.tenant, "second"], "the operator is told whose it is"

    parts = replace(services.gateway, catalogs=replace(services.gateway.catalogs, contested=found))
    gateway = replace(shared_gateway, app=app_of(parts))
    async with gateway.client(acme.key.secret) as http:
        answer = await http.get("/v1/iceberg/second/namespaces")
        assert (answer.status_code, error_of(answer)["type"]) == (403, "PlaceContestedException")
        assert other.tenant.hex not in answer.text

    await services.gateway.admin.retire_catalog(other.log_id, OPERATOR, alias="first")
    await services.gateway.admin.transfer_place(giver=other.log_id, taker=acme.log_id, by=OPERATOR, place=place)
    assert (acme.tenant, "second") not in await contested(services)


async def test_a_warehouse_that_is_moved_onto_a_place_is_named(shared_gateway: Gateway, bucket: str) -> None:
    services, acme = shared_gateway.services, shared_gateway.acme
    await register(services, acme, "far", f"s3://{bucket}/lake")
    found = await contested(services, warehouse=f"s3://{bucket}/lake/warehouse")
    assert (acme.tenant, "far") in found
    assert (acme.tenant, "far") not in await contested(services, warehouse=f"s3://{bucket}/warehouse")
