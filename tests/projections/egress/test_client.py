# SPDX-License-Identifier: Apache-2.0
"""
httpx over connections that are checked: real sockets on loopback, and traps that count whoever comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from projections.egress.client import open_client
from projections.egress.connecting import connect_checked, resolve_host
from projections.egress.rules import EgressRules
from projections.errors import AddressRefusedError, NameUnresolvedError
from testkit.servers.certificates import Certificate, make_certificate
from testkit.servers.loopback import LOOPBACK, serve
from testkit.servers.traps import INSIDE, LOOPBACK_SPELLINGS, Trap, set_trap

PUBLIC: Final = EgressRules.parse("public")


@pytest.fixture
def trap() -> Iterator[Trap]:
    """A place where nobody must come; if somebody has, the test fails."""
    with set_trap() as trap:
        yield trap
        assert trap.caught() == 0


@dataclass(slots=True)
class Resolver:
    """A name server that answers in turn, and the last answer for ever; `asked` are the hosts that it was asked for."""

    answers: Sequence[Sequence[str]]
    asked: list[str] = field(default_factory=list)

    def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


def application(reply: Callable[[Request], Response]) -> Starlette:
    return Starlette(routes=[Route("/{path:path}", lambda request: reply(request))])


def hello(request: Request) -> Response:
    return PlainTextResponse(request.headers["host"], headers={"connection": "close"})


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.mark.parametrize("host", LOOPBACK_SPELLINGS)
async def test_no_spelling_of_loopback_is_connected_to(trap: Trap, host: str) -> None:
    async with open_client(PUBLIC) as client:
        with pytest.raises((AddressRefusedError, httpx.InvalidURL)):
            await client.get(f"http://{host}:{trap.port}/")


def test_the_trap_would_catch_them() -> None:
    everywhere = EgressRules.parse("public, 127.0.0.0/8, ::1, 0.0.0.0, ::")
    reached = 0
    with set_trap() as trap:
        for host in LOOPBACK_SPELLINGS:
            with suppress(OSError, AddressRefusedError):
                connect_checked(everywhere, host.strip("[]"), trap.port, timeout_s=5).close()
            reached += trap.caught()
    assert reached >= 25


@pytest.mark.parametrize("host", INSIDE)
async def test_no_other_address_that_is_not_for_everybody_is_connected_to(host: str) -> None:
    async with open_client(PUBLIC) as client:
        with pytest.raises((AddressRefusedError, httpx.InvalidURL)):
            await client.get(f"https://{host}/")


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1%25lo]:{port}/",
        "http://127.0.0.1%00.example:{port}/",
        "http://%31%32%37.0.0.1:{port}/",
        "http://127。0。0。1:{port}/",
        "http://①②⑦.⓪.⓪.①:{port}/",
        "http://ⓛocalhost:{port}/",
        "http://public.example@127.0.0.1:{port}/",
        "http://public.example:80@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}\\@public.example/",
        "http://127.0.0.1\t:{port}/",
        "http://127.0.0.1:{port}#@public.example/",
        "http:127.0.0.1:{port}/",
        "http:///127.0.0.1:{port}/",
        "//127.0.0.1:{port}/",
        "HTTP://LOCALHOST:{port}/",
    ],
)
async def test_no_trick_with_the_url_leads_to_loopback(trap: Trap, url: str) -> None:
    resolver = Resolver([["127.0.0.1"]])
    async with open_client(PUBLIC, resolve=resolver) as client:
        with pytest.raises((AddressRefusedError, httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError)):
            await client.get(url.format(port=trap.port))


async def test_a_name_that_leads_elsewhere_the_second_time_is_refused_the_second_time() -> None:
    """DNS rebinding: the name is allowed at 127.0.0.2, and 127.0.0.1 is somebody else's."""
    rules = EgressRules.parse("127.0.0.2")
    resolver = Resolver([["127.0.0.2"], ["127.0.0.1"]])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Host: rebinding.example:" in head
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.2", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with set_trap(port=port) as trap:
            async with open_client(rules, resolve=resolver) as client:
                assert (await client.get(f"http://rebinding.example:{port}/")).text == "ok"
                assert resolver.asked == ["rebinding.example"], "what was checked is what was connected to"
                for _ in range(3):
                    with pytest.raises(AddressRefusedError, match="rebinding"):
                        await client.get(f"http://rebinding.example:{port}/")
            assert trap.caught() == 0


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.2", "127.0.0.1"],
        ["127.0.0.1", "127.0.0.2"],
        ["127.0.0.2", "::1"],
        ["127.0.0.2"] * 40,
        [],
        ["no address"],
    ],
)
async def test_a_name_of_which_one_address_is_not_allowed_is_not_connected_to_at_all(addresses: list[str]) -> None:
    with set_trap() as trap, set_trap("127.0.0.2", trap.port) as allowed:
        async with open_client(EgressRules.parse("127.0.0.2"), resolve=lambda _host, _port: addresses) as client:
            with pytest.raises(AddressRefusedError):
                await client.get(f"http://both.example:{trap.port}/")
        assert (trap.caught(), allowed.caught()) == (0, 0)


