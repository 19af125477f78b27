# SPDX-License-Identifier: Apache-2.0
"""
Client certificates and authorities of a tenant's own, at an upstream that speaks TLS and demands a certificate.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
import uvicorn

from gateway.catalogs.catalog import Outgoing
from gateway.catalogs.client_tls import client_context
from gateway.catalogs.connections import Call
from gateway.catalogs.onward import Onward
from gateway.catalogs.replies import Answered, NeverSent, Unanswered
from gateway.catalogs.rest import RestCatalog
from gateway.catalogs.upstream import exchange, open_client
from gateway.catalogs.upstreams import Upstreams
from gateway.errors import UnavailableError, UpstreamCredentialsError
from gateway.identifiers import Target
from gateway.mutations import Mutation, Operation
from projections.errors import SecretMissingError
from testkit.servers.certificates import Certificate, make_certificate
from testkit.servers.loopback import LOOPBACK, serve_config
from testkit.servers.oauth import TokenServer
from testkit.servers.script import Script

TENANT: Final = UUID(int=7)
OTHER_TENANT: Final = UUID(int=8)
HOST: Final = "catalog.example"
SALES: Final = Target(alias="beyond", namespace=("sales",))
PATH: Final = "/v1/namespaces/sales"
DROP: Final = Outgoing(mutation=Mutation(operation=Operation.NAMESPACE_DROP, target=SALES), body=b"")


@dataclass(slots=True)
class Kept:
    """The secrets of each tenant."""

    secrets: dict[tuple[UUID, str], str] = field(default_factory=dict)

    def read(self, tenant: UUID, secret: str) -> str:
        if (tenant, secret) not in self.secrets:
            raise SecretMissingError("none")
        return self.secrets[tenant, secret]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """`server` is the upstream's; `root` is known to it, and vouches for `client` through another one between them."""

    server: Certificate
    root: Certificate
    client: Certificate
    expired: Certificate
    stranger: Certificate

    def context(self) -> ssl.SSLContext:
        """Return the side of a server that demands a certificate which `root` vouches for."""
        context = self.server.context([])
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.root.file)
        return context


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("tls")
    root = make_certificate(folder / "root.pem", "root.example")
    between = make_certificate(folder / "between.pem", "between.example", issuer=root)
    return Certificates(
        server=make_certificate(folder / "server.pem", HOST),
        root=root,
        client=make_certificate(folder / "client.pem", "gateway.example", issuer=between),
        expired=make_certificate(folder / "expired.pem", "g.example", issuer=root, ends_in=-timedelta(days=1)),
        stranger=make_certificate(folder / "stranger.pem", "stranger.example"),
    )


class _Config(uvicorn.Config):
    """uvicorn's, with a context that was made here: its own arguments know no callback and no chain in one file."""

    context: ssl.SSLContext

    def load(self) -> None:
        super().load()
        self.ssl = self.context


@dataclass(slots=True, kw_only=True)
class Beyond:
    """An upstream over TLS, and what a gateway needs to reach it."""

    url: str
    script: Script
    kept: Kept
    upstreams: Upstreams

    def catalog(self, options: Mapping[str, str], *, tenant: UUID = TENANT) -> RestCatalog:
        """Return a catalog of `tenant`, whose secrets are named as their options are."""
        upstream = self.upstreams.upstream(tenant, "beyond", {"uri": self.url, **options})
        return RestCatalog(upstream=upstream, onward=Onward())

    def keep(self, **secrets: str) -> None:
        self.kept.secrets |= {(TENANT, name): value for name, value in secrets.items()}


CERTIFICATE: Final = {"client-certificate": "secret:mine"}
AUTHORITY: Final = {"certificate-authority": "secret:theirs"}
BOTH: Final = CERTIFICATE | AUTHORITY
NOTHING: Final[Mapping[str, str]] = {}


