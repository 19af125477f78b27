# SPDX-License-Identifier: Apache-2.0
"""
`GET /log/{origin}/…`: a tenant's log over HTTP, verified by its client, and nothing of another tenant.
"""

from __future__ import annotations

import asyncio
import gzip
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio

from gateway.http import log_routes
from lakeproof.tenants import found_tenant
from ledger.files.directory import CHECKPOINT_FILE, log_files
from ledger.format.event import Event, prepare
from ledger.format.proof import check_proof
from ledger.format.sequence import Group
from ledger.signing.key_directory import KeyDirectory, create_key_directory
from ledger.signing.signer import CheckpointSigner
from ledger.store.read import QUERIES, read_head
from ledger.verify.directory import verify_directory
from testkit.gateway.sales import another_key
from testkit.servers.gateways import Gateway, sign

ENTRIES = 600


on_module_loop = pytest.mark.asyncio(loop_scope="module")


async def sign_hundreds(gateway: Gateway) -> KeyDirectory:
    """Append a few hundred entries and sign them; return the signer's keys."""
    parts = gateway.services.gateway
    event = prepare(
        Event(type="lineage.received", version=1, key="a:b", actor="system", occurred_at=parts.clock(), data={})
    )
    for _ in range(3):
        await parts.append(gateway.acme.log_id, Group(id=parts.new_group_id(), then=(event,) * (ENTRIES // 3)))
    keys = create_key_directory(gateway.services.installation.keys)
    await sign(gateway, keys)
    return keys


def signed_size(gateway: Gateway) -> int:
    with psycopg.connect(gateway.services.installation.admin_dsn) as connection:
        row = connection.execute(QUERIES["latest_checkpoint"], {"log_id": gateway.acme.log_id}).fetchone()
    assert row is not None
    assert row[0] > ENTRIES
    return int(row[0])


@pytest_asyncio.fixture
async def keys(gateway: Gateway) -> KeyDirectory:
    """The keys of a signer that has signed a log of a few hundred entries."""
    return await sign_hundreds(gateway)


@pytest_asyncio.fixture
async def size(gateway: Gateway, keys: KeyDirectory) -> int:
    """The size that was signed."""
    assert keys is not None
    return signed_size(gateway)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_keys(module_gateway: Gateway) -> KeyDirectory:
    """The keys of a signer that has signed such a log, which tests that only read it share."""
    return await sign_hundreds(module_gateway)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_size(module_gateway: Gateway, module_keys: KeyDirectory) -> int:
    """The size that was signed of it."""
    assert module_keys is not None
    return signed_size(module_gateway)


@on_module_loop
async def test_what_is_fetched_is_a_log_that_verifies(
    module_gateway: Gateway, module_keys: KeyDirectory, module_size: int, tmp_path: Path
) -> None:
    base = f"/log/{module_gateway.acme.origin}"
    fetched = tmp_path / "fetched"
    for path in (CHECKPOINT_FILE, *log_files(module_size)):
        answer = await module_gateway.http.get(f"{base}/{path}")
        assert answer.status_code == 200, path
        (fetched / path).parent.mkdir(parents=True, exist_ok=True)
        (fetched / path).write_bytes(answer.content)
    report = verify_directory(fetched, [module_keys.verifier_key(module_gateway.acme.origin)])
    assert (report.size, report.unchecked) == (module_size, ())


@on_module_loop
async def test_tiles_may_be_cached_for_ever_by_the_caller_and_a_checkpoint_may_not(
    module_gateway: Gateway, module_size: int
) -> None:
    base = f"/log/{module_gateway.acme.origin}"
    checkpoint = await module_gateway.http.get(f"{base}/checkpoint")
    assert checkpoint.headers["content-type"] == "text/plain; charset=utf-8"
    assert checkpoint.headers["cache-control"] == "private, no-cache"
    for path in ("tile/0/000", f"tile/0/002.p/{module_size % 256}", "tile/entries/000", "tile/0/000.p/7"):
        answer = await module_gateway.http.get(f"{base}/{path}")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
        assert "authorization" in answer.headers["vary"].lower()


@on_module_loop
async def test_entry_bundles_are_compressed_for_those_who_take_it(module_gateway: Gateway, module_size: int) -> None:
    assert module_size
    path = f"/log/{module_gateway.acme.origin}/tile/entries/000"
    plain = await module_gateway.http.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = await module_gateway.http.get(path, headers={"Accept-Encoding": "gzip;q=0.5, br"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content  # the client has unpacked it
    assert len(gzip.compress(plain.content)) < len(plain.content)
    assert int(packed.headers["content-length"]) < len(plain.content)


TAKE_GZIP = ("gzip", "br, GZIP ; Q=0.001", "x-gzip", "*", "identity;q=1, *;q=0.5", "gzip;q=1.000")
TAKE_NONE = (
    *("gzip;q=0", "br, gzip; q=0.000", "gzip;q=0, *", "*;q=0", "", "br"),
    *("gzipped", "gzip;q=", "gzip;q=nan", "gzip;q=2", "gzip;level=9"),
)


@on_module_loop
async def test_who_does_not_take_gzip_is_not_given_it(module_gateway: Gateway, module_size: int) -> None:
    assert module_size
    path = f"/log/{module_gateway.acme.origin}/tile/entries/000"
    for accepted in (*TAKE_GZIP, *TAKE_NONE):
        answer = await module_gateway.http.get(path, headers={"Accept-Encoding": accepted})
        assert ("content-encoding" in answer.headers) is (accepted in TAKE_GZIP), accepted
        assert "accept-encoding" in answer.headers["vary"].lower()


@on_module_loop
async def test_while_a_bundle_is_compressed_others_are_answered(
    module_gateway: Gateway, module_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module_size
    real, answered = gzip.compress, threading.Event()

    def compress(*arguments: Any, **options: Any) -> bytes:
        assert answered.wait(20), "nobody else was answered meanwhile"
        return real(*arguments, **options)

    monkeypatch.setattr(gzip, "compress", compress)
    base = f"/log/{module_gateway.acme.origin}"
    bundle = asyncio.create_task(
        module_gateway.http.get(f"{base}/tile/entries/000", headers={"Accept-Encoding": "gzip"})
    )
    for _ in range(3):
        assert (await module_gateway.http.get(f"{base}/checkpoint")).status_code == 200
    answered.set()
    assert (await bundle).headers["content-encoding"] == "gzip"


def test_a_place_names_a_log_and_what_is_wanted_of_it_whatever_the_log_is_called() -> None:
    for authority in ("logs.example.org", "example.org/tile/a", "a/receipt/b", "a/tile", "tile/x", "a/checkpoint"):
        for origin in (f"{authority}/{UUID(int=7).hex}", f"{authority}/{UUID(int=7).hex}/2"):
            for path in ("checkpoint", "tile/0/000", "tile/entries/000.p/7", "tile/", "receipt/5", "receipt/"):
                assert log_routes.split_place(f"{origin}/{path}") == (origin, path)


async def test_what_is_not_signed_yet_is_not_published(gateway: Gateway, keys: KeyDirectory, size: int) -> None:
    parts, base = gateway.services.gateway, f"/log/{gateway.acme.origin}"
    before = await gateway.http.get(f"{base}/checkpoint")
    event = prepare(
        Event(type="lineage.received", version=1, key="a:b", actor="system", occurred_at=parts.clock(), data={})
    )
    await parts.append(gateway.acme.log_id, Group(id=parts.new_group_id(), then=(event,)))
    partial = f"{base}/tile/entries/002.p/{(size + 1) % 256}"
    assert (await gateway.http.get(partial)).status_code == 404
    assert (await gateway.http.get(f"{base}/checkpoint")).content == before.content
    await sign(gateway, keys)
    assert (await gateway.http.get(partial)).status_code == 200


NOWHERE = (
    "",
    "checkpoints",
    "checkpoint/",
    "tile/0/0",
    "tile/0/000.p/256",
    "tile/0/000.p/0",
    "tile/0/x000/000",
    "tile/0/999",
    "tile/8/000",
    "tile/64/000",
    "tile/-1/000",
    "tile/entries/",
    "tile/entries/999",
    "tile/entries/000.p/257",
    "tile/0/000%00",
    "vkey",
    "parts/000",
)


@on_module_loop
async def test_what_a_log_does_not_have_is_not_found(module_gateway: Gateway, module_size: int) -> None:
    assert module_size
    for path in NOWHERE:
        answer = await module_gateway.http.get(f"/log/{module_gateway.acme.origin}/{path}")
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundException"), path


async def test_another_tenants_log_and_the_system_log_are_not_there(gateway: Gateway, keys: KeyDirectory) -> None:
    other = await found_tenant(gateway.services, name="umbra", identity="eve@umbra.example", roles=["data-eng"])
    await sign(gateway, keys)
    async with gateway.client(other.key.secret) as eve:
        assert (await eve.get(f"/log/{other.origin}/checkpoint")).status_code == 200
        for origin in (gateway.acme.origin, gateway.services.system.origin, "no/where"):
            for path in ("checkpoint", "tile/0/000", "tile/entries/000"):
                answer = await eve.get(f"/log/{origin}/{path}")
                assert answer.status_code == 404
                assert "expected a log of this origin, found none" in answer.json()["error"]["message"]


@on_module_loop
async def test_who_is_unknown_or_not_permitted_reads_nothing(module_gateway: Gateway, module_size: int) -> None:
    assert module_size
    path = f"/log/{module_gateway.acme.origin}/checkpoint"
    async with module_gateway.client(None) as nobody, module_gateway.client(await another_key(module_gateway)) as eve:
        assert (await nobody.get(path)).status_code == 401
        assert (await eve.get(path)).status_code == 403


async def test_a_log_whose_entry_is_missing_answers_with_an_error_and_not_with_less(
    gateway: Gateway, size: int
) -> None:
    assert size
    with psycopg.connect(gateway.services.installation.admin_dsn, autocommit=True) as connection:
        connection.execute("DELETE FROM ledger.entries WHERE log_id = %s AND index = 5", (gateway.acme.log_id,))
    answer = await gateway.http.get(f"/log/{gateway.acme.origin}/tile/entries/000")
    assert answer.status_code == 500
    assert b"lineage" not in answer.content


async def test_a_receipt_is_the_proof_of_an_entry_as_soon_as_it_is_signed(
    gateway: Gateway, keys: KeyDirectory, size: int
) -> None:
    parts, origin = gateway.services.gateway, gateway.acme.origin
    event = prepare(
        Event(type="lineage.received", version=1, key="a:b", actor="system", occurred_at=parts.clock(), data={})
    )
    await parts.append(gateway.acme.log_id, Group(id=parts.new_group_id(), then=(event,)))
    installation = gateway.services.installation
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        signer = CheckpointSigner(installation.as_role(installation.roles.signer), keys)
        tasks.create_task(signer.run(stop, interval_s=3_600))
        answer = await gateway.http.get(f"/log/{origin}/receipt/{size}")
        stop.set()
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "private, no-cache")
    proven = check_proof(answer.content, [keys.verifier_key(origin)])
    assert (proven.index, proven.checkpoint.size) == (size, size + 1)


@on_module_loop
async def test_what_is_not_there_or_another_tenants_has_no_receipt(module_gateway: Gateway, module_size: int) -> None:
    assert module_size
    parts, origin = module_gateway.services.gateway, module_gateway.acme.origin
    async with parts.database.as_role(parts.roles.auditor) as connection:
        end = (await read_head(connection, module_gateway.acme.log_id)).size
    for place in (f"{origin}/receipt/{end}", f"{origin}/receipt/-1", f"{origin}/receipt/01", "no/where/receipt/0"):
        assert (await module_gateway.http.get(f"/log/{place}")).status_code == 404, place
    assert (await module_gateway.http.get(f"/log/{module_gateway.services.system.origin}/receipt/0")).status_code == 404


async def test_without_a_signer_a_receipt_is_unavailable_for_now(
    gateway: Gateway, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_routes, "RECEIPT_TIMEOUT_S", 0.05)
    parts = gateway.services.gateway
    event = prepare(
        Event(type="lineage.received", version=1, key="a:b", actor="system", occurred_at=parts.clock(), data={})
    )
    await parts.append(gateway.acme.log_id, Group(id=parts.new_group_id(), then=(event,)))
    answer = await gateway.http.get(f"/log/{gateway.acme.origin}/receipt/{size}")
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert "is in the log" in answer.json()["error"]["message"]
