# SPDX-License-Identifier: Apache-2.0
"""
Connections with TLS: bounded from their first byte, and otherwise like those without.

Deadlines are short here, and nothing is measured: a test that waits for an end that does not come fails by its own.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from lakeproof.tls_settings import server_context
from testkit.gateway.connections import NEVER_S, SOON_S, Peer, feed, get, patient, post, site, until
from testkit.gateway.key_updates import CIPHER, Sender, client_secret
from testkit.servers.certificates import Certificate, make_certificate

JUNK = {
    "zeros": b"\0" * 100,
    "a record of another kind": b"\x17\x03\x03\x00\x05hello",
    "a hello of nonsense": b"\x16\x03\x01\x00\x05hello",
    "a hello of TLS 1.0": b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x01"
    + b"r" * 32
    + b"\x00\x00\x04\x00\x2f\x00\xff\x01\x00",
    "SSH": b"\nSSH-2.0-OpenSSH_9\r\n",
    "a record that is too long": b"\x16\x03\x01\xff\xff" + b"x" * 20_000,
    "HTTP in small letters": b"get / http/1.1\r\n\r\n",
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    names = [x509.DNSName("gateway.example"), x509.IPAddress(ip_address("127.0.0.1"))]
    return make_certificate(tmp_path_factory.mktemp("tls") / "server.pem", "gateway.example", names=names)


@pytest.fixture
def served(certificate: Certificate) -> ssl.SSLContext:
    context = server_context()
    context.load_cert_chain(certificate.file)
    return context


@pytest.fixture
def trusting(certificate: Certificate) -> ssl.SSLContext:
    return trust(certificate)


def trust(certificate: Certificate) -> ssl.SSLContext:
    """A client's side that accepts this certificate, for whatever host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificate.file)
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


