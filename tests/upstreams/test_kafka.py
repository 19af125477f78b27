# SPDX-License-Identifier: Apache-2.0
"""
Real Kafka: lineage in through a topic, entries out as CloudEvents; whatever is killed, nothing is lost and nothing is
in the log twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from uuid import UUID, uuid5

import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from lakeproof.provision import Provisioned, create_tenant_log
from lakeproof.tenants import found_tenant
from ledger.format.entry import parse_entry
from ledger.store.read import Log
from streams.errors import StreamError, TransientError
from streams.handler import OutboxMessage
from streams.sinks.kafka import open_kafka_sink
from streams.sources.watchdog import StalledError, Watchdog
from streams.state.outbox import Delivered, QueuedMessage, Rejected
from testkit.databases import LOGIN_PASSWORD
from testkit.servers.gateways import start_services
from testkit.servers.kafka import Kafka, start_kafka

TENANT = UUID(int=7)
RUNS = uuid5(TENANT, "runs")
EVENTS = 600
PARTITIONS = 4
TIMEOUT_S = 90.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """One broker for the tests of this module; each uses topics and groups of its own."""
    with start_kafka() as broker:
        yield broker


def event(number: int) -> bytes:
    """A valid run event; `number` is in it."""
    told = {
        "eventType": "COMPLETE",
        "eventTime": "2026-11-20T12:00:00Z",
        "producer": "https://example.com/etl",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": str(uuid5(RUNS, str(number)))},
        "job": {"namespace": "etl", "name": "load"},
        "inputs": [{"namespace": "raw", "name": "events"}],
        "outputs": [{"namespace": "lake", "name": f"t{number}"}],
    }
    return json.dumps(told).encode()


async def produce(kafka: Kafka, topic: str, messages: list[bytes]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka.brokers)
    await producer.start()
    try:
        sent = [
            await producer.send(topic, message, partition=position % PARTITIONS)
            for position, message in enumerate(messages)
        ]
        await asyncio.gather(*sent)
    finally:
        await producer.stop()


class Consumers:
    """Processes of one consumer group on one topic."""

    def __init__(self, kafka: Kafka, database: str, installation: Provisioned, directory: Path, topic: str) -> None:
        self.topic = topic
        self._stack = ExitStack()
        self._arguments = {
            "installation": installation.id,
            "authority": installation.authority,
            "dsn": installation.dsn,
            "origin": installation.origin(TENANT),
            "brokers": kafka.brokers,
            "group": f"{topic}.group",
            "topic": topic,
            "directory": str(directory),
        }
        self.log_id = create_tenant_log(database, installation, TENANT)
        # One session for all looks: another for each costs the server more than the look.
        self._connection = self._stack.enter_context(psycopg.connect(database, autocommit=True))

    def start(self, member: str) -> subprocess.Popen[str]:
        """Start a process and wait until it takes part."""
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "testkit.streams.lineage_consumer",
             json.dumps({**self._arguments, "member": member})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self._stack.callback(self.kill, process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def kill(self, process: subprocess.Popen[str]) -> None:
        """SIGKILL, if it has not ended."""
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def stop(self, process: subprocess.Popen[str]) -> list[int]:
        """End it as an operator would; return what it counted."""
        printed, _ = process.communicate("stop\n", timeout=TIMEOUT_S)
        assert process.returncode == 0
        counted: list[int] = json.loads(printed.splitlines()[-1])
        return counted

    def entries(self) -> list[bytes]:
        query = "SELECT entry FROM ledger.entries WHERE log_id = %s ORDER BY index"
        return [bytes(row[0]) for row in self._connection.execute(query, (self.log_id,)).fetchall()]

    def dead(self) -> list[tuple[str, str, bytes]]:
        query = "SELECT id, reason, payload FROM streams.dead_letters WHERE log_id = %s ORDER BY id"
        rows = self._connection.execute(query, (self.log_id,)).fetchall()
        return [(found, reason, bytes(payload)) for found, reason, payload in rows]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not holds():  # noqa: ASYNC110 - what another process does rings no bell here
                await asyncio.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


async def test_every_event_of_a_topic_is_in_the_log_once_though_consumers_are_killed_and_others_join(
    kafka: Kafka, database: str, installation: Provisioned, tmp_path: Path
) -> None:
    topic = "lineage.kills"
    await kafka.create_topics(topic, partitions=PARTITIONS)
    with Consumers(kafka, database, installation, tmp_path, topic) as consumers:
        first = consumers.start("first")
        await produce(kafka, topic, [event(number) for number in range(EVENTS // 2)])
        await consumers.until(lambda: len(consumers.entries()) > 0)
        consumers.kill(first)
        second = consumers.start("second")  # a rebalance
        await produce(kafka, topic, [event(number) for number in range(EVENTS // 2, EVENTS)])
        first_again = consumers.start("first")  # and another
        await consumers.until(lambda: len(consumers.entries()) > EVENTS // 2)
        consumers.kill(second)
        await consumers.until(lambda: len(consumers.entries()) >= EVENTS)
        consumers.stop(first_again)
        told = Counter(parse_entry(entry).data["run_id"] for entry in consumers.entries())
        assert told == {str(uuid5(RUNS, str(number))): 1 for number in range(EVENTS)}
        assert consumers.dead() == []


async def test_poison_goes_to_the_dead_letters_and_holds_nobody_up(
    kafka: Kafka, database: str, installation: Provisioned, tmp_path: Path
) -> None:
    topic = "lineage.poison"
    await kafka.create_topics(topic, partitions=PARTITIONS)
    poison = [b"", b"{", b"\xff\xfe", b'{"eventType": "COMPLETE"}', b"[]" * 10]
    with Consumers(kafka, database, installation, tmp_path, topic) as consumers:
        process = consumers.start("only")
        await produce(kafka, topic, [event(0), *poison, event(1), event(0)])
        await consumers.until(lambda: len(consumers.entries()) == 2 and len(consumers.dead()) == len(poison))
        await asyncio.to_thread(consumers.stop, process)
        assert sorted(payload for _, _, payload in consumers.dead()) == sorted(poison)
        assert all(reason for _, reason, _ in consumers.dead())
        assert {found.rpartition("/")[0].rpartition("/")[0] for found, _, _ in consumers.dead()} == {topic}


async def test_a_worker_without_its_topic_does_not_start(
    kafka: Kafka, database: str, installation: Provisioned, tmp_path: Path
) -> None:
    with Consumers(kafka, database, installation, tmp_path, "lineage.none") as consumers, pytest.raises(AssertionError):
        consumers.start("only")


def outgoing(number: int, *, key: str = "table:lake/t", size_bytes: int = 10) -> QueuedMessage:
    log = Log(log_id=1, origin="example.com/log", tenant=TENANT, reader=None)
    payload = json.dumps({"id": f"example.com/log/{number}", "data": "x" * size_bytes}).encode()
    return QueuedMessage(
        message=OutboxMessage(sink="kafka", id=str(number), key=key, payload=payload), log=log, attempts=0
    )


async def test_entries_leave_as_cloud_events_in_the_order_of_their_table(kafka: Kafka) -> None:
    topic = "events.order"
    await kafka.create_topics(topic, partitions=PARTITIONS)
    sent = [outgoing(number, key=f"table:lake/t{number % 3}") for number in range(60)]
    async with open_kafka_sink(kafka.brokers, topic) as sink:
        assert list(await sink.send(sent)) == [Delivered()] * 60
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=kafka.brokers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        records = [await consumer.getone() for _ in sent]
    finally:
        await consumer.stop()
    assert {record.headers for record in records} == {
        (("content-type", b"application/cloudevents+json; charset=utf-8"),)
    }
    for table in range(3):
        of_table = [record.value for record in records if record.key == f"table:lake/t{table}".encode()]
        assert of_table == [each.message.payload for each in sent if each.message.key == f"table:lake/t{table}"]


async def test_a_message_that_no_broker_would_take_is_refused_and_those_beside_it_are_not(kafka: Kafka) -> None:
    topic = "events.large"
    await kafka.create_topics(topic)
    async with open_kafka_sink(kafka.brokers, topic) as sink:
        answers = await sink.send([outgoing(1), outgoing(2, size_bytes=1_100_000), outgoing(3)])
    assert [type(answer) for answer in answers] == [Delivered, Rejected, Delivered]


async def test_brokers_that_are_away_are_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match=r"Kafka at 127\.0\.0\.1:9 cannot be reached"):
        async with open_kafka_sink("127.0.0.1:9", "events"):
            pass


def test_a_consumer_that_commits_is_not_stalled_and_one_that_waits_for_messages_is_not() -> None:
    watchdog = Watchdog(stalled_after_s=60)
    for now_s, committed, end in [
        (0, 0, 10),
        (50, 1, 10),
        (100, 2, 10),
        (150, 10, 10),
        (1_000, 10, 10),
        (1_050, 10, 11),
    ]:
        watchdog.observe(now_s=now_s, committed=committed, end=end)


def test_a_consumer_that_commits_nothing_while_messages_wait_is_stalled() -> None:
    watchdog = Watchdog(stalled_after_s=60)
    watchdog.observe(now_s=0, committed=5, end=10)
    watchdog.observe(now_s=59, committed=5, end=12)
    with pytest.raises(StalledError, match=r"7 messages wait and none was committed for 60 s") as stalled:
        watchdog.observe(now_s=60, committed=5, end=12)
    assert isinstance(stalled.value, StreamError)


async def test_each_tenants_topic_leads_to_its_own_log_and_a_missing_topic_holds_up_nobody(
    kafka: Kafka, database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with start_services(database, installation, tmp_path) as services:
        acme = await found_tenant(services, name="acme", identity="ada@acme.example")
        evil = await found_tenant(services, name="evil", identity="eve@evil.example")
        await found_tenant(services, name="quiet", identity="quin@quiet.example")
    for number, tenant in enumerate((acme, evil)):
        topic = f"lakeproof.lineage.{tenant.tenant.hex}"
        await kafka.create_topics(topic, partitions=PARTITIONS)
        await produce(kafka, topic, [event(number)])
    command = start_command(database, tmp_path, kafka.brokers)
    told: dict[int, list[str]] = {}
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while sum(map(len, told.values())) < 2:
                told = {tenant.log_id: lineage_of(database, tenant.log_id) for tenant in (acme, evil)}
                assert command.poll() is None
                await asyncio.sleep(0.05)
    finally:
        command.send_signal(signal.SIGINT)
        printed, complained = command.communicate(timeout=TIMEOUT_S)
    assert told == {acme.log_id: [str(uuid5(RUNS, "0"))], evil.log_id: [str(uuid5(RUNS, "1"))]}
    assert (command.returncode, "Traceback" in complained) == (0, False)
    assert "stopped: 2 messages handled, 2 groups appended, 0 messages sent, 0 dead letters" in printed
    assert "topics that do not exist are not read: lakeproof.lineage." in complained


def start_command(database: str, directory: Path, brokers: str) -> subprocess.Popen[str]:
    """Start `lakeproof streams consume` on the test's database, whose login role keeps its password."""
    secrets = directory / "home" / "secrets"  # the home of the services: sealed parts need its keys
    secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
    (secrets / "login-password").touch(mode=0o600)
    (secrets / "login-password").write_text(LOGIN_PASSWORD)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAKEPROOF_")}
    settings = {"HOME": str(secrets.parent), "DSN": database, "KAFKA_BROKERS": brokers}
    return subprocess.Popen(
        [sys.executable, "-m", "lakeproof", "streams", "consume", "--member", "only"],
        env=inherited | {f"LAKEPROOF_{name}": value for name, value in settings.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_without_brokers_the_command_says_what_is_missing(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    command = start_command(database, tmp_path, "")
    _, complained = command.communicate(timeout=TIMEOUT_S)
    assert command.returncode == 1
    assert complained == "lakeproof: LAKEPROOF_KAFKA_BROKERS is not set: name the brokers that lineage is taken from\n"


def lineage_of(database: str, log_id: int) -> list[str]:
    """The runs that a log was told of."""
    with psycopg.connect(database) as connection:
        query = "SELECT entry FROM ledger.entries WHERE log_id = %s AND type = 'lineage.received' ORDER BY index"
        rows = connection.execute(query, (log_id,)).fetchall()
    return [str(parse_entry(bytes(entry)).data["run_id"]) for (entry,) in rows]
