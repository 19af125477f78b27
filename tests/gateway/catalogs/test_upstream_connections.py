# SPDX-License-Identifier: Apache-2.0
"""
Connections to upstreams: an answer is whole or none, and is never taken for the answer to another request.

The upstream is a real socket whose bytes are written down here, one answer for each request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from gateway.catalogs import connections as pool
from gateway.catalogs.connections import Call, Connections
from gateway.catalogs.replies import Answered, NeverSent, Unanswered
from gateway.catalogs.upstream import exchange, open_client
from projections.egress.rules import EgressRules
from testkit.gateway.http_answers import END_OF_HEAD, chunked, said
from testkit.servers.certificates import Certificate, make_certificate
from testkit.servers.loopback import LOOPBACK

TIMEOUT_S: Final = 10.0
BODY: Final = b'{"a":"b"}'

CLOSE: Final = b"(close)"
"""Written down behind an answer: the connection is closed after it."""


@dataclass(slots=True)
class Upstream:
    """Answers the requests that arrive, on whatever connection, with `answers` in turn, the last one for ever."""

    answers: Sequence[bytes]
    seen: list[bytes] = field(default_factory=list)
    """The head of each request, and its body."""
    connections: int = 0
    port: int = 0
    barrier: asyncio.Barrier | None = None
    """Where requests wait until so many have arrived."""
    ended: list[asyncio.Event] = field(default_factory=list)
    """For each connection: set when the client has closed it."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        ended = asyncio.Event()
        self.ended.append(ended)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    head = await reader.readuntil(END_OF_HEAD)
                    length = next(
                        (int(one[16:]) for one in head.split(b"\r\n") if one.startswith(b"Content-Length:")), 0
                    )
                    self.seen.append(head + await reader.readexactly(length))
                    if self.barrier is not None:
                        await self.barrier.wait()
                    answer = self.answers[min(len(self.seen), len(self.answers)) - 1]
                    writer.write(answer.removesuffix(CLOSE))
                    await writer.drain()
                    if answer.endswith(CLOSE):
                        return
        finally:
            ended.set()
            writer.close()


@asynccontextmanager
async def upstream(*answers: bytes) -> AsyncIterator[Upstream]:
    """Yield an upstream that answers so."""
    serving = Upstream(answers)
    async with await asyncio.start_server(serving, "127.0.0.1", 0) as server:
        serving.port = server.sockets[0].getsockname()[1]
        yield serving
        for ended in serving.ended:
            await ended.wait()


def call_to(serving: Upstream, path: str = "/x", *, body: bytes | None = None, host: str = "127.0.0.1") -> Call:
    method = "GET" if body is None else "POST"
    return Call(method=method, url=f"http://{host}:{serving.port}{path}", headers={}, body=body)


async def ask(client: Connections, call: Call) -> Answered:
    reply = await exchange(client, call, timeout_s=TIMEOUT_S)
    assert isinstance(reply, Answered), reply
    return reply


# The next request


async def test_a_connection_is_used_again_and_tells_the_same_server_apart_by_nothing_but_its_url() -> None:
    async with upstream(said(b"1"), chunked(b"2"), said(b"3")) as one, upstream(said(b"4")) as other:
        async with open_client(LOOPBACK) as client:
            bodies = [(await ask(client, call_to(each, body=BODY))).body for each in (one, one, other, one, other)]
            assert bodies == [b"1", b"2", b"4", b"3", b"4"]
            assert (one.connections, other.connections) == (1, 1)
            await ask(client, call_to(one, host="localhost"))
            assert one.connections == 2, "a name is resolved and checked for itself"
        await one.ended[0].wait()
    assert one.seen[0].startswith(f"POST /x HTTP/1.1\r\nHost: 127.0.0.1:{one.port}\r\n".encode())
    assert one.seen[0].endswith(b"Content-Length: 9\r\n\r\n" + BODY)


async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    async with upstream(said(b"1")) as serving, open_client(LOOPBACK) as client:
        serving.barrier = asyncio.Barrier(10)
        for _ in range(2):
            answers = await asyncio.gather(*(ask(client, call_to(serving)) for _ in range(10)))
            assert {answer.status for answer in answers} == {200}
        assert serving.connections == 10


