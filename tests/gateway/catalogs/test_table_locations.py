# SPDX-License-Identifier: Apache-2.0
"""
Locations of tables: in their alias's folder of the warehouse, or in the one that the operator has given to their
catalog, whatever a client requests.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import pytest_asyncio

from gateway.admin.application import OPERATOR
from gateway.errors import BadRequestError
from testkit.gateway.log_contents import check_agreement, live_rows, path_of
from testkit.gateway.sales import ORDERS, SCHEMA, TABLES, error_of, properties
from testkit.gateway.view_requests import view_created
from testkit.servers.gateways import Gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_tables_live_below_their_aliass_folder_and_nowhere_else(sales: Gateway) -> None:
    warehouse = f"{sales.services.gateway.catalogs.warehouse}/{sales.acme.tenant.hex}/lake"
    other = f"{sales.services.gateway.catalogs.warehouse}/{'0' * 32}/lake"
    for location in (
        f"{other}/t",
        f"{warehouse}/../../{'0' * 32}/lake/t",
        f"{warehouse}/t/../../../t",
        f"{warehouse}/%2e%2e/t",
        f"{warehouse}/./t",
        f"{warehouse}//t",
        f"{warehouse}/t?x",
        f"{warehouse}/t#x",
        f"{warehouse}/..\\t",
        f"{warehouse}/\n/t",
        f"{warehouse}/{'x' * 256}",
        f"{warehouse}/" + "/".join(["x" * 200] * 6),
        f"{warehouse}2/t",
        warehouse,
        f"{warehouse}/",
        "/etc/t",
        "file:///etc/t",
        "s3://elsewhere/t",
    ):
        create = await sales.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": location})
        assert (create.status_code, error_of(create)["type"]) == (400, "BadRequestException"), location
        assert error_of(create)["message"].startswith("location: "), location
        body = {"requirements": [], "updates": [{"action": "set-location", "location": location}]}
        assert (await sales.http.post(ORDERS, json=body)).status_code == 400, location
        beside = await sales.http.post(ORDERS, json=properties(**{"write.metadata.path": location}))
        assert beside.status_code == 400, location
        assert error_of(beside)["message"].startswith("properties.write.metadata.path: "), location
    inside = await sales.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": f"{warehouse}/my t/ü/"})
    assert inside.status_code == 200
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_link_that_leads_out_of_the_warehouse_is_not_followed(sales: Gateway, tmp_path: Path) -> None:
    warehouse = f"{sales.services.gateway.catalogs.warehouse}/{sales.acme.tenant.hex}/lake"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path_of(f"{warehouse}/link").symlink_to(elsewhere)
    answer = await sales.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": f"{warehouse}/link"})
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert list(elsewhere.iterdir()) == []
    assert ("lake", ("sales",), "t") not in (await live_rows(sales.services, sales.acme.log_id)).tables


SPREAD = "/v1/iceberg/spread/namespaces"


@pytest_asyncio.fixture(loop_scope="module")
async def given(sales: Gateway, tmp_path: Path) -> Path:
    """A folder that a catalog, `spread`, may have its tables in, too."""
    folder = tmp_path / "given"
    folder.mkdir()
    await sales.services.gateway.admin.create_catalog(
        sales.acme.log_id, OPERATOR, alias="spread", kind="builtin", options={"location": f"file://{folder}"}
    )
    assert (await sales.http.post(SPREAD, json={"namespace": ["sales"]})).status_code == 200
    return folder


async def test_a_catalog_with_a_location_has_tables_there_and_in_the_warehouse(sales: Gateway, given: Path) -> None:
    tables = f"{SPREAD}/sales/tables"
    for spelled in (f"file:{given}/a", f"file://{given}/b", f"{given}/c", f"file://localhost{given}/d"):
        name = spelled[-1]
        answer = await sales.http.post(tables, json={"name": name, "schema": SCHEMA, "location": spelled})
        assert answer.status_code == 200, answer.text
        assert answer.json()["metadata"]["location"] == spelled
        # Whoever spells it, a pointer names each file in one way.
        assert answer.json()["metadata-location"].startswith(f"file://{given}/{name}/metadata/00000-")
        assert path_of(answer.json()["metadata-location"]).exists()
        assert (await sales.http.post(f"{tables}/{name}", json=properties(a="b"))).status_code == 200
        assert (await sales.http.get(f"{tables}/{name}")).json()["metadata"]["properties"]["a"] == "b"
    home = await sales.http.post(tables, json={"name": "home", "schema": SCHEMA})
    warehouse = f"{sales.services.gateway.catalogs.warehouse}/{sales.acme.tenant.hex}/spread"
    assert home.json()["metadata"]["location"].startswith(f"{warehouse}/")
    taken = await sales.http.post(tables, json={"name": "e", "schema": SCHEMA, "location": f"{given}/a/inside"})
    assert error_of(taken)["type"] == "PlaceTakenException"
    for location in (f"{given}", f"{given}/", f"{given}2/t", f"{given}/../t", f"{given.parent}/t", "file:///etc/t"):
        answer = await sales.http.post(tables, json={"name": "e", "schema": SCHEMA, "location": location})
        assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), location
    elsewhere = await sales.http.post(TABLES, json={"name": "t", "schema": SCHEMA, "location": f"{given}/t"})
    assert elsewhere.status_code == 400, "another catalog has no tables there"
    await check_agreement(sales.services, sales.acme.log_id)


async def test_a_new_table_or_view_is_where_its_namespace_has_its_tables(sales: Gateway, given: Path) -> None:
    made = await sales.http.post(SPREAD, json={"namespace": ["placed"], "properties": {"location": f"{given}/placed/"}})
    assert made.json()["properties"]["location"] == f"{given}/placed/"
    table = await sales.http.post(f"{SPREAD}/placed/tables", json={"name": "my t", "schema": SCHEMA})
    view = await sales.http.post(f"{SPREAD}/placed/views", json=view_created("report"))
    assert table.json()["metadata"]["location"].startswith(f"file://{given}/placed/my_t-"), table.text
    assert view.json()["metadata"]["location"].startswith(f"file://{given}/placed/report-"), view.text
    assert path_of(table.json()["metadata-location"]).exists()
    staged = await sales.http.post(
        f"{SPREAD}/placed/tables", json={"name": "later", "schema": SCHEMA, "stage-create": True}
    )
    assert staged.json()["metadata"]["location"].startswith(f"file://{given}/placed/later-")
    own = {"name": "own", "schema": SCHEMA, "location": f"{given}/own"}
    assert (await sales.http.post(f"{SPREAD}/placed/tables", json=own)).json()["metadata"]["location"] == own[
        "location"
    ]
    moved = {"updates": {"location": f"file:{given}/moved"}}
    assert (await sales.http.post(f"{SPREAD}/placed/properties", json=moved)).status_code == 200
    next_one = await sales.http.post(f"{SPREAD}/placed/tables", json={"name": "next", "schema": SCHEMA})
    assert next_one.json()["metadata"]["location"].startswith(f"file://{given}/moved/next-")
    await check_agreement(sales.services, sales.acme.log_id)


@pytest.mark.parametrize(
    "location",
    ["{given}/../x", "/etc", "s3://elsewhere/x", "{given}", "{given}//x", "{given}/%2e%2e/x", "any text", ""],
)
async def test_a_namespace_that_names_a_place_outside_has_its_tables_in_the_warehouse(
    sales: Gateway, given: Path, location: str
) -> None:
    properties = {"location": location.format(given=given)}
    made = await sales.http.post(SPREAD, json={"namespace": ["astray"], "properties": properties})
    assert made.status_code == 200, made.text
    table = await sales.http.post(f"{SPREAD}/astray/tables", json={"name": "t", "schema": SCHEMA})
    warehouse = f"{sales.services.gateway.catalogs.warehouse}/{sales.acme.tenant.hex}/spread"
    assert table.json()["metadata"]["location"].startswith(f"{warehouse}/astray.t-"), table.text


async def test_a_link_that_leads_out_of_the_given_folder_is_not_followed(sales: Gateway, given: Path) -> None:
    outside = given.parent / "outside"
    outside.mkdir()
    (given / "link").symlink_to(outside)
    body = {"name": "t", "schema": SCHEMA, "location": f"{given}/link/t"}
    assert (await sales.http.post(f"{SPREAD}/sales/tables", json=body)).status_code == 400
    out = {"namespace": ["out"], "properties": {"location": f"{given}/link/out"}}
    assert (await sales.http.post(SPREAD, json=out)).status_code == 200
    answer = await sales.http.post(f"{SPREAD}/out/tables", json={"name": "t", "schema": SCHEMA})
    assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException")
    assert list(outside.iterdir()) == []


async def test_only_the_operator_gives_a_catalog_a_location(sales: Gateway, tmp_path: Path) -> None:
    body = {"alias": "mine", "kind": "builtin", "options": {"location": f"file://{tmp_path}"}}
    answer = await sales.http.post("/v1/catalogs", json=body)
    assert (answer.status_code, error_of(answer)["type"]) == (403, "ForbiddenException")
    assert "only the operator" in error_of(answer)["message"]


@pytest.mark.parametrize("location", ["s3://bucket/lake", "file:///", "{warehouse}", "{warehouse}/sub", "{above}"])
async def test_a_location_is_apart_from_the_warehouse_and_of_its_kind(sales: Gateway, location: str) -> None:
    warehouse = sales.services.gateway.catalogs.warehouse
    location = location.format(warehouse=warehouse, above=warehouse.rpartition("/")[0])
    with pytest.raises(BadRequestError, match="expected a folder outside the warehouse"):
        await sales.services.gateway.admin.create_catalog(
            sales.acme.log_id, OPERATOR, alias="mine", kind="builtin", options={"location": location}
        )
