# SPDX-License-Identifier: Apache-2.0
"""A process that serves ends when it can no longer append, however that came."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from lakeproof.ending import end_with_appender
from lakeproof.provision import Provisioned
from lakeproof.serving.in_process import serving
from lakeproof.serving.listening import listen
from ledger.errors import KeyDirectoryError, LogUnavailableError
from testkit.environment import PATIENCE_S
from testkit.servers.gateways import start_services

NOTHING_ELSE = {"port": "0", "streams": "0", "detect": "0"}


async def go_on_without_an_appender() -> None:
    """Let the task that writes end as no task of ours should, and go on for ever."""
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "appender")
    task.cancel()
    await asyncio.Event().wait()


async def test_up_ends_when_the_appender_does(database: str, installation: Provisioned, tmp_path: Path) -> None:
    async def serve() -> None:
        async with (
            asyncio.timeout(60),
            start_services(database, installation, tmp_path, **NOTHING_ELSE) as services,
            serving(services) as served,
            httpx.AsyncClient(timeout=PATIENCE_S) as client,
        ):
            assert (await client.get(f"{served.url}/health")).status_code == 200
            assert "lakeproof_gateway_connections 1.0" in (await client.get(f"{served.url}/metrics")).text
            await go_on_without_an_appender()

    with pytest.raises(LogUnavailableError, match="nothing is appended any more"):
        await serve()


async def test_an_answer_over_a_kept_connection_waits_for_no_acknowledgement() -> None:
    options: list[int] = []

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        options.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listen("127.0.0.1", 0) as listener:
        async with await asyncio.start_server(note, sock=listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            assert await reader.read() == b""
            writer.close()
    assert len(options) == 1
    assert options[0] != 0


async def test_a_start_that_fails_gives_its_port_back(database: str, installation: Provisioned, tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    settings = {**NOTHING_ELSE, "port": str(port)}
    async with start_services(database, installation, tmp_path, **settings) as services:
        async with serving(services):
            pass
        services.installation.keys.chmod(0o755)
        with pytest.raises(KeyDirectoryError):
            async with serving(services):
                raise AssertionError("it has not failed")
        listen("127.0.0.1", port).close()


async def test_what_is_done_beside_an_appender_ends_with_it_and_not_before(
    database: str, installation: Provisioned, tmp_path: Path
) -> None:
    async with start_services(database, installation, tmp_path) as services, asyncio.timeout(60):
        async with end_with_appender(services.appender):
            pass
        with pytest.raises(RuntimeError, match="of its own"):
            async with end_with_appender(services.appender):
                raise RuntimeError("an error of its own")
        with pytest.raises(LogUnavailableError, match="nothing is appended any more"):
            async with end_with_appender(services.appender):
                await go_on_without_an_appender()


@pytest.mark.parametrize(
    ("host", "warns"),
    [("127.0.0.1", False), ("127.0.0.2", False), ("localhost", False), ("0.0.0.0", True)],  # noqa: S104 - for a moment
)
async def test_whoever_listens_on_more_than_loopback_is_warned_that_there_is_no_tls(
    host: str, warns: bool, database: str, installation: Provisioned, tmp_path: Path
) -> None:
    said: list[str] = []
    async with (
        start_services(database, installation, tmp_path, **{**NOTHING_ELSE, "host": host}) as services,
        serving(services, said.append),
    ):
        warnings = [line for line in said if line.startswith("warning: ")]
    assert len(warnings) == warns
    assert all(f"listens on {host} without TLS" in line and "a proxy with TLS" in line for line in warnings)