@asynccontextmanager
async def beyond(context: ssl.SSLContext, server: TokenServer | None = None) -> AsyncIterator[Beyond]:
    script, kept = Script(answers={"/v1/config": (200, b"{}"), PATH: (200, b'{"properties":{}}')}), Kept()
    app = script.app()
    config = _Config(app if server is None else server.app(app), log_config=None, access_log=False, lifespan="off")
    config.context = context
    async with serve_config(config) as url, open_client(LOOPBACK, resolve=lambda _host, _port: ["127.0.0.1"]) as client:
        port = url.rpartition(":")[2]
        upstreams = Upstreams(client=client, secrets=kept, timeout_s=5)
        yield Beyond(url=f"https://{HOST}:{port}", script=script, kept=kept, upstreams=upstreams)


async def test_a_client_certificate_is_shown_with_its_chain(made: Certificates) -> None:
    async with beyond(made.context()) as far:
        far.keep(mine=made.client.pem, theirs=made.server.pem)
        catalog = far.catalog(BOTH)
        assert (await catalog.load(SALES)).namespace_exists
        reply = await catalog.forward(DROP)
        assert isinstance(reply, Answered)
        assert len(far.upstreams.client._idle) == 1, "one connection served all"
    assert far.script.paths() == ["/v1/config", PATH, PATH]


@pytest.mark.parametrize("shown", ["none", "expired", "stranger", "without its chain"])
async def test_without_a_certificate_that_the_upstream_knows_nothing_is_asked(made: Certificates, shown: str) -> None:
    leaf, *_ = made.client.pem.split("-----END CERTIFICATE-----\n")
    key = made.client.pem[made.client.pem.index("-----BEGIN PRIVATE KEY") :]
    pem = {
        "none": "",
        "expired": made.expired.pem,
        "stranger": made.stranger.pem,
        "without its chain": f"{leaf}-----END CERTIFICATE-----\n{key}",
    }[shown]
    async with beyond(made.context()) as far:
        far.keep(mine=pem, theirs=made.server.pem)
        options = AUTHORITY if shown == "none" else BOTH
        catalog = far.catalog(options)
        with pytest.raises(UnavailableError, match="the upstream of catalog beyond does not answer as it should") as no:
            await catalog.load(SALES)
        assert HOST not in str(no.value)
        assert "PRIVATE" not in str(no.value)
        assert isinstance(await catalog.forward(DROP), NeverSent)
    assert not far.script.seen


async def test_why_a_server_refuses_a_certificate_is_said_if_it_says_so(made: Certificates) -> None:
    """asyncio's servers do not; the one here is OpenSSL's, which sends its alert after the request has left."""

    def refuse(listener: socket.socket) -> None:
        near, _ = listener.accept()
        with made.context().wrap_socket(near, server_side=True, do_handshake_on_connect=False) as server:
            with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
                server.do_handshake()
            with suppress(OSError):
                while socket.socket.recv(server, 4_096):
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(refuse, listener))
        async with open_client(LOOPBACK, resolve=lambda _host, _port: ["127.0.0.1"]) as client:
            tls = client_context(certificate=None, authority=made.server.pem)
            url = f"https://{HOST}:{listener.getsockname()[1]}/"
            reply = await exchange(client, Call(method="GET", url=url, headers={}, tls=tls), timeout_s=5)
        await refusing
    assert isinstance(reply, Unanswered)
    assert reply.cause.endswith("(TLSV13_ALERT_CERTIFICATE_REQUIRED)")


