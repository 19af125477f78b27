# SPDX-License-Identifier: Apache-2.0
"""
A cloud for the scene and for tests: moto speaks S3, SNS and SQS on a free port of loopback, in a process of its own.

It forgets everything when it ends, so every run makes its own bucket, whose ObjectCreated events go through a topic to
a queue, as they do at Amazon. Anyone on this machine may use it: it checks no key.

The process is handed a socket that listens already: no port is looked up and lost again, and who connects early waits.
It ends with its standard input, that is with us, however we end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.error import URLError

from lakeproof.errors import ServerError

REGION: Final = "eu-central-1"
ACCESS_KEY_ID: Final = "scene"
SECRET_ACCESS_KEY: Final = "checked-by-nobody"  # noqa: S105 - moto takes any
READY_TIMEOUT_S: Final = 180.0
POLL_S: Final = 0.02
FOLDER: Final = "warehouse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """A bucket that announces new objects to a queue, and how both are reached."""

    endpoint: str
    bucket: str
    queue: str
    """The URL of the queue."""
    region: str = REGION
    access_key_id: str = ACCESS_KEY_ID
    secret_access_key: str = field(default=SECRET_ACCESS_KEY, repr=False)

    @property
    def warehouse(self) -> str:
        """The folder of the bucket below which tables are kept, as a location."""
        return f"s3://{self.bucket}/{FOLDER}"

    def engine_properties(self) -> dict[str, str]:
        """Return what PyIceberg has to know to read and write files here."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.region": self.region,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
        }

    def environment(self) -> dict[str, str]:
        """Return the variables by which a process of Lakeproof uses this cloud; not that it keeps its tables here."""
        return {
            "LAKEPROOF_S3_ENDPOINT": self.endpoint,
            "LAKEPROOF_S3_REGION": self.region,
            "LAKEPROOF_S3_ACCESS_KEY_ID": self.access_key_id,
            "LAKEPROOF_S3_SECRET_ACCESS_KEY": self.secret_access_key,
        }

    def client(self, service: str) -> Any:
        """Return a blocking client of "s3", "sns" or "sqs"."""
        return _client(self.endpoint, service)


@asynccontextmanager
async def open_cloud() -> AsyncIterator[Cloud]:
    """
    Yield a fresh cloud; it ends with the context.

    Raises:
        ServerError: if moto is not installed, or does not start.
    """
    async with AsyncExitStack() as stack:
        blocking = ExitStack()
        # Whatever was entered in a thread is left in one: nothing in it belongs to the thread.
        stack.push_async_callback(asyncio.to_thread, blocking.close)
        endpoint = await asyncio.to_thread(blocking.enter_context, run_moto())
        yield await asyncio.to_thread(make_cloud, endpoint)


@contextmanager
def run_moto() -> Iterator[str]:
    """
    Yield the URL of a server that has just begun and is empty; blocks.

    Raises:
        ServerError: if moto is not installed, or does not start.
    """
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        process = subprocess.Popen(  # noqa: S603 - this module, with a number
            [sys.executable, "-m", __name__, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C is for whoever started us, who ends this process in his own order.
            start_new_session=True,
        )
    # Only the process holds the socket from here on: if it dies, connections are refused instead of waiting.
    try:
        _wait_until_ready(endpoint, process)
        yield endpoint
    finally:
        process.kill()
        process.communicate()


def make_cloud(endpoint: str) -> Cloud:
    """
    Make a bucket, a topic and a queue that nobody else has, and connect them; blocks.
    """
    name = f"lake-{secrets.token_hex(6)}"
    s3, sns, sqs = (_client(endpoint, service) for service in ("s3", "sns", "sqs"))
    queue = sqs.create_queue(QueueName=name)["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    topic = sns.create_topic(Name=name)["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=attributes["QueueArn"])
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_bucket_notification_configuration(
        Bucket=name,
        NotificationConfiguration={"TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}]},
    )
    return Cloud(endpoint=endpoint, bucket=name, queue=queue)


@cache
def _client(endpoint: str, service: str) -> Any:
    """Return the one client of a service there: any thread may use it, and making one reads megabytes of JSON."""
    import boto3  # here: it takes half a second to import

    return boto3.session.Session().client(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key=SECRET_ACCESS_KEY,
    )


def _wait_until_ready(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{endpoint}/moto-api/data.json", timeout=READY_TIMEOUT_S) as answer:  # noqa: S310 - our own URL
                json.load(answer)
                return
        except (URLError, OSError, ValueError):
            if process.poll() is not None:
                raise ServerError("moto does not start: install lakeproof with its extra `demo`") from None
            time.sleep(POLL_S)
    raise ServerError(f"moto has not answered in {READY_TIMEOUT_S:g} s: check what else this machine does")


def _serve(descriptor: int) -> None:
    """Serve moto on a socket that listens already, until standard input ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    port = socket.socket(fileno=os.dup(descriptor)).getsockname()[1]
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", port, application, threaded=True, fd=descriptor)
    threading.Thread(target=_end_with_input, daemon=True).start()
    server.serve_forever()


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4_096):
        pass
    os._exit(0)  # it holds nothing that is worth closing, and its threads may be waiting for clients


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