class Client:
    """A client's side of TLS whose bytes the test sends by hand."""

    def __init__(self, peer: Peer, context: ssl.SSLContext) -> None:
        self.peer = peer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="x")

    async def take(self) -> None:
        """Hand what has come to OpenSSL."""
        data = await self.peer.reader.read(65_536)
        assert data, "the connection was closed"
        self._incoming.write(data)

    def pending(self) -> bytes:
        """What OpenSSL wants to be sent."""
        return self._outgoing.read()

    async def agree(self) -> bytes:
        """Do the handshake; return its last bytes, which are not sent yet."""
        while True:
            try:
                self.tls.do_handshake()
                return self.pending()
            except ssl.SSLWantReadError:
                await self.peer.send(self.pending())
                await self.take()

    async def read(self) -> bytes:
        """Return content that has come."""
        while True:
            try:
                return self.tls.read(65_536)
            except ssl.SSLWantReadError:
                await self.take()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_are_answered_over_tls_1_2_and_1_3(
    version: ssl.TLSVersion, served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    trusting.minimum_version = trusting.maximum_version = version
    async with site(tls=lambda: served) as here:
        peer = await here.connect(tls=trusting)
        tls = peer.writer.get_extra_info("ssl_object")
        assert (tls.version(), tls.selected_alpn_protocol()) == (version.name.replace("_", "."), "http/1.1")
        for _ in range(3):
            await peer.send(get("/now"))
            assert (await peer.answer()).body == b"now"
        await peer.send(post("/echo", "Content-Length: 3000000") + b"x" * 1_000_000)
        await peer.send(b"x" * 2_000_000)
        assert (await peer.answer()).status == 200
        assert [len(body) for body in here.bodies] == [3_000_000]


async def test_tls_1_1_is_refused(served: ssl.SSLContext, certificate: Certificate) -> None:
    old = trust(certificate)
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    async with site(tls=lambda: served) as here:
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            await here.connect(tls=old)
        await until(lambda: here.connections.count == 0)


async def test_a_client_that_does_not_trust_the_certificate_is_forgotten(
    served: ssl.SSLContext, tmp_path: Path
) -> None:
    async with site(tls=lambda: served) as here:
        with pytest.raises(ssl.SSLCertVerificationError):
            await here.connect(tls=trust(make_certificate(tmp_path / "other.pem", "127.0.0.1")))
        await until(lambda: here.connections.count == 0)


async def test_a_large_answer_arrives_whole(served: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    async with site(tls=lambda: served) as here, httpx.AsyncClient(verify=trusting, base_url=here.url) as client:
        assert (await client.get("/large")).content == b"x" * 32_000_000
        assert (await client.get("/stream")).text == "abc"


async def test_curl_is_answered_and_refused_without_the_certificate(
    served: ssl.SSLContext, certificate: Certificate
) -> None:
    async with site(tls=lambda: served) as here:

        async def curl(*arguments: str) -> tuple[int | None, bytes]:
            process = await asyncio.create_subprocess_exec(
                "curl", "--silent", "--http1.1", *arguments, f"{here.url}/now", stdout=asyncio.subprocess.PIPE
            )
            out, _ = await process.communicate()
            return process.returncode, out

        trusted = ("--cacert", str(certificate.file))
        assert await curl(*trusted) == (0, b"now")
        assert (await curl())[0] == 60, "curl: the certificate cannot be verified"
        assert (await curl(*trusted, "--tlsv1.0", "--tls-max", "1.1"))[0] == 35, "curl: no handshake"


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with site(tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        finished = await client.agree()
        client.tls.write(get("/now"))
        await client.peer.send(finished + client.pending())
        assert (await client.read()).endswith(b"now")


async def test_a_handshake_that_drips_is_complete_in_time_and_else_ended(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with site(tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        await client.peer.drip(client.pending(), every_s=0)
        await client.take()
        await client.peer.send(await client.agree())
    async with site(patient(head_timeout_s=SOON_S), tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        dripping = asyncio.create_task(client.peer.drip(client.pending()))
        assert await client.peer.rest() == b""
        dripping.cancel()
        await until(lambda: here.connections.count == 0)


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
async def test_junk_instead_of_a_handshake_ends_the_connection(junk: bytes, served: ssl.SSLContext) -> None:
    async with site(tls=lambda: served) as here:
        peer = await here.connect()
        await peer.send(junk)
        assert (await peer.rest())[:1] in {b"", b"\x15"}, "an alert, or nothing"
        await until(lambda: here.connections.count == 0)
        assert here.clients == []


async def test_junk_behind_the_handshake_ends_the_connection(served: ssl.SSLContext, trusting: ssl.SSLContext) -> None:
    async with site(tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        await client.peer.send(await client.agree() + b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await client.peer.rest()
        await until(lambda: here.connections.count == 0)


async def test_key_updates_are_followed(served: ssl.SSLContext, trusting: ssl.SSLContext, tmp_path: Path) -> None:
    trusting.keylog_filename = str(tmp_path / "secrets")
    async with site(tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        sender = await updating(client, tmp_path / "secrets")
        reading = asyncio.create_task(client.peer.rest())
        for _ in range(60):
            await client.peer.send(b"".join(sender.key_update() for _ in range(1_000)))
        await client.peer.send(sender.content(get("/now", "Connection: close")))
        assert len(await reading) > 60_000 * 27, "OpenSSL answers each of them"
        assert here.clients == ["127.0.0.1"]


async def test_a_client_that_does_not_read_the_answers_to_its_key_updates_is_disconnected(
    served: ssl.SSLContext, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    trusting.keylog_filename = str(tmp_path / "secrets")
    async with site(tls=lambda: served) as here:
        url = httpx.URL(here.url)
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        await asyncio.get_running_loop().run_in_executor(None, plain.connect, (url.host, url.port))
        client = Client(Peer(*await asyncio.open_connection(sock=plain, limit=1)), trusting)
        sender = await updating(client, tmp_path / "secrets")

        async def flood() -> None:
            while True:
                await client.peer.send(b"".join(sender.key_update() for _ in range(1_000)))

        with pytest.raises(ConnectionError):
            await flood()
        await until(lambda: here.connections.count == 0)
        client.peer.writer.close()


async def updating(client: Client, secrets: Path) -> Sender:
    """Do the handshake; return what can update keys behind it."""
    await client.peer.send(await client.agree())
    assert (client.tls.cipher() or ("",))[0] == CIPHER
    return Sender(client_secret(secrets))


async def test_a_peer_that_breaks_tls_and_does_not_read_is_disconnected(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    bounds = patient(stall_timeout_s=SOON_S, rate_min_bytes_per_s=1 << 30)
    for ending in (b"\x17\x03\x03\x00\x20" + b"x" * 32, None):
        async with site(bounds, tls=lambda: served) as here:
            client = Client(await here.connect(), trusting)
            await client.peer.send(await client.agree())
            client.tls.write(get("/large"))
            await client.peer.send(client.pending())
            await until(lambda: here.connections.count == 1)
            if ending is None:
                with pytest.raises(ssl.SSLWantReadError):
                    client.tls.unwrap()
            await client.peer.send(ending or client.pending())
            await until(lambda: here.connections.count == 0)


async def test_plain_http_is_told_to_use_tls(served: ssl.SSLContext) -> None:
    async with site(tls=lambda: served) as here:
        for request in (get("/now"), post("/echo", "Content-Length: 9") + b"x" * 9, b"HEAD / HTTP/1.1\r\n\r\n"):
            peer = await here.connect()
            await peer.send(request)
            answer = await peer.answer()
            assert (answer.status, answer.closes) == (400, True)
            assert "write https://" in json.loads(answer.body)["error"]["message"]
            assert await peer.rest() == b""
            await peer.close()
        await until(lambda: here.connections.count == 0)
        assert here.clients == []
        assert here.bodies == []


async def test_unfinished_handshakes_are_counted_and_ended_by_their_deadline(served: ssl.SSLContext) -> None:
    async with site(patient(head_timeout_s=1.0), tls=lambda: served) as here:
        silent = [await here.connect() for _ in range(10)]
        await until(lambda: here.connections.count == 10)
        for peer in silent:
            assert await peer.rest() == b""
        await until(lambda: here.connections.count == 0)


async def test_a_thousand_unfinished_handshakes_keep_nobody_else_out(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    bounds = patient(connections_max=64, connections_per_peer_max=32)
    async with site(bounds, tls=lambda: served) as here:
        other = await here.connect(local="127.0.0.3", tls=trusting)
        for number in range(1_000):
            peer = await here.connect(local="127.0.0.2")
            if number % 2:
                await peer.send(b"\x16\x03\x01")
            assert here.connections.count <= 33
        await until(lambda: here.connections.count == 33)
        await other.send(get("/now"))
        assert (await other.answer()).body == b"now"
        newest = await here.connect(local="127.0.0.4", tls=trusting)
        await newest.send(get("/now"))
        assert (await newest.answer()).body == b"now"
        same = await here.connect(local="127.0.0.2", tls=trusting)
        await same.send(get("/now"))
        assert (await same.answer()).body == b"now"


async def test_a_connection_beyond_the_limit_is_closed_before_its_handshake(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with site(patient(connections_max=1, connections_per_peer_max=1), tls=lambda: served) as here:
        busy = await here.connect(tls=trusting)
        await busy.send(get("/wait"))
        await here.requested.wait()
        with pytest.raises(OSError):  # noqa: PT011 - a reset or an end, of Python's or of OpenSSL's
            await here.connect(tls=trusting)
        here.go_on.set()
        assert (await busy.answer()).body == b"waited"
        await busy.close()
        await until(lambda: here.connections.count == 0)
        again = await here.connect(tls=trusting)
        await again.send(get("/now"))
        assert (await again.answer()).body == b"now"


async def test_a_client_that_does_not_read_the_answer_is_disconnected(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    bounds = patient(stall_timeout_s=SOON_S, rate_min_bytes_per_s=1 << 30)
    async with site(bounds, tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        await client.peer.send(await client.agree())
        client.tls.write(get("/large"))
        await client.peer.send(client.pending())
        await until(lambda: here.connections.count == 1)
        await until(lambda: here.connections.count == 0)


async def test_a_head_and_an_idle_connection_have_their_deadlines(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with site(patient(head_timeout_s=1.0), tls=lambda: served) as here:
        peer = await here.connect(tls=trusting)
        await peer.send(b"GET / HTTP/1.1\r\n")
        assert (await peer.answer()).status == 408
        assert await peer.rest() == b""
    async with site(patient(idle_timeout_s=SOON_S), tls=lambda: served) as here:
        assert await (await here.connect(tls=trusting)).rest() == b""


async def test_a_body_that_is_refused_early_is_drained_and_its_client_sees_the_answer(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with site(patient(drain_bytes_max=1 << 20), tls=lambda: served) as here:
        peer = await here.connect(tls=trusting)
        await peer.send(post("/now", "Content-Length: 1000000000"))
        sending = asyncio.create_task(feed(peer, b"x" * 65_536))
        answer = await peer.answer()
        assert (answer.status, answer.closes) == (200, True)
        await sending
        await until(lambda: here.connections.count == 0)


async def test_the_answer_to_a_client_that_has_said_its_end_is_still_sent(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with site(tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        await client.peer.send(await client.agree())
        client.tls.write(get("/wait"))
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        await client.peer.send(client.pending())
        client.peer.writer.write_eof()
        await here.requested.wait()
        here.go_on.set()
        answer = b""
        while not answer.endswith(b"waited"):
            answer += await client.read()
        await until(lambda: here.connections.count == 0)


async def test_the_end_is_said_to_the_client_so_that_no_answer_can_be_cut_short(
    served: ssl.SSLContext, trusting: ssl.SSLContext
) -> None:
    async with site(tls=lambda: served) as here:
        client = Client(await here.connect(), trusting)
        await client.peer.send(await client.agree())
        client.tls.write(get("/now", "Connection: close"))
        await client.peer.send(client.pending())
        assert (await client.read()).endswith(b"now")
        assert await client.read() == b""  # `close_notify`: without it, OpenSSL reports an error


async def test_a_shutdown_ends_handshakes_at_once(served: ssl.SSLContext) -> None:
    async with asyncio.timeout(20):
        async with site(patient(head_timeout_s=NEVER_S), tls=lambda: served) as here:
            peer = await here.connect()
            await until(lambda: here.connections.count == 1)
        assert await peer.rest() == b""


async def test_new_connections_get_the_context_that_is_current(
    served: ssl.SSLContext, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    newer = make_certificate(tmp_path / "newer.pem", "127.0.0.1")
    context = server_context()
    context.load_cert_chain(newer.file)
    current = [served]

    def now() -> ssl.SSLContext:
        return current[0]

    async with site(tls=now) as here:
        old = await here.connect(tls=trusting)
        current[0] = context
        with pytest.raises(ssl.SSLCertVerificationError):
            await here.connect(tls=trusting)
        new = await here.connect(tls=trust(newer))
        for peer in (old, new):
            await peer.send(get("/now"))
            assert (await peer.answer()).body == b"now"
