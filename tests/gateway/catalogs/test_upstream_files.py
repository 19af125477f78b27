# SPDX-License-Identifier: Apache-2.0
"""
Metadata files of foreign catalogs: read where the options and the operator's rules allow, in bounded time and number.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from gateway.catalogs.judged_metadata import answer_judged, file_judged
from gateway.catalogs.upstream_files import READS_OF_ONE_MAX, UpstreamFiles, reading_threads
from gateway.errors import BadRequestError, UnavailableError, UnsupportedOperationError, UpstreamCredentialsError
from gateway.metadata import apply_updates, create_updates
from lakeproof.demo.cloud import Cloud
from projections.egress.rules import EgressRules
from projections.lake.secrets import SecretDirectory
from testkit.gateway.sales import CREATE
from testkit.servers.cloud import fresh_cloud, put
from testkit.servers.loopback import LOOPBACK

TENANT = UUID(int=7)
TABLE_UUID = "6a0b7735-dc29-40ee-840c-97c1326fa45a"


@pytest.fixture
def cloud(moto: str) -> Cloud:
    return fresh_cloud(moto)


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a store that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def metadata(location: str, **members: Any) -> bytes:
    updates = create_updates(CREATE, table_uuid=TABLE_UUID, location=location)
    return orjson.dumps({**apply_updates(None, updates, now_ms=1_000, base_location=None), **members})


def files(
    directory: Path,
    options: dict[str, str],
    *,
    egress: EgressRules = LOOPBACK,
    timeout_s: float = 30,
    threads: ThreadPoolExecutor | None = None,
) -> UpstreamFiles:
    return UpstreamFiles(
        tenant=TENANT,
        alias="far",
        options=options,
        secrets=SecretDirectory(directory),
        egress=egress,
        threads=threads or reading_threads(),
        timeout_s=timeout_s,
    )


def on_s3(cloud: Cloud, **others: str) -> dict[str, str]:
    own = {"location": cloud.warehouse, "s3.secret-access-key": "secret:store"}
    return {"uri": "http://far", **cloud.engine_properties(), **own, **others}


async def test_a_file_on_s3_is_read_whole_also_compressed_and_however_its_scheme_is_spelled(
    cloud: Cloud, tmp_path: Path
) -> None:
    SecretDirectory(tmp_path).write(TENANT, "store", cloud.secret_access_key)
    plain = metadata(f"{cloud.warehouse}/t")
    for name, stored in (("1.metadata.json", plain), ("2.gz.metadata.json", gzip.compress(plain))):
        location = put(cloud, f"warehouse/t/metadata/{name}", stored)
        for spelled in (location, location.replace("s3://", "s3a://")):
            found = await files(tmp_path, on_s3(cloud)).find(spelled, is_view=False)
            assert (found.location, found.sha256) == (spelled, sha256(stored).hexdigest())
            assert found.metadata == orjson.loads(plain)


async def test_nothing_outside_the_catalogs_location_is_read(cloud: Cloud, tmp_path: Path) -> None:
    SecretDirectory(tmp_path).write(TENANT, "store", cloud.secret_access_key)
    put(cloud, "elsewhere/1.metadata.json", metadata(f"{cloud.warehouse}/t"))
    local = tmp_path / "1.metadata.json"
    local.write_bytes(metadata(f"{cloud.warehouse}/t"))
    for location in (f"s3://{cloud.bucket}/elsewhere/1.metadata.json", f"file://{local}", str(local)):
        with pytest.raises(BadRequestError, match=r"^metadata-location: expected a metadata file below s3://"):
            await files(tmp_path, on_s3(cloud)).find(location, is_view=False)


@pytest.mark.parametrize(
    "options", [{}, {"location": "file:///tmp"}, {"location": "gs://b/x"}, {"local-files": "allowed"}]
)
async def test_without_a_location_that_may_be_read_nothing_is(tmp_path: Path, options: dict[str, str]) -> None:
    found = files(tmp_path, options)
    assert not found.are_readable
    with pytest.raises(UnsupportedOperationError, match="nothing was sent; add the catalog under another alias"):
        await found.find("s3://b/x.metadata.json", is_view=False)


async def test_files_of_this_machine_are_read_where_the_operator_allows_it(tmp_path: Path) -> None:
    file = tmp_path / "1.metadata.json"
    file.write_bytes(metadata(f"file://{tmp_path}/t"))
    options = {"location": f"file://{tmp_path}", "local-files": "allowed"}
    found = await files(tmp_path, options).find(f"file:{file}", is_view=False)
    assert found.metadata["table-uuid"] == TABLE_UUID
    with pytest.raises(BadRequestError):
        await files(tmp_path, options).find("s3://b/1.metadata.json", is_view=False)


async def test_metadata_that_was_judged_is_read_again_from_its_file_and_nothing_else_is(
    cloud: Cloud, tmp_path: Path
) -> None:
    SecretDirectory(tmp_path).write(TENANT, "store", cloud.secret_access_key)
    reader, plain = files(tmp_path, on_s3(cloud)), metadata(f"{cloud.warehouse}/t")
    stored = gzip.compress(plain)
    location = put(cloud, "warehouse/t/metadata/1.metadata.json", stored)
    for judged in (file_judged(location, stored), answer_judged(location, orjson.loads(plain))):
        assert await reader.read_judged(judged) == orjson.loads(plain)
        assert await reader.read_judged(replace(judged, sha256="0" * 64)) is None
    outside = put(cloud, "elsewhere/1.metadata.json", stored)
    with pytest.raises(BadRequestError, match=r"^metadata-location: expected a metadata file below s3://"):
        await reader.read_judged(file_judged(outside, stored))


async def test_a_store_where_the_gateway_may_not_connect_is_not_asked(cloud: Cloud, tmp_path: Path) -> None:
    SecretDirectory(tmp_path).write(TENANT, "store", cloud.secret_access_key)
    location = put(cloud, "warehouse/1.metadata.json", metadata(f"{cloud.warehouse}/t"))
    refused = files(tmp_path, on_s3(cloud), egress=EgressRules.parse("public"))
    with pytest.raises(BadRequestError, match="that the catalog's options open"):
        await refused.find(location, is_view=False)


async def test_a_secret_that_is_missing_is_said_without_where_it_would_be(cloud: Cloud, tmp_path: Path) -> None:
    with pytest.raises(UpstreamCredentialsError, match="a secret that its options name is not there") as refused:
        await files(tmp_path, on_s3(cloud)).find(f"{cloud.warehouse}/1.metadata.json", is_view=False)
    assert str(tmp_path) not in str(refused.value)


async def test_a_store_that_never_answers_holds_up_nobody_for_longer_than_a_request_and_few_threads(
    cloud: Cloud, silent: str, tmp_path: Path
) -> None:
    SecretDirectory(tmp_path).write(TENANT, "store", cloud.secret_access_key)
    threads = ThreadPoolExecutor(READS_OF_ONE_MAX + 1)
    hanging = files(tmp_path, on_s3(cloud, **{"s3.endpoint": silent}), timeout_s=0.5, threads=threads)
    asked = [hanging.find(f"{cloud.warehouse}/{number}.metadata.json", is_view=False) for number in range(5)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(each) for each in answers} == {UnavailableError}
    location = put(cloud, "warehouse/1.metadata.json", metadata(f"{cloud.warehouse}/t"))
    other = files(tmp_path, on_s3(cloud), threads=threads)
    assert (await other.find(location, is_view=False)).location == location
    threads.shutdown(wait=False, cancel_futures=True)
