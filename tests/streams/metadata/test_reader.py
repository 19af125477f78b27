# SPDX-License-Identifier: Apache-2.0
"""
Metadata files on stores that fail in every way there is: a read ends in time, and its process serves or is gone.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from lakeproof.demo.cloud import Cloud
from projections.errors import FileMissingError, FileUnreadableError
from projections.lake.storage import Storage
from streams.errors import PoisonError, UnansweredError
from streams.metadata.parse import METADATA_SIZE_BYTES_MAX, Snapshot
from streams.metadata.reader import MetadataReaderPool
from testkit.environment import PATIENCE_S
from testkit.servers.cloud import fresh_cloud, put
from testkit.servers.faulty_store import FAILING, NEVER_ENDING, REFUSING, Answer, faulty_store, never
from testkit.streams.shared_reads import SharedReads, shared_reads
from testkit.streams.table_metadata import TABLE_UUID, metadata

LOCATION = "s3://lake/wh/orders/metadata/1.metadata.json"


TIMEOUT_S = 3.0
"""How long a read may take whose store does not answer; others have as long as a busy machine needs."""


@pytest.fixture(scope="module")
def cloud(moto: str) -> Cloud:
    """A bucket that the tests share: each writes the files that it reads."""
    return fresh_cloud(moto)


@pytest.fixture(scope="module")
def shared() -> Iterator[SharedReads]:
    """What reads for the tests that do nothing to its process but ask."""
    with shared_reads(timeout_s=PATIENCE_S) as shared:
        yield shared


@pytest_asyncio.fixture
async def reads() -> AsyncIterator[MetadataReaderPool]:
    """What reads for one test."""
    async with MetadataReaderPool(timeout_s=PATIENCE_S) as reads:
        yield reads


@contextmanager
def giving_up_soon(shared: SharedReads) -> Iterator[None]:
    """Let reads that begin meanwhile end after `TIMEOUT_S`."""
    shared._pool._timeout_s = TIMEOUT_S
    try:
        yield
    finally:
        shared._pool._timeout_s = PATIENCE_S


def storage_at(endpoint: str) -> Storage:
    """Return a storage that gives up later than whoever reads from it."""
    properties = {"s3.endpoint": endpoint, "s3.region": "us-east-1", "s3.anonymous": "true", "s3.request-timeout": "60"}
    return Storage(properties=properties, within=("s3://lake/wh",))


def storage_of(cloud: Cloud) -> Storage:
    properties = {
        "s3.endpoint": cloud.endpoint,
        "s3.region": cloud.region,
        "s3.access-key-id": cloud.access_key_id,
        "s3.secret-access-key": cloud.secret_access_key,
    }
    return Storage(properties=properties, within=(f"s3://{cloud.bucket}",))


async def check_serves(reads: MetadataReaderPool | SharedReads, cloud: Cloud) -> None:
    """Check that a read succeeds, by the one process that there is."""
    table = await reads.read(storage_of(cloud), put(cloud, "t/1.metadata.json", metadata(1, 2)))
    assert table.table_uuid == TABLE_UUID
    assert table.snapshots == (
        Snapshot(id="1", parent=None, operation="append"),
        Snapshot(id="2", parent="1", operation="append"),
    )
    assert len(reads.pids) == 1


@pytest.mark.parametrize("answer", NEVER_ENDING)
async def test_a_store_that_never_ends_is_cut_at_the_limit_with_its_process(
    shared: SharedReads, cloud: Cloud, answer: Answer
) -> None:
    await check_serves(shared, cloud)
    (interrupted,) = shared.pids
    async with faulty_store(answer) as store:
        with giving_up_soon(shared), pytest.raises(UnansweredError):
            await shared.read(storage_at(store.endpoint), LOCATION)
        assert store.requests
    await check_serves(shared, cloud)
    if answer is never:
        assert interrupted not in shared.pids
        with pytest.raises(ProcessLookupError):
            os.kill(interrupted, 0)


@pytest.mark.parametrize("answer", FAILING)
async def test_a_store_that_fails_is_asked_again_another_time(
    shared: SharedReads, cloud: Cloud, answer: Answer
) -> None:
    async with faulty_store(answer) as store:
        with giving_up_soon(shared), pytest.raises(UnansweredError, match=r"expected an answer|does not answer"):
            await shared.read(storage_at(store.endpoint), LOCATION)
    await check_serves(shared, cloud)


@pytest.mark.parametrize("answer", REFUSING)
async def test_what_a_store_refuses_is_unreadable(shared: SharedReads, cloud: Cloud, answer: Answer) -> None:
    async with faulty_store(answer) as store:
        with pytest.raises(FileUnreadableError, match="expected"):
            await shared.read(storage_at(store.endpoint), LOCATION)
    await check_serves(shared, cloud)


async def test_a_read_that_is_given_up_takes_its_process_with_it(reads: MetadataReaderPool, cloud: Cloud) -> None:
    async with faulty_store(never) as store:
        reading = asyncio.create_task(reads.read(storage_at(store.endpoint), LOCATION))
        await store.connected.wait()
        (pid,) = reads.pids
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await check_serves(reads, cloud)


async def test_nothing_is_left_of_reads_that_are_closed(cloud: Cloud) -> None:
    async with MetadataReaderPool() as reads, faulty_store(never) as store:
        await check_serves(reads, cloud)
        both = [asyncio.create_task(reads.read(storage_at(store.endpoint), LOCATION)) for _ in range(2)]
        await store.connected.wait()
        pids = reads.pids
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
    assert not reads.pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_process_that_something_else_has_ended_is_replaced(reads: MetadataReaderPool, cloud: Cloud) -> None:
    await check_serves(reads, cloud)
    for pid in reads.pids:
        os.kill(pid, 9)
    while True:  # until the loop has been told, a read finds the pipe closed
        try:
            await check_serves(reads, cloud)
        except UnansweredError:
            continue
        break


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"no json", "expected JSON"),
        (b"[" * 100_000, "expected JSON"),
        (gzip.compress(b"0" * (METADATA_SIZE_BYTES_MAX + 1)), "unpacked, found more"),
        (json.dumps({"table-uuid": "\ud800"}).encode(), "expected"),
    ],
    ids=["no JSON", "deep", "a bomb", "no text"],
)
async def test_what_is_no_metadata_is_poison(shared: SharedReads, cloud: Cloud, body: bytes, reason: str) -> None:
    location = put(cloud, "t/bad.metadata.json", body)
    with pytest.raises(PoisonError, match=reason):
        await shared.read(storage_of(cloud), location)
    await check_serves(shared, cloud)


async def test_a_file_that_takes_much_memory_is_poison_and_the_memory_is_given_back(cloud: Cloud) -> None:
    location = put(cloud, "t/bad.metadata.json", b"[" + b"{}," * 5_000_000 + b"{}]")
    async with MetadataReaderPool(timeout_s=60.0) as reads:
        await check_serves(reads, cloud)
        with pytest.raises(PoisonError, match="expected"):
            await reads.read(storage_of(cloud), location)
        assert not reads.pids
        await check_serves(reads, cloud)


async def test_what_is_not_there_or_not_the_catalogs_is_told_apart(shared: SharedReads, cloud: Cloud) -> None:
    with pytest.raises(FileMissingError, match="found none"):
        await shared.read(storage_of(cloud), f"s3://{cloud.bucket}/gone.json")
    with pytest.raises(FileUnreadableError, match="below"):
        await shared.read(storage_of(cloud), "file:///etc/passwd")
    with pytest.raises(FileUnreadableError, match="below"):
        await shared.read(storage_of(cloud), "s3://another/1.json")


async def test_a_process_that_reads_has_none_of_our_environment(
    reads: MetadataReaderPool, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "ours")
    await check_serves(reads, cloud)
    (pid,) = reads.pids
    assert b"ours" not in of_process(pid, "environ")
    assert cloud.secret_access_key.encode() not in of_process(pid, "cmdline")


def of_process(pid: int, name: str) -> bytes:
    """Return what the kernel says of a process."""
    return Path(f"/proc/{pid}/{name}").read_bytes()
