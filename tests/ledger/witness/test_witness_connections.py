# SPDX-License-Identifier: Apache-2.0
"""Who connects to a witness and does not ask, or asks slowly, or does not listen, keeps nobody else out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ledger.witness.server import BoundedConnection, Limits, server_config, witness_app
from testkit.ledger.witnesses import GENUINE, make_witness, opened
from testkit.servers.loopback import serve_config

SOON_S = 0.1
NEVER_S = 600.0
PATIENT = Limits(connections_max=4, head_timeout_s=NEVER_S, answer_timeout_s=NEVER_S, idle_timeout_s=NEVER_S)
ASK = b"GET /now HTTP/1.1\r\nHost: x\r\n\r\n"
LARGE_BYTES = 32 * 2**20
"""More than the sockets of both sides take."""


class Serving:
    """An application behind bounded connections, and those who connect to it."""

    def __init__(self, address: tuple[str, int], stack: ExitStack) -> None:
        self.address = address
        self.started, self.go_on, self.lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._stack = stack

    async def connect(self, host: str = "127.0.0.1") -> socket.socket:
        """Connect from an address of loopback."""
        connection = self._stack.enter_context(socket.socket())
        connection.bind((host, 0))
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, self.address)
        return connection

    async def ask(self, host: str = "127.0.0.1") -> bytes:
        """Return the answer to a request over a connection of its own."""
        return await asked(await self.connect(host))


async def asked(connection: socket.socket, request: bytes = ASK) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, request)
    answer = b""
    while not answer.endswith(b"done\n"):
        answer += await loop.sock_recv(connection, 65_536)
    return answer


async def until_closed(connection: socket.socket) -> bytes:
    """Return what arrives until the server hangs up."""
    received = b""
    with suppress(ConnectionResetError):
        while more := await asyncio.get_running_loop().sock_recv(connection, 65_536):
            received += more
    return received


async def until_refused(connection: socket.socket, data: bytes) -> None:
    """Send `data` again and again until the server has hung up."""
    with suppress(ConnectionResetError, BrokenPipeError):
        while True:
            await asyncio.get_running_loop().sock_sendall(connection, data)
            await asyncio.sleep(0)


def is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@asynccontextmanager
async def serving(limits: Limits) -> AsyncIterator[Serving]:
    class Connection(BoundedConnection):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            served.lost.set()

    Connection.limits = limits

    async def now(_: Request) -> Response:
        return Response(b"done\n")

    async def later(_: Request) -> Response:
        served.started.set()
        await served.go_on.wait()
        return Response(b"done\n")

    async def body(request: Request) -> Response:
        served.started.set()
        await request.body()
        return Response(b"done\n")

    async def large(_: Request) -> Response:
        return Response(bytes(LARGE_BYTES))

    app = Starlette(
        routes=[
            Route("/now", now, methods=["GET", "POST"]),
            Route("/later", later),
            Route("/body", body, methods=["POST"]),
            Route("/large", large),
        ]
    )
    with ExitStack() as stack:
        async with asyncio.timeout(60), serve_config(server_config(app, Connection)) as url:
            host, _, port = url.removeprefix("http://").partition(":")
            served = Serving((host, int(port)), stack)
            yield served
            served.go_on.set()


async def test_silent_connections_keep_nobody_out_and_the_oldest_of_them_goes() -> None:
    async with serving(PATIENT) as served:
        silent = [await served.connect() for _ in range(PATIENT.connections_max)]
        assert b"200 OK" in await served.ask()
        assert await until_closed(silent[0]) == b""
        assert all(is_open(one) for one in silent[1:])
        for one in silent[1:]:  # those who asked are idle now, but have waited for less long
            assert b"200 OK" in await served.ask()
            assert await until_closed(one) == b""


async def test_whoever_has_most_connections_loses_one() -> None:
    async with serving(PATIENT) as served:
        other = await served.connect("127.0.0.1")
        (first, *rest) = [await served.connect("127.0.0.2") for _ in range(3)]
        third = await served.connect("127.0.0.3")
        assert await until_closed(first) == b""
        assert all(is_open(one) for one in (other, *rest, third))
        assert b"200 OK" in await asked(other)
        assert b"200 OK" in await asked(third)


async def test_slow_bodies_and_idle_connections_give_way_and_a_request_that_is_worked_on_does_not() -> None:
    async with serving(replace(PATIENT, connections_max=2)) as served:
        worked_on = asyncio.create_task(asked(await served.connect(), ASK.replace(b"/now", b"/later")))
        await served.started.wait()
        served.started.clear()
        slow = await served.connect()
        await asyncio.get_running_loop().sock_sendall(
            slow, b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
        )
        await served.started.wait()
        idle = await served.connect()
        assert await until_closed(slow) == b""
        await asked(idle)
        assert b"200 OK" in await served.ask()
        assert await until_closed(idle) == b""
        served.go_on.set()
        assert b"200 OK" in await worked_on


@pytest.mark.parametrize("sent", [b"", b"GET /now HT", b"POST /now HTTP/1.1\r\nHost: x\r\n"])
async def test_a_first_request_that_does_not_arrive_is_waited_for_no_longer_than_allowed(sent: bytes) -> None:
    async with serving(replace(PATIENT, head_timeout_s=SOON_S)) as served:
        connection = await served.connect()
        await asyncio.get_running_loop().sock_sendall(connection, sent)
        assert await until_closed(connection) == b""


async def test_bytes_that_trickle_in_buy_no_time() -> None:
    async with serving(replace(PATIENT, head_timeout_s=SOON_S)) as served:
        first, later, rest = [await served.connect() for _ in range(3)]
        await asked(later)
        # The answer does not wait for the body, and what arrives of it afterwards is no request either.
        await asked(rest, b"POST /now HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
        await asyncio.gather(
            *(until_refused(one, data) for one, data in ((first, b"\r\n"), (later, b"\r\n"), (rest, b"x")))
        )


async def test_an_idle_connection_is_kept_as_long_as_allowed() -> None:
    async with serving(replace(PATIENT, idle_timeout_s=SOON_S)) as served:
        connection = await served.connect()
        await asked(connection)
        assert await until_closed(connection) == b""


@pytest.mark.parametrize(
    ("limits", "requests"),
    [
        # One answer more than fills the sockets, and has left as far as the server knows; another one finds no room.
        (replace(PATIENT, idle_timeout_s=SOON_S), 1),
        (replace(PATIENT, answer_timeout_s=SOON_S), 2),
    ],
)
async def test_who_does_not_listen_to_an_answer_is_cut_off(limits: Limits, requests: int) -> None:
    async with serving(limits) as served:
        connection = await served.connect()
        await asyncio.get_running_loop().sock_sendall(connection, ASK.replace(b"/now", b"/large") * requests)
        await served.lost.wait()
        assert len(await until_closed(connection)) < LARGE_BYTES


async def test_who_does_not_listen_gives_way() -> None:
    async with serving(replace(PATIENT, connections_max=1)) as served:
        deaf = await served.connect()
        await asyncio.get_running_loop().sock_sendall(deaf, ASK.replace(b"/now", b"/large") * 2)
        await asyncio.get_running_loop().sock_recv(deaf, 1)
        assert b"200 OK" in await served.ask()
        assert len(await until_closed(deaf)) < LARGE_BYTES


async def test_a_witness_is_served_within_these_bounds(tmp_path: Path) -> None:
    with opened(make_witness(tmp_path / "witness")) as witness:
        config = server_config(witness_app(witness))
        config.load()
        assert config.http_protocol_class is BoundedConnection
        async with serve_config(config) as url, httpx.AsyncClient(base_url=url, trust_env=False) as client:
            for old, size in ((0, 8), (8, 9)):
                answer = await client.post("/add-checkpoint", content=GENUINE.request(old, size))
                assert answer.status_code == 200
