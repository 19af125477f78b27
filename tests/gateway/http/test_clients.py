# SPDX-License-Identifier: Apache-2.0
"""
The client's address: the peer's, unless a trusted proxy reports another.
"""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from gateway.http.server.clients import Proxies, parse_address, peer_of
from gateway.http.server.connections import Bounds, Connections
from testkit.gateway.connections import PATIENT, get, patient, site
from testkit.servers.loopback import serve_gateway

NAMED = Proxies(networks=[ip_network("10.0.0.0/8"), ip_network("127.0.0.1"), ip_network("::1")])

JUNK = ("", ",", "unknown", "_hidden", "localhost", "1.2.3", "1.2.3.4.5", "[::1", "999.1.1.1", "1.2.3.4:x", "\x80", "é")


@pytest.mark.parametrize("headers", [[], [(b"x-forwarded-for", b"127.0.0.1")], [(b"forwarded", b"for=127.0.0.1")]])
def test_without_a_named_proxy_headers_mean_nothing(headers: list[tuple[bytes, bytes]]) -> None:
    for peer in ("192.0.2.7", "127.0.0.1", "10.1.2.3"):
        assert str(Proxies().client(parse_address(peer), headers)) == peer
    assert str(NAMED.client(parse_address("192.0.2.7"), headers)) == "192.0.2.7"


@pytest.mark.parametrize(
    ("name", "text", "client"),
    [
        ("x-forwarded-for", "192.0.2.7", "192.0.2.7"),
        ("x-forwarded-for", " 192.0.2.7 ", "192.0.2.7"),
        ("x-forwarded-for", "192.0.2.7:4711", "192.0.2.7"),
        ("x-forwarded-for", "2001:db8::1", "2001:db8::1"),
        ("x-forwarded-for", "[2001:db8::1]:443", "2001:db8::1"),
        ("x-forwarded-for", "::ffff:192.0.2.7", "192.0.2.7"),
        ("x-forwarded-for", "127.0.0.1, 192.0.2.7", "192.0.2.7"),
        ("x-forwarded-for", "192.0.2.7, 10.1.1.1, 10.2.2.2", "192.0.2.7"),
        ("x-forwarded-for", "junk, 192.0.2.7, 10.1.1.1", "192.0.2.7"),
        ("x-forwarded-for", "10.1.1.1, 10.2.2.2", "10.1.1.1"),
        ("x-forwarded-for", "192.0.2.7, junk", None),
        ("x-forwarded-for", "192.0.2.7, junk, 10.1.1.1", None),
        ("forwarded", "for=192.0.2.7", "192.0.2.7"),
        ("forwarded", 'For="[2001:db8::1]:443";proto=https;by=10.1.1.1', "2001:db8::1"),
        ("forwarded", "proto=http;for=192.0.2.7, for=10.1.1.1;by=10.2.2.2", "192.0.2.7"),
        ("forwarded", "for=192.0.2.7, proto=https", None),
        ("forwarded", "xfor=192.0.2.7", None),
    ],
)  # fmt: skip
def test_a_named_proxy_says_for_whom_it_asks(name: str, text: str, client: str | None) -> None:
    found = NAMED.client(parse_address("10.9.9.9"), [(name.encode(), text.encode())])
    assert found == (None if client is None else parse_address(client))


@pytest.mark.parametrize("name", [b"x-forwarded-for", b"forwarded"])
@pytest.mark.parametrize("text", JUNK)
def test_what_a_named_proxy_does_not_say_is_not_known(name: bytes, text: str) -> None:
    proxy = parse_address("::1")
    assert NAMED.client(proxy, [(name, text.encode())]) is None
    assert NAMED.client(proxy, [(name, b"for=" + text.encode())]) is None
    assert NAMED.client(proxy, []) is None


def test_a_client_cannot_choose_by_the_header_that_its_proxy_does_not_set() -> None:
    proxy = parse_address("127.0.0.1")
    both = [(b"x-forwarded-for", b"192.0.2.7"), (b"forwarded", b"for=127.0.0.1")]
    assert NAMED.client(proxy, both) is None
    agreed = [(b"x-forwarded-for", b"192.0.2.7"), (b"forwarded", b"for=192.0.2.7")]
    assert str(NAMED.client(proxy, agreed)) == "192.0.2.7"
    several = [(b"x-forwarded-for", b"127.0.0.1"), (b"x-forwarded-for", b"192.0.2.7")]
    assert str(NAMED.client(proxy, several)) == "192.0.2.7"


