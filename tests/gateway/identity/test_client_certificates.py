# SPDX-License-Identifier: Apache-2.0
"""
Callers with client certificates: whom TLS lets in, who they are in the log, and what is refused.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from gateway.admin.application import OPERATOR
from gateway.identity import Principal, PrincipalSource
from gateway.identity.certificate_logins import Certified
from gateway.identity.client_certificates import ISSUER, San, SanKind, parse_clients, read_certificate
from gateway.identity.principal import CertificateRefusedError
from lakeproof.erasing import open_eraser
from lakeproof.errors import SettingsError
from lakeproof.inspecting.processes import ask_readiness
from lakeproof.provision import Provisioned
from lakeproof.services import now
from lakeproof.serving.in_process import serving
from lakeproof.streaming import gateway_client
from lakeproof.tenants import found_tenant
from lakeproof.tls_settings import gateway_trust
from ledger.erasing.erase import ErasureRequest
from ledger.errors import FormatError
from ledger.format.events import ErasureReason
from ledger.store.read import find_log
from testkit.gateway.certified_gateway import (
    ETL,
    EXPIRED,
    NOT_YET,
    REPORTS,
    Authority,
    CertifiedGateway,
    certified_gateway,
    clients_file,
)
from testkit.gateway.log_contents import read_stored
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, error_of
from testkit.gateway.token_gateway import unhurried
from testkit.servers.certificates import make_certificate
from testkit.servers.gateways import Gateway, start_services

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLOSED = (ssl.SSLError, httpx.ConnectError, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
"""How httpx says that TLS has ended; with TLS 1.3 a server verifies when the client thinks that all is well."""
URI, DNS = x509.UniformResourceIdentifier, x509.DNSName
REFUSED: dict[str, tuple[list[x509.GeneralName], str]] = {
    "no alternative name": ([], "a URI or a DNS name, found neither"),
    "a mail address alone": ([x509.RFC822Name("ada@acme.example")], "a URI or a DNS name, found neither"),
    "several URIs": ([URI(ETL), URI("spiffe://acme.example/other")], "one URI, found 2"),
    "one URI twice": ([URI(ETL), URI(ETL)], "one URI, found 2"),
    "a URI that is not mapped": ([URI("spiffe://acme.example/other")], "whose URI the operator has named"),
    "a URI in other letters": ([URI(ETL.upper())], "whose URI the operator has named"),
    "a longer URI": ([URI(f"{ETL}/more")], "whose URI the operator has named"),
    "a URI with a slash": ([URI(f"{ETL}/")], "whose URI the operator has named"),
    "a URI that is not mapped before a DNS name that is": (
        [DNS(REPORTS), URI("spiffe://acme.example/other")],
        "whose URI the operator has named",
    ),
    "a DNS name that is not mapped": ([DNS("other.acme.example")], "whose DNS name the operator has named"),
    "a mapped DNS name as second": ([DNS("other.acme.example"), DNS(REPORTS)], "whose DNS name the operator has named"),
    "a DNS name of the same text as a URI": ([DNS(ETL)], "odd characters"),
    "a wildcard": ([DNS("*.acme.example")], "odd characters"),
    "a DNS name with a NUL": ([DNS(f"{REPORTS}\0.evil.example")], "odd characters"),
    "a DNS name with a line feed": ([DNS(f"{REPORTS}\n")], "odd characters"),
    "a DNS name with a dot at its end": ([DNS(f"{REPORTS}.")], "odd characters"),
    "an empty DNS name": ([DNS("")], "odd characters"),
    "a DNS name that is too long": ([DNS(".".join(["a" * 60] * 5))], "odd characters"),
    "a URI with a space": ([URI(f"{ETL} ")], "odd characters"),
    "a URI with a NUL": ([URI(f"{ETL}\0")], "odd characters"),
    "a URI without a scheme": ([URI("acme.example/etl")], "odd characters"),
    "an empty URI": ([URI("")], "odd characters"),
    "a long URI": ([URI("spiffe://" + "a" * 10_000)], "odd characters"),
}


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest_asyncio.fixture(loop_scope="module")
async def accepting(shared_gateway: Gateway, authority: Authority, tmp_path: Path) -> AsyncIterator[CertifiedGateway]:
    async with certified_gateway(shared_gateway, tmp_path, roots=authority.root.pem) as accepting:
        yield accepting


@pytest.fixture(scope="module")
def module_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_accepting(
    module_gateway: Gateway, module_authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[CertifiedGateway]:
    """A gateway that tests share all of whose certificates are refused."""
    folder = tmp_path_factory.mktemp("served")
    async with certified_gateway(module_gateway, folder, roots=module_authority.root.pem) as accepting:
        yield accepting


async def get(accepting: CertifiedGateway, certificate: Path | None, *, key: str | None = None) -> httpx.Response:
    async with accepting.client(certificate, key=key) as http:
        return await http.get(NAMESPACES)


async def permit(accepting: CertifiedGateway, expression: str = "'data-eng' in roles") -> None:
    await accepting.gateway.services.gateway.admin.create_access_rule(
        accepting.gateway.acme.log_id, OPERATOR, rule_id="engineers", effect="permit", expression=expression
    )


def der(file: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(file.read_text().partition("-----BEGIN PRIVATE")[0].strip())


async def who_is(accepting: CertifiedGateway, file: Path) -> Principal:
    return await accepting.authenticator.authenticate(Certified(der(file), None))


# Who a certificate stands for


async def test_a_certificate_stands_for_its_uri_in_the_tenant_of_the_client(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    file = authority.client("etl")
    principal = await who_is(accepting, file)
    acme = accepting.gateway.acme
    assert principal == Principal(
        tenant=acme.tenant,
        log_id=acme.log_id,
        actor=principal.actor,
        issuer=ISSUER,
        sub=ETL,
        roles=("data-eng",),
        source=PrincipalSource.MTLS,
        key_id=None,
        ends_at=x509.load_der_x509_certificate(der(file)).not_valid_after_utc,
    )
    assert principal.payload()["source"] == "mtls"
    again = await who_is(accepting, authority.client("renewed", ends_in=timedelta(days=9)))
    assert again.actor == principal.actor
    reports = await who_is(accepting, authority.client("reports", uri=None, names=[DNS(REPORTS.upper())]))
    assert (reports.sub, reports.roles, reports.actor == principal.actor) == (REPORTS, (), False)


async def test_a_uri_comes_before_dns_names_and_the_first_of_those_counts(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    both = authority.client("both", uri=None, names=[DNS("other.example"), URI(ETL), DNS(REPORTS)])
    assert (await who_is(accepting, both)).sub == ETL
    first = authority.client("first", uri=None, names=[DNS(REPORTS), DNS("other.example")])
    assert (await who_is(accepting, first)).sub == REPORTS


async def test_what_a_client_with_a_certificate_commits_is_recorded_as_mtls(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    await permit(accepting)
    file = authority.client("etl")
    async with accepting.client(file) as http:
        assert (await http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
        assert (await http.post(TABLES, json=CREATE)).status_code == 200
        assert (await http.get("/v1/config?warehouse=lake")).status_code == 200
        assert (await http.get("/v1/policies")).status_code == 200
        assert (await http.get(ORDERS)).status_code == 200
        update = {"action": "set-properties", "updates": {"a": "b"}}
        assert (await http.post(ORDERS, json={"requirements": [], "updates": [update]})).status_code == 200
    caller = await who_is(accepting, file)
    stored = await read_stored(accepting.gateway.services, accepting.gateway.acme.log_id)
    decided = [one for one in stored if one.entry.type == "commit.decided"]
    assert len(decided) == 3
    for one in decided:
        assert (one.entry.actor, one.entry.data["principal_source"]) == (caller.actor, "mtls")
        assert json.loads(one.parts["principal"]) == caller.payload()


async def test_a_client_without_a_role_is_known_and_permitted_nothing(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    await permit(accepting)
    file = authority.client("reports", uri=None, names=[DNS(REPORTS)])
    assert (await get(accepting, file)).status_code == 403
    last = (await read_stored(accepting.gateway.services, accepting.gateway.acme.log_id))[-1].entry
    assert (last.type, last.actor) == ("access.refused", (await who_is(accepting, file)).actor)


async def test_curl_is_known_by_its_certificate(accepting: CertifiedGateway, authority: Authority) -> None:
    await permit(accepting)
    file = str(authority.client("etl"))
    for version in ("1.2", "1.3"):
        command = ["curl", "--silent", "--cacert", str(accepting.served.file), "--cert", file, "--key", file]
        command += [f"--tlsv{version}", "--tls-max", version, "--write-out", "%{http_code}", accepting.url + NAMESPACES]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert out.endswith(b"200"), out


# Certificates and headers


async def test_who_shows_no_certificate_uses_a_key(accepting: CertifiedGateway) -> None:
    assert (await get(accepting, None, key=accepting.gateway.acme.key.secret)).status_code == 200
    refused = await get(accepting, None)
    assert refused.status_code == 401
    assert "expected an Authorization header" in error_of(refused)["message"]


async def test_a_certificate_that_stands_for_a_client_comes_before_a_header(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    key = accepting.gateway.acme.key.secret
    reports = authority.client("reports", uri=None, names=[DNS(REPORTS)])
    assert (await get(accepting, reports, key=key)).status_code == 403
    assert (await get(accepting, reports, key="nonsense")).status_code == 403
    stored = await read_stored(accepting.gateway.services, accepting.gateway.acme.log_id)
    assert stored[-1].entry.actor == (await who_is(accepting, reports)).actor


async def test_a_certificate_that_stands_for_nobody_takes_nothing_from_a_header(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    key = accepting.gateway.acme.key.secret
    for names in ([URI("spiffe://acme.example/other")], [DNS("*.acme.example")], []):
        file = authority.client("other", uri=None, names=names)
        assert (await get(accepting, file, key=key)).status_code == 200
        assert (await get(accepting, file, key="nonsense")).status_code == 401


async def test_a_header_cannot_pass_for_a_certificate(accepting: CertifiedGateway, authority: Authority) -> None:
    pem = authority.client("etl").read_text()
    async with accepting.client(None) as http:
        for name in ("X-Forwarded-Client-Cert", "X-SSL-Client-Cert", "Client-Cert", "lakeproof.client_certificate"):
            answer = await http.get(NAMESPACES, headers={name: " ".join(pem.split())[:8_000]})
            assert answer.status_code == 401


async def test_the_login_for_access_tokens_does_not_look_at_the_certificate(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    async with accepting.client(authority.client("etl")) as http:
        refused = await http.post("/v1/oauth/tokens", data={"grant_type": "client_credentials"})
        assert refused.status_code in {400, 401}
        assert "access_token" not in refused.text


# Certificates that are refused


@pytest.mark.parametrize(("names", "message"), REFUSED.values(), ids=REFUSED)
async def test_a_certificate_that_names_nobody_here_is_401_with_one_sentence(
    names: list[x509.GeneralName], message: str, module_accepting: CertifiedGateway, module_authority: Authority
) -> None:
    answer = await get(module_accepting, module_authority.client("odd", uri=None, names=names))
    assert answer.status_code == 401
    said = error_of(answer)["message"]
    assert message in said
    assert said.count("\n") == 0
    assert said.startswith("expected a client certificate")


async def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    plain = make_certificate(tmp_path / "c.pem", "x", names=[URI("spiffe://acme.example/ETL1")])
    broken = der(plain.file).replace(b"/ETL1", b"/ETL\xff")
    with pytest.raises(CertificateRefusedError, match="well-formed"):
        read_certificate(broken)
    for junk in (b"", b"\x30\x00", b"junk", der(plain.file)[:-1]):
        with pytest.raises(CertificateRefusedError, match="well-formed"):
            read_certificate(junk)


async def test_certificates_that_tls_cannot_verify_end_the_connection(
    accepting: CertifiedGateway, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "stranger")
    leaf = make_certificate(tmp_path / "leaf.pem", "leaf", issuer=authority.root, may_sign=False)
    (tmp_path / "impostor").mkdir()
    impostor = Authority(tmp_path / "impostor")
    files = {
        "of another authority": other.client("a"),
        "signed by itself": make_certificate(tmp_path / "b.pem", "b", names=[URI(ETL)]).file,
        "expired": authority.client("c", **EXPIRED),
        "not yet valid": authority.client("d", **NOT_YET),
        "signed by a certificate that may not sign": authority.client("e", issuer=leaf),
        "of an authority that only has the name": impostor.client("f"),
        "for servers": authority.client("g", usages=[ExtendedKeyUsageOID.SERVER_AUTH]),
    }
    for what, file in files.items():
        for key in (None, accepting.gateway.acme.key.secret):
            with pytest.raises(CLOSED):
                raise AssertionError(f"{what}: {(await get(accepting, file, key=key)).text}")
    between = make_certificate(tmp_path / "between.pem", "between", issuer=authority.root)
    chained = authority.client("h", issuer=between)
    assert (await get(accepting, chained)).status_code == 403, "known, and permitted nothing"
    assert (await get(accepting, authority.client("i"))).status_code == 403


async def test_a_certificate_that_ends_while_its_connection_is_open_is_refused_from_then_on(
    shared_gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    at = [datetime.now(UTC)]
    roots = authority.root.pem
    async with (
        certified_gateway(shared_gateway, tmp_path, roots=roots, clock=lambda: at[0]) as accepting,
        accepting.client(authority.client("etl", ends_in=timedelta(hours=1))) as http,
    ):
        assert (await http.get(NAMESPACES)).status_code == 403
        at[0] += timedelta(hours=1, seconds=1)
        refused = await http.get(NAMESPACES)
        assert refused.status_code == 401
        assert "the client certificate has expired" in error_of(refused)["message"]


async def test_a_session_that_is_resumed_is_the_same_callers(accepting: CertifiedGateway, authority: Authority) -> None:
    await permit(accepting)
    url = httpx.URL(accepting.url)

    def ask(context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool, bytes]:
        with (
            socket.create_connection((url.host, url.port or 0), 30) as plain,
            context.wrap_socket(plain, server_hostname=url.host, session=session) as tls,
        ):
            tls.sendall(f"GET {NAMESPACES} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while more := tls.recv(65_536):
                answer += more
            return tls.session, bool(tls.session_reused), answer.split(b"\r\n")[0]

    context = accepting.context(authority.client("etl"))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, version
        session, _, first = await asyncio.to_thread(ask, context, None)
        _, was_reused, second = await asyncio.to_thread(ask, context, session)
        assert (first, second, was_reused) == (b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK", True), version


async def test_an_erased_caller_is_refused_until_there_is_a_newer_certificate(
    accepting: CertifiedGateway, authority: Authority
) -> None:
    file = authority.client("etl")
    before = await who_is(accepting, file)
    services, acme = accepting.gateway.services, accepting.gateway.acme
    installation = services.installation
    async with (
        installation.connect(installation.roles.auditor) as auditor,
        open_eraser(installation, auditor) as eraser,
    ):
        log = await find_log(auditor, acme.origin)
        await eraser.erase_person(log, before.actor, ErasureRequest(reason=ErasureReason.REQUEST, at=now()))
    refused = await get(accepting, file)
    assert refused.status_code == 401
    assert "older than an erasure" in error_of(refused)["message"]
    newer = authority.client("newer", begins_in=timedelta(seconds=2))  # a certificate counts in whole seconds
    assert (await who_is(accepting, newer)).actor != before.actor


# The file of clients


async def test_a_file_of_clients_is_read_as_it_says() -> None:
    tenant = "0190163d8694739baea5966c26f8ad91"
    file = parse_clients(
        f'[[clients]]\nuri = "{ETL}"\ntenant = "{tenant}"\nroles = ["b", "a", "a"]\n'
        f'[[clients]]\ndns = "Reports.Acme.Example"\ntenant = "{tenant}"\nroles = "c"\n'
    )
    assert {san.value: client.roles for san, client in file.clients.items()} == {ETL: ("a", "b"), REPORTS: ("c",)}
    assert San(SanKind.DNS, REPORTS) in file.clients
    assert file.proxies == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clients = 1", "1 to 10000 tables"),
        ("", "1 to 10000 tables"),
        ("x = 1\n[[clients]]", "1 to 10000 tables"),
        ("[[clients]", "TOML"),
        ("clients = [1]", "a table"),
        ("[[clients]]\nTENANT", "either uri or dns"),
        ('[[clients]]\nuri = "a:b"\ndns = "a"\nTENANT', "either uri or dns"),
        ('[[clients]]\nuri = "a:b"\nmail = "x"\nTENANT', "only dns, roles, tenant, uri"),
        ('[[clients]]\nuri = "a:b"', "tenant"),
        ('[[clients]]\nuri = "a:b"\ntenant = "acme"', "the id of a tenant"),
        ('[[clients]]\nuri = "a"\nTENANT', "a URI of printable ASCII"),
        ('[[clients]]\nuri = "a:b c"\nTENANT', "a URI of printable ASCII"),
        ('[[clients]]\ndns = "*.example"\nTENANT', "a DNS name without wildcard"),
        ('[[clients]]\ndns = ""\nTENANT', "a text of 1 to"),
        ('[[clients]]\ndns = "a"\nroles = ["a b"]\nTENANT', "a role or a list of roles"),
        ('[[clients]]\ndns = "a"\nTENANT\n[[clients]]\ndns = "A"\nTENANT', "each client once"),
        (f'[[clients]]\ndns = "a"\nroles = {json.dumps([f"r{n}" for n in range(33)])}\nTENANT', "at most 32 roles"),
    ],
)
async def test_a_file_of_clients_with_a_mistake_is_refused(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_clients(text.replace("TENANT", 'tenant = "0190163d8694739baea5966c26f8ad91"'))


@pytest.mark.parametrize("required", [False, True])
async def test_the_settings_are_enough_to_let_clients_in_or_to_demand_a_certificate_of_all(
    required: bool, database: str, installation: Provisioned, tmp_path: Path, authority: Authority
) -> None:
    names: list[Any] = [DNS("localhost")]
    served = make_certificate(tmp_path / "served.pem", "localhost", names=names).file
    clients = tmp_path / "clients.toml"
    settings = {
        "port": "0",
        "streams": "0",
        "detect": "0",
        "tls_certificate": str(served),
        "tls_key": str(served),
        "tls_client_ca": str(authority.root.file),
        "tls_client_required": str(int(required)),
    }
    async with start_services(database, installation, tmp_path) as services:
        acme = await found_tenant(services, name="acme", identity="ada@acme.example", roles=["data-eng"], alias="lake")
        await services.gateway.admin.create_access_rule(
            acme.log_id, OPERATOR, rule_id="engineers", effect="permit", expression="'data-eng' in roles"
        )
    clients.write_text(clients_file(acme.tenant))
    settings["tls_clients"] = str(clients)
    async with (
        asyncio.timeout(120),
        start_services(database, installation, tmp_path, **settings) as services,
        serving(services) as running,
    ):
        context = ssl.create_default_context(cafile=str(served))
        context.load_cert_chain(authority.client("etl"))
        url = running.url.replace("127.0.0.1", "localhost")
        async with httpx.AsyncClient(base_url=url, verify=context) as http:
            assert (await http.get(NAMESPACES)).status_code == 200
        without = ssl.create_default_context(cafile=str(served))
        headers = {"Authorization": f"Bearer {acme.key.secret}"}
        async with httpx.AsyncClient(base_url=url, verify=without, headers=headers) as http:
            if required:
                with pytest.raises(CLOSED):
                    await http.get(NAMESPACES)
            else:
                assert (await http.get(NAMESPACES)).status_code == 200
        async with gateway_client(running.url, services.installation.settings) as ours:
            assert (await ours.get("/health")).status_code == 200
            assert (await ours.get(NAMESPACES)).status_code == 401, "our own processes are nobody by their certificate"
            assert (await ours.get(NAMESPACES, headers=headers)).status_code == 200
        trust = gateway_trust(services.installation.settings)
        assert (await asyncio.to_thread(ask_readiness, running.url, trust)).is_ready
    clients.write_text(clients_file(UUID(int=1)))
    with pytest.raises(SettingsError, match=f"client {ETL} is of tenant {UUID(int=1)}, which does not exist"):
        async with start_services(database, installation, tmp_path, **settings):
            pass
