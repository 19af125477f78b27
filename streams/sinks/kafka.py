# SPDX-License-Identifier: Apache-2.0
"""
The sink `kafka`: CloudEvents in structured JSON, keyed by table, so that the events of one table stay in order.

A message is delivered when all in-sync replicas have it. Its id is that of the entry, by which a consumer can drop
duplicates.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from ledger.futures import retrieve
from streams.errors import TransientError
from streams.state.outbox import Delivered, QueuedMessage, Rejected, RetryLater, SinkResult

CONTENT_TYPE: Final = b"application/cloudevents+json; charset=utf-8"
REQUEST_TIMEOUT_MS: Final = 10_000
MESSAGE_SIZE_BYTES_MAX: Final = 1_000_000
"""Below what a broker accepts by default (1,048,588 bytes with the record's own)."""


class KafkaSink:
    """Sends to one topic (implements `Sink`); `open_kafka_sink` makes one."""

    name: str = "kafka"
    batch_max: int = 500

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def send(self, messages: Sequence[QueuedMessage]) -> Sequence[SinkResult]:
        """
        Send messages in order; return an answer for each.

        Raises:
            TransientError: if the brokers cannot be reached.
        """
        waiting: list[asyncio.Future[object] | SinkResult] = []
        try:
            for outgoing in messages:
                waiting.append(await self._enqueue(outgoing))  # noqa: PERF401 - what is there if one fails is retrieved
            return [
                each if isinstance(each, Delivered | RetryLater | Rejected) else await _taken(each) for each in waiting
            ]
        finally:
            # Whatever was not awaited because another failed must not be reported as never retrieved.
            for each in waiting:
                if isinstance(each, asyncio.Future):
                    each.add_done_callback(retrieve)

    async def _enqueue(self, outgoing: QueuedMessage) -> asyncio.Future[object] | SinkResult:
        message = outgoing.message
        if len(message.payload) > MESSAGE_SIZE_BYTES_MAX:
            return Rejected(f"expected at most {MESSAGE_SIZE_BYTES_MAX} bytes, found {len(message.payload)}")
        headers = [("content-type", CONTENT_TYPE)]
        try:
            sent: asyncio.Future[object] = await self._producer.send(
                self._topic, value=message.payload, key=message.key.encode(), headers=headers
            )
        except MessageSizeTooLargeError as error:
            return Rejected(str(error))
        except KafkaError as error:
            raise TransientError(f"Kafka does not take messages for {self._topic}: {error}") from error
        return sent


async def _taken(sent: asyncio.Future[object]) -> SinkResult:
    """A producer that numbers its messages keeps them in order; what one misses, those behind it wait for."""
    try:
        await sent
    except MessageSizeTooLargeError as error:
        return Rejected(str(error))
    except KafkaError as error:
        raise TransientError(f"Kafka did not say that it has a message: {error}") from error
    return Delivered()


@asynccontextmanager
async def open_kafka_sink(brokers: str, topic: str) -> AsyncIterator[KafkaSink]:
    """
    Yield the sink to `topic` of the Kafka at `brokers` ("host:port,host:port").

    Raises:
        TransientError: if the brokers cannot be reached.
    """
    producer = AIOKafkaProducer(
        bootstrap_servers=brokers,
        enable_idempotence=True,
        acks="all",
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        max_request_size=MESSAGE_SIZE_BYTES_MAX + 16 * 1024,
        linger_ms=5,
    )
    try:
        await producer.start()
    except KafkaError as error:
        await producer.stop()
        raise TransientError(f"Kafka at {brokers} cannot be reached: {error}") from error
    try:
        yield KafkaSink(producer, topic)
    finally:
        await producer.stop()