PROTO, FORWARDED = b"x-forwarded-proto", b"forwarded"


@pytest.mark.parametrize(
    ("headers", "is_https"),
    [
        ([(PROTO, b"https")], True),
        ([(PROTO, b" HTTPS ")], True),
        ([(PROTO, b"https, https")], True),
        ([(FORWARDED, b"for=192.0.2.7;proto=https")], True),
        ([(FORWARDED, b'Proto="https" ; for=192.0.2.7, for=10.1.1.1;proto=https')], True),
        ([(PROTO, b"https"), (FORWARDED, b"for=192.0.2.7;proto=https")], True),
        ([], False),
        ([(PROTO, b"http")], False),
        ([(PROTO, b"")], False),
        ([(PROTO, b"https, http")], False),
        ([(PROTO, b"http"), (PROTO, b"https")], False),
        ([(PROTO, b"https"), (FORWARDED, b"for=192.0.2.7;proto=http")], False),
        ([(PROTO, b"https"), (FORWARDED, b"for=192.0.2.7")], False),
        ([(FORWARDED, b"for=192.0.2.7;proto=https, for=10.1.1.1")], False),
        ([(FORWARDED, b"for=192.0.2.7;xproto=https")], False),
        ([(PROTO, b"https://")], False),
        ([(PROTO, b"\xff")], False),
        ([(b"x-forwarded-ssl", b"on")], False),
    ],
)
def test_a_named_proxy_says_that_its_client_came_over_tls(headers: list[tuple[bytes, bytes]], is_https: bool) -> None:
    assert NAMED.is_https(parse_address("10.9.9.9"), headers) is is_https
    for proxies, peer in ((NAMED, parse_address("192.0.2.7")), (NAMED, None), (Proxies(), parse_address("10.9.9.9"))):
        assert not proxies.is_https(peer, headers)


def test_an_address_is_counted_with_its_network() -> None:
    def peer(text: str) -> bytes:
        address = parse_address(text)
        assert address is not None
        return peer_of(address)

    assert peer("2001:db8::1") == peer("2001:db8::ffff:1") != peer("2001:db8:0:1::1")
    assert peer("192.0.2.7") == peer("::ffff:192.0.2.7") != peer("192.0.2.8")


async def test_behind_a_named_proxy_each_client_is_counted_by_itself() -> None:
    bounds: Bounds = patient(connections_per_peer_max=2)
    connections = Connections(bounds=bounds, proxies=Proxies(networks=[ip_network("127.0.0.1")]))
    async with site(PATIENT) as here, serve_gateway(here.app(), connections) as here.url:
        waiting = [await here.connect() for _ in range(2)]
        for peer in waiting:
            await peer.send(get("/wait", "X-Forwarded-For: 192.0.2.7"))
            await here.requested.wait()
            here.requested.clear()
        one, other = await here.connect(), await here.connect()
        await one.send(get("/now", "X-Forwarded-For: 192.0.2.7"))
        await other.send(get("/now", "X-Forwarded-For: 192.0.2.8"))
        assert ((await one.answer()).status, (await other.answer()).status) == (503, 200)
        assert here.clients == ["192.0.2.8"]
        here.go_on.set()
        assert [(await peer.answer()).status for peer in waiting] == [200, 200]


async def test_the_application_receives_the_clients_address() -> None:
    async with site() as here:
        peer = await here.connect()
        await peer.send(get("/now", "X-Forwarded-For: 192.0.2.7"))
        await peer.answer()
        connections = Connections(proxies=Proxies(networks=[ip_network("127.0.0.1")]))
        async with serve_gateway(here.app(), connections) as here.url:
            peer = await here.connect()
            for header in ("X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: junk", "X-Other: none"):
                await peer.send(get("/now", header))
                await peer.answer()
        assert here.clients == ["127.0.0.1", "192.0.2.7", None, None]
