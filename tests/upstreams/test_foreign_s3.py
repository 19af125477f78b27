# SPDX-License-Identifier: Apache-2.0
"""
A warehouse on S3: the built-in catalog stores its metadata there; engines get its address, not its credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from pyiceberg.catalog.rest import RestCatalog

from gateway.errors import UnavailableError
from gateway.metadata.files import MetadataFileError, MetadataFiles
from lakeproof.demo.cloud import Cloud
from lakeproof.provision import Provisioned
from lakeproof.services import Services, engine_properties, storage_properties
from lakeproof.settings import load_settings
from testkit.gateway.log_contents import live_rows, read_stored, replay
from testkit.gateway.metadata_files import write_file
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, properties
from testkit.gateway.shop_rows import SCHEMA, rows
from testkit.servers.cloud import fresh_cloud
from testkit.servers.gateways import Gateway, open_gateway, start_services
from testkit.servers.loopback import serve_gateway

METADATA: dict[str, Any] = {"table-uuid": "u"}


@pytest.fixture
def cloud(moto: str) -> Cloud:
    return fresh_cloud(moto)


def s3_settings(cloud: Cloud) -> dict[str, str]:
    return {
        "warehouse": cloud.warehouse,
        "s3_endpoint": cloud.endpoint,
        "s3_region": cloud.region,
        "s3_access_key_id": cloud.access_key_id,
        "s3_secret_access_key": cloud.secret_access_key,
    }


@pytest_asyncio.fixture
async def s3_services(
    cloud: Cloud, database: str, installation: Provisioned, tmp_path: Path
) -> AsyncIterator[Services]:
    async with start_services(database, installation, tmp_path, **s3_settings(cloud)) as services:
        yield services


@pytest_asyncio.fixture
async def lake(s3_services: Services) -> AsyncIterator[Gateway]:
    async with open_gateway(s3_services) as gateway:
        yield gateway


def keys(cloud: Cloud) -> set[str]:
    found = cloud.client("s3").list_objects_v2(Bucket=cloud.bucket).get("Contents", [])
    return {f"s3://{cloud.bucket}/{one['Key']}" for one in found}


async def test_an_engine_writes_to_a_warehouse_on_s3(lake: Gateway, cloud: Cloud) -> None:
    def engine(url: str) -> list[int]:
        # What the engine is not told: its own credentials.
        secrets = {"s3.access-key-id": cloud.access_key_id, "s3.secret-access-key": cloud.secret_access_key}
        catalog = RestCatalog("test", uri=url, warehouse="lake", token=lake.acme.key.secret, **secrets)
        catalog.create_namespace("sales")
        orders = catalog.create_table(("sales", "orders"), SCHEMA)
        orders.append(rows(0, 10))
        orders.append(rows(10, 10))
        return sorted(catalog.load_table(("sales", "orders")).scan().to_arrow()["id"].to_pylist())

    async with serve_gateway(lake.app) as url:
        assert await asyncio.to_thread(engine, url) == list(range(20))
    log_id = lake.acme.log_id
    told = await read_stored(lake.services, log_id)
    assert replay(told) == await live_rows(lake.services, log_id)
    named = {one.settled.metadata_location for one in told if one.entry.type == "commit.settled"} - {None}
    assert len(named) == 3
    assert named == {key for key in keys(cloud) if key.endswith(".metadata.json")}
    assert all(str(name).startswith(f"{cloud.warehouse}/{lake.acme.tenant.hex}/lake/") for name in named)


async def test_engines_receive_the_storages_address_and_never_its_credentials(lake: Gateway, cloud: Cloud) -> None:
    (await lake.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    staged = await lake.http.post(TABLES, json={**CREATE, "stage-create": True})
    created = await lake.http.post(TABLES, json=CREATE)
    committed = await lake.http.post(ORDERS, json=properties(a="b"))
    loaded = await lake.http.get(ORDERS)
    for answer in (staged, created, committed, loaded):
        assert answer.json()["config"] == {"s3.endpoint": cloud.endpoint, "s3.region": cloud.region}
        assert cloud.secret_access_key not in answer.text


async def test_a_metadata_file_on_s3_is_never_written_over(cloud: Cloud) -> None:
    files = MetadataFiles(cloud.engine_properties())
    location = f"{cloud.warehouse}/t/metadata/00000-x.metadata.json"
    written = await write_file(files, location, METADATA, within=cloud.warehouse)
    with pytest.raises(UnavailableError, match="already exists"):
        await write_file(files, location, {"table-uuid": "another"}, within=cloud.warehouse)
    fresh = MetadataFiles(cloud.engine_properties())
    assert await fresh.read(location, digest=written.sha256) == METADATA
    cloud.client("s3").put_object(Bucket=cloud.bucket, Key=location.split("/", 3)[3], Body=orjson.dumps({}))
    with pytest.raises(MetadataFileError, match="expected the committed file"):
        await MetadataFiles(cloud.engine_properties()).read(location, digest=written.sha256)
    for _ in range(2):
        await fresh.delete(written)
    assert location not in keys(cloud)
    with pytest.raises(MetadataFileError, match="cannot be read"):
        await fresh.read(location, digest=written.sha256)


async def test_an_object_store_that_does_not_answer_is_unavailable() -> None:
    nowhere = {"s3.endpoint": "http://127.0.0.1:9", "s3.region": "x", "s3.access-key-id": "a"}
    bounds = {"s3.secret-access-key": "b", "s3.connect-timeout": "1", "s3.request-timeout": "1"}
    files = MetadataFiles(nowhere | bounds)
    with pytest.raises(UnavailableError):
        await write_file(files, "s3://b/m.json", METADATA, within="s3://b")
    with pytest.raises(UnavailableError):
        await files.read("s3://b/m.json", digest="0" * 64)


def test_a_local_warehouse_has_no_storage_configuration(tmp_path: Path, cloud: Cloud) -> None:
    given = {f"LAKEPROOF_{name.upper()}": value for name, value in s3_settings(cloud).items()}
    on_s3 = load_settings(given, directory=tmp_path)
    assert engine_properties(on_s3) == {"s3.endpoint": cloud.endpoint, "s3.region": cloud.region}
    assert storage_properties(on_s3).items() >= cloud.engine_properties().items()
    local = load_settings({name: text for name, text in given.items() if "WAREHOUSE" not in name}, directory=tmp_path)
    assert storage_properties(local) == engine_properties(local) == {}


async def test_a_location_outside_the_warehouse_on_s3_is_refused(lake: Gateway, cloud: Cloud) -> None:
    (await lake.http.post(NAMESPACES, json={"namespace": ["sales"]})).raise_for_status()
    own = f"{cloud.warehouse}/{lake.acme.tenant.hex}/lake"
    for location in (
        f"s3://{cloud.bucket}/elsewhere",
        f"{cloud.warehouse}/x",
        f"{own}/../y",
        f"s3a{own[2:]}/../z",
        "s3://b",
    ):
        answer = await lake.http.post(TABLES, json={**CREATE, "location": location})
        assert answer.status_code == 400, location
    assert keys(cloud) == set()
    (await lake.http.post(TABLES, json={**CREATE, "location": f"{own}/orders"})).raise_for_status()
    assert len(keys(cloud)) == 1
    # Another word for the same storage; what the gateway writes is spelled as its warehouse is.
    again = await lake.http.post(TABLES, json={**CREATE, "name": "again", "location": f"s3a{own[2:]}/again"})
    assert again.json()["metadata-location"].startswith(f"{own}/again/metadata/")
