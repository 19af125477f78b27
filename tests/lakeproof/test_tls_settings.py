# SPDX-License-Identifier: Apache-2.0
"""What the files of the gateway's certificate must be, and how our own processes know the gateway again."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from lakeproof.demo.channel import Channel
from lakeproof.demo.cloud import Cloud
from lakeproof.demo.scene import scene_settings
from lakeproof.errors import SettingsError
from lakeproof.setting_files import FILE_SIZE_BYTES_MAX
from lakeproof.settings import Settings, load_settings
from lakeproof.streaming import gateway_url
from lakeproof.tls_settings import GatewayTrust, TlsFiles, load_certificate, load_clients, tls_files
from ledger.store.read import Log
from testkit.gateway.connections import site
from testkit.servers.certificates import make_certificate

Break = Callable[[TlsFiles], object]


def now() -> datetime:
    return datetime.now(UTC)


def pair(folder: Path, name: str = "server", **options: timedelta) -> TlsFiles:
    """Make a certificate and its key, in two files."""
    made = make_certificate(folder / f"{name}.pem", "gateway.example", **options)  # type: ignore[arg-type]
    return split(folder, name, made.pem)


def split(folder: Path, name: str, pem: str) -> TlsFiles:
    start = pem.index("-----BEGIN PRIVATE KEY")
    files = TlsFiles(certificate=folder / f"{name}.crt", key=folder / f"{name}.key")
    files.certificate.write_text(pem[:start])
    files.key.touch(mode=0o600)
    files.key.write_text(pem[start:])
    return files


def private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: bytes | None = None) -> bytes:
    encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def encrypt(files: TlsFiles) -> None:
    key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    files.key.write_bytes(private(key, b"secret"))


def make_folder(files: TlsFiles) -> None:
    files.certificate.unlink()
    files.certificate.mkdir()


BROKEN: dict[str, tuple[Break, str]] = {
    "no certificate": (lambda f: f.certificate.unlink(), r"TLS_CERTIFICATE: \S+ cannot be read \(No such file"),
    "a folder": (make_folder, r"cannot be read \(Is a directory\): make it readable"),
    "an empty file": (lambda f: f.certificate.write_text(""), "expected PEM, first the gateway's .*: replace it"),
    "not PEM": (lambda f: f.certificate.write_bytes(b"\0\xff" * 99), "expected PEM, first the gateway's"),
    "a broken PEM": (lambda f: f.certificate.write_text(f.certificate.read_text()[:300]), "expected PEM"),
    "the key as certificate": (lambda f: f.certificate.write_bytes(f.key.read_bytes()), "expected PEM"),
    "too large": (lambda f: f.certificate.write_bytes(b"x" * (FILE_SIZE_BYTES_MAX + 1)), "over 1000000 bytes"),
    "no key": (lambda f: f.key.unlink(), r"TLS_KEY: \S+ cannot be read \(No such file"),
    "a key for others": (lambda f: f.key.chmod(0o640), "has mode 0640 and others can read it: run chmod 600"),
    "not a key": (lambda f: f.key.write_text("secret words"), "expected a private key in PEM, found something else"),
    "the certificate as key": (lambda f: f.key.write_bytes(f.certificate.read_bytes()), "expected a private key"),
    "a key with password": (encrypt, "has a password, which nobody could enter: write it without one"),
    "another key": (
        lambda f: f.key.write_bytes(private(ec.generate_private_key(ec.SECP256R1()))),
        "is not the key of the first certificate in .*: name the files of one pair",
    ),
    "a key of another kind": (
        lambda f: f.key.write_bytes(private(rsa.generate_private_key(65537, 2048))),
        "is not the key of the first certificate",
    ),
}


@pytest.mark.parametrize(("destroy", "message"), BROKEN.values(), ids=BROKEN)
def test_files_that_cannot_be_served_are_refused_with_what_to_do(destroy: Break, message: str, tmp_path: Path) -> None:
    files = pair(tmp_path)
    assert load_certificate(files, now=now()).ends_at > now()
    destroy(files)
    with pytest.raises(SettingsError, match=message) as caught:
        load_certificate(files, now=now())
    assert str(caught.value).startswith("LAKEPROOF_TLS_")
    assert "secret words" not in str(caught.value)


def test_a_certificate_is_served_within_its_time_alone(tmp_path: Path) -> None:
    files = pair(tmp_path)
    ends_at = load_certificate(files, now=now()).ends_at
    assert load_certificate(files, now=ends_at - timedelta(seconds=1)).ends_at == ends_at
    with pytest.raises(SettingsError, match=r"has expired at \d{4}-\d\d-\d\d \d\d:\d\d UTC: renew it"):
        load_certificate(files, now=ends_at)
    with pytest.raises(SettingsError, match=r"is valid from .* which is not yet: check this machine's clock"):
        load_certificate(files, now=now() - timedelta(days=3))


def test_a_certificate_is_served_with_those_of_its_issuers_and_in_that_order_alone(tmp_path: Path) -> None:
    root = make_certificate(tmp_path / "root.pem", "root.example")
    between = make_certificate(tmp_path / "between.pem", "between.example", issuer=root)
    made = make_certificate(tmp_path / "leaf.pem", "gateway.example", issuer=between)
    assert len(made.chain) == 2
    files = split(tmp_path, "leaf", made.pem)
    load_certificate(files, now=now())
    blocks = re.findall(r"-----BEGIN CERT.*?END CERTIFICATE-----\n", files.certificate.read_text(), re.DOTALL)
    files.certificate.write_text("".join(reversed(blocks)))
    with pytest.raises(SettingsError, match="the gateway's own certificate before those of its issuers"):
        load_certificate(files, now=now())


@pytest.mark.parametrize(("named", "missing"), [("CERTIFICATE", "KEY"), ("KEY", "CERTIFICATE")])
def test_one_file_without_the_other_is_refused(named: str, missing: str, tmp_path: Path) -> None:
    settings = load_settings({f"LAKEPROOF_TLS_{named}": "x.pem"}, directory=tmp_path)
    message = f"LAKEPROOF_TLS_{named} is set and LAKEPROOF_TLS_{missing} is not: set both, or neither"
    with pytest.raises(SettingsError, match=message):
        tls_files(settings)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"CLIENT_CA": "x"}, "LAKEPROOF_TLS_CLIENT_CA is set and LAKEPROOF_TLS_CLIENTS is not: set both, or neither"),
        ({"CLIENTS": "x"}, "LAKEPROOF_TLS_CLIENTS is set and LAKEPROOF_TLS_CLIENT_CA is not: set both, or neither"),
        (
            {"CLIENT_CA": "x", "CLIENTS": "x", "CLIENT_REQUIRED": "1"},
            "LAKEPROOF_TLS_CLIENT_REQUIRED is 1 and LAKEPROOF_TLS_CERTIFICATE is not set",
        ),
        ({"CLIENT_REQUIRED": "1"}, "LAKEPROOF_TLS_CLIENT_REQUIRED is 1 and LAKEPROOF_TLS_CLIENT_CA is not set"),
    ],
)
def test_settings_of_client_certificates_that_lack_another_are_refused(
    named: dict[str, str], message: str, tmp_path: Path
) -> None:
    settings = load_settings({f"LAKEPROOF_TLS_{name}": value for name, value in named.items()}, directory=tmp_path)
    with pytest.raises(SettingsError, match=message):
        tls_files(settings)


CLIENT = '[[clients]]\nuri = "spiffe://acme.example/etl"\ntenant = "0190163d8694739baea5966c26f8ad91"\n'
INGRESS = 'uri = "spiffe://acme.example/ingress"'


def clients(
    folder: Path, proxies: str, *, roots: bytes | None = None, others: Mapping[str, str] | None = None
) -> Settings:
    """Settings with a file of a client and `proxies`, and with one of roots."""
    (folder / "clients.toml").write_text(CLIENT + proxies)
    (folder / "roots.pem").write_bytes(pair(folder, "root").certificate.read_bytes() if roots is None else roots)
    files = {"CLIENTS": "clients.toml", "CLIENT_CA": "roots.pem", **(others or {})}
    chosen = {f"LAKEPROOF_TLS_{name}": str(folder / file) for name, file in files.items()}
    return load_settings(chosen, directory=folder)


LOG = Log(log_id=7, origin="logs.example/acme", tenant=UUID("0190163d8694739baea5966c26f8ad91"), reader=None)
WITH_TLS = {"CERTIFICATE": "x.pem", "KEY": "x.pem"}


def test_proxies_without_tls_are_accepted_at_loopback_and_private_addresses(tmp_path: Path) -> None:
    for address in ("127.0.0.1", "::1", "10.0.0.0/8", "172.31.255.0/24", "192.168.1.1", "100.64.0.0/10", "fd00::/8"):
        settings = clients(tmp_path, f'[[proxies]]\naddress = "{address}"')
        assert tls_files(settings) is None
        accepted = load_clients(settings, [LOG])
        assert accepted is not None
        assert accepted.roots is not None
        assert len(accepted.file.proxies) == 1


def test_proxies_with_tls_are_accepted_with_a_name_wherever_they_are(tmp_path: Path) -> None:
    settings = clients(tmp_path, f'[[proxies]]\naddress = "192.0.2.7"\n{INGRESS}', others=WITH_TLS)
    accepted = load_clients(settings, [LOG])
    assert accepted is not None
    assert accepted.roots is not None
    without = load_clients(clients(tmp_path, "", others=WITH_TLS), [LOG])
    assert without is not None
    assert without.roots is None, "nobody may pass a certificate on"


@pytest.mark.parametrize(
    ("proxies", "has_tls", "message"),
    [
        ("", False, "without LAKEPROOF_TLS_CERTIFICATE nobody can show a certificate, and the file has no proxy"),
        *(
            (f'[[proxies]]\naddress = "{address}"', False, f"expected a loopback or private address, .* found {found}")
            for address, found in {
                "192.0.2.7": "192.0.2.7/32",
                "0.0.0.0/0": "0.0.0.0/0",
                "10.0.0.0/7": "10.0.0.0/7",
                "172.0.0.0/8": "172.0.0.0/8",
                "2001:db8::1": "2001:db8::1/128",
                "::/0": "::/0",
                "fe80::1": "fe80::1/128",
                "::ffff:127.0.0.1": "::ffff:",
            }.items()
        ),
        ('[[proxies]]\naddress = ["10.0.0.1", "8.8.8.8"]', False, "found 8.8.8.8/32: set LAKEPROOF_TLS_CERTIFICATE"),
        (f'[[proxies]]\naddress = "::1"\n{INGRESS}', False, "proxy 1: expected no uri and no dns, since without"),
        (f'[[proxies]]\naddress = "::1"\n{INGRESS}\n[[proxies]]\naddress = "::1"', True, "proxy 2: expected the uri"),
        ("[[proxies]]", True, "an address or network"),
    ],
)
def test_proxies_that_could_not_be_known_are_refused(proxies: str, has_tls: bool, message: str, tmp_path: Path) -> None:
    settings = clients(tmp_path, proxies, others=WITH_TLS if has_tls else None)
    with pytest.raises(SettingsError, match=rf"LAKEPROOF_TLS_CLIENTS: \S+clients.toml: .*{message}"):
        load_clients(settings, [LOG])


def test_roots_for_what_proxies_pass_on_that_are_none_are_refused(tmp_path: Path) -> None:
    for roots in (b"", b"nothing", pair(tmp_path, "other").key.read_bytes()):
        settings = clients(tmp_path, '[[proxies]]\naddress = "::1"', roots=roots)
        with pytest.raises(SettingsError, match=r"LAKEPROOF_TLS_CLIENT_CA: .* expected PEM with the root certificates"):
            load_clients(settings, [LOG])


def test_authorities_of_clients_that_are_none_are_refused(tmp_path: Path) -> None:
    files = pair(tmp_path)
    for content in (b"", b"nothing", b"\xff\xfe", files.key.read_bytes()):
        (tmp_path / "authorities.pem").write_bytes(content)
        with pytest.raises(SettingsError, match=r"LAKEPROOF_TLS_CLIENT_CA: .* expected PEM with the root certificates"):
            load_certificate(replace(files, client_ca=tmp_path / "authorities.pem"), now=now())
    with pytest.raises(SettingsError, match=r"LAKEPROOF_TLS_CLIENT_CA: \S+ cannot be read"):
        load_certificate(replace(files, client_ca=tmp_path / "none.pem"), now=now())
    load_certificate(replace(files, client_ca=files.certificate), now=now())


def test_the_url_of_the_gateway_has_the_scheme_of_the_settings(tmp_path: Path) -> None:
    both = {"LAKEPROOF_TLS_CERTIFICATE": "x.pem", "LAKEPROOF_TLS_KEY": "x.key", "LAKEPROOF_PORT": "1"}
    assert gateway_url(load_settings(both, directory=tmp_path)) == "https://127.0.0.1:1"
    assert gateway_url(load_settings({"LAKEPROOF_PORT": "1"}, directory=tmp_path)) == "http://127.0.0.1:1"


def test_the_scene_is_played_without_tls_on_loopback_alone(tmp_path: Path) -> None:
    cloud = Cloud(endpoint="http://127.0.0.1:1", bucket="b", queue="q")
    chosen = {"LAKEPROOF_TLS_CERTIFICATE": "x.pem", "LAKEPROOF_TLS_KEY": "x.key", "LAKEPROOF_HOST": "0.0.0.0"}  # noqa: S104 - not listened on
    scene = scene_settings(load_settings(chosen, directory=tmp_path), cloud, Channel(url="http://127.0.0.1:2/hook"))
    assert (scene.scheme, scene.host) == ("http", "127.0.0.1")
    assert tls_files(scene) is None


async def test_our_own_processes_accept_the_certificate_of_the_file_and_no_other_of_its_issuer(tmp_path: Path) -> None:
    root = make_certificate(tmp_path / "root.pem", "root.example")
    files, other = (
        split(tmp_path, name, make_certificate(tmp_path / f"{name}.pem", "gateway.example", issuer=root).pem)
        for name in ("own", "other")
    )
    trust = GatewayTrust(files)

    async def ask(served: TlsFiles) -> int:
        context = load_certificate(served, now=now()).context
        async with site(tls=lambda: context) as here, httpx.AsyncClient(verify=trust.context) as client:
            return (await client.get(f"{here.url}/now")).status_code

    assert await ask(files) == 200
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        await ask(other)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        await ask(pair(tmp_path, "stranger"))
    files.certificate.write_text("half a certific")
    trust.refresh()  # which is no reason to know nothing any more
    files.certificate.write_bytes(other.certificate.read_bytes())
    trust.refresh()
    assert await ask(other) == 200
    assert trust.context.verify_mode is ssl.CERT_REQUIRED
