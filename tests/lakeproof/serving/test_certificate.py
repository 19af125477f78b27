# SPDX-License-Identifier: Apache-2.0
"""The gateway with TLS: what it answers, and how it gets a new certificate without a restart."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace as replace_in
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from cryptography import x509
from pyiceberg.catalog.rest import RestCatalog

from lakeproof.errors import SettingsError
from lakeproof.provision import Provisioned
from lakeproof.serving.certificate import CurrentCertificate
from lakeproof.serving.in_process import serving
from lakeproof.streaming import gateway_client
from lakeproof.tenants import found_tenant
from lakeproof.tls_settings import TlsFiles
from testkit.environment import PATIENCE_S
from testkit.servers.certificates import Certificate, make_certificate
from testkit.servers.gateways import start_services

NOTHING_ELSE = {"port": "0", "streams": "0", "detect": "0"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a certificate for localhost and its key."""
    return make(tmp_path / "server.pem").file


def make(file: Path, **options: timedelta) -> Certificate:
    return make_certificate(file, "localhost", names=[x509.DNSName("localhost")], **options)  # type: ignore[arg-type]


def replace(file: Path, **options: timedelta) -> None:
    """Put another certificate in the place of `file`, as programs that renew them do."""
    made = make(file.with_suffix(".new"), **options)
    made.file.replace(file)


def ends(current: CurrentCertificate) -> str:
    return next(line for line in current.metrics().splitlines() if line.startswith("lakeproof_tls_certificate_ends{} "))


def is_refused(current: CurrentCertificate) -> bool:
    return "\nlakeproof_tls_certificate_refused{} 1" in current.metrics()


def test_a_pair_that_was_replaced_is_served_from_the_second_look_on(file: Path) -> None:
    current = CurrentCertificate(TlsFiles(certificate=file, key=file))
    context, first = current.context(), ends(current)
    for _ in range(3):
        current.look()
    assert current.context() is context
    replace(file, ends_in=timedelta(days=9))
    current.look()  # it may be half written
    assert current.context() is context
    current.look()
    assert current.context() is not context
    expected = datetime.now(UTC) + timedelta(days=9)
    assert ends(current) != first
    assert abs(float(ends(current).split()[1]) - expected.timestamp()) < 60
    assert not is_refused(current)