@pytest.mark.parametrize("how", ["says so", "does so", "is HTTP/1.0"])
async def test_a_connection_that_the_upstream_closes_is_not_used_for_the_next_request(how: str) -> None:
    first = {"says so": said(b"1", "Connection: close"), "does so": said(b"1") + CLOSE}
    async with upstream(first.get(how, said(b"1").replace(b"1.1", b"1.0")), said(b"2")) as serving:
        async with open_client(LOOPBACK) as client:
            assert (await ask(client, call_to(serving))).body == b"1"
            if how == "does so":
                await serving.ended[0].wait()  # the end is on its way; nothing has told the client's event loop yet
            assert (await ask(client, call_to(serving, body=b"{}"))).body == b"2"
        assert serving.connections == 2


@pytest.mark.parametrize("more", [said(b"evil"), b"HTTP/1.1 200 OK\r\n", b"\0", b"x"])
@pytest.mark.parametrize("first", [said(b"1"), chunked(b"1"), said(b"1", "Connection: close")])
async def test_bytes_behind_an_answer_are_never_the_answer_to_the_next_request(first: bytes, more: bytes) -> None:
    async with upstream(first + more, said(b"2")) as serving, open_client(LOOPBACK) as client:
        assert (await ask(client, call_to(serving))).body == b"1"
        assert (await ask(client, call_to(serving))).body == b"2"
        assert serving.connections == 2


async def test_bytes_that_arrive_while_nobody_asks_are_never_an_answer() -> None:
    """Sent apart from the answer, with no time for the client's event loop to notice before the next request."""
    async with upstream(said(b"1"), said(b"2")) as serving, open_client(LOOPBACK) as client:
        assert (await ask(client, call_to(serving))).body == b"1"
        (idle,) = client._idle
        near, far = socket.socketpair()
        with near, far:
            far.send(said(b"evil"))
            idle._poll.unregister(idle._transport.get_extra_info("socket").fileno())  # type: ignore[union-attr]
            idle._poll.register(near.fileno())
            assert not idle.is_silent()
            assert (await ask(client, call_to(serving))).body == b"2"
        assert serving.connections == 2


async def test_the_late_answer_to_a_request_that_was_given_up_is_not_the_next_ones() -> None:
    go_on = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(END_OF_HEAD)
        if b"/late" in head:
            asked.set()
            await go_on.wait()
        writer.write(said(head.split(b" ")[1]))
        with suppress(OSError):
            await writer.drain()
        writer.close()

    asked = asyncio.Event()
    async with await asyncio.start_server(late, "127.0.0.1", 0) as server, open_client(LOOPBACK) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        call = Call(method="GET", url=f"{url}/late", headers={})
        given_up = asyncio.create_task(exchange(client, call, timeout_s=TIMEOUT_S))
        await asked.wait()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        go_on.set()
        assert (await ask(client, replace(call, url=f"{url}/next"))).body == b"/next"


async def test_a_connection_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with upstream(said(b"1")) as serving, open_client(LOOPBACK) as client:
        monkeypatch.setattr(pool, "IDLE_S", 0.0)
        for number in range(1, 4):
            await ask(client, call_to(serving))
            await serving.ended[number - 1].wait()
            assert serving.connections == number


async def test_few_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "IDLE_CONNECTIONS_MAX", 3)
    async with upstream(said(b"1")) as serving, open_client(LOOPBACK) as client:
        serving.barrier = asyncio.Barrier(8)
        await asyncio.gather(*(ask(client, call_to(serving)) for _ in range(8)))
        assert len(client._idle) == 3


async def test_a_request_that_waits_for_a_connection_was_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "CONNECTIONS_MAX", 0)
    async with upstream(said(b"1")) as serving, open_client(LOOPBACK) as client:
        assert isinstance(await exchange(client, call_to(serving), timeout_s=0.01), NeverSent)
        assert serving.connections == 0