async def test_an_address_that_does_not_answer_leaves_the_next_one_its_turn() -> None:
    async with serve(application(hello)) as url:
        with set_trap("127.0.0.2", port_of(url)) as silent:
            silent.listeners[0].close()
            resolver = Resolver([["127.0.0.2", "127.0.0.1"]])
            async with open_client(LOOPBACK, resolve=resolver) as client:
                answer = await client.get(f"http://two.example:{port_of(url)}/")
            assert answer.text == f"two.example:{port_of(url)}", "the name is what the server is told"
            with connect_checked(LOOPBACK, "two.example", port_of(url), timeout_s=5, resolve=resolver) as connection:
                assert connection.getpeername() == ("127.0.0.1", port_of(url))


async def test_a_name_without_an_address_is_told_like_one_that_is_refused() -> None:
    said = []
    for answer in ([], ["10.0.0.1"]):
        async with open_client(PUBLIC, resolve=Resolver([answer])) as client:
            with pytest.raises(AddressRefusedError) as refused:
                await client.get("http://db.internal/")
        said.append(str(refused.value))
    assert len(set(said)) == 1
    async with open_client(PUBLIC, resolve=resolve_host) as client:
        with pytest.raises(NameUnresolvedError):
            await client.get("http://nowhere.invalid/")


async def test_names_that_are_asked_for_at_once_are_resolved_once() -> None:
    resolver = Resolver([["127.0.0.1"]])
    async with serve(application(hello)) as url, open_client(LOOPBACK, resolve=resolver) as client:
        asked = [client.get(f"http://same.example:{port_of(url)}/") for _ in range(8)]
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        assert 1 <= len(resolver.asked) <= 8


async def test_a_redirect_is_not_followed(trap: Trap) -> None:
    def redirect(_: Request) -> Response:
        return RedirectResponse(trap.url, status_code=307)

    async with serve(application(redirect)) as url, open_client(EgressRules.parse("127.0.0.0/8")) as client:
        assert (await client.get(url)).status_code == 307


async def test_proxies_of_the_environment_are_not_used(trap: Trap, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, trap.url)
    async with serve(application(hello)) as url, open_client(LOOPBACK) as client:
        assert (await client.get(url)).status_code == 200


async def test_the_certificate_must_be_for_the_name_in_the_url(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    seen: list[str | None] = []
    context = certificate.context(seen)
    resolver = Resolver([["127.0.0.1"]])

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with open_client(LOOPBACK, resolve=resolver) as client:
            assert (await client.get(f"https://catalog.example:{port}/")).text == "ok"
            assert seen == ["catalog.example"]
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await client.get(f"https://other.example:{port}/")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """A certificate and its key, in one file."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "server.pem", "catalog.example")
