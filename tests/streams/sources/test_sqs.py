# SPDX-License-Identifier: Apache-2.0
"""
S3 to SNS to SQS to the log, on real moto and real PostgreSQL: nothing is deleted before it is in the log, and what
comes again adds nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from lakeproof.demo.cloud import Cloud
from ledger.errors import GroupMismatchError, LogUnavailableError, OutcomeUnknownError, QueueFullError
from ledger.format.sequence import Appended, Group, Stale
from projections.lake.secrets import SecretDirectory
from streams.handler import Append
from streams.handlers.observe import ObserveCommits
from streams.handlers.s3_events import ReceiveS3Events
from streams.metadata.reader import MetadataReaderPool
from streams.processing.replay import ReplayResult, replay
from streams.sources.sqs import QueueUnavailableError, SqsMessage, SqsQueue, SqsSource
from streams.state.dead_letters import read_letters
from testkit.servers.cloud import drain, fresh_cloud, left, put, send, start_cloud
from testkit.servers.loopback import LOOPBACK
from testkit.streams.answering import noon
from testkit.streams.lakes import ALIAS, TABLE, data_of_type, new_lake, project
from testkit.streams.world import World, until

BACK_OFF_S = (0.01,)
TRIGGER = "trigger.received"
WAREHOUSE = "file:///wh"


@pytest.fixture(scope="module")
def shared_cloud(moto: str) -> Cloud:
    """A bucket whose events are told to a queue."""
    return fresh_cloud(moto)


@pytest.fixture
def cloud(shared_cloud: Cloud) -> Cloud:
    """That bucket, and its queue, which is empty."""
    drain(shared_cloud)
    return shared_cloud


@pytest.fixture
def named() -> Cloud:
    """A bucket that only events and catalogs name: whatever asks for it finds nobody."""
    return Cloud(endpoint="http://127.0.0.1:9", bucket="lake", queue="http://127.0.0.1:9/queue")


@cache
def queue_of(cloud: Cloud, *, kind: type[SqsQueue] = SqsQueue, visibility_s: int = 30) -> SqsQueue:
    """Return a queue, which has no state but its client: making one reads megabytes of JSON."""
    return kind(
        cloud.queue,
        endpoint=cloud.endpoint,
        region=cloud.region,
        access_key_id=cloud.access_key_id,
        secret_access_key=cloud.secret_access_key,
        wait_s=0,
        visibility_s=visibility_s,
    )


def source_of(world: World, queue: Any, *, append: Append | None = None, **options: Any) -> SqsSource:
    append = append or world.append
    handler = ReceiveS3Events(append, warehouse=WAREHOUSE, clock=noon)
    return SqsSource(world.dsn, queue, handler, append, **{"back_off_s": BACK_OFF_S, **options})


@asynccontextmanager
async def running(source: SqsSource) -> AsyncIterator[SqsSource]:
    stop = asyncio.Event()
    task = asyncio.create_task(source.run(stop))
    try:
        yield source
    finally:
        stop.set()
        await task


async def is_empty(cloud: Cloud) -> bool:
    return await asyncio.to_thread(left, cloud) == 0


async def run_until_empty(world: World, cloud: Cloud, **options: Any) -> SqsSource:
    source = source_of(world, queue_of(cloud), **options)
    async with running(source):
        await until(lambda: is_empty(cloud))
    return source


class Simulated:
    """A queue whose answers the test decides (implements `Queue`); what is not deleted comes again."""

    def __init__(self, *bodies: str) -> None:
        self.waiting = [SqsMessage(id=str(at), body=body, receipt=f"r{at}") for at, body in enumerate(bodies)]
        self.hidden: list[int] = []
        self.deleted: list[str] = []
        self.failing_deletes = 0
        self.failing_receives = 0

    def receive(self) -> Sequence[SqsMessage]:
        if self.failing_receives:
            self.failing_receives -= 1
            raise QueueUnavailableError("the queue is away")
        return [item for item in self.waiting if item.receipt not in self.deleted][:10]

    def hide(self, _received: Sequence[SqsMessage], *, for_s: int) -> None:
        self.hidden.append(for_s)

    def delete(self, received: Sequence[SqsMessage]) -> int:
        if self.failing_deletes:
            self.failing_deletes -= 1
            raise QueueUnavailableError("the queue is away")
        self.deleted += [item.receipt for item in received]
        return 0


def event(cloud: Cloud, key: str) -> str:
    told = {"bucket": {"name": cloud.bucket}, "object": {"key": key}}
    return json.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": told}]})


async def letters(world: World) -> list[Any]:
    async with world.as_role(world.roles.streams) as connection:
        return await read_letters(connection)


async def test_a_new_metadata_file_becomes_a_trigger_of_its_tenant(world: World, cloud: Cloud, tmp_path: Path) -> None:
    log = await new_lake(world, cloud, secrets=tmp_path)
    other = await new_lake(world, cloud, secrets=tmp_path, folder="other")
    location = put(cloud, f"{TABLE}/metadata/00001 ü+.metadata.json")
    data = [put(cloud, f"{TABLE}/data/{name}.parquet") for name in "ab"]
    put(cloud, f"{TABLE}/metadata/snap-1.avro")
    source = await run_until_empty(world, cloud)
    triggers = await data_of_type(world, log, TRIGGER)
    assert triggers[0] == {
        "alias": ALIAS,
        "file_count": 0,
        "files": [],
        "identifier": None,
        "metadata_location": location,
        "source": "s3",
    }
    assert sorted(name for trigger in triggers[1:] for name in trigger["files"]) == data
    assert await data_of_type(world, other, TRIGGER) == []
    assert (source.counts.messages, source.counts.dead) == (4, 0)


async def test_more_than_one_batch_is_taken(world: World, cloud: Cloud, tmp_path: Path) -> None:
    log = await new_lake(world, cloud, secrets=tmp_path)
    locations = {put(cloud, f"{TABLE}/metadata/{number:05}.metadata.json") for number in range(25)}
    await run_until_empty(world, cloud)
    assert {trigger["metadata_location"] for trigger in await data_of_type(world, log, TRIGGER)} == locations


async def test_a_message_that_comes_twice_is_told_once(world: World, cloud: Cloud, tmp_path: Path) -> None:
    log = await new_lake(world, cloud, secrets=tmp_path)
    for _ in range(3):
        send(cloud, event(cloud, f"{TABLE}/metadata/1.metadata.json"))
        await run_until_empty(world, cloud)
    assert len(await data_of_type(world, log, TRIGGER)) == 1


@pytest.mark.parametrize("body", ["no json", '{"Records": []}', "x" * 200_000])
async def test_poison_goes_to_the_dead_letters_and_holds_nobody_up(
    world: World, cloud: Cloud, tmp_path: Path, body: str
) -> None:
    log = await new_lake(world, cloud, secrets=tmp_path)
    send(cloud, body)
    put(cloud, f"{TABLE}/metadata/1.metadata.json")
    source = await run_until_empty(world, cloud)
    assert len(await data_of_type(world, log, TRIGGER)) == 1
    (letter,) = await letters(world)
    assert letter.payload == body.encode()
    assert "expected" in letter.reason
    assert letter.log.tenant is None
    assert source.counts.dead == 1


async def test_a_file_of_no_catalog_waits_among_the_dead_letters_until_there_is_one(
    world: World, cloud: Cloud, tmp_path: Path
) -> None:
    put(cloud, f"{TABLE}/metadata/1.metadata.json")
    await run_until_empty(world, cloud)
    log = await new_lake(world, cloud, secrets=tmp_path)
    handler = ReceiveS3Events(world.append, warehouse=WAREHOUSE, clock=noon)
    replayed = [each async for each in replay(world.dsn, [handler], world.append)]
    assert [each.result for each in replayed] == [ReplayResult.HANDLED]
    assert len(await data_of_type(world, log, TRIGGER)) == 1
    assert await letters(world) == []


async def test_a_tenant_sees_no_dead_letter_of_the_queue(world: World, cloud: Cloud, tmp_path: Path) -> None:
    log = await new_lake(world, cloud, secrets=tmp_path)
    send(cloud, event(cloud, "somebody/elses/metadata/1.metadata.json"))
    await run_until_empty(world, cloud)
    assert len(await letters(world)) == 1
    assert log.reader is not None
    async with world.as_role(log.reader) as connection:
        assert await read_letters(connection) == []


class Killed(BaseException):
    """The end of a process, wherever it is."""


class Doomed(SqsQueue):
    """The real queue, in a process that ends before it deletes."""

    def delete(self, _received: Sequence[SqsMessage]) -> int:
        raise Killed


@pytest.mark.parametrize("step", ["before the append", "after the append", "before the delete"])
async def test_a_source_killed_at_any_step_loses_nothing_and_repeats_nothing(
    world: World, cloud: Cloud, tmp_path: Path, step: str
) -> None:
    log = await new_lake(world, cloud, secrets=tmp_path)
    locations = {put(cloud, f"{TABLE}/metadata/{number}.metadata.json") for number in range(3)}

    async def append(log_id: int, group: Group) -> Appended | Stale:
        if step == "before the append":
            raise Killed
        appended = await world.append(log_id, group)
        if step == "after the append":
            raise Killed
        return appended

    # Hidden for a second only: a real queue shows again what a process that died has left.
    doomed = source_of(world, queue_of(cloud, kind=Doomed, visibility_s=1), append=append)
    with pytest.raises(Killed):
        await doomed.run(asyncio.Event())
    assert left(cloud) == 3
    assert bool(await data_of_type(world, log, TRIGGER)) is (step != "before the append")
    await run_until_empty(world, cloud)
    triggers = await data_of_type(world, log, TRIGGER)
    assert len(triggers) == 3
    assert {trigger["metadata_location"] for trigger in triggers} == locations


@pytest.mark.parametrize("away", [LogUnavailableError, QueueFullError, OutcomeUnknownError])
async def test_while_the_log_is_away_a_batch_waits_and_nothing_is_deleted(
    world: World, named: Cloud, tmp_path: Path, away: type[Exception]
) -> None:
    log = await new_lake(world, named, secrets=tmp_path)
    queue = Simulated(event(named, f"{TABLE}/metadata/1.metadata.json"))
    attempts = 0

    async def append(log_id: int, group: Group) -> Appended | Stale:
        nonlocal attempts
        attempts += 1
        assert queue.deleted == []
        if attempts < 4:
            raise away("away")
        return await world.append(log_id, group)

    async with running(source_of(world, queue, append=append)):
        await until(lambda: queue.deleted == ["r0"])
    assert attempts == 4
    assert len(await data_of_type(world, log, TRIGGER)) == 1


async def test_a_group_that_the_log_never_takes_is_dead(world: World, named: Cloud, tmp_path: Path) -> None:
    await new_lake(world, named, secrets=tmp_path)
    queue = Simulated(event(named, f"{TABLE}/metadata/1.metadata.json"))

    async def append(log_id: int, group: Group) -> Appended | Stale:
        raise GroupMismatchError("other content")

    async with running(source_of(world, queue, append=append)):
        await until(lambda: queue.deleted == ["r0"])
    assert [letter.reason for letter in await letters(world)] == ["other content"]


async def test_a_deletion_that_fails_repeats_nothing(world: World, named: Cloud, tmp_path: Path) -> None:
    log = await new_lake(world, named, secrets=tmp_path)
    queue = Simulated(*(event(named, f"{TABLE}/metadata/{number}.metadata.json") for number in range(3)))
    queue.failing_deletes = 2
    async with running(source_of(world, queue)) as source:
        await until(lambda: len(queue.deleted) == 3)
    assert source.counts.undeleted == 6
    assert len(await data_of_type(world, log, TRIGGER)) == 3


async def test_messages_stay_hidden_for_as_long_as_they_are_worked_on(
    world: World, named: Cloud, tmp_path: Path
) -> None:
    await new_lake(world, named, secrets=tmp_path)
    queue = Simulated(event(named, f"{TABLE}/metadata/1.metadata.json"))

    async def append(log_id: int, group: Group) -> Appended | Stale:
        await until(lambda: len(queue.hidden) >= 2)
        return await world.append(log_id, group)

    async with running(source_of(world, queue, append=append, visibility_s=0.03)):
        await until(lambda: queue.deleted == ["r0"])
    assert len(queue.hidden) >= 2


async def test_a_source_that_is_told_to_stop_shows_to_others_what_it_could_not_store(
    world: World, named: Cloud, tmp_path: Path
) -> None:
    await new_lake(world, named, secrets=tmp_path)
    queue = Simulated(event(named, f"{TABLE}/metadata/1.metadata.json"))
    stop = asyncio.Event()

    async def append(log_id: int, group: Group) -> Appended | Stale:
        stop.set()
        raise LogUnavailableError("away")

    await source_of(world, queue, append=append).run(stop)
    assert (queue.hidden, queue.deleted) == ([0], [])


async def test_a_queue_that_is_away_is_waited_for(world: World, named: Cloud, tmp_path: Path) -> None:
    log = await new_lake(world, named, secrets=tmp_path)
    queue = Simulated(event(named, f"{TABLE}/metadata/1.metadata.json"))
    queue.failing_receives = 5
    async with running(source_of(world, queue)) as source:
        await until(lambda: queue.deleted == ["r0"])
    assert source.counts.failures == 5
    assert len(await data_of_type(world, log, TRIGGER)) == 1


async def test_a_database_that_is_away_is_waited_for(world: World, named: Cloud, tmp_path: Path) -> None:
    await new_lake(world, named, secrets=tmp_path)
    queue = Simulated(event(named, f"{TABLE}/metadata/1.metadata.json"))
    source = source_of(world, queue)
    source._dsn = psycopg.conninfo.make_conninfo(world.dsn, host="/nowhere")
    async with running(source):
        await until(lambda: source.counts.failures >= 2)
        assert queue.deleted == []
        source._dsn = world.dsn
        await until(lambda: queue.deleted == ["r0"])


async def test_a_real_queue_that_is_not_there_is_an_error_of_ours(cloud: Cloud) -> None:
    queue = SqsQueue(
        f"{cloud.queue}-gone",
        endpoint=cloud.endpoint,
        region=cloud.region,
        access_key_id="a",
        secret_access_key="b",
        wait_s=1,
    )
    with pytest.raises(QueueUnavailableError, match="-gone"):
        await asyncio.to_thread(queue.receive)
    with pytest.raises(QueueUnavailableError):
        await asyncio.to_thread(queue.delete, [SqsMessage(id="1", body="", receipt="none")])


async def test_a_server_that_ends_with_its_bucket_makes_no_noise(world: World, tmp_path: Path) -> None:
    with start_cloud() as endpoint:
        cloud = fresh_cloud(endpoint)
        source = source_of(world, queue_of(cloud))
        stop = asyncio.Event()
        task = asyncio.create_task(source.run(stop))
    await until(lambda: source.counts.failures >= 2)
    stop.set()
    await task


async def test_a_catalog_that_was_just_registered_is_known_at_the_next_batch(
    world: World, cloud: Cloud, tmp_path: Path
) -> None:
    source = source_of(world, queue_of(cloud))
    async with running(source):
        log = await new_lake(world, cloud, secrets=tmp_path)
        await project(world, log)
        put(cloud, f"{TABLE}/metadata/1.metadata.json")
        await until(lambda: source.counts.messages == 1)
        await until(lambda: is_empty(cloud))
    assert len(await data_of_type(world, log, TRIGGER)) == 1


async def test_what_was_committed_behind_the_gateways_back_is_ungoverned(
    world: World, cloud: Cloud, tmp_path: Path
) -> None:
    """The whole way: S3, SNS, SQS, a trigger in the log, the metadata file read back, the snapshot in the log."""
    log = await new_lake(world, cloud, secrets=tmp_path)
    metadata = {"table-uuid": str(UUID(int=7)), "snapshots": [{"snapshot-id": 3051729675574597004}]}
    location = put(cloud, f"{TABLE}/metadata/00001.metadata.json", json.dumps(metadata).encode())
    await run_until_empty(world, cloud)
    await project(world, log)
    async with MetadataReaderPool() as reads:
        secrets = SecretDirectory(tmp_path)
        observe = ObserveCommits(
            warehouse=WAREHOUSE, ours={}, secrets=secrets, egress=LOOPBACK, clock=noon, reads=reads
        )
        for _ in range(2):
            await world.catch_up(log, observe)
            (observed,) = await data_of_type(world, log, "commit.observed")
            assert (observed["snapshot"], observed["metadata_location"]) == ("3051729675574597004", location)
            await world.rows("UPDATE streams.cursors SET next_index = 0")