def test_a_link_that_leads_elsewhere_is_a_change(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.pem"
    link.symlink_to(file)
    current = CurrentCertificate(TlsFiles(certificate=link, key=link))
    context = current.context()
    link.unlink()
    link.symlink_to(make(tmp_path / "another.pem").file)
    current.look()
    current.look()
    assert current.context() is not context


def test_a_pair_that_cannot_be_served_is_refused_and_the_one_before_stays(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    current = CurrentCertificate(TlsFiles(certificate=file, key=file))
    context, good = current.context(), file.read_bytes()
    for break_it in (
        lambda: file.write_text("nothing"),
        lambda: file.unlink(),
        lambda: replace(file, ends_in=-timedelta(hours=1)),
        lambda: file.chmod(0o644),
    ):
        break_it()
        caplog.clear()
        for _ in range(4):
            current.look()
        assert current.context() is context
        if file.exists() and file.stat().st_mode & 0o077:
            continue  # a mode is no change of the content: it is found by `lakeproof doctor`, and at the next start
        assert [record.levelno for record in caplog.records] == [logging.ERROR], "it is said once"
        assert "is refused, and the one before is still served: LAKEPROOF_TLS" in caplog.text
        assert is_refused(current)
    file.chmod(0o600)
    file.write_bytes(good)
    current.look()
    current.look()
    assert current.context() is not context
    assert not is_refused(current)


def test_authorities_of_clients_that_were_replaced_are_a_change_too(file: Path, tmp_path: Path) -> None:
    authorities = make(tmp_path / "authorities.pem").file
    current = CurrentCertificate(TlsFiles(certificate=file, key=file, client_ca=authorities))
    context = current.context()
    authorities.write_text("nothing")
    current.look()
    current.look()
    assert current.context() is context
    assert is_refused(current)
    replace(authorities)
    current.look()
    current.look()
    assert current.context() is not context
    assert not is_refused(current)
    assert len(current.context().get_ca_certs()) == 1, "the old one is not accepted any more"


def test_a_start_without_a_certificate_that_can_be_served_is_refused(file: Path) -> None:
    replace(file, ends_in=-timedelta(hours=1))
    with pytest.raises(SettingsError, match="has expired"):
        CurrentCertificate(TlsFiles(certificate=file, key=file))


async def test_the_gateway_answers_https_alone_and_gets_a_new_certificate_without_a_restart(
    file: Path, database: str, installation: Provisioned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakeproof.serving.certificate.LOOK_S", 0.05)
    settings = {**NOTHING_ELSE, "tls_certificate": str(file), "tls_key": str(file), "host": "0.0.0.0"}  # noqa: S104
    said: list[str] = []
    async with (
        asyncio.timeout(120),
        start_services(database, installation, tmp_path, **settings) as services,
        serving(services, said.append) as served,
    ):
        assert not [line for line in said if "without TLS" in line]
        assert served.url.startswith("https://0.0.0.0:")
        port = served.url.rpartition(":")[2]
        here = f"https://localhost:{port}"

        async def ask(certificate: Path, url: str = here) -> httpx.Response:
            trusted = ssl.create_default_context(cafile=str(certificate))
            async with httpx.AsyncClient(verify=trusted, timeout=PATIENCE_S) as client:
                return await client.get(f"{url}/metrics")

        before = tmp_path / "before.pem"
        shutil.copy(file, before)
        first = (await ask(before)).text
        assert "lakeproof_tls_certificate_ends{} 1" in first
        assert "lakeproof_tls_certificate_refused{} 0" in first
        refused = await ask(before, f"http://localhost:{port}")
        assert (refused.status_code, "write https://" in refused.text) == (400, True)
        with pytest.raises(httpx.ConnectError, match=r"Hostname mismatch|IP address mismatch"):
            await ask(before, f"https://127.0.0.1:{port}")

        replace(file, ends_in=timedelta(days=9))
        after = None
        while after is None:
            try:
                after = (await ask(file)).text
            except httpx.ConnectError:
                await asyncio.sleep(0.02)
        assert after != first
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await ask(before)


async def test_an_engine_and_our_own_poller_reach_the_gateway_over_tls(
    file: Path, database: str, installation: Provisioned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(file))
    another = make(tmp_path / "another.pem")
    settings = {**NOTHING_ELSE, "tls_certificate": str(file), "tls_key": str(file)}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(120))
        services = await stack.enter_async_context(start_services(database, installation, tmp_path, **settings))
        served = await stack.enter_async_context(serving(services))
        founded = await found_tenant(services, name="acme", identity="ada@acme.example", roles=[], alias="lake")
        port = served.url.rpartition(":")[2]

        def write_and_read() -> int:
            uri = f"https://localhost:{port}"
            catalog = RestCatalog("lakeproof", uri=uri, warehouse="lake", token=founded.key.secret)
            catalog.create_namespace("sales")
            orders = pa.table({"order_id": [1, 2, 3]})
            catalog.create_table("sales.orders", schema=orders.schema).append(orders)
            return int(catalog.load_table("sales.orders").scan().to_arrow().num_rows)

        assert await asyncio.to_thread(write_and_read) == 3
        settings_now = services.installation.settings
        async with gateway_client(served.url, settings_now) as ours:
            assert (await ours.get("/health")).status_code == 200
        settings_now = replace_in(settings_now, tls_certificate=another.file, tls_key=another.file)
        async with gateway_client(served.url, settings_now) as ours:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await ours.get("/health")
