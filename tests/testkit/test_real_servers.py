# SPDX-License-Identifier: Apache-2.0
"""
Real servers of the tests: they answer, and they end with the process that started them, however that ends.

That the broker keeps what it was given is what all of `tests/upstreams/test_kafka.py` begins with.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from testkit.environment import PROJECT
from testkit.servers.iceberg_rest import start_iceberg_rest
from testkit.servers.java import ServerNotReadyError, free_ports, java_server
from testkit.servers.maven import jars

END_TIMEOUT_MS = 30_000
STARTER = """
import sys, time
from testkit.servers.iceberg_rest import start_iceberg_rest
with start_iceberg_rest() as server:
    print(server.pid, server.warehouse, flush=True)
    sys.stdin.read()
"""


def test_the_iceberg_server_answers_and_is_gone_afterwards() -> None:
    with start_iceberg_rest() as server:
        assert httpx.get(f"{server.url}/v1/config", trust_env=False).json()["endpoints"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/v1/config", trust_env=False)
    assert not Path(server.warehouse.removeprefix("file://")).exists()


def test_a_server_ends_with_a_process_that_was_killed() -> None:
    jars("iceberg-rest")  # fetched here, if at all
    command = [sys.executable, "-c", STARTER]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid, _ = starter.stdout.readline().split()
        server = os.pidfd_open(int(pid))
        starter.kill()
    ended = select.poll()
    ended.register(server, select.POLLIN)
    assert ended.poll(END_TIMEOUT_MS), "it runs on"
    os.close(server)


def test_a_program_that_ends_before_it_listens_is_no_server(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with (
        pytest.raises(ServerNotReadyError, match="exit 0"),
        java_server(["-version"], directory=tmp_path, port=port, is_ready=lambda: True),
    ):
        pytest.fail("it was believed")
