# SPDX-License-Identifier: Apache-2.0
"""
The SQS queue of S3's events: its messages become triggers in the logs. The only module of this package with boto3.

Guarantee: a message is deleted only after its groups are in a log, or it is a dead letter. After a crash in between,
the message is delivered again, and since groups have derived ids it adds nothing. So a failed deletion is harmless, and
counted. While a batch is being handled, its messages stay hidden, for however long that takes: their visibility timeout
is extended. A lost connection, to the queue or the database, is waited out.

boto3 blocks, so every call to it runs in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import boto3
import psycopg
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ledger.errors import NoSuchLogError
from ledger.store.read import Log, read_logs
from ledger.store.session import Connection
from streams.connections import connect_reading, connect_storing
from streams.errors import StreamError, TransientError
from streams.execution import handle_batch
from streams.handler import Append, Handler, Message
from streams.state import dead_letters
from streams.state.leases import handler_duty

BATCH_MAX: Final = 10
"""The most messages that SQS gives or deletes in one call."""
WAIT_S: Final = 5
"""How long a call waits for messages; a source that is stopped waits as long, at most."""
VISIBILITY_S: Final = 60
"""How long messages are hidden from others; extended at a third of it while they are worked on."""
BACK_OFF_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 15.0)
"""Pauses after failures in a row; the last one repeats."""
CONNECT_TIMEOUT_S: Final = 5

_log = logging.getLogger(__name__)


class QueueUnavailableError(StreamError):
    """The queue does not answer, or does not let us read it: it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsMessage:
    """A message of the queue, and the receipt under which it is deleted or hidden for longer."""

    id: str
    body: str
    receipt: str


class Queue(Protocol):
    """What the source needs of a queue. Every method blocks and raises QueueUnavailableError."""

    def receive(self) -> Sequence[SqsMessage]:
        """Wait some seconds for messages; return at most ten, hidden from others from now on."""

    def hide(self, received: Sequence[SqsMessage], *, for_s: int) -> None:
        """Hide messages for so many seconds from now (0: show them to others at once)."""

    def delete(self, received: Sequence[SqsMessage]) -> int:
        """Delete messages; return how many were not deleted."""


class SqsQueue:
    """A queue of SQS (implements `Queue`)."""

    def __init__(
        self,
        url: str,
        *,
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        wait_s: int = WAIT_S,
        visibility_s: int = VISIBILITY_S,
    ) -> None:
        self._url = url
        self._wait_s = wait_s
        self._visibility_s = visibility_s
        # Any: boto3 makes its clients' methods when it runs.
        self._client: Any = boto3.session.Session().client(
            "sqs",
            endpoint_url=endpoint,
            region_name=region,
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S, read_timeout=wait_s + 10, retries={"total_max_attempts": 1}
            ),
        )

    def receive(self) -> Sequence[SqsMessage]:
        """Wait for messages (see `Queue`)."""
        answer = self._call(
            "receive_message",
            MaxNumberOfMessages=BATCH_MAX,
            WaitTimeSeconds=self._wait_s,
            VisibilityTimeout=self._visibility_s,
        )
        return [
            SqsMessage(id=message["MessageId"], body=message["Body"], receipt=message["ReceiptHandle"])
            for message in answer.get("Messages", ())
        ]

    def hide(self, received: Sequence[SqsMessage], *, for_s: int) -> None:
        """Hide messages for so many seconds (see `Queue`)."""
        entries = [{**entry, "VisibilityTimeout": for_s} for entry in _entries(received)]
        self._call("change_message_visibility_batch", Entries=entries)

    def delete(self, received: Sequence[SqsMessage]) -> int:
        """Delete messages (see `Queue`)."""
        return len(self._call("delete_message_batch", Entries=_entries(received)).get("Failed", ()))

    def _call(self, method: str, **arguments: object) -> Any:
        try:
            return getattr(self._client, method)(QueueUrl=self._url, **arguments)
        except (BotoCoreError, ClientError) as error:
            raise QueueUnavailableError(f"queue {self._url}: {error!s:.300}") from error


@dataclass(slots=True, kw_only=True)
class SqsCounts:
    """What a source has done since it was made; `undeleted` messages come again."""

    messages: int = 0
    dead: int = 0
    undeleted: int = 0
    failures: int = 0


