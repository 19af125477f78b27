# SPDX-License-Identifier: Apache-2.0
"""
S3, SNS and SQS for tests: the same server that the scene starts (`lakeproof.demo.cloud`), and what a test does to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lakeproof.demo.cloud import Cloud, make_cloud, run_moto
from lakeproof.errors import ServerError
from testkit.environment import missing


@contextmanager
def start_cloud() -> Iterator[str]:
    """Yield the URL of an empty server."""
    with ExitStack() as stack:
        try:
            endpoint = stack.enter_context(run_moto())
        except ServerError as error:
            missing(str(error))
        yield endpoint


def fresh_cloud(endpoint: str) -> Cloud:
    """Return a bucket and a queue of the test's own, without the message that S3 sends when both are connected."""
    cloud = make_cloud(endpoint)
    drain(cloud)
    return cloud


def put(cloud: Cloud, key: str, body: bytes = b"") -> str:
    """Store an object; return its location."""
    cloud.client("s3").put_object(Bucket=cloud.bucket, Key=key, Body=body)
    return f"s3://{cloud.bucket}/{key}"


def send(cloud: Cloud, body: str) -> None:
    """Send a message that nobody at S3 wrote."""
    cloud.client("sqs").send_message(QueueUrl=cloud.queue, MessageBody=body)


def left(cloud: Cloud) -> int:
    """Return how many messages the queue has, hidden ones among them."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    answer = cloud.client("sqs").get_queue_attributes(QueueUrl=cloud.queue, AttributeNames=names)
    return sum(int(answer["Attributes"][name]) for name in names)


def drain(cloud: Cloud) -> list[str]:
    """Take and delete what is in the queue; return the bodies."""
    sqs: Any = cloud.client("sqs")
    bodies: list[str] = []
    while messages := sqs.receive_message(QueueUrl=cloud.queue, MaxNumberOfMessages=10).get("Messages"):
        for message in messages:
            bodies.append(message["Body"])
            sqs.delete_message(QueueUrl=cloud.queue, ReceiptHandle=message["ReceiptHandle"])
    return bodies
