# SPDX-License-Identifier: Apache-2.0
"""
A policy worker that is late, or does not start, ends nothing: the gateway is closed meanwhile, and says so.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from gateway.policy.pool import WorkerEngine
from lakeproof.provision import Provisioned
from lakeproof.serving.duties import gateway
from lakeproof.serving.in_process import serving
from lakeproof.serving.policy_engine import start_policy_engine
from lakeproof.tenants import found_tenant
from testkit.environment import PATIENCE_S
from testkit.servers.gateways import start_services

CLOSED_SOON = {"port": "0", "streams": "0", "detect": "0", "policy_waiting_s": "0.1"}


def first_worker() -> int | None:
    """Return our first policy worker, if there is one."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
    return next((pid for pid, command in commands.items() if b"gateway.policy.worker" in command), None)


async def signal_first_worker(number: signal.Signals) -> int:
    """Send a signal to our first policy worker, long before it is ready; return its process id."""
    while (pid := first_worker()) is None:  # noqa: ASYNC110 - a child process has no event
        await asyncio.sleep(0)
    os.kill(pid, number)
    return pid


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.01)


async def test_a_worker_that_is_late_closes_the_gateway_which_says_so_and_opens_when_it_is_there(
    database: str, installation: Provisioned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "STARTED_WITHIN_S", 0.05)
    said: list[str] = []
    async with start_services(database, installation, tmp_path) as services:
        acme = await found_tenant(services, name="acme", identity="ada@acme.example", alias="lake")
    headers = {"Authorization": f"Bearer {acme.key.secret}"}
    async with start_services(database, installation, tmp_path, **CLOSED_SOON) as services:
        stopping = asyncio.create_task(signal_first_worker(signal.SIGSTOP))
        async with (
            serving(services, said.append) as served,
            httpx.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
        ):
            make = f"{served.url}/v1/iceberg/lake/namespaces"
            refused = await http.post(make, json={"namespace": ["sales"]})
            assert refused.status_code == 503, refused.text
            (late,) = said
            assert "have not started within 0.05 s" in late
            assert "is refused with 503" in late
            os.kill(await stopping, signal.SIGCONT)
            await until(lambda: said[-1] == "the policy workers have started")
            assert (await http.post(make, json={"namespace": ["sales"]})).status_code == 200


async def test_workers_that_do_not_start_are_tried_again_until_one_does() -> None:
    said: list[str] = []
    async with WorkerEngine() as engine, asyncio.timeout(60):
        killing = asyncio.create_task(signal_first_worker(signal.SIGKILL))
        await start_policy_engine(engine, said.append, log_id=1, within_s=60, pause_s=0.01)
        await killing
    refused, started = said
    assert "do not start (the policy worker ended (status -9)" in refused
    assert started == "the policy workers have started"


async def test_workers_that_start_at_once_are_not_spoken_of() -> None:
    said: list[str] = []
    async with WorkerEngine() as engine:
        await start_policy_engine(engine, said.append, log_id=1, within_s=60)
    assert said == []