class SqsSource:
    """
    Passes the messages of `queue` to `handler` until it is stopped; `dsn` works as the streams' role.

    `counts` is changed only on the event loop of `run`. `_queue` is called from worker threads, at most two at a time
    (one call, and one that extends the visibility); boto3's clients are thread-safe.
    """

    def __init__(
        self,
        dsn: str,
        queue: Queue,
        handler: Handler,
        append: Append,
        *,
        visibility_s: float = VISIBILITY_S,
        back_off_s: Sequence[float] = BACK_OFF_S,
    ) -> None:
        self._dsn = dsn
        self._queue = queue
        self._handler = handler
        self._append = append
        self._visibility_s = visibility_s
        self._back_off_s = back_off_s
        self.counts = SqsCounts()

    async def run(self, stop: asyncio.Event) -> None:
        """
        Take messages until `stop` is set; a batch that has begun is finished, unless what it needs is away.

        Raises:
            BrokenError: if a log is corrupt where it had to be read.
        """
        failures = 0
        while not stop.is_set():
            try:
                received = await asyncio.to_thread(self._queue.receive)
                failures = 0
            except QueueUnavailableError as error:
                failures = await self._back_off(stop, failures, error)
                continue
            if received:
                await self._take(received, stop)

    async def _take(self, received: Sequence[SqsMessage], stop: asyncio.Event) -> None:
        """Bring one batch into the logs and delete it, or show it to others again."""
        self.counts.messages += len(received)
        hiding = asyncio.create_task(self._keep_hidden(received), name="sqs visibility")
        try:
            is_done = await self._store(received, stop)
        finally:
            hiding.cancel()
            with suppress(asyncio.CancelledError):
                await hiding
        # What is not deleted now comes again and adds nothing; what is not shown now is shown when its time is over.
        try:
            if is_done:
                self.counts.undeleted += await asyncio.to_thread(self._queue.delete, received)
            else:
                await asyncio.to_thread(self._queue.hide, received, for_s=0)
        except QueueUnavailableError:
            self.counts.undeleted += len(received) if is_done else 0

    async def _store(self, received: Sequence[SqsMessage], stop: asyncio.Event) -> bool:
        """Store what messages lead to, for as long as it takes; return False if stopped before that is done."""
        failures = 0
        while True:
            try:
                await self._store_once(received)
            except (TransientError, psycopg.OperationalError) as error:
                failures = await self._back_off(stop, failures, error)
                if stop.is_set():
                    return False
            else:
                return True

    async def _store_once(self, received: Sequence[SqsMessage]) -> None:
        async with connect_reading(self._dsn) as reading:
            system = await _system_log(reading)
            messages = [
                Message(id=f"sqs/{item.id}", log=system, value=item.body.encode("utf-8", "surrogatepass"))
                for item in received
            ]
            outcome = await handle_batch(self._handler, messages, reading, self._append)
        if outcome.dead:
            async with connect_storing(self._dsn) as storing, storing.transaction():
                await dead_letters.put(storing, handler_duty(self._handler.name), outcome.dead)
        self.counts.dead += len(outcome.dead)

    async def _keep_hidden(self, received: Sequence[SqsMessage]) -> None:
        """Extend the time for which messages are hidden until cancelled."""
        while True:
            await asyncio.sleep(self._visibility_s / 3)
            # If it fails, others may see them too early, and handle them a second time to no effect.
            with suppress(QueueUnavailableError):
                await asyncio.to_thread(self._queue.hide, received, for_s=int(self._visibility_s))

    async def _back_off(self, stop: asyncio.Event, failures: int, error: Exception) -> int:
        """Wait longer after every failure, but not beyond a stop; return the number of failures."""
        self.counts.failures += 1
        if failures == 0:
            _log.warning("events of S3 wait: %s", error)
        pause_s = self._back_off_s[min(failures, len(self._back_off_s) - 1)]
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        return failures + 1


async def _system_log(reading: Connection) -> Log:
    """What comes through a queue is of no tenant before it was read."""
    for log in await read_logs(reading):
        if log.tenant is None:
            return log
    raise NoSuchLogError("expected a system log, found none")


def _entries(received: Sequence[SqsMessage]) -> list[dict[str, str]]:
    return [{"Id": str(position), "ReceiptHandle": item.receipt} for position, item in enumerate(received)]
