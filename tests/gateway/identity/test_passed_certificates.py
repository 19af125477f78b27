# SPDX-License-Identifier: Apache-2.0
"""
Certificates that a proxy passes on: from whom they are taken, who their clients are in the log, and what is refused.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from gateway.admin.application import OPERATOR
from gateway.identity.client_certificates import ISSUER, PASSED_ISSUER, Proxy, San, SanKind, parse_clients
from gateway.identity.passed_certificates import (
    LENGTH_MAX,
    OPENED_MAX,
    PassedCertificates,
    PassedOn,
    Roots,
    parse_header,
)
from gateway.identity.principal import CertificateRefusedError
from lakeproof.provision import Provisioned
from lakeproof.serving.in_process import serving
from lakeproof.tenants import found_tenant
from ledger.errors import FormatError
from testkit.gateway.certified_gateway import (
    ETL,
    EXPIRED,
    NOT_YET,
    REPORTS,
    Authority,
    CertifiedGateway,
    certified_gateway,
    client_side,
    clients_file,
    gateway_without_tls,
    served_certificate,
)
from testkit.gateway.log_contents import read_stored
from testkit.gateway.raw_http import exchange
from testkit.gateway.sales import CREATE, NAMESPACES, ORDERS, TABLES, error_of
from testkit.gateway.token_gateway import unhurried
from testkit.servers.certificates import make_certificate
from testkit.servers.gateways import Gateway, start_services
from testkit.servers.tls_proxy import byte_sequence, escaped_as_by_envoy, escaped_pem, tls_proxy

pytestmark = pytest.mark.asyncio(loop_scope="module")

INGRESS = "spiffe://acme.example/ingress"
HERE = "127.0.0.1"
ELSEWHERE = "127.0.0.2"
"""An address of this machine that is not in the file."""
URI, DNS = x509.UniformResourceIdentifier, x509.DNSName
NOT_NAMED = "expected Client-Cert from nobody but a proxy that the operator has named"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
FORMS = {"RFC 9440": byte_sequence, "nginx": escaped_pem, "Envoy": escaped_as_by_envoy}


def der(file: Path) -> bytes:
    return x509.load_pem_x509_certificates(file.read_bytes())[0].public_bytes(Encoding.DER)


def text_with(tenant: UUID, *proxies: str) -> str:
    """The file of clients with tables of proxies."""
    return clients_file(tenant) + "".join(f"\n[[proxies]]\n{proxy}\n" for proxy in proxies)


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    unhurried(monkeypatch)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest_asyncio.fixture(loop_scope="module")
async def plain(shared_gateway: Gateway, authority: Authority) -> AsyncIterator[str]:
    """A gateway without TLS, to which a proxy connects from `HERE`."""
    text = text_with(shared_gateway.acme.tenant, f'address = "{HERE}"')
    async with gateway_without_tls(shared_gateway, roots=authority.root.pem, text=text) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="module")
async def with_tls(shared_gateway: Gateway, authority: Authority, tmp_path: Path) -> AsyncIterator[CertifiedGateway]:
    """A gateway with TLS, to which a proxy connects from `HERE` with a certificate for `INGRESS`."""
    text = text_with(shared_gateway.acme.tenant, f'address = "{HERE}"\nuri = "{INGRESS}"')
    async with certified_gateway(shared_gateway, tmp_path, roots=authority.root.pem, text=text) as accepting:
        yield accepting


async def permit(gateway: Gateway) -> None:
    await gateway.services.gateway.admin.create_access_rule(
        gateway.acme.log_id, OPERATOR, rule_id="engineers", effect="permit", expression="'data-eng' in roles"
    )


async def ask(
    url: str,
    *headers: tuple[str, str],
    path: str = NAMESPACES,
    key: str | None = None,
    verify: ssl.SSLContext = NO_TLS,
    local: str = HERE,
) -> httpx.Response:
    """Ask for the namespaces, or what is at `path`, from the address `local`."""
    transport = httpx.AsyncHTTPTransport(verify=verify, local_address=local)
    shown = headers if key is None else [*headers, ("Authorization", f"Bearer {key}")]
    async with httpx.AsyncClient(transport=transport, base_url=url) as http:
        return await http.get(path, headers=[(name.encode(), value.encode("latin-1")) for name, value in shown])


def passed(file: Path, write: Callable[[bytes], str] = byte_sequence) -> tuple[str, str]:
    """The header with a certificate."""
    return "Client-Cert", write(der(file))


def said(answer: httpx.Response) -> str:
    """The one sentence of a refusal."""
    assert answer.status_code == 401, answer.text
    message: str = error_of(answer)["message"]
    assert "\n" not in message
    assert message.startswith("expected "), message
    return message


# Behind a real proxy


@pytest.mark.parametrize("write", FORMS.values(), ids=FORMS)
async def test_a_client_of_a_proxy_commits_as_the_one_that_its_certificate_names(
    write: Callable[[bytes], str], with_tls: CertifiedGateway, authority: Authority, tmp_path: Path
) -> None:
    gateway = with_tls.gateway
    await permit(gateway)
    served, own = served_certificate(tmp_path, "proxy"), authority.client("ingress", uri=INGRESS)
    fields: Mapping[str, Any] = {"served": served, "roots": authority.root.file, "write": write}
    async with (
        tls_proxy(with_tls.url, own=with_tls.context(own), **fields) as url,
        httpx.AsyncClient(base_url=url, verify=client_side(served, authority.client("etl"))) as http,
    ):
        assert (await http.post(NAMESPACES, json={"namespace": ["sales"]})).status_code == 200
        assert (await http.post(TABLES, json=CREATE)).status_code == 200
        update = {"action": "set-properties", "updates": {"a": "b"}}
        assert (await http.post(ORDERS, json={"requirements": [], "updates": [update]})).status_code == 200
    stored = await read_stored(gateway.services, gateway.acme.log_id)
    decided = [one for one in stored if one.entry.type == "commit.decided"]
    assert [one.entry.data["principal_source"] for one in decided] == ["mtls"] * 3
    for one in decided:
        assert json.loads(one.parts["principal"]).items() >= {"sub": ETL, "issuer": PASSED_ISSUER}.items()


async def test_a_client_that_a_proxy_vouches_for_is_another_actor_than_one_that_comes_itself(
    with_tls: CertifiedGateway, authority: Authority
) -> None:
    file = authority.client("etl")
    itself = await ask(with_tls.url, verify=with_tls.context(file))
    proxy = with_tls.context(authority.client("ingress", uri=INGRESS))
    through = await ask(with_tls.url, passed(file), verify=proxy)
    assert (itself.status_code, through.status_code) == (403, 403)
    stored = await read_stored(with_tls.gateway.services, with_tls.gateway.acme.log_id)
    assert stored[-1].entry.actor != stored[-2].entry.actor
    assert PASSED_ISSUER != ISSUER


async def test_clients_of_a_proxy_without_a_certificate_use_keys_and_cannot_send_one_of_others(
    plain: str, shared_gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    await permit(shared_gateway)
    served, key = served_certificate(tmp_path, "proxy"), shared_gateway.acme.key.secret
    stolen = passed(authority.client("etl"))
    async with tls_proxy(plain, served=served, roots=authority.root.file) as url:
        certified, bare = (client_side(served, file) for file in (authority.client("etl"), None))
        assert (await ask(url, verify=certified)).status_code == 200
        assert (await ask(url, verify=bare, key=key)).status_code == 200
        assert "expected an Authorization header" in said(await ask(url, verify=bare))
        assert "expected an Authorization header" in said(await ask(url, stolen, verify=bare))
        reports = client_side(served, authority.client("reports", uri=None, names=[DNS(REPORTS)]))
        assert (await ask(url, stolen, verify=reports)).status_code == 403, "known, and permitted nothing"
        stranger = Authority(tmp_path, "stranger").client("a")
        with pytest.raises(httpx.TransportError):
            await ask(url, verify=client_side(served, stranger))


# From whom


async def test_from_anybody_but_the_named_proxy_a_certificate_is_refused_whatever_else_there_is(
    plain: str, with_tls: CertifiedGateway, authority: Authority
) -> None:
    await permit(with_tls.gateway)
    header, key = passed(authority.client("etl")), with_tls.gateway.acme.key.secret
    proxy = with_tls.context(authority.client("ingress", uri=INGRESS))
    client = with_tls.context(authority.client("itself"))
    nobody = with_tls.context(authority.client("other", uri="spiffe://acme.example/other"))
    longer = with_tls.context(authority.client("longer", uri=f"{INGRESS}/more"))
    same_dns = with_tls.context(authority.client("dns", uri=None, names=[DNS("acme.example")]))
    two = with_tls.context(authority.client("two", uri=None, names=[URI(INGRESS), URI(ETL)]))
    assert (await ask(with_tls.url, header, verify=proxy)).status_code == 200
    assert (await ask(plain, header)).status_code == 200
    for verify in (client, nobody, longer, same_dns, two, with_tls.context(None)):
        assert NOT_NAMED in said(await ask(with_tls.url, header, verify=verify))
        assert NOT_NAMED in said(await ask(with_tls.url, header, verify=verify, key=key))
    for given in (None, key):
        assert NOT_NAMED in said(await ask(with_tls.url, header, verify=proxy, key=given, local=ELSEWHERE))
        assert NOT_NAMED in said(await ask(plain, header, key=given, local=ELSEWHERE))


async def test_a_refusal_is_recorded_as_those_of_other_credentials_are(
    plain: str, shared_gateway: Gateway, authority: Authority
) -> None:
    system = shared_gateway.services.system.log_id
    before = len(await read_stored(shared_gateway.services, system))
    header = passed(authority.client("etl"))
    assert (await ask(plain, header, path="/v1/policies", local=ELSEWHERE)).status_code == 401
    (last,) = (await read_stored(shared_gateway.services, system))[before:]
    assert (last.entry.type, last.entry.data["operation"]) == ("access.refused", "GET /v1/policies")


async def test_where_no_proxy_is_named_a_certificate_in_a_header_is_refused(
    shared_gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    header, key = passed(authority.client("etl")), shared_gateway.acme.key.secret
    async with certified_gateway(shared_gateway, tmp_path, roots=authority.root.pem) as accepting:
        for given in (None, key):
            answer = await ask(accepting.url, header, verify=accepting.context(authority.client("itself")), key=given)
            assert NOT_NAMED in said(answer)
    answer = await shared_gateway.http.get(NAMESPACES, headers=[header])
    assert NOT_NAMED in said(answer)


async def test_the_certificate_of_a_proxy_counts_until_its_end_on_an_open_connection(
    shared_gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    await permit(shared_gateway)
    at = [datetime.now(UTC)]
    text = text_with(shared_gateway.acme.tenant, f'address = "{HERE}"\ndns = "Ingress.Acme.Example"')
    own = authority.client("ingress", uri=None, names=[DNS("ingress.acme.example")], ends_in=timedelta(hours=1))
    header = passed(authority.client("etl", ends_in=timedelta(hours=2)))
    roots = authority.root.pem
    async with (
        certified_gateway(shared_gateway, tmp_path, roots=roots, text=text, clock=lambda: at[0]) as accepting,
        accepting.client(own) as http,
    ):
        assert (await http.get(NAMESPACES, headers=[header])).status_code == 200
        at[0] += timedelta(hours=1, seconds=1)
        assert NOT_NAMED in said(await http.get(NAMESPACES, headers=[header]))


async def test_the_certificate_of_a_client_counts_until_its_end(shared_gateway: Gateway, authority: Authority) -> None:
    await permit(shared_gateway)
    at = [datetime.now(UTC)]
    text = text_with(shared_gateway.acme.tenant, f'address = ["10.0.0.0/8", "{HERE}"]')
    header = passed(authority.client("etl", ends_in=timedelta(hours=1)))
    async with gateway_without_tls(shared_gateway, roots=authority.root.pem, text=text, clock=lambda: at[0]) as url:
        for _ in range(2):
            assert (await ask(url, header)).status_code == 200
        at[0] += timedelta(hours=1, seconds=1)
        for key in (None, shared_gateway.acme.key.secret):
            assert "found one that is expired" in said(await ask(url, header, key=key))


# With other credentials


async def test_a_certificate_that_stands_for_a_client_comes_before_a_key(
    plain: str, shared_gateway: Gateway, authority: Authority
) -> None:
    await permit(shared_gateway)
    reports, key = authority.client("reports", uri=None, names=[DNS(REPORTS)]), shared_gateway.acme.key.secret
    assert (await ask(plain, key=key)).status_code == 200
    assert (await ask(plain, passed(reports), key=key)).status_code == 403
    assert (await ask(plain, passed(reports), key="nonsense")).status_code == 403


async def test_one_that_stands_for_nobody_takes_nothing_from_a_key_and_is_401_without(
    plain: str, shared_gateway: Gateway, authority: Authority
) -> None:
    for number, names in enumerate(([URI("spiffe://acme.example/other")], [DNS("*.acme.example")], [])):
        header = passed(authority.client(f"other{number}", uri=None, names=names))
        assert (await ask(plain, header, key=shared_gateway.acme.key.secret)).status_code == 200
        assert "expected a client certificate" in said(await ask(plain, header))


# What is refused


def flawed(authority: Authority, folder: Path) -> dict[str, tuple[str, str]]:
    """Return headers by what is wrong with them, each with what the answer says."""
    good = byte_sequence(der(authority.client("good")))
    raw = next(made for n in range(99) if len(made := der(authority.client(f"raw{'x' * n}"))) % 3)  # padded in base64
    pem = ssl.DER_cert_to_PEM_cert(raw)
    stranger = Authority(folder, "stranger")
    (folder / "impostor").mkdir()
    leaf = make_certificate(folder / "leaf.pem", "leaf", issuer=authority.root, may_sign=False)
    bound = {
        "of another authority": stranger.client("a"),
        "of an authority that only has the name": Authority(folder / "impostor").client("b"),
        "signed by itself": make_certificate(folder / "c.pem", "c", names=[URI(ETL)]).file,
        "signed by a certificate that may not sign": authority.client("d", issuer=leaf),
        "for servers": authority.client("e", usages=[ExtendedKeyUsageOID.SERVER_AUTH]),
        "with another signature": None,
    }
    unbound = {
        what: (byte_sequence(raw[:-1] + bytes([raw[-1] ^ 1]) if file is None else der(file)), "a root in LAKEPROOF")
        for what, file in bound.items()
    }
    timed = {
        "expired": (byte_sequence(der(authority.client("f", **EXPIRED))), "one that is expired"),
        "not yet valid": (byte_sequence(der(authority.client("g", **NOT_YET))), "one that is not yet valid"),
    }
    named = {
        "no alternative name": (authority.client("h", uri=None, names=[]), "a URI or a DNS name, found neither"),
        "a mail address": (authority.client("i", uri=None, names=[x509.RFC822Name("a@b.c")]), "found neither"),
        "several URIs": (authority.client("j", uri=None, names=[URI(ETL), URI("a:b")]), "one URI, found 2"),
        "an unknown URI": (authority.client("k", uri="a:b"), "whose URI the operator has named"),
        "an unknown DNS name": (authority.client("l", uri=None, names=[DNS("x.y")]), "whose DNS name the operator"),
        "the name of the proxy": (authority.client("m", uri=INGRESS), "whose URI the operator has named"),
    }
    malformed = {
        "nothing": "",
        "no bytes": "::",
        "one colon": ":",
        "without colons": good.strip(":"),
        "without the last colon": good[:-1],
        "without the first": good[1:],
        "in quotation marks": f'"{good}"',
        "a parameter": f"{good};a=b",
        "two items": f"{good}, {good}",
        "a blank inside": f"{good[:9]} {good[9:]}",
        "no base64": ":%%%:",
        "base64 of URLs": ":" + good.strip(":").replace("+", "-").replace("/", "_") + "_:",
        "base64 without padding": byte_sequence(raw + b"\0")[:-1].rstrip("=") + "=:",
        "bits behind the end": trailing_bits(raw),
        "base64 of text": byte_sequence(b"nobody"),
        "base64 of PEM": byte_sequence(pem.encode()),
        "DER cut off": byte_sequence(raw[:-1]),
        "DER with a byte behind it": byte_sequence(raw + b"\0"),
        "two certificates in DER": byte_sequence(raw + raw),
        "a key": byte_sequence(b"0\x82" + b"\1" * 300),
        "zeros": byte_sequence(bytes(64)),
        "PEM in one line": " ".join(pem.split()),
        "PEM without escapes of lines": quote(pem.replace("\n", " ").strip(), safe=" "),
        "two in PEM": quote(pem + pem, safe=""),
        "PEM with a key": quote(authority.client("n").read_text(), safe=""),
        "PEM escaped twice": quote(quote(pem, safe=""), safe=""),
        "PEM of nothing": quote("-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n", safe=""),
        "PEM of something else": quote(pem.replace("CERTIFICATE", "PUBLIC KEY"), safe=""),
        "PEM with text before it": "x" + quote(pem, safe=""),
        "what Envoy writes for none": "-",
        "an X-Forwarded-Client-Cert": f'Hash=00;Cert="{quote(pem, safe="")}"',
        "none": "none",
        "not ASCII": "\xe9" + good,
    }
    over_long = {
        "over-long": (":" + "A" * LENGTH_MAX + ":", "at most 16384 characters"),
        "over-long PEM": (quote(pem, safe="") + "%0A" * LENGTH_MAX, "at most 16384 characters"),
    }
    return {
        **{what: (text, "expected one certificate in Client-Cert") for what, text in malformed.items()},
        **{what: (byte_sequence(der(file)), message) for what, (file, message) in named.items()},
        **unbound,
        **timed,
        **over_long,
    }


def trailing_bits(raw: bytes) -> str:
    """DER in base64 whose last character has bits that stand for nothing."""
    text = b64encode(raw).decode()
    last = text.rstrip("=")[-1]
    return f":{text.replace(last + '=', chr(ord(last) + 1) + '=')}:"


async def test_a_header_that_is_not_one_good_certificate_is_401_with_one_sentence(
    plain: str, shared_gateway: Gateway, authority: Authority, tmp_path: Path
) -> None:
    cases = flawed(authority, tmp_path)
    assert len(cases) > 40
    for what, (text, message) in cases.items():
        answer = await ask(plain, ("Client-Cert", text))
        assert message in said(answer), what
    # Nothing of it is left aside for a key, unless it is a certificate that stands for nobody.
    for what in ("nothing", "no base64", "expired", "of another authority", "over-long", "two items"):
        assert cases[what][1] in said(
            await ask(plain, ("Client-Cert", cases[what][0]), key=shared_gateway.acme.key.secret)
        ), what


async def test_several_headers_other_spellings_and_a_chain_alone_are_refused(
    plain: str, shared_gateway: Gateway, authority: Authority
) -> None:
    await permit(shared_gateway)
    name, value = passed(authority.client("etl"))
    reports = passed(authority.client("reports", uri=None, names=[DNS(REPORTS)]))[1]
    for second in (value, reports, ""):
        for pair in ((value, second), (second, value)):
            head = f"GET {NAMESPACES} HTTP/1.1\r\nHost: x\r\n" + "".join(f"{name}: {one}\r\n" for one in pair)
            (answer,) = (await exchange(plain, [head.encode() + b"\r\n"])).answers
            assert (answer.status, answer.closes) == (400, True)
            assert b"expected the header client-cert once" in answer.body
    for text, status in (
        (f"CLIENT-CERT: {value}", 200),
        (f"client-cert:{value}", 200),
        (f"Client-Cert : {value}", 400),
        (f"Client-Cert: {value[:20]}\r\n {value[20:]}", 400),
        (f"Client_Cert: {value}", 401),
        (f"X-Client-Cert: {value}", 401),
        (f"X-Forwarded-Client-Cert: {value}", 401),
        (f"X-Ssl-Client-Cert: {value}", 401),
        (f"Ssl-Client-Cert: {value}", 401),
    ):
        head = f"GET {NAMESPACES} HTTP/1.1\r\nHost: x\r\n{text}\r\n\r\n"
        (answer,) = (await exchange(plain, [head.encode()])).answers
        assert answer.status == status, text
    key = shared_gateway.acme.key.secret
    alone = ("Client-Cert-Chain", value)
    for local in (HERE, ELSEWHERE):
        assert NOT_NAMED in said(await ask(plain, alone, key=key, local=local)), "not even from the proxy"
    assert (await ask(plain, (name, value), alone)).status_code == 200, "the chain is not read"
    assert (await ask(plain, (name, value), ("Client-Cert-Chain", "junk"))).status_code == 200
    twice = await shared_gateway.http.get(NAMESPACES, headers=[(name, value), (name, value)])
    assert twice.status_code == 400


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
async def test_no_certificate_with_a_bit_changed_is_taken(authority: Authority) -> None:
    passing = PassedCertificates([HERE_ALONE], roots_of(authority), lambda: datetime.now(UTC))
    raw = der(authority.client("etl"))
    assert passing.open(asked(byte_sequence(raw)), None) == raw
    # Before the signature stands how many of its last bits do not count. Nobody signs that, and zeros may not count.
    unsigned = len(raw) - len(x509.load_der_x509_certificate(raw).signature) - 1
    for place in set(range(len(raw))) - {unsigned}:
        broken = raw[:place] + bytes([raw[place] ^ 1 << place % 8]) + raw[place + 1 :]
        with pytest.raises(CertificateRefusedError):
            passing.open(asked(byte_sequence(broken)), None)


# The path


HERE_ALONE = Proxy(networks=[ip_network(HERE)], san=None)


def asked(header: str) -> PassedOn:
    return PassedOn(header=header, peer=ip_address(HERE))


def roots_of(authority: Authority, *others: x509.Certificate) -> Roots:
    return Roots([*authority.root.chain, *others])


async def test_a_path_is_made_of_the_certificates_in_the_file_of_roots(authority: Authority, tmp_path: Path) -> None:
    between = make_certificate(tmp_path / "between.pem", "between", issuer=authority.root)
    header = byte_sequence(der(authority.client("etl", issuer=between)))
    now = datetime.now(UTC)
    with_it = PassedCertificates([HERE_ALONE], roots_of(authority, between.chain[0]), lambda: now)
    assert with_it.open(asked(header), None)
    without = PassedCertificates([HERE_ALONE], roots_of(authority), lambda: now)
    with pytest.raises(CertificateRefusedError, match="a root in LAKEPROOF_TLS_CLIENT_CA vouches"):
        without.open(asked(header), None)
    with pytest.raises(ValueError, match="empty"):
        Roots([between.chain[0]])  # no root: OpenSSL takes none of its certificates either


async def test_a_path_counts_until_the_first_of_its_certificates_ends(authority: Authority, tmp_path: Path) -> None:
    at = [datetime.now(UTC)]
    between = make_certificate(tmp_path / "between.pem", "between", issuer=authority.root, ends_in=timedelta(hours=1))
    header = byte_sequence(der(authority.client("etl", issuer=between, ends_in=timedelta(hours=2))))
    passing = PassedCertificates([HERE_ALONE], roots_of(authority, between.chain[0]), lambda: at[0])
    for _ in range(2):
        passing.open(asked(header), None)
    at[0] += timedelta(hours=1, seconds=1)
    with pytest.raises(CertificateRefusedError, match="a root in LAKEPROOF_TLS_CLIENT_CA vouches"):
        passing.open(asked(header), None)


async def test_what_is_remembered_is_bounded(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OPENED_MAX * LENGTH_MAX < 64 * 2**20
    monkeypatch.setattr("gateway.identity.passed_certificates.OPENED_MAX", 2)
    passing = PassedCertificates([HERE_ALONE], roots_of(authority), lambda: datetime.now(UTC))
    for number in range(4):
        passing.open(asked(byte_sequence(der(authority.client(f"c{number}")))), None)
    assert len(passing._opened) == 2


async def test_all_forms_say_the_same_certificate(authority: Authority) -> None:
    raw = der(authority.client("etl"))
    for write in FORMS.values():
        assert parse_header(write(raw)).public_bytes(Encoding.DER) == raw


# The file


TENANT = "0190163d-8694-739b-aea5-966c26f8ad91"


async def test_proxies_in_a_file_are_read_as_it_says() -> None:
    text = text_with(
        UUID(TENANT),
        f'address = "10.1.0.0/16"\nuri = "{INGRESS}"',
        'address = ["::1", "127.0.0.1"]',
        'address="1.1.1.1"',
    )
    first, second, third = parse_clients(text).proxies
    assert (first.networks, first.san) == ((ip_network("10.1.0.0/16"),), San(SanKind.URI, INGRESS))
    assert (second.has(ip_address("::1")), second.has(ip_address("::2")), second.san) == (True, False, None)
    assert not third.has(ip_address(HERE))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", "an address or network"),
        ('uri = "a:b"', "an address or network"),
        ('address = ""', "an address or network"),
        ('address = "10.0.0.1/8"', "an address or network"),
        ('address = "proxy.internal"', "an address or network"),
        ("address = 1", "an address or network"),
        ("address = []", "an address or network"),
        ("address = [1]", "an address or network"),
        (f"address = {['10.0.0.1'] * 33}", "an address or network"),
        ('address = "::1"\nuri = "a:b"\ndns = "a"', "either uri or dns"),
        ('address = "::1"\nuri = "a"', "a URI of printable ASCII"),
        ('address = "::1"\ndns = "*.a"', "a DNS name without wildcard"),
        ('address = "::1"\nroles = "a"', "only address, dns, uri"),
        ('address = "::1"\ntenant = "a"', "only address, dns, uri"),
        (f'address = "::1"\nuri = "{ETL}"', "names of clients and others of proxies"),
        (f'address = "::1"\ndns = "{REPORTS.upper()}"', "names of clients and others of proxies"),
    ],
)
async def test_a_proxy_with_a_mistake_is_refused(table: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_clients(text_with(UUID(TENANT), table))
    with pytest.raises(FormatError, match=r"1 to 10000 tables \[\[clients\]\], perhaps \[\[proxies\]\]"):
        parse_clients('[[proxies]]\naddress = "::1"')
    with pytest.raises(FormatError, match="1 to 10000 tables"):
        parse_clients(clients_file(UUID(TENANT)) + "\n[proxies]\n")


async def test_the_settings_are_enough_to_take_certificates_from_a_proxy(
    database: str, installation: Provisioned, tmp_path: Path, authority: Authority
) -> None:
    roots, clients = tmp_path / "roots.pem", tmp_path / "clients.toml"
    roots.write_text(authority.root.pem)
    settings = {"port": "0", "streams": "0", "detect": "0"}
    async with start_services(database, installation, tmp_path) as services:
        acme = await found_tenant(services, name="acme", identity="ada@acme.example", roles=["data-eng"], alias="lake")
        await services.gateway.admin.create_access_rule(
            acme.log_id, OPERATOR, rule_id="engineers", effect="permit", expression="'data-eng' in roles"
        )
    clients.write_text(text_with(acme.tenant, f'address = "{HERE}"'))
    settings |= {"tls_client_ca": str(roots), "tls_clients": str(clients), "trusted_proxies": "127.0.0.0/8"}
    async with (
        asyncio.timeout(120),
        start_services(database, installation, tmp_path, **settings) as services,
        serving(services) as running,
    ):
        header = passed(authority.client("etl"))
        forged = ("X-Forwarded-For", HERE)
        assert (await ask(running.url, header, forged)).status_code == 200
        assert NOT_NAMED in said(await ask(running.url, header, forged, local=ELSEWHERE))
