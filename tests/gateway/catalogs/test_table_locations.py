# SPDX-License-Identifier: Apache-2.0
"""
Locations of tables: in their alias's folder of the warehouse, whatever a client requests.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.gateway.log_contents import check_agreement, live_rows, path_of
from testkit.gateway.sales import ORDERS, SCHEMA, TABLES, error_of, properties
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