async def test_an_upstream_that_another_authority_vouches_for_is_not_believed(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beyond(made.server.context([])) as far:
        far.keep(theirs=made.stranger.pem)
        # Even if the process itself trusts it: the option replaces what that trusts.
        monkeypatch.setenv("SSL_CERT_FILE", str(made.server.file))
        for _ in range(2):
            with pytest.raises(UnavailableError, match="certificate verify failed: ") as refused:
                await far.catalog(AUTHORITY).load(SALES)
            assert HOST not in str(refused.value)
        assert not far.script.seen
        far.keep(theirs=made.stranger.pem + made.server.pem)
        assert (await far.catalog(AUTHORITY).load(SALES)).namespace_exists


async def test_the_upstreams_name_is_verified_with_every_authority(made: Certificates, tmp_path: Path) -> None:
    other = make_certificate(tmp_path / "other.pem", "other.example")
    async with beyond(other.context([])) as far:
        far.keep(theirs=other.pem)
        with pytest.raises(UnavailableError, match="certificate verify failed: Hostname mismatch") as refused:
            await far.catalog(AUTHORITY).load(SALES)
        assert HOST not in str(refused.value)
    assert not far.script.seen


async def test_a_certificate_alone_leaves_what_the_process_trusts(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with beyond(made.context()) as far:
        far.keep(mine=made.client.pem)
        with pytest.raises(UnavailableError):
            await far.catalog(CERTIFICATE).load(SALES)
        monkeypatch.setenv("SSL_CERT_FILE", str(made.server.file))
        assert (await far.catalog(CERTIFICATE).load(SALES)).namespace_exists


async def test_a_connection_of_one_tenant_never_serves_another(made: Certificates) -> None:
    async with beyond(made.context()) as far:
        far.keep(mine=made.client.pem, theirs=made.server.pem)
        await far.catalog(BOTH).load(SALES)
        seen = len(far.script.seen)
        far.kept.secrets[OTHER_TENANT, "theirs"] = made.server.pem
        for options in (AUTHORITY, NOTHING):
            with pytest.raises(UnavailableError):
                await far.catalog(options, tenant=OTHER_TENANT).load(SALES)
        assert len(far.script.seen) == seen
        assert len(far.upstreams.client._idle) == 1


async def test_a_certificate_that_was_replaced_is_shown_at_once(made: Certificates) -> None:
    async with beyond(made.context()) as far:
        far.keep(mine=made.expired.pem, theirs=made.server.pem)
        catalog = far.catalog(BOTH)
        with pytest.raises(UnavailableError):
            await catalog.load(SALES)
        far.keep(mine=made.client.pem)
        assert (await catalog.load(SALES)).namespace_exists
        far.keep(mine=made.stranger.pem)
        reply = await catalog.forward(DROP)
        assert isinstance(reply, NeverSent | Unanswered), "the connection that was opened before is not used"


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("hunter2", "right"),
        ("no key", "right"),
        ("another key", "right"),
        ("right", "hunter2"),
        ("right", "hünter2"),
        ("right", "no certificate"),
    ],
)
async def test_certificates_that_are_none_are_refused_before_anything_is_sent(
    made: Certificates, mine: str, theirs: str
) -> None:
    pem = made.client.pem
    key = pem.index("-----BEGIN PRIVATE KEY")
    forms = {"no key": pem[:key], "another key": pem[:key] + made.root.pem, "no certificate": pem[key:]}
    async with beyond(made.context()) as far:
        far.keep(
            mine=pem if mine == "right" else forms.get(mine, mine),
            theirs=made.server.pem if theirs == "right" else forms.get(theirs, theirs),
        )
        catalog = far.catalog(BOTH)
        with pytest.raises(UpstreamCredentialsError, match="cannot be used: expected PEM") as refused:
            await catalog.load(SALES)
        assert "nter2" not in str(refused.value)
        assert isinstance(await catalog.forward(DROP), NeverSent)
        assert not far.script.seen


async def test_the_token_server_is_shown_the_same_certificate(made: Certificates) -> None:
    server = TokenServer()
    async with beyond(made.context(), server) as far:
        far.keep(mine=made.client.pem, theirs=made.server.pem, login=server.credential)
        catalog = far.catalog({**BOTH, "credential": "secret:login"})
        assert (await catalog.load(SALES)).namespace_exists
    assert server.issued