async def test_a_connection_that_is_lost_when_it_is_used_leaves_the_outcome_unknown() -> None:
    async with upstream(said(b"1"), CLOSE) as serving, open_client(LOOPBACK) as client:
        await ask(client, call_to(serving))
        reply = await exchange(client, call_to(serving, body=BODY), timeout_s=TIMEOUT_S)
        assert isinstance(reply, Unanswered)
        assert serving.connections == 1
        assert len(serving.seen) == 2, "it is sent once"


async def test_a_large_request_arrives_whole_and_one_that_is_answered_too_early_is_no_reason_to_wait() -> None:
    large = b" " * 10 * 2**20
    async with upstream(said(b"1")) as serving, open_client(LOOPBACK) as client:
        await ask(client, call_to(serving, body=large))
        assert serving.seen[0].endswith(large)

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(END_OF_HEAD)
        writer.write(said(b"", status="413 Content Too Large"))
        await done.wait()
        writer.close()

    done = asyncio.Event()
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server, open_client(LOOPBACK) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        answer = await ask(client, Call(method="POST", url=url, headers={}, body=large))
        assert answer.status == 413
        assert not client._idle, "the rest of the request is still to be sent"
        done.set()


# Where it goes


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate and its key, in one file."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "server.pem", "catalog.example")


async def test_the_certificate_must_be_for_the_name_in_the_url(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    seen: list[str | None] = []
    serving = Upstream([said(BODY)])
    async with await asyncio.start_server(serving, "127.0.0.1", 0, ssl=certificate.context(seen)) as server:
        serving.port = server.sockets[0].getsockname()[1]
        async with open_client(LOOPBACK, resolve=lambda _host, _port: ["127.0.0.1"]) as client:
            call = Call(method="GET", url=f"https://catalog.example:{serving.port}/", headers={})
            for _ in range(3):
                assert (await ask(client, call)).body == BODY
            assert seen == ["catalog.example"], "the connection is used again"
            other = replace(call, url=f"https://other.example:{serving.port}/")
            reply = await exchange(client, other, timeout_s=TIMEOUT_S)
            assert isinstance(reply, NeverSent)
            assert "certificate" in reply.cause
            plain = replace(call, url=f"http://catalog.example:{serving.port}/")
            assert isinstance(await exchange(client, plain, timeout_s=TIMEOUT_S), Unanswered)
    assert len(serving.seen) == 3


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(certificate: Certificate) -> None:
    serving = Upstream([said(BODY)])
    async with await asyncio.start_server(serving, "127.0.0.1", 0, ssl=certificate.context([])) as server:
        url = f"https://catalog.example:{server.sockets[0].getsockname()[1]}/"
        async with open_client(LOOPBACK, resolve=lambda _host, _port: ["127.0.0.1"]) as client:
            reply = await exchange(client, Call(method="GET", url=url, headers={}), timeout_s=TIMEOUT_S)
    assert isinstance(reply, NeverSent)
    assert not serving.seen


async def test_an_address_that_does_not_answer_leaves_the_next_one_its_turn() -> None:
    async with upstream(said(BODY)) as serving:
        addresses = ["127.0.0.2", "127.0.0.1"]
        async with open_client(LOOPBACK, resolve=lambda _host, _port: addresses) as client:
            assert (await ask(client, call_to(serving, host="two.example"))).body == BODY
            assert f"Host: two.example:{serving.port}\r\n".encode() in serving.seen[0]
            addresses.pop()
            reply = await exchange(client, call_to(serving, host="one.example"), timeout_s=TIMEOUT_S)
            assert reply == NeverSent(cause="NotConnectedError: all connection attempts failed")


async def test_a_name_that_leads_elsewhere_is_asked_for_again_with_every_connection() -> None:
    async with upstream(said(BODY, "Connection: close")) as serving:
        addresses = ["127.0.0.1"]
        rules = EgressRules.parse("127.0.0.1")
        async with open_client(rules, resolve=lambda _host, _port: addresses) as client:
            assert (await ask(client, call_to(serving, host="rebinding.example"))).body == BODY
            addresses[:] = ["127.0.0.2"]
            reply = await exchange(client, call_to(serving, host="rebinding.example"), timeout_s=TIMEOUT_S)
            assert isinstance(reply, NeverSent)
    assert serving.connections == 1
