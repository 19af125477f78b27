# SPDX-License-Identifier: Apache-2.0
"""
Apache Kafka, one node in KRaft mode on loopback: the real broker behind the tests of the streams.

Topics are not created on request, because a consumer that is started before its topic reads nothing, for ever:
a test creates the topics that it uses, through `admin`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from testkit.servers.java import find_java, free_ports, java_server
from testkit.servers.maven import jars

HEAP: Final = "-Xmx384m"
REQUEST_TIMEOUT_MS: Final = 5_000
LOGGING: Final = """
status=error
appender.c.type=Console
appender.c.name=c
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d{ISO8601} %p %c - %m%n
rootLogger.level=warn
rootLogger.appenderRef.c.ref=c
"""
PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:CONTROLLER_PORT
listeners=PLAINTEXT://127.0.0.1:BROKER_PORT,CONTROLLER://127.0.0.1:CONTROLLER_PORT
advertised.listeners=PLAINTEXT://127.0.0.1:BROKER_PORT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs=DATA_DIRECTORY
num.partitions=1
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=2
"""
FORMATTED: Final = f"formatted-{hashlib.sha256(PROPERTIES.encode()).hexdigest()[:8]}"
"""What a folder of the cache ends with that was formatted for these properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A running broker: `brokers` is what a client is given as its bootstrap servers."""

    brokers: str
    pid: int

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        """Yield a client for making topics and asking about groups."""
        async with _admin(self.brokers) as admin:
            yield admin

    async def create_topics(self, *names: str, partitions: int = 1) -> None:
        """Create topics, each with `partitions` partitions."""
        async with self.admin() as admin:
            await admin.create_topics([NewTopic(name, partitions, replication_factor=1) for name in names])


@contextmanager
def start_kafka() -> Iterator[Kafka]:
    """Yield an empty broker; what it stored goes with it."""
    libraries = jars("kafka")
    with tempfile.TemporaryDirectory(prefix="lp-kafka-") as name:
        directory = Path(name)
        port, controller_port = free_ports(2)
        _configure(directory, port=port, controller_port=controller_port)
        cheap = [HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        classes = [*cheap, f"-Dlog4j2.configurationFile={directory}/log4j2.properties", "-cp", f"{libraries}/*"]
        _format(directory, classes, kept=libraries.with_name(f"{libraries.name}-{FORMATTED}"))
        brokers = f"127.0.0.1:{port}"
        arguments = [*classes, "kafka.Kafka", "server.properties"]
        with java_server(
            arguments, directory=directory, port=port, is_ready=lambda: _answers(brokers), libraries=libraries
        ) as pid:
            yield Kafka(brokers=brokers, pid=pid)


def _format(directory: Path, classes: Sequence[str], *, kept: Path) -> None:
    """
    Make the broker's folder in `directory`, from `kept` if that is there: the tool is a virtual machine of its own.

    No port and no path is in what the tool writes. Clusters that have an id in common never meet.
    """
    data = directory / "data"
    if not kept.is_dir():
        identity = uuid4().bytes
        # Its first letter is none of "-" and "_": the tool would take it for an option of its own.
        cluster = base64.urlsafe_b64encode(bytes([identity[0] & 0x7F]) + identity[1:]).decode().rstrip("=")
        storage = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", "server.properties"]
        subprocess.run([find_java(), *classes, *storage], cwd=directory, check=True, capture_output=True)
        fresh = kept.with_name(f"{kept.name}.{uuid4().hex}.new")
        shutil.copytree(data, fresh)
        with suppress(OSError):  # another process was first
            fresh.rename(kept)
        shutil.rmtree(fresh, ignore_errors=True)
    else:
        shutil.copytree(kept, data)


def _configure(directory: Path, *, port: int, controller_port: int) -> None:
    filled = {
        "BROKER_PORT": str(port),
        "CONTROLLER_PORT": str(controller_port),
        "DATA_DIRECTORY": str(directory / "data"),
    }
    properties = PROPERTIES
    for name, value in filled.items():
        properties = properties.replace(name, value)
    (directory / "server.properties").write_text(properties)
    (directory / "log4j2.properties").write_text(LOGGING)


def _answers(brokers: str) -> bool:
    """Ask in a thread, which has an event loop of its own: a test's loop may be running in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _is_described(brokers)).result()


async def _is_described(brokers: str) -> bool:
    try:
        async with _admin(brokers) as admin:
            return bool((await admin.describe_cluster())["brokers"])
    except KafkaError:
        return False


@asynccontextmanager
async def _admin(brokers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()
