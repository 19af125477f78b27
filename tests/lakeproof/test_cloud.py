# SPDX-License-Identifier: Apache-2.0
"""The scene's cloud: it tells of new objects, and nothing of it outlives whoever started it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import httpx
import pytest

from lakeproof.demo.cloud import open_cloud
from streams.handlers.s3_messages import parse_s3_event
from testkit.servers.cloud import drain, fresh_cloud, put, start_cloud

STARTS_ONE = """
import sys, time
from lakeproof.demo.cloud import run_moto
with run_moto() as endpoint:
    print(endpoint, flush=True)
    time.sleep(600)
"""


def test_a_new_object_is_told_through_topic_and_queue() -> None:
    with start_cloud() as endpoint:
        cloud, other = fresh_cloud(endpoint), fresh_cloud(endpoint)
        assert cloud.bucket != other.bucket
        location = put(cloud, "warehouse/a b/ü.parquet")
        (body,) = drain(cloud)
        assert json.loads(body)["Type"] == "Notification"
        assert [created.location for created in parse_s3_event(body)] == [location]
        assert drain(other) == []
    with pytest.raises(httpx.TransportError):
        httpx.get(endpoint)


async def test_the_scene_opens_it_without_holding_up_its_loop() -> None:
    async with open_cloud() as cloud:
        assert cloud.warehouse == f"s3://{cloud.bucket}/warehouse"
        assert cloud.secret_access_key not in repr(cloud)
        assert cloud.environment()["LAKEPROOF_S3_ENDPOINT"] == cloud.engine_properties()["s3.endpoint"]


def test_it_ends_with_a_process_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        assert httpx.get(f"{endpoint}/moto-api/data.json").is_success
        process.send_signal(signal.SIGKILL)
        process.wait()
    # Only moto holds the socket: once it is gone, the kernel refuses.
    while True:
        try:
            httpx.get(f"{endpoint}/moto-api/data.json")
        except httpx.TransportError:
            return
