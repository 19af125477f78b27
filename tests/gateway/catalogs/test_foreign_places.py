# SPDX-License-Identifier: Apache-2.0
"""
A foreign catalog with the option `location`: new places outside of it are refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from gateway.metadata.paths import PATH_PROPERTIES
from lakeproof.services import Services
from testkit.gateway.log_contents import words
from testkit.gateway.sales import error_of, properties
from testkit.gateway.table_requests import PATHS, created, moved, snapshot
from testkit.servers.chained import Chained, open_chain, register_located

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACES = "/v1/iceberg/located/namespaces"
TABLES = f"{NAMESPACES}/sales/tables"
ORDERS = f"{TABLES}/orders"


@pytest_asyncio.fixture(loop_scope="module")
async def chained(module_services: Services, module_app: FastAPI, module_url: str) -> AsyncIterator[Chained]:
    """Two gateways in a row; the near one knows where the far one's files are."""
    async with open_chain(module_services, module_app, module_url) as chained:
        await register_located(chained)  # as an older version has registered it
        yield chained


def lake_of(chained: Chained) -> str:
    return f"{chained.far.services.gateway.catalogs.warehouse}/{chained.far.acme.tenant.hex}/lake"


@pytest.mark.parametrize("name", PATHS)
async def test_no_path_property_leads_out_of_the_place(chained: Chained, name: str) -> None:
    ways_out = ("file:///etc", "/etc", "s3://elsewhere/t", f"{lake_of(chained)}2/t", f"{lake_of(chained)}/../t")
    for path in ways_out[PATHS.index(name) % 3 :: 3]:  # each of them with two of the names
        for answer in (
            await chained.http.post(ORDERS, json=properties(**{name: path})),
            await chained.http.post(TABLES, json=created("t", **{name: path})),
        ):
            assert (answer.status_code, error_of(answer)["type"]) == (400, "BadRequestException"), path
            assert error_of(answer)["message"].startswith(f"properties.{name}: expected a location"), path
    inside = f"file:{lake_of(chained).removeprefix('file://')}/x/y"
    assert (await chained.http.post(ORDERS, json=properties(**{name: inside}))).status_code == 200
    assert "unknown" not in await words(chained.near.services, chained.near.acme.log_id)


async def test_no_location_and_no_file_leads_out_of_the_place(chained: Chained) -> None:
    for body in (moved("file:///etc"), snapshot("/etc/snap.avro"), moved(f"{lake_of(chained)}/../x")):
        answer = await chained.http.post(ORDERS, json=body)
        assert answer.status_code == 400
        assert "expected a location" in error_of(answer)["message"]
    assert (await chained.http.post(TABLES, json=created("t", "/etc/t"))).status_code == 400
    assert (await chained.http.post(TABLES, json=created("t"))).status_code == 200, "the upstream decides where"


async def test_no_namespace_sends_its_tables_out_of_the_place(chained: Chained) -> None:
    async def set_location(path: str) -> httpx.Response:
        return await chained.http.post(f"{NAMESPACES}/sales/properties", json={"updates": {"location": path}})

    assert (await set_location("/etc")).status_code == 400
    body = {"namespace": ["eu"], "properties": {"location": "file:///etc"}}
    assert (await chained.http.post(NAMESPACES, json=body)).status_code == 400
    assert (await set_location(f"{lake_of(chained)}/eu")).status_code == 200


@pytest.mark.parametrize("name", ["fin\u200bance", "e\u0301te", "finance "])
async def test_a_new_name_must_be_readable_there_too(chained: Chained, name: str) -> None:
    assert (await chained.http.post(TABLES, json=created(name))).status_code == 400
    assert (await chained.http.post(NAMESPACES, json={"namespace": [name]})).status_code == 400


async def test_without_the_option_the_upstream_alone_decides(chained: Chained) -> None:
    orders = ORDERS.replace("/located/", "/beyond/")
    answer = await chained.http.post(orders, json=properties(**{min(PATH_PROPERTIES): "/etc"}))
    assert answer.status_code == 400, "the far gateway's own catalog refuses it"
    assert "below" in error_of(answer)["message"]
